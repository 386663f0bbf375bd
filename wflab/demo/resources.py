"""Stripe's resources, as far as the lessons need them: what each endpoint checks, and what it makes."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wflab.demo.answers import RefusedError
from wflab.demo.ledger import Books

__all__ = ["Call", "Endpoint", "find_endpoint"]

Fields = dict[str, Any]
MAX_AMOUNT = 99_999_999
MAX_LIMIT = 100
_TEXTS = ("customer", "description", "name", "email", "charge", "payment_intent", "confirm", "starting_after")


@dataclass(frozen=True, slots=True)
class Call:
    """A request: `fields` are the form's or the query's, `key` the idempotency key of a POST."""

    method: str
    path: str
    fields: Fields
    key: str | None
    now: datetime


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One thing that can be asked for.

    Attributes:
        check: raises `RefusedError` for fields that make no sense, before anything is done.
        run: does it, in a transaction, and gives the body of the answer. It may raise `RefusedError`, too.
        done: what it is called in the list of requests.
        takes_money: a card can be declined.
    """

    check: Callable[[Call], None]
    run: Callable[[Books, Call], Fields]
    done: str
    takes_money: bool = False


def find_endpoint(method: str, path: str) -> Endpoint:
    """The endpoint of a request. Raises `RefusedError` (404) when there is none."""
    match (method, *path.strip("/").split("/")):
        case ("POST", "v1", "charges"):
            return Endpoint(_check_money, _create_charge, "charged", takes_money=True)
        case ("POST", "v1", "payment_intents"):
            return Endpoint(_check_money, _create_intent, "charged", takes_money=True)
        case ("POST", "v1", "payment_intents", id_, "confirm"):
            return Endpoint(_check_text, lambda books, call: _confirm(books, call, id_), "charged", takes_money=True)
        case ("POST", "v1", "customers"):
            return Endpoint(_check_text, _create_customer, "created")
        case ("POST", "v1", "refunds"):
            return Endpoint(_check_refund, _create_refund, "refunded")
        case ("GET", "v1", "charges" | "customers" | "refunds" | "payment_intents" as kind):
            return Endpoint(_check_page, lambda books, call: _list(books, kind, call), "read")
        case ("GET", "v1", "charges" | "customers" | "refunds" | "payment_intents" as kind, id_):
            return Endpoint(_check_text, lambda books, call: _get(books, kind, id_), "read")
        case _:
            raise RefusedError(f"Unrecognized request URL ({method}: {path}).", status=404)


# -- what is checked ----------------------------------------------------------------------------------------


def _check_text(call: Call) -> None:
    for name in _TEXTS:
        if isinstance(call.fields.get(name), dict):
            raise RefusedError(f"Invalid string: {name} is given as a hash.", param=name)
    if not isinstance(call.fields.get("metadata") or {}, dict):
        raise RefusedError("Invalid object: metadata takes keys, as in metadata[order]=42.", param="metadata")


def _check_money(call: Call) -> None:
    _check_text(call)
    for name in ("amount", "currency"):
        if not call.fields.get(name):
            raise RefusedError(f"Missing required param: {name}.", param=name, code="parameter_missing")
    _amount(call)
    currency = call.fields["currency"]
    if not (isinstance(currency, str) and len(currency) == 3 and currency.isascii() and currency.isalpha()):
        raise RefusedError(f"Invalid currency: {currency}. It has three letters, as in usd.", param="currency")


def _check_refund(call: Call) -> None:
    _check_text(call)
    if not (call.fields.get("charge") or call.fields.get("payment_intent")):
        message = "One of the following params should be provided: charge or payment_intent."
        raise RefusedError(message, param="charge", code="parameter_missing")
    if "amount" in call.fields:
        _amount(call)


def _check_page(call: Call) -> None:
    _check_text(call)
    if "ending_before" in call.fields:
        raise RefusedError("ending_before isn't supported here: use starting_after.", param="ending_before")
    if not 1 <= _integer(call, "limit", 10) <= MAX_LIMIT:
        raise RefusedError(f"limit is 1 to {MAX_LIMIT}.", param="limit")


def _amount(call: Call) -> int:
    amount = _integer(call, "amount", 0)
    if amount < 1:
        message = "Invalid positive integer: amount is in the smallest unit of the currency, and at least 1."
        raise RefusedError(message, param="amount", code="parameter_invalid_integer")
    if amount > MAX_AMOUNT:
        raise RefusedError(f"amount is at most {MAX_AMOUNT}.", param="amount", code="amount_too_large")
    return amount


def _integer(call: Call, name: str, default: int) -> int:
    text = call.fields.get(name, str(default))
    # int() would also take "1_000", " 7 " and digits of other scripts.
    if not (isinstance(text, str) and text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20):
        raise RefusedError(f"Invalid integer: {text}", param=name, code="parameter_invalid_integer")
    return int(text)


# -- what is done -------------------------------------------------------------------------------------------


def _get(books: Books, kind: str, id_: str, param: str = "id") -> Fields:
    found = books.find(kind, id_)
    if found is None:
        what = kind[:-1].replace("_", " ")
        raise RefusedError(f"No such {what}: {id_!r}", param=param, code="resource_missing", status=404)
    return found


def _list(books: Books, kind: str, call: Call) -> Fields:
    limit, after = _integer(call, "limit", 10), call.fields.get("starting_after")
    if after is not None:
        _get(books, kind, str(after), "starting_after")
    rows = books.newest(kind, customer=call.fields.get("customer"), after=after, limit=limit + 1)
    return {"object": "list", "url": f"/v1/{kind}", "has_more": len(rows) > limit, "data": rows[:limit]}


def _new(books: Books, call: Call, kind: str, prefix: str, **fields: Any) -> Fields:
    head = {"id": f"{prefix}_{secrets.token_hex(12)}", "object": kind.removesuffix("s")}
    body = {**head, "created": int(call.now.timestamp()), "livemode": False, **fields}
    return books.add(kind, body, call.key)


def _charge(books: Books, call: Call, source: Fields, intent: str | None = None) -> Fields:
    return _new(
        books,
        call,
        "charges",
        "ch",
        amount=int(source["amount"]),
        amount_refunded=0,
        captured=True,
        currency=str(source["currency"]).lower(),
        customer=source.get("customer"),
        description=source.get("description"),
        metadata=source.get("metadata") or {},
        paid=True,
        payment_intent=intent,
        refunded=False,
        status="succeeded",
    )


def _create_charge(books: Books, call: Call) -> Fields:
    return _charge(books, call, call.fields)


def _create_intent(books: Books, call: Call) -> Fields:
    intent = _new(
        books,
        call,
        "payment_intents",
        "pi",
        amount=_amount(call),
        amount_received=0,
        currency=call.fields["currency"].lower(),
        customer=call.fields.get("customer"),
        description=call.fields.get("description"),
        latest_charge=None,
        metadata=call.fields.get("metadata") or {},
        status="requires_confirmation",
    )
    return _confirm(books, call, intent["id"]) if call.fields.get("confirm") == "true" else intent


def _confirm(books: Books, call: Call, id_: str) -> Fields:
    intent = _get(books, "payment_intents", id_, "intent")
    if intent["status"] == "succeeded":
        message = "This PaymentIntent could not be confirmed: it has already succeeded."
        raise RefusedError(message, code="payment_intent_unexpected_state")
    charge = _charge(books, call, intent, id_)
    return books.change(
        {**intent, "status": "succeeded", "amount_received": intent["amount"], "latest_charge": charge["id"]}
    )


def _create_customer(books: Books, call: Call) -> Fields:
    known = {name: call.fields.get(name) for name in ("name", "email", "description")}
    return _new(books, call, "customers", "cus", **known, metadata=call.fields.get("metadata") or {})


def _create_refund(books: Books, call: Call) -> Fields:
    id_ = call.fields.get("charge")
    if id_ is None:
        intent = _get(books, "payment_intents", str(call.fields["payment_intent"]), "payment_intent")
        if intent["latest_charge"] is None:
            raise RefusedError(f"{intent['id']} has no charge yet: it can't be refunded.", param="payment_intent")
        id_ = intent["latest_charge"]
    charge = _get(books, "charges", id_, "charge")
    left = charge["amount"] - charge["amount_refunded"]
    amount = _integer(call, "amount", left)
    if left == 0:
        message = f"Charge {charge['id']} has already been refunded."
        raise RefusedError(message, code="charge_already_refunded")
    if amount > left:
        raise RefusedError(
            f"Refund amount ({amount}) is greater than what is left of the charge ({left}).", param="amount"
        )
    books.change({**charge, "amount_refunded": charge["amount_refunded"] + amount, "refunded": amount == left})
    more = {"charge": charge["id"], "currency": charge["currency"], "status": "succeeded"}
    return _new(books, call, "refunds", "re", amount=amount, **more)
