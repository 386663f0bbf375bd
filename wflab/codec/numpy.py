"""NumPy scalars and arrays, where NumPy is installed."""

from __future__ import annotations

import base64
import math
import sys
from typing import Any

from wflab.codec.core import TAG, Reader, Writer, on_guess, on_read

__all__ = ["install", "library", "read_array", "write_array"]


def install() -> None:
    """Make arrays storable, once NumPy is there."""
    on_guess(_guess)
    on_read("ndarray", read_array)
    on_read("numpy", _read_scalar)


def library(name: str) -> Any:
    """An installed library that stored values of ours belong to. It is one of two that this code names, not the data.

    Raises:
        ValueError: it is not installed.
    """
    try:
        if name == "numpy":
            import numpy

            return numpy
        import pandas

        return pandas
    except ImportError as missing:
        raise ValueError(f"{name} is needed to read this value: install it") from missing


def _guess(value: Any) -> Any:
    np = sys.modules.get("numpy")
    if np is None:
        return None
    if type(value) is np.ndarray:
        return write_array
    return _write_scalar if isinstance(value, np.generic) else None


def write_array(value: Any, writer: Writer) -> dict[str, Any]:
    """An array: its bytes where they say everything, its items where they are Python objects."""
    np: Any = sys.modules["numpy"]
    data: dict[str, Any] = {TAG: "ndarray", "shape": list(value.shape)}
    if value.dtype.hasobject:
        if value.dtype != np.dtype(object):
            raise writer.fail(value, f"arrays of dtype {value.dtype} are not storable")
        return {**data, "items": writer.items(value.ravel().tolist())}
    plain = np.ascontiguousarray(value)
    return {**data, "dtype": _dtype(np, value.dtype, writer), "v": base64.b64encode(plain.tobytes()).decode()}


def _dtype(np: Any, dtype: Any, writer: Writer) -> Any:
    try:
        return _lists(np.lib.format.dtype_to_descr(dtype))
    except ValueError as error:
        raise writer.fail(dtype, str(error)) from error


def _lists(descr: Any) -> Any:
    return [_lists(item) for item in descr] if isinstance(descr, list | tuple) else descr


def _descr(data: Any) -> Any:
    """NumPy's description of a dtype: a text, or a list of fields as tuples whose shapes are tuples, too."""
    if isinstance(data, str):
        return data
    return [(name, _descr(kind), *map(tuple, shape)) for name, kind, *shape in data]


def read_array(data: Any, reader: Reader) -> Any:
    """The array of what `write_array` gave."""
    np = library("numpy")
    shape = tuple(data["shape"])
    if "items" in data:
        made = np.empty(len(data["items"]), dtype=object)
        for number, item in enumerate(data["items"]):
            made[number] = reader.read(item)
        return made.reshape(shape)
    dtype = np.lib.format.descr_to_dtype(_descr(data["dtype"]))
    content = bytearray(base64.b64decode(data["v"]))
    # Bytes taken for objects would be taken for addresses; those are stored as items.
    if dtype.hasobject:
        raise ValueError(f"bytes can't be an array of dtype {dtype}")
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"{shape} is no shape")
    if math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"{len(content)} bytes don't fill an array of shape {shape} and dtype {dtype}")
    return np.ndarray(shape, dtype, content)


def _write_scalar(value: Any, writer: Writer) -> Any:
    np: Any = sys.modules["numpy"]
    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.type is not type(value):
        raise writer.fail(value, "this kind of NumPy scalar is not storable")
    return {**write_array(array, writer), TAG: "numpy"}


def _read_scalar(data: Any, reader: Reader) -> Any:
    return read_array(data, reader)[()]
