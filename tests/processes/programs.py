"""Programs that tests run in processes of their own: `python -m tests.processes.programs NAME URL …`."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from wflab import (
    HookConflictError,
    HookNotFoundError,
    StartHook,
    create_hook,
    get_hook_by_token,
    get_run,
    get_step_metadata,
    resume_hook,
    sleep,
    start,
    step,
    use,
    workflow,
)


@step
async def note(file: str, text: str) -> str:
    """Leave a line in a file: what has really been done, outside of any database of ours."""
    me = get_step_metadata()
    with Path(file).open("a") as lines:
        lines.write(f"{text} {me.step_id} {me.attempt}\n")
    return text


@step(max_retries=5)
async def hang_first(file: str) -> int:
    me = get_step_metadata()
    await note(file, f"hang {me.attempt}")
    if me.attempt == 1:
        await asyncio.Event().wait()
    return me.attempt


@workflow
async def journey(file: str) -> list[Any]:
    hook = create_hook("journey")
    await hook.get_conflict()
    first = await note(file, "first")
    attempt = await hang_first(file)
    await sleep(0.05)
    return [first, attempt, await hook, await hook]


@workflow
async def receiver(token: str) -> Any:
    return await create_hook(token)


@workflow
async def chain(file: str, steps: int) -> int:
    for number in range(steps):
        await note(file, str(number))
    return steps


@step(max_retries=1000)
async def note_payload(file: str, payload: int) -> int:
    me = get_step_metadata()
    with Path(file).open("a") as lines:
        lines.write(f"{me.step_id} {me.attempt}\n")
    return payload


@workflow
async def collector(file: str, token: str) -> dict[str, Any]:
    got = []
    async for payload in create_hook(token):
        if payload == -1:
            break
        got.append(await note_payload(file, payload))
    return {"token": token, "got": got}


def say(*words: object) -> None:
    print(*words, flush=True)


async def begin_journey(file: str) -> None:
    run = await start(journey, [file])
    while True:
        try:
            await resume_hook("journey", "kept")
            break
        except HookNotFoundError:
            await asyncio.sleep(0.01)
    say(run.run_id)
    await asyncio.Event().wait()


async def go_on(run_id: str) -> None:
    await resume_hook("journey", "later")
    say(await get_run(run_id).return_value(timeout=30))


async def begin_chain(file: str) -> None:
    run = await start(chain, [file, 100_000])
    say(run.run_id)
    await asyncio.Event().wait()


async def finish(run_id: str) -> None:
    say(await get_run(run_id).status())
    await asyncio.Event().wait()


async def starts(prefix: str, count: str) -> None:
    """Start each key; say who owns it."""
    say("ready")
    sys.stdin.readline()
    owners = []
    for number in range(int(count)):
        try:
            run = await start(receiver, [f"{prefix}{number}"], hook=StartHook(f"{prefix}{number}"))
            owners.append(run.run_id)
        except HookConflictError as refused:
            owners.append(refused.conflicting_run_id)
    say(" ".join(owners))


async def receive(token: str) -> None:
    """Say when a payload has arrived."""
    run = await start(receiver, [token])
    while True:
        try:
            await get_hook_by_token(token)
            break
        except HookNotFoundError:
            await asyncio.sleep(0.005)
    say("waiting")
    await run.return_value()
    say(time.time())


async def start_only(file: str) -> None:
    run = await start(chain, [file, 3])
    say(run.run_id)


async def work(_file: str) -> None:
    """Advance whatever there is, until killed."""
    await get_run("wrun_none").exists()
    await asyncio.Event().wait()


async def start_collectors(file: str, count: str) -> None:
    tokens = [f"soak-{number}" for number in range(int(count))]
    for token in tokens:
        await start(collector, [file, token])
    say(*tokens)


if __name__ == "__main__":
    name, url, *arguments = sys.argv[1:]
    use(url)
    asyncio.run(globals()[name](*arguments))
