"""Stripe's idempotency keys: a key's first request does the work, the others get its answer.

A key's unique row decides every race for it: two requests may both find it free, but only one can write it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from wflab.demo.answers import Answer, RefusedError, idempotency_error
from wflab.demo.ledger import Books, Ledger, micros

__all__ = ["KEY_LIFETIME", "MAX_KEY_LENGTH", "Claim", "ClaimLostError", "Keys"]

KEY_LIFETIME = timedelta(hours=24)
MAX_KEY_LENGTH = 255


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to do a key's work, once."""

    key: str
    id: str


class ClaimLostError(Exception):
    """Another server took this one for dead, and does the key's work now. What was about to be written must not be."""


class Keys:
    """The keys that one server sees.

    Args:
        ledger: where they are kept.
        session: names this server's lifetime: keys left in flight by any other are free again.
    """

    def __init__(self, ledger: Ledger, session: str) -> None:
        self._ledger = ledger
        self._session = session

    def claim(self, key: str, request: list[Any], now: datetime) -> Claim | Answer:
        """Take a key for a request, or give the answer that the key's state calls for.

        Args:
            key: as the client sent it.
            request: what must be the same each time: method, path, parameters.
            now: a key is free again 24 hours after its first request.

        Raises:
            RefusedError: the key is empty, or longer than 255 characters.
        """
        if not 0 < len(key) <= MAX_KEY_LENGTH:
            raise RefusedError(f"An idempotency key has 1 to {MAX_KEY_LENGTH} characters; this one has {len(key)}.")
        fingerprint = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        claim = Claim(key, secrets.token_hex(8))
        with self._ledger.transaction() as books:
            books.execute(
                "delete from keys where key = :key and ("
                " (status is not null and created <= :expired) or (status is null and session <> :session))",
                {"key": key, "expired": micros(now - KEY_LIFETIME), "session": self._session},
            )
            inserted = books.execute(
                "insert into keys(key, claim, session, fingerprint, created) values(?, ?, ?, ?, ?)"
                " on conflict do nothing",
                (key, claim.id, self._session, fingerprint, micros(now)),
            )
            if inserted.rowcount == 1:
                return claim
            query = "select fingerprint, status, body from keys where key = ?"
            first, status, body = books.execute(query, (key,)).fetchone()
        if first != fingerprint:
            return idempotency_error(
                400,
                "Keys for idempotent requests can only be used with the same endpoint and parameters they were first"
                f" used with. Try using a key other than {key!r} if you meant to execute a different request.",
            )
        if status is None:
            return idempotency_error(
                409,
                f"There is currently another request in progress with the idempotency key {key!r}. Try again later.",
                code="idempotency_key_in_use",
            )
        return Answer(status, json.loads(body), is_replayed=True)

    def settle(self, books: Books, claim: Claim, answer: Answer) -> None:
        """Remember a key's answer, in the transaction that wrote the work down: there is both, or neither.

        Raises:
            ClaimLostError: the key is another's by now. The transaction must not be committed.
        """
        row = (answer.status, json.dumps(answer.body), claim.key, claim.id)
        if books.execute("update keys set status = ?, body = ? where key = ? and claim = ?", row).rowcount != 1:
            raise ClaimLostError(claim.key)

    def release(self, claim: Claim) -> None:
        """Forget a key whose request came to nothing: it may be sent again as if it were new."""
        with self._ledger.transaction() as books:
            row = (claim.key, claim.id)
            books.execute("delete from keys where key = ? and claim = ? and status is null", row)
