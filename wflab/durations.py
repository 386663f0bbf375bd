"""Durations as users write them: `"1h 30m"`, seconds, `timedelta`, or an aware `datetime` as the end."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from wflab.errors import InvalidDurationError

__all__ = ["Duration", "as_datetime", "as_us", "deadline_us", "duration_us"]

Duration = str | float | timedelta | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_UNITS = {
    1: ("us", "microsecond", "microseconds"),
    1_000: ("ms", "msec", "msecs", "millisecond", "milliseconds"),
    1_000_000: ("s", "sec", "secs", "second", "seconds"),
    60_000_000: ("m", "min", "mins", "minute", "minutes"),
    3_600_000_000: ("h", "hr", "hrs", "hour", "hours"),
    86_400_000_000: ("d", "day", "days"),
    604_800_000_000: ("w", "week", "weeks"),
    31_557_600_000_000: ("y", "yr", "yrs", "year", "years"),
}
_US_PER_UNIT = {name: us for us, names in _UNITS.items() for name in names}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]+)")


def as_us(moment: datetime) -> int:
    """Microseconds since 1970 of an aware datetime. Raises `InvalidDurationError` for a naive one."""
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidDurationError(moment, "it has no time zone")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def as_datetime(us: int) -> datetime:
    """The aware UTC datetime of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=us)


def duration_us(value: Duration, *, now_us: int) -> int:
    """A duration in whole microseconds; an aware datetime counts from `now_us`, and is 0 when it has passed.

    Args:
        value: `"30 days"`, `"1h 30m"`, `"250ms"`, a number of seconds, a `timedelta`, or an aware `datetime`.
        now_us: the current time in microseconds since 1970.

    Raises:
        InvalidDurationError: (a `ValueError`) negative, NaN, infinite, naive, unparsable, or past the year 9999.
    """
    us = max(0, as_us(value) - now_us) if isinstance(value, datetime) else _relative_us(value)
    if us < 0:
        raise InvalidDurationError(value, "it is negative")
    if now_us + us > _MAX_US:
        raise InvalidDurationError(value, "it ends past the year 9999")
    return us


def deadline_us(value: Duration, *, now_us: int) -> int:
    """When a duration that starts at `now_us` ends, in microseconds since 1970; a datetime is its own end.

    Raises: as `duration_us`.
    """
    if isinstance(value, datetime):
        return as_us(value)
    return now_us + duration_us(value, now_us=now_us)


def _relative_us(value: object) -> int:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, bool):
        raise InvalidDurationError(value, "it is a bool")
    if isinstance(value, int | float):
        if not math.isfinite(value):
            raise InvalidDurationError(value, "it is not a finite number")
        return round(value * 1_000_000)
    if isinstance(value, str):
        return _text_us(value)
    raise InvalidDurationError(value, f"a {type(value).__name__} is none")


def _text_us(text: str) -> int:
    rest = text.strip().lower()
    if rest.startswith("-"):
        raise InvalidDurationError(text, "it is negative")
    total, at = 0.0, 0
    for part in _PART.finditer(rest):
        between = rest[at : part.start()].strip().strip(",").strip()
        if between not in ("", "and"):
            raise InvalidDurationError(text, f"{between!r} is no unit")
        number, unit = part.groups()
        if unit not in _US_PER_UNIT:
            raise InvalidDurationError(text, f"{unit!r} is no unit")
        total += float(number) * _US_PER_UNIT[unit]
        at = part.end()
    if at == 0:
        raise InvalidDurationError(text, "it has no number with a unit" if rest else "it is empty")
    if rest[at:].strip():
        raise InvalidDurationError(text, f"{rest[at:].strip()!r} is left over")
    return round(total)
