"""NumPy and pandas values, where these are installed."""

from __future__ import annotations

import base64
import json
import zoneinfo
from typing import Any

import pytest

from wflab import SerializationError
from wflab.codec import decode, encode

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")


@pytest.mark.parametrize(
    "dtype",
    ["?", "i1", "u2", "<i4", ">i4", "u8", "f2", "f4", "f8", "c8", "c16", "U5", "S3", "M8[ns]", "M8[D]", "m8[s]"],
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_arrays_come_back_with_dtype_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape, dtype=int)), dtype="i4").astype(dtype).reshape(shape)
    back = decode(encode(array))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)
    assert back.flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12).reshape(3, 4).T,
        np.arange(12)[::3],
        np.array([{"a": 1}, (1, 2), None], dtype=object),
        np.array([float("nan"), float("inf"), -0.0]),
        np.array(["NaT", "2020-01-01"], dtype="M8[s]"),
        np.zeros(2, dtype=[("x", "<i4"), ("y", "f8", (2,)), ("z", [("w", "S2")])]),
    ],
)
def test_unusual_arrays_come_back(array: Any) -> None:
    back = decode(encode([array]))[0]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    "value",
    [np.int8(3), np.uint64(2**63), np.float32(1.5), np.float64("nan"), np.bool_(True), np.str_("é"), np.str_(""),
     np.bytes_(b"x"), np.datetime64("2020-01-01"), np.datetime64("NaT"), np.timedelta64(5, "s"), np.complex64(1 + 2j)],
)  # fmt: skip
def test_scalars_keep_their_exact_type(value: Any) -> None:
    back = decode(encode({"v": value}))["v"]
    assert type(back) is type(value)
    assert (back == value) or (back != back and value != value)
    assert back.dtype == value.dtype


def test_arrays_that_cant_be_stored_say_so() -> None:
    for value in (np.ma.array([1]), np.zeros(1, dtype=[("o", object)])):
        with pytest.raises(SerializationError):
            encode(value)


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
MOMENTS = [
    pd.Timestamp("2020-01-01 12:00:00.123456789"),
    pd.Timestamp("2025-10-26 00:30", tz="UTC").tz_convert(BERLIN),
    pd.Timestamp("1500-01-01").as_unit("s"),
    pd.Timedelta("1 day 2 h 3 ns"),
    pd.NaT,
    pd.NA,
]


@pytest.mark.parametrize("value", MOMENTS)
def test_moments_come_back(value: Any) -> None:
    back = decode(encode(value))
    assert type(back) is type(value)
    assert repr(back) == repr(value)
    if value is pd.NaT or value is pd.NA:
        assert back is value
    else:
        assert back == value
        assert back.unit == value.unit


SERIES = {
    "ints": pd.Series([1, 2], dtype="int64"),
    "small ints": pd.Series([1, 2], dtype="int8"),
    "floats": pd.Series([1.5, None]),
    "nullable ints": pd.Series([1, None], dtype="Int64"),
    "nullable bools": pd.Series([True, None], dtype="boolean"),
    "nullable floats": pd.Series([1.5, None], dtype="Float32"),
    "texts": pd.Series(["a", None, "é"]),
    "nullable texts": pd.Series(["a", None], dtype="string"),
    "objects": pd.Series([{"a": 1}, (1, 2), None], dtype=object),
    "moments": pd.Series(pd.to_datetime(["2020-01-01", None])),
    "zoned": pd.Series(pd.to_datetime(["2020-01-01", None]).tz_localize(BERLIN)),
    "UTC": pd.Series(pd.to_datetime(["2020-01-01"], utc=True)),
    "spans": pd.Series(pd.to_timedelta(["1s", None])),
    "categories": pd.Series(pd.Categorical(["a", None, "b"], categories=["b", "a", "c"], ordered=True)),
    "empty": pd.Series([], dtype="float64", name=("a", 1)),
}


@pytest.mark.parametrize("name", SERIES)
def test_a_series_comes_back(name: str) -> None:
    back = decode(encode([SERIES[name]] * 2))[1]
    pd.testing.assert_series_equal(back, SERIES[name], check_exact=True)
    assert back.dtype == SERIES[name].dtype


INDEXES = [
    pd.RangeIndex(3),
    pd.RangeIndex(5, 0, -2, name="r"),
    pd.Index([1, 2, 4]),
    pd.Index(["a", "b", "c"], name="n"),
    pd.date_range("2020-01-01", periods=3, freq="D", tz="UTC"),
    pd.MultiIndex.from_tuples([("a", 1), ("b", 2), ("b", 3)], names=["p", None]),
    pd.CategoricalIndex(["x", "y", "x"]),
    pd.Index([1.5, None, 2]),
    pd.TimedeltaIndex(["1s", "2s", "3s"]),
]


@pytest.mark.parametrize("index", INDEXES, ids=lambda index: type(index).__name__)
def test_an_index_comes_back(index: Any) -> None:
    back = decode(encode(index))
    pd.testing.assert_index_equal(back, index, exact=True)
    assert getattr(back, "freq", None) == getattr(index, "freq", None)


@pytest.mark.parametrize("index", INDEXES, ids=lambda index: type(index).__name__)
def test_a_frame_comes_back_with_all_its_dtypes(index: Any) -> None:
    frame = pd.DataFrame({name: pd.Series(column.reindex(range(3)).array) for name, column in SERIES.items()})
    frame.index = index
    frame.attrs["source"] = ["test"]
    back = decode(encode({"frame": frame}))["frame"]
    pd.testing.assert_frame_equal(back, frame, check_exact=True, check_freq=True)
    assert (back.dtypes == frame.dtypes).all()
    assert back.attrs == frame.attrs


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(),
        pd.DataFrame(columns=["a"]),
        pd.DataFrame(index=[1, 2]),
        pd.DataFrame([[1, "a"]], columns=["x", "x"]),
        pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])),
    ],
)
def test_frames_at_the_edge_come_back(frame: Any) -> None:
    pd.testing.assert_frame_equal(decode(encode(frame)), frame)


def test_columns_that_cant_be_stored_say_so() -> None:
    for column in (pd.period_range("2020", periods=2, freq="M"), pd.arrays.SparseArray([1, 0])):
        with pytest.raises(SerializationError):
            encode(pd.DataFrame({"c": column}))


ADDRESS = base64.b64encode(bytes([0, 0, 0, 0, 0, 0, 0, 1])).decode()


@pytest.mark.parametrize("tag", ["ndarray", "numpy"])
@pytest.mark.parametrize(
    ("dtype", "shape", "content"),
    [
        ("|O", [1], ADDRESS),
        ("O", [1], ADDRESS),
        ("i4,O", [1], "AAAAAAAAAAAAAAAB"),
        ([["x", "|O"]], [1], ADDRESS),
        ([["x", [["y", "|O"]], [1]]], [1], ADDRESS),
        ("T", [1], "A" * 21 + "E="),
        ("<i8", [2], ADDRESS),
        ("<i8", [], ""),
        ("<i8", [2**62, 2**62, 4], ""),
        ("<i8", [-1], ADDRESS),
        ("<i8", [1.0], ADDRESS),
        ("<i8", "1", ADDRESS),
        ("no dtype", [1], ADDRESS),
        (5, [1], ADDRESS),
    ],
)
def test_bytes_are_never_taken_for_addresses(tag: str, dtype: Any, shape: Any, content: str) -> None:
    text = json.dumps({"$": tag, "dtype": dtype, "shape": shape, "v": content})
    with pytest.raises(SerializationError):
        decode(text)


def test_codes_that_point_nowhere_are_refused() -> None:
    category = encode(pd.Series(["a", "b"], dtype="category"))
    levels = encode(pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]))
    codes = base64.b64encode(bytes([0, 1])).decode()
    wrong = base64.b64encode(bytes([0, 99])).decode()
    for text in (category, levels):
        assert codes in text
        decode(text)
        with pytest.raises(SerializationError):
            decode(text.replace(codes, wrong))
