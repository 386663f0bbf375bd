"""What a body did instead of what its log says, in words (R11)."""

from __future__ import annotations

import json
from typing import Any

from wflab.durations import as_datetime
from wflab.engine.definitions import Workflow
from wflab.engine.effects import (
    CancelStep,
    CancelTimer,
    Complete,
    DisposeHook,
    Effect,
    Fail,
    RegisterHook,
    StartStep,
    StartTimer,
)
from wflab.errors import ReplayDivergenceError
from wflab.world.protocol import Recorded

__all__ = ["divergence"]


def divergence(
    run_id: str, item: Recorded, found: Effect | None, workflow: Workflow[..., Any], *, is_done: bool
) -> ReplayDivergenceError:
    """The error for a body that did `found` where its log has `item`."""
    data = json.loads(item.data)
    what = data.get("step") or data.get("token") or ""
    expected = f"{item.type} {what!r}" if what else item.type
    return ReplayDivergenceError(
        run_id,
        item.position,
        expected,
        _describe(found, is_done),
        _at(data.get("line")),
        _at(getattr(found, "line", None), workflow),
    )


def _describe(effect: Effect | None, is_done: bool) -> str:
    match effect:
        case None:
            return "nothing (it has ended)" if is_done else "nothing (it waits for something else)"
        case StartStep():
            return f"a call of step {effect.step.name!r}"
        case RegisterHook():
            return f"create_hook({effect.token!r})"
        case DisposeHook():
            return f"a disposal of hook {effect.token!r}"
        case StartTimer():
            return f"a sleep until {as_datetime(effect.when_us).isoformat()}"
        case CancelStep() | CancelTimer():
            return "the cancelling of a step or sleep"
        case Complete():
            return "a return"
        case Fail():
            return f"a raise ({effect.reason})"


def _at(line: str | None, workflow: Workflow[..., Any] | None = None) -> str | None:
    if not line:
        return None
    if workflow is None:
        return f"line {line}"
    number = int(line)
    lines = workflow.source.source.splitlines()
    offset = number - workflow.source.first_line
    text = f": {lines[offset].strip()}" if 0 <= offset < len(lines) else ""
    return f"line {number}{text}"
