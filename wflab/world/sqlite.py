"""The World on SQLite: one file, any number of processes of one machine."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import StaticPool

from wflab.errors import SchemaVersionError, WorldUnavailableError
from wflab.world import schema
from wflab.world.sql import SqlWorld

__all__ = ["SqliteWorld"]

T = TypeVar("T")
_now_s = time.monotonic
_ERRORS = (DatabaseError, sqlite3.DatabaseError)
"""What goes wrong under SQLAlchemy, and straight under the driver."""


class SqliteWorld(SqlWorld):
    """Runs in a SQLite file, in WAL mode: one writer at a time, readers never wait.

    Args:
        url: `sqlite:///path/to/file.db`, or `sqlite://` for a database in memory.
        synchronous: `NORMAL` (a power cut may undo the last commits, a crashed process never does) or `FULL`.
        patience_s: how long a write waits for other programs that have the file locked, in seconds.
    """

    def __init__(
        self, url: str | URL, *, synchronous: Literal["NORMAL", "FULL"] = "NORMAL", patience_s: float = 10.0
    ) -> None:
        parsed = make_url(url)
        in_memory = parsed.database in (None, "", ":memory:")
        self._path = None if in_memory or str(parsed.database).startswith("file:") else Path(str(parsed.database))
        if self._path is not None:
            self._path = self._path.expanduser().absolute()
            parsed = parsed.set(database=str(self._path))
        self.url = parsed.render_as_string()
        self.synchronous = synchronous
        self.patience_s = patience_s
        self._in_memory = in_memory
        self._engine = create_engine(
            parsed,
            # Driver-level transactions are begun by hand, since only `begin immediate` asks for the write lock at once.
            connect_args={"check_same_thread": False, "isolation_level": None, "timeout": 0.25},
            **({"poolclass": StaticPool} if in_memory else {}),
        )
        event.listen(self._engine, "connect", self._configure)
        self._writer: Connection | None = None
        self._is_prepared = False
        self._pid = os.getpid()
        self._parents: Connection | None = None
        self._data_version: int | None = None
        self._lock = threading.RLock()

    def _configure(self, connection: sqlite3.Connection, _record: object) -> None:
        if not self._in_memory:
            connection.execute("pragma journal_mode=wal")
        connection.execute(f"pragma synchronous={self.synchronous}")
        connection.execute("pragma foreign_keys=on")

    async def open(self) -> None:
        """Connect; make the tables in an empty database (see `World.open`)."""
        self.prepare()
        with self._lock, self._translated():
            self._writer = self._writer or self._engine.connect()

    def prepare(self) -> None:
        """Make the tables in an empty database, check those of any other; once, from any thread (see `World.open`)."""
        self._leave_parent()
        with self._lock, self._translated():
            if self._is_prepared:
                return
            if self._path is not None and not self._path.parent.is_dir():
                reason = f"there is no folder {self._path.parent}"
                raise WorldUnavailableError(self.url, reason, "make it, or choose another")
            self._patiently(self._prepare_once)
            self._is_prepared = True

    def _leave_parent(self) -> None:
        """In a forked child: let go of the parent's connections without touching them, for they are its alone."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._lock = threading.RLock()
            self._engine.dispose(close=False)
            self._parents = self._writer
            self._writer, self._data_version = None, None

    def _prepare_once(self) -> None:
        with self._engine.connect() as connection:
            connection.exec_driver_sql("begin immediate")
            try:
                schema.prepare(connection, self.url)
                connection.exec_driver_sql("commit")
            except BaseException:
                _roll_back(connection)
                raise

    async def close(self) -> None:
        """Disconnect. Twice is once."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self._engine.dispose()

    @property
    def sql_engine(self) -> Engine:
        """For ORM sessions at the edges, and for tests: read from it, never write."""
        return self._engine

    async def _write(self, work: Callable[[Connection], T]) -> T:
        with self._lock, self._translated():
            result: T = self._patiently(self._write_once, work)
            return result

    def _write_once(self, work: Callable[[Connection], T]) -> T:
        writer = self._connected()
        driver: Any = writer.connection.driver_connection
        driver.execute("begin immediate")
        try:
            result = work(writer)
            driver.execute("commit")
        except BaseException:
            _roll_back(writer)
            raise
        return result

    async def _read(self, work: Callable[[Connection], T]) -> T:
        # The writer's own connection is the fastest reader: it is free between transactions, and its cache is warm.
        with self._lock, self._translated():
            result: T = self._patiently(work, self._connected())
            return result

    def _connected(self) -> Connection:
        if self._writer is None:
            raise WorldUnavailableError(self.url, "it is closed", "open the Lab again")
        return self._writer

    def _patiently(self, work: Callable[..., T], *arguments: Any) -> T:
        """Try again while other programs have the file locked; SQLite itself waits a quarter second each time."""
        deadline = _now_s() + self.patience_s
        while True:
            try:
                return work(*arguments)
            except _ERRORS as error:
                if not _is_busy(error) or _now_s() > deadline:
                    raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            reason = str(_of_driver(error))
            if "not a database" in reason:
                raise SchemaVersionError(self.url, None, schema.VERSION) from error
            if _is_busy(error):
                instead = "close the program that has it locked"
                raise WorldUnavailableError(self.url, "it is locked by another program", instead) from error
            instead = "free some disk space" if "full" in reason else "check that the file can be read and written"
            raise WorldUnavailableError(self.url, reason, instead) from error

    async def has_changed(self) -> bool:
        """Whether another connection has written since the last call."""
        with self._lock, self._translated():
            if self._writer is None:
                return False
            driver: Any = self._writer.connection.driver_connection
            (version,) = driver.execute("pragma data_version").fetchone()
            changed = bool(version != self._data_version)
            self._data_version = version
            return changed


def _of_driver(error: Exception) -> BaseException | None:
    return error.orig if isinstance(error, DatabaseError) else error


def _is_busy(error: Exception) -> bool:
    code = getattr(_of_driver(error), "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _roll_back(connection: Connection) -> None:
    driver = connection.connection.driver_connection
    if driver is not None and driver.in_transaction:
        connection.exec_driver_sql("rollback")
