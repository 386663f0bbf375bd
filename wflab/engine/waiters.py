"""Who waits in this process: for runs to end, and for everything to come to rest."""

from __future__ import annotations

import asyncio

__all__ = ["Waiters"]


class Waiters:
    """Futures of the engine's loop that others wait on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ends: dict[str, list[asyncio.Future[None]]] = {}
        self._quiet: list[asyncio.Future[None]] = []

    @property
    def awaited_runs(self) -> list[str]:
        """The runs whose end somebody waits for."""
        return list(self._ends)

    def end_of(self, run_id: str) -> asyncio.Future[None]:
        """Done when the run has ended, here or elsewhere; ask the World whether it has ended already afterwards."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._ends.setdefault(run_id, []).append(waiter)
        return waiter

    def forget(self, run_id: str, waiter: asyncio.Future[None]) -> None:
        """Nobody waits with it any more."""
        waiters = self._ends.get(run_id, [])
        if waiter in waiters:
            waiters.remove(waiter)
        if not waiters:
            self._ends.pop(run_id, None)

    def tell_end(self, run_id: str) -> None:
        """The run has ended."""
        _finish(self._ends.pop(run_id, []))

    def next_quiet(self) -> asyncio.Future[None]:
        """Done when the engine next comes to rest."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._quiet.append(waiter)
        return waiter

    @property
    def is_quiet_awaited(self) -> bool:
        """Whether anybody asks for rest."""
        return bool(self._quiet)

    def tell_quiet(self) -> None:
        """The engine is at rest."""
        waiting, self._quiet = self._quiet, []
        _finish(waiting)

    def fail(self, error: Exception) -> None:
        """Nothing will end here any more."""
        for waiter in [waiter for waiters in self._ends.values() for waiter in waiters]:
            if not waiter.done():
                waiter.set_exception(error)


def _finish(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
