"""What the engine asks of a World: an event log, its views and a queue, changed together or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from wflab import codec
from wflab.durations import as_datetime

__all__ = [
    "Admission",
    "Batch",
    "Candidate",
    "Capabilities",
    "Claim",
    "Committed",
    "HookRecord",
    "Lease",
    "NewEvent",
    "Open",
    "OutcomeUnknownError",
    "Recorded",
    "RunRecord",
    "Source",
    "StaleBatchError",
    "World",
    "hook_created_data",
]


class StaleBatchError(Exception):
    """A batch contradicts what another has written meanwhile. Nothing was written: replay the run and go on."""


class OutcomeUnknownError(Exception):
    """The connection was lost, or the time ran out, while the database was at it: written or not, nobody can tell."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a World can do (R32)."""

    atomic_start_hook: bool
    hook_retention: bool
    force_claim: bool


@dataclass(slots=True)
class Lease:
    """The right to advance a run. A commit with an old `fence` is refused.

    Attributes:
        run_id, worker: who may advance what.
        fence: grows each time that the lease changes hands.
        position: the last position of the log that its holder has seen.
    """

    run_id: str
    worker: str
    fence: int
    position: int


@dataclass(slots=True)
class NewEvent:
    """An event before it has a position.

    Attributes:
        type, correlation_id: as in `semantics.md` §7.
        data: the event's data as JSON text.
        at: its time, in microseconds since 1970.
        view: what the views need of it: the columns it sets.
    """

    type: str
    correlation_id: str | None
    data: str
    at: int
    view: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event of a log. `seen` is set where events of others slipped in before it (see `replay.delivery_order`)."""

    run_id: str
    position: int
    type: str
    correlation_id: str | None
    data: str
    at: int
    seen: int | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A hook's wish to own a token.

    Attributes:
        metadata: encoded value.
        retained_until: end of the retention, in microseconds since 1970; `None` without one.
    """

    hook_id: str
    token: str
    metadata: str = "null"
    retained_until: int | None = None
    force: bool = False
    is_webhook: bool = False


def hook_created_data(claim: Claim, line: str = "") -> str:
    """The data of a `hook_created` event as JSON text; `line` is where the workflow created it."""
    head: dict[str, Any] = {"token": claim.token, "is_webhook": claim.is_webhook}
    if line:
        head["line"] = line
    retained = "null" if claim.retained_until is None else codec.encode(as_datetime(claim.retained_until))
    text = json.dumps(head, separators=(",", ":"))[:-1]
    return f'{text},"retained_until":{retained},"metadata":{claim.metadata}}}'


@dataclass(frozen=True, slots=True)
class Source:
    """One version of a workflow or step as text."""

    hash: str
    kind: str
    name: str
    module: str
    source: str
    filename: str
    first_line: int


@dataclass(slots=True)
class Batch:
    """All that a body asked for up to its suspension. A `hook_created` event carries its `Claim` in `claims`."""

    events: list[NewEvent] = field(default_factory=list)
    claims: dict[str, Claim] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a batch.

    Attributes:
        position: the log's last position.
        owners: for each claim the run that owns the token instead, or `None` where the claim was won.
        had_gap: others have appended events that the holder has not seen yet.
        wake: other runs that something happened to (their token was taken), with the worker that holds each.
    """

    position: int
    owners: dict[str, str | None]
    had_gap: bool
    wake: list[tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that wants to be started.

    Attributes:
        claim: its start hook, if any.
        worker: who advances it from the start; `None` leaves it to whoever has its definition.
        lease_until: the end of that worker's first lease, in microseconds since 1970.
    """

    run_id: str
    workflow: str
    module: str
    definition: Source
    spec_version: int
    seed: str
    input: str
    at: int
    claim: Claim | None = None
    parent_run_id: str | None = None
    worker: str | None = None
    lease_until: int = 0


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of a candidate.

    Attributes:
        lease: the worker's lease, when the candidate was admitted with one.
        owner: the run that holds the token instead; the candidate was refused.
        same_input: whether that owner was started with equal arguments (R33).
    """

    lease: Lease | None = None
    owner: str | None = None
    same_input: bool | None = None


@dataclass(frozen=True, slots=True)
class Open:
    """An open run that somebody should advance."""

    run_id: str
    workflow: str
    module: str
    definition: str
    lease_owner: str | None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as the views know it. Times are microseconds since 1970, values are encoded."""

    run_id: str
    workflow: str
    module: str
    definition: str
    status: str
    spec_version: int
    seed: str
    input: str
    output: str | None
    error: str | None
    error_code: str | None
    cancel_reason: str | None
    created_at: int
    started_at: int | None
    ended_at: int | None
    position: int
    fence: int
    lease_owner: str | None
    lease_until: int | None
    blocked: str | None
    start_token: str | None
    start_hook_id: str | None
    parent_run_id: str | None


@dataclass(frozen=True, slots=True)
class HookRecord:
    """The hook that holds a token. `worker` is who advances its run."""

    hook_id: str
    run_id: str
    token: str
    metadata: str
    created_at: int
    retained_until: int | None
    is_webhook: bool
    is_start: bool
    spec_version: int
    run_status: str
    worker: str | None = None


class World(Protocol):
    """Where runs live. Every method is one transaction."""

    @property
    def url(self) -> str:
        """The database's URL without its password."""

    @property
    def capabilities(self) -> Capabilities:
        """What this World can do (R32)."""

    async def open(self) -> None:
        """Connect; make the tables in an empty database.

        Raises:
            SchemaVersionError: the database is newer than this wflab, or not a wflab database.
            WorldUnavailableError: it can't be reached or written.
        """

    async def close(self) -> None:
        """Disconnect. Twice is once."""

    async def admit(self, candidate: Candidate) -> Admission:
        """Make a run and its start hook, or neither (R26). A candidate that exists already is admitted again.

        Raises:
            WorldUnavailableError: nothing was written.
            OutcomeUnknownError: whether it was written is unknown (R31).
        """

    async def acquire(self, run_id: str, worker: str, *, now: int, until: int, dead: str | None) -> Lease | None:
        """Take the lease on an open run that is free, expired, of a `dead` worker or the worker's own already."""

    async def renew(self, worker: str, *, until: int) -> None:
        """Prolong all leases of a worker."""

    async def release(self, lease: Lease, *, due_at: int | None, blocked: str | None = None) -> None:
        """Give a lease back; ask for the run's attention at `due_at`. A lease that was lost already stays lost."""

    async def release_all(self, worker: str, *, now: int) -> None:
        """Give back all leases of a worker that stops; its runs want attention at once."""

    async def commit(self, lease: Lease, batch: Batch) -> Committed:
        """Append a run's next events and everything that follows from them, and move `lease.position`.

        Raises:
            LeaseLostError: another worker advances this run now, or it has ended. Nothing was written.
            StaleBatchError: the batch contradicts an event of others. Nothing was written.
            WorldUnavailableError: nothing is known to be written.
        """

    async def events(self, run_id: str, *, after: int = 0) -> list[Recorded]:
        """A run's log from position `after + 1` on, by position."""

    async def run(self, run_id: str) -> RunRecord | None:
        """One run, or `None`."""

    async def resume(self, token: str, payload: str, *, now: int, worker: str) -> HookRecord | None:
        """Append a payload to the log of the run that holds the token, and ask for attention; `None` if none can."""

    async def hook_by_token(self, token: str, *, now: int) -> HookRecord | None:
        """The hook that holds the token, also while only its retention does."""

    async def cancel(self, run_id: str, *, reason: str | None, now: int) -> RunRecord | None:
        """End an open run. Gives the run as it was before; `None` when there is none."""

    async def wake_up(
        self, run_id: str, correlation_ids: Sequence[str] | None, *, now: int, worker: str
    ) -> tuple[int, str | None]:
        """End the waiting timers of a run; gives how many, and the worker that advances it."""

    async def open_runs(
        self, worker: str, workflows: Sequence[tuple[str, str]], *, now: int, dead: Sequence[str], limit: int
    ) -> list[Open]:
        """Runs of these workflows, as (module, name), that want attention and that this worker may take."""

    async def next_due_us(self, *, after: int) -> int | None:
        """When the next message of the queue that is not due at `after` becomes due."""

    async def held(self, worker: str) -> int:
        """How many open runs a worker holds the lease of."""

    async def leases(self, worker: str) -> list[Open]:
        """The open runs that a worker holds the lease of."""

    async def lease_owners(self) -> list[str]:
        """The workers that hold leases on open runs."""

    async def has_changed(self) -> bool:
        """Whether another connection has written since the last call. Cheap: it is asked many times a second."""
