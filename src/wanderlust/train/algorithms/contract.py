"""What an algorithm is, and what it may be besides: the trainer asks for abilities and never for a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from wanderlust.core.contracts import Policy
from wanderlust.core.types import Group, Trajectory
from wanderlust.policies.tokens import TokenPolicy
from wanderlust.train.losses import PolicyLoss


class Algorithm(Protocol):
    """Annotates a Group with credit."""

    @property
    def loss(self) -> PolicyLoss:
        """The loss that goes with the credit."""
        ...

    async def annotate(self, group: Group) -> None:
        """Write advantages, or weights of imitation, on the group's trajectories."""
        ...


@runtime_checkable
class Batchwise(Protocol):
    """Credit that needs all groups of a step together."""

    async def annotate_batch(self, groups: Sequence[Group]) -> None:
        """Called once a step, by the one process that owns the weights, after `annotate` of every group."""
        ...


@runtime_checkable
class Stateful(Protocol):
    """Remembers something from step to step: a critic, baselines. Only where it is Batchwise may that change."""

    def state(self) -> dict[str, Any]:
        """Tensors and plain data that `restore` takes back."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """What a run lends to an algorithm that asks."""

    max_tokens: int
    """Bound of one answer."""
    temperature: float
    start: Callable[[], Any]
    """A copy of the model as it was when training began."""
    teacher: Callable[[], Any]
    """A stronger model with the same tokenizer. UsageError when the run has none."""


@runtime_checkable
class Equipped(Protocol):
    """Needs something of the run."""

    def equip(self, lent: Lent) -> Self:
        """The algorithm ready for one run; called once per process, before anything else."""
        ...


@runtime_checkable
class Played(Protocol):
    """Learns from what somebody else plays."""

    def player(self, policy: TokenPolicy) -> Policy:
        """Who plays the training rollouts in place of the policy."""
        ...


@runtime_checkable
class Selecting(Protocol):
    """Has groups that teach nothing replaced by others."""

    refills: int
    """How many times at most a step plays as many new groups as were no use; 0 is never."""

    def keeps(self, group: Group) -> bool:
        """Whether a credited group is of use."""
        ...


def scored(group: Group) -> list[list[tuple[Trajectory, float]]]:
    """The scored trajectories with their rewards, seat by seat; failed rollouts are left out."""
    seats = dict.fromkeys(t.seat for r in group.rollouts for t in r.trajectories)
    return [
        [(t, t.score.reward) for r in group.rollouts for t in r.trajectories if t.seat == seat and t.score is not None]
        for seat in seats
    ]


def counts(trajectory: Trajectory) -> list[int]:
    """Sampled tokens of each turn."""
    return [len(turn.tokens.completion) if turn.tokens is not None else 0 for turn in trajectory.turns]


def write(trajectory: Trajectory, values: Sequence[float]) -> None:
    """One advantage per sampled token, in order; the trajectory's own is their mean."""
    rest = iter(values)
    trajectory.advantages = [[next(rest) for _ in range(count)] for count in counts(trajectory)]
    trajectory.advantage = sum(values) / len(values) if values else 0.0
