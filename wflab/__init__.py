"""A durable-workflow lab: replayed workflows, retried steps, hooks with unique tokens, runs started once per key."""

from wflab import errors
from wflab.api import (
    Lab,
    Run,
    current_lab,
    get_hook_by_token,
    get_run,
    hooks,
    resume_hook,
    run_sync,
    runs,
    shutdown,
    start,
    use,
)
from wflab.clock import RealClock, VirtualClock
from wflab.engine.current import StepMetadata, WorkflowMetadata
from wflab.engine.definitions import Step, Workflow, step, workflow
from wflab.engine.hooks import Hook
from wflab.errors import *  # noqa: F403
from wflab.operations import Event, HookInfo, StartHook
from wflab.workflow import create_hook, get_step_metadata, get_workflow_metadata, now, sleep

__version__ = "0.1.0"


def load_ipython_extension(shell: object) -> None:
    """`%load_ext wflab`: the `%%workflow` cell magic and `%wf`."""
    from wflab.lab import load

    load(shell)


def unload_ipython_extension(shell: object) -> None:
    """`%unload_ext wflab`."""
    from wflab.lab import unload

    unload(shell)


__all__ = [
    "Event",
    "Hook",
    "HookInfo",
    "Lab",
    "RealClock",
    "Run",
    "StartHook",
    "Step",
    "StepMetadata",
    "VirtualClock",
    "Workflow",
    "WorkflowMetadata",
    "create_hook",
    "current_lab",
    "get_hook_by_token",
    "get_run",
    "get_step_metadata",
    "get_workflow_metadata",
    "hooks",
    "now",
    "resume_hook",
    "run_sync",
    "runs",
    "shutdown",
    "sleep",
    "start",
    "step",
    "use",
    "workflow",
    *errors.__all__,
]
