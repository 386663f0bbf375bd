"""Labs: the current one, several at once, in memory, stopped and opened again, and bodies that are let go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import wflab
from tests.rules.helpers import types_of
from wflab import Lab, StartHook, WorldUnavailableError, create_hook, run_sync, sleep, start, step, workflow
from wflab.engine import dispatcher


@step
async def add(a: int, b: int) -> int:
    return a + b


@workflow
async def adds(a: int, b: int) -> int:
    return await add(a, b)


@workflow
async def waits(token: str) -> Any:
    hook = create_hook(token)
    first = await hook
    await sleep("1h")
    return [first, await hook]


@pytest.mark.parametrize("url_", ["sqlite://", "sqlite:///:memory:"])
@pytest.mark.parametrize("inline", [True, False])
async def test_a_lab_can_live_in_memory(url_: str, inline: bool) -> None:
    async with Lab(url_, inline=inline) as lab, Lab(url_, inline=inline) as other:
        run = await lab.start(adds, [1, 2], hook=StartHook("k", min_retention="1h"))
        assert await run.return_value(timeout=20) == 3
        assert len(lab.runs()) == 1
        assert len(lab.runs().frame()) == 1
        assert [hook.token for hook in lab.hooks()] == ["k"]
        assert not await other.get_run(run.run_id).exists()


async def test_labs_in_one_process_do_not_mix(url: str, tmp_path: Any) -> None:
    @step
    async def starts_another() -> str:
        return (await start(adds, [1, 1])).run_id

    @workflow
    async def parent() -> str:
        return await starts_another()

    async with Lab(url, inline=True) as one, Lab(f"sqlite:///{tmp_path / 'two.db'}", inline=True) as two:
        wflab.use(one)
        child = await (await two.start(parent)).return_value()
        assert await two.get_run(child).exists()
        assert not await one.get_run(child).exists()
        assert wflab.current_lab() is one


def test_a_plain_script_needs_no_async(url: str) -> None:
    wflab.use(url)
    run = run_sync(wflab.start(adds, [2, 3]))
    assert run_sync(run.return_value(timeout=20)) == 5
    run_sync(wflab.shutdown())
    run_sync(wflab.shutdown())


async def test_run_sync_works_where_a_loop_runs_already(url: str) -> None:
    wflab.use(url)
    assert run_sync(run_sync(wflab.start(adds, [2, 3])).return_value(timeout=20)) == 5
    await wflab.shutdown()


async def test_the_environment_chooses_the_database(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WFLAB_DATABASE_URL", url)
    assert Lab().world.url == url
    monkeypatch.delenv("WFLAB_DATABASE_URL")
    assert Lab().world.url.endswith("/wflab.db")
    with pytest.raises(ValueError, match="mysql"):
        Lab("mysql://x")


async def test_a_lab_that_was_shut_down_opens_again_with_the_next_call(lab: Lab) -> None:
    run = await lab.start(waits, ["t"])
    await lab.idle()
    await lab.shutdown()
    await lab.resume_hook("t", 1)
    await lab.idle()
    lab.clock.advance("1h")
    await lab.resume_hook("t", 2)
    assert await run.return_value() == [1, 2]


async def test_who_waits_when_a_lab_shuts_down_is_told(url: str) -> None:
    lab = Lab(url)
    run = await lab.start(waits, ["t"])
    waiting = asyncio.create_task(run.return_value())
    while not await run.started_at():
        await asyncio.sleep(0)
    await lab.shutdown()
    with pytest.raises(WorldUnavailableError, match="shut down"):
        await waiting


async def test_a_caller_that_gives_up_does_not_disturb_the_run(real_lab: Lab) -> None:
    run = await real_lab.start(waits, ["t"])
    waiting = asyncio.create_task(run.return_value())
    await run.status()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await run.status() in ("pending", "running")


async def test_bodies_beyond_the_limit_are_let_go_and_go_on_when_needed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:  # decision 4, R17
    monkeypatch.setattr(dispatcher, "MAX_LIVE_RUNS", 3)
    runs = [await lab.start(waits, [f"t{number}"]) for number in range(12)]
    await lab.idle()
    for number in range(12):
        await lab.resume_hook(f"t{number}", number)
    await lab.idle()
    lab.clock.advance("1h")
    await lab.idle()
    for number in range(12):
        assert (await types_of(runs[number])).count("wait_completed") == 1
        await lab.resume_hook(f"t{number}", "end")
    assert [await run.return_value() for run in runs] == [[number, "end"] for number in range(12)]


async def test_an_inline_lab_belongs_to_one_loop(url: str) -> None:
    lab = Lab(url, inline=True)
    await lab.start(adds, [1, 1])
    with pytest.raises(RuntimeError, match="event loop"):
        await asyncio.to_thread(asyncio.run, lab.idle())
    await lab.shutdown()


async def test_an_engine_thread_serves_callers_on_any_loop(real_lab: Lab) -> None:
    async def call() -> int:
        return await (await real_lab.start(adds, [20, 1])).return_value(timeout=20)

    results = await asyncio.gather(*(asyncio.to_thread(asyncio.run, call()) for _ in range(5)), call())
    assert results == [21] * 6
