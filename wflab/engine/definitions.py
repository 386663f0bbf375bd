"""Workflows and steps as they are defined, their versions, and the catalogue that finds them again (R12)."""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import CodeType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from wflab.durations import Duration, duration_us
from wflab.engine import current
from wflab.world.protocol import Source

__all__ = ["Catalogue", "Step", "Workflow", "catalogue", "step", "workflow"]

P = ParamSpec("P")
R = TypeVar("R")


class _Definition:
    """A function with the identity and the version under which logs know it."""

    kind = ""

    def __init__(self, fn: Callable[..., Any], name: str | None) -> None:
        functools.update_wrapper(self, fn)  # type: ignore[arg-type]
        self.fn = fn
        self.name = name or fn.__name__
        self.module = _scope(fn)
        self.source = _source(fn, self.kind, self.name, self.module)

    @property
    def key(self) -> tuple[str, str]:
        """What all versions of one definition share: (module, name)."""
        return (self.module, self.name)

    @property
    def version(self) -> str:
        """The content hash of this version's source."""
        return self.source.hash

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}{inspect.signature(self.fn)} version {self.version[:8]}>"


class Workflow(_Definition, Generic[P, R]):
    """A durable function: start it with `start`. Called directly, it is the plain function."""

    kind = "workflow"

    def __init__(self, fn: Callable[P, Coroutine[Any, Any, R]], name: str | None = None) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise TypeError(f"a workflow must be an async function: make it `async def {fn.__name__}`")
        super().__init__(fn, name)
        self.signature = inspect.signature(fn)
        catalogue.add_workflow(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """The plain function: its steps are those of whoever calls it."""
        return self.fn(*args, **kwargs)  # type: ignore[no-any-return]


class Step(_Definition, Generic[P, R]):
    """A function whose result is recorded. In a workflow a call gives an awaitable; elsewhere it is the plain function.

    Attributes:
        max_retries: further attempts after the first (R3).
        retry_after_us: the wait after a plain error; it grows by `backoff` with each further one.
        timeout_us: the limit for one attempt, or `None`.
        is_builtin: one of wflab's own (R15): its errors are final, and a crash does not use its attempts up.
        waits_for_others: it only waits for another run, so that it is not work that the engine has left to do.
    """

    kind = "step"

    def __init__(
        self,
        fn: Callable[P, Any],
        *,
        name: str | None = None,
        max_retries: int = 3,
        retry_after: Duration = 0.0,
        backoff: float = 1.0,
        timeout: Duration | None = None,
        is_builtin: bool = False,
        waits_for_others: bool = False,
    ) -> None:
        if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
            raise ValueError(f"max_retries={max_retries!r} must be a whole number, 0 or more")
        if not (isinstance(backoff, int | float) and math.isfinite(backoff) and backoff >= 1):
            raise ValueError(f"backoff={backoff!r} must be a finite number, 1 or more")
        super().__init__(fn, name)
        self.max_retries = max_retries
        self.retry_after_us = duration_us(retry_after, now_us=0)
        self.backoff = backoff
        self.timeout_us = None if timeout is None else duration_us(timeout, now_us=0)
        self.is_async = inspect.iscoroutinefunction(fn)
        self.is_builtin = is_builtin
        self.waits_for_others = waits_for_others
        if not is_builtin:
            catalogue.add_step(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """In a workflow's body: schedule the step, and give what to await. Elsewhere: the plain function (R6)."""
        body = current.body()
        if body is None:
            return self.fn(*args, **kwargs)  # type: ignore[no-any-return]
        return body.start_step(self, args, kwargs)

    def wait_before_us(self, attempt: int) -> int:
        """The wait between a plain error in `attempt` and the next one, in microseconds; at most a year."""
        exponent = min(attempt - 1, 1000)
        year_us = 31_557_600_000_000
        try:
            return round(min(self.retry_after_us * self.backoff**exponent, year_us))
        except OverflowError:
            return year_us


class Catalogue:
    """The definitions of this process, newest last. It only ever grows by decorating, never by reading a database."""

    def __init__(self) -> None:
        self._workflows: dict[tuple[str, str], list[Workflow[..., Any]]] = {}
        self._steps: dict[tuple[str, str], list[Step[..., Any]]] = {}
        self._listeners: list[Callable[[Workflow[..., Any]], object]] = []
        self._lock = threading.Lock()

    def add_workflow(self, added: Workflow[..., Any]) -> None:
        """Make a version the newest of its workflow, and tell the engines: an open run may have waited for it."""
        with self._lock:
            versions = self._workflows.setdefault(added.key, [])
            versions[:] = [item for item in versions if item.version != added.version]
            versions.append(added)
            listeners = list(self._listeners)
        for listener in listeners:
            listener(added)

    def add_step(self, added: Step[..., Any]) -> None:
        """Make a version the newest of its step."""
        with self._lock:
            versions = self._steps.setdefault(added.key, [])
            versions[:] = [item for item in versions if item.version != added.version]
            versions.append(added)

    def workflow(self, key: tuple[str, str], version: str) -> Workflow[..., Any] | None:
        """This very version, if it is here."""
        with self._lock:
            return next((item for item in self._workflows.get(key, ()) if item.version == version), None)

    def versions(self, key: tuple[str, str]) -> list[Workflow[..., Any]]:
        """All versions of a workflow that are here, newest first."""
        with self._lock:
            return self._workflows.get(key, [])[::-1]

    def keys(self) -> list[tuple[str, str]]:
        """The workflows that this process can run."""
        with self._lock:
            return list(self._workflows)

    def newest_step(self, called: Step[..., Any]) -> Step[..., Any]:
        """The newest version of a step, so that a fix reaches a run that is retrying (R12)."""
        versions = self._steps.get(called.key)
        return versions[-1] if versions else called

    def subscribe(self, listener: Callable[[Workflow[..., Any]], object]) -> None:
        """Call `listener` with each workflow defined from now on, from the defining thread."""
        with self._lock:
            self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[Workflow[..., Any]], object]) -> None:
        """Undo `subscribe`."""
        with self._lock:
            self._listeners.remove(listener)


catalogue = Catalogue()
"""Definitions belong to the process, as modules do; every Lab finds them here."""


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(*, name: str | None = None) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Workflow[P, R]]: ...
def workflow(fn: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Make an async function a durable workflow (seed: `"use workflow"`).

    Args:
        name: the name in logs and views; the function's own when not given.

    Raises:
        TypeError: the function is not `async def`.
    """
    if fn is not None:
        return Workflow(fn)
    return lambda fn: Workflow(fn, name)


@overload
def step(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    max_retries: int = 3,
    retry_after: Duration = 0.0,
    backoff: float = 1.0,
    timeout: Duration | None = None,
) -> _StepDecorator: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    max_retries: int = 3,
    retry_after: Duration = 0.0,
    backoff: float = 1.0,
    timeout: Duration | None = None,
) -> Any:
    """Make a function a step: its result is recorded, its failures are retried (seed: `"use step"`, R3).

    Args:
        name: the name in logs and views; the function's own when not given.
        max_retries: attempts after the first; 0 for one attempt only.
        retry_after: the wait after a plain error, any duration; at once when not given.
        backoff: the factor by which that wait grows with each further error.
        timeout: the limit for one attempt, any duration; past it the attempt fails and is retried.

    Raises:
        ValueError: an option has no sense.
    """

    def decorate(fn: Callable[..., Any]) -> Step[..., Any]:
        return Step(fn, name=name, max_retries=max_retries, retry_after=retry_after, backoff=backoff, timeout=timeout)

    return decorate if fn is None else decorate(fn)


class _StepDecorator(Protocol):
    """What `step(...)` gives: it takes `async def` and plain functions."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R]: ...


def _scope(fn: Callable[..., Any]) -> str:
    """Where a function is defined: its module, and for a nested one the function around it."""
    module = fn.__module__ or ""
    if module == "__main__":
        # A script is `__main__` when run and `orders` when imported: its runs must fit both ways.
        main = sys.modules.get("__main__")
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file else "__main__"
    outer = fn.__qualname__.rpartition(".")[0]
    return f"{module}:{outer}" if outer else module


def _source(fn: Callable[..., Any], kind: str, name: str, module: str) -> Source:
    code = fn.__code__
    try:
        lines, first_line = inspect.getsourcelines(fn)
        text = "".join(lines)
        identity = text
    except (OSError, TypeError):
        # Typed at a prompt or built by `exec`: no text to keep, but the code still tells versions apart.
        text, first_line, identity = "", code.co_firstlineno, _code_text(code)
    content = "\0".join([kind, module, name, identity, _closure_text(fn)])
    digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Source(digest, kind, name, module, text, code.co_filename, first_line)


def _code_text(code: CodeType) -> str:
    inner = [_code_text(item) if isinstance(item, CodeType) else repr(item) for item in code.co_consts]
    return repr((code.co_code, code.co_names, inner))


def _closure_text(fn: Callable[..., Any]) -> str:
    """Two workflows of one source made by a factory differ by what they close over; only plain values tell."""
    cells = fn.__closure__ or ()
    values = []
    for cell in cells:
        try:
            value = cell.cell_contents
        except ValueError:
            continue
        if isinstance(value, int | float | str | bytes | bool | None):
            values.append(repr(value))
    return ",".join(values)
