"""What every World promises: leases with fences, one transaction a batch, a queue of one message a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from wflab import LeaseLostError
from wflab.engine.workers import LIVE_WORKERS, dead_workers
from wflab.ids import host_id, worker_id
from wflab.world.protocol import Batch, Candidate, Claim, Lease, NewEvent, Source, StaleBatchError, World
from wflab.world.sqlite import SqliteWorld

SOURCE = Source("v1", "workflow", "order", "shop", "async def order(): ...", "shop.py", 1)
KEY = [("shop", "order")]


@pytest.fixture
def world(url: str) -> AsyncIterator[World]:
    return _opened(SqliteWorld(url))


async def _opened(world: Any) -> AsyncIterator[World]:
    await world.open()
    yield world
    await world.close()


def candidate(run_id: str, *, worker: str | None = "w1", token: str | None = None, at: int = 1000) -> Candidate:
    claim = None if token is None else Claim(f"hook_{run_id}", token)
    return Candidate(run_id, "order", "shop", SOURCE, 8, "seed", '{"args":[]}', at, claim, None, worker, at + 100)


def started(at: int = 1001) -> Batch:
    return Batch([NewEvent("run_started", None, "{}", at)])


async def admit(world: World, run_id: str, **more: Any) -> Lease:
    admission = await world.admit(candidate(run_id, **more))
    assert admission.lease is not None
    return admission.lease


async def test_positions_are_dense_and_a_commit_moves_on_from_the_last(world: World) -> None:
    lease = await admit(world, "r", token="t")
    assert lease.position == 2
    committed = await world.commit(lease, started())
    assert (committed.position, committed.had_gap) == (3, False)
    assert [item.position for item in await world.events("r")] == [1, 2, 3]
    assert [item.position for item in await world.events("r", after=2)] == [3]


async def test_a_commit_with_an_old_fence_is_refused_and_nothing_is_written(world: World) -> None:  # decision 5
    slow = await admit(world, "r")
    quick = await world.acquire("r", "w2", now=5000, until=6000, dead=None)
    assert quick is not None
    assert quick.fence > slow.fence
    with pytest.raises(LeaseLostError) as lost:
        await world.commit(slow, started())
    assert (lost.value.run_id, lost.value.fence) == ("r", slow.fence)
    assert len(await world.events("r")) == 1
    await world.commit(quick, started())
    await world.release(slow, due_at=0)
    assert (await world.run("r")).lease_owner == "w2"  # type: ignore[union-attr]


async def test_a_lease_is_taken_only_when_free_expired_dead_or_ones_own(world: World) -> None:
    lease = await admit(world, "r")  # until 1100
    assert await world.acquire("r", "w2", now=1099, until=2000, dead=None) is None
    own = await world.acquire("r", "w1", now=1050, until=2000, dead=None)
    assert own is not None
    assert own.fence == lease.fence
    assert await world.acquire("r", "w2", now=1200, until=2000, dead="w3") is None
    dead = await world.acquire("r", "w2", now=1200, until=2000, dead="w1")
    assert dead is not None
    await world.release(dead, due_at=None)
    assert await world.acquire("r", "w4", now=1200, until=2000, dead=None) is not None
    await world.renew("w4", until=9000)
    assert await world.acquire("r", "w5", now=8999, until=9999, dead=None) is None
    assert await world.acquire("r", "w5", now=9000, until=9999, dead=None) is not None


async def test_of_many_workers_one_gets_the_lease(world: World) -> None:
    await world.admit(candidate("r", worker=None))
    leases = await asyncio.gather(
        *(world.acquire("r", f"w{number}", now=2000, until=3000, dead=None) for number in range(10))
    )
    assert sum(lease is not None for lease in leases) == 1


async def test_an_ended_run_takes_no_commit(world: World) -> None:
    lease = await admit(world, "r")
    await world.cancel("r", reason=None, now=1002)
    with pytest.raises(LeaseLostError):
        await world.commit(lease, started())
    assert await world.acquire("r", "w1", now=1002, until=2000, dead=None) is None
    assert [item.type for item in await world.events("r")] == ["run_created", "run_cancelled"]


async def test_a_batch_is_all_or_nothing(world: World) -> None:  # decision 3
    lease = await admit(world, "r")
    wait = NewEvent("wait_created", "wait_1", "{}", 1001, {"resume_at": 9000, "is_sleep": True})
    await world.commit(lease, Batch([wait]))
    lease.position = 2
    assert (await world.wake_up("r", None, now=1002, worker="w1"))[0] == 1
    rang = NewEvent("wait_completed", "wait_1", "{}", 1003)
    claim = Claim("hook_1", "t")
    batch = Batch([rang, NewEvent("hook_created", "hook_1", "{}", 1003)], {"hook_1": claim})
    with pytest.raises(StaleBatchError):
        await world.commit(lease, batch)
    assert [item.type for item in await world.events("r")] == ["run_created", "wait_created", "wait_completed"]
    assert await world.hook_by_token("t", now=1004) is None


async def test_a_batch_says_what_its_writer_had_not_seen(world: World) -> None:
    lease = await admit(world, "r", token="t")
    await world.resume("t", '"x"', now=1001, worker="w1")
    committed = await world.commit(lease, started())
    assert committed.had_gap
    assert [(item.type, item.seen) for item in await world.events("r")][2:] == [
        ("hook_received", None),
        ("run_started", 2),
    ]


async def test_the_queue_has_one_message_a_run_and_is_asked_for_what_one_can_do(world: World) -> None:  # R12
    await world.admit(candidate("r", worker=None, token="t"))
    for _ in range(3):
        await world.resume("t", "1", now=1001, worker="w9")
    for workflows, expected in ((KEY, ["r"]), ([("shop", "other")], []), ([], [])):
        found = await world.open_runs("w1", workflows, now=2000, dead=[], limit=10)
        assert [item.run_id for item in found] == expected
    assert await world.open_runs("w1", KEY, now=999, dead=[], limit=10) == []
    lease = await world.acquire("r", "w1", now=2000, until=3000, dead=None)
    assert lease is not None
    assert await world.open_runs("w1", KEY, now=2000, dead=[], limit=10) == []
    await world.release(lease, due_at=7000)
    assert await world.next_due_us(after=2000) == 7000
    assert await world.next_due_us(after=7000) is None


async def test_a_message_for_a_held_run_reaches_only_its_holder(world: World) -> None:
    await admit(world, "r", token="t")
    await world.resume("t", "1", now=1001, worker="w2")
    assert [item.run_id for item in await world.open_runs("w1", KEY, now=1050, dead=[], limit=10)] == ["r"]
    assert await world.open_runs("w2", KEY, now=1050, dead=[], limit=10) == []
    assert [item.run_id for item in await world.open_runs("w2", KEY, now=1050, dead=["w1"], limit=10)] == ["r"]
    assert [item.run_id for item in await world.open_runs("w2", KEY, now=1100, dead=[], limit=10)] == ["r"]


async def test_a_worker_that_stops_leaves_its_runs_in_the_queue(world: World) -> None:
    for number in range(3):
        await admit(world, f"r{number}")
    assert (await world.held("w1"), await world.lease_owners()) == (3, ["w1"])
    assert {item.run_id for item in await world.leases("w1")} == {"r0", "r1", "r2"}
    await world.release_all("w1", now=2000)
    assert (await world.held("w1"), await world.lease_owners()) == (0, [])
    assert len(await world.open_runs("w2", KEY, now=2000, dead=[], limit=10)) == 3


async def test_a_candidate_that_comes_twice_is_admitted_once(world: World) -> None:  # R31
    first = await world.admit(candidate("r", token="t"))
    again = await world.admit(candidate("r", token="t"))
    assert first.lease is not None
    assert again.lease == first.lease
    assert again.owner is None
    assert len(await world.events("r")) == 2


async def test_writing_is_noticed_by_other_connections_only(url: str, world: World) -> None:
    other: World = SqliteWorld(url)
    await other.open()
    await world.has_changed()
    await other.has_changed()
    await admit(world, "r")
    assert not await world.has_changed()
    assert await other.has_changed()
    assert not await other.has_changed()
    await other.close()


async def test_the_views_follow_the_log(world: World) -> None:
    lease = await admit(world, "r")
    steps = [
        NewEvent("step_created", "step_1", "{}", 1001, {"name": "pay"}),
        NewEvent("step_started", "step_1", "{}", 1001, {"attempt": 1}),
    ]
    await world.commit(lease, Batch(steps))
    lease.position = 3
    retry = {"attempt": 1, "retry_at": 5000}
    await world.commit(lease, Batch([NewEvent("step_retrying", "step_1", "{}", 1002, retry)]))
    from wflab.views.browse import find_steps

    (row,) = find_steps(world, "r")
    assert (row.status, row.attempt, row.started_at, row.retry_at, row.ended_at) == ("retrying", 1, 1001, 5000, None)
    lease.position = 4
    ends = [
        NewEvent("step_started", "step_1", "{}", 5000, {"attempt": 2}),
        NewEvent("step_completed", "step_1", "{}", 5001, {"attempt": 2}),
        NewEvent("run_completed", None, "{}", 5001, {"output": "1"}),
    ]
    await world.commit(lease, Batch(ends))
    (row,) = find_steps(world, "r")
    assert (row.status, row.attempt, row.started_at, row.retry_at, row.ended_at) == ("completed", 2, 5000, None, 5001)
    record = await world.run("r")
    assert record is not None
    assert (record.status, record.output, record.ended_at, record.lease_owner) == ("completed", "1", 5001, None)


def test_only_a_process_of_this_machine_that_is_gone_is_known_to_be_dead() -> None:
    mine = worker_id()
    assert dead_workers([mine]) == [mine]
    LIVE_WORKERS.add(mine)
    try:
        assert dead_workers([mine]) == []
    finally:
        LIVE_WORKERS.discard(mine)
    gone = f"{host_id()}|{2**22 - 3}|abc"
    assert dead_workers([gone, "elsewhere|1|abc", "odd", f"{host_id()}|1|abc"]) == [gone]
