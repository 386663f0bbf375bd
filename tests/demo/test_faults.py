"""What goes wrong when a lesson asks for it, and only then."""

from __future__ import annotations

import math

import pytest

from tests.demo.helpers import CHARGE, InBackground, charge, outcomes
from wflab.demo import PaymentProvider

stripe = pytest.importorskip("stripe")


def test_a_dropped_request_has_done_nothing(provider: PaymentProvider) -> None:
    provider.drop_next_request()
    with pytest.raises(stripe.APIConnectionError):
        charge(provider, "k")
    assert provider.charges() == []
    charge(provider, "k")
    assert len(provider.charges()) == 1
    assert outcomes(provider) == ["dropped", "charged"]


def test_a_fault_is_met_as_often_as_asked_for(provider: PaymentProvider) -> None:
    provider.lose_next_reply(2)
    for _ in range(2):
        with pytest.raises(stripe.APIConnectionError):
            charge(provider, "k")
    assert charge(provider, "k").paid
    assert outcomes(provider) == ["charged, reply lost", "replayed, reply lost", "replayed"]


def test_a_fault_waits_for_a_request_that_it_can_happen_to(provider: PaymentProvider) -> None:
    made = charge(provider, "k")
    provider.fail_next()
    provider.lose_next_reply()
    provider.decline_next()
    client = provider.client().v1
    assert client.charges.retrieve(made.id).id == made.id
    with pytest.raises(stripe.InvalidRequestError):
        charge(provider, amount=-1)
    with pytest.raises(stripe.APIError):
        charge(provider)  # fails, with a reply
    with pytest.raises(stripe.APIConnectionError):
        client.customers.create({"name": "Ada"})  # takes no money: nothing to decline, but a reply to lose
    with pytest.raises(stripe.CardError):
        charge(provider)
    assert charge(provider).paid


def test_a_replay_uses_up_no_failure(provider: PaymentProvider) -> None:
    charge(provider, "k")
    provider.fail_next()
    charge(provider, "k")
    with pytest.raises(stripe.APIError):
        charge(provider, "new")


def test_a_fault_can_be_for_one_customer_or_one_amount(provider: PaymentProvider) -> None:
    provider.fail_next(customer="cus_2")
    provider.decline_next(amount=4200)
    charge(provider)
    with pytest.raises(stripe.APIError):
        charge(provider, customer="cus_2")
    with pytest.raises(stripe.CardError):
        charge(provider, amount=4200)
    charge(provider, customer="cus_2", amount=4200)


def test_all_goes_well_again_when_told_to_behave(provider: PaymentProvider) -> None:
    provider.fail_next(5)
    provider.lose_next_reply(5)
    provider.hold_next(5)
    provider.behave()
    assert charge(provider).paid


def test_a_delay_takes_its_time(provider: PaymentProvider) -> None:
    provider.delay_next(0.05)
    charge(provider)
    charge(provider)
    slow, quick = (request.duration for request in provider.received_requests())
    assert slow is not None and slow.total_seconds() >= 0.05
    assert quick is not None and quick < slow


def test_a_hold_lasts_until_it_is_released(provider: PaymentProvider) -> None:
    hold = provider.hold_next(2)
    assert repr(hold) == "<Hold not reached>"
    with pytest.raises(TimeoutError, match="no request"):
        hold.wait_until_reached(0.001)
    held = InBackground(charge, provider)
    hold.wait_until_reached()
    assert repr(hold) == "<Hold holding>"
    assert provider.charges() == []
    hold.release()
    assert repr(hold) == "<Hold released>"
    assert held.result().paid
    assert charge(provider).paid, "the second would have been held, but is let through"


def test_the_clients_own_retries_send_the_same_key_so_a_lost_reply_charges_once(
    provider: PaymentProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stripe._http_client.HTTPClient, "_sleep_time_seconds", lambda *_: 0.0)
    provider.lose_next_reply()
    provider.client(max_network_retries=2).v1.charges.create({**CHARGE})
    assert outcomes(provider) == ["charged, reply lost", "replayed"]

    provider.fail_next()
    with pytest.raises(stripe.APIError):
        provider.client(max_network_retries=2).v1.charges.create({**CHARGE})
    assert outcomes(provider)[2:] == ["failed"], "it is told that its key would only get the same answer again"


@pytest.mark.parametrize("n", [0, -1])
def test_a_fault_that_would_never_happen_is_refused(provider: PaymentProvider, n: int) -> None:
    for ask in (provider.fail_next, provider.lose_next_reply, provider.drop_next_request, provider.decline_next):
        with pytest.raises(ValueError, match="never"):
            ask(n)


def test_numbers_that_make_no_sense_are_refused(provider: PaymentProvider) -> None:
    for seconds in (-1, math.nan, math.inf):
        with pytest.raises(ValueError, match="seconds"):
            provider.delay_next(seconds)
    for status in (200, 404, 600):
        with pytest.raises(ValueError, match="status"):
            provider.fail_next(status=status)
