"""What will happen: events that refer to each other by id, and never to each other's objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from wanderlust.core.errors import UsageError
from wanderlust.worlds.log import Actor

if TYPE_CHECKING:
    from wanderlust.worlds.world import World

Predicate: TypeAlias = "Callable[[World], bool]"
"""A question to the world. It must change nothing, and depend on the world alone."""


Timing: TypeAlias = Literal["", "about", "by", "from"]
"""Whether an agent's act must come in time: about when it is due, by then, from then on. Empty: see `Act.timing`."""


class ScenarioError(UsageError):
    """A scenario that cannot be played as it stands; the text names the event and what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that is due at a time: `delay` seconds after the last of `after`, or at `at` where that is later.

    Without `after`, the delay counts from the start of the world. Events that are due at the same time happen in the
    order in which they became due.
    """

    id: str
    after: tuple[str, ...] = ()
    """Ids of the events that must have happened before."""
    delay: float = 0.0
    """Seconds of the world's clock."""
    at: float | None = None
    """A time of the world's clock before which it does not happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act(Event):
    """Somebody uses an action. An agent's acts are the oracle: only oracle mode plays them."""

    app: str
    action: str
    args: Mapping[str, Any] = field(default_factory=dict)
    """Plain data. `"{{id}}"` stands for the result of the event `id`, `"{{id.key}}"` for a part of it.

    Within a longer text they are replaced by text; there, what names no event is left as it is.
    """
    by: Actor = "env"
    timing: Timing = ""
    """For an agent's act, how verification reads its time; empty is `about` where `at` or a longer delay is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(Event):
    """Happens at the first change of the world, from when it is due, after which `holds` is true.

    After `within` seconds it is given up, and what comes after it never happens. Time alone is no change: use `at`.
    """

    holds: Predicate
    within: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone(Condition):
    """A condition that must come true, for verification to read: after `within` seconds the log says it was missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Minefield(Condition):
    """A condition that must not come true (for `within` seconds): if it does, the log says so and the world stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Event):
    """The world ends."""

    reason: str = "stop"


_WHOLE = re.compile(r"\{\{([^{}]+)\}\}")


def ref(event: str, *path: str) -> str:
    """The placeholder for an event's result, or for a part of it."""
    return "{{" + ".".join((event, *path)) + "}}"


def event_id(named: str) -> str:
    """The id in what `ref` made or in what is one already."""
    found = _WHOLE.fullmatch(named)
    return found[1] if found else named


def placeholders(value: Any) -> Iterator[tuple[str, bool]]:
    """What the placeholders in plain data name, in order, and whether each is a whole text."""
    if isinstance(value, str):
        if "{{" in value:
            yield from ((found[1], found[0] == value) for found in _WHOLE.finditer(value))
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from placeholders(part)
    elif isinstance(value, Sequence):
        for part in value:
            yield from placeholders(part)


def filled(value: Any, result: Callable[[str], Any]) -> Any:
    """Plain data with `result(name)` in the place of each placeholder: as it is, or as text within a longer text."""
    if isinstance(value, str):
        if "{{" not in value:
            return value
        whole = _WHOLE.fullmatch(value)
        return result(whole[1]) if whole else _WHOLE.sub(lambda found: str(result(found[1])), value)
    if isinstance(value, Mapping):
        return {key: filled(part, result) for key, part in value.items()}
    if isinstance(value, Sequence):
        return [filled(part, result) for part in value]
    return value


def source(name: str, known: Mapping[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    """The event and the path that a placeholder names: the longest id that is known; None when there is none."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        if (found := ".".join(parts[:cut])) in known:
            return found, tuple(parts[cut:])
    return None


def part_of(result: Any, path: Sequence[str]) -> Any:
    """The part of a result that a path names: keys, fields of records, positions. Raises LookupError without one."""
    for key in path:
        if isinstance(result, Mapping):
            result = result[key]
        elif isinstance(result, Sequence) and not isinstance(result, str):
            result = result[int(key)]
        elif hasattr(result, "__struct_fields__") and key in result.__struct_fields__:
            result = getattr(result, key)
        else:
            raise LookupError(f"there is no {key!r} in it")
    return result
