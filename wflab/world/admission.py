"""Admitting a run and its start hook in one transaction, or refusing it (R26)."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, bindparam, select

from wflab import codec
from wflab.models import Event, Run, table_of
from wflab.world import tokens
from wflab.world.appending import insert_hook, store_sources
from wflab.world.protocol import Admission, Candidate, Lease, NewEvent, RunRecord, hook_created_data
from wflab.world.statements import Prepared

__all__ = ["admit", "find_run"]

run, event = table_of(Run), table_of(Event)

_RUN = Prepared(select(*(run.c[item.name] for item in fields(RunRecord))).where(run.c.run_id == bindparam("run_id")))
_INSERT_RUN = Prepared(run.insert())
_INSERT_EVENT = Prepared(event.insert())


def admit(connection: Connection, candidate: Candidate) -> Admission:
    """Make a run and its start hook, or neither; note a refusal on the token (R26)."""
    run_id, wish, now = candidate.run_id, candidate.claim, candidate.at
    known = find_run(connection, run_id)
    if known is not None:
        # The same candidate again, after a lost reply or a crash of the step that started it: it is in (R31).
        is_mine = known.ended_at is None and known.lease_owner is not None and known.lease_owner == candidate.worker
        return Admission(lease=Lease(run_id, candidate.worker or "", known.fence, known.position) if is_mine else None)
    if wish is not None:
        outcome = tokens.claim(connection, run_id, wish, now=now)
        if outcome.owner is not None:
            owner = find_run(connection, outcome.owner)
            same = None if owner is None else codec.same(owner.input, candidate.input)
            tokens.note_refusal(connection, wish.token, now=now, candidate=run_id, same_input=same)
            return Admission(owner=outcome.owner, same_input=same)
    created = NewEvent("run_created", None, _created_data(candidate), now)
    appended = [created]
    if wish is not None:
        insert_hook(connection, run_id, wish, now=now, is_start=True)
        appended.append(NewEvent("hook_created", wish.hook_id, hook_created_data(wish), now))
    _INSERT_RUN(
        connection,
        run_id=run_id,
        workflow=candidate.workflow,
        module=candidate.module,
        definition=candidate.definition.hash,
        status="pending",
        spec_version=candidate.spec_version,
        seed=candidate.seed,
        input=candidate.input,
        output=None,
        error=None,
        error_code=None,
        cancel_reason=None,
        created_at=now,
        started_at=None,
        ended_at=None,
        position=len(appended),
        fence=0 if candidate.worker is None else 1,
        lease_owner=candidate.worker,
        lease_until=None if candidate.worker is None else candidate.lease_until,
        blocked=None,
        start_token=None if wish is None else wish.token,
        start_hook_id=None if wish is None else wish.hook_id,
        parent_run_id=candidate.parent_run_id,
    )
    rows: list[dict[str, Any]] = [
        {
            "run_id": run_id,
            "position": position,
            "type": item.type,
            "correlation_id": item.correlation_id,
            "data": item.data,
            "created_at": now,
            "seen": None,
        }
        for position, item in enumerate(appended, 1)
    ]
    _INSERT_EVENT.many(connection, rows)
    store_sources(connection, [candidate.definition], now=now)
    if candidate.worker is None:
        tokens.ask_for_attention(connection, run_id, due_at=now)
        return Admission()
    return Admission(lease=Lease(run_id, candidate.worker, 1, len(appended)))


def _created_data(candidate: Candidate) -> str:
    head = {
        "workflow": candidate.workflow,
        "definition": candidate.definition.hash,
        "spec_version": candidate.spec_version,
    }
    return f'{json.dumps(head, separators=(",", ":"))[:-1]},"input":{candidate.input}}}'


def find_run(connection: Connection, run_id: str) -> RunRecord | None:
    """One run, or `None`."""
    row = _RUN(connection, run_id=run_id).first()
    return None if row is None else RunRecord(*tuple(row))
