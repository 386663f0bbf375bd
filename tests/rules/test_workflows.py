"""Workflows: R9 to R17."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import subprocess
import threading
import time
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.rules.helpers import entities, reopened, types_of
from wflab import (
    ForbiddenInWorkflowError,
    HookNotFoundError,
    Lab,
    NotAWorkflowError,
    ReplayDivergenceError,
    Run,
    StartHook,
    WorkflowArgumentsError,
    WorkflowRunCancelledError,
    WorkflowRunFailedError,
    WorkflowRunNotFoundError,
    create_hook,
    get_run,
    get_workflow_metadata,
    now,
    sleep,
    start,
    step,
    workflow,
)
from wflab.engine.definitions import catalogue


@step
async def add(a: int, b: int) -> int:
    return a + b


def helper_time() -> float:
    return time.time()


@workflow
async def draws() -> list[list[Any]]:
    drawn = []
    for _ in range(2):
        import time as clock

        drawn.append(
            [
                time.time(),
                helper_time(),
                clock.time_ns(),
                datetime.now(dt.UTC),
                datetime.now(),
                dt.date.today(),
                now(),
                random.random(),
                random.randint(1, 10**9),
                random.sample(range(1000), 3),
                uuid.uuid4(),
                time.monotonic(),
            ]
        )
        await sleep("1h")
    return drawn


async def test_time_and_chance_in_a_body_are_fixed_by_its_run(lab: Lab) -> None:  # R10
    run = await lab.start(draws)
    await lab.idle()
    began = lab.clock.now()
    await lab.shutdown()
    async with reopened(lab) as again:
        await again.idle()
        again.clock.advance("1h")
        first, second = await again.get_run(run.run_id).return_value()
    assert first[0] == first[1] == began.timestamp()
    assert first[2] == round(began.timestamp() * 1e6) * 1000
    assert first[3] == first[6] == began
    assert second[6] - first[6] == dt.timedelta(hours=1)
    assert first[7] != second[7]
    other = await_free = None
    async with reopened(lab) as again:
        other = await (await again.start(draws)).return_value()
        await_free = await again.get_run(run.run_id).return_value()
    assert await_free == [first, second]
    assert other[0][7] != first[7]
    assert other[0][10] != first[10]
    assert abs(time.time() - first[0]) > 1


async def test_names_taken_from_their_modules_are_fixed_too(lab: Lab) -> None:  # R10
    space: dict[str, Any] = {"workflow": workflow, "sleep": sleep, "__name__": "names_of_test"}
    text = """
from time import time, time_ns
from random import random, choice
from uuid import uuid4
from datetime import datetime as moment

def draw():
    return [time(), time_ns(), random(), choice(range(10**9)), uuid4(), moment.now()]

@workflow
async def draws_by_name():
    first = draw()
    await sleep("1h")
    return [first, draw()]
"""
    exec(compile(text, "<names of test>", "exec"), space)
    run = await lab.start(space["draws_by_name"])
    await lab.idle()
    began = lab.clock.now().timestamp()
    await lab.shutdown()
    async with reopened(lab) as again:
        first, second = await again.get_run(run.run_id).return_value()
    assert first[0] == began
    assert second[0] == began + 3600
    async with reopened(lab) as again:
        assert await again.get_run(run.run_id).return_value() == [first, second]
    assert abs(space["draw"]()[0] - time.time()) < 60


async def test_outside_a_body_time_and_chance_are_as_ever(lab: Lab) -> None:  # R10
    await (await lab.start(draws)).return_value()
    assert abs(time.time() - lab.clock.now().timestamp()) > 3600
    assert datetime.now() != datetime.now() or True
    random.seed(5)
    first = random.random()
    random.seed(5)
    assert random.random() == first
    assert isinstance(datetime.now(dt.UTC), datetime)


@pytest.mark.parametrize(
    "act",
    [
        lambda: time.sleep(0.001),
        lambda: open("/dev/null"),  # noqa: SIM115
        lambda: Path("/dev/null").read_text(),
        lambda: threading.Thread(target=print).start(),
        lambda: subprocess.run(["true"], check=False),
        lambda: __import__("socket").create_connection(("127.0.0.1", 9)),
    ],
)
async def test_what_a_replay_cant_repeat_is_refused_in_a_body(lab: Lab, act: Any) -> None:  # R10
    @workflow
    async def misbehaves() -> None:
        act()

    with pytest.raises(WorkflowRunFailedError) as failed:
        await (await lab.start(misbehaves)).return_value()
    assert type(failed.value.__cause__) is ForbiddenInWorkflowError
    assert failed.value.__cause__.instead


@pytest.mark.parametrize("name", ["to_thread", "open_connection"])
async def test_asyncio_that_reaches_outside_is_refused_in_a_body(lab: Lab, name: str) -> None:  # R10
    @workflow
    async def misbehaves() -> None:
        if name == "to_thread":
            await asyncio.to_thread(print)
        else:
            await asyncio.open_connection("127.0.0.1", 9)

    with pytest.raises(WorkflowRunFailedError) as failed:
        await (await lab.start(misbehaves)).return_value()
    assert type(failed.value.__cause__) is ForbiddenInWorkflowError


async def test_ordinary_asyncio_works_in_a_body(lab: Lab) -> None:  # decision 2
    @workflow
    async def uses_it_all() -> list[Any]:
        queue: asyncio.Queue[int] = asyncio.Queue()
        event, lock = asyncio.Event(), asyncio.Lock()

        async def producer() -> None:
            for number in range(3):
                async with lock:
                    queue.put_nowait(await add(number, 10))
            await asyncio.sleep(60)
            event.set()

        task = asyncio.create_task(producer())
        got = [await queue.get() for _ in range(3)]
        await asyncio.wait_for(event.wait(), 120)
        done, pending = await asyncio.wait(
            [asyncio.ensure_future(sleep(5)), asyncio.ensure_future(sleep(50))], return_when=asyncio.FIRST_COMPLETED
        )
        for late in pending:
            late.cancel()
        await task
        results = [await item for item in asyncio.as_completed([add(1, 1), add(2, 2)])]
        return [got, len(done), len(pending), sorted(results)]

    assert await (await lab.start(uses_it_all)).return_value() == [[10, 11, 12], 1, 1, [2, 4]]


def versions(body: str, **names: Any) -> Any:
    """A workflow `order` from text, as a cell makes it."""
    space: dict[str, Any] = {"workflow": workflow, "sleep": sleep, "add": add, "create_hook": create_hook, **names}
    text = "@workflow\nasync def order():\n" + "".join(f"    {line}\n" for line in body.splitlines())
    exec(compile(text, f"<cell {abs(hash(body))}>", "exec"), {"__name__": "cell_of_test", **space}, space)
    return space["order"]


async def test_a_body_that_does_not_match_its_log_waits_and_writes_nothing(lab: Lab) -> None:  # R11
    run = await lab.start(versions("await add(1, 1)\nawait sleep('1h')\nreturn 'old'"))
    await lab.idle()
    before = await types_of(run)
    await lab.shutdown()
    catalogue._workflows.pop(("cell_of_test", "order"))  # as after a restart of the kernel
    async with reopened(lab) as again:
        versions("await sleep('1h')\nawait add(1, 1)\nreturn 'new'")
        run = again.get_run(run.run_id)
        await again.idle()
        reason = await run.blocked()
        assert reason is not None
        assert "ReplayDivergenceError" in reason
        assert "step_created 'add'" in reason
        assert "a sleep until" in reason
        assert await types_of(run) == before
        assert await run.status() == "running"
        # A body that fits lets it go on, and the move is recorded (R12).
        versions("await add(1, 1)\nawait sleep('1h')\nreturn 'fits'")
        assert await run.return_value() == "fits"
        assert await run.blocked() is None
        assert "attr_set" in await types_of(run)


async def test_a_divergence_names_the_event_the_call_and_both_lines(lab: Lab) -> None:  # R11
    from wflab.engine.log import delivery_order
    from wflab.engine.replay import Replay

    @workflow
    async def first() -> None:
        await add(1, 1)
        await sleep("1h")

    @workflow
    async def second() -> None:
        await sleep("1h")

    run = await lab.start(first)
    await lab.idle()
    record = await lab.world.run(run.run_id)
    replay = Replay(record, second, lab, 0)
    with pytest.raises(ReplayDivergenceError) as diverged:
        replay.feed(delivery_order(await lab.world.events(run.run_id)))
    error = diverged.value
    assert (error.run_id, error.position) == (run.run_id, 3)
    assert error.expected == "step_created 'add'"
    assert error.found.startswith("a sleep until")
    assert error.expected_line is not None
    assert error.found_line is not None
    assert 'await sleep("1h")' in error.found_line


async def test_a_blocked_run_can_be_cancelled(lab: Lab) -> None:  # R11
    run = await lab.start(versions("await add(2, 1)\nawait sleep('1h')"))
    await lab.idle()
    await lab.shutdown()
    catalogue._workflows.pop(("cell_of_test", "order"))  # as after a restart of the kernel
    async with reopened(lab) as again:
        versions("return 1")
        await again.idle()
        run = again.get_run(run.run_id)
        assert await run.blocked()
        await run.cancel()
        assert await run.status() == "cancelled"


async def test_an_open_run_keeps_its_version_and_a_new_run_gets_the_new_one(lab: Lab) -> None:  # R12
    old = await lab.start(versions("await sleep('1h')\nreturn 'old'"))
    await lab.idle()
    new = await lab.start(versions("await sleep('1h')\nreturn 'new'"))
    assert [await old.return_value(), await new.return_value()] == ["old", "new"]


async def test_a_fixed_step_reaches_a_run_that_is_retrying(lab: Lab) -> None:  # R12
    def define(answer: int | None) -> Any:
        @step(retry_after="1h", max_retries=1)
        async def looks_up() -> int:
            if answer is None:
                raise KeyError("bug")
            return answer

        return looks_up

    broken = define(None)

    @workflow
    async def asks() -> int:
        return await broken()

    run = await lab.start(asks)
    await lab.idle()
    define(42)
    assert await run.return_value() == 42
    used = [event.data["version"] for event in await run.events() if event.type == "step_started"]
    assert len(set(used)) == 2


async def test_a_run_without_its_definition_waits_and_says_what_it_needs(lab: Lab) -> None:  # R12
    run = await lab.start(versions("await sleep('2h')\nreturn 'there'"))
    await lab.idle()
    await lab.shutdown()
    kept = catalogue._workflows.pop(("cell_of_test", "order"))
    async with reopened(lab) as again:
        again.clock.advance("3h")
        await again.idle()
        run = again.get_run(run.run_id)
        assert "'order'" in str(await run.blocked())
        assert await run.status() == "running"
        catalogue.add_workflow(kept[-1])
        assert await run.return_value() == "there"


async def test_each_end_is_told_by_return_value(lab: Lab) -> None:  # R13
    @workflow
    async def fails() -> None:
        raise LookupError("lost")

    @workflow
    async def waits() -> None:
        await create_hook("never")

    failed = await lab.start(fails)
    with pytest.raises(WorkflowRunFailedError) as failure:
        await failed.return_value()
    assert failure.value.run_id == failed.run_id
    assert failure.value.error_code == "USER_ERROR"
    assert isinstance(failure.value.__cause__, LookupError)
    assert await failed.status() == "failed"
    cancelled = await lab.start(waits)
    await cancelled.cancel("not needed")
    with pytest.raises(WorkflowRunCancelledError, match="not needed") as end:
        await cancelled.return_value()
    assert (end.value.run_id, end.value.reason) == (cancelled.run_id, "not needed")
    unknown = lab.get_run("wrun_unknown")
    assert not await unknown.exists()
    for ask in (unknown.status, unknown.return_value, unknown.cancel, unknown.wake_up, unknown.events, unknown.blocked):
        with pytest.raises(WorkflowRunNotFoundError) as missing:
            await ask()
        assert missing.value.run_id == "wrun_unknown"


async def test_waiting_for_a_result_can_be_limited(lab: Lab) -> None:  # R13
    @workflow
    async def waits() -> str:
        return str(await create_hook("later"))

    run = await lab.start(waits)
    with pytest.raises(TimeoutError):
        await run.return_value(timeout="1 day")
    assert await run.status() == "running"
    await lab.resume_hook("later", "came")
    assert await run.return_value(timeout=1) == "came"


async def test_cancelling_ends_a_run_with_its_steps_and_releases_its_tokens(lab: Lab) -> None:  # R14
    ended: list[str] = []
    running = asyncio.Event()

    @step
    async def hangs() -> None:
        try:
            running.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    @workflow
    async def body() -> None:
        hook = create_hook("mine")
        await hook.get_conflict()
        await hangs()

    run = await lab.start(body)
    await running.wait()
    await run.cancel()
    await lab.idle()
    await asyncio.sleep(0)
    assert ended == ["cancelled"]
    with pytest.raises(HookNotFoundError):
        await lab.get_hook_by_token("mine")
    before = await types_of(run)
    await run.cancel("again")
    assert await types_of(run) == before
    assert before[-1] == "run_cancelled"


async def test_cancelling_an_ended_run_changes_nothing(lab: Lab) -> None:  # R14
    @workflow
    async def quick() -> int:
        return 1

    run = await lab.start(quick)
    assert await run.return_value() == 1
    await run.cancel()
    assert await run.status() == "completed"
    assert (await types_of(run))[-1] == "run_completed"


async def test_start_and_the_accessors_of_a_run_are_durable_steps_in_a_workflow(lab: Lab) -> None:  # R15
    @workflow
    async def child(x: int) -> int:
        return await add(x, 1)

    @workflow
    async def parent() -> list[Any]:
        run = await start(child, [4])
        value = await run.return_value()
        again = get_run(run.run_id)
        return [run, value, await again.status(), await again.exists(), await get_run("wrun_no").exists()]

    run = await lab.start(parent)
    child_run, value, status, exists, other = await run.return_value()
    assert (value, status, exists, other) == (5, "completed", True, False)
    assert isinstance(child_run, Run)
    assert child_run.lab is lab
    names = [event.data["step"] for event in await run.events() if event.type == "step_created"]
    assert names == ["start", "Run.return_value", "Run.status", "Run.exists", "Run.exists"]
    assert (await lab.world.run(child_run.run_id)).parent_run_id == run.run_id


async def test_adopting_a_failed_runs_result_gives_its_failure_at_once(lab: Lab) -> None:  # R15
    @workflow
    async def fails() -> None:
        raise LookupError("child")

    @workflow
    async def parent() -> str:
        child = await start(fails)
        try:
            await child.return_value()
        except WorkflowRunFailedError as error:
            return f"{type(error.__cause__).__name__} {error.error_code}"
        return "not reached"

    run = await lab.start(parent)
    assert await run.return_value() == "LookupError USER_ERROR"
    assert (await entities(run))["step#2"] == ["step_created", "step_started", "step_failed"]


async def test_a_run_fails_when_its_log_grows_too_long(url: str) -> None:  # R16
    @workflow
    async def endless() -> None:
        while True:
            await add(1, 1)

    async with Lab(url, inline=True, max_events=50) as lab:
        run = await lab.start(endless)
        with pytest.raises(WorkflowRunFailedError) as failed:
            await run.return_value()
        assert failed.value.error_code == "MAX_EVENTS_EXCEEDED"
        assert len(await run.events()) <= 51


def test_the_limit_of_events_can_come_from_the_environment(url: str, monkeypatch: pytest.MonkeyPatch) -> None:  # R16
    assert Lab(url).max_events == 25_000
    monkeypatch.setenv("WFLAB_MAX_EVENTS", "77")
    assert Lab(url).max_events == 77


async def test_what_a_dropped_body_does_on_its_way_out_is_not_recorded(lab: Lab) -> None:  # R17
    ways_out: list[str] = []

    @step
    def cleans_up() -> None:
        ways_out.append("a step ran")

    @workflow
    async def body() -> str:
        with create_hook("held") as hook:
            try:
                return str(await hook)
            except asyncio.CancelledError:
                cleans_up()
                raise
            finally:
                try:
                    await cleans_up()
                finally:
                    cleans_up()

    run = await lab.start(body)
    await lab.idle()
    before = await types_of(run)
    await lab.shutdown()
    async with reopened(lab) as again:
        run = again.get_run(run.run_id)
        await again.idle()
        assert await types_of(run) == before
        assert ways_out == []
        assert (await again.get_hook_by_token("held")).run_id == run.run_id
        await again.resume_hook("held", "came")
        assert await run.return_value() == "came"
        assert ways_out == ["a step ran"]


async def test_a_workflow_may_know_what_it_is(lab: Lab) -> None:
    @workflow
    async def tells() -> list[Any]:
        me = get_workflow_metadata()
        await sleep("1h")
        return [me.workflow_name, me.run_id, me.started_at == get_workflow_metadata().started_at]

    run = await lab.start(tells)
    assert await run.return_value() == ["tells", run.run_id, True]
    with pytest.raises(RuntimeError):
        get_workflow_metadata()


async def test_what_cant_be_started_is_refused_before_anything_is_written(lab: Lab) -> None:  # bad input
    @workflow
    async def takes(a: int, *, b: int = 0) -> int:
        return a + b

    async def plain() -> None: ...

    for given in (plain, "takes", None, print):
        with pytest.raises(NotAWorkflowError):
            await lab.start(given)  # type: ignore[arg-type]
    for args, kwargs in (([], {}), ([1, 2], {}), ([1], {"c": 1}), ("1", {}), (5, {})):
        with pytest.raises(WorkflowArgumentsError, match="takes"):
            await lab.start(takes, args, kwargs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="spec_version"):
        await lab.start(takes, [1], spec_version=9)
    for hook in (
        {"token": ""},
        {"token": "x" * 513},
        {"token": "a\0b"},
        {"token": 5},
        {},
        {"token": "a", "min": 1},
        "t",
    ):
        with pytest.raises((ValueError, TypeError)):
            await lab.start(takes, [1], hook=hook)  # type: ignore[arg-type]
    for retention in ("-1s", "31 days", float("nan"), "soon", datetime(2030, 1, 1)):
        with pytest.raises(ValueError, match="duration"):
            await lab.start(takes, [1], hook=StartHook("t", min_retention=retention))
    with pytest.raises(TypeError, match="async"):
        workflow(lambda: None)  # type: ignore[type-var,arg-type,return-value]
    assert len(lab.runs()) == 0
    assert await (await lab.start(takes, [1], {"b": 2})).return_value() == 3
