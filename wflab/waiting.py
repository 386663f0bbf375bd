"""Waiting for a run to end: in this process or another, in real or virtual time."""

from __future__ import annotations

import asyncio

from wflab.durations import Duration, deadline_us
from wflab.engine.dispatcher import Engine
from wflab.errors import WorkflowRunNotFoundError
from wflab.world.protocol import RunRecord

__all__ = ["wait_for_end"]


async def wait_for_end(engine: Engine, run_id: str, timeout: Duration | None) -> RunRecord:
    """Wait until a run has ended.

    On a virtual clock the time moves to the next timer whenever nothing else can go on.

    Raises:
        TimeoutError: it has not ended within `timeout`. The run goes on.
        WorkflowRunNotFoundError: there is no such run.
    """
    deadline = None if timeout is None else deadline_us(timeout, now_us=engine.clock.now_us())
    waiter = engine.waiters.end_of(run_id)
    alarm = None
    if deadline is not None:
        alarm = engine.clock.call_at(engine.loop, deadline, lambda: _time_out(waiter, run_id, timeout))
    try:
        # Asked after the waiter is in place: an end in between is not missed.
        record = await engine.world.run(run_id)
        if record is not None and record.ended_at is None:
            if engine.clock.is_virtual:
                await _skipping_time(engine, waiter)
            else:
                await waiter
            record = await engine.world.run(run_id)
        if record is None:
            raise WorkflowRunNotFoundError(run_id)
        return record
    finally:
        engine.waiters.forget(run_id, waiter)
        if alarm is not None:
            alarm.cancel()


def _time_out(waiter: asyncio.Future[None], run_id: str, timeout: Duration | None) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError(f"run {run_id} has not ended within {timeout!r}; it goes on"))


async def _skipping_time(engine: Engine, waiter: asyncio.Future[None]) -> None:
    while not waiter.done():
        skip = asyncio.ensure_future(engine.skip_time())
        await asyncio.wait({waiter, skip}, return_when=asyncio.FIRST_COMPLETED)
        skip.cancel()
    await waiter
