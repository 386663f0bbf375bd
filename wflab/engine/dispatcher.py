"""The engine of one Lab: takes open runs, advances them under leases, and tells who waits when they end."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from wflab import ids
from wflab.clock import Alarm, Clock, VirtualClock
from wflab.engine import current
from wflab.engine.definitions import Workflow, catalogue
from wflab.engine.run import LiveRun
from wflab.engine.waiters import Waiters
from wflab.engine.workers import LIVE_WORKERS, dead_workers
from wflab.errors import WorldUnavailableError
from wflab.world.protocol import Admission, Candidate, Lease, Open, RunRecord, Source, World

__all__ = ["Engine"]

log = logging.getLogger(__name__)

LEASE_US = 20_000_000
RENEW_EVERY_S = 5.0
POLL_EVERY_S = 0.02
LOOK_FOR_DEAD_EVERY_S = 1.0
TAKE_AT_ONCE = 100
MAX_LIVE_RUNS = 10_000
"""How many bodies stay in memory; the least recently moved are let go first (R17)."""


class Engine:
    """Runs workflows on the loop that it was started on.

    Args:
        world: where the runs live, open.
        clock: the Lab's.
        lab: the Lab, for the bodies and steps that run in it.
        max_events: the longest log of a run (R16).
        max_retention_us: the longest retention (R24), in microseconds.
    """

    def __init__(
        self,
        world: World,
        clock: Clock,
        lab: Any,
        *,
        max_events: int,
        max_retention_us: int,
    ) -> None:
        self.world = world
        self.clock = clock
        self.lab = lab
        self.max_events = max_events
        self.max_retention_us = max_retention_us
        self.worker = ids.worker_id()
        self.loop = asyncio.get_running_loop()
        self.live: dict[str, LiveRun] = {}
        self._context = contextvars.copy_context()
        # A Lab that is first used in a step of another one is not part of that step.
        self._context.run(current.attempt.set, None)
        self._stored: set[str] = set()
        self._versions: dict[str, Workflow[..., Any]] = {}
        self._refused: dict[str, set[str]] = {}
        self.waiters = Waiters(self.loop)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._look_again = asyncio.Event()
        self._is_looking = False
        self._is_stopped = False
        self._dead: list[str] = []
        self._queue_alarm: Alarm | None = None
        self._beginning: set[str] = set()

    # -- from start to stop --------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to take open runs."""
        LIVE_WORKERS.add(self.worker)
        catalogue.subscribe(self._defined)
        self._look_again.set()
        for background in (self._pump(), self._poll(), self._renew()):
            self.spawn(background)

    async def stop(self) -> None:
        """Let go of every run and leave it to go on later, here or elsewhere."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._queue_alarm is not None:
            self._queue_alarm.cancel()
        catalogue.unsubscribe(self._defined)
        for run in list(self.live.values()):
            run.stop()
        self.live.clear()
        current = asyncio.current_task()
        ending = [task for task in self._tasks if task is not current]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self.waiters.fail(WorldUnavailableError(self.world.url, "its Lab was shut down", "open it again"))
        LIVE_WORKERS.discard(self.worker)
        await self.world.release_all(self.worker, now=self.clock.now_us())

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that the engine keeps until it is done, in a context of its own."""
        task = self.loop.create_task(work, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the engine's own work failed", exc_info=error)

    # -- starting runs ---------------------------------------------------------------------------------------

    async def admit(self, candidate: Candidate, workflow: Workflow[..., Any]) -> Admission:
        """Start a candidate here, unless another run holds its token (R26)."""
        self._versions[candidate.run_id] = workflow
        admission = await self.world.admit(candidate)
        if admission.owner is not None:
            del self._versions[candidate.run_id]
        if admission.lease is not None:
            self.spawn(self._begin(admission.lease, workflow))
        return admission

    def lease_until(self) -> int:
        """The end of a lease that is taken now, in microseconds since 1970."""
        return self.clock.now_us() + LEASE_US

    # -- taking open runs ------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        while True:
            await self._look_again.wait()
            self._look_again.clear()
            self._is_looking = True
            try:
                await self._take_open_runs()
            except WorldUnavailableError as error:
                log.warning("can't look for open runs: %s", error)
            finally:
                self._is_looking = False
                self.check_quiet()

    async def _take_open_runs(self) -> None:
        found = await self.world.open_runs(
            self.worker, catalogue.keys(), now=self.clock.now_us(), dead=self._dead, limit=TAKE_AT_ONCE
        )
        for item in found:
            run = self.live.get(item.run_id)
            if run is not None:
                await self._acquire(item)
                run.notice()
            else:
                await self._take(item)
        if len(found) == TAKE_AT_ONCE:
            self._look_again.set()
        await self._watch_queue()

    async def _watch_queue(self) -> None:
        """Look again when the next message of the queue is due: a run that was let go may sleep until then."""
        if self._queue_alarm is not None:
            self._queue_alarm.cancel()
            self._queue_alarm = None
        due = await self.world.next_due_us(after=self.clock.now_us())
        if due is not None:
            self._queue_alarm = self.clock.call_at(self.loop, due, self._look_again.set)

    async def _take(self, item: Open) -> None:
        for workflow in self._candidates(item):
            lease = await self._acquire(item)
            if lease is None:
                return
            await self._begin(lease, workflow)
            if item.run_id in self.live:
                return

    def _candidates(self, item: Open) -> Iterable[Workflow[..., Any]]:
        """The versions that may carry a run on: its own, else the newest first (R12); not those that did not fit."""
        key = (item.module, item.workflow)
        own = self._versions.get(item.run_id) or catalogue.workflow(key, item.definition)
        fit = [own] if own is not None else catalogue.versions(key)
        refused = self._refused.get(item.run_id, set())
        fit = [version for version in fit if version.version not in refused]
        if not fit and own is not None:
            # Its own version does not replay (R11); a later one may.
            fit = [version for version in catalogue.versions(key) if version.version not in refused]
        return fit

    async def _acquire(self, item: Open) -> Lease | None:
        dead = item.lease_owner if item.lease_owner in self._dead else None
        return await self.world.acquire(
            item.run_id, self.worker, now=self.clock.now_us(), until=self.lease_until(), dead=dead
        )

    async def _begin(self, lease: Lease, workflow: Workflow[..., Any]) -> None:
        if lease.run_id in self._beginning or lease.run_id in self.live:
            return
        self._beginning.add(lease.run_id)
        try:
            record = await self.world.run(lease.run_id)
            recorded = await self.world.events(lease.run_id)
            if record is None or record.ended_at is not None:
                return
            run = self.live[lease.run_id] = LiveRun(self, lease, record, workflow)
        finally:
            self._beginning.discard(lease.run_id)
        await run.begin(recorded)
        self._evict()

    def _evict(self) -> None:
        while len(self.live) > MAX_LIVE_RUNS:
            now = self.clock.now_us()
            idle = next((run for run in self.live.values() if run.is_idle_until(now)), None)
            if idle is None:
                return
            del self.live[idle.run_id]
            due_at = idle.next_due_us
            idle.stop()
            self.spawn(self._release(idle.lease, due_at))

    async def _release(self, lease: Lease, due_at: int | None) -> None:
        # A payload may have come since the body was last looked at: then there is a message, and it is due first.
        await self.world.release(lease, due_at=due_at)
        self._look_again.set()

    # -- advancing runs --------------------------------------------------------------------------------------

    def advance(self, run: LiveRun) -> None:
        """Give a run a turn, soon."""
        if self.live.get(run.run_id) is run:
            # Last in line to be let go.
            self.live[run.run_id] = self.live.pop(run.run_id)
        self.spawn(run.advance())

    def wake(self, run_id: str, worker: str | None) -> None:
        """Something was appended to a run's log from here; `worker` is who holds its lease."""
        run = self.live.get(run_id)
        if run is not None and worker == self.worker:
            run.notice()
        else:
            self._look_again.set()

    def unstored(self, step: Any) -> Source | None:
        """The source of a step, unless the World has it already."""
        return None if step.version in self._stored else step.source

    def stored(self, sources: Iterable[Source]) -> None:
        """These sources are in the World now."""
        self._stored.update(source.hash for source in sources)

    def run_ended(self, run: LiveRun) -> None:
        """A run has ended here."""
        self._forget(run)
        self._versions.pop(run.run_id, None)
        self._refused.pop(run.run_id, None)
        self.waiters.tell_end(run.run_id)
        self.check_quiet()

    def turn_ended(self) -> None:
        """A run has nothing to do for now."""
        self._evict()
        self.check_quiet()

    async def run_lost(self, run: LiveRun) -> None:
        """Another worker has a run now, or it was ended from outside."""
        self._forget(run)
        record = await self.world.run(run.run_id)
        if record is None or record.ended_at is not None:
            self.run_ended(run)
        self.check_quiet()

    async def run_blocked(self, run: LiveRun, reason: str) -> None:
        """A run can't go on with this version of its body (R11); it waits for another."""
        self._forget(run)
        self._refused.setdefault(run.run_id, set()).add(run.workflow.version)
        await self.world.release(run.lease, due_at=self.clock.now_us(), blocked=reason)
        self.check_quiet()

    def _forget(self, run: LiveRun) -> None:
        if self.live.get(run.run_id) is run:
            del self.live[run.run_id]

    def cancelled(self, run_id: str) -> None:
        """A run was cancelled from this process."""
        run = self.live.get(run_id)
        if run is not None:
            run.stop()
            self.run_ended(run)
        else:
            self.waiters.tell_end(run_id)

    def missing_definition(self, record: RunRecord) -> str | None:
        """What an open run needs that this process does not have, while nobody advances it (R12)."""
        is_held = record.lease_owner is not None and record.lease_owner not in self._dead
        if record.ended_at is not None or (is_held and (record.lease_until or 0) > self.clock.now_us()):
            return None
        if catalogue.versions((record.module, record.workflow)):
            return None
        return (
            f"no process has the definition of workflow {record.workflow!r} (of {record.module}, version "
            f"{record.definition[:8]}): define it again, or import its module"
        )

    # -- rest ------------------------------------------------------------------------------------------------

    @property
    def is_quiet(self) -> bool:
        """Whether no run can go any further by itself: all wait for time, payloads or other processes."""
        if self._is_looking or self._look_again.is_set() or self._beginning:
            return False
        return not any(run.is_busy for run in self.live.values())

    async def quiet(self) -> None:
        """Return once `is_quiet`."""
        while True:
            # Alarms that an advance of the clock has set off, and turns that they asked for, are in the loop's queue.
            for _ in range(3):
                await asyncio.sleep(0)
            if self.is_quiet:
                return
            await self.waiters.next_quiet()

    def check_quiet(self) -> None:
        """Tell who waits for quiet, if it is."""
        if self.waiters.is_quiet_awaited and self.is_quiet:
            self.waiters.tell_quiet()

    async def skip_time(self) -> None:
        """On a virtual clock: once quiet, move it to the next alarm. Returns when there was one."""
        assert isinstance(self.clock, VirtualClock)
        while True:
            await self.quiet()
            due_us = self.clock.next_alarm_us()
            if due_us is not None:
                self.clock.advance(max(0.0, (due_us - self.clock.now_us()) / 1e6))
                return
            await self.waiters.next_quiet()

    # -- the background ----------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        """Notice what other processes write, and workers that have died."""
        rounds = 0
        while True:
            try:
                if rounds % round(LOOK_FOR_DEAD_EVERY_S / POLL_EVERY_S) == 0:
                    await self._look_for_dead()
                if await self.world.has_changed():
                    self._look_again.set()
                    await self._look_at_waited()
            except WorldUnavailableError as error:
                log.warning("can't look at what others do: %s", error)
            rounds += 1
            await asyncio.sleep(POLL_EVERY_S)

    async def _look_for_dead(self) -> None:
        self._dead = dead_workers(await self.world.lease_owners())
        await self._begin_forgotten()
        if self._dead:
            self._look_again.set()

    async def _begin_forgotten(self) -> None:
        """Advance runs that are leased to this engine without its knowing: the reply to their admission was lost."""
        if await self.world.held(self.worker) == len(self.live):
            return
        for item in await self.world.leases(self.worker):
            if item.run_id not in self.live and item.run_id not in self._beginning:
                await self._take(item)

    async def _look_at_waited(self) -> None:
        watched = self.waiters.awaited_runs
        if len(self.live) != await self.world.held(self.worker):
            # A run that was cancelled elsewhere has lost its lease: its running steps must end.
            watched += self.live
        for run_id in watched:
            record = await self.world.run(run_id)
            if record is None or record.ended_at is not None:
                self.cancelled(run_id)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            if self.live:
                try:
                    await self.world.renew(self.worker, until=self.lease_until())
                except WorldUnavailableError as error:
                    log.warning("can't renew the leases: %s", error)

    def _defined(self, _workflow: Workflow[..., Any]) -> None:
        """A version was defined: a run may have waited for it (R11, R12). Called from the defining thread."""
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self._look_again.set)
