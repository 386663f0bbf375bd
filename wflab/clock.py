"""Clocks: the real one, and a virtual one that moves only when told to."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import time_ns as _time_ns
from typing import Protocol

from wflab.durations import Duration, as_datetime, as_us, deadline_us

__all__ = ["Alarm", "Clock", "RealClock", "VirtualClock"]


class Alarm(Protocol):
    """A call that is due at some time and may be cancelled before."""

    def cancel(self) -> None:
        """Make sure that the call is not made any more."""


class Clock(Protocol):
    """What the engine knows of time."""

    @property
    def is_virtual(self) -> bool:
        """Whether time moves only by `advance`."""

    def now_us(self) -> int:
        """The current time, in microseconds since 1970."""

    def now(self) -> datetime:
        """The current time as an aware UTC datetime."""

    def call_at(self, loop: asyncio.AbstractEventLoop, when_us: int, callback: Callable[[], object]) -> Alarm:
        """Call `callback` on `loop` once the time is `when_us` or later."""


class RealClock:
    """The machine's clock; it never goes back while the process lives."""

    is_virtual = False

    def __init__(self) -> None:
        self._latest_us = 0

    def now_us(self) -> int:
        """The current time, in microseconds since 1970."""
        # The system's clock may be set back under us; a log's times must not.
        self._latest_us = max(self._latest_us, _time_ns() // 1000)
        return self._latest_us

    def now(self) -> datetime:
        """The current time as an aware UTC datetime."""
        return as_datetime(self.now_us())

    def call_at(self, loop: asyncio.AbstractEventLoop, when_us: int, callback: Callable[[], object]) -> Alarm:
        """Call `callback` on `loop` once the time is `when_us` or later."""
        return _RealAlarm(self, loop, when_us, callback)


class _RealAlarm:
    """Sleeps in pieces: the loop's clock and the wall clock drift apart over days, and a loop refuses long delays."""

    __slots__ = ("_callback", "_clock", "_handle", "_loop", "_when_us")
    _PIECE_S = 3600.0

    def __init__(
        self, clock: RealClock, loop: asyncio.AbstractEventLoop, when_us: int, callback: Callable[[], object]
    ) -> None:
        self._clock, self._loop, self._when_us, self._callback = clock, loop, when_us, callback
        self._handle: asyncio.TimerHandle | None = None
        self._arm()

    def _arm(self) -> None:
        delay_s = max(0.0, (self._when_us - self._clock.now_us()) / 1e6)
        self._handle = self._loop.call_later(min(delay_s, self._PIECE_S), self._ring)

    def _ring(self) -> None:
        if self._clock.now_us() < self._when_us:
            self._arm()
        else:
            self._callback()

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


class VirtualClock:
    """A clock for tests and simulations: time stands still until `advance` is called.

    An inline `Lab` also moves it to the next timer while a caller waits for a run's result and nothing else can
    go on, so that a workflow which sleeps for a year ends at once.

    Args:
        start: the first moment, aware; 2026-01-01 00:00 UTC when not given.
    """

    is_virtual = True

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now_us = as_us(start)
        self._alarms: list[tuple[int, int, _VirtualAlarm]] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def now_us(self) -> int:
        """The current time, in microseconds since 1970."""
        return self._now_us

    def now(self) -> datetime:
        """The current time as an aware UTC datetime."""
        return as_datetime(self._now_us)

    def call_at(self, loop: asyncio.AbstractEventLoop, when_us: int, callback: Callable[[], object]) -> Alarm:
        """Call `callback` on `loop` once the time is `when_us` or later."""
        alarm = _VirtualAlarm(loop, callback)
        with self._lock:
            heapq.heappush(self._alarms, (when_us, next(self._numbers), alarm))
        self._ring()
        return alarm

    def advance(self, duration: Duration = 0.0, **parts: float) -> datetime:
        """Move time forward and ring what has become due, in order of time.

        Args:
            duration: any duration of `wflab.durations`, or an aware datetime to move to.
            **parts: as for `timedelta`: `days=30`, `hours=1`, …; added to `duration`.

        Returns:
            The new time.

        Raises:
            InvalidDurationError: the duration is negative, NaN, naive or can't be read.
        """
        end_us = deadline_us(duration, now_us=self._now_us)
        if parts:
            end_us = deadline_us(timedelta(**parts), now_us=end_us)
        self._now_us = max(self._now_us, end_us)
        self._ring()
        return self.now()

    def next_alarm_us(self) -> int | None:
        """When the next alarm is due, in microseconds since 1970; `None` when none is set."""
        with self._lock:
            while self._alarms and self._alarms[0][2].is_cancelled:
                heapq.heappop(self._alarms)
            return self._alarms[0][0] if self._alarms else None

    def _ring(self) -> None:
        with self._lock:
            due = []
            while self._alarms and self._alarms[0][0] <= self._now_us:
                due.append(heapq.heappop(self._alarms)[2])
        for alarm in due:
            alarm.ring()


class _VirtualAlarm:
    __slots__ = ("_callback", "_loop", "is_cancelled")

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        self._loop, self._callback, self.is_cancelled = loop, callback, False

    def ring(self) -> None:
        if not self.is_cancelled and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._fire)

    def _fire(self) -> None:
        if not self.is_cancelled:
            self._callback()

    def cancel(self) -> None:
        self.is_cancelled = True
