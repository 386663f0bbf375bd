"""What is to go wrong next: asked for by the lesson, met by requests."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Fault", "Faults", "Hold", "Kind"]

Kind = Literal["lose reply", "drop request", "fail", "decline", "delay"]


class Hold:
    """Keeps requests in flight until it is released, so that a lesson can look at what happens meanwhile."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def wait_until_reached(self, timeout: float = 10.0) -> None:
        """Wait until a request is being held. Raises `TimeoutError` after `timeout` seconds."""
        if not self._reached.wait(timeout):
            raise TimeoutError(f"no request was held within {timeout:g} s")

    def release(self) -> None:
        """Let the held requests go on, and those that would have been held, too."""
        self._released.set()

    def _pass(self, seconds: float | None) -> None:
        self._reached.set()
        self._released.wait(seconds)

    def __repr__(self) -> str:
        state = "released" if self._released.is_set() else "holding" if self._reached.is_set() else "not reached"
        return f"<Hold {state}>"


@dataclass(slots=True)
class Fault:
    """One thing that goes wrong, `left` times.

    Attributes:
        kind: `lose reply` (the work is done, the connection closed), `drop request` (closed before anything is done),
            `fail` (an error of the server, nothing done), `decline` (of the card), `delay` (before the work).
        left: how many requests still meet it.
        customer: only requests of this customer.
        amount: only requests of this amount, in the smallest unit of the currency.
        seconds: how long a delay takes; until its hold is released when `None`.
        status: of a failure: 429, or 500 to 599.
    """

    kind: Kind
    left: int = 1
    customer: str | None = None
    amount: int | None = None
    seconds: float | None = None
    status: int = 500
    hold: Hold = field(default_factory=Hold)

    def __post_init__(self) -> None:
        if self.left < 1:
            raise ValueError(f"n={self.left}: it would never go wrong; give 1 or more")
        if self.seconds is not None and not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise ValueError(f"seconds={self.seconds}: a delay is a number of seconds, 0 or more")
        if self.status != 429 and not 500 <= self.status <= 599:
            raise ValueError(f"status={self.status}: a server fails with 429, or with 500 to 599")

    def _is_for(self, customer: object, amount: object) -> bool:
        return self.customer in (None, customer) and (self.amount is None or str(self.amount) == amount)


class Faults:
    """The faults still to come, in the order in which they were asked for; from any thread."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._holding: list[Hold] = []
        self._is_open = True
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> Fault:
        """Let something go wrong."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def take(self, kind: Kind, fields: dict[str, object]) -> Fault | None:
        """The fault of this kind that a request with these fields meets, if any. It is used up once."""
        with self._lock:
            for fault in self._faults:
                if fault.kind == kind and fault._is_for(fields.get("customer"), fields.get("amount")):
                    fault.left -= 1
                    if fault.left == 0:
                        self._faults.remove(fault)
                    return fault
        return None

    def clear(self) -> None:
        """Let all go well again."""
        with self._lock:
            self._faults.clear()

    def pause(self, fault: Fault) -> bool:
        """Wait as a delay says. False when the server has closed meanwhile: then nothing is to be done any more."""
        with self._lock:
            if not self._is_open:
                return False
            self._holding.append(fault.hold)
        fault.hold._pass(fault.seconds)
        with self._lock:
            self._holding.remove(fault.hold)
            return self._is_open

    def open(self) -> None:
        """The server opens."""
        with self._lock:
            self._is_open = True

    def close(self) -> None:
        """The server closes: end what is paused."""
        with self._lock:
            self._is_open = False
            for hold in self._holding:
                hold.release()
