"""DPO: the best and the worst rollout of a group as a pair (arXiv 2305.18290), fresh from the policy in each step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp
from typing import ClassVar, Self

from wanderlust.errors import UsageError
from wanderlust.training import losses
from wanderlust.training.algorithms.base import AlgorithmContext, scored_by_seat
from wanderlust.training.algorithms.grpo import MIN_REWARD_RANGE
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.models import Scorer
from wanderlust.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """-log sigmoid(beta x [(log p/ref) of the winner - (log p/ref) of the loser]), averaged over pairs.

    Its gradient is that of a score-function loss whose advantages are +-beta x sigmoid(-margin) on every token: so
    it is written as credit. It is exact for one update a batch, whose policy is the sampler; log-probabilities of the
    reference are scored on the sampled ids.
    """

    compares_rollouts: ClassVar[bool] = True
    credits_pairs: ClassVar[bool] = True
    """The parts of a step would have one of a pair each, and a margin that is not theirs."""
    beta: float = 0.1
    loss: PolicyLoss = losses.DPO_LOSS
    reference: Scorer | None = None

    def bind(self, context: AlgorithmContext) -> Self:
        """The reference is the model as it was."""
        return replace(self, reference=Scorer(context.load_initial_model(), temperature=context.temperature))

    async def assign_advantages(self, group: Group) -> None:
        """Credit one pair a seat; all others have no part in the update, nor has a seat whose rewards agree."""
        for seat in scored_by_seat(group):
            for trajectory, _ in seat:
                trajectory.advantage = None
            ranked = sorted((pair for pair in seat if pair[0].turns), key=lambda pair: pair[1])
            if len(ranked) > 1 and ranked[-1][1] - ranked[0][1] > MIN_REWARD_RANGE:
                won, lost = ranked[-1][0], ranked[0][0]
                if self.reference is None:
                    raise UsageError("DPO needs a reference: call bind() first")
                reference_logprobs = self.reference.logprobs([won, lost])
                theirs = [sum(map(sum, turns)) for turns in reference_logprobs]
                ours = [
                    sum(sum(turn.tokens.logprobs) for turn in t.turns if turn.tokens is not None) for t in (won, lost)
                ]
                margin = self.beta * ((ours[0] - theirs[0]) - (ours[1] - theirs[1]))
                # 2: the loss is averaged over the sequences of a pair
                pull = 2 * self.beta / (1 + exp(min(margin, 700.0)))
                won.advantage, lost.advantage = pull, -pull
