"""Policy losses as pure functions: ratio x weighting x mask x normaliser, chosen separately.

Bounds are absolute values of the ratio p_new / p_old, because trainers disagree on what a clip parameter means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Clip = Literal["none", "score", "pessimistic", "capped", "dropped"]
Normaliser = Literal["tokens", "sequences", "constant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """How sampled tokens become a loss."""

    clip: Clip = "capped"
    """What the ratio does: see `token_losses`."""
    ratio_min: float = 0.0
    ratio_max: float = 5.0
    normaliser: Normaliser = "tokens"
    """Divide the sum by the trained tokens of the whole batch, average each sequence first and then the
    sequences, or divide by sequences x `constant`."""
    constant: int = 1
    """Tokens per sequence for the normaliser `constant`."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""


def token_losses(logprobs: Tensor, old: Tensor, advantages: Tensor, *, loss: PolicyLoss) -> tuple[Tensor, Tensor]:
    """Loss and ratio per token; all tensors [N], `old` are the sampler's log-probabilities.

    - `score`: -A log p, REINFORCE; with A = 1 the imitation loss
    - `none`: -r A, importance sampling
    - `pessimistic`: -min(r A, clip(r) A), PPO and GRPO (arXiv 1707.06347, 2402.03300); asymmetric bounds: DAPO
    - `capped`: -sg(clip(r)) A log p, CISPO (arXiv 2506.13585): no token is ever dropped
    - `dropped`: -r A where r lies within the bounds, nothing elsewhere: masked importance sampling
    """
    ratio = (logprobs - old).exp()
    clipped = ratio.clamp(loss.ratio_min, loss.ratio_max)
    if loss.clip == "score":
        value = advantages * logprobs
    elif loss.clip == "none":
        value = advantages * ratio
    elif loss.clip == "pessimistic":
        value = torch.minimum(ratio * advantages, clipped * advantages)
    elif loss.clip == "capped":
        value = clipped.detach() * advantages * logprobs
    else:
        value = torch.where(ratio == clipped, ratio * advantages, 0.0)
    return -value, ratio.detach()


REINFORCE = PolicyLoss(clip="score")
IMITATION = PolicyLoss(clip="score")
IMPORTANCE = PolicyLoss(clip="none")
PPO = PolicyLoss(clip="pessimistic", ratio_min=0.8, ratio_max=1.2)
GRPO = PolicyLoss(clip="pessimistic", ratio_min=0.8, ratio_max=1.2, normaliser="sequences")
DR_GRPO = PolicyLoss(clip="pessimistic", ratio_min=0.8, ratio_max=1.2, normaliser="constant", constant=1024)
DAPO = PolicyLoss(clip="pessimistic", ratio_min=0.8, ratio_max=1.28)
CISPO = PolicyLoss(clip="capped", ratio_min=0.0, ratio_max=5.0)
MASKED = PolicyLoss(clip="dropped", ratio_min=0.125, ratio_max=8.0)
