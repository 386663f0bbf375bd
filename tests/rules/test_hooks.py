"""Hooks: R18 to R25."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.rules.helpers import entities, reopened, types_of
from wflab import (
    HookConflictError,
    HookDisposedError,
    HookForceClaimedError,
    HookNotFoundError,
    Lab,
    Run,
    WorkflowRunFailedError,
    create_hook,
    resume_hook,
    sleep,
    step,
    workflow,
)


@step
async def add(a: int, b: int) -> int:
    return a + b


@workflow
async def holder(token: str, retention: str | None = None, force: bool = False) -> Any:
    hook = create_hook(token, metadata={"of": token}, min_retention=retention, force=force)
    if (owner := await hook.get_conflict()) is not None:
        return {"owner": owner.run_id}
    return await hook


async def held(lab: Lab, *args: Any) -> Run[Any]:
    """A run that holds a token."""
    run = await lab.start(holder, list(args))
    await lab.idle()
    return run


async def test_a_token_belongs_to_one_hook_at_a_time(lab: Lab) -> None:  # R18, R20
    owner = await held(lab, "t")
    assert await (await lab.start(holder, ["t"])).return_value() == {"owner": owner.run_id}
    await lab.resume_hook("t", 1)
    assert await owner.return_value() == 1
    third = await held(lab, "t")
    assert (await lab.get_hook_by_token("t")).run_id == third.run_id


async def test_a_hook_without_a_token_gets_one_that_cant_be_guessed(lab: Lab) -> None:  # R18
    @workflow
    async def makes() -> list[str]:
        hooks = [create_hook(), create_hook()]
        first = await hooks[0].get_conflict()
        assert first is None
        await sleep("1h")
        return [hook.token for hook in hooks]

    run = await lab.start(makes)
    await lab.idle()
    await lab.shutdown()
    async with reopened(lab) as again:
        tokens = await again.get_run(run.run_id).return_value()
        others = await (await again.start(makes)).return_value()
    assert len({*tokens, *others}) == 4
    assert all(len(token) >= 21 for token in tokens)


async def test_creating_a_hook_registers_nothing_until_the_workflow_suspends(lab: Lab) -> None:  # R19
    seen: list[str] = []

    @step
    async def looks() -> None:
        seen.append((await lab.get_hook_by_token("late")).token)

    @workflow
    async def body() -> None:
        create_hook("late")
        await looks()

    run = await lab.start(body)
    await run.return_value()
    assert seen == ["late"]
    assert (await types_of(run))[2:5] == ["hook_created", "step_created", "step_started"]


async def test_steps_called_before_the_registration_start_alongside_it(lab: Lab) -> None:  # R19
    ran: list[str] = []

    @step
    async def acts() -> None:
        ran.append("acted")

    @workflow
    async def body() -> str:
        hook = create_hook("t")
        work = acts()
        conflict = await hook.get_conflict()
        await work
        return "owner" if conflict is None else "duplicate"

    owner = await held(lab, "t")
    run = await lab.start(body)
    assert await run.return_value() == "duplicate"
    assert ran == ["acted"]
    assert (await types_of(run))[2:5] == ["hook_conflict", "step_created", "step_started"]
    await owner.cancel()


async def test_get_conflict_gives_the_same_answer_each_time(lab: Lab) -> None:  # R20
    @workflow
    async def asks() -> list[Any]:
        hook = create_hook("t")
        answers = [await hook.get_conflict(), await hook.get_conflict()]
        await add(1, 1)
        answers.append(await hook.get_conflict())
        for wait in (hook.__anext__(), _await(hook)):
            with pytest.raises(HookConflictError) as refused:
                await wait
            answers.append((refused.value.token, refused.value.conflicting_run_id))
        return answers

    owner = await held(lab, "t")
    run = await lab.start(asks)
    answers = await run.return_value()
    assert answers == [owner, owner, owner, ("t", owner.run_id), ("t", owner.run_id)]
    conflict = next(event for event in await run.events() if event.type == "hook_conflict")
    assert conflict.data == {"token": "t", "conflicting_run_id": owner.run_id}


async def _await(hook: Any) -> Any:
    return await hook


async def test_a_conflict_that_nobody_catches_fails_the_run(lab: Lab) -> None:  # R20
    @workflow
    async def just_awaits() -> Any:
        return await create_hook("t")

    owner = await held(lab, "t")
    with pytest.raises(WorkflowRunFailedError) as failed:
        await (await lab.start(just_awaits)).return_value()
    assert isinstance(failed.value.__cause__, HookConflictError)
    assert failed.value.__cause__.conflicting_run_id == owner.run_id


async def test_the_second_hook_of_one_run_for_one_token_conflicts_with_its_own_run(lab: Lab) -> None:  # R20
    @workflow
    async def twice() -> list[Any]:
        first, second = create_hook("t"), create_hook("t")
        return [await first.get_conflict(), await second.get_conflict()]

    run = await lab.start(twice)
    assert await run.return_value() == [None, run]
    assert await entities(run) == {"hook#1": ["hook_created"], "hook#2": ["hook_conflict"]}


async def test_payloads_are_kept_and_arrive_in_order_each_once(lab: Lab) -> None:  # R21
    gate = asyncio.Event()
    started = asyncio.Event()

    @step
    async def slow() -> None:
        started.set()
        await gate.wait()

    @workflow
    async def body() -> list[Any]:
        hook = create_hook("t")
        await hook.get_conflict()
        await slow()
        got = [await hook, await hook]
        async for payload in hook:
            got.append(payload)
            if payload == "end":
                break
        return got

    run = await lab.start(body)
    await started.wait()
    for number in range(4):
        info = await lab.resume_hook("t", number)
        assert (info.run_id, info.token) == (run.run_id, "t")
        assert (await types_of(run)).count("hook_received") == number + 1
    gate.set()
    await lab.resume_hook("t", "end")
    assert await run.return_value() == [0, 1, 2, 3, "end"]


async def test_a_payload_that_comes_as_its_waiter_gives_up_is_not_lost(lab: Lab) -> None:  # R21
    @workflow
    async def body() -> list[Any]:
        hook = create_hook("t")
        got: list[Any] = []
        for _ in range(2):
            try:
                async with asyncio.timeout("10" and 10):
                    got.append(await hook)
            except TimeoutError:
                got.append("timeout")
        got.append(await hook)
        return got

    run = await lab.start(body)
    await lab.idle()
    lab.clock.advance(10)
    await lab.idle()
    await lab.resume_hook("t", "a")
    await lab.resume_hook("t", "b")
    assert await run.return_value() == ["timeout", "a", "b"]


async def test_several_waiters_get_one_payload_each(lab: Lab) -> None:  # R21
    @workflow
    async def body() -> list[Any]:
        hook = create_hook("t")
        return list(await asyncio.gather(_await(hook), _await(hook), _await(hook)))

    run = await lab.start(body)
    await lab.idle()
    for payload in "abc":
        await lab.resume_hook("t", payload)
    assert await run.return_value() == ["a", "b", "c"]


async def test_a_hook_that_nobody_holds_cant_be_resumed(lab: Lab) -> None:  # R22
    async def refused(token: str) -> None:
        with pytest.raises(HookNotFoundError) as missing:
            await lab.resume_hook(token, 1)
        assert missing.value.token == token

    await refused("unknown")
    run = await held(lab, "t", "1h")
    await lab.resume_hook("t", 1)
    await run.return_value()
    await refused("t")  # also while retained
    assert (await lab.get_hook_by_token("t")).run_id == run.run_id


@pytest.mark.parametrize("token", ["", "x" * 513, "a\0b", 5, None])
async def test_a_token_that_cant_be_one_is_refused_at_the_call(lab: Lab, token: Any) -> None:  # bad input
    for call in (lab.resume_hook, lab.get_hook_by_token):
        with pytest.raises(ValueError, match="token"):
            await call(token)


@pytest.mark.parametrize("token", ["x" * 512, "naïve ключ 🔑", " ", "'; drop table tokens; --", "a\nb"])
async def test_any_text_can_be_a_token(lab: Lab, token: str) -> None:
    run = await held(lab, token)
    assert (await lab.get_hook_by_token(token)).token == token
    await lab.resume_hook(token, token)
    assert await run.return_value() == token


@workflow
async def disposer(how: str) -> Any:
    if how == "with":
        with create_hook("t", min_retention="1h") as hook:
            await hook
    else:
        hook = create_hook("t", min_retention="1h")
        await hook
        hook.dispose()
        hook.dispose()
    left = [payload async for payload in hook]
    try:
        await hook
    except HookDisposedError as error:
        left.append(error.token)
    await sleep("1h")
    return left


@pytest.mark.parametrize("how", ["with", "dispose"])
async def test_disposing_releases_the_token_at_once(lab: Lab, how: str) -> None:  # R23
    run = await lab.start(disposer, [how])
    await lab.idle()
    await lab.resume_hook("t", 1)
    await lab.idle()
    for call in (lab.get_hook_by_token("t"), lab.resume_hook("t", 2)):
        with pytest.raises(HookNotFoundError):
            await call
    other = await held(lab, "t")
    assert (await lab.get_hook_by_token("t")).run_id == other.run_id
    assert await run.return_value() == ["t"]
    assert (await entities(run))["hook#1"] == ["hook_created", "hook_received", "hook_disposed"]


async def test_disposing_wakes_who_waits_for_the_hook(lab: Lab) -> None:  # R23
    @workflow
    async def body() -> list[Any]:
        hook = create_hook("t")

        async def iterate() -> list[Any]:
            return [payload async for payload in hook]

        async def wait() -> str:
            try:
                return str(await hook)
            except HookDisposedError:
                return "disposed"

        tasks = [asyncio.create_task(iterate()), asyncio.create_task(wait())]
        await add(1, 1)
        hook.dispose()
        return list(await asyncio.gather(*tasks))

    assert await (await lab.start(body)).return_value() == [[], "disposed"]


async def test_a_run_may_create_a_disposed_token_anew(lab: Lab) -> None:  # R23
    @workflow
    async def again() -> Any:
        with create_hook("t"):
            pass
        hook = create_hook("t")
        assert await hook.get_conflict() is None
        return await hook

    run = await lab.start(again)
    await lab.idle()
    await lab.resume_hook("t", "second")
    assert await run.return_value() == "second"
    assert await entities(run) == {
        "hook#1": ["hook_created", "hook_disposed"],
        "hook#2": ["hook_created", "hook_received"],
    }


async def test_a_conflicted_hook_has_nothing_to_dispose(lab: Lab) -> None:  # R20, R23
    @workflow
    async def body() -> str:
        with create_hook("t") as hook:
            if await hook.get_conflict():
                return "duplicate"
        return "owner"

    @workflow
    async def hasty() -> str:
        with create_hook("t"):
            pass
        await add(1, 1)
        return "done"

    await held(lab, "t")
    for fn in (body, hasty):
        run = await lab.start(fn)
        await run.return_value()
        assert (await entities(run))["hook#1"] == ["hook_conflict"]


async def test_a_retention_holds_the_token_after_the_run(lab: Lab) -> None:  # R24
    owner = await held(lab, "t", "2h")
    lab.clock.advance("1h")
    await lab.resume_hook("t", 1)
    await owner.return_value()
    info = await lab.get_hook_by_token("t")
    assert (info.run_id, info.metadata) == (owner.run_id, {"of": "t"})
    assert info.retained_until == info.created_at + timedelta(hours=2)
    assert await (await lab.start(holder, ["t"])).return_value() == {"owner": owner.run_id}
    lab.clock.advance(timedelta(minutes=59, seconds=59))
    assert await (await lab.start(holder, ["t"])).return_value() == {"owner": owner.run_id}
    lab.clock.advance(1)
    with pytest.raises(HookNotFoundError):
        await lab.get_hook_by_token("t")
    second = await held(lab, "t")
    assert (await lab.get_hook_by_token("t")).run_id == second.run_id


@pytest.mark.parametrize("end", ["fail", "cancel"])
async def test_a_retention_holds_however_the_run_ends(lab: Lab, end: str) -> None:  # R24, R14
    @workflow
    async def ends_badly() -> None:
        await create_hook("t", min_retention="1h")
        raise ValueError

    run = await lab.start(ends_badly)
    await lab.idle()
    await (run.cancel() if end == "cancel" else lab.resume_hook("t"))
    await lab.idle()
    assert await run.status() in ("failed", "cancelled")
    assert await (await lab.start(holder, ["t"])).return_value() == {"owner": run.run_id}
    lab.clock.advance("1h")
    await held(lab, "t")
    assert (await lab.get_hook_by_token("t")).run_id != run.run_id


async def test_a_run_that_outlives_its_retention_releases_at_its_end(lab: Lab) -> None:  # R24
    owner = await held(lab, "t", "1s")
    lab.clock.advance("1h")
    assert await (await lab.start(holder, ["t"])).return_value() == {"owner": owner.run_id}
    await lab.resume_hook("t", 1)
    await owner.return_value()
    with pytest.raises(HookNotFoundError):
        await lab.get_hook_by_token("t")


async def test_a_retention_has_a_limit(url: str, lab: Lab) -> None:  # R24
    run = await lab.start(holder, ["t", "31 days"])
    with pytest.raises(WorkflowRunFailedError) as failed:
        await run.return_value()
    assert isinstance(failed.value.__cause__, ValueError)
    assert "30 days" in str(failed.value.__cause__)
    async with Lab(url, inline=True, clock=lab.clock, max_retention="60 days") as patient:
        await held(patient, "u", "31 days")
        assert (await patient.get_hook_by_token("u")).retained_until == patient.clock.now() + timedelta(days=31)


@workflow
async def newest(token: str) -> Any:
    hook = create_hook(token, force=True)
    got = []
    try:
        async for payload in hook:
            got.append(payload)
    except HookForceClaimedError as error:
        return {"superseded by": error.claimed_by_run_id, "token": error.token, "got": got}
    return got


async def test_force_takes_the_token_from_an_active_owner(lab: Lab) -> None:  # R25
    first = await lab.start(newest, ["t"])
    await lab.idle()
    await lab.resume_hook("t", "early")
    second = await lab.start(newest, ["t"])
    await lab.idle()
    assert await first.return_value() == {"superseded by": second.run_id, "token": "t", "got": ["early"]}
    assert (await lab.resume_hook("t", "late")).run_id == second.run_id
    disposed = next(event for event in await first.events() if event.type == "hook_disposed")
    created = next(event for event in await second.events() if event.type == "hook_created")
    assert disposed.data["force_claimed_by"] == second.run_id
    assert created.data["force_claimed_from"] == first.run_id


async def test_payloads_received_before_a_take_over_stay_with_the_former_owner(lab: Lab) -> None:  # R25
    gate, started = asyncio.Event(), asyncio.Event()

    @step
    async def slow() -> None:
        started.set()
        await gate.wait()

    @workflow
    async def former() -> list[Any]:
        hook = create_hook("t")
        await hook.get_conflict()
        await slow()
        got = [await hook]
        try:
            await hook
        except HookForceClaimedError as error:
            got.append(error.claimed_by_run_id)
        return got

    run = await lab.start(former)
    await started.wait()
    await lab.resume_hook("t", "mine")
    taker = await lab.start(newest, ["t"])
    while (await lab.get_hook_by_token("t")).run_id != taker.run_id:
        await asyncio.sleep(0)
    gate.set()
    assert await run.return_value() == ["mine", taker.run_id]


async def test_concurrent_claimers_queue_up_and_none_is_stranded(lab: Lab) -> None:  # R25
    runs = [await lab.start(newest, ["t"]) for _ in range(6)]
    await lab.idle()
    last = (await lab.get_hook_by_token("t")).run_id
    chain = {}
    for run in runs:
        if run.run_id != last:
            chain[run.run_id] = (await run.return_value())["superseded by"]
    reached, at = 0, next(run.run_id for run in runs if run.run_id not in chain.values())
    while at in chain:
        at, reached = chain[at], reached + 1
    assert (at, reached) == (last, 5)


async def test_force_takes_the_token_from_an_ended_owner_that_retains_it(lab: Lab) -> None:  # R25
    owner = await held(lab, "t", "1h")
    await lab.resume_hook("t", 1)
    await owner.return_value()
    taker = await held(lab, "t", None, True)
    assert (await lab.resume_hook("t", 2)).run_id == taker.run_id
    assert await taker.return_value() == 2
    assert await owner.return_value() == 1


async def test_force_on_a_free_token_just_claims_it(lab: Lab) -> None:  # R25
    run = await held(lab, "t", None, True)
    created = next(event for event in await run.events() if event.type == "hook_created")
    assert "force_claimed_from" not in created.data


async def test_an_owner_of_an_older_spec_version_cant_be_taken_from(lab: Lab) -> None:  # R25
    owner = await lab.start(holder, ["t"], spec_version=7)
    await lab.idle()
    assert (await lab.get_hook_by_token("t")).spec_version == 7
    taker = await lab.start(newest, ["t"])
    with pytest.raises(WorkflowRunFailedError) as failed:
        await taker.return_value()
    assert isinstance(failed.value.__cause__, HookConflictError)
    assert failed.value.__cause__.conflicting_run_id == owner.run_id


async def test_a_run_may_take_over_from_itself(lab: Lab) -> None:  # R25
    @workflow
    async def body() -> list[Any]:
        first = create_hook("t")
        await first.get_conflict()
        second = create_hook("t", force=True)
        conflict = await second.get_conflict()
        try:
            await first
        except HookForceClaimedError as error:
            return [conflict, error.claimed_by_run_id, await second]
        return []

    run = await lab.start(body)
    await lab.idle()
    await lab.resume_hook("t", "x")
    assert await run.return_value() == [None, run.run_id, "x"]
    positions = [event.position for event in await run.events()]
    assert positions == list(range(1, len(positions) + 1))


async def test_hooks_can_be_used_from_steps(lab: Lab) -> None:  # R15, R21
    @step
    async def forward(token: str, payload: Any) -> str:
        return (await resume_hook(token, payload)).run_id

    @workflow
    async def sender() -> str:
        return await forward("t", "from a step")

    owner = await held(lab, "t")
    assert await (await lab.start(sender)).return_value() == owner.run_id
    assert await owner.return_value() == "from a step"


async def test_waking_up_ends_sleeps_and_not_deadlines(lab: Lab) -> None:
    @workflow
    async def body() -> list[str]:
        async with asyncio.timeout(7200):
            await asyncio.gather(sleep("1h"), asyncio.sleep(3600))
        return ["woke"]

    run = await lab.start(body)
    await lab.idle()
    assert await run.wake_up(["wait_unknown"]) == 0
    assert await run.wake_up() == 2
    assert await run.return_value() == ["woke"]
    assert await run.wake_up() == 0
    woken = [event.data for event in await run.events() if event.type == "wait_completed"]
    assert woken == [{"woken": True}, {"woken": True}, {"cancelled": True}]


async def test_a_hook_belongs_to_its_workflows_body(lab: Lab) -> None:
    kept: list[Any] = []

    @workflow
    async def leaks() -> None:
        kept.append(create_hook("t"))
        await kept[0]

    await lab.start(leaks)
    await lab.idle()
    for use in (lambda: kept[0].dispose(), lambda: kept[0].__await__().send(None)):
        with pytest.raises(RuntimeError, match="workflow"):
            use()
    with pytest.raises(RuntimeError, match="workflow"):
        create_hook("outside")
