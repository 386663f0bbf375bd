"""Which workers are dead: a process that was killed must not keep its runs until their leases end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from wflab.ids import host_id

__all__ = ["LIVE_WORKERS", "dead_workers"]

LIVE_WORKERS: set[str] = set()
"""The workers of this very process that have not stopped."""


def dead_workers(workers: Iterable[str]) -> list[str]:
    """Those of `workers` whose process on this machine is known to be gone. Of others only their lease can tell."""
    return [worker for worker in workers if _is_dead(worker)]


def _is_dead(worker: str) -> bool:
    host, _, rest = worker.rpartition("|")[0].rpartition("|")
    if host != host_id() or not rest.isdigit():
        return False
    pid = int(rest)
    if pid == os.getpid():
        return worker not in LIVE_WORKERS
    if sys.platform == "win32":
        # There, asking a process whether it lives with signal 0 ends it.
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """A killed child that its parent has not waited for is gone all the same."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return stat.rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return False
