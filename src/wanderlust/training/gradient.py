"""Samples to a gradient of the summed loss, with what there is to know about it.

Gradients where memory is short: half the micro-batch, once, and then a line that says what to do.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Self

import torch
from torch import Tensor

from wanderlust.errors import WanderlustError
from wanderlust.policies.local.fast_llama import FastLlama, fast_llama_for
from wanderlust.training.batch.collate import (
    Batch,
    BatchTotals,
    collate,
    expand_to_tokens,
    hidden_states,
    microbatches,
)
from wanderlust.training.batch.samples import Sample
from wanderlust.training.batch.token_tree import prefix_tree_batches, supports_trees
from wanderlust.training.losses import PolicyLoss, kl_estimate, selected_logprobs_and_entropy, token_losses

CLIP_FRACTION_TOLERANCE = 0.2
"""A token counts as moved when its ratio has left 1 by more than this."""


@dataclass(slots=True, kw_only=True)
class LossSums:
    """Sums over trained tokens; shares and means come from dividing by `count`."""

    count: int = 0
    tokens: int = 0
    """Tokens read, context included."""
    loss: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    kl_k3: float = 0.0
    """Sampler-trainer gap, k3 estimate of KL(sampler || trainer): mean of r - 1 - log r."""
    kl_k1: float = 0.0
    """The same by k1: mean of -log r. Its sign says which of the two was surer."""
    logprob_diff_max: float = 0.0
    """Largest |log p_trainer - log p_sampler|."""
    ce: float = 0.0
    """Weighted cross-entropy of imitated tokens."""
    kl: float = 0.0
    """Weighted distance to the reference."""
    has_kl: bool = False
    """Whether some token is held to a reference."""
    totals: BatchTotals = field(default_factory=BatchTotals)

    @classmethod
    def of(cls, batch: Batch, losses: Tensor, entropy: Tensor, *, difference: Tensor) -> Self:
        """Those of a micro-batch, but for the extra terms; `difference` is log p_trainer - log p_sampler, all [N]."""
        copies = batch.copies.to(losses.device)
        difference = torch.where(batch.sampled.to(losses.device), difference, 0.0)
        ratio = difference.exp()
        means = torch.stack(
            [losses, entropy, ((ratio - 1).abs() > CLIP_FRACTION_TOLERANCE).to(losses), ratio - 1 - difference]
        )  # [4, N]
        loss, spread, moved, gap = (means * copies).sum(-1).tolist()
        return cls(
            count=int(copies.sum()),
            tokens=batch.tokens,
            loss=loss,
            entropy=spread,
            clipped=moved,
            kl_k3=gap,
            kl_k1=-float((difference * copies).sum()),
            logprob_diff_max=float(difference.abs().max()),
        )

    def add(self, other: LossSums) -> None:
        """Take in another shard's sums."""
        for name in ("count", "tokens", "loss", "entropy", "clipped", "kl_k3", "kl_k1", "ce", "kl"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.has_kl = self.has_kl or other.has_kl
        self.logprob_diff_max = max(self.logprob_diff_max, other.logprob_diff_max)
        self.totals.add(other.totals)

    def metrics(self) -> dict[str, float]:
        """Means per trained token; `ce` and `kl` only where those terms are."""
        n = max(self.count, 1)
        out = {
            "loss": self.loss / n,
            "entropy": self.entropy / n,
            "clip_fraction": self.clipped / n,
            "sampler_kl_k3": self.kl_k3 / n,
            "sampler_kl_k1": self.kl_k1 / n,
            "sampler_logprob_diff_max": self.logprob_diff_max,
        }
        if self.totals.ce:
            out["ce"] = self.ce / self.totals.ce
        if self.has_kl:
            out["kl"] = self.kl / max(self.totals.rl, 1.0)
        return out


@dataclass(slots=True, kw_only=True)
class Gradient:
    """Gradient of the *summed* weighted token losses, so that shards add up; divide by `denominator` at the end."""

    values: Tensor
    """[P], all parameters in the model's order."""
    denominator: float
    sums: LossSums = field(default_factory=LossSums)

    @property
    def empty(self) -> bool:
        """Whether no token took part."""
        return self.sums.count == 0

    @property
    def finite(self) -> bool:
        """Whether neither loss nor gradient has a NaN or an infinity, nor a norm beyond the numbers."""
        return isfinite(self.sums.loss + self.sums.ce + self.sums.kl) and isfinite(float(self.values.norm()))


class GradientComputer:
    """Computes gradients of one model, micro-batch by micro-batch, logits only where a token is trained."""

    def __init__(
        self, model: Any, *, loss: PolicyLoss, temperature: float = 1.0, micro_batch: int = 64, fast: bool = False
    ):
        """With `fast`, where the model can, our own pass reads it, and what samples have in common is read once."""
        self.model, self.loss, self.temperature, self.micro_batch = model, loss, temperature, micro_batch
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self._rounded = any(p.dtype.itemsize < 4 for p in self.parameters)
        self.head = model.get_output_embeddings() if head_is_plain(model) else None
        self.trunk: Any = (fast_llama_for(model) if fast and self.head is not None else None) or model.base_model
        self.batches = prefix_tree_batches if fast and self.head is not None and supports_trees(model) else microbatches

    def gradient(self, samples: Sequence[Sample], totals: BatchTotals | None = None) -> Gradient:
        """Gradient of the summed loss over `samples`; no samples give zeros.

        `totals` are those of all shards together (None: these samples are all). All terms are scaled to the policy
        loss's denominator, so that dividing by it in the end divides each by its own.
        """
        sums = LossSums(totals=BatchTotals.of(samples, self.loss))
        own, whole = sums.totals, totals or sums.totals
        scales = max(whole.rl, 1.0) / max(whole.ce, 1.0), max(whole.rl, 1.0) / max(whole.tokens, 1.0)
        for parameter in self.parameters:
            parameter.grad = None
        values: Tensor | None = None
        for batch in self.batches(samples, self.loss, size=self.micro_batch):
            self._backward(batch, sums, scales)
            if self._rounded:  # a sum of many in bf16 would lose the small ones
                values = self._collect_gradient() if values is None else values.add_(self._collect_gradient())
        return Gradient(values=self._collect_gradient() if values is None else values, denominator=own.rl, sums=sums)

    def _collect_gradient(self) -> Tensor:
        """The gradient so far, [P] and not below fp32, which the parameters then forget."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        return torch.cat([(g.float() if g.dtype.itemsize < 4 else g).reshape(-1) for g in grads])

    def _backward(self, batch: Batch, sums: LossSums, scales: tuple[float, float]) -> None:
        logprobs, entropy = self.logprobs(batch)
        device = logprobs.device
        old, advantages, weights = (x.to(device) for x in (batch.sampler_logprobs, batch.advantages, batch.weights))
        update = batch.proximal_logprobs.to(device) if batch.proximal_logprobs is not None else None
        losses, _ = token_losses(logprobs, old, advantages, loss=self.loss, rows=batch.rows, proximal_logprobs=update)
        total = (losses * weights).sum()
        if self.loss.entropy:
            sampled = torch.where(weights != 0, batch.copies.to(device), 0)  # a token mean, whatever the divisor
            total = total - scales[1] * self.loss.entropy * (entropy * sampled).sum()
        if batch.extra_terms is not None:
            terms = batch.extra_terms
            ce_weights, kl_weights, reference = (x.to(device) for x in (terms.ce, terms.kl, terms.reference))
            estimator = self.loss.kl.estimator if self.loss.kl is not None else "k3"
            distance = torch.where(kl_weights != 0, kl_estimate(logprobs, reference, estimator), 0.0)
            ce, kl = -(logprobs * ce_weights).sum(), (distance * kl_weights).sum()
            total = total + scales[0] * ce + kl
            sums.ce, sums.kl = sums.ce + float(ce.detach()), sums.kl + float(kl.detach())
            sums.has_kl = sums.has_kl or bool((terms.kl != 0).any())
        total.backward()  # type: ignore[no-untyped-call]
        sums.add(LossSums.of(batch, losses.detach(), entropy.detach(), difference=logprobs.detach() - old))

    @torch.no_grad()
    def compute_logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-probability of every trained token (else 0), per sample and token, under the weights of now."""
        out: list[list[float]] = [[0.0] * len(s.ids) for s in samples]
        order = sorted((n for n, s in enumerate(samples) if s.ids), key=lambda n: len(samples[n].ids))
        for start in range(0, len(order), self.micro_batch):
            chosen = order[start : start + self.micro_batch]
            logprobs, _ = self.logprobs(collate([samples[n] for n in chosen], self.loss))
            values = iter(logprobs.tolist())
            for n in chosen:
                for i in samples[n].trained_positions:
                    out[n][i] = next(values)
        return out

    def logprobs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-probability of every trained token and entropy at its place, [N] each."""
        device, reading = self.parameters[0].device, batch.model_input
        if self.head is not None:
            logits = self.head(hidden_states(self.trunk, reading))
        else:
            logits = self.model(input_ids=reading.ids.to(device), use_cache=False).logits.flatten(0, 1)
            logits = logits[reading.positions.to(device)]
        back = reading.position_of_token.to(device) if reading.position_of_token is not None else None
        targets, temperature = batch.targets.to(device), self.temperature or 1.0
        if isinstance(self.trunk, FastLlama):
            logprobs, entropy = selected_logprobs_and_entropy(logits, targets, back, temperature=temperature)
            return logprobs, expand_to_tokens(entropy, reading)
        logp = torch.log_softmax(logits.float() / temperature, -1)  # [U, V]; autograd's rounding: the demo's
        entropy = expand_to_tokens(-(logp.exp() * logp).sum(-1), reading)
        if back is not None:
            return logp[back, targets], entropy
        return logp.gather(1, targets[:, None])[:, 0], entropy


def combine(gradients: Iterable[Gradient], denominator: float | None = None) -> Gradient:
    """The gradient of all shards together, added in the order given and divided by the common denominator.

    That is the sum of their own, unless they are part of a batch with another one.
    """
    total: Gradient | None = None
    for gradient in gradients:
        if total is None:
            total = Gradient(values=gradient.values.clone(), denominator=gradient.denominator, sums=gradient.sums)
            continue
        total.values += gradient.values
        total.denominator += gradient.denominator
        total.sums.add(gradient.sums)
    if total is None:
        raise ValueError("no gradients to combine")
    total.values /= max(total.denominator if denominator is None else denominator, 1.0)
    return total


@torch.no_grad()
def head_is_plain(model: Any) -> bool:
    """Whether logits are the output embedding of the last hidden state and nothing else (no scaling, no cap)."""
    ids = torch.arange(4, device=model.device)[None]
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    direct = model.get_output_embeddings()(hidden)
    return bool(torch.equal(direct, model(input_ids=ids, use_cache=False).logits))


OUT_OF_MEMORY_PHRASES = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "cublas_status_alloc_failed",
)
"""What torch says on a GPU, on a CPU, and on other systems; and a GPU's products that find no room to work in."""


class OutOfMemory(WanderlustError):
    """A gradient does not fit into memory, not even in smaller pieces."""


class SmallerBatchesWarning(UserWarning):
    """Memory was short, so gradients are computed in smaller pieces from now on."""


def gradient_with_oom_retry(
    computer: GradientComputer, samples: Sequence[Sample], totals: BatchTotals | None = None
) -> Gradient:
    """Like `computer.gradient`; when memory runs out, once more with half the micro-batch, which then stays halved.

    Sums are then made of other pieces, so the last bits of a run that came here depend on its memory; a warning says
    so. Raises OutOfMemory when that does not fit either, or when there was nothing to halve.
    """
    try:
        return computer.gradient(samples, totals)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if computer.micro_batch == 1:
            raise OutOfMemory(_advice(computer, samples)) from error
    _forget(computer)
    computer.micro_batch = (computer.micro_batch + 1) // 2
    warnings.warn(
        f"memory ran out: gradients are computed over {computer.micro_batch} samples at a time from now on, which is "
        "slower and rounds differently",
        SmallerBatchesWarning,
        stacklevel=2,
    )
    try:
        return computer.gradient(samples, totals)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        _forget(computer)
        raise OutOfMemory(_advice(computer, samples)) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left."""
    message = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        words in message for words in OUT_OF_MEMORY_PHRASES
    )


def _forget(reader: GradientComputer) -> None:
    """Give back what a pass that failed half-way holds."""
    for parameter in reader.parameters:
        parameter.grad = None
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _advice(reader: GradientComputer, samples: Sequence[Sample]) -> str:
    longest = max((len(sample.ids) for sample in samples), default=0)
    return (
        f"out of memory at {reader.micro_batch} samples at a time, the longest of {longest} tokens: take fewer with "
        "micro_batch, bound answers with max_tokens, or train adapters with lora"
    )
