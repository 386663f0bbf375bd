"""The provider's books in SQLite: what was made (charges, refunds, customers, …), and every request that came in."""

from __future__ import annotations

import json
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

__all__ = ["Books", "Ledger", "Request", "from_micros", "micros"]

_BUSY_S = 10.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_TABLES = """
create table if not exists objects(
    number integer primary key, id text not null unique, kind text not null, idempotency_key text, body text not null);
create index if not exists objects_by_kind on objects(kind, number);
create table if not exists keys(
    key text primary key, claim text not null, session text not null, fingerprint text not null,
    created integer not null, status integer, body text);
create table if not exists requests(
    number integer primary key, received integer not null, method text not null, path text not null,
    idempotency_key text, outcome text, status integer, charge text, duration integer);
"""


def micros(moment: datetime) -> int:
    """Microseconds since 1970: how moments are kept."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(number: int) -> datetime:
    """The moment, in UTC."""
    return _EPOCH + number * _MICROSECOND


@dataclass(frozen=True, slots=True)
class Request:
    """One request that came in.

    Attributes:
        received: when, in UTC.
        method: `POST` or `GET`.
        path: as in `/v1/charges`.
        idempotency_key: of a POST. Stripe's client makes one up when it was given none.
        outcome: what became of it: `charged`, `replayed`, `409 in flight`, `400 other parameters`, `failed`,
            `declined`, `refused`, `dropped`, `created`, `refunded`, `read`, `in flight`, `unanswered` (the server
            ended meanwhile); with `, reply lost` when the work was done and the client doesn't know.
        status: of the reply; `None` when there was none.
        charge: the id of the charge that the request has made or was told of.
        duration: from the request's arrival to its reply; `None` while it is in flight.
    """

    received: datetime
    method: str
    path: str
    idempotency_key: str | None
    outcome: str
    status: int | None
    charge: str | None
    duration: timedelta | None


class Books:
    """The books while they are open for one transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.execute = database.execute

    def add(self, kind: str, body: dict[str, Any], key: str | None) -> dict[str, Any]:
        """Write a new object down; `body` has its `id`."""
        row = (body["id"], kind, key, json.dumps(body))
        self.execute("insert into objects(id, kind, idempotency_key, body) values(?, ?, ?, ?)", row)
        return body

    def change(self, body: dict[str, Any]) -> dict[str, Any]:
        """Write an object's new state down."""
        self.execute("update objects set body = ? where id = ?", (json.dumps(body), body["id"]))
        return body

    def find(self, kind: str, id_: str) -> dict[str, Any] | None:
        """One object, or `None`."""
        row = self.execute("select body from objects where id = ? and kind = ?", (id_, kind)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def newest(self, kind: str, *, customer: str | None, after: str | None, limit: int) -> list[dict[str, Any]]:
        """At most `limit` objects, newest first: those of a customer, and those made before the object `after`."""
        rows = self.execute(
            "select body from objects where kind = :kind"
            " and (:customer is null or json_extract(body, '$.customer') = :customer)"
            " and (:after is null or number < (select number from objects where id = :after))"
            " order by number desc limit :limit",
            {"kind": kind, "customer": customer, "after": after, "limit": limit},
        )
        return [json.loads(body) for (body,) in rows]


class Ledger:
    """The books, in a file or in memory, for any thread. It opens when it is first used, and again after `close()`.

    Args:
        path: the SQLite file; in memory when `None`, and then kept until the ledger is dropped.
    """

    def __init__(self, path: str | Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._database is not None and self._path is not None:
                self._database.close()
                self._database = None

    @contextmanager
    def transaction(self) -> Iterator[Books]:
        """Everything written inside is written together, or nothing is."""
        with self._opened() as database:
            # The write lock is taken first, so what is read inside stays true until the commit.
            database.execute("begin immediate")
            try:
                yield Books(database)
                database.execute("commit")
            except BaseException:
                database.execute("rollback")
                raise

    @contextmanager
    def reading(self) -> Iterator[Books]:
        """The books, for reading."""
        with self._opened() as database:
            yield Books(database)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._database is None:
                self._database = self._open()
            yield self._database

    def _open(self) -> sqlite3.Connection:
        where = ":memory:" if self._path is None else str(self._path)
        database = sqlite3.connect(where, isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
        weakref.finalize(self, database.close)
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = normal")
        database.executescript(_TABLES)
        return database

    def charges(self) -> list[dict[str, Any]]:
        """All charges, oldest first, as Stripe shows them, each with its request's `idempotency_key`."""
        query = "select body, idempotency_key from objects where kind = 'charges' order by number"
        with self.reading() as books:
            rows = books.execute(query).fetchall()
        return [{**json.loads(body), "idempotency_key": key} for body, key in rows]

    # -- requests -------------------------------------------------------------------------------------------

    def received(self, method: str, path: str, key: str | None, now: datetime) -> int:
        """Write down that a request came in. Returns its number."""
        with self.transaction() as books:
            row = (micros(now), method, path, key)
            query = "insert into requests(received, method, path, idempotency_key) values(?, ?, ?, ?) returning number"
            return int(books.execute(query, row).fetchone()[0])

    def answered(self, number: int, outcome: str, status: int | None, charge: str | None, duration: timedelta) -> None:
        """Write down what became of a request."""
        with self.transaction() as books:
            row = (outcome, status, charge, duration // _MICROSECOND, number)
            books.execute("update requests set outcome = ?, status = ?, charge = ?, duration = ? where number = ?", row)

    def give_up_requests(self) -> None:
        """What a server that died has left open will never be answered."""
        with self.transaction() as books:
            books.execute("update requests set outcome = 'unanswered' where outcome is null")

    def requests(self) -> list[Request]:
        """All requests, in the order in which they came in."""
        query = (
            "select received, method, path, idempotency_key, coalesce(outcome, 'in flight'), status, charge, duration"
            " from requests order by number"
        )
        with self.reading() as books:
            rows = books.execute(query).fetchall()
        return [
            Request(
                received=from_micros(received),
                method=method,
                path=path,
                idempotency_key=key,
                outcome=outcome,
                status=status,
                charge=charge,
                duration=None if duration is None else duration * _MICROSECOND,
            )
            for received, method, path, key, outcome, status, charge, duration in rows
        ]
