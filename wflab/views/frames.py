"""DataFrames of runs, events, steps, hooks and waits: UTC datetimes, timedeltas, categories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from sqlmodel import col

from wflab import codec, models
from wflab.errors import WorkflowRunNotFoundError
from wflab.views import browse

if TYPE_CHECKING:
    import pandas

__all__ = ["hooks_frame", "run_frame", "runs_frame"]

RUN_STATUSES = ["pending", "running", "completed", "failed", "cancelled"]
STEP_STATUSES = ["created", "running", "retrying", "completed", "failed", "cancelled"]
WAIT_STATUSES = ["waiting", "completed", "woken", "cancelled"]
HOOK_STATES = ["held", "retained", "free", "disposed", "taken over", "refused", "passed on"]
EVENT_TYPES = [
    *(f"run_{what}" for what in ("created", "started", "completed", "failed", "cancelled")),
    *(f"step_{what}" for what in ("created", "started", "retrying", "completed", "failed")),
    *(f"hook_{what}" for what in ("created", "received", "conflict", "disposed")),
    *(f"wait_{what}" for what in ("created", "completed")),
    "attr_set",
]


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as missing:
        raise ImportError("frames need pandas: pip install 'wflab[lab]'") from missing
    return pandas


def _times(values: Sequence[int | None]) -> Any:
    pd = _pandas()
    moments = [pd.NaT if value is None else pd.Timestamp(value, unit="us") for value in values]
    return pd.Series(pd.to_datetime(moments, utc=True)).astype("datetime64[us, UTC]")


def _durations(starts: Sequence[int | None], ends: Sequence[int | None]) -> Any:
    pd = _pandas()
    spans = [None if start is None or end is None else end - start for start, end in zip(starts, ends, strict=True)]
    return pd.Series(pd.to_timedelta(spans, unit="us")).astype("timedelta64[us]")


def _categories(values: Sequence[str], order: list[str]) -> Any:
    return _pandas().Categorical(list(values), categories=order)


def _names(values: Sequence[str | None]) -> Any:
    return _pandas().Categorical(list(values))


def runs_frame(runs: Sequence[models.Run]) -> pandas.DataFrame:
    """One row a run."""
    pd = _pandas()
    return pd.DataFrame(  # type: ignore[no-any-return]
        {
            "run_id": [run.run_id for run in runs],
            "workflow": _names([run.workflow for run in runs]),
            "status": _categories([run.status for run in runs], RUN_STATUSES),
            "token": [run.start_token for run in runs],
            "created_at": _times([run.created_at for run in runs]),
            "started_at": _times([run.started_at for run in runs]),
            "ended_at": _times([run.ended_at for run in runs]),
            "duration": _durations([run.started_at for run in runs], [run.ended_at for run in runs]),
            "events": pd.array([run.position for run in runs], dtype="int64"),
            "error_code": _names([run.error_code for run in runs]),
            "blocked": [run.blocked for run in runs],
            "parent_run_id": [run.parent_run_id for run in runs],
        }
    )


def hooks_frame(hooks: Sequence[browse.HookRow]) -> pandas.DataFrame:
    """One row a hook."""
    pd = _pandas()
    return pd.DataFrame(  # type: ignore[no-any-return]
        {
            "token": [hook.token for hook in hooks],
            "state": _categories([hook.state for hook in hooks], HOOK_STATES),
            "run_id": [hook.run_id for hook in hooks],
            "workflow": _names([hook.workflow for hook in hooks]),
            "created_at": _times([hook.created_at for hook in hooks]),
            "ended_at": _times([hook.ended_at for hook in hooks]),
            "retained_until": _times([hook.retained_until for hook in hooks]),
            "received": pd.array([hook.received for hook in hooks], dtype="int64"),
            "refused": pd.array([hook.refused for hook in hooks], dtype="int64"),
            "metadata": [hook.metadata for hook in hooks],
            "is_start_hook": pd.array([hook.is_start for hook in hooks], dtype="bool"),
            "hook_id": [hook.hook_id for hook in hooks],
        }
    )


def run_frame(world: Any, run_id: str, of: Literal["events", "steps", "hooks", "waits"]) -> pandas.DataFrame:
    """What one run consists of.

    Raises:
        WorkflowRunNotFoundError: there is no such run.
        ValueError: `of` is none of the four.
    """
    run = browse.find_run(world, run_id)
    if run is None:
        raise WorkflowRunNotFoundError(run_id)
    if of == "events":
        return _events_frame(world, run)
    if of == "steps":
        return _steps_frame(browse.find_steps(world, run_id))
    if of == "hooks":
        return hooks_frame(browse.find_hooks(world, run.ended_at or run.created_at, run_id=run_id)[::-1])
    if of == "waits":
        return _waits_frame(browse.rows_of(world, models.Wait, run_id, col(models.Wait.created_at)))
    raise ValueError(f"of={of!r} must be 'events', 'steps', 'hooks' or 'waits'")


def _events_frame(world: Any, run: models.Run) -> pandas.DataFrame:
    pd = _pandas()
    events = browse.rows_of(world, models.Event, run.run_id, col(models.Event.position))
    names = {row.correlation_id: json.loads(row.data)["step"] for row in events if row.type == "step_created"}
    return pd.DataFrame(  # type: ignore[no-any-return]
        {
            "type": _categories([row.type for row in events], EVENT_TYPES),
            "step": _names([names.get(row.correlation_id) for row in events]),
            "created_at": _times([row.created_at for row in events]),
            "since_start": _durations([run.created_at] * len(events), [row.created_at for row in events]),
            "data": [codec.decode(row.data, unresolved="show") for row in events],
            "correlation_id": [row.correlation_id for row in events],
        },
        index=pd.Index([row.position for row in events], name="position", dtype="int64"),
    )


def _steps_frame(steps: Sequence[models.Step]) -> pandas.DataFrame:
    pd = _pandas()
    return pd.DataFrame(  # type: ignore[no-any-return]
        {
            "step": _names([step.name for step in steps]),
            "status": _categories([step.status for step in steps], STEP_STATUSES),
            "attempts": pd.array([step.attempt for step in steps], dtype="int64"),
            "created_at": _times([step.created_at for step in steps]),
            "ended_at": _times([step.ended_at for step in steps]),
            "duration": _durations([step.created_at for step in steps], [step.ended_at for step in steps]),
            "retry_at": _times([step.retry_at for step in steps]),
            "step_id": [step.step_id for step in steps],
        }
    )


def _waits_frame(waits: Sequence[models.Wait]) -> pandas.DataFrame:
    pd = _pandas()
    return pd.DataFrame(  # type: ignore[no-any-return]
        {
            "status": _categories([wait.status for wait in waits], WAIT_STATUSES),
            "is_sleep": pd.array([wait.is_sleep for wait in waits], dtype="bool"),
            "created_at": _times([wait.created_at for wait in waits]),
            "resume_at": _times([wait.resume_at for wait in waits]),
            "ended_at": _times([wait.ended_at for wait in waits]),
            "wait_id": [wait.wait_id for wait in waits],
        }
    )
