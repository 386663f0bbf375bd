"""The schema's version: made in an empty database, checked in any other."""

from __future__ import annotations

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select

from wflab import models
from wflab.errors import SchemaVersionError

__all__ = ["VERSION", "prepare", "version_table"]

VERSION = "0001"
"""The newest revision of `wflab/world/migrations`."""

version_table = Table("wflab_schema", MetaData(), Column("version_num", String(32), primary_key=True))
"""Alembic's version table, under a name of our own: a database may hold others' migrations too."""


def prepare(connection: Connection, url: str) -> None:
    """Make the tables in an empty database; accept one of this version.

    Raises:
        SchemaVersionError: the database has another version, or tables that are not wflab's.
    """
    found = inspect(connection).get_table_names()
    if version_table.name in found:
        version = connection.execute(select(version_table.c.version_num)).scalar_one_or_none()
        if version != VERSION:
            raise SchemaVersionError(url, version, VERSION)
        return
    if found:
        raise SchemaVersionError(url, None, VERSION)
    models.Table.metadata.create_all(connection)
    version_table.create(connection)
    connection.execute(version_table.insert().values(version_num=VERSION))
