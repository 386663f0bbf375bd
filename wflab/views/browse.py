"""Reading a World's views from any thread: ORM sessions, plain records out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import ColumnElement, Engine
from sqlmodel import Session, SQLModel, col, or_, select

from wflab import codec, models
from wflab.errors import WorldUnavailableError

__all__ = ["HookRow", "Refusal", "RunRow", "StepRow", "find_hooks", "find_run", "find_runs", "find_steps", "rows_of"]

RunRow = models.Run
StepRow = models.Step


@dataclass(frozen=True, slots=True)
class Refusal:
    """A start that was refused for a token (R26). `at` is in microseconds since 1970."""

    at: int
    candidate: str
    same_input: bool | None


@dataclass(frozen=True, slots=True)
class HookRow:
    """One hook, with what its token says of it now.

    Attributes:
        state: `held` (its run is open), `retained` (its run has ended), `free` (nobody has the token now),
            `disposed`, `taken over`, `refused` (another run had the token), or `passed on` (another hook has it).
        received: payloads so far.
        refused: starts that were refused for the token.
        refusals: the last hundred of them.
    """

    token: str
    state: str
    run_id: str
    workflow: str
    hook_id: str
    is_start: bool
    is_webhook: bool
    metadata: Any
    created_at: int
    ended_at: int | None
    retained_until: int | None
    received: int
    refused: int
    refusals: tuple[Refusal, ...]
    force_claimed_from: str | None
    force_claimed_by: str | None
    conflicting_run_id: str | None


def _engine(world: Any) -> Engine:
    engine = getattr(world, "sql_engine", None)
    if engine is None:
        raise WorldUnavailableError(world.url, "it has no SQL database to look at", "use its Runs' methods")
    world.prepare()
    return cast("Engine", engine)


def find_run(world: Any, run_id: str) -> models.Run | None:
    """One run, or `None`."""
    with Session(_engine(world)) as session:
        return session.get(models.Run, run_id)


def find_runs(
    world: Any,
    *,
    status: str | Sequence[str] | None = None,
    workflow: str | None = None,
    token: str | None = None,
    limit: int = 100,
) -> list[models.Run]:
    """Runs, newest first."""
    conditions: list[ColumnElement[bool]] = []
    if status is not None:
        conditions.append(col(models.Run.status).in_([status] if isinstance(status, str) else list(status)))
    if workflow is not None:
        conditions.append(col(models.Run.workflow) == workflow)
    if token is not None:
        holding = select(models.Hook.run_id).where(col(models.Hook.token) == token)
        conditions.append(or_(col(models.Run.start_token) == token, col(models.Run.run_id).in_(holding)))
    newest = (col(models.Run.created_at).desc(), col(models.Run.run_id).desc())
    with Session(_engine(world)) as session:
        return list(session.exec(select(models.Run).where(*conditions).order_by(*newest).limit(limit)))


def rows_of(world: Any, model: type[SQLModel], run_id: str, *order: Any) -> list[Any]:
    """All rows of one run in a table."""
    with Session(_engine(world)) as session:
        return list(session.exec(select(model).where(model.run_id == run_id).order_by(*order)))  # type: ignore[attr-defined]


def find_steps(world: Any, run_id: str) -> list[models.Step]:
    """A run's steps, in order of their calls."""
    return rows_of(world, models.Step, run_id, col(models.Step.created_at), col(models.Step.step_id))


def find_hooks(world: Any, now_us: int, *, run_id: str | None = None, limit: int = 500) -> list[HookRow]:
    """Hooks, newest first; of one run, or of all."""
    query = (
        select(models.Hook, models.Token, models.Run.workflow)
        .join(models.Run, col(models.Run.run_id) == col(models.Hook.run_id))
        .join(models.Token, col(models.Token.token) == col(models.Hook.token), isouter=True)
        .order_by(col(models.Hook.created_at).desc(), col(models.Hook.hook_id).desc())
        .limit(limit)
    )
    if run_id is not None:
        query = query.where(col(models.Hook.run_id) == run_id)
    with Session(_engine(world)) as session:
        return [_hook_row(hook, token, workflow, now_us) for hook, token, workflow in session.exec(query)]


def _hook_row(hook: models.Hook, token: models.Token | None, workflow: str, now_us: int) -> HookRow:
    refusals = () if token is None else tuple(Refusal(**note) for note in json.loads(token.refusals))
    return HookRow(
        hook.token,
        _state(hook, token, now_us),
        hook.run_id,
        workflow,
        hook.hook_id,
        hook.is_start,
        hook.is_webhook,
        codec.decode(hook.metadata_, unresolved="show"),
        hook.created_at,
        hook.ended_at,
        hook.retained_until,
        hook.received,
        0 if token is None else token.refused,
        refusals,
        hook.force_claimed_from,
        hook.force_claimed_by,
        hook.conflicting_run_id,
    )


def _state(hook: models.Hook, token: models.Token | None, now_us: int) -> str:
    if hook.status in ("disposed", "taken over"):
        return hook.status
    if hook.status == "conflicted":
        return "refused"
    if token is None or token.hook_id != hook.hook_id:
        return "passed on"
    if token.held_until is None:
        return "held"
    return "retained" if token.held_until > now_us else "free"
