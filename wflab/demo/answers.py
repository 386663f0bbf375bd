"""What requests are answered with: Stripe's JSON, and the refusals that leave no trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Answer", "DroppedError", "RefusedError", "card_declined", "idempotency_error", "server_error"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A status and a body. `is_replayed`: it is the answer that the request's key got before."""

    status: int
    body: dict[str, Any]
    is_replayed: bool = False


class DroppedError(Exception):
    """The connection is to be closed without a reply."""


class RefusedError(Exception):
    """The request can't be carried out as it is. Its idempotency key stays free: put right, it may be sent again."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.answer = Answer(status, _error("invalid_request_error", message, param=param, code=code))


def card_declined() -> Answer:
    """The customer's bank says no."""
    message = "Your card was declined."
    return Answer(402, _error("card_error", message, code="card_declined", decline_code="generic_decline"))


def server_error(status: int) -> Answer:
    """Something went wrong on the provider's side; also what it says when it's asked too often (429)."""
    if status == 429:
        return Answer(status, _error("invalid_request_error", "Too many requests.", code="rate_limit"))
    return Answer(status, _error("api_error", "Something went wrong on our side. Nothing was charged."))


def idempotency_error(status: int, message: str, *, code: str | None = None) -> Answer:
    """A key is misused (400), or its first request is still in flight (409)."""
    return Answer(status, _error("idempotency_error", message, code=code))


def _error(kind: str, message: str, **more: str | None) -> dict[str, Any]:
    given = {name: value for name, value in more.items() if value is not None}
    return {"error": {"type": kind, "message": message, **given}}
