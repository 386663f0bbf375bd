"""A log as its run saw it, and what a body gives, as the text that goes into one."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from wflab import codec
from wflab.errors import SerializationError, UnresolvedError
from wflab.world.protocol import Recorded

__all__ = ["delivery_order", "encode_arguments", "encode_error", "last_line"]


def delivery_order(events: Iterable[Recorded]) -> list[Recorded]:
    """A log in the order in which its run saw it.

    Others append to a log at any time: a payload may come to stand before a batch whose writer had not seen it.
    Such a batch says what it had `seen`, and what came in between is delivered after it, here as it was then.
    """
    ordered: list[Recorded] = []
    for item in events:
        if item.seen is None:
            ordered.append(item)
            continue
        between: list[Recorded] = []
        while ordered and ordered[-1].position > item.seen and ordered[-1].seen is None:
            between.append(ordered.pop())
        ordered.append(item)
        ordered.extend(reversed(between))
    return ordered


def encode_arguments(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Arguments as JSON text. Raises `SerializationError` with a path that begins with `args` or `kwargs` (R5)."""
    head = f'{{"args":{codec.encode(list(args), path="args")}'
    return f'{head},"kwargs":{codec.encode(kwargs, path="kwargs")}}}' if kwargs else head + "}"


def encode_error(error: BaseException) -> str:
    """An exception as JSON text; one that can't be stored is stored as what it said."""
    try:
        return codec.encode(error, path="error")
    except SerializationError as reason:
        stand_in = UnresolvedError(type(error).__qualname__, str(error))
        stand_in.add_note(str(reason))
        return codec.encode(stand_in, path="error")


def last_line(error: BaseException) -> str:
    """An exception in one line, as at the end of a traceback."""
    return traceback.format_exception_only(error)[0].strip()[:500]
