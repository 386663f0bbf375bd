"""Dataclasses, named tuples, enums, pydantic and SQLModel models: by class name and fields, never by calling them."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from wflab.codec.classes import class_name, find_class
from wflab.codec.core import TAG, Reader, Writer, on_read, on_write_kind

__all__ = ["install"]


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


def _write_dataclass(value: Any, writer: Writer) -> Any:
    if isinstance(value, list | dict | tuple | set | str | bytes | int | float):
        raise writer.fail(value, "a dataclass that is a builtin container or number, too, is not storable")
    present = {item.name: getattr(value, item.name) for item in dataclasses.fields(value) if hasattr(value, item.name)}
    return _named(value, writer, "dataclass", {"f": writer.mapping(present)})


def _read_dataclass(data: Any, reader: Reader) -> Any:
    fields = {name: reader.read(item) for name, item in data["f"].items()}
    cls = find_class(data["c"])
    if cls is None:
        return reader.unresolved(data["c"], fields)
    made: Any = object.__new__(cls)
    for name, item in fields.items():
        # Past `__init__`, `frozen` and `__post_init__`: stored values are put back, not made anew.
        object.__setattr__(made, name, item)
    return made


def _read_namedtuple(data: Any, reader: Reader) -> Any:
    items = [reader.read(item) for item in data["v"]]
    cls = find_class(data["c"])
    return reader.unresolved(data["c"], tuple(items)) if cls is None else tuple.__new__(cls, items)


def _write_enum(value: enum.Enum, writer: Writer) -> Any:
    if value.name in type(value).__members__:
        return _named(value, writer, "enum", {"n": value.name})
    # A combination of flags has no name of its own.
    return _named(value, writer, "enum", {"v": writer.at(".value", value.value)})


def _read_enum(data: Any, reader: Reader) -> Any:
    cls: Any = find_class(data["c"])
    if cls is None:
        return reader.unresolved(data["c"], data.get("n", data.get("v")))
    if "n" in data:
        if data["n"] not in cls.__members__:
            raise ValueError(f"{cls.__qualname__} has no member {data['n']!r}")
        return cls.__members__[data["n"]]
    return cls(reader.read(data["v"]))


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
    cls: Any = find_class(data["c"])
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
