"""Appending a batch to a run's log, with all that follows from it in the views."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, null, or_, select, update
from sqlalchemy.sql.expression import ClauseElement

from wflab.errors import LeaseLostError
from wflab.models import Definition, Event, Hook, Message, Run, Step, Wait, table_of
from wflab.world import tokens
from wflab.world.protocol import Batch, Claim, Committed, Lease, NewEvent, Source, StaleBatchError
from wflab.world.statements import DialectInsert, Prepared

__all__ = ["append", "append_for_others", "end_run", "insert_hook", "store_sources"]

run, event, step, hook, wait, message, definition = (
    table_of(model) for model in (Run, Event, Step, Hook, Wait, Message, Definition)
)
IS_OPEN = or_(run.c.status == "pending", run.c.status == "running")

_ADVANCE = Prepared(
    update(run)
    .where(run.c.run_id == bindparam("of_run"), run.c.fence == bindparam("of_fence"), IS_OPEN)
    .values(position=run.c.position + bindparam("count"))
    .returning(run.c.position)
)
_OTHERS_APPEND = Prepared(
    update(run)
    .where(run.c.run_id == bindparam("of_run"), IS_OPEN)
    .values(position=run.c.position + 1)
    .returning(run.c.position, run.c.lease_owner)
)
_EVENT = Prepared(event.insert())
_STARTED = Prepared(
    update(run)
    .where(run.c.run_id == bindparam("of_run"))
    .values(status="running", started_at=func.coalesce(run.c.started_at, bindparam("at")))
)
_ENDED = Prepared(
    update(run)
    .where(run.c.run_id == bindparam("of_run"))
    .values(
        status=bindparam("to_status"),
        output=bindparam("to_output"),
        error=bindparam("to_error"),
        error_code=bindparam("to_code"),
        cancel_reason=bindparam("to_reason"),
        ended_at=bindparam("at"),
        lease_owner=null(),
        lease_until=null(),
        blocked=null(),
    )
)
_MOVED = Prepared(update(run).where(run.c.run_id == bindparam("of_run")).values(definition=bindparam("to_definition")))
_FORGET_MESSAGE = Prepared(delete(message).where(message.c.run_id == bindparam("of_run")))
_STEP = Prepared(step.insert())
_STEP_CHANGED = Prepared(
    update(step)
    .where(
        step.c.run_id == bindparam("of_run"),
        step.c.step_id == bindparam("of_step"),
        step.c.ended_at.is_(None),
    )
    .values(
        status=bindparam("to_status"),
        attempt=bindparam("to_attempt"),
        started_at=func.coalesce(bindparam("to_started"), step.c.started_at),
        ended_at=bindparam("to_ended"),
        retry_at=bindparam("to_retry"),
    )
)
_STEPS_CUT_OFF = Prepared(
    update(step)
    .where(step.c.run_id == bindparam("of_run"), step.c.ended_at.is_(None))
    .values(status="cancelled", ended_at=bindparam("at"), retry_at=null())
)
_WAIT = Prepared(wait.insert())
_WAIT_OVER = Prepared(
    update(wait)
    .where(wait.c.run_id == bindparam("of_run"), wait.c.wait_id == bindparam("of_wait"), wait.c.ended_at.is_(None))
    .values(status=bindparam("to_status"), ended_at=bindparam("at"))
)
_WAITS_CUT_OFF = Prepared(
    update(wait)
    .where(wait.c.run_id == bindparam("of_run"), wait.c.ended_at.is_(None))
    .values(status="cancelled", ended_at=bindparam("at"))
)
_HOOK = Prepared(hook.insert())
_HOOK_STATUS = Prepared(
    select(hook.c.status, hook.c.token).where(
        hook.c.run_id == bindparam("run_id"), hook.c.hook_id == bindparam("hook_id")
    )
)


def _source(insert: DialectInsert) -> ClauseElement:
    return insert(definition).on_conflict_do_nothing(index_elements=[definition.c.hash])  # type: ignore[no-any-return]


_SOURCE = Prepared.for_dialect(_source)


def append(connection: Connection, lease: Lease, batch: Batch, *, now: int) -> Committed:
    """Append a batch under a lease; see `World.commit`."""
    events = batch.events
    owners: dict[str, str | None] = {}
    wake: list[tuple[str, str | None]] = []
    if any(item.type in ("hook_created", "hook_disposed") for item in events):
        _advance(connection, lease, 0)
        events = _change_hooks(connection, lease.run_id, batch, owners, wake)
    base = _advance(connection, lease, len(events)) - len(events)
    seen = lease.position if base != lease.position else None
    rows = [
        {
            "run_id": lease.run_id,
            "position": base + offset,
            "type": item.type,
            "correlation_id": item.correlation_id,
            "data": item.data,
            "created_at": item.at,
            "seen": seen,
        }
        for offset, item in enumerate(events, 1)
    ]
    if rows:
        _EVENT.many(connection, rows)
    _change_views(connection, lease.run_id, events)
    if batch.sources:
        store_sources(connection, batch.sources, now=now)
    return Committed(base + len(events), owners, base != lease.position, wake)


def _advance(connection: Connection, lease: Lease, count: int) -> int:
    row = _ADVANCE.first(connection, of_run=lease.run_id, of_fence=lease.fence, count=count)
    if row is None:
        raise LeaseLostError(lease.run_id, lease.fence)
    return int(row[0])


def _change_hooks(
    connection: Connection,
    run_id: str,
    batch: Batch,
    owners: dict[str, str | None],
    wake: list[tuple[str, str | None]],
) -> list[NewEvent]:
    """Let the database decide each claim, in the order of the calls; a lost one becomes a `hook_conflict` (R20)."""
    decided: list[NewEvent] = []
    for item in batch.events:
        hook_id = item.correlation_id or ""
        if item.type == "hook_disposed":
            found = _HOOK_STATUS(connection, run_id=run_id, hook_id=hook_id).one()
            if found.status in ("taken over", "conflicted"):
                # It has no token to release: another run has it, and the log says so already (R20, R23, R25).
                continue
            tokens.dispose(connection, run_id, hook_id, found.token, now=item.at)
        elif item.type == "hook_created":
            wish = batch.claims[hook_id]
            outcome = tokens.claim(connection, run_id, wish, now=item.at)
            owners[hook_id] = outcome.owner
            if outcome.taken_from is not None:
                wake.append((outcome.taken_from, outcome.taken_from_worker))
            insert_hook(connection, run_id, wish, now=item.at, owner=outcome.owner, taken_from=outcome.taken_from)
            item = _decided_event(item, wish, outcome)
        decided.append(item)
    return decided


def _decided_event(item: NewEvent, wish: Claim, outcome: tokens.Claimed) -> NewEvent:
    if outcome.owner is not None:
        data = json.dumps({"token": wish.token, "conflicting_run_id": outcome.owner}, separators=(",", ":"))
        return NewEvent("hook_conflict", item.correlation_id, data, item.at)
    if outcome.taken_from is not None:
        data = f'{item.data[:-1]},"force_claimed_from":{json.dumps(outcome.taken_from)}}}'
        return NewEvent(item.type, item.correlation_id, data, item.at)
    return item


def insert_hook(
    connection: Connection,
    run_id: str,
    wish: Claim,
    *,
    now: int,
    is_start: bool = False,
    owner: str | None = None,
    taken_from: str | None = None,
) -> None:
    """Add the view of a hook; `owner` is the run that refused it, `taken_from` the one it took its token from."""
    _HOOK(
        connection,
        run_id=run_id,
        hook_id=wish.hook_id,
        token=wish.token,
        status="open" if owner is None else "conflicted",
        is_start=is_start,
        is_webhook=wish.is_webhook,
        metadata=wish.metadata,
        created_at=now,
        ended_at=None if owner is None else now,
        retained_until=wish.retained_until,
        received=0,
        conflicting_run_id=owner,
        force_claimed_from=taken_from,
        force_claimed_by=None,
    )


def _change_views(connection: Connection, run_id: str, events: Iterable[NewEvent]) -> None:
    new_steps: dict[str, dict[str, Any]] = {}
    steps: dict[str, dict[str, Any]] = {}
    waits: list[dict[str, Any]] = []
    waits_over: list[dict[str, Any]] = []
    for item in events:
        kind, view, at = item.type, item.view, item.at
        if kind.startswith("step_"):
            _note_step(run_id, item, new_steps, steps)
        elif kind == "wait_created":
            row: dict[str, Any] = {
                "run_id": run_id,
                "wait_id": item.correlation_id,
                "status": "waiting",
                "created_at": at,
            }
            row |= {"is_sleep": view["is_sleep"], "resume_at": view["resume_at"], "ended_at": None}
            waits.append(row)
        elif kind == "wait_completed":
            status = "cancelled" if view.get("cancelled") else "completed"
            waits_over.append({"of_run": run_id, "of_wait": item.correlation_id, "to_status": status, "at": at})
        elif kind == "run_started":
            _STARTED(connection, of_run=run_id, at=at)
        elif kind == "attr_set" and "definition" in view:
            _MOVED(connection, of_run=run_id, to_definition=view["definition"])
    if new_steps:
        _STEP.many(connection, list(new_steps.values()))
    if steps and _STEP_CHANGED.many(connection, list(steps.values())) != len(steps):
        raise StaleBatchError
    if waits:
        _WAIT.many(connection, waits)
    if waits_over and _WAIT_OVER.many(connection, waits_over) != len(waits_over):
        # Woken from outside in the same moment (`wake_up`): that event is in the log, so this one must not be.
        raise StaleBatchError
    for item in events:
        if item.type in ("run_completed", "run_failed"):
            end_run(connection, run_id, item.type[4:], at=item.at, **item.view)


_STEP_STATUS = {"step_started": "running", "step_retrying": "retrying", "step_completed": "completed"}


def _note_step(
    run_id: str, item: NewEvent, new_steps: dict[str, dict[str, Any]], steps: dict[str, dict[str, Any]]
) -> None:
    view, at, step_id = item.view, item.at, item.correlation_id or ""
    if item.type == "step_created":
        new_steps[step_id] = {
            "run_id": run_id,
            "step_id": step_id,
            "name": view["name"],
            "status": "created",
            "attempt": 0,
            "created_at": at,
            "started_at": None,
            "ended_at": None,
            "retry_at": None,
        }
        return
    if item.type == "step_failed":
        status: str = "cancelled" if view.get("cancelled") else "failed"
        ended: int | None = at
    else:
        status, ended = _STEP_STATUS[item.type], at if item.type == "step_completed" else None
    started = at if item.type == "step_started" else None
    fresh = new_steps.get(step_id)
    if fresh is not None:
        fresh.update(status=status, ended_at=ended, attempt=view["attempt"])
        fresh["started_at"] = started or fresh["started_at"]
        fresh["retry_at"] = view.get("retry_at")
        return
    before = steps.get(step_id, {})
    steps[step_id] = {
        "of_run": run_id,
        "of_step": step_id,
        "to_status": status,
        "to_attempt": view["attempt"],
        "to_started": started or before.get("to_started"),
        "to_ended": ended,
        "to_retry": view.get("retry_at"),
    }


def end_run(
    connection: Connection,
    run_id: str,
    status: str,
    *,
    at: int,
    output: str | None = None,
    error: str | None = None,
    error_code: str | None = None,
    reason: str | None = None,
) -> None:
    """End a run in the views, close what it left open, and release its tokens (R14, R24)."""
    _ENDED(
        connection,
        of_run=run_id,
        to_status=status,
        to_output=output,
        to_error=error,
        to_code=error_code,
        to_reason=reason,
        at=at,
    )
    _STEPS_CUT_OFF(connection, of_run=run_id, at=at)
    _WAITS_CUT_OFF(connection, of_run=run_id, at=at)
    tokens.release_tokens(connection, run_id, now=at)
    _FORGET_MESSAGE(connection, of_run=run_id)


def append_for_others(
    connection: Connection, run_id: str, type_: str, correlation_id: str | None, data: str, *, at: int
) -> tuple[int, str | None] | None:
    """Append one event to an open run's log without its lease; gives its position and who holds the lease."""
    row = _OTHERS_APPEND(connection, of_run=run_id).first()
    if row is None:
        return None
    _EVENT(
        connection,
        run_id=run_id,
        position=row.position,
        type=type_,
        correlation_id=correlation_id,
        data=data,
        created_at=at,
        seen=None,
    )
    return row.position, row.lease_owner


def store_sources(connection: Connection, sources: Iterable[Source], *, now: int) -> None:
    """Keep the text of definitions, each once."""
    for source in sources:
        _SOURCE(
            connection,
            hash=source.hash,
            kind=source.kind,
            name=source.name,
            module=source.module,
            source=source.source,
            filename=source.filename,
            first_line=source.first_line,
            created_at=now,
        )
