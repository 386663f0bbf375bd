"""What callers ask of a Lab, carried out where its engine runs; each is a durable step when a workflow asks (R15)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wflab import codec, ids
from wflab.clock import Clock
from wflab.durations import Duration, as_datetime, deadline_us
from wflab.engine.definitions import Workflow
from wflab.engine.dispatcher import Engine
from wflab.engine.log import encode_arguments
from wflab.errors import (
    HookConflictError,
    HookNotFoundError,
    NotAWorkflowError,
    WorkflowArgumentsError,
    WorkflowRunCancelledError,
    WorkflowRunFailedError,
    WorkflowRunNotFoundError,
    WorkflowStartError,
    WorldCapabilityError,
)
from wflab.waiting import wait_for_end
from wflab.workflow import check_token, retained_until_us
from wflab.world.protocol import Candidate, Claim, HookRecord, OutcomeUnknownError, RunRecord, World

__all__ = ["SPEC_VERSION", "Event", "HookInfo", "Operations", "StartHook", "StartRequest", "deciding_lab"]

SPEC_VERSION = 8
"""Stored with each run; a token can be taken by force from runs of this version on (R25)."""

deciding_lab: ContextVar[Any] = ContextVar("wflab_deciding_lab", default=None)
"""The Lab for which a value is being decoded: a `Run` in it belongs to that Lab."""


@dataclass(frozen=True, slots=True)
class StartHook:
    """The hook that a run is started with: its token is the run's idempotency key (R26).

    Attributes:
        token: a non-empty string of at most 512 characters, from your domain: an order id, a request id.
        min_retention: how long from the start the token stays taken, even when the run ends before (R30).
        metadata: any storable value, shown by `get_hook_by_token`.
    """

    token: str
    min_retention: Duration | None = None
    metadata: Any = None


@dataclass(frozen=True, slots=True)
class HookInfo:
    """A hook as its token finds it.

    Attributes:
        token, hook_id, run_id: which hook of which run.
        metadata: what it was created with.
        created_at: aware UTC.
        retained_until: until when the token stays taken at least, aware UTC; `None` without a retention.
        is_webhook, is_start_hook: what kind of hook it is.
        spec_version: that of its run.
    """

    token: str
    hook_id: str
    run_id: str
    metadata: Any
    created_at: datetime
    retained_until: datetime | None
    is_webhook: bool
    is_start_hook: bool
    spec_version: int

    def _repr_html_(self) -> str:
        from wflab.views.html import hook_info_html

        return hook_info_html(self)


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a run's log (`semantics.md` §7).

    Attributes:
        run_id, position: where; positions are dense, from 1.
        type: `step_completed`, `hook_received`, …
        correlation_id: the step, hook or wait that it is about, or `None`.
        data: decoded.
        created_at: aware UTC.
    """

    run_id: str
    position: int
    type: str
    correlation_id: str | None
    data: dict[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A call of `start`, checked: what can be refused without a World has been.

    Raises: see `StartRequest.of`.
    """

    workflow: Workflow[..., Any]
    input: str
    hook: StartHook | None
    spec_version: int

    @classmethod
    def of(
        cls,
        workflow: Any,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        hook: StartHook | Mapping[str, Any] | None,
        spec_version: int,
    ) -> StartRequest:
        """Check a call.

        Raises:
            NotAWorkflowError: (a `TypeError`) the function is not a workflow.
            WorkflowArgumentsError: (a `TypeError`) the arguments do not fit its signature.
            SerializationError: an argument can't be stored.
            InvalidTokenError, InvalidDurationError: (`ValueError`s) of the hook.
        """
        if not isinstance(workflow, Workflow):
            raise NotAWorkflowError(workflow)
        signature = str(workflow.signature)
        if isinstance(args, str | bytes) or not isinstance(args if args is not None else (), Sequence):
            reason = f"args must be a list of arguments, not {args!r:.60}"
            raise WorkflowArgumentsError(workflow.name, signature, reason)
        try:
            bound = workflow.signature.bind(*(args or ()), **(kwargs or {}))
        except TypeError as misfit:
            raise WorkflowArgumentsError(workflow.name, signature, str(misfit)) from None
        if not isinstance(spec_version, int) or not 1 <= spec_version <= SPEC_VERSION:
            raise ValueError(f"spec_version={spec_version!r} must be 1 to {SPEC_VERSION}")
        # Bound first: by position or by name, equal arguments are an equal input (R33).
        return cls(workflow, encode_arguments(bound.args, bound.kwargs), _start_hook(hook), spec_version)


def _start_hook(hook: StartHook | Mapping[str, Any] | None) -> StartHook | None:
    if hook is None:
        return None
    if isinstance(hook, Mapping):
        known = {"token", "min_retention", "metadata"}
        if "token" not in hook or set(hook) - known:
            raise ValueError(
                f"hook={dict(hook)!r:.100} must have the keys of StartHook: token, min_retention, metadata"
            )
        hook = StartHook(**hook)
    if not isinstance(hook, StartHook):
        raise TypeError(f"hook={hook!r:.80} must be a StartHook or a mapping with its keys")
    check_token(hook.token)
    deadline_us(0.0 if hook.min_retention is None else hook.min_retention, now_us=0)
    codec.encode(hook.metadata, path="metadata")
    return hook


class Operations:
    """The operations of one Lab, on its engine's loop."""

    def __init__(self, lab: Any, world: World, engine: Engine, clock: Clock) -> None:
        self.lab = lab
        self.world = world
        self.engine = engine
        self.clock = clock

    # -- starting -----------------------------------------------------------------------------------------

    async def start(self, request: StartRequest, *, run_id: str | None = None, parent: str | None = None) -> Any:
        """Start a run, once per token (R26); see `wflab.start`.

        Args:
            run_id: the candidate's id, when the caller must find it again (R31).
            parent: the run that starts it.
        """
        now = self.clock.now_us()
        hook = request.hook
        if hook is not None:
            self._check_capabilities(hook)
        seed = secrets.token_hex(16)
        candidate_id = run_id or ids.new_run_id(now)
        claim = None
        if hook is not None:
            until = retained_until_us(hook.min_retention, now_us=now, limit_us=self.engine.max_retention_us)
            metadata = codec.encode(hook.metadata, path="metadata")
            claim = Claim(ids.derived_id("hook", seed, 0, now), hook.token, metadata, until)
        candidate = Candidate(
            candidate_id,
            request.workflow.name,
            request.workflow.module,
            request.workflow.source,
            request.spec_version,
            seed,
            request.input,
            now,
            claim,
            parent,
            self.engine.worker,
            self.engine.lease_until(),
        )
        try:
            admission = await self.engine.admit(candidate, request.workflow)
        except (OutcomeUnknownError, TimeoutError, ConnectionError) as unknown:
            raise WorkflowStartError(candidate_id, hook.token if hook else None) from unknown
        if admission.owner is not None:
            token = hook.token if hook is not None else ""
            raise HookConflictError(token, admission.owner, admission.same_input)
        return self.lab.get_run(candidate_id)

    def _check_capabilities(self, hook: StartHook) -> None:
        able = self.world.capabilities
        if not able.atomic_start_hook:
            raise WorldCapabilityError("atomic_start_hook")
        if hook.min_retention is not None and not able.hook_retention:
            raise WorldCapabilityError("hook_retention")

    # -- hooks ----------------------------------------------------------------------------------------------

    async def resume_hook(self, token: str, payload: Any) -> HookInfo:
        """Deliver a payload (R21); see `wflab.resume_hook`."""
        text = codec.encode(payload, path="payload")
        found = await self.world.resume(token, text, now=self.clock.now_us(), worker=self.engine.worker)
        if found is None:
            raise HookNotFoundError(token)
        self.engine.wake(found.run_id, found.worker)
        return self._hook_info(found)

    async def get_hook_by_token(self, token: str) -> HookInfo:
        """The hook that holds a token; see `wflab.get_hook_by_token`."""
        found = await self.world.hook_by_token(token, now=self.clock.now_us())
        if found is None:
            raise HookNotFoundError(token)
        return self._hook_info(found)

    def _hook_info(self, record: HookRecord) -> HookInfo:
        until = record.retained_until
        return HookInfo(
            record.token,
            record.hook_id,
            record.run_id,
            self._decode(record.metadata, unresolved="show"),
            as_datetime(record.created_at),
            None if until is None else as_datetime(until),
            record.is_webhook,
            record.is_start,
            record.spec_version,
        )

    # -- runs -----------------------------------------------------------------------------------------------

    async def record(self, run_id: str) -> RunRecord:
        """A run's view. Raises `WorkflowRunNotFoundError` for an unknown id."""
        record = await self.world.run(run_id)
        if record is None:
            raise WorkflowRunNotFoundError(run_id)
        return record

    async def exists(self, run_id: str) -> bool:
        """Whether there is such a run."""
        return await self.world.run(run_id) is not None

    async def status(self, run_id: str) -> str:
        """`pending`, `running`, `completed`, `failed` or `cancelled`."""
        return (await self.record(run_id)).status

    async def workflow_name(self, run_id: str) -> str:
        """The name of the run's workflow."""
        return (await self.record(run_id)).workflow

    async def created_at(self, run_id: str) -> datetime:
        """When the run was admitted."""
        return as_datetime((await self.record(run_id)).created_at)

    async def started_at(self, run_id: str) -> datetime | None:
        """When its body began."""
        started = (await self.record(run_id)).started_at
        return None if started is None else as_datetime(started)

    async def ended_at(self, run_id: str) -> datetime | None:
        """When it ended."""
        ended = (await self.record(run_id)).ended_at
        return None if ended is None else as_datetime(ended)

    async def return_value(self, run_id: str, timeout: Duration | None = None) -> Any:
        """Wait for a run's end and give its value (R13); see `Run.return_value`."""
        await self.record(run_id)
        record = await wait_for_end(self.engine, run_id, timeout)
        if record.status == "cancelled":
            raise WorkflowRunCancelledError(run_id, record.cancel_reason)
        if record.status == "failed":
            cause = self._decode(record.error or "null")
            code = record.error_code or "USER_ERROR"
            raise WorkflowRunFailedError(run_id, code, _reason(cause)) from cause
        return self._decode(record.output or "null")

    async def cancel(self, run_id: str, reason: str | None = None) -> None:
        """End an open run (R14)."""
        before = await self.world.cancel(run_id, reason=reason, now=self.clock.now_us())
        if before is None:
            raise WorkflowRunNotFoundError(run_id)
        self.engine.cancelled(run_id)

    async def wake_up(self, run_id: str, correlation_ids: Sequence[str] | None = None) -> int:
        """End sleeps early; gives how many."""
        await self.record(run_id)
        count, worker = await self.world.wake_up(
            run_id, correlation_ids, now=self.clock.now_us(), worker=self.engine.worker
        )
        if count:
            self.engine.wake(run_id, worker)
        return count

    async def blocked(self, run_id: str) -> str | None:
        """Why an open run can't go on, or `None` (R11, R12)."""
        record = await self.record(run_id)
        return record.blocked or self.engine.missing_definition(record)

    async def events(self, run_id: str) -> list[Event]:
        """A run's log."""
        await self.record(run_id)
        return [
            Event(
                item.run_id,
                item.position,
                item.type,
                item.correlation_id,
                self._decode(item.data, unresolved="show"),
                as_datetime(item.at),
            )
            for item in await self.world.events(run_id)
        ]

    def _decode(self, text: str, *, unresolved: Any = "raise") -> Any:
        before = deciding_lab.set(self.lab)
        try:
            return codec.decode(text, unresolved=unresolved)
        finally:
            deciding_lab.reset(before)


def _reason(cause: Any) -> str:
    return f"{type(cause).__name__}: {cause}" if isinstance(cause, BaseException) else ""
