"""Advantages per token: each is compared with the rollouts of its group that share the prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import ClassVar

from wanderlust.policies.base import NOT_SAMPLED
from wanderlust.training import losses
from wanderlust.training.algorithms.base import scored_by_seat, set_token_advantages
from wanderlust.training.losses import PolicyLoss
from wanderlust.types import Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixTree:
    """Baseline of a token = mean reward of the group's rollouts whose sequence was the same up to it.

    Siblings share the environment's draws, so equal sequences stand in equal situations: the mean is an estimate
    of what that situation is worth, as in VinePPO (arXiv 2410.01679) and GiGPO (arXiv 2505.10978), at no further
    cost. Where fewer than `siblings` are left there is nothing to compare with, and the rest of the branch gets no
    credit. Advantages are divided by the group's standard deviation + `floor`.

    Siblings whose first answer was an explorer's are in no baseline. Their given tokens are credited when they beat all
    the others and left alone when they do not: a failed suggestion says nothing about what the policy should do
    instead (self-imitation, arXiv 1806.05635).
    """

    compares_rollouts: ClassVar[bool] = True
    credits_explorers: ClassVar[bool] = True
    siblings: int = 3
    floor: float = 0.1
    loss: PolicyLoss = losses.CISPO_LOSS

    async def assign_advantages(self, group: Group) -> None:
        """Write `advantages` and their mean on every scored trajectory, seat by seat; failed rollouts get none."""
        for seat in scored_by_seat(group):
            scored, rewards = [trajectory for trajectory, _ in seat], [reward for _, reward in seat]
            scale = 1 / (stdev(rewards) + self.floor) if len(rewards) > 1 else 0.0
            explorers = [i for i, t in enumerate(scored) if t.turns and t.turns[0].finish == NOT_SAMPLED]
            own = [i for i in range(len(scored)) if i not in explorers]
            credit = self._by_prefix([_path(t) for t in scored], rewards, own)
            for i in explorers:
                baseline = max((rewards[j] for j in own), default=rewards[i])
                first = scored[i].turns[0].tokens
                for place in range(len(first.completion) if first is not None else 0):
                    credit[i][place] = max(rewards[i] - baseline, 0.0)
            for trajectory, values in zip(scored, credit, strict=True):
                set_token_advantages(trajectory, [scale * value for value in values])

    def _by_prefix(
        self, paths: Sequence[Sequence[tuple[int, ...]]], rewards: Sequence[float], own: Sequence[int]
    ) -> list[list[float]]:
        credit = [[0.0] * len(path) for path in paths]
        stack = [(list(own), 0)]
        while stack:
            together, depth = stack.pop()
            if len(together) < self.siblings:
                continue
            worth = fmean(rewards[i] for i in together)
            apart: dict[tuple[int, ...], list[int]] = {}
            for i in together:
                if depth < len(paths[i]):
                    credit[i][depth] = rewards[i] - worth
                    apart.setdefault(paths[i][depth], []).append(i)
            stack += [(siblings, depth + 1) for siblings in apart.values()]
        return credit


def _path(trajectory: Trajectory) -> list[tuple[int, ...]]:
    """The sampled tokens in order; the last one of a turn carries what was read next, and which turn that continues."""
    path: list[tuple[int, ...]] = []
    for number, turn in enumerate(trajectory.turns):
        if turn.tokens is None:
            continue
        if path:
            parent = trajectory.parent(number)
            path[-1] += (-1 if parent is None else parent, turn.tokens.offset, *turn.tokens.prompt)
        path += [(token,) for token in turn.tokens.completion]
    return path
