"""Every storable value comes back equal and of the same type (semantics §8)."""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
from collections import OrderedDict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlmodel import Field, SQLModel

from tests.codec.equal import assert_same
from wflab import SerializationError, UnresolvedError, codec
from wflab.codec import Unresolved, decode, encode, same


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Name(enum.StrEnum):
    ADA = "ada"


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Asking(enum.Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        raise AssertionError("must not run when a value is read")


@dataclasses.dataclass
class Plain:
    a: Any
    b: Any = None
    hidden: Any = dataclasses.field(default=0, init=False)

    @functools.cached_property
    def costly(self) -> list[int]:
        return [self.a]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    a: Any


@dataclasses.dataclass
class Guarded:
    a: int

    def __post_init__(self) -> None:
        raise AssertionError("must not run when a value is read")


class Model(pydantic.BaseModel):
    a: Any
    b: int = 3
    _secret: Any = pydantic.PrivateAttr(default=None)


class Open(pydantic.BaseModel, extra="allow"):
    a: int


class Order(SQLModel, table=True):
    __tablename__ = "codec_test_orders"
    id: int | None = Field(default=None, primary_key=True)
    note: str = ""


class Loose(SQLModel):
    note: str = ""


Point = namedtuple("Point", "x y")


class Declined(Exception):
    def __init__(self, code: str, *, amount: int) -> None:
        super().__init__(code)
        self.amount = amount


ZONES = [None, UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(0), "X"), ZoneInfo("Europe/Berlin")]
numbers = st.one_of(
    st.integers(), st.integers(-(2**20_000), 2**20_000), st.floats(), st.complex_numbers(), st.decimals()
)
times = st.one_of(
    st.datetimes(timezones=st.sampled_from(ZONES), allow_imaginary=True),
    st.times(timezones=st.sampled_from(ZONES[:4])),
    st.dates(),
    st.timedeltas(),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    st.text(st.characters()),
    st.text('$\0\ud800é🔑"\\'),
    st.binary(),
    times,
    st.uuids(),
    st.sampled_from([Colour.RED, Colour.BLUE, Level.LOW, Name.ADA, Access.READ, Access.READ | Access.WRITE, Access(0)]),
    st.sampled_from([Path("a/b"), PurePosixPath("/x"), PureWindowsPath("c:/x"), range(1, 9, 2), bytearray(b"x")]),
)
keys = st.one_of(st.none(), st.booleans(), st.integers(), st.text("$ab"), st.binary(), st.dates(), st.just((1, "$")))


def containers(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(values, max_size=4),
        st.lists(values, max_size=4).map(tuple),
        st.dictionaries(st.text("$ab"), values, max_size=4),
        st.dictionaries(keys, values, max_size=4),
        st.sets(keys, max_size=4),
        st.frozensets(keys, max_size=4),
        st.lists(values, max_size=3).map(lambda items: deque(items, maxlen=7)),
        st.dictionaries(keys, values, max_size=3).map(OrderedDict),
        values.map(lambda value: [value, value]),
        st.builds(Plain, a=values, b=values),
        st.builds(Frozen, a=values),
        st.builds(Model, a=values),
        st.builds(Point, x=values, y=values),
        values.map(lambda value: ValueError(value, "x")),
    )


anything = st.recursive(scalars, containers, max_leaves=12)


@given(anything)
@settings(max_examples=400, deadline=None)
def test_any_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    text = encode(value)
    assert text.isascii()
    assert "\0" not in text
    assert_same(decode(text), value)
    assert same(text, encode(decode(text)))


@pytest.mark.parametrize(
    "value",
    [
        {"$": 1},
        {"$": "datetime", "v": "x"},
        '{"$":"tuple"}',
        1 << 70,
        float("-inf"),
        -0.0,
        datetime(2025, 10, 26, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime.max,
        date.min,
        time(1, 2, 3, 4),
        timedelta.min,
        Decimal("sNaN"),
        Decimal("1.10"),
        UUID(int=5),
        ZoneInfo("Asia/Tokyo"),
        UTC,
        [[]] * 3,
        {"a": ()},
        {(1, (2, frozenset({3}))): {1.5: b""}},
        "\ud83d\ude00",
        "\ud83d" + "\ude00",
        "alone \ud83d",
        {"\ud83d" + "\ude00": 1, "\U0001f600": 2},
        PurePosixPath("\ud83d" + "\ude00"),
        Access(0),
        Access.READ | Access.WRITE,
        {Colour.RED: {Access.READ}},
    ],
)
def test_values_that_are_easily_lost(value: Any) -> None:
    assert_same(decode(encode(value)), value)


def test_models_keep_what_was_set_private_and_extra() -> None:
    model = Model(a=(1, 2))
    model._secret = {1}
    back = decode(encode(model))
    assert back == model
    assert (back._secret, back.model_fields_set) == ({1}, {"a"})
    extra = decode(encode(Open(a=1, more=[1])))
    assert (extra.a, extra.more) == (1, [1])


def test_sqlmodel_tables_come_back_usable() -> None:
    for order in (Order(id=1, note="x"), Order(note="new")):
        back = decode(encode([order, order]))[0]
        assert type(back) is Order
        assert (back.id, back.note) == (order.id, order.note)
        back.note = "changed"
        assert back.model_dump() == {"id": order.id, "note": "changed"}
    assert decode(encode(Loose(note="x"))) == Loose(note="x")


def test_reading_runs_no_constructor() -> None:
    guarded = object.__new__(Guarded)
    guarded.a = 5
    assert decode(encode(guarded)).a == 5


def test_exceptions_keep_class_arguments_attributes_notes_cause_and_context() -> None:
    try:
        try:
            raise ConnectionError("gone")
        except ConnectionError as cause:
            raise Declined("no", amount=7) from cause
    except Declined as raised:
        raised.add_note("a note")
        error = raised
    back = decode(encode(error))
    assert_same(back, error)
    assert (back.amount, back.__notes__, str(back.__cause__)) == (7, ["a note"], "gone")
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise LookupError("second")  # noqa: B904
    except LookupError as raised:
        error = raised
    assert type(decode(encode(error)).__context__) is KeyError


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "no such file", "x.txt"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        KeyError("k"),
        StopIteration(5),
        SystemExit(3),
        ImportError("m", name="n", path="p"),
        ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError(2)])]),
        KeyboardInterrupt(),
        ValueError(),
    ],
)
def test_pythons_own_exceptions_keep_what_they_know(error: BaseException) -> None:
    back = decode(encode(error))
    assert type(back) is type(error)
    assert (str(back), repr(back), repr(back.args)) == (str(error), repr(error), repr(error.args))
    for name in ("errno", "filename", "code", "value", "name", "path", "exceptions", "reason"):
        assert repr(getattr(back, name, None)) == repr(getattr(error, name, None))


def test_an_attribute_that_cant_be_stored_does_not_cost_the_error_its_class() -> None:
    error = Declined("no", amount=7)
    error.connection = object()  # type: ignore[attr-defined]
    back = decode(encode(error))
    assert (type(back), back.args, back.amount) == (Declined, ("no",), 7)
    assert "connection" in back.__notes__[0]


loop: list[Any] = []
loop.append(loop)
deep: list[Any] = []
for _ in range(50_000):
    deep = [deep]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "args"),
        ([1, {"a": (0, lambda: 0)}], "args[1]['a'][1]"),
        (Plain(a=[open]), "args.a[0]"),
        ({"k": {1: sys}}, "args['k'][1]"),
        (Model(a={"x": object()}), "args.a['x']"),
        (ValueError(object()), "args.args[0]"),
        (Point(1, object()), "args[1]"),
        (loop, "args"),
        (deep, "args"),
        ((x for x in ()), "args"),
    ],
)
def test_what_cant_be_stored_names_its_place(value: Any, path: str) -> None:
    with pytest.raises(SerializationError) as refused:
        encode(value, path="args")
    assert refused.value.path == path
    assert refused.value.reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,",
        '{"$":"datetime","v":"soon"}',
        '{"$":"tuple"}',
        '{"$":"unheard of"}',
        '{"$":"dataclass","c":"os:system","f":{}}',
        '{"$":"dataclass","c":"antigravity:x","f":{}}',
        '{"$":"enum","c":"tests.codec.test_values:Colour","n":"GREEN"}',
        '{"$":5}',
        "[" * 100_000,
        "NaN",
        '[Infinity,{"$":"tuple","v":[]}]',
        '{"$":"complex","v":[1]}',
        '{"$":"dict","v":[[[1],2]]}',
        '{"$":"set","v":[[1]]}',
        '{"$":null,"v":[[1]]}',
        '{"$":"dataclass","c":7,"f":{}}',
        '{"$":"dataclass","c":"tests.codec.test_values:Colour","f":{}}',
        '{"$":"enum","c":"tests.codec.test_values:Plain","n":"RED"}',
        '{"$":"enum","c":"tests.codec.test_values:Asking","v":5}',
        '{"$":"namedtuple","c":"tests.codec.test_values:Point","v":[1]}',
    ],
)
def test_damaged_and_hostile_texts_are_refused_and_run_nothing(text: str) -> None:
    with pytest.raises(SerializationError):
        decode(text)
    assert "antigravity" not in sys.modules


def test_what_an_instance_was_given_after_its_making_comes_back() -> None:
    value = Plain(a=1)
    value.note = (1, 2)  # type: ignore[attr-defined]
    assert value.costly == [1]
    back = decode(encode(value))
    assert vars(back) == {"a": 1, "b": None, "hidden": 0, "note": (1, 2)}


def test_code_of_a_class_that_fails_while_it_is_looked_into_is_named() -> None:
    class Failing(pydantic.BaseModel):
        a: int = 1

        def __getattribute__(self, name: str) -> Any:
            if name == "__pydantic_extra__":
                raise ZeroDivisionError("inside")
            return super().__getattribute__(name)

    with pytest.raises(SerializationError, match="looking into it failed"):
        encode([Failing()], path="args")


def test_a_damaged_part_can_be_shown() -> None:
    shown = decode('[{"$":"datetime","v":"soon"},{"$":"set","v":[{"$":"unheard of"}]}]', unresolved="show")
    assert type(shown[0]) is Unresolved
    assert [type(item) for item in shown[1]] == [Unresolved]


def test_a_class_is_only_found_among_storable_kinds() -> None:
    for name in ("builtins:int", "os:system", "subprocess:Popen", "tests.codec.test_values:encode"):
        with pytest.raises(SerializationError):
            decode(f'{{"$":"dataclass","c":"{name}","f":{{}}}}')


def test_a_class_that_is_no_exception_is_not_raised() -> None:
    back = decode('{"$":"exception","c":"tests.codec.test_values:Plain","a":[],"m":"no"}')
    assert (type(back), str(back)) == (UnresolvedError, "Plain: no")


def test_an_unknown_class_can_be_shown() -> None:
    text = encode([Plain(a=1), Colour.RED]).replace("test_values", "gone")
    with pytest.raises(SerializationError, match="import its module"):
        decode(text)
    shown = decode(text, unresolved="show")
    assert [type(item) for item in shown] == [Unresolved, Unresolved]
    assert "Plain" in repr(shown[0])


def test_an_unknown_exception_keeps_its_words_cause_and_notes() -> None:
    error = Declined("no", amount=7)
    error.__cause__ = ValueError("why")
    error.add_note("a note")
    back = decode(encode(error).replace("test_values", "gone"))
    assert type(back) is UnresolvedError
    assert (back.type_name, back.message, str(back.__cause__)) == ("Declined", "no", "why")
    assert back.__notes__ == ["a note"]


def test_a_local_class_and_a_class_defined_again_are_found_in_this_process() -> None:
    def define() -> Any:
        @dataclasses.dataclass
        class Local:
            a: int

        return Local

    first, second = define(), define()
    assert type(decode(encode(first(1)))) is first
    assert type(decode(encode(second(1)))) is second


def test_registering_is_for_storable_kinds_only() -> None:
    assert codec.register(Plain) is Plain
    for wrong in (int, object, len):
        with pytest.raises(TypeError):
            codec.register(wrong)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1}, True),
        ({1: 2, "x": 3}, {"x": 3, 1: 2}, True),
        ([1, 2], [2, 1], False),
        ({1, 2, 3}, {3, 2, 1}, True),
        ((1,), [1], False),
        (1, True, False),
        (1, 1.0, False),
        ("a", b"a", False),
    ],
)
def test_texts_are_the_same_when_their_values_are_equal(first: Any, second: Any, equal: bool) -> None:  # R33
    assert same(encode(first), encode(second)) is equal
