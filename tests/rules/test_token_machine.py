"""The life of tokens as a state machine: whatever happens in whatever order, a model says who holds what (R18-R30)."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from wflab import (
    HookConflictError,
    HookForceClaimedError,
    HookNotFoundError,
    Lab,
    Run,
    StartHook,
    create_hook,
    workflow,
)

TOKENS = st.sampled_from(["a", "b"])
RETENTIONS = st.sampled_from([None, 0, 60, 600])


@workflow
async def holds(token: str, start_token: bool, retention: float | None, force: bool) -> Any:
    """Collects payloads until told to end in some way."""
    hook = create_hook(token) if start_token else create_hook(token, min_retention=retention, force=force)
    got: list[Any] = []
    try:
        async for payload in hook:
            if payload == "dispose":
                hook.dispose()
                await create_hook(f"parked {get_id()}")
            if payload == "fail":
                raise LookupError
            if payload == "end":
                break
            got.append(payload)
    except HookConflictError as error:
        return {"refused by": error.conflicting_run_id}
    except HookForceClaimedError as error:
        return {"taken by": error.claimed_by_run_id, "got": got}
    return {"got": got}


def get_id() -> str:
    from wflab import get_workflow_metadata

    return get_workflow_metadata().run_id


@dataclass
class Held:
    """What the model knows of a token."""

    run: Run[Any] | None = None
    is_open: bool = False
    until: float = 0.0
    retained_until: float = 0.0
    got: list[Any] = field(default_factory=list)


class TokenMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.lab = Lab(f"sqlite:///{Path(self.folder.name) / 'x.db'}", inline=True)
        self.held = {"a": Held(), "b": Held()}
        self.number = 0

    def do(self, work: Any) -> Any:
        async def settled() -> Any:
            result = await work
            await self.lab.idle()
            return result

        return self.loop.run_until_complete(settled())

    @property
    def now(self) -> float:
        return self.lab.clock.now_us() / 1e6

    def is_taken(self, token: str) -> bool:
        held = self.held[token]
        return held.run is not None and (held.is_open or held.until > self.now)

    def own(self, token: str, run: Run[Any], retention: float | None) -> None:
        self.held[token] = Held(run, True, 0.0, 0.0 if retention is None else self.now + retention)

    def ended(self, token: str) -> None:
        held = self.held[token]
        held.is_open, held.until = False, max(self.now, held.retained_until)

    @rule(token=TOKENS, retention=RETENTIONS)
    def start_once(self, token: str, retention: float | None) -> None:
        hook = StartHook(token, min_retention=retention)
        try:
            run = self.do(self.lab.start(holds, [token, True, None, False], hook=hook))
        except HookConflictError as refused:
            assert self.is_taken(token)
            owner = self.held[token].run
            assert owner is not None
            assert refused.conflicting_run_id == owner.run_id
        else:
            assert not self.is_taken(token)
            self.own(token, run, retention)

    @rule(token=TOKENS, retention=RETENTIONS, force=st.booleans())
    def create_in_a_run(self, token: str, retention: float | None, force: bool) -> None:
        was, taken = self.held[token], self.is_taken(token)
        run = self.do(self.lab.start(holds, [token, False, retention, force]))
        if taken and not force:
            assert was.run is not None
            assert self.do(run.return_value()) == {"refused by": was.run.run_id}
            return
        if was.run is not None and was.is_open:
            assert self.do(was.run.return_value()) == {"taken by": run.run_id, "got": was.got}
        self.own(token, run, retention)

    @rule(token=TOKENS)
    def resume(self, token: str) -> None:
        self.number += 1
        held = self.held[token]
        try:
            info = self.do(self.lab.resume_hook(token, self.number))
        except HookNotFoundError:
            assert not held.is_open
        else:
            assert held.is_open
            assert held.run is not None
            assert info.run_id == held.run.run_id
            held.got.append(self.number)

    @rule(token=TOKENS, how=st.sampled_from(["end", "fail", "dispose", "cancel"]))
    def end(self, token: str, how: str) -> None:
        held = self.held[token]
        if not held.is_open or held.run is None:
            return
        if how == "cancel":
            self.do(held.run.cancel())
        else:
            self.do(self.lab.resume_hook(token, how))
        if how == "end":
            assert self.do(held.run.return_value()) == {"got": held.got}
        self.ended(token)
        if how == "dispose":
            held.until = self.now

    @rule(seconds=st.sampled_from([1, 59, 61, 700]))
    def time_passes(self, seconds: int) -> None:
        self.lab.clock.advance(seconds)

    @rule()
    def the_process_restarts(self) -> None:
        clock, url = self.lab.clock, self.lab.world.url
        self.do_nothing_then_shut_down()
        self.lab = Lab(url, inline=True, clock=clock)
        for held in self.held.values():
            if held.run is not None:
                held.run = self.lab.get_run(held.run.run_id)

    def do_nothing_then_shut_down(self) -> None:
        self.loop.run_until_complete(self.lab.shutdown())

    @invariant()
    def the_look_up_agrees_with_the_model(self) -> None:
        for token, held in self.held.items():
            try:
                info = self.do(self.lab.get_hook_by_token(token))
            except HookNotFoundError:
                assert not self.is_taken(token)
            else:
                assert self.is_taken(token)
                assert held.run is not None
                assert info.run_id == held.run.run_id

    def teardown(self) -> None:
        self.do_nothing_then_shut_down()
        self.loop.close()
        self.folder.cleanup()


TestTokens = TokenMachine.TestCase
TestTokens.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestTokens = pytest.mark.filterwarnings("ignore::ResourceWarning")(TestTokens)
