"""Tokens: claimed, refused, taken over and released by the database, inside the transaction that asks for it.

The unique key decides, not a look-up: two claimers may both see a free token, but only one row can be written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, null, select, update
from sqlalchemy.sql.expression import ClauseElement

from wflab.models import OPEN_STATUSES, Event, Hook, Message, Run, Token, table_of
from wflab.world.protocol import Claim
from wflab.world.statements import DialectInsert, Prepared

__all__ = ["REFUSALS_KEPT", "Claimed", "ask_for_attention", "claim", "note_refusal", "release_tokens"]

REFUSALS_KEPT = 100
FORCE_SPEC_VERSION = 8
"""The first spec version whose runs can have their tokens taken (R25)."""

token, hook, run, event, message = (table_of(model) for model in (Token, Hook, Run, Event, Message))


@dataclass(frozen=True, slots=True)
class Claimed:
    """What became of a claim: the `owner` that refused it, or the run that the token was `taken_from`, if any."""

    owner: str | None = None
    taken_from: str | None = None
    taken_from_worker: str | None = None


def _claim_free(insert: DialectInsert) -> ClauseElement:
    fresh = insert(token).values(
        token=bindparam("token"),
        run_id=bindparam("run_id"),
        hook_id=bindparam("hook_id"),
        since=bindparam("now"),
        held_until=null(),
        refused=0,
        refusals="[]",
    )
    return fresh.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=[token.c.token],
        set_={
            "run_id": fresh.excluded.run_id,
            "hook_id": fresh.excluded.hook_id,
            "since": fresh.excluded.since,
            "held_until": null(),
        },
        # NULL while the owner's run is open, which compares to nothing: an open owner is never replaced.
        where=token.c.held_until <= bindparam("now"),
    )


def _ask(insert: DialectInsert) -> ClauseElement:
    fresh = insert(message).values(run_id=bindparam("run_id"), due_at=bindparam("due_at"))
    return fresh.on_conflict_do_update(  # type: ignore[no-any-return]
        index_elements=[message.c.run_id],
        set_={"due_at": fresh.excluded.due_at},
        where=message.c.due_at > fresh.excluded.due_at,
    )


_CLAIM_FREE = Prepared.for_dialect(_claim_free)
_ASK = Prepared.for_dialect(_ask)
_HOLDER = Prepared(
    select(token.c.run_id, token.c.hook_id, token.c.held_until, run.c.status, run.c.spec_version, run.c.lease_owner)
    .join_from(token, run, token.c.run_id == run.c.run_id)
    .where(token.c.token == bindparam("token"))
)
_TAKE_OVER = Prepared(
    update(token)
    .where(token.c.token == bindparam("of_token"), token.c.hook_id == bindparam("from_hook"))
    .values(
        run_id=bindparam("run_id"),
        hook_id=bindparam("hook_id"),
        since=bindparam("now"),
        held_until=null(),
    )
)
_NEXT_POSITION = Prepared(
    update(run)
    .where(run.c.run_id == bindparam("of_run"))
    .values(position=run.c.position + 1)
    .returning(run.c.position, run.c.lease_owner)
)
_APPEND = Prepared(event.insert())
_HOOK_TAKEN = Prepared(
    update(hook)
    .where(hook.c.run_id == bindparam("of_run"), hook.c.hook_id == bindparam("of_hook"))
    .values(status="taken over", ended_at=bindparam("now"), force_claimed_by=bindparam("by"))
)
_REFUSALS = Prepared(select(token.c.refused, token.c.refusals).where(token.c.token == bindparam("token")))
_NOTE = Prepared(
    update(token)
    .where(token.c.token == bindparam("of_token"))
    .values(refused=bindparam("count"), refusals=bindparam("notes"))
)
_OPEN_HOOKS = Prepared(
    select(hook.c.hook_id, hook.c.token, hook.c.retained_until).where(
        hook.c.run_id == bindparam("run_id"), hook.c.status == "open"
    )
)
_RELEASE = Prepared(
    update(token)
    .where(token.c.token == bindparam("of_token"), token.c.hook_id == bindparam("of_hook"))
    .values(held_until=bindparam("until"))
)
_END_HOOK = Prepared(
    update(hook)
    .where(hook.c.run_id == bindparam("of_run"), hook.c.hook_id == bindparam("of_hook"))
    .values(status=bindparam("to_status"), ended_at=bindparam("now"))
)


def claim(connection: Connection, run_id: str, wish: Claim, *, now: int) -> Claimed:
    """Give the token to the hook, or tell who holds it (R18, R24, R25)."""
    mine = {"run_id": run_id, "hook_id": wish.hook_id, "now": now}
    if _CLAIM_FREE(connection, token=wish.token, **mine).rowcount == 1:
        return Claimed()
    holder = _HOLDER(connection, token=wish.token).one()
    if not wish.force or holder.spec_version < FORCE_SPEC_VERSION:
        return Claimed(owner=holder.run_id)
    _TAKE_OVER(connection, of_token=wish.token, from_hook=holder.hook_id, **mine)
    moved = _NEXT_POSITION(connection, of_run=holder.run_id).one()
    _APPEND(
        connection,
        run_id=holder.run_id,
        position=moved.position,
        type="hook_disposed",
        correlation_id=holder.hook_id,
        data=json.dumps({"token": wish.token, "force_claimed_by": run_id}, separators=(",", ":")),
        created_at=now,
        seen=None,
    )
    _HOOK_TAKEN(connection, of_run=holder.run_id, of_hook=holder.hook_id, now=now, by=run_id)
    if holder.status in OPEN_STATUSES:
        ask_for_attention(connection, holder.run_id, due_at=now)
    return Claimed(taken_from=holder.run_id, taken_from_worker=moved.lease_owner)


def note_refusal(connection: Connection, of_token: str, *, now: int, candidate: str, same_input: bool | None) -> None:
    """Remember a refused start on the token, for the views: how many, and the last hundred (R26)."""
    row = _REFUSALS(connection, token=of_token).one()
    notes = json.loads(row.refusals)[-(REFUSALS_KEPT - 1) :]
    notes.append({"at": now, "candidate": candidate, "same_input": same_input})
    _NOTE(connection, of_token=of_token, count=row.refused + 1, notes=json.dumps(notes, separators=(",", ":")))


def dispose(connection: Connection, run_id: str, hook_id: str, of_token: str, *, now: int) -> None:
    """Release the token at once: a retention no longer holds it (R23)."""
    _RELEASE(connection, of_token=of_token, of_hook=hook_id, until=now)
    _END_HOOK(connection, of_run=run_id, of_hook=hook_id, to_status="disposed", now=now)


def release_tokens(connection: Connection, run_id: str, *, now: int) -> None:
    """At a run's end: its tokens are free at once, or at the end of their retention (R24, R30)."""
    for row in _OPEN_HOOKS(connection, run_id=run_id).all():
        until = max(now, row.retained_until or 0)
        _RELEASE(connection, of_token=row.token, of_hook=row.hook_id, until=until)
        _END_HOOK(connection, of_run=run_id, of_hook=row.hook_id, to_status="ended", now=now)


def ask_for_attention(connection: Connection, run_id: str, *, due_at: int) -> None:
    """Put a run into the queue, or make its message due earlier."""
    _ASK(connection, run_id=run_id, due_at=due_at)
