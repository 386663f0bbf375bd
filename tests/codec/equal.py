"""Equality that forgives nothing: types, NaN, signed zeros, time zones, the order of keys."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from datetime import datetime, time
from decimal import Decimal
from typing import Any


def assert_same(first: Any, second: Any) -> None:
    """The two values are equal and of the same type, all the way down."""
    assert type(first) is type(second), (type(first), type(second))
    if isinstance(first, float):
        assert math.isnan(first) == math.isnan(second)
        assert math.isnan(first) or (first == second and math.copysign(1, first) == math.copysign(1, second))
    elif isinstance(first, complex):
        assert_same(first.real, second.real)
        assert_same(first.imag, second.imag)
    elif isinstance(first, Decimal):
        assert first.compare_total(second) == 0
    elif isinstance(first, datetime | time):
        assert first.replace(tzinfo=None) == second.replace(tzinfo=None)
        assert (first.fold, repr(first.tzinfo)) == (second.fold, repr(second.tzinfo))
        assert type(first.tzinfo) is type(second.tzinfo)
    elif isinstance(first, list | tuple | deque):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    elif isinstance(first, dict):
        assert list(map(repr, first)) == list(map(repr, second))
        for one, other in zip(first.items(), second.items(), strict=True):
            assert_same(one, other)
    elif isinstance(first, BaseException):
        assert_same(first.args, second.args)
        assert_same(vars(first), vars(second))
        assert_same(first.__cause__, second.__cause__)
        assert first.__suppress_context__ == second.__suppress_context__
    elif dataclasses.is_dataclass(first):
        for field in dataclasses.fields(first):
            assert_same(getattr(first, field.name), getattr(second, field.name))
    elif hasattr(first, "__pydantic_fields__"):
        assert_same(vars(first), vars(second))
    else:
        assert first == second
