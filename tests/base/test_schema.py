"""The schema that the migrations make is the one that the models say."""

from __future__ import annotations

import sqlite3
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect

from wflab import Lab, models
from wflab.world import schema


def options() -> dict[str, Any]:
    return {"version_table": schema.version_table.name, "target_metadata": models.Table.metadata}


def test_the_migrations_make_what_the_models_say(tmp_path: Any) -> None:
    migrated = create_engine(f"sqlite:///{tmp_path / 'migrated.db'}")
    made = create_engine(f"sqlite:///{tmp_path / 'made.db'}")
    models.Table.metadata.create_all(made)
    with migrated.begin() as connection:
        schema.upgrade(connection)
        context = MigrationContext.configure(connection, opts=options())
        assert compare_metadata(context, models.Table.metadata) == []
    with sqlite3.connect(tmp_path / "migrated.db") as one, sqlite3.connect(tmp_path / "made.db") as other:
        query = "select name, sql from sqlite_master where sql is not null and name <> 'wflab_schema' order by name"
        assert [_words(row) for row in one.execute(query)] == [_words(row) for row in other.execute(query)]
    one.close()
    other.close()
    migrated.dispose()
    made.dispose()


def _words(row: tuple[str, str]) -> list[str]:
    return " ".join(row).split()


def test_the_version_is_the_newest_revision() -> None:
    from pathlib import Path

    script = ScriptDirectory(str(Path(schema.__file__).parent / "migrations"))
    assert script.get_current_head() == schema.VERSION


async def test_opening_a_database_again_changes_nothing(url: str) -> None:
    async with Lab(url, inline=True) as lab:
        first = inspect(lab.world.sql_engine).get_table_names()
    async with Lab(url, inline=True) as lab:
        assert inspect(lab.world.sql_engine).get_table_names() == first
        assert schema.version_table.name in first
