"""A Lab's operations as steps, for when a workflow asks for them (R15)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from wflab import ids
from wflab.engine import current
from wflab.engine.definitions import Step
from wflab.errors import WorkflowStartError
from wflab.operations import Operations, StartRequest

if TYPE_CHECKING:
    from wflab.api import Lab

__all__ = ["do"]


async def do(lab: Lab, name: str, *args: Any) -> Any:
    """Carry an operation out: recorded as a step in a workflow's body, else where the Lab's engine runs."""
    body = current.body()
    if body is not None:
        return await body.start_step(_STEPS[name], args, {})
    attempt = current.attempt.get()
    parent = None if attempt is None else attempt.metadata.run_id

    async def work(operations: Operations) -> Any:
        if name == "start":
            return await operations.start(*args, parent=parent)
        return await getattr(operations, name)(*args)

    return await lab.host.call(work)


def _as_step(name: str) -> Step[..., Any]:
    async def operation(*args: Any) -> Any:
        attempt = current.attempt.get()
        assert attempt is not None
        if name == "start":
            return await _start(attempt, args[0])
        return await do(attempt.lab, name, *args)

    label = name if name in ("start", "resume_hook", "get_hook_by_token") else f"Run.{name}"
    return Step(operation, name=label, is_builtin=True, waits_for_others=name == "return_value")


async def _start(attempt: current.Attempt, request: StartRequest) -> Any:
    """Start a child. Its id follows from the step's, so that an attempt repeated after a crash finds it (R31)."""
    child = ids.run_id_of_step(attempt.metadata.step_id)
    delay_s = 0.05
    while True:
        try:
            return await attempt.lab.host.call(
                lambda operations: operations.start(request, run_id=child, parent=attempt.metadata.run_id)
            )
        except WorkflowStartError:
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, 5.0)


_STEPS = {
    name: _as_step(name)
    for name in (
        "start",
        "resume_hook",
        "get_hook_by_token",
        "exists",
        "status",
        "return_value",
        "cancel",
        "wake_up",
        "blocked",
        "events",
        "workflow_name",
        "created_at",
        "started_at",
        "ended_at",
    )
}
