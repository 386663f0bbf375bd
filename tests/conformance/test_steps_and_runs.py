"""The recorded scenarios of steps, sleeps and runs."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from tests.conformance.recorded import RECORDED, assert_as_recorded, entities
from wflab import (
    FatalError,
    HookNotFoundError,
    Lab,
    RetryableError,
    WorkflowRunCancelledError,
    WorkflowRunFailedError,
    WorkflowRunNotFoundError,
    get_step_metadata,
    get_workflow_metadata,
    sleep,
    start,
    step,
    workflow,
)


@step
async def add(a: int, b: int) -> int:
    return a + b


@step
async def flaky(until: int) -> dict[str, int]:
    attempt = get_step_metadata().attempt
    if attempt < until:
        raise ValueError(f"flaky {attempt}")
    return {"attempt": attempt}


@step
async def fatal() -> None:
    raise FatalError("no way")


@workflow
async def calls_fatal(catches: bool) -> Any:
    try:
        await fatal()
    except FatalError as error:
        if not catches:
            raise
        return {"name": type(error).__name__, "message": str(error)}


@workflow
async def calls_flaky(until: int, catches: bool = False) -> Any:
    try:
        return await flaky(until)
    except ValueError as error:
        if not catches:
            raise
        return {"name": type(error).__name__, "message": str(error), "note": error.__notes__[0]}


@workflow
async def sleeper(duration: str) -> str:
    await sleep(duration)
    return "woke"


async def failure(run: Any) -> WorkflowRunFailedError:
    with pytest.raises(WorkflowRunFailedError) as failed:
        await run.return_value()
    return failed.value


async def test_seq(lab: Lab) -> None:
    @workflow
    async def seq() -> int:
        total = 0
        for number in range(3):
            total = await add(total, number)
        return total

    run = await lab.start(seq)
    assert await run.return_value() == 3
    await assert_as_recorded("seq", run)


async def test_par(lab: Lab) -> None:
    @workflow
    async def par() -> list[int]:
        return list(await asyncio.gather(*(add(number, number) for number in (1, 2, 3))))

    run = await lab.start(par)
    assert await run.return_value() == [2, 4, 6]
    await assert_as_recorded("par", run)


async def test_retry2(lab: Lab) -> None:
    run = await lab.start(calls_flaky, [3])
    assert await run.return_value() == {"attempt": 3}
    await assert_as_recorded("retry2", run)


async def test_exhausted_differs_the_cause_is_the_original_exception(lab: Lab) -> None:
    run = await lab.start(calls_flaky, [9])
    error = await failure(run)
    assert error.error_code == "USER_ERROR"
    assert type(error.__cause__) is ValueError
    assert str(error.__cause__) == "flaky 4"
    await assert_as_recorded("exhausted", run)


async def test_exhausted_caught_differs_the_exception_is_the_original_with_a_note(lab: Lab) -> None:
    run = await lab.start(calls_flaky, [9, True])
    caught = await run.return_value()
    assert (caught["name"], caught["message"]) == ("ValueError", "flaky 4")
    assert "failed 4 times" in caught["note"]
    await assert_as_recorded("exhaustedCaught", run)


async def test_fatal_caught(lab: Lab) -> None:
    run = await lab.start(calls_fatal, [True])
    assert await run.return_value() == {"name": "FatalError", "message": "no way"}
    await assert_as_recorded("fatalCaught", run)


async def test_fatal_uncaught(lab: Lab) -> None:
    run = await lab.start(calls_fatal, [False])
    error = await failure(run)
    assert (type(error.__cause__), str(error.__cause__), error.error_code) == (FatalError, "no way", "USER_ERROR")
    await assert_as_recorded("fatalUncaught", run)


async def test_retry_after_differs_the_wait_is_as_long_as_asked(lab: Lab) -> None:
    @step
    async def retryable() -> int:
        attempt = get_step_metadata().attempt
        if attempt == 1:
            raise RetryableError("later", retry_after="300ms")
        return attempt

    @workflow
    async def body() -> int:
        return await retryable()

    run = await lab.start(body)
    assert await run.return_value() == 2
    starts = [event.created_at for event in await run.events() if event.type == "step_started"]
    assert (starts[1] - starts[0]).total_seconds() == 0.3
    await assert_as_recorded("retryAfter", run)


async def test_meta(lab: Lab) -> None:
    @step
    async def meta_step() -> dict[str, Any]:
        me = get_step_metadata()
        return {"name": me.step_name, "id": me.step_id, "attempt": me.attempt}

    @workflow
    async def meta() -> dict[str, Any]:
        me = get_workflow_metadata()
        return {"s": await meta_step(), "w": {"name": me.workflow_name, "id": me.run_id}}

    run = await lab.start(meta)
    told = await run.return_value()
    assert told["w"] == {"name": "meta", "id": run.run_id}
    assert (told["s"]["name"], told["s"]["attempt"]) == ("meta_step", 1)
    assert told["s"]["id"].startswith("step_")
    await assert_as_recorded("meta", run)


async def test_rnd(lab: Lab) -> None:
    @workflow
    async def rnd() -> list[Any]:
        before = [random.random(), time.time()]
        await add(1, 1)
        return [*before, random.random(), time.time()]

    run = await lab.start(rnd)
    first, began, second, ended = await run.return_value()
    assert first != second
    assert ended >= began
    await assert_as_recorded("rnd", run)


async def test_sleeper(lab: Lab) -> None:
    run = await lab.start(sleeper, ["1s"])
    assert await run.return_value() == "woke"
    await assert_as_recorded("sleeper", run)


async def test_wake_up(lab: Lab) -> None:
    run = await lab.start(sleeper, ["1h"])
    await lab.idle()
    assert await run.wake_up() == 1
    assert await run.return_value() == "woke"
    await assert_as_recorded("wakeUp", run)


async def test_cancel_sleeping_differs_the_second_cancelling_writes_nothing(lab: Lab) -> None:
    run = await lab.start(sleeper, ["1h"])
    await lab.idle()
    await run.cancel("enough")
    with pytest.raises(WorkflowRunCancelledError):
        await run.return_value()
    await run.cancel()
    assert RECORDED["cancelSleeping"]["runs"][0]["entities"]["run"].count("run_cancelled") == 2
    differs = {"run": ["run_created", "run_started", "run_cancelled"]}
    await assert_as_recorded("cancelSleeping", run, differs=differs)


async def test_race_differs_nothing_follows_the_end_of_a_run(lab: Lab) -> None:
    ended: list[str] = []
    running = asyncio.Event()

    @step
    async def slow() -> str:
        try:
            running.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "slow"

    @workflow
    async def race() -> str:
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(slow()), asyncio.ensure_future(sleep("300ms"))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        return "timeout" if next(iter(done)).result() is None else "step"

    run = await lab.start(race)
    await running.wait()
    await running.wait()
    lab.clock.advance("300ms")
    assert await run.return_value() == "timeout"
    await asyncio.sleep(0)
    assert ended == ["cancelled"]
    assert RECORDED["race"]["runs"][0]["entities"]["step#1"][-1] == "step_completed"
    await assert_as_recorded("race", run, differs={"step#1": ["step_created", "step_started"]})


async def test_parent(lab: Lab) -> None:
    @workflow
    async def child(x: int) -> int:
        return await add(x, 1)

    @workflow
    async def parent() -> dict[str, Any]:
        run = await start(child, [4])
        return {"id": run.run_id, "v": await run.return_value()}

    run = await lab.start(parent)
    told = await run.return_value()
    assert told["v"] == 5
    await assert_as_recorded("parent", run, lab.get_run(told["id"]))


async def test_unknown(lab: Lab) -> None:
    for call in (lab.resume_hook("nobody", 1), lab.get_hook_by_token("nobody")):
        with pytest.raises(HookNotFoundError) as missing:
            await call
        assert missing.value.token == "nobody"
    unknown = lab.get_run("wrun_01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert await unknown.exists() is False
    for ask in (unknown.status, unknown.return_value):
        with pytest.raises(WorkflowRunNotFoundError):
            await ask()
    await assert_as_recorded("unknown")


async def test_step_and_wait_ids_differ_they_are_unique_across_runs(lab: Lab) -> None:
    runs = [await lab.start(sleeper, ["1s"]) for _ in range(3)]
    ids = set()
    for run in runs:
        await run.return_value()
        ids |= {event.correlation_id for event in await run.events() if event.correlation_id}
        assert list(await entities(run)) == ["run", "wait#1"]
    assert len(ids) == 3
