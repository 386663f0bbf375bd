"""Python's own values: containers, bytes, numbers, dates and times, paths."""

from __future__ import annotations

import base64
import json
import zoneinfo
from collections import OrderedDict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any
from uuid import UUID

from wflab.codec.core import TAG, Reader, Writer, on_read, on_write, splits

__all__ = ["install", "read_zone", "write_zone"]

_PATHS = {cls.__name__: cls for cls in (PosixPath, WindowsPath, PurePosixPath, PureWindowsPath)}


def install() -> None:
    """Make these values storable."""
    on_write(list, lambda value, writer: writer.items(value))
    on_write(dict, _write_dict)
    on_read("dict", lambda data, reader: {reader.read(key): reader.read(item) for key, item in data["v"]})
    on_write(OrderedDict, lambda value, writer: {TAG: "OrderedDict", "v": _pairs(value, writer)})
    on_read("OrderedDict", lambda data, reader: OrderedDict((reader.read(k), reader.read(v)) for k, v in data["v"]))
    on_write(tuple, lambda value, writer: {TAG: "tuple", "v": writer.items(value)})
    on_read("tuple", lambda data, reader: tuple(reader.read(item) for item in data["v"]))
    on_write(set, lambda value, writer: {TAG: "set", "v": _sorted(value, writer)})
    on_read("set", lambda data, reader: {reader.read(item) for item in data["v"]})
    on_write(frozenset, lambda value, writer: {TAG: "frozenset", "v": _sorted(value, writer)})
    on_read("frozenset", lambda data, reader: frozenset(reader.read(item) for item in data["v"]))
    on_write(deque, lambda value, writer: {TAG: "deque", "v": writer.items(value), "maxlen": value.maxlen})
    on_read("deque", lambda data, reader: deque((reader.read(item) for item in data["v"]), data["maxlen"]))
    on_write(range, lambda value, _: {TAG: "range", "v": [value.start, value.stop, value.step]})
    on_read("range", lambda data, _: range(*data["v"]))
    on_write(bytes, lambda value, _: {TAG: "bytes", "v": base64.b64encode(value).decode()})
    on_read("bytes", lambda data, _: base64.b64decode(data["v"]))
    on_write(bytearray, lambda value, _: {TAG: "bytearray", "v": base64.b64encode(value).decode()})
    on_read("bytearray", lambda data, _: bytearray(base64.b64decode(data["v"])))
    on_read("str", lambda data, _: "".join(data["v"]))
    on_read("int", lambda data, _: int(data["v"], 16))
    on_read("float", lambda data, _: float(data["v"]))
    on_write(complex, lambda value, writer: {TAG: "complex", "v": [writer.write(value.real), writer.write(value.imag)]})
    on_read("complex", _read_complex)
    on_write(Decimal, lambda value, _: {TAG: "Decimal", "v": str(value)})
    on_read("Decimal", lambda data, _: Decimal(data["v"]))
    on_write(UUID, lambda value, _: {TAG: "UUID", "v": str(value)})
    on_read("UUID", lambda data, _: UUID(data["v"]))
    for path in _PATHS.values():
        on_write(path, lambda value, writer: {TAG: "Path", "c": type(value).__name__, "v": writer.write(str(value))})
    on_read("Path", _read_path)
    _install_times()


def _install_times() -> None:
    on_write(datetime, _write_datetime)
    on_read("datetime", lambda data, _: _with_zone(datetime.fromisoformat(data["v"]), data))
    on_write(time, _write_datetime)
    on_read("time", lambda data, _: _with_zone(time.fromisoformat(data["v"]), data))
    on_write(date, lambda value, _: {TAG: "date", "v": value.isoformat()})
    on_read("date", lambda data, _: date.fromisoformat(data["v"]))
    on_write(timedelta, lambda value, _: {TAG: "timedelta", "v": [value.days, value.seconds, value.microseconds]})
    on_read("timedelta", lambda data, _: timedelta(*data["v"]))
    on_write(timezone, lambda value, writer: {TAG: "tzinfo", "v": write_zone(value, writer)})
    on_write(zoneinfo.ZoneInfo, lambda value, writer: {TAG: "tzinfo", "v": write_zone(value, writer)})
    on_read("tzinfo", lambda data, _: read_zone(data["v"]))


def _pairs(value: dict[Any, Any], writer: Writer) -> list[Any]:
    return [[writer.at(f".key({key!r:.40})", key), writer.at(f"[{key!r:.60}]", item)] for key, item in value.items()]


def _write_dict(value: dict[Any, Any], writer: Writer) -> Any:
    if all(type(key) is str and key != TAG and not splits(key) for key in value):
        return writer.mapping(value, "[{!r}]")
    return {TAG: "dict", "v": _pairs(value, writer)}


def _sorted(value: set[Any] | frozenset[Any], writer: Writer) -> list[Any]:
    # By their text: equal sets are equal texts, in whatever order they iterate.
    return sorted((writer.at("{…}", item) for item in value), key=json.dumps)


def _read_complex(data: Any, reader: Reader) -> complex:
    real, imaginary = data["v"]
    return complex(reader.read(real), reader.read(imaginary))


def _read_path(data: Any, reader: Reader) -> PurePath:
    cls, text = _PATHS[data["c"]], reader.read(data["v"])
    try:
        return cls(text)
    except NotImplementedError:
        # The other system's kind of path can't exist here, but what it says can.
        return PureWindowsPath(text) if cls is WindowsPath else PurePosixPath(text)


def _write_datetime(value: datetime | time, writer: Writer) -> Any:
    data: dict[str, Any] = {TAG: type(value).__name__, "v": value.replace(tzinfo=None).isoformat()}
    if value.tzinfo is not None:
        data["tz"] = write_zone(value.tzinfo, writer)
    if value.fold:
        data["fold"] = 1
    return data


def _with_zone(value: Any, data: Any) -> Any:
    if "tz" in data:
        value = value.replace(tzinfo=read_zone(data["tz"]))
    return value.replace(fold=1) if "fold" in data else value


def write_zone(zone: tzinfo, writer: Writer) -> Any:
    """A time zone: its key, or its fixed offset and name."""
    if zone is UTC:
        return "UTC"
    if type(zone) is zoneinfo.ZoneInfo:
        if zone.key is None:
            raise writer.fail(zone, "it has no key: make it with ZoneInfo('Area/City')")
        return {"zone": zone.key}
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        return {"offset": [offset.days, offset.seconds, offset.microseconds], "name": name[0] if name else None}
    raise writer.fail(zone, "only time zones of zoneinfo and datetime.timezone are storable")


def read_zone(data: Any) -> tzinfo:
    """The time zone of what `write_zone` gave."""
    if data == "UTC":
        return UTC
    if "zone" in data:
        try:
            return zoneinfo.ZoneInfo(data["zone"])
        except zoneinfo.ZoneInfoNotFoundError as missing:
            raise ValueError(f"time zone {data['zone']!r} is not known here: install tzdata") from missing
    offset = timedelta(*data["offset"])
    return timezone(offset) if data["name"] is None else timezone(offset, data["name"])
