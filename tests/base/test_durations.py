"""Durations, everywhere (semantics §1)."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wflab import InvalidDurationError, VirtualClock
from wflab.durations import as_datetime, as_us, deadline_us, duration_us

NOW = as_us(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30 days", 2_592_000),
        ("1h 30m", 5_400),
        ("250ms", 0.25),
        ("1.5 hours", 5_400),
        ("2 weeks, 1 day and 3 sec", 1_296_003),
        ("1Y", 31_557_600),
        (".5s", 0.5),
        (5, 5),
        (0, 0),
        (0.000001, 0.000001),
        ("0s", 0),
        (timedelta(minutes=2), 120),
        (datetime(2026, 1, 1, 0, 1, tzinfo=UTC), 60),
        (datetime(2025, 1, 1, tzinfo=UTC), 0),
    ],
)
def test_a_duration_can_be_written_in_many_ways(value: Any, seconds: float) -> None:
    assert duration_us(value, now_us=NOW) == round(seconds * 1_000_000)


@pytest.mark.parametrize(
    "value",
    ["", "  ", "5", "soon", "-5s", "5 parsecs", "1h x", "h", "1h 5", "١ hour ago", -1, -0.5, float("nan"), float("inf"),
     timedelta(seconds=-1), datetime(2026, 1, 1), True, None, [], "99999 years", 1e300, timedelta.max],
)  # fmt: skip
def test_what_is_no_duration_is_a_value_error_that_names_it(value: Any) -> None:
    with pytest.raises(ValueError) as refused:
        duration_us(value, now_us=NOW)
    assert isinstance(refused.value, InvalidDurationError)
    assert refused.value.value is value
    assert repr(value)[:40] in str(refused.value)


UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000, "w": 604_800_000_000}


@given(st.lists(st.tuples(st.integers(0, 500), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " "])), min_size=1))
def test_parts_add_up(parts: list[tuple[int, str, str]]) -> None:
    text = " ".join(f"{number}{space}{unit}" for number, unit, space in parts[:8])
    assert duration_us(text, now_us=NOW) == sum(number * UNITS[unit] for number, unit, _ in parts[:8])


@given(st.timedeltas(timedelta(0), timedelta(days=10_000)))
def test_a_timedelta_is_kept_to_the_microsecond(value: timedelta) -> None:
    assert duration_us(value, now_us=NOW) == value // timedelta(microseconds=1)
    assert as_datetime(deadline_us(value, now_us=NOW)) == as_datetime(NOW) + value


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    with contextlib.suppress(InvalidDurationError):
        assert duration_us(text, now_us=NOW) >= 0


def test_a_virtual_clock_moves_only_forward_and_only_when_told() -> None:
    clock = VirtualClock(datetime(2026, 1, 1, tzinfo=UTC))
    assert clock.advance("1h", days=1) == datetime(2026, 1, 2, 1, tzinfo=UTC)
    assert clock.advance(datetime(2020, 1, 1, tzinfo=UTC)) == clock.now()
    with pytest.raises(ValueError, match="negative"):
        clock.advance(-1)
    assert clock.now() == datetime(2026, 1, 2, 1, tzinfo=UTC)
