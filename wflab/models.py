"""The SQLModel tables: the event log, the views kept with it, and the queue.

Times are whole microseconds since 1970 (UTC). Values are the codec's JSON text.
"""

from __future__ import annotations

import sqlalchemy
from sqlalchemy import BigInteger, Column, Index, MetaData, Text, text
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

__all__ = [
    "OPEN_STATUSES",
    "Definition",
    "Event",
    "Hook",
    "Message",
    "Run",
    "Step",
    "Table",
    "Token",
    "Wait",
    "table_of",
]

OPEN_STATUSES = ("pending", "running")


class Table(SQLModel, registry=registry(metadata=MetaData())):
    """The base of wflab's tables. Its registry is its own: a user's SQLModel class may be called `Run`, too."""


def table_of(model: type[Table]) -> sqlalchemy.Table:
    """The Core table of a model, for hot statements."""
    return model.metadata.tables[str(model.__tablename__)]


def _time(*, nullable: bool = False) -> Column[int]:
    return Column(BigInteger, nullable=nullable)


def _text(*, nullable: bool = False) -> Column[str]:
    return Column(Text, nullable=nullable)


class Run(Table, table=True):
    """One execution of a workflow: the view of its log, and the lease of the worker that advances it."""

    __tablename__ = "runs"
    __table_args__ = (
        Index("ix_runs_created_at", "created_at"),
        # Only open runs are ever looked for by lease: the index stays small however many have ended.
        Index(
            "ix_runs_open",
            "lease_owner",
            "lease_until",
            sqlite_where=text("status in ('pending', 'running')"),
            postgresql_where=text("status in ('pending', 'running')"),
        ),
    )

    run_id: str = Field(primary_key=True)
    workflow: str
    module: str
    definition: str
    status: str = "pending"
    spec_version: int
    seed: str
    input: str = Field(sa_column=_text())
    output: str | None = Field(default=None, sa_column=_text(nullable=True))
    error: str | None = Field(default=None, sa_column=_text(nullable=True))
    error_code: str | None = None
    cancel_reason: str | None = None
    created_at: int = Field(sa_column=_time())
    started_at: int | None = Field(default=None, sa_column=_time(nullable=True))
    ended_at: int | None = Field(default=None, sa_column=_time(nullable=True))
    position: int = 0
    fence: int = 0
    lease_owner: str | None = None
    lease_until: int | None = Field(default=None, sa_column=_time(nullable=True))
    blocked: str | None = None
    start_token: str | None = None
    start_hook_id: str | None = None
    parent_run_id: str | None = Field(default=None, index=True)


class Event(Table, table=True):
    """One entry of a run's log. The log is the truth; every other table is a view of it."""

    __tablename__ = "events"
    __table_args__ = ({"sqlite_with_rowid": False},)

    run_id: str = Field(primary_key=True)
    position: int = Field(primary_key=True)
    type: str
    correlation_id: str | None = None
    data: str = Field(sa_column=_text())
    created_at: int = Field(sa_column=_time())
    seen: int | None = Field(
        default=None,
        description="Set when events of others slipped in before this one: the last position its writer had seen.",
    )


class Step(Table, table=True):
    """One step call of a run, over all its attempts."""

    __tablename__ = "steps"
    __table_args__ = ({"sqlite_with_rowid": False},)

    run_id: str = Field(primary_key=True)
    step_id: str = Field(primary_key=True)
    name: str
    status: str
    attempt: int = 0
    created_at: int = Field(sa_column=_time())
    started_at: int | None = Field(default=None, sa_column=_time(nullable=True))
    ended_at: int | None = Field(default=None, sa_column=_time(nullable=True))
    retry_at: int | None = Field(default=None, sa_column=_time(nullable=True))


class Hook(Table, table=True):
    """One hook of a run, from its registration to its end."""

    __tablename__ = "hooks"
    __table_args__ = (Index("ix_hooks_token", "token"), {"sqlite_with_rowid": False})

    run_id: str = Field(primary_key=True)
    hook_id: str = Field(primary_key=True)
    token: str
    status: str
    is_start: bool = False
    is_webhook: bool = False
    metadata_: str = Field(sa_column=Column("metadata", Text, nullable=False))
    created_at: int = Field(sa_column=_time())
    ended_at: int | None = Field(default=None, sa_column=_time(nullable=True))
    retained_until: int | None = Field(default=None, sa_column=_time(nullable=True))
    received: int = 0
    conflicting_run_id: str | None = None
    force_claimed_from: str | None = None
    force_claimed_by: str | None = None


class Token(Table, table=True):
    """Who holds a hook token. Its unique key decides every race for the token (R18, R26)."""

    __tablename__ = "tokens"
    __table_args__ = ({"sqlite_with_rowid": False},)

    token: str = Field(primary_key=True)
    run_id: str
    hook_id: str
    since: int = Field(sa_column=_time())
    held_until: int | None = Field(
        default=None,
        sa_column=_time(nullable=True),
        description="NULL while its run is open; after that the end of the retention, or the moment of release.",
    )
    refused: int = 0
    refusals: str = Field(default="[]", sa_column=_text())


class Wait(Table, table=True):
    """One durable timer of a run."""

    __tablename__ = "waits"
    __table_args__ = ({"sqlite_with_rowid": False},)

    run_id: str = Field(primary_key=True)
    wait_id: str = Field(primary_key=True)
    status: str
    is_sleep: bool = True
    resume_at: int = Field(sa_column=_time())
    created_at: int = Field(sa_column=_time())
    ended_at: int | None = Field(default=None, sa_column=_time(nullable=True))


class Message(Table, table=True):
    """A run that wants attention from `due_at` on. At most one a run, so the queue can't outgrow the open runs."""

    __tablename__ = "messages"
    __table_args__ = (Index("ix_messages_due_at", "due_at"),)

    run_id: str = Field(primary_key=True)
    due_at: int = Field(sa_column=_time())


class Definition(Table, table=True):
    """The source of one version of a workflow or step, stored when it is first used. Reading it runs nothing."""

    __tablename__ = "definitions"

    hash: str = Field(primary_key=True)
    kind: str
    name: str
    module: str
    source: str = Field(sa_column=_text())
    filename: str
    first_line: int
    created_at: int = Field(sa_column=_time())
