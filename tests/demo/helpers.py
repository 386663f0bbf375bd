"""What the provider's tests have in common."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from wflab.demo import PaymentProvider

CHARGE = {"amount": 1000, "currency": "usd", "customer": "cus_1"}


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def charge(provider: PaymentProvider, key: str | None = None, **more: Any) -> Any:
    return provider.client().v1.charges.create({**CHARGE, **more}, {"idempotency_key": key} if key else {})


def outcomes(provider: PaymentProvider) -> list[str]:
    return [request.outcome for request in provider.received_requests()]


class InBackground:
    """A call on a thread of its own."""

    def __init__(self, call: Callable[..., Any], *args: Any, **more: Any) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(call, *args, **more)
        self._pool.shutdown(wait=False)

    def result(self) -> Any:
        return self._future.result(timeout=20)

    def error(self) -> BaseException | None:
        return self._future.exception(timeout=20)
