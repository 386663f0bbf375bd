"""Classes by name: found only among those that this process has imported, used or registered."""

from __future__ import annotations

import enum
import inspect
import sys
import weakref
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
    _registered[_name(cls)] = cls
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


def find_class(name: str) -> type | None:
    """The class of a stored name, or `None`. Imports nothing; only classes of a storable kind are found."""
    found: Any = _used.get(name) or _registered.get(name)
    if found is None:
        module, _, qualname = name.partition(":")
        where = sys.modules.get(module)
        if where is None and module == module_name("__main__"):
            where = sys.modules.get("__main__")
        found = None if where is None else _look_up(where, qualname)
    return found if isinstance(found, type) and kind_of(found) is not None else None


def _look_up(module: Any, qualname: str) -> Any:
    found = module
    for part in qualname.split("."):
        # Statically: a module's or class's own `__getattr__` must not run for a name that the data chose.
        found = inspect.getattr_static(found, part, None)
        if found is None:
            return None
    return found


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
