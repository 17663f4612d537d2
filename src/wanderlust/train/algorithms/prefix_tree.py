"""Credit per token: what a token did, judged by the siblings that had come to the same point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev

from wanderlust.core.types import Group, Trajectory
from wanderlust.train import losses
from wanderlust.train.losses import PolicyLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixTree:
    """Baseline of a token = mean reward of the siblings whose sequence was the same up to it.

    Siblings share the environment's draws, so equal sequences stand in equal situations: the mean is an estimate
    of what that situation is worth, as in VinePPO (arXiv 2410.01679) and GiGPO (arXiv 2505.10978), at no further
    cost. Where fewer than `siblings` are left there is nothing to compare with, and the rest of the branch gets no
    credit. Advantages are divided by the group's standard deviation + `floor`.
    """

    siblings: int = 3
    floor: float = 0.1
    loss: PolicyLoss = losses.CISPO

    async def annotate(self, group: Group) -> None:
        """Write `advantages` and their mean on every scored trajectory, seat by seat; failed rollouts get none."""
        for seat in {t.seat for r in group.rollouts for t in r.trajectories}:
            scored = [t for r in group.rollouts for t in r.trajectories if t.seat == seat and t.score is not None]
            self._credit(scored)

    def _credit(self, scored: Sequence[Trajectory]) -> None:
        rewards = [t.score.reward for t in scored if t.score is not None]
        scale = 1 / (stdev(rewards) + self.floor) if len(rewards) > 1 else 0.0
        paths = [_path(t) for t in scored]
        credit = [[0.0] * len(path) for path in paths]
        stack = [(list(range(len(scored))), 0)]
        while stack:
            together, depth = stack.pop()
            if len(together) < self.siblings:
                continue
            worth = sum(rewards[i] for i in together) / len(together)
            apart: dict[tuple[int, ...], list[int]] = {}
            for i in together:
                if depth < len(paths[i]):
                    credit[i][depth] = scale * (rewards[i] - worth)
                    apart.setdefault(paths[i][depth], []).append(i)
            stack += [(siblings, depth + 1) for siblings in apart.values()]
        for trajectory, values in zip(scored, credit, strict=True):
            _write(trajectory, values)


def _path(trajectory: Trajectory) -> list[tuple[int, ...]]:
    """The sampled tokens in order; the last one of a turn carries what was read next."""
    path: list[tuple[int, ...]] = []
    for turn in trajectory.turns:
        if turn.tokens is None:
            continue
        if path:
            path[-1] += turn.tokens.prompt
        path += [(token,) for token in turn.tokens.completion]
    return path


def _write(trajectory: Trajectory, values: Sequence[float]) -> None:
    rest = iter(values)
    counts = [len(turn.tokens.completion) if turn.tokens is not None else 0 for turn in trajectory.turns]
    trajectory.advantages = [[next(rest) for _ in range(count)] for count in counts]
    trajectory.advantage = sum(values) / len(values) if values else 0.0
