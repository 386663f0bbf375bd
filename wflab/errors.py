"""Every error wflab raises: one hierarchy, typed fields, and messages that tell the way out."""

from __future__ import annotations

from datetime import datetime, timedelta

__all__ = [
    "FatalError",
    "ForbiddenInWorkflowError",
    "HookConflictError",
    "HookDisposedError",
    "HookForceClaimedError",
    "HookNotFoundError",
    "InvalidDurationError",
    "InvalidTokenError",
    "LeaseLostError",
    "NotAWorkflowError",
    "ReplayDivergenceError",
    "RetryableError",
    "SchemaVersionError",
    "SerializationError",
    "StepAttemptLostError",
    "StepCancelledError",
    "StepTimeoutError",
    "UnresolvedError",
    "WorkflowArgumentsError",
    "WorkflowError",
    "WorkflowRunCancelledError",
    "WorkflowRunFailedError",
    "WorkflowRunNotFoundError",
    "WorkflowStartError",
    "WorldCapabilityError",
    "WorldUnavailableError",
]


class WorkflowError(Exception):
    """The base of every wflab error."""


# -- raised by steps, to say how a failure is to be treated -------------------------------------


class FatalError(WorkflowError):
    """A step raises this to fail at once, whatever retries are left (R3)."""


class RetryableError(WorkflowError):
    """A step raises this to be tried again after a delay (R3).

    Args:
        message: what went wrong.
        retry_after: how long to wait before the next attempt: any duration of `wflab.durations`; 1 s when not given.
    """

    def __init__(self, message: str = "", *, retry_after: str | float | timedelta | datetime = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StepAttemptLostError(WorkflowError):
    """The process that ran the step's last attempt died or stopped, and no attempts are left (R3).

    Whether the attempt had its effect is unknown. Give the step more `max_retries`, or make it safe to repeat
    with its `step_id`.
    """

    def __init__(self, step_name: str, step_id: str, attempt: int) -> None:
        super().__init__(
            f"attempt {attempt} of step {step_name!r} ({step_id}) was cut off and no attempts are left; "
            "whether it had its effect is unknown"
        )
        self.step_name = step_name
        self.step_id = step_id
        self.attempt = attempt


class StepTimeoutError(WorkflowError, TimeoutError):
    """One attempt took longer than the step's `timeout` (R3). It counts as a plain error and is retried."""

    def __init__(self, step_name: str, step_id: str, attempt: int, timeout_s: float) -> None:
        super().__init__(f"attempt {attempt} of step {step_name!r} ({step_id}) took longer than {timeout_s:g} s")
        self.step_name = step_name
        self.step_id = step_id
        self.attempt = attempt
        self.timeout_s = timeout_s


class StepCancelledError(WorkflowError):
    """A step ended because the task that awaited it was cancelled (R8). Seen in logs and views only."""

    def __init__(self, step_name: str, step_id: str) -> None:
        super().__init__(f"step {step_name!r} ({step_id}) was cancelled by its workflow")
        self.step_name = step_name
        self.step_id = step_id


# -- hooks --------------------------------------------------------------------------------------


class HookConflictError(WorkflowError):
    """Another run holds the token (R20, R26). Resume that run's hook, adopt its result, or wait for its end.

    Attributes:
        token: the token asked for.
        conflicting_run_id: the run that holds it.
        same_input: after a refused `start`, whether the owner was started with equal arguments; `None` where
            the owner's input is not known (R33).
    """

    def __init__(self, token: str, conflicting_run_id: str, same_input: bool | None = None) -> None:
        super().__init__(
            f"hook token {token!r} is held by run {conflicting_run_id}: resume its hook, or use its result"
        )
        self.token = token
        self.conflicting_run_id = conflicting_run_id
        self.same_input = same_input


class HookNotFoundError(WorkflowError):
    """No open hook holds the token: unknown, disposed, or its run has ended (R22)."""

    def __init__(self, token: str) -> None:
        super().__init__(f"no open hook holds the token {token!r}: unknown, disposed, or its run has ended")
        self.token = token


class HookDisposedError(WorkflowError):
    """The workflow awaited a hook that it had disposed (R23). Create the hook again to receive more."""

    def __init__(self, token: str) -> None:
        super().__init__(f"the hook for token {token!r} was disposed: create it again to receive more")
        self.token = token


class HookForceClaimedError(WorkflowError):
    """A newer run took the token over (R25). Catch this and end cleanly."""

    def __init__(self, token: str, claimed_by_run_id: str) -> None:
        super().__init__(f"hook token {token!r} was taken over by run {claimed_by_run_id}")
        self.token = token
        self.claimed_by_run_id = claimed_by_run_id


class InvalidTokenError(WorkflowError, ValueError):
    """A token must be a non-empty `str` of at most 512 characters without NUL."""

    def __init__(self, token: object, reason: str) -> None:
        super().__init__(f"{token!r:.80} can't be a hook token: {reason}")
        self.token = token
        self.reason = reason


# -- runs ---------------------------------------------------------------------------------------


class WorkflowStartError(WorkflowError):
    """`start(hook=…)` could not confirm whether its candidate was admitted: unknown, not failed (R31).

    Call `start` again with the same token: it becomes the owner, or is refused by it.
    """

    def __init__(self, run_id: str, token: str | None = None) -> None:
        super().__init__(
            f"could not confirm whether run {run_id} was started: unknown, not failed; "
            "start it again with the same token"
        )
        self.run_id = run_id
        self.token = token


class WorkflowRunFailedError(WorkflowError):
    """The run failed (R13). `__cause__` is the error the workflow ended with.

    Attributes:
        run_id: the run.
        error_code: `USER_ERROR` for an exception of the workflow's own, `MAX_EVENTS_EXCEEDED` (R16).
    """

    def __init__(self, run_id: str, error_code: str = "USER_ERROR", reason: str = "") -> None:
        super().__init__(f"workflow run {run_id} failed: {reason or error_code}")
        self.run_id = run_id
        self.error_code = error_code
        self.reason = reason


class WorkflowRunCancelledError(WorkflowError):
    """The run was cancelled (R13, R14)."""

    def __init__(self, run_id: str, reason: str | None = None) -> None:
        super().__init__(f"workflow run {run_id} was cancelled" + (f": {reason}" if reason else ""))
        self.run_id = run_id
        self.reason = reason


class WorkflowRunNotFoundError(WorkflowError):
    """No run has this id in this World (R13). Look at `wflab.runs()`, or `wflab.use(url)` another database."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run has the id {run_id!r} here: see wflab.runs(), or choose another database")
        self.run_id = run_id


class NotAWorkflowError(WorkflowError, TypeError):
    """`start` was given something that is not a workflow. Decorate the function with `@workflow`."""

    def __init__(self, value: object) -> None:
        name = getattr(value, "__qualname__", None) or repr(value)
        super().__init__(f"{name:.80} is not a workflow: decorate an async function with @workflow")
        self.value = value


class WorkflowArgumentsError(WorkflowError, TypeError):
    """The arguments do not fit the workflow's signature. Nothing was started."""

    def __init__(self, workflow_name: str, signature: str, reason: str) -> None:
        super().__init__(f"{workflow_name}{signature} can't take these arguments: {reason}")
        self.workflow_name = workflow_name
        self.signature = signature
        self.reason = reason


# -- replay -------------------------------------------------------------------------------------


class ReplayDivergenceError(WorkflowError):
    """A workflow body does not do what its log says it did (R11). Nothing was written; the run waits.

    Attributes:
        run_id, position: where in which log.
        expected: the event that the log holds.
        found: the call that the body made instead.
        expected_line, found_line: the two source lines, where known.
    """

    def __init__(
        self,
        run_id: str,
        position: int,
        expected: str,
        found: str,
        expected_line: str | None = None,
        found_line: str | None = None,
    ) -> None:
        was = f" (recorded at {expected_line})" if expected_line else ""
        now = f" (at {found_line})" if found_line else ""
        super().__init__(
            f"run {run_id} no longer matches its log: event {position} is {expected}{was}, but the body "
            f"did {found}{now}; define a body that fits, or cancel the run"
        )
        self.run_id = run_id
        self.position = position
        self.expected = expected
        self.found = found
        self.expected_line = expected_line
        self.found_line = found_line


class ForbiddenInWorkflowError(WorkflowError):
    """A workflow body did something that a replay can't repeat: blocking I/O, a thread, real sleeping (R10)."""

    def __init__(self, operation: str, instead: str = "do it in a step") -> None:
        super().__init__(f"{operation} is not possible in a workflow body: {instead}")
        self.operation = operation
        self.instead = instead


# -- values -------------------------------------------------------------------------------------


class SerializationError(WorkflowError):
    """A value can't be stored or read back (R5).

    Attributes:
        path: where the value is, as `args[0]['items'][3]`.
        type_name: the type of the value at that place.
    """

    def __init__(self, path: str, type_name: str, reason: str) -> None:
        super().__init__(f"{path} ({type_name}) can't be stored: {reason}")
        self.path = path
        self.type_name = type_name
        self.reason = reason


class UnresolvedError(WorkflowError):
    """Stands in for a stored exception whose class is not known in this process (R4)."""

    def __init__(self, type_name: str, message: str = "") -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name = type_name
        self.message = message


class InvalidDurationError(WorkflowError, ValueError):
    """A duration is negative, NaN, naive or can't be read."""

    def __init__(self, value: object, reason: str) -> None:
        super().__init__(
            f"{value!r:.80} is not a duration: {reason}; "
            "use '1h 30m', a number of seconds, a timedelta or an aware datetime"
        )
        self.value = value
        self.reason = reason


# -- worlds -------------------------------------------------------------------------------------


class LeaseLostError(WorkflowError):
    """The right to advance a run has passed to another worker, or the run has ended. Nothing was written."""

    def __init__(self, run_id: str, fence: int) -> None:
        super().__init__(f"the lease on run {run_id} with fence {fence} is no longer valid")
        self.run_id = run_id
        self.fence = fence


class WorldUnavailableError(WorkflowError):
    """The database did not answer, or refused to write. `reason` says why."""

    def __init__(self, url: str, reason: str, instead: str = "check that it can be reached and written") -> None:
        super().__init__(f"the database {url} is not available: {reason}; {instead}")
        self.url = url
        self.reason = reason
        self.instead = instead


class WorldCapabilityError(WorkflowError):
    """This World can't do what was asked (R32). Nothing was written."""

    def __init__(self, capability: str) -> None:
        super().__init__(f"this World lacks the capability {capability!r}: use a World that has it")
        self.capability = capability


class SchemaVersionError(WorkflowError):
    """The database was not made by a version of wflab that this one can use."""

    def __init__(self, url: str, found: str | None, supported: str) -> None:
        what = f"has schema version {found}" if found else "is not a wflab database"
        way = "upgrade wflab to open it" if found else "choose another file"
        super().__init__(f"{url} {what}; this wflab knows {supported}: {way}")
        self.url = url
        self.found = found
        self.supported = supported
