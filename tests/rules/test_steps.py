"""Steps: R1 to R8."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import threading
from datetime import timedelta

import pytest

from tests.rules.helpers import entities, reopened, types_of
from wflab import (
    FatalError,
    Lab,
    RetryableError,
    SerializationError,
    StepTimeoutError,
    WorkflowRunFailedError,
    get_step_metadata,
    sleep,
    step,
    workflow,
)


class PaymentDeclined(Exception):
    def __init__(self, code: str, *, amount: int) -> None:
        super().__init__(code)
        self.amount = amount


@step
async def add(a: int, b: int) -> int:
    return a + b


@step(max_retries=5)
async def ids_until(attempts: int, seen: list[str] | None = None) -> dict[str, object]:
    me = get_step_metadata()
    if me.attempt < attempts:
        raise ValueError(f"attempt {me.attempt}")
    return {"id": me.step_id, "name": me.step_name, "attempt": me.attempt, "run": me.run_id}


async def test_a_step_id_is_the_same_on_every_attempt_and_differs_between_calls(lab: Lab) -> None:  # R1, R2
    seen: list[tuple[str, int]] = []

    @step
    async def flaky() -> str:
        me = get_step_metadata()
        seen.append((me.step_id, me.attempt))
        if me.attempt == 1:
            raise ValueError
        return me.step_id

    @workflow
    async def twice() -> list[str]:
        return [await flaky(), await flaky()]

    one, two = await lab.start(twice), await lab.start(twice)
    returned = [*await one.return_value(), *await two.return_value()]
    assert len(set(returned)) == 4
    assert sorted(seen) == sorted((step_id, attempt) for step_id in returned for attempt in (1, 2))
    assert all(step_id.startswith("step_") and len(step_id) == 31 for step_id in returned)


def test_step_metadata_outside_a_step_is_a_runtime_error() -> None:  # R2
    with pytest.raises(RuntimeError, match="running step"):
        get_step_metadata()


async def test_step_metadata_tells_name_run_attempt_and_start(lab: Lab) -> None:  # R2
    @step
    async def tell() -> list[object]:
        me = get_step_metadata()
        return [me.step_name, me.run_id, me.attempt, me.started_at]

    @workflow
    async def asks() -> list[object]:
        return await tell()

    run = await lab.start(asks)
    assert await run.return_value() == ["tell", run.run_id, 1, lab.clock.now()]


@pytest.mark.parametrize(("retries", "attempts"), [(None, 4), (0, 1), (2, 3)])
async def test_a_failing_step_is_tried_once_more_than_its_retries(
    lab: Lab, retries: int | None, attempts: int
) -> None:  # R3
    tries: list[int] = []
    options = {} if retries is None else {"max_retries": retries}

    @step(**options)
    async def fails() -> None:
        tries.append(get_step_metadata().attempt)
        raise ValueError("no")

    @workflow
    async def calls() -> None:
        await fails()

    run = await lab.start(calls)
    with pytest.raises(WorkflowRunFailedError) as failed:
        await run.return_value()
    assert tries == list(range(1, attempts + 1))
    assert type(failed.value.__cause__) is ValueError
    assert failed.value.error_code == "USER_ERROR"
    retrying = ["step_retrying", "step_started"] * (attempts - 1)
    assert (await entities(run))["step#1"] == ["step_created", "step_started", *retrying, "step_failed"]


async def test_a_fatal_error_is_not_retried(lab: Lab) -> None:  # R3
    tries: list[int] = []

    @step
    async def fails() -> None:
        tries.append(1)
        raise FatalError("no way")

    @workflow
    async def calls() -> str:
        try:
            await fails()
        except FatalError as error:
            return f"caught {error}"
        return "not reached"

    assert await (await lab.start(calls)).return_value() == "caught no way"
    assert tries == [1]


@pytest.mark.parametrize(
    ("given", "waited"), [({}, 1.0), ({"retry_after": "90s"}, 90.0), ({"retry_after": timedelta(hours=1)}, 3600.0)]
)
async def test_a_retryable_error_says_when_the_next_attempt_is(
    lab: Lab, given: dict[str, object], waited: float
) -> None:  # R3
    @step
    async def later() -> float:
        me = get_step_metadata()
        if me.attempt == 1:
            raise RetryableError("busy", **given)  # type: ignore[arg-type]
        return me.started_at.timestamp()

    @workflow
    async def calls() -> float:
        return await later()

    began = lab.clock.now().timestamp()
    assert await (await lab.start(calls)).return_value() - began == waited


async def test_the_wait_after_a_plain_error_grows_by_the_backoff(lab: Lab) -> None:  # R3
    starts: list[float] = []

    @step(max_retries=3, retry_after="1s", backoff=2.0)
    async def fails() -> None:
        starts.append(get_step_metadata().started_at.timestamp())
        raise ValueError

    @workflow
    async def calls() -> None:
        await fails()

    with pytest.raises(WorkflowRunFailedError):
        await (await lab.start(calls)).return_value()
    assert [later - sooner for sooner, later in itertools.pairwise(starts)] == [1.0, 2.0, 4.0]


async def test_an_attempt_that_takes_too_long_is_cut_off_and_retried(lab: Lab) -> None:  # R3
    never, running = asyncio.Event(), asyncio.Event()
    cancelled: list[int] = []

    @step(timeout="30s", max_retries=1)
    async def hangs() -> str:
        if get_step_metadata().attempt == 2:
            return "second"
        try:
            running.set()
            await never.wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise
        return "not reached"

    @workflow
    async def calls() -> str:
        return await hangs()

    run = await lab.start(calls)
    await running.wait()
    lab.clock.advance("29s")
    assert "step_retrying" not in await types_of(run)
    lab.clock.advance("1s")
    assert await run.return_value() == "second"
    assert cancelled == [1]
    error = next(event.data["error"] for event in await run.events() if event.type == "step_retrying")
    assert type(error) is StepTimeoutError
    assert isinstance(error, TimeoutError)


async def test_the_workflow_sees_the_steps_own_exception(lab: Lab) -> None:  # R4
    @step(max_retries=1)
    async def declines() -> None:
        try:
            raise ConnectionError("gone")
        except ConnectionError as cause:
            raise PaymentDeclined("insufficient_funds", amount=7) from cause

    @workflow
    async def catches() -> list[object]:
        try:
            await declines()
        except PaymentDeclined as error:
            return [error.args, error.amount, type(error.__cause__).__name__, str(error.__cause__), error.__notes__]
        return []

    args, amount, cause, text, notes = await (await lab.start(catches)).return_value()
    assert (args, amount, cause, text) == (("insufficient_funds",), 7, "ConnectionError", "gone")
    assert "failed 2 times" in notes[0]
    assert "attempt 2: " in notes[0]


@pytest.mark.parametrize(
    ("value", "path"), [([{"items": [1, 2, 3, object()]}], "args[0][0]['items'][3]"), (lambda: 0, "args[0]")]
)
async def test_an_argument_that_cant_be_stored_names_its_place(lab: Lab, value: object, path: str) -> None:  # R5
    @step
    async def takes(_value: object) -> None:
        raise AssertionError("must not run")

    @workflow
    async def passes() -> str:
        try:
            await takes(value)
        except SerializationError as error:
            return error.path
        return "not reached"

    assert await (await lab.start(passes)).return_value() == path


async def test_a_result_that_cant_be_stored_is_fatal_and_can_be_caught(lab: Lab) -> None:  # R5
    tries: list[int] = []

    @step
    async def gives() -> object:
        tries.append(1)
        return {"a": [object()]}

    @workflow
    async def catches() -> str:
        try:
            await gives()
        except SerializationError as error:
            return error.path
        return "not reached"

    assert await (await lab.start(catches)).return_value() == "result['a'][0]"
    assert tries == [1]


async def test_arguments_and_results_travel_by_value(lab: Lab) -> None:  # R5
    @step
    async def appends(items: list[int]) -> list[int]:
        items.append(99)
        return items

    @workflow
    async def body() -> list[list[int]]:
        mine = [1]
        theirs = await appends(mine)
        theirs.append(100)
        return [mine, theirs, await appends(theirs)]

    assert await (await lab.start(body)).return_value() == [[1], [1, 99, 100], [1, 99, 100, 99]]


async def test_a_step_called_outside_a_workflow_or_in_a_step_is_the_plain_function(lab: Lab) -> None:  # R6
    @step
    def double(x: int) -> int:
        return 2 * x

    @step
    async def both(x: int) -> int:
        return double(x) + await add(x, 1)  # type: ignore[operator]

    @workflow
    async def calls() -> int:
        return await both(3)

    assert double(4) == 8
    assert await add(1, 2) == 3
    run = await lab.start(calls)
    assert await run.return_value() == 10
    assert list(await entities(run)) == ["step#1"]


async def test_a_plain_step_runs_on_a_thread_of_its_own(real_lab: Lab) -> None:  # R7
    meet = threading.Barrier(2, timeout=20)

    @step
    def blocks() -> str:
        meet.wait()
        return threading.current_thread().name

    @workflow
    async def both() -> list[str]:
        return list(await asyncio.gather(blocks(), blocks()))

    names = await (await real_lab.start(both)).return_value(timeout=30)
    assert all(name != threading.current_thread().name for name in names)


async def test_what_a_step_prints_and_logs_is_kept_with_its_attempt(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:  # R7
    @step
    def prints() -> None:
        me = get_step_metadata()
        print("out", me.attempt)
        print("err", me.attempt, file=sys.stderr)
        logging.getLogger("bank").warning("careful %s", me.attempt)
        if me.attempt == 1:
            raise ValueError

    @workflow
    async def calls() -> None:
        await prints()

    run = await lab.start(calls)
    await run.return_value()
    printed = [event.data["printed"] for event in await run.events() if "printed" in event.data]
    assert printed == [f"out {n}\nerr {n}\nWARNING bank: careful {n}\n" for n in (1, 2)]
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


async def test_what_others_log_meanwhile_is_shown_as_ever(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:  # R7
    begun, end = asyncio.Event(), asyncio.Event()

    @step
    async def waits() -> None:
        print("of the step")
        begun.set()
        await end.wait()

    @workflow
    async def calls() -> None:
        await waits()

    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        run = await lab.start(calls)
        await begun.wait()
        logging.getLogger("mine").warning("not of the step")
        print("mine")
        end.set()
        await run.return_value()
    finally:
        root.handlers = handlers
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("mine\n", "not of the step\n")


async def test_parallel_steps_run_together_and_are_recorded_in_call_order(lab: Lab) -> None:  # R8
    arrived: list[int] = []
    all_there = asyncio.Event()

    @step
    async def meets(number: int) -> int:
        arrived.append(number)
        if len(arrived) == 5:
            all_there.set()
        await all_there.wait()
        return number

    @workflow
    async def gathers() -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(meets(number)) for number in range(3)]
            rest = await asyncio.gather(meets(3), meets(4))
        return [task.result() for task in tasks] + list(rest)

    run = await lab.start(gathers)
    assert await run.return_value() == [0, 1, 2, 3, 4]
    created = [event.data["input"]["args"][0] for event in await run.events() if event.type == "step_created"]
    assert sorted(created) == [0, 1, 2, 3, 4]
    assert [number for number in created if number in (0, 1, 2)] == [0, 1, 2]


async def test_a_step_whose_awaiting_task_is_cancelled_ends_there(lab: Lab) -> None:  # R8
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
    async def impatient() -> str:
        try:
            async with asyncio.timeout(10):
                await hangs()
        except TimeoutError:
            return str(await add(1, 1))
        return "not reached"

    run = await lab.start(impatient)
    await running.wait()
    lab.clock.advance(10)
    assert await run.return_value() == "2"
    assert ended == ["cancelled"]
    found = await entities(run)
    assert found["step#1"] == ["step_created", "step_started", "step_failed"]
    failed = [event for event in await run.events() if event.type == "step_failed"]
    assert failed[0].data["cancelled"] is True


async def test_the_late_result_of_a_cancelled_thread_is_dropped(real_lab: Lab) -> None:  # R8
    let_go, finished = threading.Event(), threading.Event()

    @step
    def slow() -> str:
        let_go.wait(20)
        finished.set()
        return "late"

    @workflow
    async def impatient() -> str:
        try:
            await asyncio.wait_for(slow(), 0.05)
        except TimeoutError:
            return "gave up"
        return "not reached"

    run = await real_lab.start(impatient)
    assert await run.return_value(timeout=20) == "gave up"
    let_go.set()
    assert finished.wait(20)
    assert (await types_of(run))[-1] == "run_completed"


async def test_a_failing_task_group_ends_its_other_steps(lab: Lab) -> None:  # R8
    @step
    async def hangs() -> None:
        await asyncio.Event().wait()

    @step(max_retries=0)
    async def fails() -> None:
        raise ValueError("one of them")

    @workflow
    async def group() -> str:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(hangs())
                tasks.create_task(fails())
        except ExceptionGroup as errors:
            return str(errors.exceptions[0])
        return "not reached"

    run = await lab.start(group)
    assert await run.return_value() == "one of them"
    assert (await entities(run))["step#1"] == ["step_created", "step_started", "step_failed"]


async def test_a_timer_that_is_not_needed_any_more_is_closed_in_the_log(lab: Lab) -> None:  # R8
    @workflow
    async def quick() -> int:
        async with asyncio.timeout(3600):
            return await add(1, 2)

    run = await lab.start(quick)
    assert await run.return_value() == 3
    over = [event for event in await run.events() if event.type == "wait_completed"]
    assert [event.data for event in over] == [{"cancelled": True}]


async def test_a_cancelled_sleep_is_closed_in_the_log(lab: Lab) -> None:  # R8
    @workflow
    async def changes_its_mind() -> str:
        nap = asyncio.ensure_future(sleep("1h"))
        await add(1, 1)
        nap.cancel()
        await add(2, 2)
        return "done"

    run = await lab.start(changes_its_mind)
    assert await run.return_value() == "done"
    assert (await entities(run))["wait#1"] == ["wait_created", "wait_completed"]
    assert lab.clock.next_alarm_us() is None


async def test_finished_steps_do_not_run_again_after_a_restart(lab: Lab) -> None:  # R9
    ran: list[int] = []

    @step
    async def counts(x: int) -> int:
        ran.append(x)
        return x

    @workflow
    async def body() -> list[int]:
        first = await counts(1)
        await sleep("1h")
        return [first, await counts(2)]

    run = await lab.start(body)
    await lab.idle()
    await lab.shutdown()
    async with reopened(lab) as again:
        assert await again.get_run(run.run_id).return_value() == [1, 2]
    assert ran == [1, 2]
