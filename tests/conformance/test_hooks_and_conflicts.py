"""The recorded scenarios of hooks, conflicts and retention."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conformance.recorded import RECORDED, assert_as_recorded
from wflab import (
    HookConflictError,
    HookDisposedError,
    HookNotFoundError,
    Lab,
    Run,
    WorkflowRunCancelledError,
    WorkflowRunFailedError,
    create_hook,
    sleep,
    step,
    workflow,
)


@step
async def add(a: int, b: int) -> int:
    return a + b


gates: dict[str, asyncio.Event] = {}


@step
async def slow(name: str) -> str:
    """A step that goes on when the test opens its gate, and tells when it has begun."""
    gates.setdefault(f"{name} begun", asyncio.Event()).set()
    await gates.setdefault(name, asyncio.Event()).wait()
    return "slow"


async def begun(name: str) -> None:
    await gates.setdefault(f"{name} begun", asyncio.Event()).wait()


@pytest.fixture(autouse=True)
def fresh_gates() -> None:
    gates.clear()


@workflow
async def waits(token: str, metadata: Any = None) -> Any:
    return await create_hook(token, metadata=metadata)


@workflow
async def checks(token: str) -> Any:
    """What conflictCheck and retention do: ask twice, then await, and report."""
    hook = create_hook(token)
    conflict, again = await hook.get_conflict(), await hook.get_conflict()
    if conflict is None:
        return {"conflict": None, "v": await add(4, 6)}
    try:
        await hook
    except HookConflictError as error:
        return {
            "conflict": conflict.run_id,
            "again": again.run_id,
            "name": type(error).__name__,
            "token": error.token,
            "owner": error.conflicting_run_id,
        }
    return {}


async def held(lab: Lab, token: str, *more: Any) -> Run[Any]:
    run = await lab.start(waits, [token, *more])
    await lab.idle()
    return run


async def refused(lab: Lab, token: str) -> None:
    with pytest.raises(HookNotFoundError) as missing:
        await lab.resume_hook(token, 1)
    assert missing.value.token == token


async def test_hook_once(lab: Lab) -> None:
    run = await held(lab, "t1", {"who": "a"})
    assert (await lab.get_hook_by_token("t1")).metadata == {"who": "a"}
    info = await lab.resume_hook("t1", {"a": 1})
    assert (info.run_id, info.token) == (run.run_id, "t1")
    assert await run.return_value() == {"a": 1}
    await refused(lab, "t1")
    with pytest.raises(HookNotFoundError):
        await lab.get_hook_by_token("t1")
    await assert_as_recorded("hookOnce", run)


async def test_hook_many(lab: Lab) -> None:
    @workflow
    async def collects() -> list[Any]:
        got = []
        async for payload in create_hook("t2"):
            got.append(payload)
            if payload["done"]:
                break
        return got

    run = await lab.start(collects)
    await lab.idle()
    sent = [{"i": number, "done": number == 2} for number in range(3)]
    for payload in sent:
        await lab.resume_hook("t2", payload)
    assert await run.return_value() == sent
    await assert_as_recorded("hookMany", run)


async def test_hook_slow(lab: Lab) -> None:
    @workflow
    async def body() -> list[Any]:
        hook = create_hook("t3")
        await hook.get_conflict()
        await slow("t3")
        return [await hook, await hook]

    run = await lab.start(body)
    await begun("t3")
    await lab.resume_hook("t3", "p1")
    await lab.resume_hook("t3", "p2")
    gates["t3"].set()
    assert await run.return_value() == ["p1", "p2"]
    await assert_as_recorded("hookSlow", run)


async def test_hook_dispose(lab: Lab) -> None:
    @workflow
    async def body() -> str:
        with create_hook("t4") as hook:
            await hook
        await slow("t4")
        return "after"

    run = await lab.start(body)
    await lab.idle()
    await lab.resume_hook("t4", "first")
    await begun("t4")
    second = await lab.start(waits, ["t4"])
    while not await _holds(lab, "t4"):
        await asyncio.sleep(0)
    assert (await lab.resume_hook("t4", "second")).run_id == second.run_id
    assert await second.return_value() == "second"
    gates["t4"].set()
    assert await run.return_value() == "after"
    await assert_as_recorded("hookDispose", run, second)


async def _holds(lab: Lab, token: str) -> bool:
    try:
        await lab.get_hook_by_token(token)
    except HookNotFoundError:
        return False
    return True


async def test_hook_dispose_then_await_differs_it_raises(lab: Lab) -> None:
    @workflow
    async def body() -> str:
        hook = create_hook("t5")
        await hook
        hook.dispose()
        await add(1, 1)
        try:
            async with asyncio.timeout(0.5):
                await hook
        except HookDisposedError:
            await sleep("500ms")
            return "raised"
        return "hung"

    run = await lab.start(body)
    await lab.idle()
    await lab.resume_hook("t5", 1)
    assert await run.return_value() == "raised"
    # The race's own timer is closed at once; the sleep stands for the record's.
    differs = {
        "wait#1": ["wait_created", "wait_completed"],
        "wait#2": RECORDED["hookDisposeThenAwait"]["runs"][0]["entities"]["wait#1"],
    }
    await assert_as_recorded("hookDisposeThenAwait", run, differs=differs)


async def test_recreate(lab: Lab) -> None:
    @workflow
    async def body() -> Any:
        hook = create_hook("t6")
        await hook
        hook.dispose()
        await add(1, 1)
        return await create_hook("t6")

    run = await lab.start(body)
    await lab.idle()
    await lab.resume_hook("t6", 1)
    await lab.idle()
    await lab.resume_hook("t6", 2)
    assert await run.return_value() == 2
    await assert_as_recorded("recreate", run)


async def test_two_hooks_same_token(lab: Lab) -> None:
    @workflow
    async def body() -> list[Any]:
        first, second = create_hook("t7"), create_hook("t7")
        return [await first.get_conflict(), await second.get_conflict()]

    run = await lab.start(body)
    assert await run.return_value() == [None, run]
    await assert_as_recorded("twoHooksSameToken", run)


async def test_hook_iter_after_dispose(lab: Lab) -> None:
    @workflow
    async def body() -> list[Any]:
        hook = create_hook("t8")
        await hook
        hook.dispose()
        await add(1, 1)
        return [payload async for payload in hook]

    run = await lab.start(body)
    await lab.idle()
    await lab.resume_hook("t8", 1)
    assert await run.return_value() == []
    await assert_as_recorded("hookIterAfterDispose", run)


async def test_cancel_hook(lab: Lab) -> None:
    run = await held(lab, "t9")
    await run.cancel()
    with pytest.raises(WorkflowRunCancelledError):
        await run.return_value()
    await refused(lab, "t9")
    await assert_as_recorded("cancelHook", run)


async def test_conflict_check(lab: Lab) -> None:
    owner = await held(lab, "c1")
    duplicate = await lab.start(checks, ["c1"])
    told = await duplicate.return_value()
    name, id_ = "HookConflictError", owner.run_id
    assert told == {"conflict": id_, "again": id_, "name": name, "token": "c1", "owner": id_}
    await lab.resume_hook("c1", "x")
    assert await owner.return_value() == "x"
    await assert_as_recorded("conflictCheck", owner, duplicate)


async def test_conflict_status(lab: Lab) -> None:
    @workflow
    async def inspects() -> dict[str, Any]:
        conflict = await create_hook("c2").get_conflict()
        return {"status": await conflict.status(), "dup": conflict.run_id}

    owner = await held(lab, "c2")
    duplicate = await lab.start(inspects)
    assert await duplicate.return_value() == {"status": "running", "dup": owner.run_id}
    await lab.resume_hook("c2", "x")
    assert await owner.return_value() == "x"
    await assert_as_recorded("conflictStatus", owner, duplicate)


async def test_conflict_adopt(lab: Lab) -> None:
    @workflow
    async def adopts() -> dict[str, Any]:
        conflict = await create_hook("c3").get_conflict()
        return {"adopted": await conflict.return_value()}

    owner = await held(lab, "c3")
    duplicate = await lab.start(adopts)
    await lab.idle()
    assert await duplicate.status() == "running"
    await lab.resume_hook("c3", "x")
    assert await duplicate.return_value() == {"adopted": "x"}
    await assert_as_recorded("conflictAdopt", owner, duplicate)


@workflow
async def step_before(token: str) -> dict[str, Any]:
    hook = create_hook(token)
    work = add(4, 6)
    conflict = await hook.get_conflict()
    return {"conflict": None if conflict is None else conflict.run_id, "v": await work}


async def test_step_before_conflict(lab: Lab) -> None:
    owner = await held(lab, "c4")
    duplicate = await lab.start(step_before, ["c4"])
    assert await duplicate.return_value() == {"conflict": owner.run_id, "v": 10}
    await lab.resume_hook("c4", "x")
    assert await owner.return_value() == "x"
    await assert_as_recorded("stepBeforeConflict", owner, duplicate)


async def test_step_before_free(lab: Lab) -> None:
    run = await lab.start(step_before, ["c5"])
    assert await run.return_value() == {"conflict": None, "v": 10}
    await assert_as_recorded("stepBeforeFree", run)


async def test_conflict_uncaught(lab: Lab) -> None:
    owner = await held(lab, "c6")
    duplicate = await lab.start(waits, ["c6"])
    with pytest.raises(WorkflowRunFailedError) as failed:
        await duplicate.return_value()
    assert failed.value.error_code == "USER_ERROR"
    assert isinstance(failed.value.__cause__, HookConflictError)
    await lab.resume_hook("c6", "x")
    assert await owner.return_value() == "x"
    await assert_as_recorded("conflictUncaught", owner, duplicate)


async def test_retention(lab: Lab) -> None:
    @workflow
    async def keeps() -> str:
        await create_hook("r1", metadata={"m": 1}, min_retention="3s").get_conflict()
        return "kept"

    owner = await lab.start(keeps)
    assert await owner.return_value() == "kept"
    info = await lab.get_hook_by_token("r1")
    assert (info.run_id, info.metadata) == (owner.run_id, {"m": 1})
    assert info.retained_until is not None
    await refused(lab, "r1")
    duplicate = await lab.start(checks, ["r1"])
    assert (await duplicate.return_value())["owner"] == owner.run_id
    lab.clock.advance("3.5s")
    with pytest.raises(HookNotFoundError):
        await lab.get_hook_by_token("r1")
    afterwards = await lab.start(checks, ["r1"])
    assert await afterwards.return_value() == {"conflict": None, "v": 10}
    await assert_as_recorded("retention", owner, duplicate, afterwards)


async def test_retention_using(lab: Lab) -> None:
    @workflow
    async def body() -> str:
        with create_hook("r2", min_retention="1m") as hook:
            await hook.get_conflict()
            return "released"

    run = await lab.start(body)
    assert await run.return_value() == "released"
    with pytest.raises(HookNotFoundError):
        await lab.get_hook_by_token("r2")
    await assert_as_recorded("retentionUsing", run)


def test_every_recorded_scenario_has_its_test() -> None:
    from tests.conformance import test_steps_and_runs as others

    names = {name.lower().replace("_", "") for module in (globals(), vars(others)) for name in module}
    for scenario in RECORDED:
        found = f"test{scenario.lower()}"
        assert any(name.startswith(found) for name in names), scenario
