"""What is to go wrong next: asked for by the lesson, used up by requests."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal

__all__ = ["Fault", "Faults"]

Kind = Literal["lose reply", "drop request", "fail", "decline", "delay"]


@dataclass(slots=True)
class Fault:
    """One thing that goes wrong, `left` times.

    Attributes:
        kind: `lose reply` (the work is done, the connection closed), `drop request` (closed before anything is done),
            `fail` (an error of the server, nothing done), `decline` (of the card), `delay`.
        seconds: how long a delay takes, before the work is done.
        status: of a failure.
        customer: only for this customer's requests.
    """

    kind: Kind
    left: int = 1
    seconds: float = 0.0
    status: int = 500
    customer: str | None = None


class Faults:
    """The faults that are still to come, from any thread."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> None:
        """Let something go wrong. Raises `ValueError` for a number that makes no sense."""
        if fault.left < 1 or fault.seconds < 0:
            raise ValueError(f"{fault!r} would never go wrong")
        with self._lock:
            self._faults.append(fault)

    def take(self, customer: str | None) -> dict[str, Fault]:
        """The faults that this request meets, one of a kind, by kind; each is used up once."""
        met: dict[str, Fault] = {}
        with self._lock:
            for fault in self._faults:
                if fault.kind not in met and fault.customer in (None, customer):
                    met[fault.kind] = fault
                    fault.left -= 1
            self._faults = [fault for fault in self._faults if fault.left > 0]
        return met

    def clear(self) -> None:
        """Let all go well again."""
        with self._lock:
            self._faults.clear()
