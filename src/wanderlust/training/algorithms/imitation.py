"""On-policy distillation: the student plays, the teacher says how likely each of its tokens was (arXiv 2306.13649).

Imitation as credit: the policy's own best rollouts (rejection sampling), or those of a teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from wanderlust.errors import UsageError
from wanderlust.policies.local import GIVEN, LocalPolicy
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.training import losses
from wanderlust.training.algorithms.base import Lent, scored, write
from wanderlust.training.algorithms.grpo import LIVE_SPREAD
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.reference_model import Scorer
from wanderlust.types import Completion, Group, Message, Policy, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Distillation:
    """Advantage of a token = log p_teacher - log p_student: its part of the reverse KL, and no reward at all.

    A token answers for itself only (later ones are discounted to nothing), so the expected gradient is that of
    KL(student || teacher) at each place the student came to.
    """

    weight: float = 1.0
    loss: PolicyLoss = losses.IMPORTANCE
    teacher: Scorer | None = None

    def equip(self, lent: Lent) -> Self:
        """Ask the run for its teacher."""
        return replace(self, teacher=Scorer(lent.teacher(), temperature=lent.temperature))

    async def annotate(self, group: Group) -> None:
        """Write `advantages` on every scored trajectory that is trained; failed rollouts get none."""
        if self.teacher is None:
            raise UsageError("distillation needs a teacher: equip() it first")
        played = [t for seat in scored(group) for t, _ in seat if t.trainable]
        for trajectory, known in zip(played, self.teacher.logprobs(played), strict=True):
            ours = [p for turn in trajectory.turns if turn.tokens is not None for p in turn.tokens.logprobs]
            theirs = [p for turn in known for p in turn]
            write(trajectory, [self.weight * (t - o) for t, o in zip(theirs, ours, strict=True)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Imitate:
    """Cross-entropy on every sampled token of the chosen rollouts."""

    best: bool = True
    """Only the siblings with the highest reward, and none of the policy's own when all did equally well."""
    loss: PolicyLoss = losses.IMITATION

    async def annotate(self, group: Group) -> None:
        """Write `imitation` on the chosen trajectories; failed rollouts are never chosen."""
        for seat in scored(group):
            rewards = [reward for _, reward in seat]
            for trajectory, reward in seat:
                trajectory.imitation = float(self.chooses(reward, rewards))

    def chooses(self, reward: float, rewards: Sequence[float]) -> bool:
        """Whether to imitate a rollout, among its siblings."""
        apart = max(rewards) - min(rewards) > LIVE_SPREAD
        return not self.best or (apart and reward == max(rewards))


@dataclass(slots=True, kw_only=True)
class ImitateTeacher:
    """The teacher plays, the policy imitates: SFT, or with `best` off distillation of all the teacher does."""

    best: bool = True
    loss: PolicyLoss = losses.IMITATION
    model: Any = None
    _plays: LocalPolicy | None = field(default=None, init=False)

    def equip(self, lent: Lent) -> Self:
        """Ask the run for its teacher."""
        return replace(self, model=lent.teacher())

    def player(self, policy: TokenPolicy) -> Policy:
        """The teacher, drawn from as the policy would be."""
        if self.model is None:
            raise UsageError("there is no teacher: equip() it first")
        if self._plays is None:
            self._plays = LocalPolicy.of(self.model, policy.renderer.tokenizer)
        return Given(LocalPolicy(self._plays.engine, policy.renderer, policy.sampling, seed=policy.seed))

    async def annotate(self, group: Group) -> None:
        """Write `imitation` on the chosen trajectories; failed rollouts are never chosen."""
        for seat in scored(group):
            top = max((reward for _, reward in seat), default=0.0)
            for trajectory, reward in seat:
                trajectory.imitation = float(not self.best or reward == top)


class Given:
    """A policy whose answers count as somebody else's: they say nothing about how sampler and trainer agree."""

    def __init__(self, policy: TokenPolicy):
        self.policy = policy

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The policy's answer, marked."""
        return replace(await self.policy.complete(messages, tools, key=key), finish=GIVEN)

    def release(self, key: str) -> None:
        """Forget the conversation."""
        self.policy.release(key)
