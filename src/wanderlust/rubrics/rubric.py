"""Rubrics: weighted, named reward functions that score trajectories.

A reward function takes its arguments by the names of its parameters, which COMMON_ARGUMENTS, SINGLE_ARGUMENTS and
GROUP_ARGUMENTS list. Asynchronous ones run concurrently; which error is raised does not depend on timing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from difflib import get_close_matches
from math import isfinite, prod
from numbers import Real
from typing import Any, Literal, Self, TypeAlias, TypeVar

from wanderlust.errors import RubricFailure, UsageError, WanderlustError, boundary, one_line, quoted
from wanderlust.tasks.registry import resolve_object
from wanderlust.types import Group, Policy, Rollout, RubricLike, Score, Task, Trajectory

RewardFunction: TypeAlias = Callable[..., Any]
"""Takes its arguments by the names of its parameters; returns a number, `RewardResult`, or an awaitable of either."""
RewardRole: TypeAlias = Literal["reward", "gate", "held_out", "metric"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """A reward function's result with metrics and a note to record."""

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Recorded in the score's metrics as `part/metric`."""
    note: str = ""
    """Recorded in the score's notes under the part's name."""


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward function with its weight, role and name."""

    function: RewardFunction
    weight: float = 1.0
    _: KW_ONLY
    role: RewardRole = "reward"
    """`reward` is added; a `gate` multiplies the sum of its rubric; `held_out` and `metric` are recorded and never
    trained on. `held_out` measures the real goal: monitors compare the reward with it."""
    name: str = ""
    """Name of its value in the score; the function's own by default."""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise UsageError(f"a reward is a function, not {one_line(repr(self.function))}")
        inner = getattr(self.function, "func", self.function)
        candidates = (self.name, getattr(self.function, "name", None), getattr(self.function, "__name__", None))
        name = next(filter(None, (*candidates, getattr(inner, "__name__", None))), None)
        name = name if isinstance(name, str) else type(self.function).__name__
        object.__setattr__(self, "name", name)
        if not isinstance(self.weight, Real) or not isfinite(self.weight):
            raise UsageError(f"the weight of {name!r} is {self.weight!r}, which is no finite number")
        if name == "<lambda>":
            raise UsageError("a lambda has no name to be recorded as: Reward(function, name=...)")


def gate(function: RewardFunction, *, name: str = "") -> Reward:
    """A part that multiplies the sum of the others of its rubric: 0 closes it, 1 leaves it unchanged."""
    return Reward(function, role="gate", name=name)


def held_out(function: RewardFunction, *, name: str = "") -> Reward:
    """A part that measures the real goal and is never trained on: a metric, with which monitors compare the reward."""
    return Reward(function, role="held_out", name=name)


def metric(function: RewardFunction, *, name: str = "") -> Reward:
    """A part that is recorded and never counts, neither better nor worse when it rises: a length, an outcome."""
    return Reward(function, role="metric", name=name)


def reward_value(result: Any) -> float:
    """Convert a reward function's result to a finite float. Raises RubricFailure for anything else."""
    if isinstance(result, Real):
        try:
            value = float(result)
        except OverflowError:
            raise RubricFailure("returned a whole number too large for a float") from None
        if isfinite(value):
            return value
    raise RubricFailure(f"returned {_describe_result(result)}, not a finite number")


def group_reward_values(results: Any, count: int) -> list[float | RewardResult]:
    """Convert the result of a function of a group to one value per sample. Raises RubricFailure for anything else."""
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable):
        raise RubricFailure(f"returned {_describe_result(results)}, not a list of one number per rollout of the group")
    values = list(results)
    if len(values) != count:
        raise RubricFailure(f"returned {len(values)} values for {count} rollouts")
    return values


def _describe_result(result: Any) -> str:
    if result is None or isinstance(result, float):
        return repr(result)
    if isinstance(result, str):
        return one_line(quoted(result, 40))
    return f"a {type(result).__name__}"  # an object's repr is foreign code


COMMON_ARGUMENTS: Mapping[str, Callable[[Rollout, Trajectory], Any]] = {
    "task": lambda rollout, _: rollout.task,
    "prompt": lambda rollout, _: rollout.task.prompt,
    "answer": lambda rollout, _: rollout.task.answer,
    "info": lambda rollout, _: rollout.task.info,
    "seed": lambda rollout, _: rollout.seed,
    "seat": lambda _, trajectory: trajectory.seat,
}
"""The same for all samples of a group; `prompt` is the task's messages, `answer` its ground truth."""

SINGLE_ARGUMENTS: Mapping[str, Callable[[Rollout, Trajectory], Any]] = {
    "completion": lambda _, trajectory: trajectory.turns[-1].action.content if trajectory.turns else "",
    "messages": lambda _, trajectory: trajectory.messages,
    "trajectory": lambda _, trajectory: trajectory,
    "rollout": lambda rollout, _: rollout,
    "state": lambda rollout, _: rollout.state,
    "rewards": lambda _, trajectory: trajectory.score.parts if trajectory.score else {},
}
"""Of one seat of one rollout; `completion` is the text of its last answer, `rewards` the environment's own."""

GROUP_ARGUMENTS: Mapping[str, Callable[[Group, Sequence[Trajectory]], Any]] = {
    "group": lambda group, _: group,
    "rollouts": lambda group, _: group.rollouts,
    "trajectories": lambda _, trajectories: list(trajectories),
    "completions": lambda group, seats: [
        SINGLE_ARGUMENTS["completion"](r, t) for r, t in zip(group.rollouts, seats, strict=True)
    ],
}
"""Of all scored samples of a group, in their order; a function with one of these returns one value per sample."""

ARGUMENT_NAMES = frozenset({*COMMON_ARGUMENTS, *SINGLE_ARGUMENTS, *GROUP_ARGUMENTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundReward:
    """A part, and the arguments of its function."""

    reward: Reward
    names: tuple[str, ...]
    fixed: Mapping[str, Any]
    """Shared resources of its rubric."""
    is_group: bool
    """Whether it is a function of the group."""

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the function; returns its result, or an awaitable of it."""
        return self.reward.function(**self.fixed, **{name: arguments[name] for name in self.names})


def bind_reward(reward: Reward, resources: Mapping[str, Any]) -> BoundReward:
    """Resolve the parameters of a part's function. Raises UsageError for a name that is not available."""
    wanted = _parameters(reward.name, reward.function, ARGUMENT_NAMES | resources.keys())
    names = [name for name in wanted if name in ARGUMENT_NAMES]
    together, alone = [n for n in names if n in GROUP_ARGUMENTS], [n for n in names if n in SINGLE_ARGUMENTS]
    if together and alone:
        raise UsageError(
            f"the reward function {reward.name!r} asks for {together[0]!r}, which is of the whole group, "
            f"and for {alone[0]!r}, which is of one: take it from {together[0]!r}"
        )
    fixed = {name: resources[name] for name in wanted if name in resources}
    return BoundReward(reward=reward, names=tuple(names), fixed=fixed, is_group=bool(together))


def _parameters(name: str, function: RewardFunction, valid_names: Collection[str]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise UsageError(f"the parameters of the reward function {name!r} cannot be read: wrap it in a def") from error
    wanted = []
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UsageError(f"the reward function {name!r} takes {parameter.name!r} by position only: give it by name")
        if parameter.name in valid_names:
            wanted.append(parameter.name)
        elif parameter.default is parameter.empty:
            near = get_close_matches(parameter.name, valid_names, 3, 0.5) or sorted(valid_names)
            hint = f"the nearest names are {', '.join(near)}"
            raise UsageError(
                f"the reward function {name!r} asks for {parameter.name!r}, which is not available: {hint}"
            )
    return wanted


T = TypeVar("T")


async def gather_results(awaitables: Iterable[Awaitable[T]]) -> list[T | WanderlustError]:
    """Await all; returns the value or the error of each, in their order. Cancelling cancels all."""
    values = list(awaitables)
    if len(values) == 1:
        return [await _await_result(values[0])]  # a task of its own would cost several times what rubrics do otherwise
    return await asyncio.gather(*map(_await_result, values))


async def gather_values(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Await all, and raise the first failure once all have ended."""
    values: list[T] = []
    for result in await gather_results(awaitables):
        if isinstance(result, WanderlustError):
            raise result
        values.append(result)
    return values


async def _await_result(value: Awaitable[T]) -> T | WanderlustError:
    try:
        with boundary(RubricFailure):
            return await value
    except WanderlustError as error:
        return error


def _asking(bound: BoundReward, policy: Policy) -> BoundReward:
    """The part with another policy, where its function is a judge."""
    function: Any = bound.reward.function
    if not hasattr(function, "asking"):
        return bound
    return replace(bound, reward=replace(bound.reward, function=function.asking(policy)))


_SINGLE_ARGUMENTS = {**COMMON_ARGUMENTS, **SINGLE_ARGUMENTS}
_PLAIN = frozenset({float, int, bool})


class Rubric:
    """Give one Score per trajectory: reward = product of the gates x sum of weight x value.

    Raw values are recorded by name, those of held-out parts and metrics in `metrics`. Functions take their arguments
    by the names of their parameters, the rubric's `resources` included; they may be asynchronous. Functions of a group
    are called when all samples are finished; until then they count nothing.

    A function that raises, or returns anything but a finite number, is a RubricFailure naming it and the task.
    The reward of `a + b` is the sum of both rewards; gates apply to their own sum.
    """

    def __init__(self, *parts: RewardFunction | Reward, **resources: Any):
        """Raises UsageError of one line for a parameter that is not available, and for repeated names."""
        for name in resources.keys() & ARGUMENT_NAMES:
            raise UsageError(f"a resource cannot be called {name!r}: every rollout has one")
        own = tuple(bind_reward(p if isinstance(p, Reward) else Reward(p), resources) for p in parts)
        if any(a.reward.role == "gate" for a in own) and all(a.reward.role != "reward" for a in own):
            raise UsageError("a rubric of gates alone has nothing to multiply: add a reward that is no gate")
        self._arrange((own,))

    def __add__(self, other: Rubric) -> Self:
        if not isinstance(other, Rubric):
            return NotImplemented
        both = type(self).__new__(type(self))
        both._arrange(self._terms + other._terms)
        return both

    @property
    def parts(self) -> tuple[Reward, ...]:
        """All parts, in their order."""
        return tuple(a.reward for a in self._all)

    def asking(self, policy: Policy) -> Self:
        """The same rubric with another policy for all of its judges. Raises UsageError where it has none."""
        terms = tuple(tuple(_asking(bound, policy) for bound in term) for term in self._terms)
        if terms == self._terms:
            raise UsageError("no part of this rubric asks a judge")
        other = type(self).__new__(type(self))
        other._arrange(terms)
        return other

    def contributions(self, parts: Mapping[str, float]) -> dict[str, float]:
        """What each part of a score adds to its reward: weight x value, times the gates of its sum; gates add nothing.

        The values sum up to the reward.
        """
        shares: dict[str, float] = {}
        for gates, weighted in self._sums:
            gated = prod([parts[name] for name in gates if name in parts])
            shares.update((name, weight * parts[name] * gated) for name, weight in weighted if name in parts)
        return shares

    def _arrange(self, terms: tuple[tuple[BoundReward, ...], ...]) -> None:
        self._terms, self._all = terms, tuple(a for term in terms for a in term)
        names = [a.reward.name for a in self._all]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"two rewards are called {repeated[0]!r}: give one another name, Reward(..., name=...)")
        self._single = tuple(a for a in self._all if not a.is_group)
        self._group = tuple(a for a in self._all if a.is_group)
        self.compares = bool(self._group)
        """Whether some parts are functions of the group."""
        self._argument_names = _used_names(self._single, _SINGLE_ARGUMENTS)
        self._sums = tuple(
            (
                tuple(a.reward.name for a in term if a.reward.role == "gate"),
                tuple((a.reward.name, a.reward.weight) for a in term if a.reward.role == "reward"),
            )
            for term in terms
        )

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """Call every function of one rollout, the asynchronous ones concurrently."""
        arguments = {name: _SINGLE_ARGUMENTS[name](rollout, trajectory) for name in self._argument_names}
        results = await _call_rewards(self._single, arguments, rollout.task)
        return self._score(zip(self._single, results, strict=True), rollout.task)

    async def compare(self, group: Group, seat: str) -> Sequence[Score]:
        """Add the functions of the group to the seat's scores, one per rollout; all were scored before."""
        trajectories = [t for rollout in group.rollouts for t in rollout.trajectories if t.seat == seat]
        scores = [t.score for t in trajectories if t.score is not None]
        arguments = {
            name: GROUP_ARGUMENTS[name](group, trajectories) for name in _used_names(self._group, GROUP_ARGUMENTS)
        }
        arguments |= {
            name: COMMON_ARGUMENTS[name](group.rollouts[0], trajectories[0])
            for name in _used_names(self._group, COMMON_ARGUMENTS)
        }
        results = await _call_rewards(self._group, arguments, group.task)
        columns = []
        for a, values in zip(self._group, results, strict=True):
            with _NameReward(a, group.task), boundary(RubricFailure):
                columns.append(group_reward_values(values, len(scores)))
        rows = zip(*columns, strict=True)
        return [
            self._score(zip(self._group, row, strict=True), group.task, before=score)
            for row, score in zip(rows, scores, strict=True)
        ]

    def _score(self, results: Iterable[tuple[BoundReward, Any]], task: Task, before: Score | None = None) -> Score:
        parts: dict[str, float] = dict(before.parts) if before else {}
        metrics: dict[str, float] = dict(before.metrics) if before else {}
        notes: dict[str, str] = dict(before.notes) if before else {}
        for a, value in results:
            name, plain = a.reward.name, value
            if type(value) is RewardResult:
                metrics.update((f"{name}/{key}", _number(a, extra, task)) for key, extra in value.metrics.items())
                notes.update({name: value.note} if value.note else {})
                plain = value.value
            (metrics if a.reward.role in ("held_out", "metric") else parts)[name] = _number(a, plain, task)
        total = 0.0
        for gates, weighted in self._sums:
            paid = sum([weight * parts[name] for name, weight in weighted if name in parts])
            total += paid * prod([parts[name] for name in gates if name in parts]) if gates else paid
        if not isfinite(total):
            raise RubricFailure(f"the weighted sum on task {task.id!r} is no finite number: {one_line(str(parts))}")
        return Score(reward=total, parts=parts, metrics=metrics, notes=notes)


def _used_names(parts: Iterable[BoundReward], valid_names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in valid_names if any(name in a.names for a in parts))


async def _call_rewards(parts: Sequence[BoundReward], arguments: Mapping[str, Any], task: Task) -> list[Any]:
    """Call every part; returns the results in their order. The first failure is raised, once all have ended."""
    results: list[Any] = []
    try:
        with boundary(RubricFailure):
            for a in parts:
                results.append(a.call(arguments))  # noqa: PERF401  # coroutines made before an error have to be closed
    except WanderlustError as error:
        for value in results:
            if inspect.iscoroutine(value):
                value.close()
        raise _reward_failure(parts[len(results)], task, error) from error
    waiting = [n for n, value in enumerate(results) if type(value) not in _PLAIN and inspect.isawaitable(value)]
    if waiting:
        ended = await gather_results(results[n] for n in waiting)
        for n, value in zip(waiting, ended, strict=True):
            if isinstance(value, WanderlustError):
                raise _reward_failure(parts[n], task, value) from value
            results[n] = value
    return results


def _number(a: BoundReward, value: Any, task: Task) -> float:
    if type(value) is float and isfinite(value):
        return value
    with _NameReward(a, task), boundary(RubricFailure):
        return reward_value(value)


class _NameReward:
    """Add the part and the task to an error of the block."""

    def __init__(self, a: BoundReward, task: Task):
        self._of = a, task

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, WanderlustError):
            raise _reward_failure(*self._of, error) from error


def _reward_failure(a: BoundReward, task: Task, error: WanderlustError) -> RubricFailure:
    message = one_line(str(error) if isinstance(error, RubricFailure) else f"{type(error).__name__}: {error}", 500)
    line = f"{a.reward.name} on task {task.id!r}: {message}"
    return RubricFailure(line, transient=error.transient, refusal=error.refusal)


def resolve_rubric(target: str) -> RubricLike:
    """A rubric, one that is made by calling it without arguments, or a reward function as a rubric of its own."""
    target_object = resolve_object(target)
    if hasattr(target_object, "score"):
        made: RubricLike = target_object() if isinstance(target_object, type) else target_object
        return made
    if callable(target_object):
        return Rubric(target_object)
    raise UsageError(f"{target} is neither a rubric nor a reward function")
