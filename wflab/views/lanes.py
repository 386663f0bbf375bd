"""A run's log as lanes of spans and marks: what a timeline draws. Pure: events in, lanes out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Lane", "Mark", "Span", "lanes_of"]

_SIGNS = {"completed": "✓", "failed": "✕", "retrying": "✕", "cancelled": "⊘"}
"""What tells attempts apart without their colour."""


@dataclass(slots=True)
class Span:
    """A stretch of time in a lane.

    Attributes:
        kind: `completed`, `failed`, `retrying`, `running`, `cancelled` (attempts), `backoff` (the wait between two),
            `waiting`, `woken` (sleeps), `held`, `retained` (hooks).
        start, end: microseconds since 1970; `end` is `None` while it lasts.
        label: what to write into it.
        detail: the whole story, for a hover.
    """

    kind: str
    start: int
    end: int | None
    label: str = ""
    detail: str = ""


@dataclass(slots=True)
class Mark:
    """A moment in a lane: `payload`, `conflict`, `disposed`, `taken over`."""

    kind: str
    at: int
    detail: str = ""


@dataclass(slots=True)
class Lane:
    """One step call, hook or sleep of a run."""

    key: str
    kind: str
    name: str
    status: str = ""
    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Seen:
    type: str
    key: str
    data: Any
    at: int


def lanes_of(events: Iterable[Any], end_us: int | None) -> list[Lane]:
    """The lanes of a run, in the order in which its body asked for them.

    Args:
        events: with `type`, `correlation_id`, `data` (decoded) and `at` (microseconds since 1970).
        end_us: when the run ended, if it has.
    """
    lanes: dict[str, Lane] = {}
    for item in events:
        key = item.correlation_id
        if key is None:
            continue
        seen = _Seen(item.type, key, item.data, item.at)
        lane = lanes.get(key)
        if lane is None:
            lane = lanes[key] = Lane(key, key.partition("_")[0], _name(seen))
        _ADD[lane.kind](lane, seen)
    for lane in lanes.values():
        _close(lane, end_us)
    return list(lanes.values())


def _name(seen: _Seen) -> str:
    if seen.type == "step_created":
        return str(seen.data["step"])
    return str(seen.data.get("token", "sleep"))


def _add_step(lane: Lane, seen: _Seen) -> None:
    last = lane.spans[-1] if lane.spans else None
    attempt = seen.data.get("attempt", 0)
    if seen.type == "step_created":
        lane.status = "created"
    elif seen.type == "step_started":
        if last is not None and last.kind == "backoff":
            last.end = seen.at
        lane.spans.append(Span("running", seen.at, None, str(attempt), f"attempt {attempt}"))
        lane.status = "running"
    else:
        kind = {"step_completed": "completed", "step_retrying": "retrying"}.get(seen.type, "failed")
        if seen.data.get("cancelled"):
            kind = "cancelled"
        if last is not None and last.kind == "running":
            last.kind, last.end = kind, seen.at
            last.label = f"{_SIGNS[kind]} {last.label}"
            last.detail = _attempt_detail(last.detail, seen.data)
        if kind == "retrying":
            lane.spans.append(Span("backoff", seen.at, None, "", "waits for the next attempt"))
        lane.status = kind


def _attempt_detail(detail: str, data: dict[str, Any]) -> str:
    if "error" in data:
        error = data["error"]
        detail += f": {type(error).__name__}: {error}" if isinstance(error, BaseException) else f": {error}"
    elif "result" in data:
        detail += f" gave {data['result']!r:.200}"
    return detail + (f"\n{data['printed']:.500}" if data.get("printed") else "")


def _add_wait(lane: Lane, seen: _Seen) -> None:
    if seen.type == "wait_created":
        lane.spans.append(Span("waiting", seen.at, None, "", f"until {seen.data['resume_at']}"))
        lane.status = "waiting"
    elif lane.spans:
        woken, cancelled = seen.data.get("woken"), seen.data.get("cancelled")
        lane.status = "woken" if woken else "cancelled" if cancelled else "completed"
        lane.spans[-1].end = seen.at
        lane.spans[-1].kind = lane.status if lane.status != "completed" else "waiting"


def _add_hook(lane: Lane, seen: _Seen) -> None:
    data = seen.data
    if seen.type == "hook_created":
        lane.spans.append(Span("held", seen.at, None, "", f"holds {data['token']!r}"))
        lane.status = "held"
        if data.get("force_claimed_from"):
            lane.marks.append(Mark("taken over", seen.at, f"took the token from {data['force_claimed_from']}"))
    elif seen.type == "hook_conflict":
        lane.status = "refused"
        lane.marks.append(Mark("conflict", seen.at, f"held by {data['conflicting_run_id']}"))
    elif seen.type == "hook_received":
        lane.marks.append(Mark("payload", seen.at, f"{data.get('payload')!r:.200}"))
    elif lane.spans:
        by = data.get("force_claimed_by")
        lane.status = "taken over" if by else "disposed"
        lane.spans[-1].end = seen.at
        lane.marks.append(Mark(lane.status, seen.at, f"taken over by {by}" if by else "disposed"))


_ADD = {"step": _add_step, "wait": _add_wait, "hook": _add_hook}


def _close(lane: Lane, end_us: int | None) -> None:
    """A run's end is the end of all that was open in it."""
    if end_us is None:
        return
    for span in lane.spans:
        if span.end is None:
            span.end = end_us
            if span.kind == "running":
                span.kind = lane.status = "cancelled"
    if lane.status == "held":
        lane.status = "ended"
