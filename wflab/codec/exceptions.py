"""Exceptions with arguments, attributes, notes, cause and context (R4)."""

from __future__ import annotations

from typing import Any

from wflab.codec.classes import class_name, find_class
from wflab.codec.core import TAG, Reader, Writer, on_read, on_write_kind
from wflab.errors import UnresolvedError

__all__ = ["install"]

_NAMED = (
    (ImportError, ("name", "path")),
    (AttributeError, ("name",)),
    (NameError, ("name",)),
    (OSError, ("filename", "filename2")),
)
"""Attributes of Python's own exceptions that are neither arguments nor in `__dict__`."""


def install() -> None:
    """Make exceptions storable."""
    on_write_kind("exception", _write)
    on_read("exception", _read)


def _write(value: BaseException, writer: Writer) -> Any:
    attributes, lost = {}, []
    for name, item in vars(value).items():
        written, error = writer.try_at(f".{name}", item)
        if error is None:
            attributes[name] = written
        else:
            lost.append(f"its attribute {name} ({error.type_name}) was not kept: {error.reason}")
    if lost:
        # Clients hang connections and responses on their errors: what matters is that the error itself arrives.
        attributes["__notes__"] = [*attributes.get("__notes__", []), *lost]
    data: dict[str, Any] = {TAG: "exception", "c": class_name(type(value)), "m": _text(value)}
    data["a"] = [writer.at(f".args[{number}]", item) for number, item in enumerate(value.args)]
    if attributes:
        data["d"] = attributes
    for cls, names in _NAMED:
        if isinstance(value, cls):
            data["k"] = {name: getattr(value, name) for name in names if isinstance(getattr(value, name), str)}
    if value.__cause__ is not None:
        data["cause"] = writer.at(".__cause__", value.__cause__)
    elif value.__context__ is not None and not value.__suppress_context__:
        data["context"] = writer.at(".__context__", value.__context__)
    if value.__suppress_context__ and value.__cause__ is None:
        data["suppress"] = True
    return data


def _read(data: Any, reader: Reader) -> BaseException:
    args = [reader.read(item) for item in data["a"]]
    cls = find_class(data["c"], "exception")
    if cls is None or not issubclass(cls, BaseException):
        made: BaseException = UnresolvedError(data["c"].rpartition(":")[2], data["m"])
    else:
        made = _make(cls, args)
    attributes = {name: reader.read(item) for name, item in data.get("d", {}).items()}
    if isinstance(made, UnresolvedError) and cls is not UnresolvedError:
        attributes = {name: item for name, item in attributes.items() if name == "__notes__"}
    for name, item in {**attributes, **data.get("k", {})}.items():
        _set(made, name, item)
    if "cause" in data:
        made.__cause__ = reader.read(data["cause"])
    elif "context" in data:
        made.__context__ = reader.read(data["context"])
    if "suppress" in data:
        made.__suppress_context__ = True
    return made


def _make(cls: type[BaseException], args: list[Any]) -> BaseException:
    """An instance without its class's own `__init__`: only Python's part of it is built (`errno`, `exceptions`, …)."""
    base: Any = next(item for item in cls.__mro__ if item.__module__ == "builtins")
    try:
        made = base.__new__(cls, *args)
        base.__init__(made, *args)
    except TypeError:
        # Its `args` are not what it was made from: they are kept as they are.
        made = BaseException.__new__(cls)
    made.args = tuple(args)
    return made  # type: ignore[no-any-return]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a `__str__` of its own may fail in any way
        return f"(its text can't be had: {broken})"


def _set(made: BaseException, name: str, item: Any) -> None:
    try:
        object.__setattr__(made, name, item)
    except AttributeError:
        made.__dict__[name] = item
