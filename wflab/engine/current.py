"""Which body is being stepped, and which attempt runs: what tells a call inside a workflow from one outside."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wflab.engine.replay import Replay

__all__ = ["Attempt", "StepMetadata", "WorkflowMetadata", "attempt", "body", "enter_body", "leave_body"]


@dataclass(frozen=True, slots=True)
class StepMetadata:
    """What a step may know of itself (R2).

    Attributes:
        step_id: the same on every attempt: the idempotency key for what the step calls (R1).
        step_name, run_id: which step of which run.
        attempt: 1 for the first.
        started_at: the start of this attempt, aware UTC.
    """

    step_id: str
    step_name: str
    run_id: str
    attempt: int
    started_at: datetime


@dataclass(frozen=True, slots=True)
class WorkflowMetadata:
    """What a workflow may know of itself.

    Attributes:
        workflow_name, run_id: which run of what.
        started_at: when the body began, aware UTC; fixed by the log.
    """

    workflow_name: str
    run_id: str
    started_at: datetime


@dataclass(slots=True)
class Attempt:
    """One running attempt: its metadata, the Lab it runs in, and what it has printed so far."""

    metadata: StepMetadata
    lab: Any
    printed: list[str] = field(default_factory=list)
    printed_size: int = 0


attempt: ContextVar[Attempt | None] = ContextVar("wflab_attempt", default=None)
"""The attempt that the current task or thread belongs to."""


class _Stepped(threading.local):
    body: Replay | None = None


_stepped = _Stepped()


def body() -> Replay | None:
    """The workflow body that this thread is stepping right now."""
    return _stepped.body


def enter_body(replay: Replay) -> Replay | None:
    """Mark a body as being stepped by this thread; gives the one before, for `leave_body`."""
    before = _stepped.body
    _stepped.body = replay
    return before


def leave_body(before: Replay | None) -> None:
    """Undo `enter_body`."""
    _stepped.body = before
