"""On-policy distillation: the student plays, the teacher says how likely each of its tokens was (arXiv 2306.13649).

Imitation as credit: the policy's own best rollouts (rejection sampling), or those of a teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from wanderlust.errors import UsageError
from wanderlust.policies.base import NOT_SAMPLED
from wanderlust.policies.local import LocalPolicy
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.training import losses
from wanderlust.training.algorithms.base import AlgorithmContext, scored_by_seat, set_token_advantages
from wanderlust.training.algorithms.grpo import MIN_REWARD_RANGE
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.models import Scorer
from wanderlust.types import Completion, Group, Message, Policy, Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Distillation:
    """Advantage of a token = log p_teacher - log p_student: its part of the reverse KL, and no reward at all.

    A token answers for itself only (later ones are discounted to nothing), so the expected gradient is that of
    KL(student || teacher) at each place the student came to.
    """

    weight: float = 1.0
    loss: PolicyLoss = losses.IMPORTANCE_LOSS
    teacher: Scorer | None = None

    def bind(self, context: AlgorithmContext) -> Self:
        """Ask the run for its teacher."""
        return replace(self, teacher=Scorer(context.load_teacher(), temperature=context.temperature))

    async def assign_advantages(self, group: Group) -> None:
        """Write `advantages` on every scored trajectory that is trained; failed rollouts get none."""
        if self.teacher is None:
            raise UsageError("distillation needs a teacher: call bind() first")
        played = [t for seat in scored_by_seat(group) for t, _ in seat if t.trainable]
        for trajectory, teacher_logprobs in zip(played, self.teacher.logprobs(played), strict=True):
            ours = [p for turn in trajectory.turns if turn.tokens is not None for p in turn.tokens.logprobs]
            theirs = [p for turn in teacher_logprobs for p in turn]
            set_token_advantages(trajectory, [self.weight * (t - o) for t, o in zip(theirs, ours, strict=True)])


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfNImitation:
    """Cross-entropy on every sampled token of the chosen rollouts."""

    best: bool = True
    """Only the siblings with the highest reward, and none of the policy's own when all did equally well."""
    loss: PolicyLoss = losses.IMITATION_LOSS

    async def assign_advantages(self, group: Group) -> None:
        """Write `sft_weight` on the chosen trajectories; failed rollouts are never chosen."""
        for seat in scored_by_seat(group):
            rewards = [reward for _, reward in seat]
            for trajectory, reward in seat:
                trajectory.sft_weight = float(self.selects(reward, rewards))

    def selects(self, reward: float, rewards: Sequence[float]) -> bool:
        """Whether to imitate this rollout of the group."""
        apart = max(rewards) - min(rewards) > MIN_REWARD_RANGE
        return not self.best or (apart and reward == max(rewards))


@dataclass(slots=True, kw_only=True)
class TeacherImitation:
    """The teacher plays, the policy imitates: SFT, or with `best` off distillation of all the teacher does."""

    best: bool = True
    loss: PolicyLoss = losses.IMITATION_LOSS
    model: Any = None
    _teacher_policy: LocalPolicy | None = field(default=None, init=False)

    def bind(self, context: AlgorithmContext) -> Self:
        """Ask the run for its teacher."""
        return replace(self, model=context.load_teacher())

    def rollout_policy(self, policy: TokenPolicy) -> Policy:
        """The teacher, drawn from as the policy would be."""
        if self.model is None:
            raise UsageError("there is no teacher: call bind() first")
        if self._teacher_policy is None:
            self._teacher_policy = LocalPolicy.of(self.model, policy.renderer.tokenizer)
        return NotSampledPolicy(
            LocalPolicy(self._teacher_policy.engine, policy.renderer, policy.sampling, seed=policy.seed)
        )

    async def assign_advantages(self, group: Group) -> None:
        """Write `sft_weight` on the chosen trajectories; failed rollouts are never chosen."""
        for seat in scored_by_seat(group):
            top = max((reward for _, reward in seat), default=0.0)
            for trajectory, reward in seat:
                trajectory.sft_weight = float(not self.best or reward == top)


class NotSampledPolicy:
    """A policy whose answers count as somebody else's: they say nothing about how sampler and trainer agree."""

    def __init__(self, policy: TokenPolicy):
        self.policy = policy

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The policy's answer, marked."""
        return replace(await self.policy.complete(messages, tools, key=key), finish=NOT_SAMPLED)

    def release(self, key: str) -> None:
        """Forget the conversation."""
        self.policy.release(key)
