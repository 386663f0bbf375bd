"""Tidy HTML of runs, hooks and lists: readable in JupyterLab's light and dark theme, and without any style at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from sqlmodel import col

from wflab import codec, models
from wflab.durations import as_datetime
from wflab.views import browse
from wflab.views.lanes import Lane, lanes_of
from wflab.views.style import STYLE

__all__ = ["hook_info_html", "hooks_html", "run_html", "run_line", "runs_html", "short_id", "time_span"]

MARKS = {
    "pending": "○",
    "created": "○",
    "running": "◔",
    "retrying": "↻",
    "completed": "✓",
    "failed": "✕",
    "cancelled": "⊘",
    "waiting": "◔",
    "woken": "⏵",
    "held": "⚑",
    "retained": "◐",
    "free": "○",
    "disposed": "⊘",
    "ended": "○",
    "taken over": "⇥",
    "refused": "✕",
    "passed on": "→",
}
LANES_SHOWN = 40
_MARK_SIGNS = {"payload": "◆", "conflict": "✕", "disposed": "⊘", "taken over": "⇥"}


def short_id(text: str) -> str:
    """An id shortened in the middle: `wrun_01M8…FV3Q`."""
    return text if len(text) <= 18 else f"{text[:9]}…{text[-4:]}"


def time_span(us: int) -> str:
    """A duration of microseconds in the two units that matter: `1.2 s`, `3 min 4 s`."""
    if us < 1_000:
        return f"{us} µs"
    if us < 1_000_000:
        return f"{us / 1000:.3g} ms"
    if us < 60_000_000:
        return f"{us / 1e6:.3g} s"
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    seconds, parts = us // 1_000_000, []
    for size, name in units:
        if seconds >= size:
            parts.append(f"{seconds // size} {name}")
            seconds %= size
    return " ".join(parts[:2])


def _ago(us: int, now_us: int) -> str:
    return f'<span title="{as_datetime(us).isoformat()}">{escape(_relative(us, now_us))}</span>'


def _relative(us: int, now_us: int) -> str:
    return f"in {time_span(us - now_us)}" if us > now_us else f"{time_span(now_us - us)} ago"


def _badge(status: str) -> str:
    name = status.replace(" ", "-")
    return f'<span class="wflab-badge wflab-{name}">{MARKS.get(status, "·")} {escape(status)}</span>'


def _id(text: str) -> str:
    return f'<code title="{escape(text)}">{escape(short_id(text))}</code>'


def _box(label: str, *parts: str) -> str:
    return f'<div class="wflab" role="group" aria-label="{escape(label)}">{STYLE}{"".join(parts)}</div>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def runs_html(runs: Sequence[models.Run], now_us: int) -> str:
    """A table of runs."""
    if not runs:
        return _box("runs", "<p>No runs yet.</p>")
    rows = (
        [
            _badge(run.status)
            + ("" if run.blocked is None else f' <span title="{escape(run.blocked)}">⚠ blocked</span>'),
            escape(run.workflow),
            _id(run.run_id),
            "" if run.start_token is None else f"<code>{escape(run.start_token)}</code>",
            _ago(run.created_at, now_us),
            "" if run.started_at is None else time_span((run.ended_at or now_us) - run.started_at),
            str(run.position),
        ]
        for run in runs
    )
    head = ("status", "workflow", "run", "token", "created", "duration", "events")
    return _box(f"{len(runs)} runs", _table(head, rows))


def hooks_html(hooks: Sequence[browse.HookRow], now_us: int) -> str:
    """A table of hooks."""
    if not hooks:
        return _box("hooks", "<p>No hooks yet.</p>")
    rows = (
        [
            _badge(hook.state),
            f"<code>{escape(hook.token)}</code>",
            f"{escape(hook.workflow)} {_id(hook.run_id)}",
            _ago(hook.created_at, now_us),
            _until(hook, now_us),
            str(hook.received),
            str(hook.refused),
            "" if hook.metadata is None else f"<code>{escape(repr(hook.metadata)[:60])}</code>",
        ]
        for hook in hooks
    )
    head = ("state", "token", "run", "since", "until", "delivered", "refused starts", "metadata")
    return _box(f"{len(hooks)} hooks", _table(head, rows))


def _until(hook: browse.HookRow, now_us: int) -> str:
    if hook.state == "held" and hook.retained_until is None:
        return "the run's end"
    until = hook.retained_until if hook.state in ("held", "retained") else hook.ended_at
    return "" if until is None else _ago(until, now_us)


def hook_info_html(info: Any) -> str:
    """What `get_hook_by_token` and `resume_hook` give."""
    facts = [("run", _id(info.run_id)), ("since", escape(info.created_at.strftime("%Y-%m-%d %H:%M:%S UTC")))]
    if info.retained_until is not None:
        facts.append(("retained until", escape(info.retained_until.strftime("%Y-%m-%d %H:%M:%S UTC"))))
    if info.metadata is not None:
        facts.append(("metadata", f"<code>{escape(repr(info.metadata)[:200])}</code>"))
    return _box(f"hook {info.token}", _head("⚑", f"<code>{escape(info.token)}</code>", "", facts))


def _head(mark: str, title: str, badge: str, facts: Iterable[tuple[str, str]]) -> str:
    told = "".join(f"<span><i>{escape(name)}</i> {value}</span>" for name, value in facts)
    return f'<div class="wflab-head"><b>{mark} {title}</b> {badge} {told}</div>'


@dataclass(frozen=True, slots=True)
class _Logged:
    type: str
    correlation_id: str | None
    data: Any
    at: int


def run_html(world: Any, run_id: str, now_us: int) -> str:
    """One run: what it is, how far it is, and its lanes."""
    run = browse.find_run(world, run_id)
    if run is None:
        return _box("unknown run", f"<p>No run has the id {_id(run_id)} here.</p>")
    rows = browse.rows_of(world, models.Event, run_id, col(models.Event.position))
    logged = [
        _Logged(row.type, row.correlation_id, codec.decode(row.data, unresolved="show"), row.created_at) for row in rows
    ]
    facts = [("run", _id(run.run_id)), ("created", _ago(run.created_at, now_us))]
    if run.started_at is not None:
        facts.append(("took" if run.ended_at else "for", time_span((run.ended_at or now_us) - run.started_at)))
    if run.start_token is not None:
        facts.append(("token", f"<code>{escape(run.start_token)}</code>"))
    parts = [_head("▸", escape(run.workflow), _badge(run.status), facts)]
    lanes = lanes_of(logged, run.ended_at)
    start = run.created_at
    end = max([run.ended_at or now_us, start + 1])
    parts.append(_lanes_html(lanes[:LANES_SHOWN], start, end))
    if len(lanes) > LANES_SHOWN:
        parts.append(f"<p>… and {len(lanes) - LANES_SHOWN} more lanes: see <code>run.frame('steps')</code></p>")
    parts.append(_outcome(run))
    return _box(f"run of {run.workflow}, {run.status}", *parts)


def run_line(world: Any, run_id: str, now_us: int) -> str:
    """One run in one line of text."""
    run = browse.find_run(world, run_id)
    if run is None:
        return f"<Run {run_id}: unknown here>"
    took = "" if run.started_at is None else f" in {time_span((run.ended_at or now_us) - run.started_at)}"
    return f"<Run {run.workflow} {run_id} {MARKS[run.status]} {run.status}{took}>"


def _outcome(run: models.Run) -> str:
    if run.blocked is not None:
        return f'<p class="wflab-error">⚠ blocked: {escape(run.blocked)}</p>'
    if run.status == "completed" and run.output not in (None, "null"):
        value = codec.decode(run.output or "null", unresolved="show")
        return f"<p>→ <code>{escape(repr(value)[:300])}</code></p>"
    if run.status == "failed":
        error = codec.decode(run.error or "null", unresolved="show")
        return f'<p class="wflab-error">✕ {escape(type(error).__name__)}: {escape(str(error)[:300])}</p>'
    if run.status == "cancelled" and run.cancel_reason:
        return f"<p>⊘ {escape(run.cancel_reason)}</p>"
    return ""


def _lanes_html(lanes: Sequence[Lane], start: int, end: int) -> str:
    rows = []
    for lane in lanes:
        spans = "".join(_span_html(span, start, end) for span in lane.spans)
        marks = "".join(
            f'<span class="wflab-mark" style="left:{_share(mark.at, start, end):.2f}%" title="{escape(mark.detail)}">'
            f"{_MARK_SIGNS[mark.kind]}</span>"
            for mark in lane.marks
        )
        name = f'<td class="wflab-name" title="{escape(lane.key)}">{escape(lane.name)}</td>'
        track = f'<td class="wflab-track"><div>{spans}{marks}</div></td>'
        rows.append(f"<tr>{name}<td>{_badge(lane.status)}</td>{track}</tr>")
    return f'<table class="wflab-lanes"><tbody>{"".join(rows)}</tbody></table>' if rows else ""


def _span_html(span: Any, start: int, end: int) -> str:
    left = _share(span.start, start, end)
    width = max(_share(span.end or end, start, end) - left, 0.0)
    title = escape(f"{span.detail} · {time_span((span.end or end) - span.start)}")
    label = escape(span.label) if width > 2 else ""
    style = f"left:{left:.2f}%;width:max({width:.2f}%, 6px)"
    return f'<span class="wflab-span wflab-{span.kind}" style="{style}" title="{title}">{label}</span>'


def _share(at: int, start: int, end: int) -> float:
    return 100 * (min(max(at, start), end) - start) / (end - start)
