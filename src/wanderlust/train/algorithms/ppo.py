"""PPO with a critic: what a token did beyond what was expected, by generalized advantage estimation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev
from typing import Any, Self

from wanderlust.core.errors import UsageError
from wanderlust.core.types import Group, Trajectory
from wanderlust.train import losses
from wanderlust.train.algorithms.contract import Lent, counts, scored, write
from wanderlust.train.algorithms.per_turn import turn_rewards
from wanderlust.train.critic import Critic
from wanderlust.train.losses import PolicyLoss
from wanderlust.train.samples import to_samples

FLOOR = 1e-8


def gae(rewards: Sequence[float], values: Sequence[float], *, discount: float, trace: float) -> list[float]:
    """A_t = d_t + discount x trace x A_{t+1}, d_t = r_t + discount x V_{t+1} - V_t; after the end all are 0."""
    out, ahead, value = [0.0] * len(rewards), 0.0, 0.0
    for t in reversed(range(len(rewards))):
        ahead = rewards[t] + discount * value - values[t] + discount * trace * ahead
        out[t], value = ahead, values[t]
    return out


@dataclass(slots=True, kw_only=True)
class PPO:
    """Advantages per token over the whole episode, whitened over the batch (arXiv 1707.06347, 1506.02438).

    A turn's reward is earned by its last token, so what the environment pays on the way counts. The critic learns
    from the same batch, after it was asked.
    """

    discount: float = 1.0
    trace: float = 0.95
    lr: float = 1e-3
    """Learning rate of the critic."""
    loss: PolicyLoss = losses.PPO
    lent: Lent | None = None
    _critic: Critic | None = field(default=None, init=False)

    def equip(self, lent: Lent) -> Self:
        """The critic begins as the model did."""
        return replace(self, lent=lent)

    def critic(self) -> Critic:
        """The critic of this run. UsageError before `equip`."""
        if self._critic is None:
            if self.lent is None:
                raise UsageError("PPO needs a model for its critic: equip() it first")
            self._critic = Critic(self.lent.start().float(), lr=self.lr)
        return self._critic

    async def annotate(self, group: Group) -> None:
        """Nothing: one group is not enough to whiten."""

    async def annotate_batch(self, groups: Sequence[Group]) -> None:
        """Write `advantages` on every scored trajectory that is trained, then let the critic learn."""
        known = [(t, reward) for g in groups for seat in scored(g) for t, reward in seat if t.trainable]
        rows = [to_samples(t) for t, _ in known]
        samples = [sample for row in rows for sample in row]
        asked = self.critic().values(samples)
        read = iter(asked)
        values = [[v for _ in row for v in next(read)] for row in rows]
        credit = [
            gae(_at_last_tokens(t, reward), value, discount=self.discount, trace=self.trace)
            for (t, reward), value in zip(known, values, strict=True)
        ]
        aims = iter([a + v for row in zip(credit, values, strict=True) for a, v in zip(*row, strict=True)])
        flat = [a for row in credit for a in row]
        mean, spread = (fmean(flat), pstdev(flat)) if flat else (0.0, 0.0)
        for (trajectory, _), row in zip(known, credit, strict=True):
            write(trajectory, [(a - mean) / (spread + FLOOR) for a in row])
        self.critic().fit(samples, [[next(aims) for _ in v] for v in asked], asked)

    def state(self) -> dict[str, Any]:
        """The critic's; empty before it was asked."""
        return self._critic.state() if self._critic is not None else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with a saved critic."""
        if state:
            self.critic().restore(state)


def _at_last_tokens(trajectory: Trajectory, reward: float) -> list[float]:
    out: list[float] = []
    waiting = 0.0
    for earned, count in zip(turn_rewards(trajectory, reward), counts(trajectory), strict=True):
        waiting += earned
        if count:
            out += [*[0.0] * (count - 1), waiting]
            waiting = 0.0
    if out:
        out[-1] += waiting
    return out
