"""What comes to a run from its own attempts and timers, and the state of a step between two of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from wflab.clock import Alarm
from wflab.engine.definitions import Step
from wflab.engine.effects import StartStep
from wflab.engine.steps import Outcome

__all__ = ["Ended", "InboxItem", "LiveStep", "RetryDue", "TimerDue"]


@dataclass(slots=True)
class LiveStep:
    """A step call that has not ended: its current attempt, or the wait before the next."""

    call: StartStep
    attempt: int = 0
    step: Step[..., Any] | None = None
    task: asyncio.Task[None] | None = None
    alarm: Alarm | None = None
    failures: list[str] = field(default_factory=list)

    def stop(self) -> None:
        """Let go of whatever is going on: a running attempt is cancelled, a late result is dropped (R8)."""
        if self.alarm is not None:
            self.alarm.cancel()
        if self.task is not None:
            self.task.cancel()
            self.task = None


@dataclass(slots=True)
class Ended:
    """An attempt is over."""

    step_id: str
    attempt: int
    outcome: Outcome


@dataclass(slots=True)
class RetryDue:
    """The wait before a step's next attempt is over."""

    step_id: str


@dataclass(slots=True)
class TimerDue:
    """A sleep or deadline of the body is over."""

    wait_id: str


InboxItem = Ended | RetryDue | TimerDue
