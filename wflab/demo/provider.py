"""The provider as a lesson holds it: started, asked for its books, told what to do wrong."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from wflab.demo.faults import Fault, Faults
from wflab.demo.ledger import Ledger
from wflab.demo.server import Server
from wflab.demo.service import Service

if TYPE_CHECKING:
    import pandas
    import stripe

__all__ = ["PaymentProvider"]


class PaymentProvider:
    """A payment provider on this machine, for Stripe's own client; a context manager.

    It follows Stripe's idempotency rules: a key is remembered for 24 hours with its first answer, also an error's;
    with other parameters it is an error; while its request is in flight it is a 409.

    Args:
        path: the SQLite file of its books; in memory when not given.
        port: any free one when 0.
        clock: gives the current time, aware UTC.
    """

    def __init__(
        self, path: str | Path | None = None, *, port: int = 0, clock: Callable[[], datetime] | None = None
    ) -> None:
        self._path, self._port = path, port
        self._clock = clock or (lambda: datetime.now(UTC))
        self._faults = Faults()
        self._ledger: Ledger | None = None
        self._server: Server | None = None

    def start(self) -> PaymentProvider:
        """Open for business. Twice is once."""
        if self._server is None:
            self._ledger = Ledger(self._path, session=secrets.token_hex(8))
            self._server = Server(Service(self._ledger, self._faults, self._clock), self._port)
            threading.Thread(target=self._server.serve_forever, name="payment provider", daemon=True).start()
        return self

    def stop(self) -> None:
        """Close; connections end, delays end at once. Twice is once."""
        server, self._server = self._server, None
        if server is not None:
            server.service.stop()
            server.shutdown()
            server.end_connections()
            server.server_close()

    def __enter__(self) -> PaymentProvider:
        return self.start()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """Where it listens: `http://127.0.0.1:…`. Raises `RuntimeError` before `start()`."""
        if self._server is None:
            raise RuntimeError("the payment provider is closed: call start() first")
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def client(self) -> stripe.StripeClient:
        """Stripe's official client, talking to this provider. It does not retry by itself: that is for the lesson."""
        import stripe

        return stripe.StripeClient("sk_test_lesson", base_addresses={"api": self.base_url}, max_network_retries=0)

    # -- what goes wrong ------------------------------------------------------------------------------------

    def lose_next_reply(self, n: int = 1, *, customer: str | None = None) -> None:
        """Do the next `n` requests' work, but close the connection without a reply."""
        self._faults.add(Fault("lose reply", n, customer=customer))

    def drop_next_request(self, n: int = 1, *, customer: str | None = None) -> None:
        """Close the connection of the next `n` requests before anything is done."""
        self._faults.add(Fault("drop request", n, customer=customer))

    def fail_next(self, n: int = 1, *, status: int = 500, customer: str | None = None) -> None:
        """Answer the next `n` requests with a server error; nothing is done."""
        self._faults.add(Fault("fail", n, status=status, customer=customer))

    def decline_next(self, n: int = 1, *, customer: str | None = None) -> None:
        """Decline the card of the next `n` charges."""
        self._faults.add(Fault("decline", n, customer=customer))

    def delay_next(self, seconds: float, n: int = 1, *, customer: str | None = None) -> None:
        """Take `seconds` before the work of the next `n` requests."""
        self._faults.add(Fault("delay", n, seconds=seconds, customer=customer))

    def behave(self) -> None:
        """Let all go well again."""
        self._faults.clear()

    # -- the books ------------------------------------------------------------------------------------------

    def charges(self) -> list[dict[str, Any]]:
        """Every charge made, oldest first."""
        return self._books().all("charges")

    def ledger(self) -> pandas.DataFrame:
        """Every charge made, as a DataFrame: one row a charge."""
        pd = _pandas()
        rows = self.charges()
        return pd.DataFrame(  # type: ignore[no-any-return]
            {
                "charge": [row["id"] for row in rows],
                "customer": [row["customer"] for row in rows],
                "amount": [f"{row['amount'] / 100:,.2f} {row['currency'].upper()}" for row in rows],
                "cents": pd.array([row["amount"] for row in rows], dtype="int64"),
                "status": pd.Categorical([row["status"] for row in rows]),
                "created": pd.to_datetime([row["created"] for row in rows], unit="s", utc=True),
                "idempotency_key": [row["idempotency_key"] for row in rows],
            }
        )

    def requests(self) -> pandas.DataFrame:
        """Every request that came in, as a DataFrame: one row a request, with what became of it."""
        pd = _pandas()
        rows = self._books().requests()
        return pd.DataFrame(  # type: ignore[no-any-return]
            {
                "received": pd.to_datetime([row.received for row in rows], utc=True),
                "request": [f"{row.method} {row.path}" for row in rows],
                "outcome": pd.Categorical([row.outcome for row in rows]),
                "status": pd.array([row.status for row in rows], dtype="Int64"),
                "duration": pd.to_timedelta([row.duration for row in rows]),
                "idempotency_key": [row.idempotency_key for row in rows],
            }
        )

    def _books(self) -> Ledger:
        if self._ledger is None:
            raise RuntimeError("the payment provider has no books yet: call start() first")
        return self._ledger

    def __repr__(self) -> str:
        where = "closed" if self._server is None else self.base_url
        return f"<PaymentProvider {where}>"


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as missing:
        raise ImportError(
            "the books as DataFrames need pandas: pip install 'wflab[lab]'; or see charges()"
        ) from missing
    return pandas
