"""Looking: frames with proper types, HTML that is safe, one line in a terminal."""

from __future__ import annotations

import asyncio
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.conftest import needs
from wflab import (
    HookConflictError,
    Lab,
    StartHook,
    WorkflowRunNotFoundError,
    create_hook,
    get_step_metadata,
    sleep,
    step,
    workflow,
)

try:
    import pandas as pd
except ImportError:
    pd = None  # type: ignore[assignment]


@step(retry_after="1s")
async def flaky(note: str) -> str:
    print("tried", note)
    if get_step_metadata().attempt == 1:
        raise ValueError("<b>first</b>")
    return note


@workflow
async def busy(note: str) -> Any:
    await flaky(note)
    await sleep("1m")
    hook = create_hook("<script>alert(1)</script>", metadata={"k": "<i>"})
    return await hook


@workflow
async def fails() -> None:
    raise LookupError("<u>lost</u>")


@pytest.fixture
def looked_at(lab: Any) -> Any:
    needs(pd is not None, "pandas: pip install 'wflab[lab]'")
    return lab


async def a_busy_run(lab: Lab) -> Any:
    run = await lab.start(busy, ["n"], hook=StartHook("key", min_retention="1 day"))
    await lab.idle()
    lab.clock.advance("1s")
    await lab.idle()
    lab.clock.advance("1m")
    await lab.idle()
    return run


async def test_frames_have_proper_types(looked_at: Lab) -> None:
    lab = looked_at
    run = await a_busy_run(lab)
    with pytest.raises(HookConflictError):
        await lab.start(busy, ["n"], hook=StartHook("key"))
    await lab.resume_hook("<script>alert(1)</script>", 5)
    assert await run.return_value() == 5
    events = run.frame()
    assert list(events.index) == list(range(1, len(events) + 1))
    assert events.index.name == "position"
    assert isinstance(events["type"].dtype, pd.CategoricalDtype)
    assert str(events["created_at"].dtype) == "datetime64[us, UTC]"
    assert str(events["since_start"].dtype) == "timedelta64[us]"
    assert events["since_start"].max() == pd.Timedelta("61s")
    assert list(events[events["type"] == "step_retrying"]["step"]) == ["flaky"]
    steps = run.frame("steps")
    assert list(steps["attempts"]) == [2]
    assert steps["duration"].iloc[0] == pd.Timedelta("1s")
    assert steps["status"].iloc[0] == "completed"
    waits = run.frame("waits")
    assert (waits["resume_at"] - waits["created_at"]).iloc[0] == pd.Timedelta("1m")
    hooks = run.frame("hooks").set_index("token")
    assert hooks.loc["key", "refused"] == 1
    assert hooks.loc["key", "state"] == "retained"
    assert hooks.loc["key", "retained_until"] - hooks.loc["key", "created_at"] == pd.Timedelta("1 day")
    runs = lab.runs().frame()
    assert isinstance(runs["status"].dtype, pd.CategoricalDtype)
    assert str(runs["duration"].dtype) == "timedelta64[us]"
    assert runs["token"].iloc[0] == "key"
    with pytest.raises(ValueError, match="steps"):
        run.frame("nonsense")
    with pytest.raises(WorkflowRunNotFoundError):
        lab.get_run("wrun_no").frame()


async def test_frames_of_nothing_have_the_same_types(looked_at: Lab) -> None:
    lab = looked_at
    empty, hooks = lab.runs().frame(), lab.hooks().frame()
    assert (len(empty), len(hooks)) == (0, 0)
    run = await a_busy_run(lab)
    assert (empty.dtypes[["created_at", "duration"]] == lab.runs().frame().dtypes[["created_at", "duration"]]).all()
    assert run.frame("waits")["ended_at"].dtype == "datetime64[us, UTC]"


async def test_runs_can_be_filtered(lab: Lab) -> None:
    run = await a_busy_run(lab)
    failed = await lab.start(fails)
    await lab.idle()
    found = {
        "status": lab.runs(status="failed"),
        "statuses": lab.runs(status=["running", "failed"]),
        "workflow": lab.runs(workflow="busy"),
        "token": lab.runs(token="key"),
        "hook token": lab.runs(token="<script>alert(1)</script>"),
        "limit": lab.runs(limit=1),
    }
    assert {name: [item.run_id for item in table] for name, table in found.items()} == {
        "status": [failed.run_id],
        "statuses": [failed.run_id, run.run_id],
        "workflow": [run.run_id],
        "token": [run.run_id],
        "hook token": [run.run_id],
        "limit": [failed.run_id],
    }
    assert lab.runs()[0].lab is lab
    assert repr(lab.runs()) == "<2 runs: 1 running, 1 failed>"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


async def test_html_is_well_formed_and_escapes_what_users_wrote(lab: Lab) -> None:
    run = await a_busy_run(lab)
    failed = await lab.start(fails)
    await lab.idle()
    info = await lab.get_hook_by_token("<script>alert(1)</script>")
    shown = [run, failed, lab.get_run("wrun_<x>"), info, lab.runs(), lab.hooks(), lab.runs(status="cancelled")]
    for item in shown:
        html = item._repr_html_()
        tags = Tags(html)
        assert not tags.seen & {"script", "u"}
        assert "<b>first" not in html
    html = run._repr_html_()
    assert "attempt 1: ValueError: &lt;b&gt;first&lt;/b&gt;" in html
    assert "tried n" in html
    assert re.search(r'aria-label="run of busy, running"', html)
    assert "LookupError" in failed._repr_html_()


async def test_a_run_is_one_line_in_a_terminal(lab: Lab) -> None:
    run = await lab.start(fails)
    await lab.idle()
    words: list[str] = []
    run._repr_pretty_(type("Printer", (), {"text": lambda self, text: words.append(text)})(), False)
    assert re.fullmatch(r"<Run fails wrun_\w+ ✕ failed in 0 µs>", words[0])
    assert repr(run) == f"Run({run.run_id!r})"
    assert repr(await _hook(lab)).startswith("HookInfo(token='key'")


async def _hook(lab: Lab) -> Any:
    await a_busy_run(lab)
    return await lab.get_hook_by_token("key")


async def test_looking_works_beside_a_running_engine_from_any_thread(real_lab: Lab) -> None:
    run = await real_lab.start(fails)

    def look() -> int:
        return len(real_lab.runs()) + len(run.frame()) * 0 + len(run._repr_html_()) * 0

    needs(pd is not None, "pandas: pip install 'wflab[lab]'")
    assert await asyncio.gather(*(asyncio.to_thread(look) for _ in range(8))) == [1] * 8


def test_looking_at_a_database_that_is_not_there_yet_shows_nothing(url: str) -> None:
    assert len(Lab(url).runs()) == 0
    assert "No hooks yet" in Lab(url).hooks()._repr_html_()
