"""The World on SQL: every behaviour that does not depend on which database it is."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import Connection, and_, bindparam, case, delete, false, func, null, or_, select, tuple_, update

from wflab.models import Event, Hook, Message, Run, Token, Wait, table_of
from wflab.world import tokens
from wflab.world.admission import admit, find_run
from wflab.world.appending import IS_OPEN, append, append_for_others, end_run
from wflab.world.protocol import (
    Admission,
    Batch,
    Candidate,
    Capabilities,
    Committed,
    HookRecord,
    Lease,
    Open,
    Recorded,
    RunRecord,
)
from wflab.world.statements import Prepared

__all__ = ["SqlWorld"]

T = TypeVar("T")
run, event, hook, token, wait, message = (table_of(model) for model in (Run, Event, Hook, Token, Wait, Message))

_ACQUIRE = Prepared(
    update(run)
    .where(
        run.c.run_id == bindparam("of_run"),
        IS_OPEN,
        or_(
            run.c.lease_owner.is_(None),
            run.c.lease_owner == bindparam("worker"),
            run.c.lease_owner == bindparam("dead"),
            run.c.lease_until <= bindparam("now"),
        ),
    )
    .values(
        # A worker that asks again for what it holds must not lock itself out.
        fence=run.c.fence + case((run.c.lease_owner == bindparam("worker"), 0), else_=1),
        lease_owner=bindparam("worker"),
        lease_until=bindparam("until"),
        blocked=null(),
    )
    .returning(run.c.fence, run.c.position)
)
_TAKE_MESSAGE = Prepared(delete(message).where(message.c.run_id == bindparam("of_run")))
_RENEW = Prepared(
    update(run).where(run.c.lease_owner == bindparam("worker"), IS_OPEN).values(lease_until=bindparam("until"))
)
_RELEASE = Prepared(
    update(run)
    .where(run.c.run_id == bindparam("of_run"), run.c.fence == bindparam("of_fence"), IS_OPEN)
    .values(lease_owner=null(), lease_until=null(), blocked=bindparam("reason"))
)
_RELEASE_ALL = Prepared(
    update(run)
    .where(run.c.lease_owner == bindparam("worker"), IS_OPEN)
    .values(lease_owner=null(), lease_until=null())
    .returning(run.c.run_id)
)
_EVENTS = Prepared(
    select(
        event.c.run_id,
        event.c.position,
        event.c.type,
        event.c.correlation_id,
        event.c.data,
        event.c.created_at,
        event.c.seen,
    )
    .where(event.c.run_id == bindparam("run_id"), event.c.position > bindparam("after"))
    .order_by(event.c.position)
)
_HOOK_BY_TOKEN = Prepared(
    select(
        hook.c.hook_id,
        hook.c.run_id,
        hook.c.token,
        hook.c.metadata,
        hook.c.created_at,
        hook.c.retained_until,
        hook.c.is_webhook,
        hook.c.is_start,
        run.c.spec_version,
        run.c.status,
    )
    .join_from(token, hook, and_(hook.c.run_id == token.c.run_id, hook.c.hook_id == token.c.hook_id))
    .join(run, run.c.run_id == token.c.run_id)
    .where(
        token.c.token == bindparam("token"), or_(token.c.held_until.is_(None), token.c.held_until > bindparam("now"))
    )
)
_COUNT_PAYLOAD = Prepared(
    update(hook)
    .where(hook.c.run_id == bindparam("of_run"), hook.c.hook_id == bindparam("of_hook"))
    .values(received=hook.c.received + 1)
)
_WAITING = Prepared(
    select(wait.c.wait_id, wait.c.is_sleep)
    .where(wait.c.run_id == bindparam("run_id"), wait.c.ended_at.is_(None))
    .order_by(wait.c.created_at, wait.c.wait_id)
)
_WAKE = Prepared(
    update(wait)
    .where(wait.c.run_id == bindparam("of_run"), wait.c.wait_id == bindparam("of_wait"), wait.c.ended_at.is_(None))
    .values(status="woken", ended_at=bindparam("at"))
)
_NEXT_DUE = Prepared(select(func.min(message.c.due_at)).where(message.c.due_at > bindparam("after")))
_HELD = Prepared(select(func.count()).where(IS_OPEN, run.c.lease_owner == bindparam("worker")))
_LEASES = Prepared(
    select(run.c.run_id, run.c.workflow, run.c.module, run.c.definition, run.c.lease_owner).where(
        IS_OPEN, run.c.lease_owner == bindparam("worker")
    )
)
_OWNERS = Prepared(select(run.c.lease_owner).where(IS_OPEN, run.c.lease_owner.is_not(None)).distinct())


class SqlWorld(ABC):
    """Runs in a SQL database. A subclass says how to connect and how a transaction begins."""

    capabilities = Capabilities(atomic_start_hook=True, hook_retention=True, force_claim=True)

    @abstractmethod
    async def _write(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in one writing transaction: all of it is kept, or nothing.

        Raises:
            WorldUnavailableError: the database could not be reached or written.
        """

    @abstractmethod
    async def _read(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in one reading transaction."""

    # -- starting and advancing runs --------------------------------------------------------------

    async def admit(self, candidate: Candidate) -> Admission:
        """Make a run and its start hook, or neither (R26)."""
        return await self._write(lambda connection: admit(connection, candidate))

    async def acquire(self, run_id: str, worker: str, *, now: int, until: int, dead: str | None) -> Lease | None:
        """Take the lease on an open run that is free, expired, of the `dead` worker or the worker's own already."""

        def work(connection: Connection) -> Lease | None:
            row = _ACQUIRE(connection, of_run=run_id, worker=worker, dead=dead or worker, now=now, until=until).first()
            if row is None:
                return None
            _TAKE_MESSAGE(connection, of_run=run_id)
            return Lease(run_id, worker, row.fence, row.position)

        return await self._write(work)

    async def renew(self, worker: str, *, until: int) -> None:
        """Prolong all leases of a worker."""
        await self._write(lambda connection: _RENEW(connection, worker=worker, until=until))

    async def release(self, lease: Lease, *, due_at: int | None, blocked: str | None = None) -> None:
        """Give a lease back; ask for the run's attention at `due_at`. A lease that was lost already stays lost."""

        def work(connection: Connection) -> None:
            released = _RELEASE(connection, of_run=lease.run_id, of_fence=lease.fence, reason=blocked).rowcount
            if released and due_at is not None:
                tokens.ask_for_attention(connection, lease.run_id, due_at=due_at)

        await self._write(work)

    async def release_all(self, worker: str, *, now: int) -> None:
        """Give back all leases of a worker that stops; its runs want attention at once."""

        def work(connection: Connection) -> None:
            for row in _RELEASE_ALL(connection, worker=worker).all():
                tokens.ask_for_attention(connection, row.run_id, due_at=now)

        await self._write(work)

    async def commit(self, lease: Lease, batch: Batch) -> Committed:
        """Append a run's next events and everything that follows from them (see `World.commit`)."""
        now = batch.events[-1].at if batch.events else 0
        return await self._write(lambda connection: append(connection, lease, batch, now=now))

    # -- from outside -------------------------------------------------------------------------------

    async def resume(self, token: str, payload: str, *, now: int, worker: str) -> HookRecord | None:
        """Append a payload to the log of the run that holds the token (R21); `None` if none can take it (R22)."""

        def work(connection: Connection) -> HookRecord | None:
            found = _find_hook(connection, token, now)
            if found is None:
                return None
            data = f'{{"token":{json.dumps(token)},"payload":{payload}}}'
            appended = append_for_others(connection, found.run_id, "hook_received", found.hook_id, data, at=now)
            if appended is None:
                return None
            _COUNT_PAYLOAD(connection, of_run=found.run_id, of_hook=found.hook_id)
            return _with_worker(found, _notify(connection, found.run_id, appended[1], worker, now))

        return await self._write(work)

    async def cancel(self, run_id: str, *, reason: str | None, now: int) -> RunRecord | None:
        """End an open run (R14). Gives the run as it was before; `None` when there is none."""

        def work(connection: Connection) -> RunRecord | None:
            before = find_run(connection, run_id)
            data = json.dumps({"reason": reason}, separators=(",", ":"))
            if before is not None and append_for_others(connection, run_id, "run_cancelled", None, data, at=now):
                end_run(connection, run_id, "cancelled", at=now, reason=reason)
            return before

        return await self._write(work)

    async def wake_up(
        self, run_id: str, correlation_ids: Sequence[str] | None, *, now: int, worker: str
    ) -> tuple[int, str | None]:
        """End the waiting timers of a run; gives how many, and the worker that advances it."""

        def work(connection: Connection) -> tuple[int, str | None]:
            count, holder = 0, None
            for row in _WAITING(connection, run_id=run_id).all():
                # A deadline (`asyncio.timeout`) is only made to pass by whoever names it.
                if not (row.is_sleep if correlation_ids is None else row.wait_id in correlation_ids):
                    continue
                appended = append_for_others(
                    connection, run_id, "wait_completed", row.wait_id, '{"woken":true}', at=now
                )
                if appended is not None:
                    _WAKE(connection, of_run=run_id, of_wait=row.wait_id, at=now)
                    count, holder = count + 1, appended[1]
            return count, _notify(connection, run_id, holder, worker, now) if count else holder

        return await self._write(work)

    # -- looking ------------------------------------------------------------------------------------

    async def events(self, run_id: str, *, after: int = 0) -> list[Recorded]:
        """A run's log from position `after + 1` on, by position."""
        return await self._read(
            lambda connection: [Recorded(*tuple(row)) for row in _EVENTS(connection, run_id=run_id, after=after).all()]
        )

    async def run(self, run_id: str) -> RunRecord | None:
        """One run, or `None`."""
        return await self._read(lambda connection: find_run(connection, run_id))

    async def hook_by_token(self, token: str, *, now: int) -> HookRecord | None:
        """The hook that holds the token, also while only its retention does (R24)."""
        return await self._read(lambda connection: _find_hook(connection, token, now))

    async def next_due_us(self, *, after: int) -> int | None:
        """When the next message of the queue that is not due at `after` becomes due."""
        return await self._read(lambda connection: _NEXT_DUE(connection, after=after).scalar_one())

    async def held(self, worker: str) -> int:
        """How many open runs a worker holds the lease of."""
        return await self._read(lambda connection: int(_HELD(connection, worker=worker).scalar_one()))

    async def leases(self, worker: str) -> list[Open]:
        """The open runs that a worker holds the lease of."""
        return await self._read(
            lambda connection: [Open(*tuple(row)) for row in _LEASES(connection, worker=worker).all()]
        )

    async def lease_owners(self) -> list[str]:
        """The workers that hold leases on open runs."""
        return await self._read(lambda connection: list(_OWNERS(connection).scalars()))

    async def open_runs(
        self, worker: str, workflows: Sequence[tuple[str, str]], *, now: int, dead: Sequence[str], limit: int
    ) -> list[Open]:
        """Runs of these workflows, as (module, name), that want attention and that this worker may take."""
        columns = (run.c.run_id, run.c.workflow, run.c.module, run.c.definition, run.c.lease_owner)
        is_known = tuple_(run.c.module, run.c.workflow).in_(workflows) if workflows else false()
        of_dead = run.c.lease_owner.in_(dead) if dead else false()
        is_lost = and_(run.c.lease_owner.is_not(None), or_(of_dead, run.c.lease_until <= now))
        asked = (
            select(*columns)
            .join_from(message, run, message.c.run_id == run.c.run_id)
            .where(
                message.c.due_at <= now,
                or_(run.c.lease_owner == worker, and_(is_known, or_(run.c.lease_owner.is_(None), is_lost))),
            )
            .order_by(message.c.due_at)
            .limit(limit)
        )
        lost = select(*columns).where(IS_OPEN, is_known, is_lost, run.c.lease_owner != worker).limit(limit)

        def work(connection: Connection) -> list[Open]:
            rows = [*connection.execute(asked).all(), *connection.execute(lost).all()]
            return list({row.run_id: Open(*tuple(row)) for row in rows}.values())

        return await self._read(work)


def _find_hook(connection: Connection, token: str, now: int) -> HookRecord | None:
    row = _HOOK_BY_TOKEN(connection, token=token, now=now).first()
    if row is None:
        return None
    values: list[Any] = list(row)
    values[6:8] = map(bool, values[6:8])
    return HookRecord(*values)


def _notify(connection: Connection, run_id: str, holder: str | None, worker: str, now: int) -> str | None:
    """Ask for attention, unless the caller holds the run itself and will see to it without a message."""
    if holder != worker:
        tokens.ask_for_attention(connection, run_id, due_at=now)
    return holder


def _with_worker(found: HookRecord, worker: str | None) -> HookRecord:
    return replace(found, worker=worker)
