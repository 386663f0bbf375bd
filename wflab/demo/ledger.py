"""The provider's books in SQLite: charges, idempotency keys, and every request that came in.

A key's unique row decides every race for it: two requests may both find it free, but only one can write it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

__all__ = ["KEY_LIFETIME", "Answer", "Ledger", "Request"]

KEY_LIFETIME = timedelta(hours=24)

_TABLES = """
create table if not exists objects(
    id text primary key, kind text not null, created text not null, body text not null, idempotency_key text);
create index if not exists objects_kind on objects(kind, created);
create table if not exists keys(
    key text primary key, fingerprint text not null, created text not null, session text not null,
    status integer, body text);
create table if not exists requests(
    number integer primary key, received text not null, method text not null, path text not null,
    idempotency_key text, outcome text not null, status integer, microseconds integer not null);
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request is answered with. `is_replayed`: it is the answer that its key got before."""

    status: int
    body: dict[str, Any]
    is_replayed: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One request that came in, for the lesson's table."""

    received: datetime
    method: str
    path: str
    idempotency_key: str | None
    outcome: str
    status: int | None
    duration: timedelta


class Ledger:
    """The books, in a file or in memory. Every method is one transaction, from any thread.

    Args:
        path: the SQLite file; in memory when `None`.
        session: names this server: a key that a dead one has left in flight is free again.
    """

    def __init__(self, path: str | Path | None, session: str) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._database = sqlite3.connect(
            ":memory:" if path is None else str(path), isolation_level=None, check_same_thread=False, timeout=10
        )
        self._database.execute("pragma journal_mode=wal")
        self._database.executescript(_TABLES)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("begin immediate")
            try:
                yield self._database
            except BaseException:
                self._database.execute("rollback")
                raise
            self._database.execute("commit")

    # -- objects ------------------------------------------------------------------------------------------

    def add(self, kind: str, body: dict[str, Any], now: datetime, key: str | None) -> None:
        """Write an object down; `body` has its `id`."""
        with self._transaction() as database:
            row = (body["id"], kind, now.isoformat(), json.dumps(body), key)
            database.execute("insert into objects values(?, ?, ?, ?, ?)", row)

    def find(self, kind: str, id_: str) -> dict[str, Any] | None:
        """One object."""
        with self._transaction() as database:
            row = database.execute("select body from objects where id = ? and kind = ?", (id_, kind)).fetchone()
        return None if row is None else dict(json.loads(row[0]))

    def all(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind, oldest first, each with the key of its request as `idempotency_key`."""
        with self._transaction() as database:
            query = "select body, idempotency_key from objects where kind = ? order by rowid"
            rows = database.execute(query, (kind,)).fetchall()
        return [{**json.loads(body), "idempotency_key": key} for body, key in rows]

    # -- idempotency keys -----------------------------------------------------------------------------------

    def claim(self, key: str, fingerprint: str, now: datetime) -> Answer | None:
        """Take a key for a request, or give the answer that its state calls for: replay, conflict or misuse."""
        expired = (now - KEY_LIFETIME).isoformat()
        with self._transaction() as database:
            database.execute(
                "delete from keys where key = ? and (created <= ? or (status is null and session <> ?))",
                (key, expired, self._session),
            )
            claimed = database.execute(
                "insert into keys(key, fingerprint, created, session) values(?, ?, ?, ?) on conflict do nothing",
                (key, fingerprint, now.isoformat(), self._session),
            )
            if claimed.rowcount == 1:
                return None
            query = "select fingerprint, status, body from keys where key = ?"
            known, status, body = database.execute(query, (key,)).fetchone()
        if known != fingerprint:
            text = f"Keys for idempotent requests can only be used with the same parameters. Try another than {key!r}."
            return Answer(400, _error("idempotency_error", text))
        if status is None:
            text = f"There is currently another in-progress request using the idempotency key {key!r}."
            return Answer(409, _error("idempotency_error", text, code="idempotency_key_in_use"))
        return Answer(status, json.loads(body), is_replayed=True)

    def settle(self, key: str, answer: Answer) -> None:
        """Remember a key's answer."""
        with self._transaction() as database:
            row = (answer.status, json.dumps(answer.body), key)
            database.execute("update keys set status = ?, body = ? where key = ?", row)

    def release(self, key: str) -> None:
        """Forget a key whose request came to nothing: it may be repeated as if it were new."""
        with self._transaction() as database:
            database.execute("delete from keys where key = ? and status is null", (key,))

    # -- requests -------------------------------------------------------------------------------------------

    def note(self, request: Request) -> None:
        """Write a request down."""
        row = (
            request.received.isoformat(),
            request.method,
            request.path,
            request.idempotency_key,
            request.outcome,
            request.status,
            request.duration // timedelta(microseconds=1),
        )
        with self._transaction() as database:
            database.execute(
                "insert into requests(received, method, path, idempotency_key, outcome, status, microseconds)"
                " values(?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def requests(self) -> list[Request]:
        """All requests, in the order in which they were answered."""
        with self._transaction() as database:
            rows = database.execute("select * from requests order by number").fetchall()
        return [
            Request(datetime.fromisoformat(at), method, path, key, outcome, status, timedelta(microseconds=us))
            for _, at, method, path, key, outcome, status, us in rows
        ]


def _error(type_: str, message: str, *, code: str | None = None) -> dict[str, Any]:
    return {"error": {"type": type_, "message": message, **({} if code is None else {"code": code})}}
