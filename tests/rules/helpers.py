"""Small things that tests of the rules share."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from wflab import Lab, Run


async def types_of(run: Run[Any]) -> list[str]:
    """The types of a run's events, in order."""
    return [event.type for event in await run.events()]


async def entities(run: Run[Any]) -> dict[str, list[str]]:
    """The types of the events of each step, hook and wait of a run, as `step#1`, `hook#1`, …."""
    names: dict[str, str] = {}
    counts: dict[str, int] = defaultdict(int)
    found: dict[str, list[str]] = defaultdict(list)
    for event in await run.events():
        key = event.correlation_id
        if key is None:
            continue
        kind = key.partition("_")[0]
        if key not in names:
            counts[kind] += 1
            names[key] = f"{kind}#{counts[kind]}"
        found[names[key]].append(event.type)
    return dict(found)


def reopened(lab: Lab) -> Lab:
    """Another Lab on the same database and clock, as after a restart."""
    return Lab(lab.world.url, clock=lab.clock, inline=True)


def file_of(lab: Lab) -> Path:
    """The database file of a Lab."""
    return Path(lab.world.url.removeprefix("sqlite:///"))
