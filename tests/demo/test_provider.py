"""The payment provider of the lessons, through Stripe's own client."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import needs
from wflab.demo import PaymentProvider

try:
    import stripe
except ImportError:
    stripe = None  # type: ignore[assignment]

CHARGE = {"amount": 1000, "currency": "usd", "customer": "cus_1"}


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def provider(clock: Clock) -> Iterator[PaymentProvider]:
    needs(stripe is not None, "the stripe client: pip install 'wflab[lab]'")
    with PaymentProvider(clock=clock) as open_:
        yield open_


def charge(provider: PaymentProvider, key: str | None = None, **more: Any) -> Any:
    return provider.client().v1.charges.create({**CHARGE, **more}, {"idempotency_key": key} if key else {})


def test_a_charge_is_made_and_can_be_read_back(provider: PaymentProvider) -> None:
    made = charge(provider, metadata={"order": "42"}, description="an order")
    assert (made.amount, made.currency, made.paid, made.status) == (1000, "usd", True, "succeeded")
    client = provider.client().v1
    assert client.charges.retrieve(made.id).metadata["order"] == "42"
    assert [item.id for item in client.charges.list({"customer": "cus_1"}).data] == [made.id]
    assert client.charges.list({"customer": "cus_2"}).data == []
    customer = client.customers.create({"name": "Ada"})
    assert client.customers.retrieve(customer.id).name == "Ada"
    assert client.refunds.create({"charge": made.id}).amount == 1000


def test_without_a_key_a_lost_reply_charges_twice(provider: PaymentProvider) -> None:
    provider.lose_next_reply()
    with pytest.raises(stripe.APIConnectionError):
        charge(provider)
    charge(provider)
    assert len(provider.charges()) == 2


def test_with_a_key_a_lost_reply_charges_once(provider: PaymentProvider) -> None:
    provider.lose_next_reply()
    with pytest.raises(stripe.APIConnectionError):
        charge(provider, "key-1")
    again = charge(provider, "key-1")
    assert [row["id"] for row in provider.charges()] == [again.id]
    assert again.last_response.headers["Idempotent-Replayed"] == "true"
    assert list(provider.requests()["outcome"]) == ["charged, reply lost", "replayed"]


def test_a_dropped_request_has_done_nothing(provider: PaymentProvider) -> None:
    provider.drop_next_request()
    with pytest.raises(stripe.APIConnectionError):
        charge(provider, "k")
    assert provider.charges() == []
    charge(provider, "k")
    assert len(provider.charges()) == 1


def test_a_server_error_is_remembered_with_its_key(provider: PaymentProvider) -> None:
    provider.fail_next()
    for _ in range(2):
        with pytest.raises(stripe.APIError):
            charge(provider, "k")
    charge(provider, "another")
    assert len(provider.charges()) == 1


def test_a_declined_card_is_remembered_with_its_key(provider: PaymentProvider) -> None:
    provider.decline_next()
    for _ in range(2):
        with pytest.raises(stripe.CardError) as declined:
            charge(provider, "k")
        assert declined.value.code == "card_declined"
    assert provider.charges() == []


def test_the_same_key_with_other_parameters_is_an_error(provider: PaymentProvider) -> None:
    charge(provider, "k")
    with pytest.raises(stripe.IdempotencyError):
        charge(provider, "k", amount=2000)
    with pytest.raises(stripe.IdempotencyError):
        provider.client().v1.customers.create({"name": "Ada"}, {"idempotency_key": "k"})
    assert len(provider.charges()) == 1


def test_the_same_key_in_flight_is_a_409(provider: PaymentProvider) -> None:
    provider.delay_next(30)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(charge, provider, "k")
        while provider._faults._faults:
            time.sleep(0.001)  # until the first request has met its fault
        while True:
            try:
                charge(provider, "k")
            except stripe.StripeError as error:
                assert error.http_status == 409
                assert error.json_body["error"]["code"] == "idempotency_key_in_use"
                break
            raise AssertionError("the second request was not refused")
        provider.stop()
        ended = slow.exception(timeout=20)
        assert ended is None or isinstance(ended, stripe.APIConnectionError)


def test_a_key_is_forgotten_after_24_hours(provider: PaymentProvider, clock: Clock) -> None:
    first = charge(provider, "k")
    clock.now += timedelta(hours=23, minutes=59)
    assert charge(provider, "k").id == first.id
    clock.now += timedelta(minutes=1)
    assert charge(provider, "k").id != first.id


@pytest.mark.parametrize("wrong", [{"amount": -5}, {"amount": 0}, {"amount": "ten"}, {"currency": ""}])
def test_a_request_that_makes_no_sense_is_refused_and_its_key_stays_free(
    provider: PaymentProvider, wrong: dict[str, Any]
) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        charge(provider, "k", **wrong)
    assert refused.value.param == next(iter(wrong))
    assert charge(provider, "k").amount == 1000


def test_a_key_has_at_most_255_characters(provider: PaymentProvider) -> None:
    with pytest.raises(stripe.InvalidRequestError):
        charge(provider, "k" * 256)
    charge(provider, "k" * 255)


def test_what_is_not_there_is_a_404(provider: PaymentProvider) -> None:
    with pytest.raises(stripe.InvalidRequestError) as missing:
        provider.client().v1.charges.retrieve("ch_none")
    assert missing.value.http_status == 404
    with pytest.raises(stripe.InvalidRequestError):
        provider.client().v1.balance.retrieve()


def test_of_many_requests_with_one_key_one_charges(provider: PaymentProvider) -> None:
    together = threading.Barrier(30)

    def call(_number: int) -> str:
        together.wait(20)
        try:
            return str(charge(provider, "k").id)
        except stripe.StripeError as error:
            return str(error.http_status)

    with ThreadPoolExecutor(30) as pool:
        outcomes = set(pool.map(call, range(30)))
    assert len(provider.charges()) == 1
    assert outcomes <= {provider.charges()[0]["id"], "409"}


def test_a_fault_can_be_for_one_customer(provider: PaymentProvider) -> None:
    provider.fail_next(customer="cus_2")
    charge(provider)
    with pytest.raises(stripe.APIError):
        charge(provider, customer="cus_2")
    provider.fail_next(5)
    provider.behave()
    charge(provider, customer="cus_2")


def test_the_books_survive_a_restart_and_a_key_in_flight_does_not(tmp_path: Path) -> None:
    needs(stripe is not None, "the stripe client: pip install 'wflab[lab]'")
    books = tmp_path / "books.db"
    with PaymentProvider(books) as provider:
        first = charge(provider, "k")
        assert provider._ledger is not None
        assert provider._ledger.claim("stuck", "x", datetime.now(UTC)) is None
        provider.stop()
        provider.stop()
    with PaymentProvider(books) as again:
        assert charge(again, "k").id == first.id
        charge(again, "stuck")
        assert len(again.charges()) == 2


def test_the_books_are_frames_with_proper_types(provider: PaymentProvider) -> None:
    assert list(provider.ledger()["amount"]) == []
    charge(provider, "k")
    ledger, requests = provider.ledger(), provider.requests()
    assert list(ledger["amount"]) == ["10.00 USD"]
    assert list(ledger["idempotency_key"]) == ["k"]
    assert str(ledger["created"].dtype).endswith("UTC]")
    assert str(ledger["status"].dtype) == "category"
    assert str(requests["duration"].dtype).startswith("timedelta64")


def test_a_closed_provider_says_so() -> None:
    closed = PaymentProvider()
    assert "closed" in repr(closed)
    for ask in (lambda: closed.base_url, closed.charges):
        with pytest.raises(RuntimeError, match="start"):
            ask()
    with pytest.raises(ValueError, match="never"):
        closed.fail_next(0)
