"""One open run in this process: its live body, its running attempts, its timers, and the turns that move it on."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wflab.clock import Alarm
from wflab.durations import as_datetime
from wflab.engine import current, determinism
from wflab.engine.batches import BatchBuilder
from wflab.engine.definitions import Step, Workflow, catalogue
from wflab.engine.effects import Effect, StartStep, StartTimer
from wflab.engine.inbox import Ended, InboxItem, LiveStep, RetryDue, TimerDue
from wflab.engine.log import delivery_order, encode_error, last_line
from wflab.engine.replay import Replay
from wflab.engine.steps import Outcome, run_attempt
from wflab.errors import (
    LeaseLostError,
    ReplayDivergenceError,
    SerializationError,
    StepAttemptLostError,
    WorldUnavailableError,
)
from wflab.world.protocol import Committed, Lease, Recorded, RunRecord, StaleBatchError

if TYPE_CHECKING:
    from wflab.engine.dispatcher import Engine

__all__ = ["LiveRun"]

log = logging.getLogger(__name__)


class LiveRun:
    """Moves one run on, under its lease. Everything happens on the engine's loop, one turn at a time."""

    def __init__(self, engine: Engine, lease: Lease, record: RunRecord, workflow: Workflow[..., Any]) -> None:
        self.engine = engine
        self.lease = lease
        self.record = record
        self.workflow = workflow
        determinism.adopt(workflow.fn)
        self.steps: dict[str, LiveStep] = {}
        self.alarms: dict[str, Alarm] = {}
        self.is_over = False
        self._inbox: deque[InboxItem] = deque()
        self._has_news = False
        self._is_turning = False
        self._effects: list[Effect] = []
        self._replay = self._new_replay()

    @property
    def run_id(self) -> str:
        """The run."""
        return self.record.run_id

    @property
    def is_busy(self) -> bool:
        """Whether it has anything to do now, rather than waiting for time, payloads or other runs."""
        if self._is_turning or self._inbox or self._has_news:
            return True
        return any(
            state.task is not None and not (state.step is not None and state.step.waits_for_others)
            for state in self.steps.values()
        )

    def is_idle_until(self, now: int) -> bool:
        """Whether it only waits for payloads, or for a time after `now`: its body may be let go."""
        due = self.next_due_us
        return not self.is_busy and not self.steps and (due is None or due > now)

    @property
    def next_due_us(self) -> int | None:
        """When its next timer is due, in microseconds since 1970."""
        return min((when_us for when_us, _ in self._replay.open_timers.values()), default=None)

    def _new_replay(self) -> Replay:
        return Replay(self.record, self.workflow, self.engine.lab, self.engine.max_retention_us)

    # -- what may happen to it -----------------------------------------------------------------------------

    def notice(self) -> None:
        """Others have appended to the log."""
        self._has_news = True
        self.engine.advance(self)

    def _ring(self, item: InboxItem) -> None:
        self._inbox.append(item)
        self.engine.advance(self)

    def stop(self) -> None:
        """Let go of the body, the attempts and the timers; nothing is recorded (R17)."""
        self.is_over = True
        for state in self.steps.values():
            state.stop()
        for alarm in self.alarms.values():
            alarm.cancel()
        self.steps.clear()
        self.alarms.clear()
        self._inbox.clear()
        self._replay.drop()

    # -- turns -----------------------------------------------------------------------------------------------

    async def begin(self, recorded: Sequence[Recorded]) -> None:
        """Bring the body to where the log ends, and go on from there."""
        self._is_turning = True
        try:
            builder = BatchBuilder(self.record, self.engine.clock.now_us())
            self._pick_up(recorded, builder, {}, {})
            if self.workflow.version != self.record.definition:
                builder.moved(self.workflow, self.record.definition)
            await self._commit(builder, [])
        except Exception as error:
            await self._give_up(error)
        finally:
            self._is_turning = False
        await self.advance()

    async def advance(self) -> None:
        """Take turns until there is nothing to do. A call while a turn is on leaves the rest to that one."""
        if self._is_turning:
            return
        self._is_turning = True
        try:
            while not self.is_over and (self._inbox or self._has_news or self._effects):
                await self._turn()
        except Exception as error:
            await self._give_up(error)
        finally:
            self._is_turning = False
            self.engine.turn_ended()

    async def _turn(self) -> None:
        builder = BatchBuilder(self.record, self.engine.clock.now_us())
        if self._has_news:
            self._has_news = False
            await self._read_news()
        handled = list(self._inbox)
        self._inbox.clear()
        for item in handled:
            self._handle(item, builder)
        await self._commit(builder, handled)

    async def _read_news(self) -> None:
        events = await self.engine.world.events(self.run_id, after=self.lease.position)
        if events:
            self.lease.position = events[-1].position
            self._feed(events)

    def _feed(self, events: Sequence[Recorded]) -> None:
        for item in events:
            if item.type == "wait_completed" and item.correlation_id in self.alarms:
                self.alarms.pop(item.correlation_id).cancel()
        self._effects.extend(self._replay.feed(events))

    def _handle(self, item: InboxItem, builder: BatchBuilder) -> None:
        if isinstance(item, TimerDue):
            self.alarms.pop(item.wait_id, None)
            if item.wait_id in self._replay.open_timers:
                self._feed([builder.timer_rang(item.wait_id)])
            return
        state = self.steps.get(item.step_id)
        if state is None:
            return
        if isinstance(item, RetryDue):
            state.alarm = None
            self._next_attempt(state, builder)
        elif item.attempt == state.attempt:
            self._attempt_ended(state, item.outcome, builder)

    def _attempt_ended(self, state: LiveStep, outcome: Outcome, builder: BatchBuilder) -> None:
        call, step = state.call, state.step or state.call.step
        if outcome.error is None:
            del self.steps[call.step_id]
            self._feed([builder.step_completed(call.step_id, state.attempt, outcome.result or "null", outcome.printed)])
            return
        error = outcome.error
        state.failures.append(last_line(error))
        is_last = outcome.is_fatal or step.is_builtin or state.attempt > step.max_retries
        if is_last:
            self._step_failed(state, error, builder, printed=outcome.printed)
            return
        wait_us = outcome.retry_after_us
        if wait_us is None:
            wait_us = step.wait_before_us(state.attempt)
        builder.step_retrying(call.step_id, state.attempt, encode_error(error), builder.at + wait_us, outcome.printed)
        if wait_us == 0:
            self._next_attempt(state, builder)
        else:
            self._wait_for_retry(state, builder.at + wait_us)

    def _step_failed(self, state: LiveStep, error: BaseException, builder: BatchBuilder, *, printed: str = "") -> None:
        call = state.call
        del self.steps[call.step_id]
        if len(state.failures) > 1:
            tries = "\n".join(f"  attempt {number}: {line}" for number, line in enumerate(state.failures, 1))
            error.add_note(f"step {call.step.name!r} ({call.step_id}) failed {len(state.failures)} times:\n{tries}")
        self._feed([builder.step_failed(call.step_id, state.attempt, encode_error(error), printed)])

    def _wait_for_retry(self, state: LiveStep, retry_at_us: int) -> None:
        due = RetryDue(state.call.step_id)
        state.alarm = self.engine.clock.call_at(self.engine.loop, retry_at_us, lambda: self._ring(due))

    def _next_attempt(self, state: LiveStep, builder: BatchBuilder) -> None:
        state.attempt += 1
        state.step = catalogue.newest_step(state.call.step)
        builder.step_started(state.call.step_id, state.attempt, state.step, self.engine.unstored(state.step))
        builder.launches.append(state.call.step_id)

    async def _commit(self, builder: BatchBuilder, handled: list[Any]) -> None:
        effects, self._effects = self._effects, []
        self._add_effects(effects, builder)
        if not builder.batch.events:
            return
        if self.lease.position + len(builder.batch.events) > self.engine.max_events:
            builder.give_up_for_length(self.engine.max_events)
        before = self.lease.position
        try:
            committed = await self._commit_patiently(builder)
        except StaleBatchError:
            await self._rebuild(handled)
            return
        self.lease.position = committed.position
        self.engine.stored(builder.batch.sources)
        for run_id, worker in committed.wake:
            self.engine.wake(run_id, worker)
        if builder.is_end:
            self._end(builder)
            return
        self._set_off(builder)
        answers = builder.answers(committed.owners)
        if answers:
            self._feed(answers)
        if committed.had_gap:
            await self._read_gap(before, committed, len(builder.batch.events))

    def _add_effects(self, effects: list[Effect], builder: BatchBuilder) -> None:
        calls = builder.add(effects, lambda step_id: self.steps[step_id].attempt if step_id in self.steps else 0)
        for step_id in builder.cancelled:
            cancelled = self.steps.pop(step_id, None)
            if cancelled is not None:
                cancelled.stop()
        if builder.is_end:
            return
        for call in calls:
            self.steps[call.step_id] = state = LiveStep(call)
            self._next_attempt(state, builder)

    async def _commit_patiently(self, builder: BatchBuilder) -> Committed:
        delay_s = 0.05
        while True:
            try:
                return await self.engine.world.commit(self.lease, builder.batch)
            except WorldUnavailableError as error:
                # The body has gone on and can't go back: what it asked for is kept until the database is there again.
                log.warning("run %s waits for its database: %s", self.run_id, error)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, 5.0)

    async def _read_gap(self, before: int, committed: Committed, own: int) -> None:
        """Feed what others had appended before our batch: the body sees it now, after it (`delivery_order`)."""
        events = await self.engine.world.events(self.run_id, after=before)
        mine = range(committed.position - own + 1, committed.position + 1)
        news = [item for item in events if item.position not in mine]
        self.lease.position = max(committed.position, events[-1].position)
        self._feed(news)

    def _set_off(self, builder: BatchBuilder) -> None:
        """Start what the batch has recorded as started."""
        for wait_id, when_us in builder.timers.items():
            self._set_alarm(wait_id, when_us)
        for step_id in builder.launches:
            state = self.steps.get(step_id)
            if state is not None and state.step is not None:
                state.task = self.engine.spawn(self._attempt(state, state.step))

    def _set_alarm(self, wait_id: str, when_us: int) -> None:
        due = TimerDue(wait_id)
        self.alarms[wait_id] = self.engine.clock.call_at(self.engine.loop, when_us, lambda: self._ring(due))

    async def _attempt(self, state: LiveStep, step: Step[..., Any]) -> None:
        call, number = state.call, state.attempt
        now = as_datetime(self.engine.clock.now_us())
        metadata = current.StepMetadata(call.step_id, call.step.name, self.run_id, number, now)
        outcome = await run_attempt(step, call.input, current.Attempt(metadata, self.engine.lab), self.engine.clock)
        if state.task is None:
            return  # cancelled meanwhile
        state.task = None
        current.attempt.set(None)
        self._inbox.append(Ended(call.step_id, number, outcome))
        if len(self.steps) == 1 and not self._is_turning:
            # The usual chain of one step after another: the next turn is taken right here, not a loop iteration later.
            await self.advance()
        else:
            self.engine.advance(self)

    # -- beginning and ending ----------------------------------------------------------------------------------

    def _pick_up(
        self,
        recorded: Sequence[Recorded],
        builder: BatchBuilder,
        running: dict[str, LiveStep],
        ended: dict[str, int],
    ) -> None:
        """Bring a fresh body to where the log ends, and see to every step and timer that is open there.

        Args:
            running: attempts that are under way in this process.
            ended: the attempts, by step id, whose outcome is at hand but not in the log yet.
        """
        self._effects = self._replay.feed(delivery_order(recorded))
        self.lease.position = recorded[-1].position
        if not any(item.type == "run_started" for item in recorded):
            self._feed([builder.run_started()])
        fresh = {effect.step_id for effect in self._effects if isinstance(effect, StartStep)}
        for step_id, open_step in list(self._replay.open_steps.items()):
            if step_id in fresh:
                continue
            state = running.pop(step_id, None) or LiveStep(open_step.call, open_step.attempts)
            state.failures = open_step.failures
            state.step = state.step or catalogue.newest_step(open_step.call.step)
            self.steps[step_id] = state
            if open_step.is_retrying:
                self._wait_for_retry(state, open_step.retry_at_us)
            elif open_step.attempts == 0:
                self._next_attempt(state, builder)
            elif state.task is None and ended.get(step_id) != open_step.attempts:
                self._attempt_lost(state, builder)
        asked = {effect.wait_id for effect in self._effects if isinstance(effect, StartTimer)}
        for wait_id, (when_us, _) in self._replay.open_timers.items():
            if wait_id not in asked:
                self._set_alarm(wait_id, when_us)

    def _attempt_lost(self, state: LiveStep, builder: BatchBuilder) -> None:
        """The process that ran the attempt is gone. It counts as an attempt, for it may have had its effect (R3)."""
        call, step = state.call, state.step or state.call.step
        error = StepAttemptLostError(call.step.name, call.step_id, state.attempt)
        state.failures.append("cut off: its process ended")
        if state.attempt > step.max_retries and not step.is_builtin:
            self._step_failed(state, error, builder)
            return
        builder.step_retrying(call.step_id, state.attempt, encode_error(error), builder.at, "")
        self._next_attempt(state, builder)

    async def _rebuild(self, handled: list[InboxItem]) -> None:
        """The batch contradicted the log: let go of the body, replay what is there, and do the same again on top."""
        running = {step_id: state for step_id, state in self.steps.items() if state.task is not None}
        self._inbox.extendleft(reversed(handled))
        for alarm in self.alarms.values():
            alarm.cancel()
        self.alarms.clear()
        self.steps = {}
        self._replay.drop()
        self._replay = self._new_replay()
        recorded = await self.engine.world.events(self.run_id)
        builder = BatchBuilder(self.record, self.engine.clock.now_us())
        ended = {item.step_id: item.attempt for item in self._inbox if isinstance(item, Ended)}
        self._pick_up(recorded, builder, running, ended)
        for state in running.values():
            state.stop()
        await self._commit(builder, [])

    def _end(self, builder: BatchBuilder) -> None:
        self.stop()
        self.engine.run_ended(self)

    async def _give_up(self, error: Exception) -> None:
        """A body that can't go on here waits for one that can (R11); a lease that was lost is another's to use."""
        position = self.lease.position
        self.stop()
        if isinstance(error, LeaseLostError):
            await self.engine.run_lost(self)
            return
        if not isinstance(error, ReplayDivergenceError | SerializationError):
            log.error("run %s stopped at event %s", self.run_id, position, exc_info=error)
        await self.engine.run_blocked(self, f"{type(error).__name__}: {error}")
