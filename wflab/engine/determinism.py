"""Inside a workflow body time, randomness and ids are the run's own, and what a replay can't repeat is refused (R10).

`install()` puts thread-aware stand-ins in place of the functions that bodies may call. A stand-in asks whether
this thread is stepping a body: if so the body answers, else the original does, so that nothing else in the
process sees a difference. Side effects are caught by an audit hook, however they are reached.
"""

from __future__ import annotations

import ctypes
import datetime
import functools
import gc
import os
import random
import sys
import threading
import time
import types
import uuid
import weakref
from collections.abc import Callable
from typing import Any

from wflab.engine import current
from wflab.errors import ForbiddenInWorkflowError

__all__ = ["adopt", "install"]

_lock = threading.Lock()
_is_installed = False
_stand_ins: dict[Any, Any] = {}
"""By original: what a module that took the original by name (`from time import time`) is given instead."""

_adopted: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()

_FORBIDDEN = {
    "open": ("opening a file", "do it in a step"),
    "socket.connect": ("connecting a socket", "call the service in a step"),
    "socket.bind": ("binding a socket", "do it in a step"),
    "socket.getaddrinfo": ("looking up a host", "call the service in a step"),
    "subprocess.Popen": ("starting a process", "do it in a step"),
    "os.system": ("running a command", "do it in a step"),
    "os.fork": ("forking", "do it in a step"),
    "sqlite3.connect": ("opening a database", "do it in a step"),
}


def install() -> None:
    """Put the stand-ins in place, once for the process."""
    global _is_installed
    with _lock:
        if _is_installed:
            return
        _is_installed = True
        _replace_time()
        _replace_random()
        _replace_datetime()
        _refuse_waiting_and_threads()
        sys.addaudithook(_audit)


def adopt(fn: Callable[..., Any]) -> None:
    """Give a function's module the stand-ins where it holds an original by name, as after `from time import time`."""
    if fn in _adopted:
        return
    _adopted.add(fn)
    names = fn.__globals__
    for name, value in list(names.items()):
        if callable(value) and (stand_in := _stand_in_for(value)) is not None:
            names[name] = stand_in


def _stand_in_for(value: Any) -> Any:
    try:
        return _stand_ins.get(value)
    except TypeError:  # it has no hash, so it is none of ours
        return None


def _refuse_waiting_and_threads() -> None:
    # Not audited by every Python that is supported.
    def no_sleep(_body: Any, *_args: Any) -> None:
        raise ForbiddenInWorkflowError("time.sleep()", "use `await sleep(...)`, which is durable")

    def no_thread(_body: Any, *_args: Any, **_kwargs: Any) -> None:
        raise ForbiddenInWorkflowError("starting a thread", "call a step, which has a thread of its own")

    _replace(time, "sleep", no_sleep)
    _replace(threading.Thread, "start", no_thread)


def _replace(module: types.ModuleType | type, name: str, in_body: Callable[..., Any]) -> None:
    original = getattr(module, name)

    @functools.wraps(original)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        body = current.body()
        return original(*args, **kwargs) if body is None else in_body(body, *args, **kwargs)

    _stand_ins[original] = stand_in
    setattr(module, name, stand_in)


def _replace_time() -> None:
    _replace(time, "time", lambda body: body.now_us() / 1e6)
    _replace(time, "time_ns", lambda body: body.now_us() * 1000)
    # Differences are all that these are good for, and the workflow's time gives them just as well.
    for name in ("monotonic", "perf_counter"):
        _replace(time, name, lambda body: body.now_us() / 1e6)
        _replace(time, name + "_ns", lambda body: body.now_us() * 1000)
    for name in ("gmtime", "localtime"):
        original = getattr(time, name)
        _replace(time, name, lambda body, secs=None, of=original: of(body.now_us() / 1e6 if secs is None else secs))


def _replace_random() -> None:
    shared = random._inst
    for name in dir(random):
        if getattr(getattr(random, name), "__self__", None) is shared and name not in ("getstate", "setstate"):
            _replace(random, name, lambda body, *args, of=name, **kwargs: getattr(body.random, of)(*args, **kwargs))
    _replace(os, "urandom", lambda body, size: body.random.randbytes(size))
    _replace(uuid, "uuid4", lambda body: uuid.UUID(int=body.random.getrandbits(128), version=4))
    _replace(uuid, "uuid1", lambda body, *_args, **_kwargs: uuid.UUID(int=body.random.getrandbits(128), version=1))


def _replace_datetime() -> None:
    """`datetime` is a C type that takes no new attributes, so its dictionary is changed in place.

    Everybody holds this very type, and instances of a subclass would not be equal in type: there is no other way
    for `datetime.now()` to know where it is called.
    """
    original_now = datetime.datetime.__dict__["now"]
    original_utcnow = datetime.datetime.__dict__["utcnow"]
    original_today = datetime.date.__dict__["today"]

    def now(cls: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> datetime.datetime:
        body = current.body()
        if body is None:
            return original_now.__get__(None, cls)(tz)  # type: ignore[no-any-return]
        return cls.fromtimestamp(body.now_us() / 1e6, tz)

    def utcnow(cls: type[datetime.datetime]) -> datetime.datetime:
        body = current.body()
        if body is None:
            return original_utcnow.__get__(None, cls)()  # type: ignore[no-any-return]
        return cls.fromtimestamp(body.now_us() / 1e6, datetime.UTC).replace(tzinfo=None)

    def today(cls: type[datetime.date]) -> datetime.date:
        body = current.body()
        if body is None:
            return original_today.__get__(None, cls)()  # type: ignore[no-any-return]
        return cls.fromtimestamp(body.now_us() / 1e6)

    _set_attributes(datetime.datetime, {"now": classmethod(now), "utcnow": classmethod(utcnow)})
    _set_attributes(datetime.date, {"today": classmethod(today)})


def _set_attributes(type_: type, attributes: dict[str, Any]) -> None:
    namespace = gc.get_referents(type_.__dict__)[0]
    namespace.update(attributes)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(type_))


def _audit(event: str, _args: tuple[Any, ...]) -> None:
    if event not in _FORBIDDEN:
        return
    body = current.body()
    if body is None or body.is_dropped or _is_importing():
        return
    raise ForbiddenInWorkflowError(*_FORBIDDEN[event])


def _is_importing() -> bool:
    """Whether Python itself is at work: imports and the printing of source lines open files, too."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("importlib") or name in ("linecache", "tokenize", "traceback"):
            return True
        if name == "wflab.engine.loop":
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return False
