"""The provider as a lesson holds it: started, told what to do wrong, asked for its books."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from wflab.demo.faults import Fault, Faults, Hold
from wflab.demo.frames import charges_frame, requests_frame
from wflab.demo.ledger import Ledger, Request
from wflab.demo.server import Server
from wflab.demo.service import Service

if TYPE_CHECKING:
    import pandas
    import stripe

__all__ = ["PaymentProvider"]


class PaymentProvider:
    """A payment provider on this machine, for Stripe's own client; a context manager.

    It follows Stripe's idempotency rules: a key is remembered for 24 hours with its first answer, also that of a
    failure; with other parameters it is an error; while its first request is in flight it is a 409. A request that
    was refused for what it says (400, 404), or turned away (429), leaves its key free.

    What goes wrong is asked for beforehand and met by the next requests that it can happen to: POSTs only, and of these
    only those of a `customer` or an `amount` when one is given.

    Args:
        path: the SQLite file of its books, which may be there already; in memory when not given.
        port: any free one when 0.
        clock: gives the current time, aware; the system's by default.
    """

    def __init__(
        self, path: str | Path | None = None, *, port: int = 0, clock: Callable[[], datetime] | None = None
    ) -> None:
        self._port = port
        self._clock = clock or (lambda: datetime.now(UTC))
        self._faults = Faults()
        self._ledger = Ledger(path)
        self._server: Server | None = None
        self._has_books = False
        self._lock = threading.Lock()

    def start(self) -> PaymentProvider:
        """Open for business, with the books as they were. Twice is once.

        Raises:
            OSError: the port is taken.
        """
        with self._lock:
            if self._server is None:
                server = Server(Service(self._ledger, self._faults, self._clock), self._port)
                server.start()
                self._server, self._has_books = server, True
        return self

    def stop(self) -> None:
        """Close. Connections end, and what is in flight is not done any more. The books can still be read.

        Twice is once.
        """
        with self._lock:
            if self._server is not None:
                self._server.stop()
                self._server = None
                self._ledger.close()

    def __enter__(self) -> PaymentProvider:
        return self.start()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """Where it listens: `http://127.0.0.1:…`. Raises `RuntimeError` while it is closed."""
        server = self._server
        if server is None:
            raise RuntimeError("the payment provider is closed: call start() first")
        return f"http://127.0.0.1:{server.server_port}"

    def client(self, *, max_network_retries: int = 0) -> stripe.StripeClient:
        """Stripe's official client, talking to this provider; its `…_async` methods work, too, where httpx is there.

        A client of its own for every caller: one that is shared between event loops would mix up their connections.

        Args:
            max_network_retries: how often the client itself repeats a request. Not at all by default: repeating is
                the lesson's part.
        """
        import stripe

        return stripe.StripeClient(
            "sk_test_lesson", base_addresses={"api": self.base_url}, max_network_retries=max_network_retries
        )

    # -- what goes wrong ------------------------------------------------------------------------------------

    def lose_next_reply(self, n: int = 1, *, customer: str | None = None, amount: int | None = None) -> None:
        """Do the next `n` requests' work, but close the connection without a reply."""
        self._faults.add(Fault("lose reply", n, customer, amount))

    def drop_next_request(self, n: int = 1, *, customer: str | None = None, amount: int | None = None) -> None:
        """Close the connection of the next `n` requests before anything is done."""
        self._faults.add(Fault("drop request", n, customer, amount))

    def fail_next(
        self, n: int = 1, *, status: int = 500, customer: str | None = None, amount: int | None = None
    ) -> None:
        """Answer the next `n` requests with an error of the server (500 to 599), or as too many (429). Nothing is done.

        As at Stripe, an error of the server is remembered with the request's key, and "too many" is not.
        """
        self._faults.add(Fault("fail", n, customer, amount, status=status))

    def decline_next(self, n: int = 1, *, customer: str | None = None, amount: int | None = None) -> None:
        """Decline the card of the next `n` charges; remembered with the request's key."""
        self._faults.add(Fault("decline", n, customer, amount))

    def delay_next(self, seconds: float, n: int = 1, *, customer: str | None = None, amount: int | None = None) -> None:
        """Take `seconds` over the next `n` requests: their keys are in flight meanwhile."""
        self._faults.add(Fault("delay", n, customer, amount, seconds=seconds))

    def hold_next(self, n: int = 1, *, customer: str | None = None, amount: int | None = None) -> Hold:
        """Keep the next `n` requests in flight until `release()` is called on what this returns."""
        return self._faults.add(Fault("delay", n, customer, amount)).hold

    def behave(self) -> None:
        """Let all go well again. What is held already stays so until it is released."""
        self._faults.clear()

    # -- the books ------------------------------------------------------------------------------------------

    def ledger(self) -> pandas.DataFrame:
        """Every charge made, oldest first, as a DataFrame. `amount` is in cents, or the currency's smallest unit."""
        return charges_frame(self.charges())

    def requests(self) -> pandas.DataFrame:
        """Every request that came in, and what became of it, as a DataFrame."""
        return requests_frame(self.received_requests())

    def charges(self) -> list[dict[str, Any]]:
        """Every charge made, oldest first, as Stripe shows it, and with the `idempotency_key` that made it."""
        return self._books().charges()

    def received_requests(self) -> list[Request]:
        """Every request that came in, in order."""
        return self._books().requests()

    def _books(self) -> Ledger:
        if not self._has_books:
            raise RuntimeError("the payment provider has no books yet: call start() first")
        return self._ledger

    def __repr__(self) -> str:
        where = "closed" if self._server is None else self.base_url
        return f"<PaymentProvider {where}>"
