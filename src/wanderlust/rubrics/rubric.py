"""A rubric: weighted, named functions that say what a trajectory is worth."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, prod
from typing import Any, Self

from wanderlust.core.errors import RubricFailure, UsageError, WanderlustError, boundary
from wanderlust.core.text import one_line
from wanderlust.core.types import Group, Rollout, Score, Task, Trajectory
from wanderlust.rubrics.asking import ALONE, COMMON, NAMES, TOGETHER, Asking, asking
from wanderlust.rubrics.part import Judged, Part, RewardFunction, number, numbers
from wanderlust.rubrics.waiting import settled

_ALONE = {**COMMON, **ALONE}
_PLAIN = frozenset({float, int, bool})


class Rubric:
    """Guarantees one Score per trajectory: reward = product of the gates x sum of weight x value.

    Raw values are kept by name, those of hidden parts in `metrics`. Functions ask for what they need by the names
    of their parameters (`asking.py` lists them) and for the rubric's `resources` by theirs; they may be
    asynchronous. Functions of a group are called when all siblings are there; until then they count nothing.

    A function that raises, or returns what is no finite number, is a RubricFailure naming it and the task.
    `a + b` is worth what `a` is worth plus what `b` is worth; gates keep to their own sum.
    """

    def __init__(self, *parts: RewardFunction | Part, **resources: Any):
        """Raises UsageError in one line when a function asks for what nobody can give, or names repeat."""
        for name in resources.keys() & NAMES:
            raise UsageError(f"a resource cannot be called {name!r}: every rollout has one")
        own = tuple(asking(p if isinstance(p, Part) else Part(p), resources) for p in parts)
        if any(a.part.role == "gate" for a in own) and all(a.part.role != "reward" for a in own):
            raise UsageError("a rubric of gates alone has nothing to multiply: give it a part that is no gate")
        self._arrange((own,))

    def __add__(self, other: Rubric) -> Self:
        if not isinstance(other, Rubric):
            return NotImplemented
        both = type(self).__new__(type(self))
        both._arrange(self._terms + other._terms)
        return both

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts, in their order."""
        return tuple(a.part for a in self._all)

    @property
    def compares(self) -> bool:
        """Whether some parts are functions of the group."""
        return bool(self._group)

    def _arrange(self, terms: tuple[tuple[Asking, ...], ...]) -> None:
        self._terms, self._all = terms, tuple(a for term in terms for a in term)
        names = [a.part.name for a in self._all]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"two parts are called {repeated[0]!r}: give one another name, Part(..., name=...)")
        self._single = tuple(a for a in self._all if not a.together)
        self._group = tuple(a for a in self._all if a.together)
        self._wanted = _wanted(self._single, _ALONE)
        self._sums = tuple(
            (
                tuple(a.part.name for a in term if a.part.role == "gate"),
                tuple((a.part.name, a.part.weight) for a in term if a.part.role == "reward"),
            )
            for term in terms
        )

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """Call every function of one rollout, the asynchronous ones at once."""
        given = {name: _ALONE[name](rollout, trajectory) for name in self._wanted}
        said = await _ask(self._single, given, rollout.task)
        return self._score(zip(self._single, said, strict=True), rollout.task)

    async def compare(self, group: Group, seat: str) -> Sequence[Score]:
        """The seat's scores with the functions of the group, one per rollout; all were scored before."""
        trajectories = [t for rollout in group.rollouts for t in rollout.trajectories if t.seat == seat]
        scores = [t.score for t in trajectories if t.score is not None]
        given = {name: TOGETHER[name](group, trajectories) for name in _wanted(self._group, TOGETHER)}
        given |= {name: COMMON[name](group.rollouts[0], trajectories[0]) for name in _wanted(self._group, COMMON)}
        said = await _ask(self._group, given, group.task)
        columns = []
        for a, values in zip(self._group, said, strict=True):
            with _Blaming(a, group.task), boundary(RubricFailure):
                columns.append(numbers(values, len(scores)))
        rows = zip(*columns, strict=True)
        return [
            self._score(zip(self._group, row, strict=True), group.task, before=score)
            for row, score in zip(rows, scores, strict=True)
        ]

    def _score(self, said: Iterable[tuple[Asking, Any]], task: Task, before: Score | None = None) -> Score:
        parts: dict[str, float] = dict(before.parts) if before else {}
        metrics: dict[str, float] = dict(before.metrics) if before else {}
        notes: dict[str, str] = dict(before.notes) if before else {}
        for a, value in said:
            name, plain = a.part.name, value
            if type(value) is Judged:
                metrics.update((f"{name}/{key}", _number(a, extra, task)) for key, extra in value.metrics.items())
                notes.update({name: value.note} if value.note else {})
                plain = value.value
            (metrics if a.part.role in ("hidden", "metric") else parts)[name] = _number(a, plain, task)
        return Score(reward=self._reward(parts, task), parts=parts, metrics=metrics, notes=notes)

    def _reward(self, values: Mapping[str, float], task: Task) -> float:
        total = 0.0
        for gates, weighted in self._sums:
            paid = sum([weight * values[name] for name, weight in weighted if name in values])
            total += paid * prod([values[name] for name in gates if name in values]) if gates else paid
        if not isfinite(total):
            raise RubricFailure(f"the weighted sum on task {task.id!r} is no finite number: {one_line(str(values))}")
        return total


def _wanted(parts: Iterable[Asking], known: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in known if any(name in a.names for a in parts))


async def _ask(parts: Sequence[Asking], given: Mapping[str, Any], task: Task) -> list[Any]:
    """What every part said, in their order. The first one that failed is raised, once all have come to an end."""
    said: list[Any] = []
    try:
        with boundary(RubricFailure):
            for a in parts:
                said.append(a.call(given))  # noqa: PERF401  # what was said before an error has to be closed
    except WanderlustError as error:
        for value in said:
            if inspect.iscoroutine(value):
                value.close()
        raise _blamed(parts[len(said)], task, error) from error
    waiting = [n for n, value in enumerate(said) if type(value) not in _PLAIN and inspect.isawaitable(value)]
    if waiting:
        ended = await settled(said[n] for n in waiting)
        for n, value in zip(waiting, ended, strict=True):
            if isinstance(value, WanderlustError):
                raise _blamed(parts[n], task, value) from value
            said[n] = value
    return said


def _number(a: Asking, value: Any, task: Task) -> float:
    if type(value) is float and isfinite(value):
        return value
    with _Blaming(a, task), boundary(RubricFailure):
        return number(value)


class _Blaming:
    """Adds the part and the task to whatever the block says went wrong."""

    def __init__(self, a: Asking, task: Task):
        self._of = a, task

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, WanderlustError):
            raise _blamed(*self._of, error) from error


def _blamed(a: Asking, task: Task, error: WanderlustError) -> RubricFailure:
    told = one_line(str(error) if isinstance(error, RubricFailure) else f"{type(error).__name__}: {error}", 500)
    return RubricFailure(f"{a.part.name} on task {task.id!r}: {told}", transient=error.transient)
