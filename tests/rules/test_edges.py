"""What users do that nobody thought of: odd exceptions, odd asyncio, many of everything."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.rules.helpers import entities, reopened, types_of
from wflab import (
    FatalError,
    Lab,
    RetryableError,
    SerializationError,
    StepAttemptLostError,
    UnresolvedError,
    WorkflowRunFailedError,
    create_hook,
    get_step_metadata,
    now,
    sleep,
    start,
    step,
    workflow,
)


@step
async def add(a: int, b: int) -> int:
    return a + b


ODD: list[BaseException] = [
    SystemExit(3),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    StopAsyncIteration(),
    BaseException("x"),
]


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["async step", "thread step", "body"])
async def test_odd_exceptions_end_what_raised_them_and_nothing_else(lab: Lab, error: BaseException, kind: str) -> None:
    @step(max_retries=0)
    async def raises() -> None:
        raise error

    @step(max_retries=0)
    def raises_on_thread() -> None:
        raise error

    @workflow
    async def body() -> None:
        if kind == "body":
            raise error
        await (raises() if kind == "async step" else raises_on_thread())

    with pytest.raises(WorkflowRunFailedError) as failed:
        await (await lab.start(body)).return_value()
    assert type(failed.value.__cause__) in (type(error), RuntimeError)
    assert await (await lab.start(adds_two)).return_value() == 3


@workflow
async def adds_two() -> int:
    return await add(1, 2)


async def test_a_thread_step_may_raise_stop_iteration(lab: Lab) -> None:
    @step(max_retries=0)
    def stops() -> None:
        raise StopIteration

    @workflow
    async def body() -> str:
        try:
            await stops()
        except RuntimeError as error:
            return str(error)
        return ""

    assert "StopIteration" in await (await lab.start(body)).return_value()


async def test_a_result_or_error_of_a_body_that_cant_be_stored_fails_the_run(lab: Lab) -> None:
    class Local(Exception):
        pass

    @workflow
    async def gives() -> Any:
        return {"x": object()}

    @workflow
    async def raises() -> Any:
        raise Local(object())

    with pytest.raises(WorkflowRunFailedError) as failed:
        await (await lab.start(gives)).return_value()
    assert isinstance(failed.value.__cause__, SerializationError)
    assert failed.value.__cause__.path == "return value['x']"
    with pytest.raises(WorkflowRunFailedError) as failed:
        await (await lab.start(raises)).return_value()
    assert isinstance(failed.value.__cause__, UnresolvedError)
    assert "Local" in failed.value.__cause__.type_name


async def test_a_retry_after_that_is_no_duration_is_a_plain_mistake(lab: Lab) -> None:
    @step
    async def mistaken() -> None:
        raise RetryableError("later", retry_after="whenever")

    @workflow
    async def body() -> str:
        try:
            await mistaken()
        except ValueError as error:
            return str(error)
        return ""

    run = await lab.start(body)
    assert "whenever" in await run.return_value()
    assert (await types_of(run)).count("step_started") == 1


@pytest.mark.parametrize(
    "options",
    [{"max_retries": -1}, {"max_retries": 1.5}, {"max_retries": True}, {"backoff": 0}, {"backoff": float("nan")},
     {"retry_after": "-1s"}, {"timeout": "soon"}],
)  # fmt: skip
def test_step_options_without_sense_are_value_errors(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        step(**options)(add.fn)


async def test_more_of_asyncio_in_a_body(lab: Lab) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            yield await add(number, 1)

    @workflow
    async def body() -> list[Any]:
        variable.set("body")
        seen: list[Any] = [number async for number in numbers()]

        async def child() -> str:
            variable.set("child")
            await asyncio.sleep(0)
            return variable.get()

        seen.append(await asyncio.create_task(child()))
        seen.append(variable.get())
        try:
            async with asyncio.timeout(0):
                await sleep("1h")
        except TimeoutError:
            seen.append("timeout")
        shielded = asyncio.shield(asyncio.ensure_future(add(5, 5)))
        seen.append(await shielded)
        semaphore, condition = asyncio.Semaphore(1), asyncio.Condition()
        async with semaphore, condition:
            seen.append(await add(1, 1))
        seen.append(await asyncio.wait_for(add(3, 3), 10))
        seen.append(asyncio.current_task() is not None)
        results = await asyncio.gather(add(1, 1), fails(), return_exceptions=True)
        seen.append([results[0], type(results[1]).__name__])
        began = now()
        await asyncio.sleep(1.5)
        seen.append((now() - began).total_seconds())
        seen.append(await asyncio.get_running_loop().create_task(child()))
        return seen

    @step
    async def fails() -> None:
        raise FatalError("no")

    expected = [1, 2, 3, "child", "body", "timeout", 10, 2, 6, True, [2, "FatalError"], 1.5, "child"]
    run = await lab.start(body)
    assert await run.return_value() == expected


async def test_a_body_that_goes_on_after_being_cancelled_is_its_own_master(lab: Lab) -> None:
    @workflow
    async def body() -> list[str]:
        seen = []

        async def stubborn() -> str:
            try:
                await sleep("1h")
            except asyncio.CancelledError:
                seen.append(str(await add(1, 1)))
            return "ended"

        task = asyncio.create_task(stubborn())
        await add(0, 0)
        task.cancel()
        seen.append(await task)
        return seen

    run = await lab.start(body)
    assert await run.return_value() == ["2", "ended"]
    assert (await entities(run))["wait#1"] == ["wait_created", "wait_completed"]


async def test_an_attempt_that_a_crash_cut_off_counts_and_may_be_the_last(lab: Lab) -> None:  # R3
    running = asyncio.Event()

    @step(max_retries=1)
    async def hangs() -> None:
        running.set()
        await asyncio.Event().wait()

    @workflow
    async def body() -> list[Any]:
        try:
            await hangs()
        except StepAttemptLostError as error:
            return [error.attempt, error.step_id.startswith("step_"), error.step_name]
        return []

    run = await lab.start(body)
    for _ in range(2):
        await running.wait()
        running.clear()
        await lab.shutdown()
        lab = reopened(lab)
        if (await lab.get_run(run.run_id).status()) != "running":
            break
    assert await lab.get_run(run.run_id).return_value() == [2, True, "hangs"]
    await lab.shutdown()


async def test_a_step_that_waits_for_its_retry_survives_a_restart(lab: Lab) -> None:
    @step(retry_after="1h")
    async def flaky() -> list[Any]:
        me = get_step_metadata()
        if me.attempt < 3:
            raise ValueError(me.attempt)
        return [me.attempt]

    @workflow
    async def body() -> list[Any]:
        return await flaky()

    run = await lab.start(body)
    await lab.idle()
    began = lab.clock.now()
    for _ in range(2):
        await lab.shutdown()
        lab = reopened(lab)
        lab.clock.advance("1h")
        await lab.idle()
    assert await lab.get_run(run.run_id).return_value() == [3]
    assert (lab.clock.now() - began).total_seconds() == 7200
    await lab.shutdown()


async def test_many_of_everything(lab: Lab) -> None:
    @step
    def on_thread(number: int) -> int:
        return number

    @workflow
    async def body() -> list[int]:
        hooks = [create_hook(f"many {number}") for number in range(50)]
        totals = [sum(await asyncio.gather(*(add(number, 1) for number in range(1000))))]
        totals.append(sum(await asyncio.gather(*(on_thread(number) for number in range(300)))))
        await asyncio.gather(*(sleep(number + 1) for number in range(100)))
        totals.append(sum(await asyncio.gather(*(hook.__anext__() for hook in hooks))))
        return totals

    run = await lab.start(body)
    sent = 0
    while sent < 50:
        await lab.idle()
        try:
            await lab.resume_hook(f"many {sent}", 1)
        except LookupError:
            continue
        sent += 1
    assert await run.return_value() == [sum(range(1, 1001)), sum(range(300)), 50]


async def test_children_of_children(lab: Lab) -> None:
    @workflow
    async def tree(depth: int) -> int:
        if depth == 0:
            return 1
        children = await asyncio.gather(*(start(tree, [depth - 1]) for _ in range(2)))
        return sum(await asyncio.gather(*(child.return_value() for child in children)))

    assert await (await lab.start(tree, [4])).return_value() == 16
    assert len(lab.runs(limit=1000)) == 31


async def test_a_body_is_given_its_arguments_anew_in_every_replay(lab: Lab) -> None:
    @workflow
    async def mutates(items: list[int]) -> list[int]:
        items.append(await add(1, 1))
        await sleep("1h")
        items.append(3)
        return items

    mine = [1]
    run = await lab.start(mutates, [mine])
    mine.append(99)
    await lab.idle()
    await lab.shutdown()
    async with reopened(lab) as again:
        assert await again.get_run(run.run_id).return_value() == [1, 2, 3]
