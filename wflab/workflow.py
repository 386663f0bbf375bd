"""What a workflow and its steps call from inside: hooks, sleeps, the time, and what they are."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from wflab import codec
from wflab.durations import Duration, as_datetime, deadline_us, duration_us
from wflab.engine import current
from wflab.engine.current import StepMetadata, WorkflowMetadata
from wflab.engine.hooks import Hook
from wflab.engine.replay import Replay
from wflab.errors import InvalidDurationError, InvalidTokenError

__all__ = [
    "check_token",
    "create_hook",
    "get_step_metadata",
    "get_workflow_metadata",
    "now",
    "retained_until_us",
    "sleep",
]

MAX_TOKEN_LENGTH = 512


def create_hook(
    token: str | None = None,
    *,
    metadata: Any = None,
    min_retention: Duration | None = None,
    force: bool = False,
    is_webhook: bool = False,
) -> Hook[Any]:
    """Make a hook that others resume with its token. It is registered when the workflow next suspends (R19).

    With the token that the run was started with, this is a handle to the start hook (R28).

    Args:
        token: a non-empty string of at most 512 characters; one that can't be guessed when not given (R18).
        metadata: any storable value, shown by `get_hook_by_token`.
        min_retention: how long from now the token stays taken, even when the run ends before (R24).
        force: take the token from whoever holds it (R25).
        is_webhook: mark it as a webhook, for whoever looks it up.

    Raises:
        RuntimeError: not in a workflow's body.
        InvalidTokenError: (a `ValueError`) the token is empty, too long, or has a NUL.
        ValueError: an option that the start hook can't take, or a retention above the limit.
        SerializationError: the metadata can't be stored.
    """
    body = _body("create_hook()")
    if token is not None:
        check_token(token)
    start_hook = body.start_hook(token)
    if start_hook is not None:
        given = {"metadata": metadata, "min_retention": min_retention, "force": force, "is_webhook": is_webhook}
        wrong = [name for name, value in given.items() if value is not None and value is not False]
        if wrong:
            raise ValueError(
                f"create_hook({token!r}) is the start hook of this run, which can't take {', '.join(wrong)}: "
                "metadata and min_retention belong on start(hook=StartHook(...)), and a start hook is no webhook "
                "and takes no token by force"
            )
        return start_hook
    retained = retained_until_us(min_retention, now_us=body.now_us(), limit_us=body.max_retention_us)
    return body.create_hook(
        token,
        metadata=codec.encode(metadata, path="metadata"),
        retained_until=retained,
        force=force,
        is_webhook=is_webhook,
    )


def sleep(duration: Duration) -> asyncio.Future[None]:
    """Wait durably: the wait goes on where the process ends. `await` it.

    Args:
        duration: any duration, or the aware datetime to wait for; one that has passed ends at once.

    Raises:
        InvalidDurationError: (a `ValueError`) the duration is negative, NaN, naive or can't be read.
        RuntimeError: not in a workflow's body.
    """
    body = _body("sleep()")
    due_us = deadline_us(duration, now_us=body.now_us())
    return _Sleep(body, due_us)


class _Sleep(asyncio.Future[None]):
    """A sleep that has begun; cancelling it closes its wait in the log (R8)."""

    def __init__(self, body: Replay, due_us: int) -> None:
        super().__init__(loop=body.loop)
        self._timer = body.loop.call_sleep(due_us, self._over)

    def _over(self) -> None:
        if not self.done():
            self.set_result(None)

    def cancel(self, msg: Any = None) -> bool:
        if not self.done():
            self._timer.cancel()
        return super().cancel(msg)


def now() -> datetime:
    """The workflow's time as an aware UTC datetime: fixed by its log, equal in every replay (R10).

    Outside a workflow it is the current time.
    """
    body = current.body()
    return datetime.now().astimezone() if body is None else as_datetime(body.now_us())


def get_step_metadata() -> StepMetadata:
    """What the running step is: use `.step_id` as the idempotency key of what it calls (R1, R2).

    Raises:
        RuntimeError: not in a step.
    """
    attempt = current.attempt.get()
    if attempt is None or current.body() is not None:
        raise RuntimeError("get_step_metadata() works in a running step only")
    return attempt.metadata


def get_workflow_metadata() -> WorkflowMetadata:
    """What the running workflow is.

    Raises:
        RuntimeError: not in a workflow's body.
    """
    return _body("get_workflow_metadata()").metadata()


def check_token(token: object) -> str:
    """A token as it may be stored. Raises `InvalidTokenError` for anything else."""
    if not isinstance(token, str):
        raise InvalidTokenError(token, f"it must be a str, not a {type(token).__name__}")
    if not token:
        raise InvalidTokenError(token, "it is empty")
    if len(token) > MAX_TOKEN_LENGTH:
        raise InvalidTokenError(token, f"it has {len(token)} characters; {MAX_TOKEN_LENGTH} are possible")
    if "\0" in token:
        raise InvalidTokenError(token, "it has a NUL character")
    if any("\ud800" <= character <= "\udfff" for character in token):
        raise InvalidTokenError(token, "it has half a surrogate pair, which is no Unicode text")
    return token


def retained_until_us(min_retention: Duration | None, *, now_us: int, limit_us: int) -> int | None:
    """When a retention that begins now ends, in microseconds since 1970; `None` without one (R24).

    Raises:
        InvalidDurationError: (a `ValueError`) it can't be read, or is longer than `limit_us`.
    """
    if min_retention is None:
        return None
    length_us = duration_us(min_retention, now_us=now_us)
    if length_us > limit_us:
        limit = f"{limit_us / 86_400_000_000:g} days"
        raise InvalidDurationError(min_retention, f"a token can be retained for {limit} at most (Lab(max_retention=…))")
    return now_us + length_us


def _body(call: str) -> Replay:
    body = current.body()
    if body is None:
        raise RuntimeError(f"{call} works in a workflow's body only")
    return body
