"""The first schema.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlmodel import AutoString

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "definitions",
        sa.Column("hash", AutoString(), nullable=False),
        sa.Column("kind", AutoString(), nullable=False),
        sa.Column("name", AutoString(), nullable=False),
        sa.Column("module", AutoString(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("filename", AutoString(), nullable=False),
        sa.Column("first_line", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_table(
        "events",
        sa.Column("run_id", AutoString(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("type", AutoString(), nullable=False),
        sa.Column("correlation_id", AutoString(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("seen", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "position"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "hooks",
        sa.Column("run_id", AutoString(), nullable=False),
        sa.Column("hook_id", AutoString(), nullable=False),
        sa.Column("token", AutoString(), nullable=False),
        sa.Column("status", AutoString(), nullable=False),
        sa.Column("is_start", sa.Boolean(), nullable=False),
        sa.Column("is_webhook", sa.Boolean(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("retained_until", sa.BigInteger(), nullable=True),
        sa.Column("received", sa.Integer(), nullable=False),
        sa.Column("conflicting_run_id", AutoString(), nullable=True),
        sa.Column("force_claimed_from", AutoString(), nullable=True),
        sa.Column("force_claimed_by", AutoString(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "hook_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_hooks_token", "hooks", ["token"])
    op.create_table(
        "messages",
        sa.Column("run_id", AutoString(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_index("ix_messages_due_at", "messages", ["due_at"])
    op.create_table(
        "runs",
        sa.Column("run_id", AutoString(), nullable=False),
        sa.Column("workflow", AutoString(), nullable=False),
        sa.Column("module", AutoString(), nullable=False),
        sa.Column("definition", AutoString(), nullable=False),
        sa.Column("status", AutoString(), nullable=False),
        sa.Column("spec_version", sa.Integer(), nullable=False),
        sa.Column("seed", AutoString(), nullable=False),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("output", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("error_code", AutoString(), nullable=True),
        sa.Column("cancel_reason", AutoString(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("lease_owner", AutoString(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=True),
        sa.Column("blocked", AutoString(), nullable=True),
        sa.Column("start_token", AutoString(), nullable=True),
        sa.Column("start_hook_id", AutoString(), nullable=True),
        sa.Column("parent_run_id", AutoString(), nullable=True),
        sa.PrimaryKeyConstraint("run_id"),
    )
    is_open = sa.text("status in ('pending', 'running')")
    op.create_index("ix_runs_created_at", "runs", ["created_at"])
    op.create_index(
        "ix_runs_open", "runs", ["lease_owner", "lease_until"], sqlite_where=is_open, postgresql_where=is_open
    )
    op.create_index("ix_runs_parent_run_id", "runs", ["parent_run_id"])
    op.create_table(
        "steps",
        sa.Column("run_id", AutoString(), nullable=False),
        sa.Column("step_id", AutoString(), nullable=False),
        sa.Column("name", AutoString(), nullable=False),
        sa.Column("status", AutoString(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("retry_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "step_id"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tokens",
        sa.Column("token", AutoString(), nullable=False),
        sa.Column("run_id", AutoString(), nullable=False),
        sa.Column("hook_id", AutoString(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("held_until", sa.BigInteger(), nullable=True),
        sa.Column("refused", sa.Integer(), nullable=False),
        sa.Column("refusals", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("token"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "waits",
        sa.Column("run_id", AutoString(), nullable=False),
        sa.Column("wait_id", AutoString(), nullable=False),
        sa.Column("status", AutoString(), nullable=False),
        sa.Column("is_sleep", sa.Boolean(), nullable=False),
        sa.Column("resume_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "wait_id"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    for name in ("waits", "tokens", "steps", "runs", "messages", "hooks", "events", "definitions"):
        op.drop_table(name)
