"""What the provider does with a request: Stripe's resources, errors and idempotency rules. Knows nothing of HTTP."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from wflab.demo.faults import Fault, Faults
from wflab.demo.ledger import Answer, Ledger, Request

__all__ = ["DroppedError", "Service", "invalid"]

MAX_KEY_LENGTH = 255


class DroppedError(Exception):
    """The connection is to be closed without a reply."""


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    path: str
    fields: dict[str, Any]
    key: str | None


def invalid(message: str, param: str | None = None, status: int = 400) -> Answer:
    """Stripe's answer to a request that makes no sense."""
    error = {"type": "invalid_request_error", "message": message, **({} if param is None else {"param": param})}
    return Answer(status, {"error": error})


class Service:
    """The provider behind its HTTP front.

    Args:
        ledger: its books.
        faults: what goes wrong.
        clock: gives the current time, aware UTC.
    """

    def __init__(self, ledger: Ledger, faults: Faults, clock: Callable[[], datetime]) -> None:
        self._ledger = ledger
        self._faults = faults
        self._clock = clock
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End the delays that are under way."""
        self._stopping.set()

    def answer(self, method: str, path: str, fields: dict[str, Any], key: str | None) -> Answer:
        """Answer a request.

        Raises:
            DroppedError: the connection is to be closed without a reply.
        """
        began = self._clock()
        call = _Call(method, path, fields, key if method == "POST" else None)
        faults = self._faults.take(fields.get("customer")) if method == "POST" else {}
        outcome, answer = "dropped", None
        try:
            if "drop request" not in faults:
                outcome, answer = self._handle(call, faults)
                if "lose reply" in faults:
                    outcome = f"{outcome}, reply lost"
                    raise DroppedError
                return answer
            raise DroppedError
        finally:
            status = None if answer is None or "reply lost" in outcome else answer.status
            duration = max(self._clock() - began, timedelta(0))
            self._ledger.note(Request(began, method, path, call.key, outcome, status, duration))

    def _handle(self, call: _Call, faults: dict[str, Fault]) -> tuple[str, Answer]:
        if call.key is None:
            answer = self._work(call, faults)
            return _outcome(call, answer), answer
        if len(call.key) > MAX_KEY_LENGTH:
            return "refused", invalid(f"An idempotency key has at most {MAX_KEY_LENGTH} characters.")
        known = self._ledger.claim(call.key, _fingerprint(call), self._clock())
        if known is not None:
            if known.is_replayed:
                return "replayed", known
            return ("key in use" if known.status == 409 else "other parameters"), known
        try:
            answer = self._work(call, faults)
        except BaseException:
            self._ledger.release(call.key)
            raise
        if answer.status == 400:
            # What was refused before anything was tried is not remembered: put right, it may use the key.
            self._ledger.release(call.key)
        else:
            self._ledger.settle(call.key, answer)
        return _outcome(call, answer), answer

    def _work(self, call: _Call, faults: dict[str, Fault]) -> Answer:
        if "delay" in faults:
            self._stopping.wait(faults["delay"].seconds)
        if "fail" in faults:
            return Answer(faults["fail"].status, {"error": {"type": "api_error", "message": "Something went wrong."}})
        parts = [part for part in call.path.split("/") if part][1:]
        kind = parts[0] if parts else ""
        if kind not in _CREATE or len(parts) > 2:
            return invalid(f"Unrecognized request URL ({call.method}: {call.path}).", status=404)
        if call.method == "GET":
            return self._show(kind, parts[1]) if len(parts) == 2 else self._list(kind, call.fields)
        if len(parts) == 2:
            return invalid(f"Unrecognized request URL ({call.method}: {call.path}).", status=404)
        if "decline" in faults and kind == "charges":
            error = {"type": "card_error", "code": "card_declined", "message": "Your card was declined."}
            return Answer(402, {"error": error})
        return _CREATE[kind](self, call)

    def _show(self, kind: str, id_: str) -> Answer:
        found = self._ledger.find(kind, id_)
        return Answer(200, found) if found else invalid(f"No such {kind[:-1]}: {id_!r}", "id", 404)

    def _list(self, kind: str, fields: dict[str, Any]) -> Answer:
        rows = self._ledger.all(kind)[::-1]
        customer = fields.get("customer")
        if customer is not None:
            rows = [row for row in rows if row.get("customer") == customer]
        limit = int(fields.get("limit", 10))
        for row in rows:
            row.pop("idempotency_key")
        return Answer(
            200, {"object": "list", "url": f"/v1/{kind}", "has_more": len(rows) > limit, "data": rows[:limit]}
        )

    def _create_charge(self, call: _Call) -> Answer:
        fields = call.fields
        amount = fields.get("amount", "")
        if not str(amount).isdigit() or int(amount) < 1:
            return invalid("amount must be a positive integer of the smallest currency unit", "amount")
        if not fields.get("currency"):
            return invalid("Missing required param: currency.", "currency")
        body = {
            "id": _new_id("ch"),
            "object": "charge",
            "amount": int(amount),
            "amount_refunded": 0,
            "currency": str(fields["currency"]).lower(),
            "customer": fields.get("customer"),
            "description": fields.get("description"),
            "metadata": fields.get("metadata", {}),
            "captured": True,
            "paid": True,
            "refunded": False,
            "status": "succeeded",
        }
        return self._keep("charges", body, call)

    def _create_customer(self, call: _Call) -> Answer:
        known = {name: call.fields.get(name) for name in ("name", "email", "description")}
        body = {"id": _new_id("cus"), "object": "customer", **known, "metadata": call.fields.get("metadata", {})}
        return self._keep("customers", body, call)

    def _create_refund(self, call: _Call) -> Answer:
        charge = self._ledger.find("charges", str(call.fields.get("charge", "")))
        if charge is None:
            return invalid(f"No such charge: {call.fields.get('charge')!r}", "charge", 404)
        amount = int(call.fields.get("amount", charge["amount"]))
        body = {
            "id": _new_id("re"),
            "object": "refund",
            "amount": amount,
            "charge": charge["id"],
            "currency": charge["currency"],
            "status": "succeeded",
        }
        return self._keep("refunds", body, call)

    def _keep(self, kind: str, body: dict[str, Any], call: _Call) -> Answer:
        now = self._clock()
        body["created"] = int(now.timestamp())
        self._ledger.add(kind, body, now, call.key)
        return Answer(200, body)


_CREATE: dict[str, Callable[[Service, _Call], Answer]] = {
    "charges": Service._create_charge,
    "customers": Service._create_customer,
    "refunds": Service._create_refund,
}


def _new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


def _fingerprint(call: _Call) -> str:
    text = json.dumps([call.method, call.path, call.fields], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _outcome(call: _Call, answer: Answer) -> str:
    if call.method == "GET":
        return "read"
    if answer.status == 200:
        return "charged" if call.path.endswith("/charges") else "done"
    return {402: "declined", 400: "refused", 404: "refused"}.get(answer.status, "failed")
