"""What a step prints and logs belongs to its attempt, not to whichever notebook cell happens to run (R7)."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from wflab.engine import current

__all__ = ["MAX_CHARACTERS", "captured", "printed"]

MAX_CHARACTERS = 64 * 1024
"""How much of one attempt's output is kept."""


def _keep(attempt: current.Attempt, text: str) -> None:
    room = MAX_CHARACTERS - attempt.printed_size
    attempt.printed_size += len(text)
    if room > 0:
        attempt.printed.append(text[:room])


def printed(attempt: current.Attempt) -> str:
    """All that an attempt has printed so far; what was left out is said."""
    text = "".join(attempt.printed)
    left_out = attempt.printed_size - len(text)
    return f"{text}\n… {left_out} more characters were not kept" if left_out > 0 else text


class _Diverted:
    """Stands for `sys.stdout` while attempts run: their writes go to them, all others to where they always went.

    There is one for each stream, and it lives for ever: `print` holds the stream without owning it, so that one
    which was freed in the middle of another thread's `print` would take the process down.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.real: TextIO = getattr(sys, name)

    def put_in_place(self) -> None:
        """Take the stream's place."""
        found = getattr(sys, self.name)
        if found is not self:
            self.real = found
            setattr(sys, self.name, self)

    def step_aside(self) -> None:
        """Put the stream back, unless somebody else has replaced it."""
        if getattr(sys, self.name) is self:
            setattr(sys, self.name, self.real)

    def write(self, text: str) -> int:
        attempt = current.attempt.get()
        if attempt is None:
            return self.real.write(text)
        _keep(attempt, text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if current.attempt.get() is None:
            self.real.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class _AttemptLogHandler(logging.Handler):
    """Gives log records of an attempt to it."""

    def emit(self, record: logging.LogRecord) -> None:
        attempt = current.attempt.get()
        if attempt is None:
            self._as_without(record)
            return
        try:
            _keep(attempt, self.format(record) + "\n")
        except Exception:
            self.handleError(record)

    def _as_without(self, record: logging.LogRecord) -> None:
        """Where logging is not configured, Python shows warnings itself; that this handler is there must not end it."""
        last = logging.lastResort
        if last is None or record.levelno < last.level:
            return
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return
            logger = logger.parent if logger.propagate else None
        last.handle(record)


_streams = (_Diverted("stdout"), _Diverted("stderr"))
_lock = threading.Lock()
_users = 0
_handler = _AttemptLogHandler()
_handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))


@contextmanager
def captured() -> Iterator[None]:
    """Divert output while an attempt runs. Streams are put back with the last one, unless others replaced them."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            for stream in _streams:
                stream.put_in_place()
            logging.getLogger().addHandler(_handler)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                for stream in _streams:
                    stream.step_aside()
                logging.getLogger().removeHandler(_handler)
