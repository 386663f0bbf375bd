"""Start hooks: R26 to R34."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.rules.helpers import types_of
from wflab import (
    HookConflictError,
    HookNotFoundError,
    Lab,
    Run,
    StartHook,
    WorkflowRunFailedError,
    WorkflowStartError,
    create_hook,
    sleep,
    start,
    step,
    workflow,
)
from wflab.world.protocol import Admission, Candidate, Capabilities, OutcomeUnknownError
from wflab.world.sqlite import SqliteWorld

ran: list[str] = []


@step
async def record(order: str, note: str) -> str:
    ran.append(f"{order} {note}")
    return note


@workflow
async def process_order(order: str, note: str = "") -> list[str]:
    notes = [await record(order, note)]
    async for update in create_hook(f"order:{order}"):
        notes.append(await record(order, update["note"]))
        if update.get("done"):
            break
    return notes


@workflow
async def quick(x: Any = None) -> Any:
    return x


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def test_of_concurrent_starts_one_owns_the_token_and_the_others_name_it(real_lab: Lab) -> None:  # R26
    async def call() -> Any:
        try:
            return await real_lab.start(process_order, ["1", "first"], hook=StartHook("order:1"))
        except HookConflictError as refused:
            return refused

    outcomes = await asyncio.gather(*(call() for _ in range(20)))
    started = [item for item in outcomes if isinstance(item, Run)]
    refused = [item for item in outcomes if isinstance(item, HookConflictError)]
    assert (len(started), len(refused)) == (1, 19)
    assert {item.conflicting_run_id for item in refused} == {started[0].run_id}
    assert {item.token for item in refused} == {"order:1"}
    assert len(real_lab.runs()) == 1
    await real_lab.resume_hook("order:1", {"note": "end", "done": True})
    assert await started[0].return_value(timeout=20) == ["first", "end"]
    assert ran == ["1 first", "1 end"]


async def test_a_refused_start_leaves_no_run_no_event_and_is_noted_on_the_token(lab: Lab) -> None:  # R26
    owner = await lab.start(process_order, ["1"], hook={"token": "order:1"})
    await lab.idle()
    before = await types_of(owner)
    for number in range(150):
        with pytest.raises(HookConflictError):
            await lab.start(process_order, ["1"] if number % 2 else ["2"], hook=StartHook("order:1"))
    await lab.idle()
    assert await types_of(owner) == before
    assert len(lab.runs()) == 1
    assert ran == ["1 "]
    row = next(hook for hook in lab.hooks() if hook.token == "order:1")
    assert row.refused == 150
    assert len(row.refusals) == 100
    assert {note.same_input for note in row.refusals} == {True, False}


async def test_the_start_hook_can_be_resumed_before_the_first_instruction(url: str) -> None:  # R27, R28
    async with Lab(url, inline=True) as lab:
        run = await lab.start(process_order, ["7", "start"], hook=StartHook("order:7"))
        await lab.resume_hook("order:7", {"note": "a"})
        await lab.resume_hook("order:7", {"note": "b", "done": True})
        assert "run_started" not in await types_of(run)
        assert await run.return_value() == ["start", "a", "b"]
        types = await types_of(run)
        assert types[:4] == ["run_created", "hook_created", "hook_received", "hook_received"]
        assert types.count("hook_created") == 1


async def test_the_handle_of_the_start_hook_records_nothing_and_has_no_conflict(lab: Lab) -> None:  # R28
    @workflow
    async def opens() -> Any:
        hook = create_hook("mine")
        return [await hook.get_conflict(), hook.token]

    run = await lab.start(opens, hook=StartHook("mine"))
    assert await run.return_value() == [None, "mine"]
    assert await types_of(run) == ["run_created", "hook_created", "run_started", "run_completed"]


@pytest.mark.parametrize("option", [{"metadata": 1}, {"min_retention": "1h"}, {"is_webhook": True}, {"force": True}])
async def test_the_handle_of_the_start_hook_takes_no_options(lab: Lab, option: dict[str, Any]) -> None:  # R28
    @workflow
    async def opens() -> None:
        create_hook("mine", **option)

    with pytest.raises(WorkflowRunFailedError) as failed:
        await (await lab.start(opens, hook=StartHook("mine"))).return_value()
    assert type(failed.value.__cause__) is ValueError
    assert next(iter(option)) in str(failed.value.__cause__)


async def test_a_start_hook_that_is_never_opened_is_just_a_key(lab: Lab) -> None:  # R28
    run = await lab.start(quick, [1], hook=StartHook("key"))
    await lab.resume_hook("key", "unread")
    assert await run.return_value() == 1
    assert (await lab.start(quick, [2], hook=StartHook("key"))).run_id != run.run_id


async def test_a_disposed_start_hook_may_be_created_anew_unless_another_run_has_it(lab: Lab) -> None:  # R29
    gate, there = asyncio.Event(), asyncio.Event()

    @step
    async def pause() -> None:
        there.set()
        await gate.wait()

    @workflow
    async def body(waits: bool) -> Any:
        with create_hook("key"):
            pass
        if waits:
            await pause()
        hook = create_hook("key", metadata="a new one")
        return await hook.get_conflict()

    first = await lab.start(body, [False], hook=StartHook("key", min_retention="1h"))
    assert await first.return_value() is None
    second = await lab.start(body, [True], hook=StartHook("key", min_retention="1h"))
    await there.wait()
    other = await lab.start(process_order, ["x"], hook=StartHook("key"))
    gate.set()
    assert await second.return_value() == other


async def test_a_finished_owner_keeps_refusing_until_its_retention_has_passed(lab: Lab) -> None:  # R24, R30
    owner = await lab.start(quick, ["42"], hook=StartHook("order:42", min_retention="30 days", metadata={"o": 42}))
    assert await owner.return_value() == "42"
    with pytest.raises(HookConflictError) as refused:
        await lab.start(quick, ["42"], hook=StartHook("order:42"))
    assert refused.value.conflicting_run_id == owner.run_id
    assert await lab.get_run(refused.value.conflicting_run_id).return_value() == "42"
    info = await lab.get_hook_by_token("order:42")
    assert (info.metadata, info.is_start_hook, info.run_id) == ({"o": 42}, True, owner.run_id)
    with pytest.raises(HookNotFoundError):
        await lab.resume_hook("order:42", 1)
    lab.clock.advance(days=30)
    second = await lab.start(quick, ["42"], hook=StartHook("order:42"))
    assert second.run_id != owner.run_id


async def test_a_living_run_owns_its_token_past_the_retention(lab: Lab) -> None:  # R30
    owner = await lab.start(process_order, ["1"], hook=StartHook("order:1", min_retention=timedelta(hours=1)))
    await lab.idle()
    lab.clock.advance("2h")
    with pytest.raises(HookConflictError):
        await lab.start(quick, hook=StartHook("order:1"))
    await owner.cancel()
    await lab.start(quick, hook=StartHook("order:1"))


async def test_a_cancelled_owner_releases_once_the_retention_has_passed(lab: Lab) -> None:  # R30
    owner = await lab.start(process_order, ["1"], hook=StartHook("order:1", min_retention="1h"))
    await owner.cancel()
    with pytest.raises(HookConflictError) as refused:
        await lab.start(quick, hook=StartHook("order:1"))
    assert refused.value.conflicting_run_id == owner.run_id
    lab.clock.advance("1h")
    await lab.start(quick, hook=StartHook("order:1"))


class Unreliable(SqliteWorld):
    """Loses the reply to the next admissions, after or before they are written."""

    lose_after = 0
    lose_before = 0

    async def admit(self, candidate: Candidate) -> Admission:
        if self.lose_before:
            self.lose_before -= 1
            raise OutcomeUnknownError
        admission = await super().admit(candidate)
        if self.lose_after:
            self.lose_after -= 1
            raise OutcomeUnknownError
        return admission


async def test_a_start_that_cant_be_confirmed_is_unknown_and_safe_to_repeat(url: str) -> None:  # R31
    world = Unreliable(url)
    async with Lab(world, inline=True) as lab:
        for fault, is_in in (("lose_after", True), ("lose_before", False)):
            setattr(world, fault, 1)
            with pytest.raises(WorkflowStartError) as unknown:
                await lab.start(quick, [fault], hook=StartHook(fault, min_retention="1h"))
            assert unknown.value.token == fault
            candidate = lab.get_run(unknown.value.run_id)
            assert await candidate.exists() is is_in
            if is_in:
                with pytest.raises(HookConflictError) as refused:
                    await lab.start(quick, [fault], hook=StartHook(fault))
                assert refused.value.conflicting_run_id == candidate.run_id
            else:
                assert await (await lab.start(quick, [fault], hook=StartHook(fault))).return_value() == fault


async def test_in_a_workflow_a_start_that_cant_be_confirmed_repeats_itself(url: str) -> None:  # R31
    @workflow
    async def parent() -> Any:
        child = await start(quick, [5], hook=StartHook("child", min_retention="1h"))
        return [child.run_id, await child.return_value()]

    world = Unreliable(url)
    async with Lab(world, inline=True) as lab:
        run = await lab.start(parent)
        world.lose_before, world.lose_after = 1, 1
        child_id, value = await run.return_value()
        assert value == 5
        assert {row.run_id for row in lab.runs()} == {child_id, run.run_id}


@pytest.mark.parametrize(
    ("able", "retention", "missing"),
    [
        (Capabilities(False, True, True), None, "atomic_start_hook"),
        (Capabilities(True, False, True), "1h", "hook_retention"),
    ],
)
async def test_a_world_that_cant_do_it_refuses_before_anything_is_written(
    url: str, able: Capabilities, retention: str | None, missing: str
) -> None:  # R32
    from wflab import WorldCapabilityError

    world = SqliteWorld(url)
    world.capabilities = able  # type: ignore[misc]
    async with Lab(world, inline=True) as lab:
        with pytest.raises(WorldCapabilityError) as refused:
            await lab.start(quick, hook=StartHook("t", min_retention=retention))
        assert refused.value.capability == missing
        assert len(lab.runs()) == 0
        await lab.start(quick)


async def test_this_world_can_do_all_of_it(lab: Lab) -> None:  # R32
    assert lab.world.capabilities == Capabilities(True, True, True)


@pytest.mark.parametrize(
    ("args", "kwargs", "same"),
    [
        ([{"a": 1, "b": {2, 3}}], {}, True),
        ([{"b": {3, 2}, "a": 1}], {}, True),
        ([], {"x": {"a": 1, "b": {2, 3}}}, True),
        ([{"a": 1, "b": {2}}], {}, False),
        ([{"a": True, "b": {2, 3}}], {}, False),
        ([], {}, False),
    ],
)
async def test_a_refused_start_tells_whether_its_input_was_the_owners(
    lab: Lab, args: list[Any], kwargs: dict[str, Any], same: bool
) -> None:  # R33
    await lab.start(quick, [{"a": 1, "b": {2, 3}}], hook=StartHook("t", min_retention="1h"))
    with pytest.raises(HookConflictError) as refused:
        await lab.start(quick, args, kwargs, hook=StartHook("t"))
    assert refused.value.same_input is same


async def start_or_route(lab: Lab, order: str, note: str) -> tuple[str, str]:
    """The loop of the seed."""
    token, owner = f"order:{order}", ""
    for _ in range(3):
        try:
            return "started", (await lab.start(process_order, [order, note], hook=StartHook(token))).run_id
        except HookConflictError as conflict:
            owner = conflict.conflicting_run_id
        try:
            return "delivered", (await lab.resume_hook(token, {"note": note})).run_id
        except HookNotFoundError:
            continue
    return "held", owner


async def test_start_or_route_starts_or_delivers_or_tells_who_holds_the_token(real_lab: Lab) -> None:  # R34
    outcomes = await asyncio.gather(*(start_or_route(real_lab, "9", f"n{number}") for number in range(12)))
    assert sorted(kind for kind, _ in outcomes) == ["delivered"] * 11 + ["started"]
    assert len({run_id for _, run_id in outcomes}) == 1
    run = real_lab.get_run(outcomes[0][1])
    await real_lab.resume_hook("order:9", {"note": "end", "done": True})
    notes = await run.return_value(timeout=20)
    assert sorted(notes) == sorted([*(f"n{number}" for number in range(12)), "end"])


async def test_start_or_route_names_a_finished_owner_that_retains_its_token(lab: Lab) -> None:  # R34
    owner = await lab.start(quick, hook=StartHook("order:3", min_retention="1h"))
    await owner.return_value()
    assert await start_or_route(lab, "3", "late") == ("held", owner.run_id)


async def test_a_child_started_by_a_step_knows_its_parent(lab: Lab) -> None:
    @step
    async def starts() -> str:
        return (await start(quick, [1])).run_id

    @workflow
    async def parent() -> str:
        child = await starts()
        await sleep(1)
        return child

    run = await lab.start(parent)
    child = await run.return_value()
    assert (await lab.world.run(child)).parent_run_id == run.run_id
