"""Losses as pure functions: ratio x weighting x mask x normaliser, chosen separately.

Bounds are absolute values of the ratio p_new / p_old, because trainers disagree on what a clip parameter means.

Log-probabilities of single tokens and the entropy where they stand, with a gradient that makes few passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from wanderlust.errors import UsageError

Clip = Literal["unclipped", "reinforce", "ppo", "cispo", "masked", "preference"]
RatioLevel = Literal["token", "sequence", "mean"]
Normaliser = Literal["tokens", "sequences", "constant"]
KLEstimator: TypeAlias = Literal["k1", "k2", "k3"]
MAX_KL_ERROR, KL_ADAPTATION = 0.2, 0.1
"""Bound of the relative error of a KL divergence that one step corrects, and the share of it that is corrected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Correction for a sampler that is not the policy being updated: an older version, another engine.

    Tokens are multiplied by w = p_update / p_sampler (no gradient), where p_update is the trainer's own probability
    before the update; the clip then sees p_new / p_update. `truncated`: w clamped to the bounds (TIS); `masked`: w
    within the bounds, 0 elsewhere (MIS).
    """

    kind: Literal["truncated", "masked"] = "truncated"
    ratio_min: float = 0.0
    ratio_max: float = 2.0
    level: RatioLevel = "token"


@dataclass(frozen=True, slots=True, kw_only=True)
class KL:
    """A leash to a reference: weight x an estimate of KL(policy || reference) per token (Schulman 2020).

    With x = log p - log p_reference: `k1` x; `k2` x^2 / 2; `k3` e^-x - 1 + x. Into the `loss`, over its own count of
    tokens, or into the `reward`, where the estimate is made from the sampler's log-probabilities.
    """

    weight: float
    estimator: KLEstimator = "k3"
    into: Literal["loss", "reward"] = "loss"
    target: float = 0.0
    """Divergence per token to which the weight is adapted after each step; 0: it stays."""

    def adapted(self, divergence: float) -> KL:
        """The same with a weight nearer to the target (Ziegler et al. 2019), after a step with this one."""
        error = min(max(divergence / self.target - 1, -MAX_KL_ERROR), MAX_KL_ERROR)
        return replace(self, weight=self.weight * (1 + KL_ADAPTATION * error))

    def __post_init__(self) -> None:
        if self.target and self.into == "reward":
            raise UsageError("a target adapts the weight of a KL divergence in the loss: set kl_into to loss")
        if self.into == "loss" and self.estimator == "k1":
            raise UsageError("k1 as a loss has no gradient on average: take k2 or k3, or put it into the reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """Policy loss over sampled tokens."""

    clip: Clip = "cispo"
    """Treatment of the probability ratio: see `token_losses`."""
    ratio_min: float = 0.0
    ratio_max: float = 5.0
    ratio_dual: float = 0.0
    """Dual clip (arXiv 1912.09729): a ratio above it no longer counts against a token; 0 is off. `ppo` only."""
    level: RatioLevel = "token"
    """Whose ratio: each token's own, the sequence's (product), or the sequence's geometric mean."""
    correction: Correction | None = None
    normaliser: Normaliser = "tokens"
    """Divide the sum by the trained tokens of the whole batch, average each sequence first and then the
    sequences, or divide by sequences x `constant`."""
    constant: int = 1
    """Tokens per sequence for the normaliser `constant`."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    kl: KL | None = None
    beta: float = 0.1
    """Weight of the margin between winner and loser; `preference` only."""
    measures_entropy: bool = True
    """Whether the entropy is computed where no bonus asks for it, for the metrics; it costs passes over the logits."""


def token_losses(
    logprobs: Tensor,
    sampler_logprobs: Tensor,
    advantages: Tensor,
    *,
    loss: PolicyLoss,
    rows: Tensor | None = None,
    proximal_logprobs: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Loss and ratio per token; all tensors [N], `sampler_logprobs` are the sampler's log-probabilities.

    - `reinforce`: -A log p, REINFORCE; with A = 1 the imitation loss
    - `unclipped`: -r A, importance sampling
    - `ppo`: -min(r A, clip(r) A), PPO and GRPO (arXiv 1707.06347, 2402.03300); asymmetric bounds: DAPO
    - `cispo`: -sg(clip(r)) A log p, CISPO (arXiv 2506.13585): no token is ever dropped
    - `masked`: -r A where r lies within the bounds, nothing elsewhere: masked importance sampling
    - `preference`: -log sigmoid(beta x sum of A log(p / p_sampler)) of each row, spread over its tokens: DPO on stored
      pairs (arXiv 2305.18290), where A is 1 for the winner and -1 for the loser, and the reference takes the sampler's
      place

    `rows` numbers each token's sequence (None: all are one). `proximal_logprobs` are the trainer's log-probabilities
    before the update, which only a correction asks for (None: those of now, as in a batch's first update).
    """
    start = (
        sampler_logprobs
        if loss.correction is None
        else logprobs.detach()
        if proximal_logprobs is None
        else proximal_logprobs
    )
    ratio = _over(logprobs - start, rows, loss.level).exp()
    clipped = ratio.clamp(loss.ratio_min, loss.ratio_max)
    if loss.clip == "reinforce":
        value = advantages * logprobs
    elif loss.clip == "unclipped":
        value = advantages * ratio
    elif loss.clip == "ppo":
        value = torch.minimum(ratio * advantages, clipped * advantages)
        if loss.ratio_dual:
            value = torch.where(advantages < 0, torch.maximum(value, loss.ratio_dual * advantages), value)
    elif loss.clip == "cispo":
        value = clipped.detach() * advantages * logprobs
    elif loss.clip == "preference":
        margins, tokens = pair_margins(logprobs - sampler_logprobs, advantages, rows, beta=loss.beta)
        value = functional.logsigmoid(margins) / tokens
    else:
        value = torch.where(ratio == clipped, ratio * advantages, 0.0)
    if loss.correction is not None:
        value = value * correction_weights(
            _over(start - sampler_logprobs, rows, loss.correction.level), loss.correction
        )
    return -value, ratio.detach()


def with_importance_correction(loss: PolicyLoss) -> PolicyLoss:
    """What is minimised where sampler and trainer round differently: the same, with TIS where nothing makes up for it.

    A pessimistic clip would take the rounding for a step of the policy. The others weigh by p_new / p_sampler and
    bound it, which is a correction already, or do not ask what the sampler thought (`reinforce`).
    """
    return replace(loss, correction=TIS) if loss.clip == "ppo" and loss.correction is None else loss


def correction_weights(difference: Tensor, correction: Correction) -> Tensor:
    """Importance weights of the tokens, [N], from log p_update - log p_sampler."""
    ratio = difference.detach().exp()
    clipped = ratio.clamp(correction.ratio_min, correction.ratio_max)
    return clipped if correction.kind == "truncated" else torch.where(ratio == clipped, ratio, 0.0)


def kl_estimate(logprobs: Tensor, reference: Tensor, estimator: KLEstimator) -> Tensor:
    """Estimate of KL(policy || reference) at each sampled token, [N]."""
    x = logprobs - reference
    if estimator == "k1":
        return x
    return x.square() / 2 if estimator == "k2" else (-x).exp() - 1 + x


def pair_margins(difference: Tensor, signs: Tensor, rows: Tensor | None, *, beta: float) -> tuple[Tensor, Tensor]:
    """Of every token's pair: beta x (sum over the winner less sum over the loser), and its number of tokens, [N]."""
    rows = torch.zeros(len(difference), dtype=torch.long) if rows is None else rows
    rows = rows.to(difference.device)
    return beta * _over(signs * difference, rows, "sequence"), rows.bincount()[rows]


def _over(difference: Tensor, rows: Tensor | None, level: RatioLevel) -> Tensor:
    """The log-ratio of each token at a level."""
    if level == "token":
        return difference
    rows = torch.zeros(len(difference), dtype=torch.long) if rows is None else rows
    rows = rows.to(difference.device)
    count = int(rows.max()) + 1 if len(rows) else 0
    sums = torch.zeros(count, dtype=difference.dtype, device=difference.device).index_add(0, rows, difference)
    return (sums / rows.bincount() if level == "mean" else sums)[rows]


REINFORCE_LOSS = PolicyLoss(clip="reinforce")
IMITATION_LOSS = PolicyLoss(clip="reinforce")
IMPORTANCE_LOSS = PolicyLoss(clip="unclipped")
PPO_LOSS = PolicyLoss(clip="ppo", ratio_min=0.8, ratio_max=1.2)
GRPO_LOSS = PolicyLoss(clip="ppo", ratio_min=0.8, ratio_max=1.2, normaliser="sequences")
DR_GRPO_LOSS = PolicyLoss(clip="ppo", ratio_min=0.8, ratio_max=1.2, normaliser="constant", constant=1024)
DAPO_LOSS = PolicyLoss(clip="ppo", ratio_min=0.8, ratio_max=1.28)
CISPO_LOSS = PolicyLoss(clip="cispo", ratio_min=0.0, ratio_max=5.0)
GSPO_LOSS = PolicyLoss(clip="ppo", ratio_min=1 - 3e-4, ratio_max=1 + 4e-4, level="mean", normaliser="sequences")
MASKED_LOSS = PolicyLoss(clip="masked", ratio_min=0.125, ratio_max=8.0)
DPO_LOSS = PolicyLoss(clip="reinforce", normaliser="constant")
SFT_LOSS = PolicyLoss(clip="reinforce", measures_entropy=False)
PREFERENCE_LOSS = PolicyLoss(clip="preference", normaliser="constant", measures_entropy=False)

TIS = Correction(kind="truncated", ratio_max=2.0)
MIS = Correction(kind="masked", ratio_min=0.125, ratio_max=8.0)


def selected_logprobs_and_entropy(
    logits: Tensor, targets: Tensor, rows: Tensor | None, *, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Of softmax(logits / temperature): the log-probability of every target [N], and the entropy of every row [U].

    `logits` are [U, V]; `rows` [N] says whose each target is (None: one target a row). Both have gradients.
    """
    out: tuple[Tensor, Tensor] = _SelectedLogprobs.apply(logits, targets, rows, temperature)  # type: ignore[no-untyped-call]
    return out


class _SelectedLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        logits, targets, rows, temperature = inputs
        wide = logits.float() if temperature == 1.0 else logits.float() / temperature
        logp = torch.log_softmax(wide, -1)
        p = logp.exp()
        entropy = -(p * logp).sum(-1)
        ctx.save_for_backward(logp, p, entropy, targets, rows)
        ctx.temperature, ctx.kind = temperature, logits.dtype
        ctx.set_materialize_grads(False)
        return (logp.gather(1, targets[:, None])[:, 0] if rows is None else logp[rows, targets]), entropy

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_logprobs: Tensor | None, grad_entropy: Tensor | None
    ) -> tuple[Tensor, None, None, None]:
        logp, p, entropy, targets, rows = ctx.saved_tensors
        if grad_logprobs is None:
            out = torch.zeros_like(p)
        elif rows is None:
            out = (p * -grad_logprobs[:, None]).scatter_add_(1, targets[:, None], grad_logprobs[:, None])
        else:
            out = p * -grad_logprobs.new_zeros(len(p)).index_add_(0, rows, grad_logprobs)[:, None]
            out.index_put_((rows, targets), grad_logprobs, accumulate=True)
        if grad_entropy is not None:
            out -= grad_entropy[:, None] * p * (logp + entropy[:, None])
        if ctx.temperature != 1.0:
            out /= ctx.temperature
        return out.to(ctx.kind), None, None, None


LOGSUMEXP_ROWS = 256
"""Rows of logits whose exponentials are in memory at once."""


def selected_logprobs(logits: Tensor, targets: Tensor, rows: Tensor | None) -> Tensor:
    """Of softmax(logits), float32 [U, V]: the log-probability of every target [N]; `rows` as above.

    The backward pass writes the gradient over the logits, so that there is one tensor of their size at any time:
    nothing else may use them.
    """
    out: Tensor = _LeanLogprobs.apply(logits, targets, rows)  # type: ignore[no-untyped-call]
    return out


class _LeanLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        logits, targets, rows = inputs
        total = torch.cat([part.logsumexp(-1) for part in logits.split(LOGSUMEXP_ROWS)])
        ctx.save_for_backward(logits, total, targets, rows)
        if rows is None:
            out: Tensor = logits.gather(1, targets[:, None])[:, 0] - total
            return out
        out = logits[rows, targets] - total[rows]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        logits, total, targets, rows = ctx.saved_tensors
        rows = torch.arange(len(logits), device=logits.device) if rows is None else rows
        shares = gradient.new_zeros(len(logits)).index_add_(0, rows, gradient)
        out: Tensor = logits.sub_(total[:, None]).exp_().mul_(-shares[:, None])
        return out.index_put_((rows, targets), gradient, accumulate=True), None, None
