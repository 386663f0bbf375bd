"""The schema's version: made in an empty database by its migrations, checked in any other."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select

from wflab.errors import SchemaVersionError

__all__ = ["VERSION", "prepare", "upgrade", "version_table"]

VERSION = "0001"
"""The newest revision of `wflab/world/migrations`."""

version_table = Table("wflab_schema", MetaData(), Column("version_num", String(32), primary_key=True))
"""Alembic's version table, under a name that says whose it is."""


def prepare(connection: Connection, url: str) -> None:
    """Make the tables in an empty database; accept one of this version. Call it in a writing transaction.

    Raises:
        SchemaVersionError: the database has another version, or holds tables that are not wflab's.
    """
    found = inspect(connection).get_table_names()
    if version_table.name in found:
        version = connection.execute(select(version_table.c.version_num)).scalar_one_or_none()
        if version != VERSION:
            raise SchemaVersionError(url, version, VERSION)
        return
    if found:
        raise SchemaVersionError(url, None, VERSION)
    upgrade(connection)


def upgrade(connection: Connection) -> None:
    """Bring a database to the newest revision, within the caller's transaction."""
    # Imported late: only a database that is not up to date needs Alembic.
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    script = ScriptDirectory.from_config(config)
    environment = EnvironmentContext(config, script, fn=lambda revision, _: script._upgrade_revs("head", revision))
    with environment:
        environment.configure(connection=connection, version_table=version_table.name)
        environment.run_migrations()
