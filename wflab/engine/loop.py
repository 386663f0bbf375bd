"""A deterministic asyncio loop: it runs what events make ready, in order, and never waits.

A workflow body is ordinary asyncio code on this loop. Time stands still while it runs; its timers are durable
waits that somebody else keeps. Anything that would reach outside (sockets, threads, processes) is refused (R10).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

from wflab.errors import ForbiddenInWorkflowError

__all__ = ["BodyLoop", "TimerKeeper"]

log = logging.getLogger(__name__)
_CLOSING_TRIES = 100
_ENDS_ASYNCIO_SLEEP = asyncio.futures._set_result_unless_cancelled  # type: ignore[attr-defined]


class TimerKeeper(Protocol):
    """Keeps the durable timers of a loop."""

    def now_us(self) -> int:
        """The workflow's time, in microseconds since 1970."""

    def start_timer(self, when_us: int, handle: BodyTimer) -> str:
        """Remember a timer; gives its wait id. Its end calls `loop.ring(handle)`."""

    def cancel_timer(self, wait_id: str) -> None:
        """Forget a timer that has not rung."""


class BodyTimer(asyncio.TimerHandle):
    """A `call_at` of the body: its cancelling is recorded, its ringing is an event."""

    wait_id: str | None = None
    is_sleep = False

    def cancel(self) -> None:
        if not self.cancelled() and self.wait_id is not None:
            loop: BodyLoop = self._loop  # type: ignore[attr-defined]
            wait_id, self.wait_id = self.wait_id, None
            loop.keeper.cancel_timer(wait_id)
        super().cancel()


class BodyLoop(asyncio.AbstractEventLoop):
    """The loop of one workflow body. It is stepped: `run_ready()` returns when nothing is left to do."""

    def __init__(self, keeper: TimerKeeper) -> None:
        self.keeper = keeper
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.is_dropped = False

    # -- stepping -----------------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[None]:
        """Be the running loop of this thread for a while; the engine's own loop stands aside."""
        outer = asyncio._get_running_loop()
        outer_task = None
        if outer is not None and sys.version_info >= (3, 14):
            # From 3.14 on a thread, not a loop, has the current task.
            outer_task = asyncio.tasks._swap_current_task(outer, None)  # type: ignore[attr-defined]
        hooks = sys.get_asyncgen_hooks()
        # The engine's loop must not adopt a body's generators: it would close them at a time of its own.
        sys.set_asyncgen_hooks(firstiter=None, finalizer=_leave_generator)
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)
            sys.set_asyncgen_hooks(*hooks)
            if outer_task is not None:
                asyncio.tasks._swap_current_task(outer, outer_task)

    def run_ready(self) -> None:
        """Run callbacks until none is ready. Call it within `running()`."""
        ready = self._ready
        while ready:
            handle = ready.popleft()
            if handle._cancelled:
                continue
            try:
                handle._run()
            except (SystemExit, KeyboardInterrupt):
                # The task keeps it as its own end; it must not end the engine, too.
                log.debug("a workflow task raised out of its loop", exc_info=True)

    def close_tasks(self) -> None:
        """Close every task's coroutine, so that nothing of a dropped body is left to run later."""
        for task in list(self._tasks):
            coroutine: Any = task.get_coro()
            # One that awaits in its `finally` refuses, once for each such block; none needs more than a few.
            for _ in range(_CLOSING_TRIES):
                try:
                    coroutine.close()
                    break
                except BaseException:
                    log.debug("a dropped workflow body raised on its way out", exc_info=True)
        self._ready.clear()

    def ring(self, timer: BodyTimer) -> None:
        """Make a timer's callback ready: its time has come."""
        timer.wait_id = None
        self._ready.append(timer)

    # -- what asyncio asks of a loop ------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Run the callback in this turn, after those that are ready already."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def time(self) -> float:
        """The workflow's time in seconds since 1970: that of the latest event."""
        return self.keeper.now_us() / 1e6

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """A durable timer; see `call_at`."""
        return self._timer(self.keeper.now_us() + max(0, round(delay * 1e6)), callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """A durable timer: recorded as a wait, so that it goes on where the process ends."""
        return self._timer(round(when * 1e6), callback, args, context)

    def _timer(
        self, when_us: int, callback: Callable[..., object], args: Any, context: contextvars.Context | None
    ) -> BodyTimer:
        timer = BodyTimer(when_us / 1e6, callback, args, self, context)
        timer.is_sleep = callback is _ENDS_ASYNCIO_SLEEP
        return self._arm(when_us, timer)

    def _arm(self, when_us: int, timer: BodyTimer) -> BodyTimer:
        if when_us <= self.keeper.now_us():
            self._ready.append(timer)
        else:
            timer.wait_id = self.keeper.start_timer(when_us, timer)
        return timer

    def call_sleep(self, when_us: int, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """A durable timer that somebody sleeps for, rather than a deadline: `wake_up` may end it early."""
        timer = BodyTimer(when_us / 1e6, callback, (), self, None)
        timer.is_sleep = True
        return self._arm(when_us, timer)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asked by `TimerHandle.cancel`; `BodyTimer.cancel` has done all there is to do."""

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None, **_more: Any
    ) -> asyncio.Task[Any]:
        """A task of this loop. Takes a step call or a sleep, too, where asyncio itself wants a coroutine."""
        if isinstance(coro, asyncio.Future):
            coro = _result_of(coro)
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.add(task)
        return task

    def get_debug(self) -> bool:
        """Always off: debug mode measures real time."""
        return False

    def is_running(self) -> bool:
        """Always, as a body sees it."""
        return True

    def is_closed(self) -> bool:
        """Whether the body was dropped."""
        return self.is_dropped

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What goes wrong in a callback: a message for the log, as in asyncio."""
        if not self.is_dropped:
            log.warning("in a workflow body: %s", context.get("message"), exc_info=context.get("exception"))

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: generators end with their body."""

    def _refuse(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise ForbiddenInWorkflowError("reaching outside through the event loop (sockets, threads, processes)")

    run_in_executor = _refuse  # type: ignore[assignment]
    call_soon_threadsafe = _refuse  # type: ignore[assignment]
    create_connection = create_server = create_datagram_endpoint = _refuse
    create_unix_connection = create_unix_server = getaddrinfo = getnameinfo = _refuse
    connect_read_pipe = connect_write_pipe = subprocess_exec = subprocess_shell = _refuse
    sock_accept = sock_connect = sock_recv = sock_recv_into = sock_sendall = sock_sendfile = _refuse
    add_reader = add_writer = add_signal_handler = _refuse  # type: ignore[assignment]
    start_tls = sendfile = _refuse
    run_forever = run_until_complete = _refuse


async def _result_of(future: asyncio.Future[Any]) -> Any:
    return await future


def _leave_generator(_generator: Any) -> None:
    """Closing a generator is running code; a body that lets go of one does not get to run more of it."""
