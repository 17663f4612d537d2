"""One part of a rubric: a function, what it counts for, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from math import isfinite
from numbers import Real
from typing import Any, Literal, TypeAlias

from wanderlust.core.errors import RubricFailure, UsageError
from wanderlust.core.text import one_line

RewardFunction: TypeAlias = Callable[..., Any]
"""Asks for what it needs by the names of its parameters; returns a number, `Judged`, or an awaitable of either."""
Role: TypeAlias = Literal["reward", "gate", "hidden", "metric"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a reward function may return in place of a number, when there is more to record."""

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Recorded in the score's metrics as `part/metric`."""
    note: str = ""
    """Recorded in the score's notes under the part's name."""


@dataclass(frozen=True, slots=True)
class Part:
    """A reward function and what it counts for."""

    function: RewardFunction
    weight: float = 1.0
    _: KW_ONLY
    role: Role = "reward"
    """`reward` is added; a `gate` multiplies the sum of its rubric; `hidden` and `metric` are recorded and never
    trained on, and the former is what is wanted: monitors hold the reward against it."""
    name: str = ""
    """What its value is recorded as; the function's own name by default."""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise UsageError(f"a part of a rubric is a function, not {one_line(repr(self.function))}")
        name = self.name or _name(self.function)
        object.__setattr__(self, "name", name)
        if not isinstance(self.weight, Real) or not isfinite(self.weight):
            raise UsageError(f"the weight of {name!r} is {self.weight!r}, which is no finite number")
        if name == "<lambda>":
            raise UsageError("a lambda has no name to be recorded as: Part(function, name=...)")


def gate(function: RewardFunction, *, name: str = "") -> Part:
    """A part that multiplies the sum of the others of its rubric: 0 closes it, 1 leaves it as it is."""
    return Part(function, role="gate", name=name)


def hidden(function: RewardFunction, *, name: str = "") -> Part:
    """A part that stands for what is wanted and never counts: recorded as a metric, and watched by the monitors."""
    return Part(function, role="hidden", name=name)


def metric(function: RewardFunction, *, name: str = "") -> Part:
    """A part that is recorded and never counts; whether it rises or falls says nothing: a length, an outcome."""
    return Part(function, role="metric", name=name)


def number(said: Any) -> float:
    """What a reward function returned, as a finite float. Raises RubricFailure for anything else."""
    if isinstance(said, Real):
        try:
            value = float(said)
        except OverflowError:
            raise RubricFailure("returned a whole number too large for a float") from None
        if isfinite(value):
            return value
    raise RubricFailure(f"returned {_shown(said)}, not a finite number")


def numbers(said: Any, count: int) -> list[float | Judged]:
    """What a function of a group returned: one value per sibling. Raises RubricFailure for anything else."""
    if isinstance(said, str | bytes | Mapping) or not isinstance(said, Iterable):
        raise RubricFailure(f"returned {_shown(said)}, not a list of one number per sibling")
    values = list(said)
    if len(values) != count:
        raise RubricFailure(f"returned {len(values)} values for {count} siblings")
    return values


def _shown(said: Any) -> str:
    if said is None or isinstance(said, float):
        return repr(said)
    if isinstance(said, str):
        return one_line(repr(said[:40]))
    return f"a {type(said).__name__}"  # an object's repr is code that nobody has seen


def _name(function: RewardFunction) -> str:
    inner = getattr(function, "func", function)
    found = getattr(function, "name", None) or getattr(function, "__name__", None) or getattr(inner, "__name__", None)
    return found if isinstance(found, str) else type(function).__name__
