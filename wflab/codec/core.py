"""The walk over a value and back, and the registry of what knows how to write which type.

Plain values stay plain JSON, so that a database is readable. Anything else is an object with the tag key `$`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any, Literal

from wflab.codec.classes import kind_of
from wflab.errors import SerializationError

__all__ = [
    "TAG",
    "Reader",
    "Unresolved",
    "Writer",
    "decode",
    "encode",
    "on_guess",
    "on_read",
    "on_write",
    "on_write_kind",
    "register_reference",
    "same",
    "splits",
]

TAG = "$"
_MARK = '"$"'
_BIG_BITS = 8192
"""Python refuses to print or read integers much longer than this in decimal."""

_dumps = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_loads = json.JSONDecoder(parse_constant=_refuse_constant).decode
_HALVES = re.compile(r"(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
"""Between two characters that a JSON reader would take for the halves of one."""

Write = Callable[[Any, "Writer"], Any]
Read = Callable[[Any, "Reader"], Any]

_writers: dict[type, Write] = {}
_kind_writers: dict[str, Write] = {}
_readers: dict[str, Read] = {}
_guessers: list[Callable[[Any], Write | None]] = []


def on_write(type_: type, write: Write) -> None:
    """Write values of exactly this type with `write(value, writer)`."""
    _writers[type_] = write


def on_write_kind(kind: str, write: Write) -> None:
    """Write values of classes of a kind (`classes.kind_of`) with `write(value, writer)`."""
    _kind_writers[kind] = write


def on_guess(guess: Callable[[Any], Write | None]) -> None:
    """Ask `guess(value)` for a way to write a value of a type that is not registered."""
    _guessers.append(guess)


def on_read(tag: str, read: Read) -> None:
    """Read objects with this tag with `read(object, reader)`."""
    _readers[tag] = read


def register_reference(tag: str, cls: type, to_json: Callable[[Any], Any], from_json: Callable[[Any], Any]) -> None:
    """Make handles of upper layers storable: what `to_json` gives is stored, `from_json` makes them again.

    Args:
        tag: a name for them, unique.
        cls: their exact type.
        to_json: gives a plain JSON value.
        from_json: takes it.
    """
    _writers[cls] = lambda value, _writer: {TAG: tag, "v": to_json(value)}
    _readers[tag] = lambda data, _reader: from_json(data["v"])


class Unresolved:
    """Stands for a stored value whose class is not known in this process (`decode(…, unresolved="show")`)."""

    def __init__(self, type_name: str, value: Any) -> None:
        self.type_name = type_name
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unresolved) and (other.type_name, other.value) == (self.type_name, self.value)

    def __hash__(self) -> int:
        # It may stand for a key or for an item of a set; its value may well be a list.
        return hash(self.type_name)

    def __repr__(self) -> str:
        return f"<{self.type_name.rpartition(':')[2]} {self.value!r}>"


class Writer:
    """One walk over a value. Knows where it is, for messages, and what it is inside of, for cycles."""

    def __init__(self, path: str) -> None:
        self._path: list[str] = [path]
        self._inside: set[int] = set()

    def fail(self, value: Any, reason: str) -> SerializationError:
        """The error for a value that can't be stored, at this place."""
        return SerializationError("".join(self._path), type(value).__qualname__, reason)

    def at(self, part: str, value: Any) -> Any:
        """Write a part of the current value; `part` is how Python would get at it: `[3]`, `.name`."""
        self._path.append(part)
        written = self.write(value)
        # Not in a `finally`: an error is to find the path as it was.
        self._path.pop()
        return written

    def try_at(self, part: str, value: Any) -> tuple[Any, SerializationError | None]:
        """As `at`, but gives the error of a part that can't be stored instead of raising it."""
        depth = len(self._path)
        try:
            return self.at(part, value), None
        except SerializationError as error:
            del self._path[depth:]
            return None, error

    def items(self, values: Any) -> list[Any]:
        """Write the items of an iterable."""
        return [self.at(f"[{number}]", value) for number, value in enumerate(values)]

    def mapping(self, values: dict[str, Any], part: str = ".{}") -> dict[str, Any]:
        """Write a mapping with string keys as an object; for tagged objects only, whose keys are their own."""
        return {key: self.at(part.format(key), value) for key, value in values.items()}

    def write(self, value: Any) -> Any:
        """The JSON form of a value."""
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            return {TAG: "str", "v": _HALVES.split(value)} if splits(value) else value
        if kind is int:
            return value if value.bit_length() < _BIG_BITS else {TAG: "int", "v": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {TAG: "float", "v": repr(value)}
        write = _writers.get(kind) or self._writer_for(value)
        if write is None:
            raise self.fail(value, f"values of type {kind.__qualname__} are not storable; pass what it is made of")
        if id(value) in self._inside:
            raise self.fail(value, "it contains itself")
        self._inside.add(id(value))
        try:
            return write(value, self)
        except (SerializationError, RecursionError):
            raise
        except Exception as error:
            raise self.fail(value, f"looking into it failed: {error!r:.300}") from error
        finally:
            self._inside.discard(id(value))

    def _writer_for(self, value: Any) -> Write | None:
        kind = kind_of(type(value))
        if kind is not None:
            return _kind_writers.get(kind)
        for guess in _guessers:
            write = guess(value)
            if write is not None:
                return write
        return None


class Reader:
    """One walk back."""

    def __init__(self, *, shows_unresolved: bool) -> None:
        self.shows_unresolved = shows_unresolved

    def read(self, data: Any) -> Any:
        """The value of a JSON form."""
        if type(data) is list:
            return [self.read(item) for item in data]
        if type(data) is not dict:
            return data
        if TAG not in data:
            return {key: self.read(item) for key, item in data.items()}
        tag = data[TAG]
        read = _readers.get(tag) if isinstance(tag, str) else None
        if read is None:
            return self.unresolved(str(tag), data)
        try:
            return read(data, self)
        except (SerializationError, RecursionError):
            raise
        except Exception as error:
            if self.shows_unresolved:
                return Unresolved(str(data.get("c", tag)), {key: data[key] for key in data if key not in (TAG, "c")})
            raise SerializationError("stored value", str(tag), f"it can't be read: {error!r}") from error

    def unresolved(self, type_name: str, value: Any) -> Any:
        """What stands for a value whose class is not known here."""
        if self.shows_unresolved:
            return Unresolved(type_name, value)
        name = type_name.replace(":", ".")
        raise SerializationError(
            "stored value", type_name, f"{name} is not known here: import its module, or register the class"
        )


def encode(value: Any, *, path: str = "value") -> str:
    """A value as compact JSON text.

    Args:
        path: how messages name the value: `args`, `result`.

    Raises:
        SerializationError: something in it can't be stored; `error.path` says where.
    """
    try:
        if _is_plain(value):
            text = _dumps(value)
            # With these in it, it is read by a walk, which takes more stack, or has halves that JSON would join.
            if _MARK not in text and "\\ud" not in text:
                return text
        return _dumps(Writer(path).write(value))
    except RecursionError:
        raise SerializationError(path, type(value).__qualname__, "it is nested too deep, or contains itself") from None


def splits(text: str) -> bool:
    """Whether JSON would join characters of a text: the two halves of a surrogate pair, each on its own."""
    return not text.isascii() and _HALVES.search(text) is not None


def _is_plain(value: Any) -> bool:
    """Whether JSON itself keeps a value and its type."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is int:
        return value.bit_length() < _BIG_BITS  # type: ignore[no-any-return]
    if kind is dict:
        for key, item in value.items():  # noqa: SIM110 - `all(…)` would cost as much as the rest
            if type(key) is not str or key == TAG or not _is_plain(item):
                return False
        return True
    if kind is list:
        for item in value:  # noqa: SIM110 - as above
            if not _is_plain(item):
                return False
        return True
    return kind is float and math.isfinite(value)


def decode(text: str, *, unresolved: Literal["raise", "show"] = "raise") -> Any:
    """The value of a JSON text. Imports nothing and calls nothing that the text names.

    Args:
        unresolved: what to do with a value whose class is not known here: raise, or show it as `Unresolved`.

    Raises:
        SerializationError: the text is damaged, or names a class that is not known here.
    """
    try:
        data = _loads(text)
        if _MARK not in text:
            return data
        return Reader(shows_unresolved=unresolved == "show").read(data)
    except (ValueError, RecursionError) as error:
        if isinstance(error, SerializationError):
            raise
        raise SerializationError("stored value", "text", f"it is damaged: {error}") from error


def same(first: str, second: str) -> bool:
    """Whether two encoded texts mean equal values. The order of a dict's keys does not count; no class is resolved.

    Raises:
        SerializationError: one of them is damaged.
    """
    try:
        return first == second or _canonical(_loads(first)) == _canonical(_loads(second))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SerializationError("stored value", "text", f"it is damaged: {error}") from error


def _canonical(data: Any) -> Any:
    if isinstance(data, list):
        return [_canonical(item) for item in data]
    if not isinstance(data, dict):
        # In JSON, as in Python, true equals 1; as arguments they are not the same.
        return (type(data).__name__, data)
    if data.get(TAG) == "dict":
        pairs = [_canonical(pair) for pair in data["v"]]
        return ["dict", *sorted(pairs, key=repr)]
    # What an exception says is made from its arguments, in whatever order a set among them iterates.
    said = "m" if data.get(TAG) == "exception" else None
    return {key: _canonical(item) for key, item in data.items() if key != said}
