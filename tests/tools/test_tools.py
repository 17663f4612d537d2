"""Tools from functions: schemas that are right, arguments that are checked, functions that may block."""

import asyncio
import enum
import functools
import json
import threading
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import msgspec
import pytest

from wanderlust.errors import UsageError
from wanderlust.tools.function import FunctionTool, Injected, WrongArguments, tool


class Unit(enum.Enum):
    KELVIN = "K"
    CELSIUS = "C"


@dataclass
class Place:
    """Somewhere."""

    name: str
    lat: float = 0.0


class Window(TypedDict):
    start: int
    end: NotRequired[int]


def forecast(
    place: Place,
    days: int,
    window: Window,
    *,
    unit: Unit = Unit.CELSIUS,
    detail: Literal["low", "high"] = "low",
    tags: list[str] | None = None,
    limits: dict[str, float] = {},  # noqa: B006
    mixed: int | str = 3,
    when: date = date(2020, 1, 2),
) -> list[str]:
    """Tell the weather.

    For several days,
    in one place.

    Args:
        place: Where, as precisely as
            you can.
        days (int): How many days.
        unit: Of the temperature.

    Returns:
        One line a day.

    Raises:
        ValueError: Never.
    """
    return [f"{place.name} {days} {window} {unit} {detail} {tags} {limits} {mixed} {when}"]


def shares(
    old: Optional[bool] = None,  # noqa: UP045
    anything: Any = None,
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5,
    where: Place | None = None,
    all_of_them: tuple[int, str] = (1, "x"),
): ...


GOOD = {"place": {"name": "Bonn"}, "days": 2, "window": {"start": 1}}


def call(function, /, **arguments):
    made = function if isinstance(function, FunctionTool) else tool(function)
    return asyncio.run(made(**arguments))


def test_the_schema_says_all_that_the_signature_and_the_docstring_say():
    made = tool(forecast)
    assert (made.name, made.description) == ("forecast", "Tell the weather.\n\nFor several days,\nin one place.")
    properties = made.schema["properties"]
    assert made.schema["type"] == "object"
    assert made.schema["required"] == ["place", "days", "window"]
    assert made.schema["additionalProperties"] is False
    assert properties["days"] == {"type": "integer", "description": "How many days."}
    assert properties["place"] == {"$ref": "#/$defs/Place", "description": "Where, as precisely as you can."}
    assert properties["unit"] == {"$ref": "#/$defs/Unit", "description": "Of the temperature.", "default": "C"}
    assert properties["detail"] == {"enum": ["high", "low"], "default": "low"}
    assert properties["tags"]["anyOf"] == [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]
    assert properties["tags"]["default"] is None
    assert properties["limits"] == {"type": "object", "additionalProperties": {"type": "number"}, "default": {}}
    assert properties["when"] == {"type": "string", "format": "date", "default": "2020-01-02"}
    assert properties["mixed"] == {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": 3}
    assert made.schema["$defs"]["Place"]["required"] == ["name"]
    assert made.schema["$defs"]["Window"]["required"] == ["start"]
    assert made.schema["$defs"]["Unit"]["enum"] == ["C", "K"]
    json.dumps(made.schema)


def test_less_common_hints():
    made = tool(shares)
    properties = made.schema["properties"]
    assert made.schema["required"] == []
    assert properties["anything"] == {"default": None}
    assert properties["where"]["anyOf"] == [{"$ref": "#/$defs/Place"}, {"type": "null"}]
    assert properties["all_of_them"]["default"] == [1, "x"]
    assert properties["old"] == {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None}
    assert properties["share"] == {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5}
    json.dumps(made.schema)


def numpy(a: int, b: int = 1) -> int:
    """Adds.

    Parameters
    ----------
    a : int
        The first.
    b : int, optional
        The second,
        if any.

    Returns
    -------
    int
        The sum.
    """
    return a + b


def rest(a: int) -> int:
    """Doubles.

    :param a: The number.
    """
    return 2 * a


def test_other_styles_of_docstrings_are_read():
    described = {name: p["description"] for name, p in tool(numpy).schema["properties"].items()}
    assert described == {"a": "The first.", "b": "The second, if any."}
    assert tool(numpy).description == "Adds."
    assert tool(rest).schema["properties"]["a"]["description"] == "The number."


def test_no_docstring_and_no_parameters_are_fine():
    def bare():
        return None

    made = tool(bare)
    assert made.description == ""
    assert made.schema == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert call(made) == "null"


def test_arguments_arrive_as_their_types_and_defaults_are_the_functions_own():
    (line,) = json.loads(call(forecast, **GOOD))
    assert line == "Bonn 2 {'start': 1} Unit.CELSIUS low None {} 3 2020-01-02"
    (line,) = json.loads(call(forecast, **GOOD, unit="K", tags=["x"], when="2021-01-01"))
    assert line == "Bonn 2 {'start': 1} Unit.KELVIN low ['x'] {} 3 2021-01-01"


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"days": "2"}, "days"),
        ({"days": True}, "days"),
        ({"days": 2.5}, "days"),
        ({"days": None}, "days"),
        ({"place": {"name": 7}}, "place.name"),
        ({"place": {}}, "name"),
        ({"window": {"start": "x"}}, "window.start"),
        ({"unit": "F"}, "unit"),
        ({"detail": "medium"}, "detail"),
        ({"tags": ["a", 3]}, "tags[1]"),
        ({"limits": {"a": "b"}}, "limits"),
        ({"mixed": []}, "mixed"),
        ({"when": "yesterday"}, "when"),
        ({"unheard": 1}, "unheard"),
        ({"self": 1}, "self"),
        ({"x" * 9_000: 1}, "xxx"),
    ],
)
def test_wrong_arguments_are_one_line_that_names_the_field(change, names):
    with pytest.raises(WrongArguments) as told:
        call(forecast, **GOOD | change)
    assert "\n" not in str(told.value)
    assert names in str(told.value)
    assert "forecast" in str(told.value)
    assert len(str(told.value)) <= 500


def test_constraints_are_told_and_held():
    assert tool(shares).schema["properties"]["share"] == {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5}
    with pytest.raises(WrongArguments, match="share"):
        call(shares, share=1.5)


def test_a_missing_argument_is_named():
    with pytest.raises(WrongArguments, match="missing required field `days`"):
        call(forecast, place=GOOD["place"], window=GOOD["window"])


class Odd:
    pass


def odd(a: int, b: Odd): ...
def untyped(a, b: int): ...
def several(*a: int): ...
def rest_of_them(**a: int): ...
def unnamed(a: int, /): ...
def two_of_a_kind(a: Place | Window | list[Place] | tuple[int, ...]): ...
def unknown_type(a: "Nowhere"): ...  # noqa: F821


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (odd, "'b' of odd"),
        (untyped, "'a' of untyped"),
        (several, "several"),
        (rest_of_them, "rest_of_them"),
        (unnamed, "unnamed"),
        (two_of_a_kind, "'a' of two_of_a_kind"),
        (unknown_type, "Nowhere"),
        (lambda: 1, "<lambda>"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_in_one_line(function, names):
    with pytest.raises(UsageError) as told:
        tool(function)
    assert names in str(told.value)
    assert "\n" not in str(told.value)


def test_a_decorator_takes_options():
    @tool(name="plus", description="Adds.", timeout=2.0, ordered=True)
    def add(a: int, b: int) -> int:
        return a + b

    assert (add.name, add.description, add.timeout, add.ordered) == ("plus", "Adds.", 2.0, True)
    assert call(add, a=1, b=2) == "3"
    assert call(tool(lambda: "x", name="say")) == "x"


class Cart:
    def __init__(self):
        self.items = []

    def put(self, item: str, count: int = 1) -> int:
        """Put something in."""
        self.items += [item] * count
        return len(self.items)

    def __call__(self, item: str) -> bool:
        return item in self.items


async def slowly(a: int) -> int:
    await asyncio.sleep(0)
    return -a


def test_methods_partials_objects_and_coroutines_are_functions_too():
    cart = Cart()
    put, has = tool(cart.put), tool(cart, name="has")
    assert list(put.schema["properties"]) == ["item", "count"]
    assert (call(put, item="egg", count=2), cart.items) == ("2", ["egg", "egg"])
    assert call(tool(Cart().put), item="x") == "1"
    assert call(has, item="egg") == "true"
    assert (put.ordered, tool(numpy).ordered) == (True, False)
    assert call(slowly, a=3) == "-3"
    assert call(tool(functools.partial(numpy, b=5), name="five"), a=1) == "6"
    assert call(tool(functools.partial(slowly), name="p"), a=1) == "-1"


def buy(item: str, cart: Injected[Cart], price: Injected[int] = 2) -> str:
    """Buys.

    Args:
        item: What.
        cart: Into which.
    """
    return f"{cart.put(item)} {price}"


def test_injected_arguments_are_never_seen_by_the_model():
    mine, cart = tool(buy), Cart()
    assert "cart" not in json.dumps(mine.schema)
    assert "price" not in json.dumps(mine.schema)
    bound = mine.bind(cart=cart, price=7)
    assert call(bound, item="egg") == "1 7"
    assert cart.items == ["egg"]
    with pytest.raises(WrongArguments, match="cart"):
        call(bound, item="egg", cart={})
    with pytest.raises(UsageError, match="cart"):
        call(mine, item="egg")
    with pytest.raises(UsageError, match="basket"):
        mine.bind(basket=cart)
    assert bound.ordered


@dataclass
class Found:
    where: str
    near: list[int] = field(default_factory=list)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (None, "null"),
        ({"a": [1, 2.5, True]}, '{"a":[1,2.5,true]}'),
        (Found("x", [1]), '{"where":"x","near":[1]}'),
        (b"\xff\x00", "\ufffd\x00"),
        (Unit.KELVIN, '"K"'),
        (float("nan"), "null"),
        (3 + 4j, '"(3+4j)"'),
        ({1: 2}, '{"1":2}'),
    ],
)
def test_what_a_tool_returns_is_text(value, text):
    assert call(tool(lambda: value, name="value")) == text


def test_blocking_functions_run_in_a_thread_that_knows_the_context():
    def where() -> str:
        return threading.current_thread().name

    assert call(where) == "wanderlust-tool"


def test_whatever_a_function_raises_arrives():
    def stop():
        raise StopIteration

    with pytest.raises(RuntimeError):
        call(stop)

    def leave():
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        call(leave)
