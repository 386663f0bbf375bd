"""Effects and outcomes written as events: the batch that one turn of a run commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from wflab import codec
from wflab.durations import as_datetime
from wflab.engine.definitions import Step, Workflow
from wflab.engine.effects import (
    CancelStep,
    CancelTimer,
    Complete,
    DisposeHook,
    Effect,
    Fail,
    RegisterHook,
    StartStep,
    StartTimer,
)
from wflab.world.protocol import Batch, Claim, NewEvent, Recorded, RunRecord, Source, hook_created_data

__all__ = ["BatchBuilder"]

_compact = json.JSONEncoder(separators=(",", ":")).encode


class BatchBuilder:
    """Collects the events of one turn, all of one time.

    Attributes:
        at: that time, in microseconds since 1970.
        batch: what to commit.
        launches: steps whose next attempt starts once the batch is in the log.
        timers: waits to watch once the batch is in the log, with when they are due.
        cancelled: steps that the body has cancelled.
        is_end: whether the run ends with this batch.
    """

    def __init__(self, record: RunRecord, at: int) -> None:
        self.record = record
        self.at = at
        self.batch = Batch()
        self.launches: list[str] = []
        self.timers: dict[str, int] = {}
        self.cancelled: list[str] = []
        self.is_end = False

    # -- inputs: recorded, and given to the body at once ------------------------------------------------------

    def run_started(self) -> Recorded:
        """The body begins."""
        return self._input("run_started", None, "{}", {})

    def step_completed(self, step_id: str, attempt: int, result: str, printed: str) -> Recorded:
        """A step has its result, given encoded."""
        data = f'{{"attempt":{attempt},"result":{result}{_printed(printed)}}}'
        return self._input("step_completed", step_id, data, {"attempt": attempt})

    def step_failed(self, step_id: str, attempt: int, error: str, printed: str) -> Recorded:
        """A step has failed for good."""
        data = f'{{"attempt":{attempt},"error":{error}{_printed(printed)}}}'
        return self._input("step_failed", step_id, data, {"attempt": attempt})

    def timer_rang(self, wait_id: str) -> Recorded:
        """A wait is over."""
        return self._input("wait_completed", wait_id, "{}", {})

    def answers(self, owners: dict[str, str | None]) -> list[Recorded]:
        """What the World said to each claim, in the order of the claims."""
        answers = []
        for item in self.batch.events:
            if item.correlation_id in owners and item.type == "hook_created":
                owner = owners[item.correlation_id or ""]
                kind = "hook_created" if owner is None else "hook_conflict"
                data = "{}" if owner is None else _compact({"conflicting_run_id": owner})
                answers.append(Recorded(self.record.run_id, 0, kind, item.correlation_id, data, item.at))
        return answers

    def _input(self, type_: str, correlation_id: str | None, data: str, view: dict[str, Any]) -> Recorded:
        self.batch.events.append(NewEvent(type_, correlation_id, data, self.at, view))
        return Recorded(self.record.run_id, 0, type_, correlation_id, data, self.at)

    # -- facts of attempts: recorded, nothing that a body sees --------------------------------------------------

    def step_started(self, step_id: str, attempt: int, step: Step[..., Any], unstored: Source | None) -> None:
        """An attempt begins; the version that it runs is recorded with it (R12)."""
        data = f'{{"attempt":{attempt},"version":"{step.version}"}}'
        self._add("step_started", step_id, data, {"attempt": attempt})
        if unstored is not None and unstored not in self.batch.sources:
            self.batch.sources.append(unstored)

    def step_retrying(self, step_id: str, attempt: int, error: str, retry_at_us: int, printed: str) -> None:
        """An attempt has failed; the next one comes at `retry_at_us`."""
        when = codec.encode(as_datetime(retry_at_us))
        data = f'{{"attempt":{attempt},"error":{error},"retry_at":{when}{_printed(printed)}}}'
        self._add("step_retrying", step_id, data, {"attempt": attempt, "retry_at": retry_at_us})

    def moved(self, workflow: Workflow[..., Any], before: str) -> None:
        """The run goes on with another version of its body, which fits its log (R12)."""
        data = _compact({"definition": workflow.version, "before": before})
        self._add("attr_set", None, data, {"definition": workflow.version})
        self.batch.sources.append(workflow.source)

    # -- effects ------------------------------------------------------------------------------------------------

    def add(self, effects: Iterable[Effect], attempt_of: Callable[[str], int]) -> list[StartStep]:
        """Record what the body asked for, in order. Gives the step calls that are to be started.

        Args:
            attempt_of: tells which attempt of a step is under way.
        """
        calls: list[StartStep] = []
        for effect in effects:
            if isinstance(effect, StartStep):
                self._start_step(effect)
                calls.append(effect)
            elif isinstance(effect, CancelStep):
                attempt, step_id = attempt_of(effect.step_id), effect.step_id
                data = f'{{"attempt":{attempt},"cancelled":true}}'
                self._add("step_failed", step_id, data, {"attempt": attempt, "cancelled": True})
                self.cancelled.append(step_id)
            else:
                self._add_rare(effect)
        gone = set(self.cancelled)
        return [call for call in calls if call.step_id not in gone]

    def _start_step(self, effect: StartStep) -> None:
        name = effect.step.name
        line = f',"line":"{effect.line}"' if effect.line else ""
        data = f'{{"step":{_compact(name)}{line},"input":{effect.input}}}'
        self._add("step_created", effect.step_id, data, {"name": name})

    def _add_rare(self, effect: Effect) -> None:
        match effect:
            case StartTimer(wait_id, when_us, line, is_sleep):
                data = f'{{"resume_at":{codec.encode(as_datetime(when_us))},"line":"{line}"}}'
                self._add("wait_created", wait_id, data, {"resume_at": when_us, "is_sleep": is_sleep})
                self.timers[wait_id] = when_us
            case CancelTimer(wait_id):
                self._add("wait_completed", wait_id, '{"cancelled":true}', {"cancelled": True})
                self.timers.pop(wait_id, None)
            case RegisterHook():
                claim = Claim(
                    effect.hook_id,
                    effect.token,
                    effect.metadata,
                    effect.retained_until,
                    effect.force,
                    effect.is_webhook,
                )
                self.batch.claims[effect.hook_id] = claim
                self._add("hook_created", effect.hook_id, hook_created_data(claim, effect.line), {})
            case DisposeHook(hook_id, token):
                self._add("hook_disposed", hook_id, _compact({"token": token}), {"token": token})
            case Complete(output):
                self._end("run_completed", f'{{"output":{output}}}', {"output": output})
            case Fail(error, error_code):
                data = f'{{"error":{error},"error_code":"{error_code}"}}'
                self._end("run_failed", data, {"error": error, "error_code": error_code})

    def _end(self, type_: str, data: str, view: dict[str, Any]) -> None:
        self._add(type_, None, data, view)
        self.is_end = True

    def give_up_for_length(self, max_events: int) -> None:
        """The log would grow past its limit: all that is recorded is that the run ends for it (R16)."""
        error = codec.encode(RuntimeError(f"the run has more than {max_events} events"))
        self.batch = Batch()
        self.launches.clear()
        code = "MAX_EVENTS_EXCEEDED"
        data = f'{{"error":{error},"error_code":"{code}"}}'
        self._end("run_failed", data, {"error": error, "error_code": code})

    def _add(self, type_: str, correlation_id: str | None, data: str, view: dict[str, Any]) -> None:
        self.batch.events.append(NewEvent(type_, correlation_id, data, self.at, view))


def _printed(text: str) -> str:
    return f',"printed":{_compact(text)}' if text else ""
