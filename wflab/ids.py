"""Ids: new ones for runs and workers, and ones derived from a run for what its body calls (R1)."""

from __future__ import annotations

import hashlib
import os
import socket
from functools import lru_cache
from pathlib import Path

from ulid import ULID

__all__ = ["derived_id", "derived_token", "host_id", "new_run_id", "run_id_of_step", "worker_id"]

_SECRET = os.urandom
"""Held here so that a workflow's deterministic `os.urandom` can never make a run id."""


def new_run_id(now_us: int) -> str:
    """A fresh run id, `wrun_…`, whose body is a ULID: ids sort by the time they were made.

    Args:
        now_us: the current time in microseconds since 1970, from the clock of the Lab.
    """
    return "wrun_" + str(ULID((now_us // 1000).to_bytes(6, "big") + _SECRET(10)))


def derived_id(prefix: str, seed: str, counter: int, now_us: int) -> str:
    """The id of the `counter`-th call of its kind in a run: the same at every replay, and in no other run (R1).

    Args:
        prefix: `step`, `hook` or `wait`.
        seed: the run's own random seed.
        counter: 1 for the first call.
        now_us: the workflow's time of the call, in microseconds since 1970.
    """
    body = hashlib.blake2b(f"{prefix}{counter}".encode(), key=seed.encode(), digest_size=10).digest()
    return f"{prefix}_{ULID((now_us // 1000).to_bytes(6, 'big') + body)}"


def derived_token(seed: str, counter: int) -> str:
    """The token of the `counter`-th hook created without one: can't be guessed, the same at every replay (R18)."""
    return hashlib.blake2b(f"token{counter}".encode(), key=seed.encode(), digest_size=16).hexdigest()


def run_id_of_step(step_id: str) -> str:
    """The id of the run that a `start()` step makes, so that an attempt repeated after a crash finds it (R31)."""
    return "wrun_" + step_id.partition("_")[2]


@lru_cache(maxsize=1)
def host_id() -> str:
    """Names this machine and process namespace: two workers with the same one can see each other's process ids."""
    namespace = Path("/proc/self/ns/pid")
    return socket.gethostname() + (":" + str(namespace.readlink()) if namespace.exists() else "")


def worker_id() -> str:
    """A fresh id for an engine of this process: `host|pid|random`, so that others can tell whether it still lives."""
    return f"{host_id()}|{os.getpid()}|{_SECRET(6).hex()}"
