"""What a reward function can ask for, by the names of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from wanderlust.core.errors import UsageError
from wanderlust.core.types import Group, Rollout, Trajectory
from wanderlust.rubrics.part import Part, RewardFunction

COMMON: Mapping[str, Callable[[Rollout, Trajectory], Any]] = {
    "task": lambda rollout, _: rollout.task,
    "prompt": lambda rollout, _: rollout.task.prompt,
    "answer": lambda rollout, _: rollout.task.answer,
    "info": lambda rollout, _: rollout.task.info,
    "seed": lambda rollout, _: rollout.seed,
    "seat": lambda _, trajectory: trajectory.seat,
}
"""The same for all siblings; `prompt` is the task's messages, `answer` its ground truth."""

ALONE: Mapping[str, Callable[[Rollout, Trajectory], Any]] = {
    "completion": lambda _, trajectory: trajectory.turns[-1].action.content if trajectory.turns else "",
    "messages": lambda _, trajectory: trajectory.messages,
    "trajectory": lambda _, trajectory: trajectory,
    "rollout": lambda rollout, _: rollout,
    "state": lambda rollout, _: rollout.state,
    "rewards": lambda _, trajectory: trajectory.score.parts if trajectory.score else {},
}
"""Of one seat of one rollout; `completion` is the text of its last answer, `rewards` what the environment paid."""

TOGETHER: Mapping[str, Callable[[Group, Sequence[Trajectory]], Any]] = {
    "group": lambda group, _: group,
    "rollouts": lambda group, _: group.rollouts,
    "trajectories": lambda _, trajectories: list(trajectories),
    "completions": lambda group, seats: [ALONE["completion"](r, t) for r, t in zip(group.rollouts, seats, strict=True)],
}
"""Of all siblings that were scored, in their order; whoever asks for one of these returns one value per sibling."""

NAMES = frozenset({*COMMON, *ALONE, *TOGETHER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A part, and what its function wants to be called with."""

    part: Part
    names: tuple[str, ...]
    fixed: Mapping[str, Any]
    """Shared resources of its rubric."""
    together: bool
    """Whether it looks at all siblings at once."""

    def call(self, given: Mapping[str, Any]) -> Any:
        """What the function says, or an awaitable of it."""
        return self.part.function(**self.fixed, **{name: given[name] for name in self.names})


def asking(part: Part, resources: Mapping[str, Any]) -> Asking:
    """Look once at what a part's function asks for. Raises UsageError for a name that nobody can give."""
    wanted = _parameters(part.name, part.function, NAMES | resources.keys())
    names = [name for name in wanted if name in NAMES]
    together, alone = [n for n in names if n in TOGETHER], [n for n in names if n in ALONE]
    if together and alone:
        raise UsageError(
            f"the reward function {part.name!r} asks for {together[0]!r}, which is of all siblings, "
            f"and for {alone[0]!r}, which is of one: take it from {together[0]!r}"
        )
    fixed = {name: resources[name] for name in wanted if name in resources}
    return Asking(part=part, names=tuple(names), fixed=fixed, together=bool(together))


def _parameters(name: str, function: RewardFunction, known: Collection[str]) -> list[str]:
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
        if parameter.name in known:
            wanted.append(parameter.name)
        elif parameter.default is parameter.empty:
            near = get_close_matches(parameter.name, known, 3, 0.5) or sorted(known)
            told = f"the nearest names are {', '.join(near)}"
            raise UsageError(f"the reward function {name!r} asks for {parameter.name!r}, which nobody gives: {told}")
    return wanted
