"""One attempt of a step: run on the engine's loop or on a thread, within its time, with its output kept."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wflab import codec
from wflab.clock import Clock
from wflab.durations import duration_us
from wflab.engine import current, output
from wflab.engine.definitions import Step
from wflab.errors import FatalError, RetryableError, SerializationError, StepTimeoutError

__all__ = ["Outcome", "run_attempt"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        result: the encoded result of a success.
        error: the exception of a failure.
        is_fatal: no further attempt makes sense (R3, R5).
        retry_after_us: the wait that the step asked for, in microseconds.
        printed: what it wrote to stdout, stderr and logging.
    """

    result: str | None = None
    error: BaseException | None = None
    is_fatal: bool = False
    retry_after_us: int | None = None
    printed: str = ""


async def run_attempt(step: Step[..., Any], input_: str, attempt: current.Attempt, clock: Clock) -> Outcome:
    """Run a step once. Raises only `CancelledError`, when the attempt itself is cancelled (R8, R14)."""
    current.attempt.set(attempt)
    with output.captured():
        try:
            arguments = codec.decode(input_)
            args, kwargs = arguments["args"], arguments.get("kwargs", {})
            if step.is_async:
                call = step.fn(*args, **kwargs)
            else:
                call = _on_thread(lambda: step.fn(*args, **kwargs), step.name)
            if step.timeout_us is None:
                value = await call
            else:
                value = await _within(call, step, attempt, clock)
            return Outcome(result=codec.encode(value, path="result"), printed=output.printed(attempt))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return Outcome(error=error, printed=output.printed(attempt))
        except BaseException as error:
            return _failure(error, output.printed(attempt), clock)


def _failure(error: BaseException, printed: str, clock: Clock) -> Outcome:
    if isinstance(error, FatalError | SerializationError):
        return Outcome(error=error, is_fatal=True, printed=printed)
    if isinstance(error, RetryableError):
        try:
            after = duration_us(error.retry_after, now_us=clock.now_us())
        except ValueError as unusable:
            unusable.__cause__ = error
            return Outcome(error=unusable, is_fatal=True, printed=printed)
        return Outcome(error=error, retry_after_us=after, printed=printed)
    return Outcome(error=error, printed=printed)


async def _within(call: Any, step: Step[..., Any], attempt: current.Attempt, clock: Clock) -> Any:
    """Await a call for at most the step's `timeout`, on the Lab's clock."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(call)
    timed_out = False

    def give_up() -> None:
        nonlocal timed_out
        timed_out = True
        task.cancel()

    limit_us = step.timeout_us or 0
    alarm = clock.call_at(loop, clock.now_us() + limit_us, give_up)
    try:
        return await task
    except asyncio.CancelledError:
        if not timed_out:
            task.cancel()
            raise
        metadata = attempt.metadata
        raise StepTimeoutError(step.name, metadata.step_id, metadata.attempt, limit_us / 1e6) from None
    finally:
        alarm.cancel()


async def _on_thread(call: Callable[[], Any], name: str) -> Any:
    """Run a plain function on a thread of its own. A daemon thread: a step that hangs must not keep Python from ending.

    A cancelled wait lets go of the thread; its late result is dropped (R8).
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(call)
        except BaseException as raised:
            # These two end the coroutine that awaits a future with them, instead of telling it.
            is_told = not isinstance(raised, StopIteration | GeneratorExit)
            error = raised if is_told else RuntimeError(f"step raised {raised!r}")
        # The engine may have stopped meanwhile: a late result is dropped.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name=f"wflab step {name}", daemon=True).start()
    return await done
