"""Lists of runs and hooks that show themselves as a table, and give a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from wflab.models import Run
from wflab.views import browse, frames, html

if TYPE_CHECKING:
    import pandas

__all__ = ["HookTable", "RunTable", "hook_table", "run_table"]

T = TypeVar("T")


class _Table(Sequence[T], Generic[T]):
    """A snapshot: it does not change while you look at it."""

    def __init__(self, items: list[T]) -> None:
        self._items = items

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)


class RunTable(_Table[Any]):
    """Runs as handles, newest first."""

    def __init__(self, rows: list[Run], now_us: int, make_run: Callable[[str], Any]) -> None:
        super().__init__([make_run(row.run_id) for row in rows])
        self._rows = rows
        self._now_us = now_us

    def frame(self) -> pandas.DataFrame:
        """One row a run."""
        return frames.runs_frame(self._rows)

    def __repr__(self) -> str:
        counts = {status: sum(row.status == status for row in self._rows) for status in frames.RUN_STATUSES}
        told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        return f"<{len(self)} runs: {told}>" if told else "<no runs>"

    def _repr_html_(self) -> str:
        return html.runs_html(self._rows, self._now_us)


class HookTable(_Table[browse.HookRow]):
    """Hooks, newest first."""

    def __init__(self, rows: list[browse.HookRow], now_us: int) -> None:
        super().__init__(rows)
        self._rows = rows
        self._now_us = now_us

    def frame(self) -> pandas.DataFrame:
        """One row a hook."""
        return frames.hooks_frame(self._rows)

    def __repr__(self) -> str:
        counts = {state: sum(hook.state == state for hook in self) for state in frames.HOOK_STATES}
        told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        return f"<{len(self)} hooks: {told}>" if told else "<no hooks>"

    def _repr_html_(self) -> str:
        return html.hooks_html(self._rows, self._now_us)


def run_table(world: Any, now_us: int, make_run: Callable[[str], Any], **filters: Any) -> RunTable:
    """The runs of a World: see `browse.find_runs` for the filters."""
    return RunTable(browse.find_runs(world, **filters), now_us, make_run)


def hook_table(world: Any, now_us: int) -> HookTable:
    """The hooks of a World."""
    return HookTable(browse.find_hooks(world, now_us), now_us)
