"""A hook as the workflow body holds it: registered, resumed, disposed, taken over (R18-R25, R28)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from wflab import codec
from wflab.engine import current
from wflab.errors import HookConflictError, HookDisposedError, HookForceClaimedError

if TYPE_CHECKING:
    from wflab.engine.replay import Replay

__all__ = ["Hook"]

T = TypeVar("T")


class Hook(Generic[T]):
    """What `create_hook()` gives. `await hook` takes the next payload, `async for` all of them.

    Leaving a `with hook:` block disposes it. All of this works in the workflow that created it, and only there.

    Attributes:
        token: whoever knows it can resume the hook.
        hook_id: its id in the log.
    """

    def __init__(self, replay: Replay, hook_id: str, token: str, *, is_registered: bool = False) -> None:
        self.token = token
        self.hook_id = hook_id
        self._replay = replay
        self._is_registered = is_registered
        self._is_disposed = False
        self._owner: str | None = None
        self._claimed_by: str | None = None
        self._payloads: deque[str] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()

    # -- what a workflow does with it -------------------------------------------------------------------

    async def get_conflict(self) -> Any:
        """Register the hook and tell who holds the token: `None` if this hook does, else the owner's `Run` (R20)."""
        self._check_place()
        while not self._is_registered:
            await self._wait()
        return None if self._owner is None else self._replay.lab.get_run(self._owner)

    def dispose(self) -> None:
        """Release the token at once (R23). Twice is once; a hook that never held its token has nothing to release."""
        if self._is_disposed or self._replay.is_dropped:
            return
        self._check_place()
        self._is_disposed = True
        if self._owner is None and self._claimed_by is None:
            self._replay.dispose_hook(self)
        self._wake_all()

    @property
    def is_disposed(self) -> bool:
        """Whether this run has disposed it."""
        return self._is_disposed

    def __await__(self) -> Generator[Any, None, T]:
        return self._next().__await__()

    def __aiter__(self) -> Hook[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await self._next()
        except HookDisposedError:
            raise StopAsyncIteration from None

    def __enter__(self) -> Hook[T]:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.dispose()

    def __repr__(self) -> str:
        if self._owner is not None:
            state = f"held by {self._owner}"
        elif self._claimed_by is not None:
            state = f"taken over by {self._claimed_by}"
        elif self._is_disposed:
            state = "disposed"
        else:
            state = "open" if self._is_registered else "not registered yet"
        return f"<Hook {self.token!r} {state}>"

    # -- waiting ----------------------------------------------------------------------------------------

    async def _next(self) -> T:
        self._check_place()
        while True:
            if self._is_disposed:
                raise HookDisposedError(self.token)
            if self._owner is not None:
                raise HookConflictError(self.token, self._owner)
            if self._payloads:
                return codec.decode(self._payloads.popleft())["payload"]  # type: ignore[no-any-return]
            if self._claimed_by is not None:
                # Only now: what had arrived before the take-over stays this run's (R25).
                raise HookForceClaimedError(self.token, self._claimed_by)
            await self._wait()

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = self._replay.loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif self._payloads:
                # Woken and cancelled in one turn: the payload is for the next in line.
                self._wake_next()
            raise

    def _wake_next(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_all(self) -> None:
        while self._waiters:
            self._wake_next()

    def _check_place(self) -> None:
        if current.body() is not self._replay:
            raise RuntimeError(f"{self!r} belongs to a workflow: use it in that workflow's body only")

    # -- what the log says of it --------------------------------------------------------------------------

    def registered(self, owner: str | None) -> None:
        """The registration is in the log; `owner` is the run that holds the token instead."""
        self._is_registered = True
        self._owner = owner
        self._wake_all()

    def received(self, data: str) -> None:
        """A payload has arrived. One that comes after the disposal has nobody to go to."""
        if not self._is_disposed:
            self._payloads.append(data)
            self._wake_next()

    def taken_over(self, by: str) -> None:
        """Another run has taken the token by force."""
        self._claimed_by = by
        self._wake_all()

    @property
    def has_lost_token(self) -> bool:
        """Whether another run holds the token, so that there is nothing to dispose of."""
        return self._owner is not None or self._claimed_by is not None
