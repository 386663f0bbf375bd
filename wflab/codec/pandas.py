"""Pandas values, where pandas is installed: moments, Series, DataFrames and indexes, dtypes kept."""

from __future__ import annotations

import sys
from typing import Any

from wflab.codec.builtins import read_zone, write_zone
from wflab.codec.core import TAG, Reader, Writer, on_guess, on_read
from wflab.codec.numpy import library, read_array, write_array

__all__ = ["install"]


def install() -> None:
    """Make these values storable, once pandas is there."""
    on_guess(_guess)
    on_read("NaT", lambda _data, _reader: library("pandas").NaT)
    on_read("NA", lambda _data, _reader: library("pandas").NA)
    on_read("Timestamp", _read_timestamp)
    on_read("Timedelta", _read_timedelta)
    on_read("Index", _read_index)
    on_read("Series", _read_series)
    on_read("DataFrame", _read_frame)


def _guess(value: Any) -> Any:
    pd = sys.modules.get("pandas")
    if pd is None:
        return None
    if value is pd.NaT or value is pd.NA:
        return lambda value, _writer: {TAG: "NaT" if value is pd.NaT else "NA"}
    for cls, write in (
        (pd.Timestamp, _write_timestamp),
        (pd.Timedelta, _write_timedelta),
        (pd.Series, _write_series),
        (pd.DataFrame, _write_frame),
    ):
        if type(value) is cls:
            return write
    return _write_index if isinstance(value, pd.Index) else None


# -- moments ------------------------------------------------------------------------------------------------------


def _write_timestamp(value: Any, writer: Writer) -> Any:
    zone = None if value.tz is None else write_zone(value.tz, writer)
    return {TAG: "Timestamp", "v": int(value.asm8.view("i8")), "unit": value.unit, "tz": zone}


def _read_timestamp(data: Any, _reader: Reader) -> Any:
    np, pd = library("numpy"), library("pandas")
    made = pd.Timestamp(np.datetime64(data["v"], data["unit"]))
    return made if data["tz"] is None else made.tz_localize("UTC").tz_convert(read_zone(data["tz"]))


def _write_timedelta(value: Any, _writer: Writer) -> Any:
    return {TAG: "Timedelta", "v": int(value.asm8.view("i8")), "unit": value.unit}


def _read_timedelta(data: Any, _reader: Reader) -> Any:
    return library("pandas").Timedelta(library("numpy").timedelta64(data["v"], data["unit"]))


# -- columns --------------------------------------------------------------------------------------------------------


def _write_column(values: Any, writer: Writer) -> Any:
    """The values of a Series or Index with all that their dtype says."""
    pd: Any = sys.modules["pandas"]
    dtype: Any = values.dtype
    array: Any = values.array
    if isinstance(dtype, pd.DatetimeTZDtype):
        stamps = array.tz_convert("UTC").tz_localize(None).to_numpy()
        return {"kind": "zoned", "tz": write_zone(dtype.tz, writer), "v": write_array(stamps, writer)}
    if isinstance(dtype, pd.CategoricalDtype):
        return {
            "kind": "category",
            "codes": write_array(array.codes, writer),
            "categories": _write_index(dtype.categories, writer),
            "ordered": bool(dtype.ordered),
        }
    if isinstance(dtype, pd.StringDtype):
        texts = [None if missing else str(item) for item, missing in zip(array, array.isna(), strict=True)]
        return {"kind": "string", "storage": dtype.storage, "is_nan": dtype.na_value is not pd.NA, "v": texts}
    masked = getattr(dtype, "numpy_dtype", None)
    if masked is not None and any(type(array) is cls for cls in _masked(pd)):
        missing = array.isna()
        plain = array.to_numpy(dtype=masked, na_value=masked.type(0))
        return {"kind": "masked", "v": write_array(plain, writer), "mask": write_array(missing, writer)}
    if isinstance(dtype, pd.api.extensions.ExtensionDtype):
        raise writer.fail(values, f"columns of dtype {dtype} are not storable")
    return {"kind": "numpy", "v": write_array(values.to_numpy(), writer)}


def _masked(pd: Any) -> tuple[type, ...]:
    return (pd.arrays.IntegerArray, pd.arrays.FloatingArray, pd.arrays.BooleanArray)


def _read_column(data: Any, reader: Reader) -> Any:
    pd = library("pandas")
    match data["kind"]:
        case "zoned":
            stamps = pd.DatetimeIndex(read_array(data["v"], reader))
            return stamps.tz_localize("UTC").tz_convert(read_zone(data["tz"])).array
        case "category":
            codes, categories = read_array(data["codes"], reader), _read_index(data["categories"], reader)
            return pd.Categorical.from_codes(codes, categories=categories, ordered=data["ordered"])
        case "string":
            missing = float("nan") if data["is_nan"] else pd.NA
            try:
                dtype = pd.StringDtype(data["storage"], na_value=missing)
            except ImportError:
                dtype = pd.StringDtype("python", na_value=missing)
            return pd.array([missing if item is None else item for item in data["v"]], dtype=dtype)
        case "masked":
            values, mask = read_array(data["v"], reader), read_array(data["mask"], reader)
            kinds = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
            return kinds.get(values.dtype.kind, pd.arrays.IntegerArray)(values, mask)
    return read_array(data["v"], reader)


# -- indexes, Series, DataFrames --------------------------------------------------------------------------------------


def _write_index(value: Any, writer: Writer) -> dict[str, Any]:
    pd: Any = sys.modules["pandas"]
    data: dict[str, Any] = {TAG: "Index", "names": writer.items(list(value.names))}
    if isinstance(value, pd.RangeIndex):
        return {**data, "range": [value.start, value.stop, value.step]}
    if isinstance(value, pd.MultiIndex):
        levels = [_write_index(level, writer) for level in value.levels]
        return {**data, "levels": levels, "codes": [write_array(codes, writer) for codes in map(_plain, value.codes)]}
    if isinstance(value, pd.PeriodIndex | pd.IntervalIndex):
        raise writer.fail(value, f"indexes of dtype {value.dtype} are not storable")
    freq = getattr(value, "freqstr", None)
    return {**data, "v": _write_column(value, writer), "freq": freq}


def _plain(codes: Any) -> Any:
    return sys.modules["numpy"].asarray(codes)


def _read_index(data: Any, reader: Reader) -> Any:
    pd = library("pandas")
    names = [reader.read(name) for name in data["names"]]
    if "range" in data:
        return pd.RangeIndex(*data["range"], name=names[0])
    if "levels" in data:
        levels = [_read_index(level, reader) for level in data["levels"]]
        return pd.MultiIndex(levels, [read_array(codes, reader) for codes in data["codes"]], names=names)
    column = _read_column(data["v"], reader)
    made = pd.Index(column, dtype=column.dtype, name=names[0])
    if data.get("freq") is not None:
        made.freq = data["freq"]
    return made


def _write_series(value: Any, writer: Writer) -> Any:
    return {
        TAG: "Series",
        "name": writer.at(".name", value.name),
        "index": _write_index(value.index, writer),
        "v": _write_column(value, writer),
        "attrs": writer.at(".attrs", dict(value.attrs)),
    }


def _read_series(data: Any, reader: Reader) -> Any:
    column = _read_column(data["v"], reader)
    index = _read_index(data["index"], reader)
    made = library("pandas").Series(column, index=index, name=reader.read(data["name"]), dtype=column.dtype)
    made.attrs.update(reader.read(data["attrs"]))
    return made


def _write_frame(value: Any, writer: Writer) -> Any:
    columns = [_write_column(value.iloc[:, number], writer) for number in range(value.shape[1])]
    return {
        TAG: "DataFrame",
        "columns": _write_index(value.columns, writer),
        "index": _write_index(value.index, writer),
        "v": columns,
        "attrs": writer.at(".attrs", dict(value.attrs)),
    }


def _read_frame(data: Any, reader: Reader) -> Any:
    pd = library("pandas")
    index = _read_index(data["index"], reader)
    columns = [_read_column(column, reader) for column in data["v"]]
    made = pd.DataFrame(
        {number: pd.Series(column, index=index, dtype=column.dtype) for number, column in enumerate(columns)},
        index=index,
    )
    made.columns = _read_index(data["columns"], reader)
    made.attrs.update(reader.read(data["attrs"]))
    return made
