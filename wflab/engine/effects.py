"""What a workflow body may ask for: the effects that it leaves behind when it suspends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wflab.engine.definitions import Step

__all__ = [
    "CancelStep",
    "CancelTimer",
    "Complete",
    "DisposeHook",
    "Effect",
    "Fail",
    "RegisterHook",
    "StartStep",
    "StartTimer",
]


@dataclass(slots=True)
class StartStep:
    """Run a step. `input` is its encoded arguments, `line` where it was called."""

    step_id: str
    step: Step[..., Any]
    input: str
    line: str


@dataclass(slots=True)
class CancelStep:
    """End a step: the task that awaited it was cancelled (R8)."""

    step_id: str


@dataclass(slots=True)
class StartTimer:
    """Wait until `when_us`, in microseconds since 1970. What is no sleep is a deadline (`asyncio.timeout`)."""

    wait_id: str
    when_us: int
    line: str
    is_sleep: bool


@dataclass(slots=True)
class CancelTimer:
    """Close a timer that has not rung (R8)."""

    wait_id: str


@dataclass(slots=True)
class RegisterHook:
    """Claim a token (R19). `metadata` is encoded; `retained_until` is in microseconds since 1970."""

    hook_id: str
    token: str
    metadata: str
    retained_until: int | None
    force: bool
    is_webhook: bool
    line: str


@dataclass(slots=True)
class DisposeHook:
    """Release a token (R23)."""

    hook_id: str
    token: str


@dataclass(slots=True)
class Complete:
    """The body returned; `output` is encoded."""

    output: str


@dataclass(slots=True)
class Fail:
    """The body raised; `error` is the encoded exception."""

    error: str
    error_code: str = "USER_ERROR"
    reason: str = ""


Effect = StartStep | CancelStep | StartTimer | CancelTimer | RegisterHook | DisposeHook | Complete | Fail
