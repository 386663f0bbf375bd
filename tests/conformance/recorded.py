"""What the TypeScript SDK recorded for small workflows, and the comparison of a run with it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from wflab import Run

HERE = Path(__file__).parent
RECORDED: dict[str, Any] = json.loads((HERE / "recorded.json").read_text())
ENDS = {"run_completed", "run_failed", "run_cancelled"}


async def entities(run: Run[Any]) -> dict[str, list[str]]:
    """The types of the events of each entity of a run, in order: `step#1`, `hook#1`, `wait#1`, …, and `run` itself."""
    names: dict[str, str] = {}
    counts: dict[str, int] = defaultdict(int)
    found: dict[str, list[str]] = defaultdict(list)
    for event in await run.events():
        key = event.correlation_id
        if key is not None and key not in names:
            kind = key.partition("_")[0]
            counts[kind] += 1
            names[key] = f"{kind}#{counts[kind]}"
        found["run" if key is None else names[key]].append(event.type)
    return dict(found)


async def assert_as_recorded(name: str, *runs: Run[Any], differs: dict[str, list[str]] | None = None) -> None:
    """Hold runs against the record: the same status, and the same events of each entity in the same order.

    Args:
        differs: what wflab records on purpose for an entity of the first run instead.
    """
    recorded = RECORDED[name]["runs"]
    assert len(runs) == len(recorded), f"{name} has {len(recorded)} runs"
    for number, (run, was) in enumerate(zip(runs, recorded, strict=True)):
        assert await run.status() == was["status"], f"{name}: status of run {number + 1}"
        expected = {**was["entities"], **((differs or {}) if number == 0 else {})}
        if not ENDS & set(expected["run"]):
            # The record was taken in the moment before the end.
            expected["run"] = [*expected["run"], f"run_{was['status']}"]
        assert await entities(run) == expected, f"{name}: {RECORDED[name]['what']} (run {number + 1})"
        for ref, facts in was.get("hooks", {}).items():
            await _assert_hook(run, ref, facts, runs)


async def _assert_hook(run: Run[Any], ref: str, facts: dict[str, str], runs: tuple[Run[Any], ...]) -> None:
    hooks = [event for event in await run.events() if event.type in ("hook_created", "hook_conflict")]
    event = hooks[int(ref.partition("#")[2]) - 1]
    assert event.data["token"] == facts["token"]
    if "conflictingRunId" in facts:
        owner = int(facts["conflictingRunId"].strip("<>").partition("#")[2]) - 1
        assert event.data["conflicting_run_id"] == runs[owner].run_id
