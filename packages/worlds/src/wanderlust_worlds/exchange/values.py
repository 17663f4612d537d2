"""Values of ARE's JSON: arguments (a text and the name of its type), and the condition that a turn is finished."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wanderlust.errors import quoted
from wanderlust_worlds.apps.user_interface import UserInterface

if TYPE_CHECKING:
    from wanderlust_worlds.engine.world import World


_NAME = re.compile(r"wrapped_condition__turn_idx_(\d+)__scenario_id_(.*)")


@dataclass(frozen=True, slots=True)
class TurnsDone:
    """Holds once the agent has sent `count` messages to the user."""

    count: int

    def __call__(self, world: World) -> bool:
        """Whether it has."""
        interface = next((app for app in world.apps.values() if isinstance(app, UserInterface)), None)
        messages = interface.messages.values() if interface else ()
        return sum(one.sender == "Agent" for one in messages) >= self.count


def turns_done(function: str) -> TurnsDone | None:
    """The condition of this name; None when ARE knows none."""
    match = _NAME.fullmatch(function)
    return TurnsDone(int(match[1])) if match else None


def condition_name(turns: TurnsDone, scenario: str) -> str:
    """ARE's name of the condition."""
    return f"wrapped_condition__turn_idx_{turns.count}__scenario_id_{scenario}"


_WORD = re.compile(r"\s*(?:Optional\[\s*)?(\w+)")
_YES = frozenset({"true", "1", "t", "y", "yes"})


def decode_argument(value: Any, kind: str | None) -> Any:
    """Read a value as the type that ARE's JSON names: of a union the first; null only where the type allows it.

    A placeholder stays a text until the world lives. Raises ValueError with what was expected.
    """
    if value is None:
        if kind is None or "None" in kind or kind.lstrip().startswith("Optional"):
            return None
        raise ValueError(f"is null, expected {kind}")
    if not isinstance(value, str):
        return value  # some files have values as they are
    if kind is None or (value.startswith("{{") and value.endswith("}}")):
        return value
    if value == "" and "None" in kind:
        return None
    word = _WORD.match(kind)
    read = _READERS.get(word[1]) if word else None
    if read is None:
        raise ValueError(f"is of the type {kind!r}, expected one of {', '.join(_READERS)}")
    try:
        return read(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"is {quoted(value, 80)}, expected {kind}") from error


def encode_argument(value: Any) -> tuple[str | None, str | None]:
    """The text and the type of a value of plain data, for `decode_argument`. Raises TypeError for other values."""
    if value is None:
        return None, None
    if isinstance(value, list | tuple):
        return json.dumps(value), "list"
    if isinstance(value, Mapping):
        return json.dumps(dict(value)), "dict"
    if isinstance(value, str | bool | int | float):
        return str(value), type(value).__name__
    raise TypeError(f"{type(value).__name__} is no plain data")


def _decoder_of(kind: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        value = json.loads(text)
        if not isinstance(value, kind):
            raise TypeError
        return value

    return read


_READERS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": lambda text: text.lower() in _YES,
    "list": _decoder_of(list),
    "dict": _decoder_of(dict),
    "Any": str,
}
