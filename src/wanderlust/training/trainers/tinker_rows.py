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

from wanderlust.errors import UsageError
from wanderlust.training.batch.collate import BatchTotals, collate, token_weight
from wanderlust.training.batch.samples import Sample
from wanderlust.training.losses import PolicyLoss, token_losses

SERVICE_CLIP_TOLERANCE = 0.2
"""A token counts as moved when its ratio has left 1 by more than this."""
SERVICE_LOSS_NAMES: dict[str, types.LossFnType] = {
    "unclipped": "importance_sampling",
    "ppo": "ppo",
    "cispo": "cispo",
    "reinforce": "cross_entropy",
}
"""The service's name of the loss of each clip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCall:
    """One call for gradients; terms of one batch add up."""

    name: types.LossFnType
    config: Mapping[str, float] = field(default_factory=dict)
    data: list[types.Datum]
    sample_indices: list[int]
    """Which of the samples each datum is."""


def gradient_calls(
    samples: Sequence[Sample], loss: PolicyLoss, totals: BatchTotals, *, averages: bool = False
) -> list[GradientCall]:
    """The policy loss and the cross-entropy, each where there is any. UsageError where a service has no such loss.

    `averages` is for services that divide every row's sum by its count of targets: the advantages make up for it. As
    they divide a cross-entropy by its weights, it is then asked for as CISPO with all ratios held at 1: the same.
    """
    check_supported(samples, loss)
    credit = []
    for sample in samples:
        own = token_weight(sample, loss) / max(totals.rl, 1.0)
        credit.append([a * own if on else 0.0 for a, on in zip(sample.advantages, sample.mask, strict=True)])
    imitated = [[w * s.copies / max(totals.ce, 1.0) for w in s.ce] for s in samples]
    both = [_term(SERVICE_LOSS_NAMES[loss.clip], samples, credit, loss=loss, averages=averages)]
    both.append(_term("cross_entropy", samples, imitated, loss=loss, averages=averages))
    return [term for term in both if term.data]


def check_supported(samples: Sequence[Sample], loss: PolicyLoss) -> None:
    """UsageError when the loss is more than a Tinker service can be told."""
    beyond = {
        f"the clip {loss.clip!r}": loss.clip not in SERVICE_LOSS_NAMES,
        f"ratios of a whole sequence (level={loss.level!r})": loss.level != "token",
        "a dual clip": bool(loss.ratio_dual),
        "a correction of the sampler": loss.correction is not None,
        "an entropy bonus": bool(loss.entropy),
        "a distance to a reference in the loss": (loss.kl is not None and loss.kl.into == "loss")
        or any(any(s.kl) for s in samples),
    }
    unsupported = [what for what, on in beyond.items() if on]
    if unsupported:
        clips = ", ".join(SERVICE_LOSS_NAMES)
        raise UsageError(
            f"the Tinker API has no loss with {' and '.join(unsupported)}: take a PolicyLoss whose clip is one of "
            f"{clips}, token by token; KL into the reward"
        )


def _term(
    name: types.LossFnType,
    samples: Sequence[Sample],
    weights: Sequence[Sequence[float]],
    *,
    loss: PolicyLoss,
    averages: bool,
) -> GradientCall:
    """One datum for each sample that has a weight; `weights` stand at the sample's ids."""
    of = [n for n, row in enumerate(weights) if any(row[1:])]
    bounds = (loss.ratio_min, loss.ratio_max) if name in ("ppo", "cispo") else None
    if averages:
        weights = [[w * (len(s.ids) - 1) for w in row] for s, row in zip(samples, weights, strict=True)]
        if name == "cross_entropy":
            name, bounds = "cispo", (1.0, 1.0)
    config = {"clip_low_threshold": bounds[0], "clip_high_threshold": bounds[1]} if bounds else {}
    return GradientCall(
        name=name, config=config, data=[_datum(name, samples[n], weights[n]) for n in of], sample_indices=of
    )


def _datum(name: types.LossFnType, sample: Sample, weights: Sequence[float]) -> types.Datum:
    shifted = [*weights[1:], *[0.0] * (len(sample.ids) - len(weights))]
    inputs = {"target_tokens": _tensor_data(sample.ids[1:], "int64")}
    if name == "cross_entropy":
        inputs["weights"] = _tensor_data(shifted, "float32")
    else:
        inputs["logprobs"] = _tensor_data(sample.logprobs[1:], "float32")
        inputs["advantages"] = _tensor_data(shifted, "float32")
    return types.Datum(model_input=types.ModelInput.from_ints(sample.ids[:-1]), loss_fn_inputs=inputs)


def _tensor_data(values: Sequence[int] | Sequence[float], dtype: types.TensorDtype) -> types.TensorData:
    return types.TensorData(data=list(values), dtype=dtype, shape=[len(values)])


def loss_metrics(samples: Sequence[Sample], loss: PolicyLoss, logprobs: Sequence[Sequence[float]]) -> dict[str, float]:
    """Means over the trained tokens, as the trainers of this library give them; the entropy is not known.

    `logprobs` are those of the service: one per target of each sample.
    """
    batch = collate(samples, loss)
    new = torch.tensor([row[i - 1] for s, row in zip(samples, logprobs, strict=True) for i in s.trained_positions])
    losses, _ = token_losses(new, batch.sampler_logprobs, batch.advantages, loss=loss, rows=batch.rows)
    difference = torch.where(batch.sampled, new - batch.sampler_logprobs, 0.0)
    ratio = difference.exp()
    out = {
        "loss": _mean(losses, batch.copies),
        "clip_fraction": _mean(((ratio - 1).abs() > SERVICE_CLIP_TOLERANCE).to(losses), batch.copies),
        "sampler_kl_k3": _mean(ratio - 1 - difference, batch.copies),
        "sampler_kl_k1": -_mean(difference, batch.copies),
        "sampler_logprob_diff_max": float(difference.abs().max()),
    }
    if batch.extra_terms is not None and any(any(s.ce) for s in samples):
        out["ce"] = float(-(new * batch.extra_terms.ce).sum()) / max(BatchTotals.of(samples, loss).ce, 1.0)
    return out


def is_finite(call: GradientCall) -> bool:
    """Whether all that is sent are finite numbers, in the precision in which they are sent."""
    sent = [data for datum in call.data for data in datum.loss_fn_inputs.values()]
    return all(bool(torch.tensor(data.data, dtype=torch.float32).isfinite().all()) for data in sent)


def _mean(values: Tensor, copies: Tensor) -> float:
    return float((values * copies).sum() / copies.sum())


def logprob_rows(samples: Sequence[Sample]) -> list[types.Datum]:
    """What is sent to be told the log-probabilities of the samples' tokens."""
    return [_datum("cross_entropy", sample, [float(on) for on in sample.mask]) for sample in samples]
