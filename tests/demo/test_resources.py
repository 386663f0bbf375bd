"""Stripe's resources as its client sees them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.demo.helpers import CHARGE, charge, outcomes
from wflab.demo import PaymentProvider

stripe = pytest.importorskip("stripe")


def test_a_charge_is_made_and_can_be_read_back(provider: PaymentProvider) -> None:
    made = charge(provider, metadata={"order": "42", "note": "a&b=ü"}, description="an order")
    assert (made.amount, made.currency, made.paid, made.status) == (1000, "usd", True, "succeeded")
    again = provider.client().v1.charges.retrieve(made.id)
    assert (again.metadata["order"], again.metadata["note"]) == ("42", "a&b=ü")
    assert again.description == "an order"
    assert made.last_response.request_id.startswith("req_")


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of httpx, about how stripe calls it
async def test_the_async_client_works_too(provider: PaymentProvider) -> None:
    charges = provider.client().v1.charges
    provider.lose_next_reply()
    with pytest.raises(stripe.APIConnectionError):
        await charges.create_async({**CHARGE}, {"idempotency_key": "k"})
    made = await charges.create_async({**CHARGE}, {"idempotency_key": "k"})
    assert (await charges.retrieve_async(made.id)).id == made.id
    assert outcomes(provider) == ["charged, reply lost", "replayed", "read"]


def test_charges_are_listed_newest_first_in_pages_and_by_customer(provider: PaymentProvider) -> None:
    made = [charge(provider, customer=f"cus_{number % 2}").id for number in range(7)]
    charges = provider.client().v1.charges
    page = charges.list({"limit": 3})
    assert ([item.id for item in page.data], page.has_more) == (made[:3:-1], True)
    assert [item.id for item in charges.list({"limit": 3}).auto_paging_iter()] == made[::-1]
    assert [item.id for item in charges.list({"customer": "cus_1"}).data] == made[5::-2]
    assert charges.list({"customer": "cus_9"}).data == []


@pytest.mark.parametrize(
    ("query", "param"),
    [
        *(({"limit": limit}, "limit") for limit in (0, 101, "x")),
        ({"starting_after": "ch_none"}, "starting_after"),
        ({"ending_before": "ch_x"}, "ending_before"),
    ],
)
def test_a_page_that_makes_no_sense_is_refused(provider: PaymentProvider, query: Any, param: str) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        provider.client().v1.charges.list(query)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("wrong", "param"),
    [({"amount": amount}, "amount") for amount in (-5, 0, "ten", "1.5", "1_000", "²", "", 10**8, "9" * 5000, {"a": 1})]
    + [({"currency": currency}, "currency") for currency in ("", "us", "dollars", "u$d", {"a": "b"})]
    + [
        ({"customer": {"id": "x"}}, "customer"),
        ({"description": {"a": "b"}}, "description"),
        ({"metadata": "x"}, "metadata"),
    ],
)
def test_a_charge_that_makes_no_sense_is_refused(provider: PaymentProvider, wrong: dict[str, Any], param: str) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        charge(provider, **wrong)
    assert (refused.value.http_status, refused.value.param) == (400, param)
    assert refused.value.json_body["error"]["type"] == "invalid_request_error"
    assert provider.charges() == []
    assert outcomes(provider) == ["refused"]


def test_amount_and_currency_are_required(provider: PaymentProvider) -> None:
    for given, missing in (({"amount": 1}, "currency"), ({"currency": "usd"}, "amount")):
        with pytest.raises(stripe.InvalidRequestError, match=f"Missing required param: {missing}"):
            provider.client().v1.charges.create(given)


def test_what_is_not_there_is_a_404(provider: PaymentProvider) -> None:
    client = provider.client().v1
    for ask in (
        lambda: client.charges.retrieve("ch_none"),
        lambda: client.customers.retrieve(charge(provider).id),
        lambda: client.balance.retrieve(),
        lambda: client.customers.delete("cus_none"),
        lambda: client.payouts.create({"amount": 1, "currency": "usd"}),
    ):
        with pytest.raises(stripe.InvalidRequestError) as missing:
            ask()
        assert missing.value.http_status == 404


def test_customers_are_kept(provider: PaymentProvider) -> None:
    customers = provider.client().v1.customers
    made = customers.create({"name": "Ada", "email": "ada@example.com"})
    again = customers.retrieve(made.id)
    assert (again.name, again.email) == ("Ada", "ada@example.com")
    assert outcomes(provider) == ["created", "read"]


def test_a_charge_is_refunded_in_parts_but_never_more_than_was_paid(provider: PaymentProvider) -> None:
    client, made = provider.client().v1, charge(provider)
    client.refunds.create({"charge": made.id, "amount": 400})
    with pytest.raises(stripe.InvalidRequestError, match="600"):
        client.refunds.create({"charge": made.id, "amount": 601})
    assert not client.charges.retrieve(made.id).refunded
    assert client.refunds.create({"charge": made.id}).amount == 600
    with pytest.raises(stripe.InvalidRequestError) as again:
        client.refunds.create({"charge": made.id})
    assert again.value.code == "charge_already_refunded"
    now = client.charges.retrieve(made.id)
    assert (now.refunded, now.amount_refunded) == (True, 1000)
    with pytest.raises(stripe.InvalidRequestError, match="charge or payment_intent"):
        client.refunds.create({"amount": 1})


def test_a_payment_intent_charges_when_it_is_confirmed_and_only_once(provider: PaymentProvider) -> None:
    intents = provider.client().v1.payment_intents
    intent = intents.create({"amount": 500, "currency": "eur"})
    assert intent.status == "requires_confirmation"
    with pytest.raises(stripe.InvalidRequestError, match="no charge yet"):
        provider.client().v1.refunds.create({"payment_intent": intent.id})
    assert provider.charges() == []
    confirmed = intents.confirm(intent.id)
    assert (confirmed.status, confirmed.amount_received) == ("succeeded", 500)
    with pytest.raises(stripe.InvalidRequestError) as again:
        intents.confirm(intent.id)
    assert again.value.code == "payment_intent_unexpected_state"
    (made,) = provider.charges()
    assert made["id"] == confirmed.latest_charge == intents.retrieve(intent.id).latest_charge
    assert outcomes(provider)[0] == "created"

    at_once = intents.create({"amount": 700, "currency": "eur", "confirm": True})
    assert at_once.status == "succeeded"
    assert provider.client().v1.refunds.create({"payment_intent": at_once.id}).charge == at_once.latest_charge


def test_a_declined_payment_intent_leaves_nothing(provider: PaymentProvider) -> None:
    provider.decline_next()
    with pytest.raises(stripe.CardError):
        provider.client().v1.payment_intents.create({"amount": 500, "currency": "eur", "confirm": True})
    assert provider.charges() == []
