"""What the provider does with a request: its faults, key, work, and line in the books. Knows nothing of HTTP."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from wflab.demo.answers import Answer, DroppedError, RefusedError, card_declined, server_error
from wflab.demo.faults import Faults
from wflab.demo.idempotency import Claim, ClaimLostError, Keys
from wflab.demo.ledger import Ledger
from wflab.demo.resources import Call, Endpoint, find_endpoint

__all__ = ["Service"]


class Service:
    """The provider behind its HTTP front, for one lifetime of the server.

    Args:
        ledger: its books.
        faults: what goes wrong.
        clock: gives the current time, aware.
    """

    def __init__(self, ledger: Ledger, faults: Faults, clock: Callable[[], datetime]) -> None:
        self._ledger = ledger
        self._faults = faults
        self._clock = clock
        self._keys = Keys(ledger, session=secrets.token_hex(8))
        ledger.give_up_requests()
        faults.open()

    def close(self) -> None:
        """End the delays under way; what they kept waiting is not done any more."""
        self._faults.close()

    def answer(
        self, method: str, path: str, fields: dict[str, Any], key: str | None, *, refusal: RefusedError | None = None
    ) -> Answer:
        """Answer a request, and write it down. GETs have no use for a key.

        Args:
            method: of HTTP.
            path: without the query.
            fields: of the form or the query.
            key: the idempotency key.
            refusal: the HTTP front has found the request to be no good.

        Raises:
            DroppedError: the connection is to be closed without a reply.
        """
        call = Call(method, path, fields, key if method == "POST" else None, self._clock().astimezone(UTC))
        number, began = self._ledger.received(method, path, call.key, call.now), time.perf_counter()
        outcome, status, charge = "failed", None, None
        try:
            if refusal is not None:
                raise refusal
            outcome, answer = self._handle(call)
            charge = _charge_in(answer.body)
            if answer.status == 200 and method == "POST" and self._faults.take("lose reply", fields):
                outcome = f"{outcome}, reply lost"
                raise DroppedError
            status = answer.status
        except RefusedError as refused:
            outcome, status, answer = "refused", refused.answer.status, refused.answer
        except DroppedError:
            if "reply lost" not in outcome:
                outcome = "dropped"
            raise
        finally:
            duration = timedelta(seconds=time.perf_counter() - began)
            self._ledger.answered(number, outcome, status, charge, duration)
        return answer

    def _handle(self, call: Call) -> tuple[str, Answer]:
        if call.method == "POST" and self._faults.take("drop request", call.fields):
            raise DroppedError
        endpoint = find_endpoint(call.method, call.path)
        endpoint.check(call)
        if call.method != "POST":
            with self._ledger.reading() as books:
                return endpoint.done, Answer(200, endpoint.run(books, call))
        if call.key is None:
            return self._work(endpoint, call, None)
        while True:
            held = self._keys.claim(call.key, [call.method, call.path, call.fields], call.now)
            if isinstance(held, Answer):
                return _misuse(held), held
            try:
                return self._work(endpoint, call, held)
            except ClaimLostError:
                continue  # another server does the work: the key tells how far it has come
            except BaseException:
                self._keys.release(held)
                raise

    def _work(self, endpoint: Endpoint, call: Call, claim: Claim | None) -> tuple[str, Answer]:
        if (delay := self._faults.take("delay", call.fields)) and not self._faults.pause(delay):
            raise DroppedError
        failure = self._faults.take("fail", call.fields)
        if failure and failure.status == 429:
            # Stripe turns a request away before it looks at its key, so this is not remembered.
            if claim is not None:
                self._keys.release(claim)
            return "failed", server_error(429)
        declined = endpoint.takes_money and not failure and self._faults.take("decline", call.fields)
        with self._ledger.transaction() as books:
            if failure:
                outcome, answer = "failed", server_error(failure.status)
            elif declined:
                outcome, answer = "declined", card_declined()
            else:
                outcome, answer = endpoint.done, Answer(200, endpoint.run(books, call))
                if outcome == "charged" and _charge_in(answer.body) is None:
                    outcome = "created"  # a payment intent that waits for its confirmation
            if claim is not None:
                self._keys.settle(books, claim, answer)
        return outcome, answer


def _misuse(held: Answer) -> str:
    if held.is_replayed:
        return "replayed"
    return "409 in flight" if held.status == 409 else "400 other parameters"


def _charge_in(body: dict[str, Any]) -> str | None:
    """The id of the charge that an answer is about, if it is about one."""
    charge = body["id"] if body.get("object") == "charge" else body.get("latest_charge") or body.get("charge")
    return None if charge is None else str(charge)
