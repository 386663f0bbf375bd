"""The pure core: events in, effects out. No I/O, no clock, no thread, no randomness of its own.

The same class runs a workflow live, after a restart, under virtual time, and in checks of a new version.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from wflab import codec
from wflab.durations import as_datetime, as_us
from wflab.engine import current
from wflab.engine.definitions import Step, Workflow
from wflab.engine.divergence import divergence
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
from wflab.engine.hooks import Hook
from wflab.engine.log import encode_arguments, encode_error, last_line
from wflab.engine.loop import BodyLoop, BodyTimer
from wflab.errors import ReplayDivergenceError, SerializationError
from wflab.ids import derived_id, derived_token
from wflab.world.protocol import Recorded, RunRecord

__all__ = ["OpenStep", "Replay"]


@dataclass(slots=True)
class OpenStep:
    """A step call that has not ended: what to run, and what the log says of its attempts."""

    call: StartStep
    future: asyncio.Future[Any]
    attempts: int = 0
    is_retrying: bool = False
    retry_at_us: int = 0
    failures: list[str] = field(default_factory=list)


class _StepFuture(asyncio.Future[Any]):
    """What a step call gives. Cancelling it ends the step (R8)."""

    def __init__(self, replay: Replay, step_id: str) -> None:
        super().__init__(loop=replay.loop)
        self._replay = replay
        self._step_id = step_id

    def cancel(self, msg: Any = None) -> bool:
        if not self.done():
            self._replay.cancel_step(self._step_id)
        return super().cancel(msg)


class Replay:
    """One run's body, driven by the events of its log.

    Args:
        run: the run's facts.
        workflow: the version of the body to run.
        lab: the Lab for which it runs: its `get_run` makes the `Run` of a conflict.
        max_retention_us: the longest retention that `create_hook` accepts, in microseconds.
    """

    def __init__(self, run: RunRecord, workflow: Workflow[..., Any], lab: Any, max_retention_us: int) -> None:
        self.run = run
        self.workflow = workflow
        self.lab = lab
        self.max_retention_us = max_retention_us
        self.loop = BodyLoop(self)  # type: ignore[abstract]
        self.random = random.Random(run.seed)
        self.is_dropped = False
        self.is_done = False
        self.open_steps: dict[str, OpenStep] = {}
        self.open_timers: dict[str, tuple[int, BodyTimer]] = {}
        self._hooks: dict[str, Hook[Any]] = {}
        self._pending: deque[Effect] = deque()
        self._counts = {"step": 0, "wait": 0, "hook": 0, "token": 0}
        self._now_us = run.created_at
        self._started_us = run.created_at
        self._main: asyncio.Task[Any] | None = None
        self._position = 0
        self._taken_over: set[str] = set()
        self._registering: set[str] = set()
        self._file = workflow.fn.__code__.co_filename
        if run.start_hook_id is not None and run.start_token is not None:
            self._hooks[run.start_hook_id] = Hook(self, run.start_hook_id, run.start_token, is_registered=True)

    # -- driving ------------------------------------------------------------------------------------------

    def feed(self, events: Sequence[Recorded], *, hand_over: bool = True) -> list[Effect]:
        """Let the body see the next events, in delivery order.

        Events that record what the body asked for are held against it; what it asked for and no event records
        is returned, and with `hand_over` taken as recorded from then on.

        Raises:
            ReplayDivergenceError: the body does not do what the events say it did (R11).
            SerializationError: a recorded value can't be read in this process.
        """
        for item in events:
            if item.type == "hook_disposed" and "force_claimed_by" in item.data and item.correlation_id:
                self._taken_over.add(item.correlation_id)
        with self._stepping():
            for item in events:
                self._position = item.position or self._position
                handler = _HANDLERS.get(item.type)
                if handler is not None:
                    handler(self, item)
        effects = list(self._pending)
        if hand_over:
            self._pending.clear()
            self._registering.update(item.hook_id for item in effects if type(item) is RegisterHook)
        return effects

    def drop(self) -> None:
        """Let go of the body. What its `finally` and `with` blocks do on the way out is not recorded (R17)."""
        if self.is_dropped:
            return
        self.is_dropped = True
        self.loop.is_dropped = True
        self._pending.clear()
        with self._stepping():
            self.loop.close_tasks()
        self._main = None
        self.open_steps.clear()
        self.open_timers.clear()
        self._hooks.clear()

    @contextlib.contextmanager
    def _stepping(self) -> Iterator[None]:
        before = current.enter_body(self)
        try:
            with self.loop.running():
                yield
        finally:
            current.leave_body(before)

    # -- what the body asks for ----------------------------------------------------------------------------

    def now_us(self) -> int:
        """The workflow's time: that of the latest event it has seen, in microseconds since 1970 (R10)."""
        return self._now_us

    def metadata(self) -> current.WorkflowMetadata:
        """For `get_workflow_metadata()`."""
        return current.WorkflowMetadata(self.run.workflow, self.run.run_id, as_datetime(self._started_us))

    def start_step(self, step: Step[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> asyncio.Future[Any]:
        """Schedule a step call. Raises `SerializationError` where an argument can't be stored (R5)."""
        text = encode_arguments(args, kwargs)
        call = StartStep(self._next_id("step"), step, text, self._line())
        future = _StepFuture(self, call.step_id)
        self.open_steps[call.step_id] = OpenStep(call, future)
        self._ask(call)
        return future

    def cancel_step(self, step_id: str) -> None:
        """End a step whose awaiting task was cancelled."""
        if self.open_steps.pop(step_id, None) is not None:
            self._ask(CancelStep(step_id))

    def start_timer(self, when_us: int, timer: BodyTimer) -> str:
        """Begin a durable wait; see `TimerKeeper`."""
        wait_id = self._next_id("wait")
        self.open_timers[wait_id] = (when_us, timer)
        self._ask(StartTimer(wait_id, when_us, self._line(), timer.is_sleep))
        return wait_id

    def cancel_timer(self, wait_id: str) -> None:
        """Close a wait that nobody waits for any more."""
        if self.open_timers.pop(wait_id, None) is not None:
            self._ask(CancelTimer(wait_id))

    def create_hook(
        self, token: str | None, *, metadata: str, retained_until: int | None, force: bool, is_webhook: bool
    ) -> Hook[Any]:
        """A new hook, or the handle to the start hook (R28)."""
        if token is None:
            self._counts["token"] += 1
            token = derived_token(self.run.seed, self._counts["token"])
        hook: Hook[Any] = Hook(self, self._next_id("hook"), token)
        self._hooks[hook.hook_id] = hook
        self._ask(RegisterHook(hook.hook_id, token, metadata, retained_until, force, is_webhook, self._line()))
        return hook

    def start_hook(self, token: str | None) -> Hook[Any] | None:
        """The run's start hook, if this is its token and the run has not disposed it (R28, R29)."""
        if token is None or token != self.run.start_token or self.run.start_hook_id is None:
            return None
        hook = self._hooks[self.run.start_hook_id]
        return None if hook.is_disposed else hook

    def dispose_hook(self, hook: Hook[Any]) -> None:
        """Release a hook's token."""
        self._ask(DisposeHook(hook.hook_id, hook.token))

    def _ask(self, effect: Effect) -> None:
        if not self.is_dropped:
            self._pending.append(effect)

    def _next_id(self, kind: str) -> str:
        self._counts[kind] += 1
        return derived_id(kind, self.run.seed, self._counts[kind], self._now_us)

    def _line(self) -> str:
        """Where in the workflow's own file the body is, for messages."""
        frame = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename == self._file:
                return str(frame.f_lineno)
            frame = frame.f_back  # type: ignore[assignment]
        return ""

    # -- what the log says ------------------------------------------------------------------------------------

    def _on_run_started(self, item: Recorded) -> None:
        if self._main is not None:
            return
        self._now_us = self._started_us = item.at
        arguments = codec.decode(self.run.input)
        try:
            body = self.workflow.fn(*arguments["args"], **arguments.get("kwargs", {}))
        except TypeError as misfit:
            raise ReplayDivergenceError(
                self.run.run_id, item.position, "run_started", f"a refusal of the run's arguments ({misfit})"
            ) from misfit
        self._main = self.loop.create_task(body, name=self.run.run_id)
        self._main.add_done_callback(self._on_end)
        self.loop.run_ready()

    def _on_end(self, main: asyncio.Task[Any]) -> None:
        if self.is_dropped:
            return
        self.is_done = True
        # What was called in this last turn and awaited by nobody never starts: the run is over.
        over = [effect for effect in self._pending if not isinstance(effect, StartStep | StartTimer)]
        self._pending = deque(over)
        try:
            error = main.exception()
        except asyncio.CancelledError as cancelled:
            error = cancelled
        if error is None:
            try:
                self._pending.append(Complete(codec.encode(main.result(), path="return value")))
                return
            except SerializationError as unstorable:
                error = unstorable
        self._pending.append(Fail(encode_error(error), reason=last_line(error)))

    def _on_step_created(self, item: Recorded) -> None:
        call = self._expect(StartStep, item)
        name = json.loads(item.data)["step"]
        if call.step_id != item.correlation_id or call.step.name != name:
            raise self._divergence(item, call)

    def _on_step_started(self, item: Recorded) -> None:
        state = self.open_steps.get(item.correlation_id or "")
        if state is not None:
            state.attempts, state.is_retrying = state.attempts + 1, False

    def _on_step_retrying(self, item: Recorded) -> None:
        state = self.open_steps.get(item.correlation_id or "")
        if state is not None:
            data = codec.decode(item.data)
            state.is_retrying, state.retry_at_us = True, as_us(data["retry_at"])
            state.failures.append(last_line(data["error"]))

    def _on_step_completed(self, item: Recorded) -> None:
        self._now_us = item.at
        state = self._end_step(item)
        state.future.set_result(codec.decode(item.data).get("result"))
        self.loop.run_ready()

    def _on_step_failed(self, item: Recorded) -> None:
        if '"cancelled":true' in item.data and json.loads(item.data).get("cancelled"):
            self._match_id(CancelStep, item, "step_id")
            return
        self._now_us = item.at
        state = self._end_step(item)
        error = codec.decode(item.data)["error"]
        state.future.set_exception(error)
        # The workflow may well not look at it: asyncio's reminder would only be noise.
        state.future.__log_traceback = False  # type: ignore[attr-defined]
        self.loop.run_ready()

    def _end_step(self, item: Recorded) -> OpenStep:
        state = self.open_steps.pop(item.correlation_id or "", None)
        if state is None:
            raise self._divergence(item, None)
        return state

    def _on_wait_created(self, item: Recorded) -> None:
        self._match_id(StartTimer, item, "wait_id")

    def _on_wait_completed(self, item: Recorded) -> None:
        if '"cancelled":true' in item.data:
            self._match_id(CancelTimer, item, "wait_id")
            return
        found = self.open_timers.pop(item.correlation_id or "", None)
        if found is not None:
            self._now_us = item.at
            self.loop.ring(found[1])
            self.loop.run_ready()

    def _on_hook_registered(self, item: Recorded) -> None:
        if item.correlation_id == self.run.start_hook_id:
            return
        if item.correlation_id in self._registering:
            # In a live run the effect is handed over already, and this is the World's answer to it.
            self._registering.discard(item.correlation_id)
        else:
            self._match_id(RegisterHook, item, "hook_id")
        self._now_us = item.at
        owner = json.loads(item.data).get("conflicting_run_id")
        self._hooks[item.correlation_id or ""].registered(owner)
        self.loop.run_ready()

    def _on_hook_received(self, item: Recorded) -> None:
        hook = self._hooks.get(item.correlation_id or "")
        if hook is not None:
            self._now_us = item.at
            hook.received(item.data)
            self.loop.run_ready()

    def _on_hook_disposed(self, item: Recorded) -> None:
        by = json.loads(item.data).get("force_claimed_by")
        if by is None:
            self._match_id(DisposeHook, item, "hook_id")
            return
        hook = self._hooks.get(item.correlation_id or "")
        if hook is not None:
            self._now_us = item.at
            hook.taken_over(by)
            self.loop.run_ready()

    def _on_run_completed(self, item: Recorded) -> None:
        self._expect(Complete, item)

    def _on_run_failed(self, item: Recorded) -> None:
        if json.loads(item.data).get("error_code") == "USER_ERROR":
            self._expect(Fail, item)

    def _expect(self, kind: type[Any], item: Recorded) -> Any:
        """The next thing the body asked for, which the event must be a record of."""
        while self._pending:
            found = self._pending[0]
            if isinstance(found, kind):
                return self._pending.popleft()
            if isinstance(found, DisposeHook) and self._is_moot(found.hook_id):
                # Another run had the token by then: that disposal was never written.
                self._pending.popleft()
                continue
            raise self._divergence(item, found)
        raise self._divergence(item, None)

    def _is_moot(self, hook_id: str) -> bool:
        return hook_id in self._taken_over or self._hooks[hook_id].has_lost_token

    def _match_id(self, kind: type[Any], item: Recorded, id_field: str) -> None:
        found = self._expect(kind, item)
        if getattr(found, id_field) != item.correlation_id:
            raise self._divergence(item, found)

    def _divergence(self, item: Recorded, found: Effect | None) -> ReplayDivergenceError:
        return divergence(self.run.run_id, item, found, self.workflow, is_done=self.is_done)


_HANDLERS: dict[str, Callable[[Replay, Recorded], None]] = {
    "run_started": Replay._on_run_started,
    "step_created": Replay._on_step_created,
    "step_started": Replay._on_step_started,
    "step_retrying": Replay._on_step_retrying,
    "step_completed": Replay._on_step_completed,
    "step_failed": Replay._on_step_failed,
    "wait_created": Replay._on_wait_created,
    "wait_completed": Replay._on_wait_completed,
    "hook_created": Replay._on_hook_registered,
    "hook_conflict": Replay._on_hook_registered,
    "hook_received": Replay._on_hook_received,
    "hook_disposed": Replay._on_hook_disposed,
    "run_completed": Replay._on_run_completed,
    "run_failed": Replay._on_run_failed,
}
