"""The server: what comes over the wire, and how it closes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import wflab.demo.service
from tests.demo.helpers import InBackground, charge, outcomes
from wflab.demo import PaymentProvider
from wflab.demo.answers import RefusedError
from wflab.demo.server import parse_form

stripe = pytest.importorskip("stripe")


def send(provider: PaymentProvider, request: bytes) -> tuple[int, dict[str, object]]:
    """Bytes on a connection of their own. Returns the reply's status and body."""
    host, port = provider.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        return reply.status, json.loads(reply.read())


HEAD = b"POST /v1/charges HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk_test_1\r\n"


def test_forms_are_nested_as_stripes_clients_write_them() -> None:
    form = "amount=5&metadata[a]=1&metadata[b%5D=&expand[]=x&expand[]=y&items[0][price]=p%26q&empty="
    assert parse_form(form) == {
        "amount": "5",
        "metadata": {"a": "1", "b": ""},
        "expand": {"0": "x", "1": "y"},
        "items": {"0": {"price": "p&q"}},
        "empty": "",
    }
    for wrong in ("a=1&a[b]=2", "a[b]=2&a=1", "a[b]=1&a[b][c]=2", "a" + "[b]" * 100_000 + "=1"):
        with pytest.raises(RefusedError):
            parse_form(wrong)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /v1/charges HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 401),
        (HEAD + b"Content-Length: x\r\n\r\n", 411),
        (HEAD + b"Content-Length: -1\r\n\r\n", 411),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (HEAD + b"Content-Length: 99999999999\r\n\r\n", 413),
        (HEAD + b"Content-Length: 1\r\n\r\n\xff", 400),
        (HEAD + b"Content-Length: 0\r\nIdempotency-Key:\r\n\r\n", 400),
        (HEAD + b"\r\n", 400),
        (HEAD.replace(b"charges", b"char%00ges/..") + b"\r\n", 404),
    ],
)
def test_what_is_no_proper_request_gets_stripes_error_and_a_line_in_the_books(
    provider: PaymentProvider, request_: bytes, status: int
) -> None:
    got, body = send(provider, request_)
    assert got == status
    assert isinstance(body["error"], dict)
    assert body["error"]["type"] == "invalid_request_error"
    assert outcomes(provider) == ["refused"]
    assert charge(provider).paid


def test_a_fault_of_the_provider_itself_is_a_500_and_goes_to_the_log(
    provider: PaymentProvider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(wflab.demo.service, "find_endpoint", broken)
        with pytest.raises(stripe.APIError):
            charge(provider, "k")
    assert "ZeroDivisionError" in caplog.text
    assert outcomes(provider) == ["failed"]
    assert charge(provider, "k").paid


def test_lost_connections_print_nothing(
    provider: PaymentProvider, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    host, port = provider.base_url.removeprefix("http://").split(":")
    for part in (b"", b"POST /v1/cha", HEAD + b"Content-Length: 100\r\n\r\namount="):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(part)
    provider.lose_next_reply()
    provider.drop_next_request(customer="cus_2")
    for customer in ("cus_1", "cus_2"):
        with pytest.raises(stripe.APIConnectionError):
            charge(provider, customer=customer)
    provider.stop()
    assert tuple(capfd.readouterr()) == ("", "")
    assert caplog.text.count("wflab") == 0


def test_a_request_that_ends_half_way_charges_nothing(provider: PaymentProvider) -> None:
    host, port = provider.base_url.removeprefix("http://").split(":")
    whole = b"amount=1000&currency=usd"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n" + whole)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert provider.charges() == []


def test_closing_ends_every_connection_and_every_thread() -> None:
    before = set(threading.enumerate())
    provider = PaymentProvider().start()
    host, port = provider.base_url.removeprefix("http://").split(":")
    idle = [socket.create_connection((host, int(port)), timeout=10) for _ in range(5)]
    client = provider.client()
    client.v1.charges.list()  # its connection stays open
    hold = provider.hold_next()
    held = InBackground(charge, provider)
    hold.wait_until_reached()
    provider.stop()
    assert isinstance(held.error(), stripe.APIConnectionError)
    for connection in idle:
        with connection:
            assert connection.recv(1) == b""
    with pytest.raises(stripe.APIConnectionError):
        client.v1.charges.list()
    assert provider.charges() == []
    assert outcomes(provider) == ["read", "dropped"]
    left = {thread for thread in set(threading.enumerate()) - before if "ThreadPool" not in thread.name}
    assert left == set()


def test_starting_and_stopping_twice_is_once() -> None:
    provider = PaymentProvider()
    provider.stop()
    assert provider.start() is provider.start()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: provider.stop(), range(4)))
    provider.stop()
    with provider:
        assert charge(provider).paid


def test_a_closed_provider_says_so() -> None:
    closed = PaymentProvider()
    assert repr(closed) == "<PaymentProvider closed>"
    for ask in (lambda: closed.base_url, closed.client, closed.charges, closed.received_requests):
        with pytest.raises(RuntimeError, match="start"):
            ask()


def test_a_port_that_is_taken_is_an_error_and_another_can_be_chosen(provider: PaymentProvider) -> None:
    taken = int(provider.base_url.rpartition(":")[2])
    second = PaymentProvider(port=taken)
    with pytest.raises(OSError):
        second.start()
    provider.stop()
    with second:
        assert second.base_url.endswith(f":{taken}")
        assert repr(second) == f"<PaymentProvider {second.base_url}>"


@pytest.mark.skipif(os.name == "nt", reason="a signal as Ctrl-C sends it")
def test_it_runs_in_the_foreground_until_ctrl_c(tmp_path: Path) -> None:
    books = tmp_path / "books.db"
    command = [sys.executable, "-m", "wflab.demo", "0", "--books", str(books)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=root) as program:
        assert program.stdout is not None
        url = program.stdout.readline().split("listens on ")[1].split(". ")[0]
        client = stripe.StripeClient("sk_test_1", base_addresses={"api": url}, max_network_retries=0)
        made = client.v1.charges.create({"amount": 1, "currency": "usd"}, {"idempotency_key": "k"})
        program.send_signal(signal.SIGINT)
        assert program.stdout.read() == "closed\n"
        assert program.wait(20) == 0
    with PaymentProvider(books) as provider:
        assert [row["id"] for row in provider.charges()] == [made.id]


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL")
def test_a_server_that_is_killed_leaves_no_key_stuck(tmp_path: Path) -> None:
    books = tmp_path / "books.db"
    program = (
        "import sys, threading; from wflab.demo import PaymentProvider\n"
        "provider = PaymentProvider(sys.argv[1]).start(); hold = provider.hold_next()\n"
        "print(provider.base_url, flush=True)\n"
        "hold.wait_until_reached(); print('held', flush=True); threading.Event().wait()\n"
    )
    command = [sys.executable, "-c", program, str(books)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as killed:
        assert killed.stdout is not None
        url = killed.stdout.readline().strip()
        client = stripe.StripeClient("sk_test_1", base_addresses={"api": url}, max_network_retries=0)
        body = {"amount": 1000, "currency": "usd", "customer": "cus_1"}
        call = InBackground(client.v1.charges.create, body, {"idempotency_key": "k"})
        assert killed.stdout.readline() == "held\n"
        killed.kill()
        assert isinstance(call.error(), stripe.APIConnectionError)
    with PaymentProvider(books) as provider:
        charge(provider, "k")
        assert len(provider.charges()) == 1
        assert outcomes(provider) == ["unanswered", "charged"]
