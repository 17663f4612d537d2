"""Samples as the Tinker API takes them: mask, copies, share and normaliser all lie in the advantages.

A service sums -(something of the ratio) x advantage over every token of every row and divides by nothing, so that what
is not trained has the advantage 0. Target t of a row is the token after input t, so everything is shifted by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from tinker import types
from torch import Tensor

from wanderlust.core.errors import UsageError
from wanderlust.train.batch import Totals, collate, share
from wanderlust.train.losses import PolicyLoss, token_losses
from wanderlust.train.samples import Sample

OUTSIDE = 0.2
"""A token counts as moved when its ratio has left 1 by more than this."""
NAMES: dict[str, types.LossFnType] = {
    "none": "importance_sampling",
    "pessimistic": "ppo",
    "capped": "cispo",
    "score": "cross_entropy",
}
"""What the service calls the loss of a clip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One call for gradients; terms of one batch add up."""

    name: types.LossFnType
    config: Mapping[str, float] = field(default_factory=dict)
    data: list[types.Datum]
    of: list[int]
    """Which of the samples each datum is."""


def terms(samples: Sequence[Sample], loss: PolicyLoss, totals: Totals, *, averages: bool = False) -> list[Term]:
    """The policy loss and the cross-entropy, each where there is any. UsageError where a service has no such loss.

    `averages` is for services that divide every row's sum by its count of targets: the advantages make up for it. As
    they divide a cross-entropy by its weights, it is then asked for as CISPO with all ratios held at 1: the same.
    """
    refuse(samples, loss)
    credit = [_credit(s, loss, totals) for s in samples]
    imitated = [[w * s.copies / max(totals.ce, 1.0) for w in s.ce] for s in samples]
    both = [_term(NAMES[loss.clip], samples, credit, loss=loss, averages=averages)]
    both.append(_term("cross_entropy", samples, imitated, loss=loss, averages=averages))
    return [term for term in both if term.data]


def refuse(samples: Sequence[Sample], loss: PolicyLoss) -> None:
    """UsageError when the loss is more than a Tinker service can be told."""
    beyond = {
        f"the clip {loss.clip!r}": loss.clip not in NAMES,
        f"ratios of a whole sequence (level={loss.level!r})": loss.level != "token",
        "a dual clip": bool(loss.ratio_dual),
        "a correction of the sampler": loss.correction is not None,
        "an entropy bonus": bool(loss.entropy),
        "a distance to a reference in the loss": any(any(s.kl) for s in samples),
    }
    asked = [what for what, on in beyond.items() if on]
    if asked:
        can = "PolicyLoss with the clip none, pessimistic, capped or score, token by token; KL into the reward"
        raise UsageError(f"the Tinker API has no loss with {' and '.join(asked)}: take {can}")


def _credit(sample: Sample, loss: PolicyLoss, totals: Totals) -> list[float]:
    own = share(sample, loss) / max(totals.rl, 1.0)
    return [a * own if on else 0.0 for a, on in zip(sample.advantages, sample.mask, strict=True)]


def _term(
    name: types.LossFnType,
    samples: Sequence[Sample],
    weights: Sequence[Sequence[float]],
    *,
    loss: PolicyLoss,
    averages: bool,
) -> Term:
    """One datum for each sample that has a weight; `weights` stand at the sample's ids."""
    of = [n for n, row in enumerate(weights) if any(row[1:])]
    bounds = (loss.ratio_min, loss.ratio_max) if name in ("ppo", "cispo") else None
    if averages:
        weights = [[w * (len(s.ids) - 1) for w in row] for s, row in zip(samples, weights, strict=True)]
        if name == "cross_entropy":
            name, bounds = "cispo", (1.0, 1.0)
    config = {"clip_low_threshold": bounds[0], "clip_high_threshold": bounds[1]} if bounds else {}
    return Term(name=name, config=config, data=[_datum(name, samples[n], weights[n]) for n in of], of=of)


def _datum(name: types.LossFnType, sample: Sample, weights: Sequence[float]) -> types.Datum:
    shifted = [*weights[1:], *[0.0] * (len(sample.ids) - len(weights))]
    inputs = {"target_tokens": _whole(sample.ids[1:])}
    if name == "cross_entropy":
        inputs["weights"] = _real(shifted)
    else:
        inputs |= {"logprobs": _real(sample.logprobs[1:]), "advantages": _real(shifted)}
    return types.Datum(model_input=types.ModelInput.from_ints(sample.ids[:-1]), loss_fn_inputs=inputs)


def _whole(values: Sequence[int]) -> types.TensorData:
    return types.TensorData(data=list(values), dtype="int64", shape=[len(values)])


def _real(values: Sequence[float]) -> types.TensorData:
    return types.TensorData(data=list(values), dtype="float32", shape=[len(values)])


def figures(samples: Sequence[Sample], loss: PolicyLoss, logprobs: Sequence[Sequence[float]]) -> dict[str, float]:
    """Means over the trained tokens, as the trainers of this library give them; the entropy is not known.

    `logprobs` are those of the service: one per target of each sample.
    """
    batch = collate(samples, loss)
    new = torch.tensor([row[i - 1] for s, row in zip(samples, logprobs, strict=True) for i in s.trained])
    losses, _ = token_losses(new, batch.old, batch.advantages, loss=loss, rows=batch.rows)
    difference = torch.where(batch.sampled, new - batch.old, 0.0)
    ratio = difference.exp()
    out = {
        "loss": _mean(losses, batch.copies),
        "ratio_moved": _mean(((ratio - 1).abs() > OUTSIDE).to(losses), batch.copies),
        "logprob_gap": _mean(ratio - 1 - difference, batch.copies),
        "logprob_gap_k1": -_mean(difference, batch.copies),
        "logprob_gap_max": float(difference.abs().max()),
    }
    if batch.besides is not None and any(any(s.ce) for s in samples):
        out["ce"] = float(-(new * batch.besides.ce).sum()) / max(Totals.of(samples, loss).ce, 1.0)
    return out


def _mean(values: Tensor, copies: Tensor) -> float:
    return float((values * copies).sum() / copies.sum())
