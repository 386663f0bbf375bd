"""Where an engine runs: on a thread of its own beside the caller, or inline on the caller's loop."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Host", "InlineHost", "ThreadHost"]

T = TypeVar("T")
S = TypeVar("S")
_AT_EXIT_S = 10.0
"""How long the end of Python waits for a clean stop, in seconds."""

S_co = TypeVar("S_co", covariant=True)


class Host(Protocol[S_co]):
    """Runs calls where the engine runs. `S_co` is what opening makes there."""

    async def call(self, work: Callable[[S_co], Coroutine[Any, Any, T]]) -> T:
        """Await `work(service)` on the engine's loop; the first call opens the service."""

    async def close(self) -> None:
        """Close the service. A later call opens it again."""


class InlineHost(Generic[S]):
    """Runs the engine on the loop of whoever calls: for tests, simulations, and browsers without threads."""

    def __init__(
        self, open_: Callable[[], Coroutine[Any, Any, S]], close: Callable[[S], Coroutine[Any, Any, None]]
    ) -> None:
        self._open, self._close = open_, close
        self._service: asyncio.Future[S] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def call(self, work: Callable[[S], Coroutine[Any, Any, T]]) -> T:
        """Await `work(service)` here."""
        loop = asyncio.get_running_loop()
        if self._service is None:
            self._loop = loop
            self._service = asyncio.ensure_future(self._open())
        if loop is not self._loop:
            raise RuntimeError("an inline Lab belongs to the event loop that used it first: open one for each loop")
        return await work(await _opened(self, self._service))

    def failed(self) -> None:
        """Opening has failed: the next call tries again."""
        self._service = None

    async def close(self) -> None:
        """Close the service, if it is open."""
        service, self._service = self._service, None
        if service is not None:
            await self._close(await service)


class ThreadHost(Generic[S]):
    """Runs the engine on a daemon thread, so that a busy caller does not stop it, nor it the caller.

    It starts with the first call, and stops cleanly when Python ends.
    """

    def __init__(
        self, open_: Callable[[], Coroutine[Any, Any, S]], close: Callable[[S], Coroutine[Any, Any, None]]
    ) -> None:
        self._open, self._close = open_, close
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._service: asyncio.Future[S] | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    async def call(self, work: Callable[[S], Coroutine[Any, Any, T]]) -> T:
        """Await `work(service)` on the engine's loop, from any loop."""
        loop = self._running_loop()
        if asyncio.get_running_loop() is loop:
            return await self._serve(work)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._serve(work), loop))

    async def _serve(self, work: Callable[[S], Coroutine[Any, Any, T]]) -> T:
        if self._service is None:
            self._service = asyncio.ensure_future(self._open())
        return await work(await _opened(self, self._service))

    def failed(self) -> None:
        """Opening has failed: the next call tries again."""
        self._service = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                # A forked child has inherited the loop but not the thread.
                self._loop, self._service, self._pid = asyncio.new_event_loop(), None, os.getpid()
                self._thread = threading.Thread(target=self._loop.run_forever, name="wflab engine", daemon=True)
                self._thread.start()
                atexit.register(self._close_at_exit)
            return self._loop

    def _close_at_exit(self) -> None:
        # Executors and loops of others are gone by now: this one's own thread has to be enough.
        detached = self._detach()
        if detached is not None:
            loop, thread = detached
            asyncio.run_coroutine_threadsafe(self._shut(), loop).result(_AT_EXIT_S)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_AT_EXIT_S)

    async def close(self) -> None:
        """Close the service and end the thread."""
        detached = self._detach()
        if detached is not None:
            loop, thread = detached
            atexit.unregister(self._close_at_exit)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._shut(), loop))
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join)
            loop.close()

    def _detach(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread] | None:
        """Take the loop and its thread out of use; `None` when there are none in this process."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        return None if loop is None or thread is None or self._pid != os.getpid() else (loop, thread)

    async def _shut(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            await self._close(await service)


async def _opened(host: InlineHost[S] | ThreadHost[S], service: asyncio.Future[S]) -> S:
    try:
        # Shielded: a caller that gives up must not undo the opening that others wait for.
        return await asyncio.shield(service)
    except BaseException:
        if service.done() and (service.cancelled() or service.exception() is not None):
            host.failed()
        raise
