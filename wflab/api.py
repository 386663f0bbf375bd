"""What programs call: a Lab, the functions that act on the current one, and the handle of a run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from wflab import codec
from wflab.clock import Clock, RealClock, VirtualClock
from wflab.durable import do
from wflab.durations import Duration, duration_us
from wflab.engine import current, determinism
from wflab.engine.definitions import Workflow, catalogue
from wflab.engine.dispatcher import Engine
from wflab.errors import SerializationError
from wflab.host import Host, InlineHost, ThreadHost
from wflab.operations import SPEC_VERSION, Event, HookInfo, Operations, StartHook, StartRequest, deciding_lab
from wflab.workflow import check_token
from wflab.world.protocol import World

if TYPE_CHECKING:
    import pandas

    from wflab.views.tables import HookTable, RunTable

__all__ = [
    "Lab",
    "Run",
    "current_lab",
    "get_hook_by_token",
    "get_run",
    "hooks",
    "resume_hook",
    "run_sync",
    "runs",
    "shutdown",
    "start",
    "use",
]

R = TypeVar("R")
T = TypeVar("T")
DEFAULT_URL = "sqlite:///wflab.db"
DEFAULT_MAX_EVENTS = 25_000


class Run(Generic[R]):
    """A handle of one run; making it asks nothing of the World. In a workflow each access is a durable step (R15).

    Attributes:
        run_id: `wrun_…`.
    """

    def __init__(self, run_id: str, lab: Lab | None = None) -> None:
        self.run_id = run_id
        self._lab = lab

    @property
    def lab(self) -> Lab:
        """The Lab that the run lives in."""
        return self._lab or current_lab()

    async def exists(self) -> bool:
        """Whether the World has this run."""
        return cast("bool", await do(self.lab, "exists", self.run_id))

    async def status(self) -> Literal["pending", "running", "completed", "failed", "cancelled"]:
        """How far it is. Raises `WorkflowRunNotFoundError` for an unknown id, as all that follow do."""
        return await do(self.lab, "status", self.run_id)  # type: ignore[no-any-return]

    async def return_value(self, timeout: Duration | None = None) -> R:
        """Wait for its end and give what the workflow returned (R13).

        Args:
            timeout: any duration; the run goes on when it has passed.

        Raises:
            WorkflowRunFailedError: the workflow raised; that error is the `__cause__`.
            WorkflowRunCancelledError: it was cancelled.
            TimeoutError: it has not ended within `timeout`.
        """
        return cast("R", await do(self.lab, "return_value", self.run_id, timeout))

    async def cancel(self, reason: str | None = None) -> None:
        """End it: no further step starts, its tokens are released. An ended run stays as it is (R14)."""
        await do(self.lab, "cancel", self.run_id, reason)

    async def wake_up(self, correlation_ids: Sequence[str] | None = None) -> int:
        """End its sleeps early; those with these wait ids, or all. Gives how many were ended."""
        ids = None if correlation_ids is None else list(correlation_ids)
        return cast("int", await do(self.lab, "wake_up", self.run_id, ids))

    async def blocked(self) -> str | None:
        """Why it can't go on here: what diverged (R11) or which definition it needs (R12). `None` when all is well."""
        return cast("str | None", await do(self.lab, "blocked", self.run_id))

    async def events(self) -> list[Event]:
        """Its log, in order of position."""
        return cast("list[Event]", await do(self.lab, "events", self.run_id))

    async def workflow_name(self) -> str:
        """The name of its workflow."""
        return cast("str", await do(self.lab, "workflow_name", self.run_id))

    async def created_at(self) -> datetime:
        """When it was admitted, aware UTC."""
        return cast("datetime", await do(self.lab, "created_at", self.run_id))

    async def started_at(self) -> datetime | None:
        """When its body began, aware UTC; `None` while it has not."""
        return cast("datetime | None", await do(self.lab, "started_at", self.run_id))

    async def ended_at(self) -> datetime | None:
        """When it ended, aware UTC; `None` while it has not."""
        return cast("datetime | None", await do(self.lab, "ended_at", self.run_id))

    def frame(self, of: Literal["events", "steps", "hooks", "waits"] = "events") -> pandas.DataFrame:
        """Its log, steps, hooks or waits as a DataFrame: UTC datetimes, timedeltas, categories."""
        from wflab.views import frames

        return frames.run_frame(self.lab.world, self.run_id, of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.run_id == self.run_id

    def __hash__(self) -> int:
        return hash(self.run_id)

    def __repr__(self) -> str:
        return f"Run({self.run_id!r})"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        from wflab.views.html import run_line

        printer.text(run_line(self.lab.world, self.run_id, self.lab.clock.now_us()))

    def _repr_html_(self) -> str:
        from wflab.views.html import run_html

        return run_html(self.lab.world, self.run_id, self.lab.clock.now_us())


class Lab:
    """A World, an engine and a clock together. Opens with the first call, or as an async context manager.

    Args:
        url: a database URL, or a World; `WFLAB_DATABASE_URL`, else `sqlite:///wflab.db`, when not given.
        clock: the real one when not given, or a `VirtualClock` for an inline Lab.
        inline: run the engine on the caller's loop instead of a thread of its own.
        max_events: the longest log of a run (R16); `WFLAB_MAX_EVENTS`, else 25,000, when not given.
        max_retention: the longest retention of a token (R24).
        synchronous: of SQLite: `NORMAL` may lose the last commits in a power cut, `FULL` loses none.
    """

    def __init__(
        self,
        url: str | World | None = None,
        *,
        clock: Clock | None = None,
        inline: bool = False,
        max_events: int | None = None,
        max_retention: Duration = "30 days",
        synchronous: Literal["NORMAL", "FULL"] = "NORMAL",
    ) -> None:
        self.clock: Any = clock or (VirtualClock() if inline else RealClock())
        self.world: Any = _world(url, synchronous)
        self.max_events = max_events or int(os.environ.get("WFLAB_MAX_EVENTS", DEFAULT_MAX_EVENTS))
        self._max_retention_us = duration_us(max_retention, now_us=0)
        host = InlineHost if inline else ThreadHost
        self._host: Host[Operations] = host(self._open, self._close)

    async def _open(self) -> Operations:
        determinism.install()
        await self.world.open()
        engine = Engine(
            self.world,
            self.clock,
            self,
            max_events=self.max_events,
            max_retention_us=self._max_retention_us,
        )
        engine.start()
        return Operations(self, self.world, engine, self.clock)

    async def _close(self, operations: Operations) -> None:
        await operations.engine.stop()
        await self.world.close()

    @property
    def host(self) -> Host[Operations]:
        """Where its engine runs."""
        return self._host

    async def __aenter__(self) -> Lab:
        await self._host.call(_nothing)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.shutdown()

    async def start(
        self,
        workflow: Workflow[..., R],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        hook: StartHook | Mapping[str, Any] | None = None,
        spec_version: int = SPEC_VERSION,
    ) -> Run[R]:
        """Start a run; see `wflab.start`."""
        request = StartRequest.of(workflow, args, kwargs, hook, spec_version)
        return cast("Run[R]", await do(self, "start", request))

    def get_run(self, run_id: str) -> Run[Any]:
        """The handle of a run of this Lab; see `wflab.get_run`."""
        return Run(run_id, self)

    async def resume_hook(self, token: str, payload: Any = None) -> HookInfo:
        """Deliver a payload; see `wflab.resume_hook`."""
        return cast("HookInfo", await do(self, "resume_hook", check_token(token), payload))

    async def get_hook_by_token(self, token: str) -> HookInfo:
        """Look a token up; see `wflab.get_hook_by_token`."""
        return cast("HookInfo", await do(self, "get_hook_by_token", check_token(token)))

    async def idle(self) -> None:
        """Return once no run can go any further by itself: all wait for time, payloads or others."""
        await self._host.call(_quiet)

    def runs(self, **filters: Any) -> RunTable:
        """The runs of this Lab; see `wflab.runs`."""
        from wflab.views.tables import run_table

        return run_table(self.world, self.clock.now_us(), self.get_run, **filters)

    def hooks(self) -> HookTable:
        """The hooks of this Lab; see `wflab.hooks`."""
        from wflab.views.tables import hook_table

        return hook_table(self.world, self.clock.now_us())

    async def shutdown(self) -> None:
        """Stop the engine; open runs go on when the database is next opened. Twice is once."""
        await self._host.close()

    def __repr__(self) -> str:
        return f"Lab({self.world.url!r})"


async def _nothing(_operations: Operations) -> None:
    """Opening is all that was asked for."""


async def _quiet(operations: Operations) -> None:
    await operations.engine.quiet()


def _world(url: str | World | None, synchronous: Literal["NORMAL", "FULL"]) -> World:
    if url is not None and not isinstance(url, str):
        return url
    text = url or os.environ.get("WFLAB_DATABASE_URL") or DEFAULT_URL
    if not text.startswith("sqlite"):
        raise ValueError(f"{text!r} is not a database URL that this wflab can open: use sqlite:///path/to/file.db")
    # Imported late: `import wflab` must not wait for SQLAlchemy.
    from wflab.world.sqlite import SqliteWorld

    return SqliteWorld(text, synchronous=synchronous)


# -- the current Lab --------------------------------------------------------------------------------------------

_current: Lab | None = None


def current_lab() -> Lab:
    """The Lab that module-level functions act on: in workflows and steps the one that runs them, else that of `use`."""
    global _current
    inside = current.body() or current.attempt.get()
    if inside is not None:
        return cast("Lab", inside.lab)
    if _current is None:
        _current = Lab()
    return _current


def use(url_or_lab: str | Lab) -> Lab:
    """Choose the current Lab: a database URL, or a Lab."""
    global _current
    _current = url_or_lab if isinstance(url_or_lab, Lab) else Lab(url_or_lab)
    return _current


async def start(
    workflow: Workflow[..., R],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    hook: StartHook | Mapping[str, Any] | None = None,
    spec_version: int = SPEC_VERSION,
) -> Run[R]:
    """Start a run of a workflow; with a `hook` at most once per token, however many call at once (R26).

    Args:
        workflow: a function decorated with `@workflow`.
        args, kwargs: its arguments; they travel by value.
        hook: a `StartHook`, or a mapping with its keys.
        spec_version: 8; 7 makes a run whose token can't be taken by force (R25).

    Raises:
        HookConflictError: another run holds the token. Nothing was started.
        WorkflowStartError: whether it was started is unknown; repeat it with the same token (R31).
        NotAWorkflowError, WorkflowArgumentsError, SerializationError, InvalidTokenError, InvalidDurationError:
            what was given can't be started. Nothing was written.
    """
    return await current_lab().start(workflow, args, kwargs, hook=hook, spec_version=spec_version)


def get_run(run_id: str) -> Run[Any]:
    """The handle of a run, which need not exist: ask `exists()`."""
    return Run(run_id, current_lab())


async def resume_hook(token: str, payload: Any = None) -> HookInfo:
    """Deliver a payload to the run that holds the token. Returns when it is durable and the run will be woken (R21).

    Raises:
        HookNotFoundError: no open hook holds the token (R22).
        SerializationError: the payload can't be stored.
    """
    return await current_lab().resume_hook(token, payload)


async def get_hook_by_token(token: str) -> HookInfo:
    """The hook that holds the token, also while only its retention does (R24).

    Raises:
        HookNotFoundError: none does.
    """
    return await current_lab().get_hook_by_token(token)


def runs(**filters: Any) -> RunTable:
    """The runs of the current Lab, newest first: a list with `.frame()` that shows itself as a table.

    Args:
        **filters: `status`, `workflow`, `token`, `limit` (100).
    """
    return current_lab().runs(**filters)


def hooks() -> HookTable:
    """The hook tokens of the current Lab: a list with `.frame()` that shows itself as a table."""
    return current_lab().hooks()


async def shutdown() -> None:
    """Stop the current Lab's engine in this process, and leave every run to go on later."""
    if _current is not None:
        await _current.shutdown()


def run_sync(awaitable: Awaitable[T]) -> T:
    """Wait for an awaitable from code that is not async: for plain scripts, and for threads."""

    async def main() -> T:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main()).result()


def _workflow_of(text: Any) -> Workflow[..., Any]:
    key = (text["module"], text["name"])
    found = catalogue.workflow(key, text["version"]) or next(iter(catalogue.versions(key)), None)
    if found is None:
        raise SerializationError("workflow", text["name"], "no workflow of this name is defined here")
    return found


codec.register_reference("run", Run, lambda run: run.run_id, lambda run_id: Run(run_id, deciding_lab.get()))
codec.register_reference(
    "workflow",
    Workflow,
    lambda item: {"module": item.module, "name": item.name, "version": item.version},
    _workflow_of,
)
