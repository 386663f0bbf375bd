"""Classes by name: found only among those that this process has imported, used or registered."""

from __future__ import annotations

import enum
import sys
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["class_name", "find_class", "kind_of", "module_name", "register"]

C = TypeVar("C", bound=type)

_registered: dict[str, type] = {}
_used: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()


def register(cls: C) -> C:
    """Make a class known to the codec under its name; usable as a decorator.

    Needed only for a class that can't be found in an imported module and was not stored by this process before.

    Raises:
        TypeError: it is not a dataclass, a pydantic model, a named tuple, an enum or an exception.
    """
    if not isinstance(cls, type) or kind_of(cls) is None:
        raise TypeError(f"{cls!r} is no dataclass, pydantic model, named tuple, enum or exception")
    name = _name(cls)
    _registered[name] = _used[name] = cls
    return cls


def class_name(cls: type) -> str:
    """The name under which a class is stored. It is remembered: a class of a notebook cell is found again."""
    name = _name(cls)
    # The latest one wins: the cell may have been run again.
    _used[name] = cls
    return name


def _name(cls: type) -> str:
    return f"{module_name(cls.__module__)}:{cls.__qualname__}"


def module_name(name: str) -> str:
    """A module's name, the same whether a script is run or imported: `__main__` goes by its file."""
    if name != "__main__":
        return name
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return Path(file).stem if file else name


def find_class(name: Any, kind: str) -> Any:
    """The class of a stored name, or `None`. Imports nothing, and finds only classes of this kind (`kind_of`).

    The one that its module has now comes first: after a cell has been run again, that is the latest definition.
    """
    if not isinstance(name, str):
        return None
    homes = list(_homes(name))
    used = _used.get(name)
    found: Any
    # A script that is also imported has two of one name: the one used. Last, what a module has renamed.
    for found in (
        *(home for home in homes if home is used),
        *(home for home in homes if isinstance(home, type) and _name(home) == name),
        used,
        _registered.get(name),
        *homes,
    ):
        if isinstance(found, type) and kind_of(found) == kind:
            return found
    return None


def _homes(name: str) -> Iterator[Any]:
    """What modules that are already imported have under a stored name."""
    module, _, qualname = name.partition(":")
    for where in (module, "__main__") if module == module_name("__main__") else (module,):
        found: Any = sys.modules.get(where)
        for part in qualname.split("."):
            found = _contents(found).get(part)
        if found is not None:
            yield found


def _contents(found: Any) -> Any:
    # Past any `__getattr__` or `__getattribute__`: no code must run for a name that the data chose, nor a lazy import.
    if issubclass(type(found), types.ModuleType):
        return types.ModuleType.__getattribute__(found, "__dict__")
    return type.__getattribute__(found, "__dict__") if issubclass(type(found), type) else {}


def kind_of(cls: type) -> str | None:
    """How a class's values are stored: as `exception`, `enum`, `model`, `dataclass`, `namedtuple`, or not at all."""
    if issubclass(cls, BaseException):
        return "exception"
    if issubclass(cls, enum.Enum):
        return "enum"
    if hasattr(cls, "__pydantic_fields__") and hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_fields"):
        return "model"
    if hasattr(cls, "__dataclass_fields__"):
        return "dataclass"
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return "namedtuple"
    return None
