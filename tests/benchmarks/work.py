"""The workloads: each returns its figures."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from wflab import HookConflictError, Lab, StartHook, create_hook, step, workflow

UNLIMITED = 10**9


@step
async def noop(number: int) -> dict[str, int]:
    return {"i": number}


@workflow
async def sequential(count: int) -> int:
    for number in range(count):
        await noop(number)
    return count


@workflow
async def fan_out(count: int) -> int:
    return len(await asyncio.gather(*(noop(number) for number in range(count))))


@workflow
async def receiver(token: str) -> Any:
    hook = create_hook(token)
    await hook.get_conflict()
    return await hook


def raw_commits_per_s(folder: Path, synchronous: str, rows: int = 5_000) -> float:
    """One row of about 200 bytes a commit, through SQLAlchemy Core, on this disk."""
    engine = sa.create_engine(f"sqlite:///{folder / f'raw-{synchronous}.db'}")

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.execute("pragma journal_mode=wal")
        connection.execute(f"pragma synchronous={synchronous}")

    table = sa.Table(
        "events",
        sa.MetaData(),
        sa.Column("run", sa.String, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("type", sa.String),
        sa.Column("data", sa.Text),
    )
    table.metadata.create_all(engine)
    insert = table.insert()
    with engine.connect() as connection:
        began = time.perf_counter()
        for number in range(rows):
            connection.execute(insert, {"run": "r", "position": number, "type": "step_completed", "data": "x" * 200})
            connection.commit()
        seconds = time.perf_counter() - began
    engine.dispose()
    return rows / seconds


@contextmanager
def counted_commits(lab: Lab) -> Iterator[list[int]]:
    """How often the Lab's World commits meanwhile."""
    count = [0]
    write = lab.world._write_once

    def counting(work: Any) -> Any:
        count[0] += 1
        return write(work)

    lab.world._write_once = counting
    try:
        yield count
    finally:
        del lab.world._write_once


async def steps_in_a_row(lab: Lab, count: int) -> dict[str, Any]:
    """One workflow of `count` steps, one after another."""
    with counted_commits(lab) as commits:
        began = time.perf_counter()
        await (await lab.start(sequential, [count])).return_value()
        seconds = time.perf_counter() - began
    return {
        "work": "sequential steps",
        "n": count,
        "per_s": count / seconds,
        "us_each": seconds / count * 1e6,
        "commits_per_step": commits[0] / count,
    }


async def steps_at_once(lab: Lab, count: int) -> dict[str, Any]:
    """One workflow of `count` steps, all at once."""
    began = time.perf_counter()
    await (await lab.start(fan_out, [count])).return_value()
    return {"work": "parallel steps", "n": count, "per_s": count / (time.perf_counter() - began)}


async def one_step_runs(lab: Lab, count: int) -> dict[str, Any]:
    """Runs of one step, from `start` to their results."""
    began = time.perf_counter()
    runs = [await lab.start(sequential, [1]) for _ in range(count)]
    await asyncio.gather(*(run.return_value() for run in runs))
    return {"work": "one-step runs", "n": count, "per_s": count / (time.perf_counter() - began)}


async def starts_on_one_key(lab: Lab, rounds: int) -> dict[str, Any]:
    """Eight callers start the same key at once, round after round."""

    async def call(key: str) -> str:
        try:
            return (await lab.start(sequential, [1], hook=StartHook(key, min_retention="1h"))).run_id
        except HookConflictError as refused:
            return refused.conflicting_run_id

    times = []
    for number in range(rounds):
        began = time.perf_counter()
        owners = await asyncio.gather(*(call(f"key-{number}") for _ in range(8)))
        times.append(time.perf_counter() - began)
        assert len(set(owners)) == 1
    times.sort()
    return {
        "work": "8 starts on one key",
        "n": rounds * 8,
        "per_s": rounds * 8 / sum(times),
        "p50_ms": times[rounds // 2] * 1e3,
    }


async def resume_to_result(lab: Lab, count: int) -> dict[str, Any]:
    """From `resume_hook` to the result of the run that waited for it."""
    times = []
    for number in range(count):
        run = await lab.start(receiver, [f"resume-{number}"])
        await lab.idle()
        began = time.perf_counter()
        await lab.resume_hook(f"resume-{number}", {"ok": True})
        await run.return_value()
        times.append(time.perf_counter() - began)
    times.sort()
    return {
        "work": "resume to result",
        "n": count,
        "p50_ms": times[count // 2] * 1e3,
        "p99_ms": times[int(count * 0.99)] * 1e3,
    }


async def cold_replay(folder: Path, events: int) -> dict[str, Any]:
    """From opening the database to a run's body being where its log of `events` events ends."""
    steps = events // 3
    url = f"sqlite:///{folder / 'replay.db'}"

    @workflow
    async def long_run() -> Any:
        for number in range(steps):
            await noop(number)
        hook = create_hook("end of replay")
        await hook.get_conflict()
        return await hook

    async with Lab(url, max_events=UNLIMITED) as lab:
        run = await lab.start(long_run)
        await lab.idle()
        length = len(await run.events())
    began = time.perf_counter()
    async with Lab(url, max_events=UNLIMITED) as again:
        await again.idle()
        ready = time.perf_counter() - began
        await again.resume_hook("end of replay", 1)
        await again.get_run(run.run_id).return_value()
    return {"work": "cold replay", "n": length, "ms": ready * 1e3, "per_s": length / ready}


async def cost_of_a_step(folder: Path, count: int) -> dict[str, Any]:
    """What one more step takes on disk, and in memory while its run is live."""
    file = folder / "size.db"

    @workflow
    async def then_waits(steps: int) -> None:
        for number in range(steps):
            await noop(number)
        await create_hook(f"after {steps}")

    async with Lab(f"sqlite:///{file}", max_events=UNLIMITED) as lab:
        await lab.start(then_waits, [100])
        await lab.idle()
        before_size = _size(lab, file)
        tracemalloc.start()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        await lab.start(then_waits, [count])
        await lab.idle()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return {
            "work": "cost of a step",
            "n": count,
            "bytes_on_disk": (_size(lab, file) - before_size) / count,
            "bytes_in_memory": (after - before) / count,
        }


def _size(lab: Lab, file: Path) -> int:
    with lab.world.sql_engine.connect() as connection:
        connection.exec_driver_sql("pragma wal_checkpoint(truncate)")
    return file.stat().st_size
