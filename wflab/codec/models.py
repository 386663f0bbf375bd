"""Dataclasses, named tuples, enums, pydantic and SQLModel models: by class name and fields, never by calling them."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from typing import Any

from wflab.codec.classes import class_name, find_class
from wflab.codec.core import TAG, Reader, Writer, on_read, on_write_kind

__all__ = ["install", "put", "state_of"]


def install() -> None:
    """Make these values storable."""
    on_write_kind("dataclass", _write_dataclass)
    on_read("dataclass", _read_dataclass)
    on_write_kind("namedtuple", lambda value, writer: _named(value, writer, "namedtuple", {"v": writer.items(value)}))
    on_read("namedtuple", _read_namedtuple)
    on_write_kind("enum", _write_enum)
    on_read("enum", _read_enum)
    on_write_kind("model", _write_model)
    on_read("model", _read_model)


def _named(value: Any, _writer: Writer, tag: str, data: dict[str, Any]) -> dict[str, Any]:
    return {TAG: tag, "c": class_name(type(value)), **data}


# -- what instances hold ------------------------------------------------------------------------------------------


def state_of(value: Any) -> dict[str, Any]:
    """What an instance holds in its `__dict__` and its slots. None of its own code runs."""
    state = object.__getstate__(value)
    instance, slots = state if isinstance(state, tuple) else (state, None)
    return {**(instance or {}), **(slots or {})}


def put(made: Any, name: str, item: Any) -> None:
    """Set an attribute past `frozen`, `__setattr__` and property setters: stored values are put back, not made anew."""
    slot = _class_attribute(type(made), name)
    if type(slot) is types.MemberDescriptorType:
        slot.__set__(made, item)
    else:
        made.__dict__[name] = item


def _class_attribute(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


# -- dataclasses and named tuples ---------------------------------------------------------------------------------


def _write_dataclass(value: Any, writer: Writer) -> Any:
    cls = type(value)
    if any(type(vars(base).get("__new__")) is types.BuiltinFunctionType for base in cls.__mro__[:-1]):
        raise writer.fail(value, "a dataclass that is also a container, number or other built-in type is not storable")
    present = {item.name: getattr(value, item.name) for item in dataclasses.fields(value) if hasattr(value, item.name)}
    data = {"f": writer.mapping(present)}
    others = {
        name: item
        for name, item in state_of(value).items()
        # What `__post_init__` and methods have set; not what Python and typing note, or can be computed again.
        if name not in present
        and not name.startswith("__")
        and not isinstance(_class_attribute(cls, name), functools.cached_property)
    }
    if others:
        data["x"] = writer.mapping(others)
    return _named(value, writer, "dataclass", data)


def _read_dataclass(data: Any, reader: Reader) -> Any:
    fields = {name: reader.read(item) for name, item in data["f"].items()}
    cls = find_class(data["c"], "dataclass")
    if cls is None:
        return reader.unresolved(data["c"], fields)
    made: Any = object.__new__(cls)
    for name, item in fields.items():
        put(made, name, item)
    for name, item in data.get("x", {}).items():
        put(made, name, reader.read(item))
    return made


def _read_namedtuple(data: Any, reader: Reader) -> Any:
    items = [reader.read(item) for item in data["v"]]
    cls = find_class(data["c"], "namedtuple")
    if cls is None:
        return reader.unresolved(data["c"], tuple(items))
    if len(items) != len(cls._fields):
        raise ValueError(f"{cls.__qualname__} has {len(cls._fields)} fields, but {len(items)} are stored")
    return tuple.__new__(cls, items)


# -- enums --------------------------------------------------------------------------------------------------------


def _write_enum(value: enum.Enum, writer: Writer) -> Any:
    if value.name in type(value).__members__:
        return _named(value, writer, "enum", {"n": value.name})
    # A combination of flags has no name of its own.
    return _named(value, writer, "enum", {"v": writer.at(".value", value.value)})


def _read_enum(data: Any, reader: Reader) -> Any:
    cls: Any = find_class(data["c"], "enum")
    if cls is None:
        return reader.unresolved(data["c"], data.get("n", data.get("v")))
    if "n" in data:
        if data["n"] not in cls.__members__:
            raise ValueError(f"{cls.__qualname__} has no member {data['n']!r}")
        return cls.__members__[data["n"]]
    value = reader.read(data["v"])
    if not issubclass(cls, enum.Flag) or not isinstance(value, int):
        raise ValueError(f"{cls.__qualname__} has no member for {value!r}")
    # Not `cls(value)`: that would ask a `_missing_` of the class's own.
    known = cls._value2member_map_.get(value)
    return enum.Flag._missing_.__func__(cls, value) if known is None else known  # type: ignore[attr-defined]


# -- pydantic and SQLModel ----------------------------------------------------------------------------------------


def _write_model(value: Any, writer: Writer) -> Any:
    fields = {name: getattr(value, name) for name in type(value).__pydantic_fields__ if hasattr(value, name)}
    data = {"f": writer.mapping(fields), "s": sorted(value.__pydantic_fields_set__)}
    # A table model of SQLModel has no such slots until something fills them.
    extra = getattr(value, "__pydantic_extra__", None)
    private = getattr(value, "__pydantic_private__", None)
    if extra is not None:
        data["x"] = writer.mapping(extra)
    if private is not None:
        data["p"] = writer.mapping(private)
    return _named(value, writer, "model", data)


def _read_model(data: Any, reader: Reader) -> Any:
    fields = {name: reader.read(item) for name, item in data["f"].items()}
    cls: Any = find_class(data["c"], "model")
    if cls is None:
        return reader.unresolved(data["c"], fields)
    mapped = getattr(cls, "_sa_class_manager", None)
    made: Any = object.__new__(cls) if mapped is None else mapped.new_instance()
    made.__dict__.update(fields)
    set_ = object.__setattr__
    set_(made, "__pydantic_fields_set__", set(data["s"]))
    extra = None if "x" not in data else {name: reader.read(item) for name, item in data["x"].items()}
    private = None if "p" not in data else {name: reader.read(item) for name, item in data["p"].items()}
    set_(made, "__pydantic_extra__", extra)
    set_(made, "__pydantic_private__", private)
    return made
