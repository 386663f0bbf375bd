"""Stripe's rules for idempotency keys, through Stripe's own client."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.demo.helpers import CHARGE, Clock, InBackground, charge, outcomes
from wflab.demo import PaymentProvider

stripe = pytest.importorskip("stripe")


def test_without_a_key_of_ones_own_a_lost_reply_charges_twice(provider: PaymentProvider) -> None:
    provider.lose_next_reply()
    with pytest.raises(stripe.APIConnectionError):
        charge(provider)
    charge(provider)
    assert len(provider.charges()) == 2
    assert outcomes(provider) == ["charged, reply lost", "charged"]


def test_with_a_key_a_lost_reply_charges_once(provider: PaymentProvider) -> None:
    provider.lose_next_reply()
    with pytest.raises(stripe.APIConnectionError):
        charge(provider, "key-1")
    again = charge(provider, "key-1")
    assert [row["id"] for row in provider.charges()] == [again.id]
    assert again.last_response.headers["Idempotent-Replayed"] == "true"
    assert outcomes(provider) == ["charged, reply lost", "replayed"]


def test_a_replay_is_the_first_answer_to_the_letter_and_the_first_answer_is_no_replay(
    provider: PaymentProvider, clock: Clock
) -> None:
    first = charge(provider, "k", metadata={"order": "42"})
    clock.now += timedelta(hours=1)
    second = charge(provider, "k", metadata={"order": "42"})
    assert "Idempotent-Replayed" not in first.last_response.headers
    assert second.last_response.body == first.last_response.body
    assert second.last_response.code == first.last_response.code == 200


def test_a_server_error_is_remembered_with_its_key(provider: PaymentProvider) -> None:
    provider.fail_next(status=503)
    for _ in range(2):
        with pytest.raises(stripe.APIError) as failed:
            charge(provider, "k")
        assert failed.value.http_status == 503
    assert failed.value.headers["Idempotent-Replayed"] == "true"
    assert provider.charges() == []
    charge(provider, "another")
    assert len(provider.charges()) == 1
    assert outcomes(provider) == ["failed", "replayed", "charged"]


def test_a_declined_card_is_remembered_with_its_key(provider: PaymentProvider) -> None:
    provider.decline_next()
    for _ in range(2):
        with pytest.raises(stripe.CardError) as declined:
            charge(provider, "k")
        assert declined.value.code == "card_declined"
    assert provider.charges() == []
    assert outcomes(provider) == ["declined", "replayed"]


def test_being_turned_away_as_too_many_is_not_remembered(provider: PaymentProvider) -> None:
    provider.fail_next(status=429)
    with pytest.raises(stripe.RateLimitError):
        charge(provider, "k")
    assert charge(provider, "k").paid


def test_the_same_key_with_other_parameters_is_an_error_and_leaves_the_first_answer(provider: PaymentProvider) -> None:
    first = charge(provider, "k")
    for other in ({"amount": 2000}, {"customer": "cus_2"}, {"description": "new"}, {"metadata": {"a": "b"}}):
        with pytest.raises(stripe.IdempotencyError) as misused:
            charge(provider, "k", **other)
        assert misused.value.http_status == 400
    assert charge(provider, "k").id == first.id
    assert len(provider.charges()) == 1
    assert outcomes(provider) == ["charged", *["400 other parameters"] * 4, "replayed"]


def test_the_same_key_at_another_endpoint_is_an_error(provider: PaymentProvider) -> None:
    charge(provider, "k")
    for create in (provider.client().v1.payment_intents.create, provider.client().v1.customers.create):
        with pytest.raises(stripe.IdempotencyError):
            create({**CHARGE}, {"idempotency_key": "k"})


def test_the_order_of_the_parameters_does_not_matter(provider: PaymentProvider) -> None:
    charges = provider.client().v1.charges
    first = charges.create({"amount": 5, "currency": "usd"}, {"idempotency_key": "k"})
    assert charges.create({"currency": "usd", "amount": 5}, {"idempotency_key": "k"}).id == first.id


def test_the_same_key_in_flight_is_a_409_and_may_be_tried_again(provider: PaymentProvider) -> None:
    hold = provider.hold_next()
    slow = InBackground(charge, provider, "k")
    hold.wait_until_reached()
    with pytest.raises(stripe.StripeError) as refused:
        charge(provider, "k")
    assert refused.value.http_status == 409
    assert refused.value.json_body["error"]["code"] == "idempotency_key_in_use"
    with pytest.raises(stripe.IdempotencyError):
        charge(provider, "k", amount=2000)
    assert outcomes(provider) == ["in flight", "409 in flight", "400 other parameters"]
    other = charge(provider, "another key isn't held up")

    hold.release()
    made = slow.result()
    assert charge(provider, "k").id == made.id
    assert {row["id"] for row in provider.charges()} == {made.id, other.id}


def test_a_key_is_forgotten_after_24_hours(provider: PaymentProvider, clock: Clock) -> None:
    first = charge(provider, "k")
    clock.now += timedelta(hours=24) - timedelta(microseconds=1)
    assert charge(provider, "k").id == first.id
    clock.now += timedelta(microseconds=1)
    second = charge(provider, "k", amount=2000)
    assert second.id != first.id
    assert charge(provider, "k", amount=2000).id == second.id, "and the new answer is remembered"


def test_a_request_in_flight_for_longer_than_24_hours_keeps_its_key(provider: PaymentProvider, clock: Clock) -> None:
    hold = provider.hold_next()
    slow = InBackground(charge, provider, "k")
    hold.wait_until_reached()
    clock.now += timedelta(hours=25)
    with pytest.raises(stripe.StripeError) as refused:
        charge(provider, "k")
    assert refused.value.http_status == 409
    hold.release()
    slow.result()
    assert len(provider.charges()) == 1


@pytest.mark.parametrize("wrong", [{"amount": -5}, {"amount": 0}, {"amount": "ten"}, {"currency": ""}])
def test_a_request_that_makes_no_sense_leaves_its_key_free(provider: PaymentProvider, wrong: dict[str, Any]) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        charge(provider, "k", **wrong)
    assert refused.value.param == next(iter(wrong))
    assert charge(provider, "k").amount == 1000


def test_what_is_refused_in_the_middle_of_the_work_leaves_its_key_free(provider: PaymentProvider) -> None:
    refunds = provider.client().v1.refunds
    with pytest.raises(stripe.InvalidRequestError) as missing:
        refunds.create({"charge": "ch_none"}, {"idempotency_key": "k"})
    assert missing.value.code == "resource_missing"
    made = charge(provider)
    assert refunds.create({"charge": made.id}, {"idempotency_key": "k"}).amount == 1000


def test_a_key_has_at_most_255_characters(provider: PaymentProvider) -> None:
    with pytest.raises(stripe.InvalidRequestError, match="255"):
        charge(provider, "k" * 256)
    charge(provider, "k" * 255)


def test_reading_ignores_keys(provider: PaymentProvider) -> None:
    made = charge(provider, "k")
    client = provider.client().v1
    assert client.charges.retrieve(made.id, options={"idempotency_key": "k"}).id == made.id
    assert client.charges.list(options={"idempotency_key": "k"}).data[0].id == made.id


def test_of_50_requests_at_once_with_one_key_one_charges(provider: PaymentProvider) -> None:
    together = threading.Barrier(50)

    def call(_number: int) -> str:
        client = provider.client()
        together.wait(20)
        try:
            return str(client.v1.charges.create({**CHARGE}, {"idempotency_key": "k"}).id)
        except stripe.StripeError as error:
            return str(error.http_status)

    with ThreadPoolExecutor(50) as pool:
        answers = set(pool.map(call, range(50)))
    (made,) = provider.charges()
    assert answers <= {made["id"], "409"}
    assert outcomes(provider).count("charged") == 1
    assert len(outcomes(provider)) == 50


def test_50_requests_at_once_with_keys_of_their_own_all_charge(provider: PaymentProvider) -> None:
    with ThreadPoolExecutor(50) as pool:
        made = {item.id for item in pool.map(lambda number: charge(provider, f"k{number}"), range(50))}
    assert len(made) == 50
    assert made == {row["id"] for row in provider.charges()}


def test_a_key_in_flight_at_a_server_that_died_is_free_and_the_dead_one_can_not_charge_any_more(tmp_path: Path) -> None:
    books = tmp_path / "books.db"
    with PaymentProvider(books) as dead:
        # As good as dead: for the next server on these books, another lifetime's mark is one left behind.
        hold = dead.hold_next()
        cut_off = InBackground(charge, dead, "k")
        hold.wait_until_reached()
        with PaymentProvider(books) as next_:
            made = charge(next_, "k")
            hold.release()
            assert cut_off.result().id == made.id, "it comes back to life, and finds its key's work done"
            assert [row["id"] for row in next_.charges()] == [made.id]


def test_closing_gives_up_what_is_in_flight_and_frees_its_key(tmp_path: Path) -> None:
    books = tmp_path / "books.db"
    provider = PaymentProvider(books).start()
    hold = provider.hold_next()
    held = InBackground(charge, provider, "k")
    hold.wait_until_reached()
    provider.stop()
    assert isinstance(held.error(), stripe.APIConnectionError)
    assert provider.charges() == []
    with PaymentProvider(books) as again:
        charge(again, "k", amount=2000)
        assert len(again.charges()) == 1
