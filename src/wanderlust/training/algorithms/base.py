"""Interfaces of algorithms: what all have, and what one may have besides; trainers ask for these, never for a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from wanderlust.types import Group, Policy, Trajectory

if TYPE_CHECKING:  # these need PyTorch, which configurations do without
    from wanderlust.policies.token_policy import TokenPolicy
    from wanderlust.training.losses import PolicyLoss


class Algorithm(Protocol):
    """Annotates a Group with credit."""

    @property
    def loss(self) -> PolicyLoss:
        """The loss that goes with the credit."""
        ...

    async def assign_advantages(self, group: Group) -> None:
        """Write advantages, or weights of imitation, on the group's trajectories."""
        ...


@runtime_checkable
class SupportsBatchAdvantages(Protocol):
    """Credit that needs all groups of a step together."""

    async def assign_batch_advantages(self, groups: Sequence[Group]) -> None:
        """Called once a step, by the one process that owns the weights, after `assign_advantages` of every group."""
        ...


@runtime_checkable
class SupportsState(Protocol):
    """Has state from step to step: a critic, baselines. Only `assign_batch_advantages` may change it."""

    def state(self) -> dict[str, Any]:
        """Tensors and plain data that `restore` takes back."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmContext:
    """Models and sampling options that a run gives to its algorithm."""

    max_tokens: int
    """Bound of one answer."""
    temperature: float
    load_initial_model: Callable[[], Any]
    """A copy of the model as it was when training began."""
    load_teacher: Callable[[], Any]
    """A stronger model with the same tokenizer. UsageError when the run has none."""


@runtime_checkable
class NeedsContext(Protocol):
    """Needs something of the run."""

    def bind(self, context: AlgorithmContext) -> Self:
        """The algorithm ready for one run; called once per process, before anything else."""
        ...


@runtime_checkable
class HasRolloutPolicy(Protocol):
    """An algorithm that learns from rollouts of another policy."""

    def rollout_policy(self, policy: TokenPolicy) -> Policy:
        """The policy that plays the training rollouts in place of the learner."""
        ...


@runtime_checkable
class DynamicSampling(Protocol):
    """Has groups that teach nothing replaced by others."""

    max_refills: int
    """How many times at most a step plays as many new groups as were no use; 0 is never."""

    def keep(self, group: Group) -> bool:
        """Whether a credited group is of use."""
        ...


def scored_by_seat(group: Group) -> list[list[tuple[Trajectory, float]]]:
    """The scored trajectories with their rewards, seat by seat; failed rollouts are left out."""
    seats = dict.fromkeys(t.seat for r in group.rollouts for t in r.trajectories)
    return [
        [(t, t.score.reward) for r in group.rollouts for t in r.trajectories if t.seat == seat and t.score is not None]
        for seat in seats
    ]


def tokens_per_turn(trajectory: Trajectory) -> list[int]:
    """Sampled tokens of each turn."""
    return [len(turn.tokens.completion) if turn.tokens is not None else 0 for turn in trajectory.turns]


def split_by_turn(trajectory: Trajectory, values: Sequence[float]) -> list[list[float]]:
    """One value per sampled token, in the order of the turns, as a list per turn. ValueError for another number."""
    counts, rest = tokens_per_turn(trajectory), iter(values)
    if sum(counts) != len(values):
        raise ValueError(f"{len(values)} values for {sum(counts)} sampled tokens")
    return [[next(rest) for _ in range(count)] for count in counts]


def set_token_advantages(trajectory: Trajectory, values: Sequence[float]) -> None:
    """One advantage per sampled token, in the order of the turns; the trajectory's own is their mean."""
    trajectory.advantages = split_by_turn(trajectory, values)
    trajectory.advantage = sum(values) / len(values) if values else 0.0


def least_group_size(algorithm: Algorithm) -> int:
    """2 where credit is a comparison of a task's rollouts, so that a group of one teaches nothing; else 1.

    An algorithm says so by `compares_rollouts`, or by its `advantage`, which is then 0 for a single reward.
    """
    advantage = getattr(algorithm, "advantage", None)
    try:
        compares = advantage is not None and not any(advantage([1.0]))
    except ValueError:
        compares = True
    return 2 if compares or getattr(algorithm, "compares_rollouts", False) else 1
