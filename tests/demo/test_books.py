"""The books: they last, and are good to look at."""

from __future__ import annotations

import sys
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from tests.conftest import needs
from tests.demo.helpers import Clock, InBackground, charge, outcomes
from wflab.demo import PaymentProvider
from wflab.demo.frames import money

stripe = pytest.importorskip("stripe")


@pytest.fixture
def pandas_is_there() -> None:
    try:
        import pandas  # noqa: F401
    except ImportError:
        needs(False, "pandas")


def test_the_books_survive_a_restart(tmp_path: Path) -> None:
    books = tmp_path / "books.db"
    with PaymentProvider(books) as provider:
        first = charge(provider, "k")
    with PaymentProvider(books) as again:
        assert charge(again, "k").id == first.id
        assert outcomes(again) == ["charged", "replayed"]
        charge(again, "new")
    assert len(again.charges()) == 2, "and can be read when the provider is closed"


def test_books_in_memory_last_as_long_as_their_provider() -> None:
    provider = PaymentProvider()
    with provider:
        first = charge(provider, "k")
    assert len(provider.charges()) == 1
    with provider:
        assert charge(provider, "k").id == first.id


def test_a_request_that_a_dead_server_left_open_is_never_answered(tmp_path: Path) -> None:
    with PaymentProvider(tmp_path / "books.db") as dead:
        hold = dead.hold_next()
        cut_off = InBackground(charge, dead)
        hold.wait_until_reached()
        with PaymentProvider(tmp_path / "books.db") as next_:
            assert outcomes(next_) == ["unanswered"]
        hold.release()
        cut_off.result()


@pytest.mark.usefixtures("pandas_is_there")
def test_the_ledger_is_a_frame_with_proper_types(provider: PaymentProvider, clock: Clock) -> None:
    empty = provider.ledger()
    made = charge(provider, "k", description="an order")
    part = charge(provider, "l", currency="jpy", amount=12345)
    provider.client().v1.refunds.create({"charge": part.id, "amount": 1})
    ledger = provider.ledger()
    columns = ["id", "customer", "paid", "amount", "currency", "status", "description", "created", "idempotency_key"]
    assert list(ledger.columns) == list(empty.columns) == columns
    types = ["string", "string", "string", "int64", "category", "category", "string", "datetime64[us, UTC]", "string"]
    for frame in (ledger, empty):
        assert [str(dtype) for dtype in frame.dtypes] == types
    assert ledger.iloc[0].to_dict() == {
        "id": made.id,
        "customer": "cus_1",
        "paid": "$10.00",
        "amount": 1000,
        "currency": "usd",
        "status": "succeeded",
        "description": "an order",
        "created": clock.now,
        "idempotency_key": "k",
    }
    assert list(ledger["paid"]) == ["$10.00", "¥12,345"]
    assert list(ledger["status"]) == ["succeeded", "partly refunded"]


@pytest.mark.usefixtures("pandas_is_there")
def test_the_requests_are_a_frame_with_proper_types(provider: PaymentProvider) -> None:
    empty = provider.requests()
    provider.lose_next_reply()
    with pytest.raises(stripe.APIConnectionError):
        charge(provider, "k")
    made = charge(provider, "k")
    requests = provider.requests()
    columns = ["received", "request", "outcome", "status", "charge", "duration", "idempotency_key"]
    for frame in (requests, empty):
        assert list(frame.columns) == columns
        types = ["datetime64[us, UTC]", "string", "category", "Int64", "string", "timedelta64[us]", "string"]
        assert [str(dtype) for dtype in frame.dtypes] == types
    assert list(requests["outcome"]) == ["charged, reply lost", "replayed"]
    assert list(requests["charge"]) == [made.id, made.id]
    assert list(requests["status"].isna()) == [True, False]


def test_without_pandas_the_books_are_plain_lists(provider: PaymentProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    made = charge(provider, "k")
    (row,) = provider.charges()
    assert (row["id"], row["amount"], row["idempotency_key"]) == (made.id, 1000, "k")
    (request,) = provider.received_requests()
    assert (request.method, request.path, request.idempotency_key) == ("POST", "/v1/charges", "k")
    assert (request.outcome, request.status, request.charge) == ("charged", 200, made.id)
    assert request.received.tzinfo is UTC
    assert request.duration is not None and timedelta(0) < request.duration < timedelta(seconds=20)
    for frame in (provider.ledger, provider.requests):
        with pytest.raises(ImportError, match="pip install"):
            frame()


def test_money_is_written_as_people_write_it() -> None:
    written = [money(1000, "usd"), money(5, "eur"), money(123456789, "gbp"), money(500, "jpy"), money(500, "chf")]
    assert written == ["$10.00", "€0.05", "£1,234,567.89", "¥500", "5.00 CHF"]
