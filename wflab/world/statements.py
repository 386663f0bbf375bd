"""Core statements compiled once: the speed of hand-written SQL without writing any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Dialect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.expression import ClauseElement

__all__ = ["DialectInsert", "Prepared"]

DialectInsert = Callable[..., Any]
"""A database's own `insert`, the one that knows `on conflict`."""


class Prepared:
    """A Core statement with its SQL text kept, run past SQLAlchemy's per-call compilation and type processing.

    Only for columns whose Python and database values are the same: text, integers, booleans.
    Parameters are given by name, as the statement's `bindparam`s. Calling it gives SQLAlchemy's result; what every
    step does goes through `many` and `first`, which cost what the driver costs.
    """

    __slots__ = ("_build", "_compiled")

    def __init__(self, statement: ClauseElement) -> None:
        self._build: Callable[[DialectInsert], ClauseElement] = lambda _insert: statement
        self._compiled: dict[str, tuple[str, Sequence[str] | None, dict[str, Any]]] = {}

    @classmethod
    def for_dialect(cls, build: Callable[[DialectInsert], ClauseElement]) -> Prepared:
        """A statement that needs the `insert` of the database it runs on."""
        prepared = cls.__new__(cls)
        prepared._build = build
        prepared._compiled = {}
        return prepared

    def _for(self, dialect: Dialect) -> tuple[str, Sequence[str] | None, dict[str, Any]]:
        key = dialect.name + dialect.driver
        found = self._compiled.get(key)
        if found is None:
            insert = postgresql.insert if dialect.name == "postgresql" else sqlite.insert
            compiled = self._build(insert).compile(dialect=dialect)
            fixed = {name: value for name, value in compiled.params.items() if value is not None}
            found = (str(compiled), getattr(compiled, "positiontup", None), fixed)
            self._compiled[key] = found
        return found

    def __call__(self, connection: Connection, **parameters: Any) -> CursorResult[Any]:
        """Run it once."""
        sql, names, fixed = self._for(connection.dialect)
        values = {**fixed, **parameters} if fixed else parameters
        if names is None:
            return connection.exec_driver_sql(sql, values)
        return connection.exec_driver_sql(sql, tuple([values[name] for name in names]))

    def many(self, connection: Connection, rows: list[dict[str, Any]]) -> int:
        """Run it for each row, straight through the driver; gives the number of rows it changed in all."""
        sql, names, fixed = self._for(connection.dialect)
        if fixed:
            rows = [{**fixed, **row} for row in rows]
        values: list[Any] = rows if names is None else [tuple([row[name] for name in names]) for row in rows]
        cursor = _driver(connection).cursor()
        if len(values) == 1:
            cursor.execute(sql, values[0])
        else:
            cursor.executemany(sql, values)
        return int(cursor.rowcount)

    def first(self, connection: Connection, **parameters: Any) -> Any:
        """Run it, straight through the driver; gives the first row as a tuple, or `None`."""
        sql, names, fixed = self._for(connection.dialect)
        values = {**fixed, **parameters} if fixed else parameters
        cursor = _driver(connection).cursor()
        cursor.execute(sql, values if names is None else tuple([values[name] for name in names]))
        row = cursor.fetchone()
        cursor.close()
        return row


def _driver(connection: Connection) -> Any:
    """The driver's own connection, under SQLAlchemy's: it is in the same transaction."""
    return connection.connection.driver_connection
