"""Samples to a gradient of the summed loss, with what there is to know about it.

Gradients where memory is short: half the micro-batch, once, and then a line that says what to do.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from wanderlust.errors import WanderlustError
from wanderlust.policies.local.fast_llama import FastLlama, fast_llama_for
from wanderlust.policies.local.products import projected
from wanderlust.training.batch.collate import (
    Batch,
    BatchTotals,
    collate,
    hidden_states,
    microbatches,
)
from wanderlust.training.batch.packing import packed_input, packed_lines, packed_states, supports_packing
from wanderlust.training.batch.samples import Sample
from wanderlust.training.batch.token_tree import prefix_tree_batches, supports_trees
from wanderlust.training.losses import (
    PolicyLoss,
    kl_estimate,
    selected_logprobs,
    selected_logprobs_and_entropy,
    token_losses,
)

CLIP_FRACTION_TOLERANCE = 0.2
"""A token counts as moved when its ratio has left 1 by more than this."""


MAX_LOGITS = 2**25
"""Numbers in one piece of logits, 128 MiB in fp32; a micro-batch whose logits are more is computed piece by piece."""
DENSE_LINE_TOKENS = 512
"""Longer lines of a model that `transformers` reads with dense masks take longer than rows: 2.5 times at 4,096."""
_TERM_SUMS = ("count", "tokens", "loss", "entropy", "clipped", "kl_k3", "kl_k1", "ce", "kl")
SUMMED_FIELDS = (*_TERM_SUMS, "pairs", "wins", "chosen", "rejected")
"""Fields of LossSums that add up over shards and processes."""


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
    pairs: int = 0
    """Pairs of a preference loss."""
    wins: int = 0
    """Those whose margin is above 0."""
    chosen: float = 0.0
    """Sum over the winners of beta x log(p / p_reference)."""
    rejected: float = 0.0
    """The same of the losers."""
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
        for name in SUMMED_FIELDS:
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
        if self.pairs:
            out["loss"] = self.loss / self.pairs
            out["chosen_reward"], out["rejected_reward"] = self.chosen / self.pairs, self.rejected / self.pairs
            out["reward_margin"] = out["chosen_reward"] - out["rejected_reward"]
            out["reward_accuracy"] = self.wins / self.pairs
        return out

    def add_pairs(self, batch: Batch, difference: Tensor, *, beta: float) -> None:
        """Take in the pairs of a micro-batch; `difference` is log p - log p_reference, [N]."""
        rows, signs = batch.rows.to(difference.device), batch.advantages.to(difference.device)
        count = int(rows.max()) + 1
        sums = [difference.new_zeros(count).index_add(0, rows, difference * (signs * s > 0)) * beta for s in (1, -1)]
        there = rows.bincount() > 0
        self.pairs += int(there.sum())
        self.wins += int((there & (sums[0] > sums[1])).sum())
        self.chosen, self.rejected = self.chosen + float(sums[0].sum()), self.rejected + float(sums[1].sum())


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
    """Computes gradients of one model, micro-batch by micro-batch, logits only where a token is trained.

    No more than MAX_LOGITS logits are in memory at once: those of more tokens are made in pieces, and again in the
    backward pass. With `micro_batch_tokens` samples are packed, where the model can read them so.
    """

    def __init__(
        self,
        model: Any,
        *,
        loss: PolicyLoss,
        temperature: float = 1.0,
        micro_batch: int = 64,
        micro_batch_tokens: int = 0,
        recompute: bool = False,
        fast: bool = False,
    ):
        """With `fast`, where the model can, our own pass reads packed samples, and what they have in common once.

        With `recompute` the activations of a layer are computed again in the backward pass instead of being kept.
        """
        self.model, self.loss, self.temperature, self.micro_batch = model, loss, temperature, micro_batch
        self.micro_batch_tokens, self.recompute = micro_batch_tokens, recompute
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self._rounded = any(p.dtype.itemsize < 4 for p in self.parameters)
        self.head = head_of(model)
        self.trunk: Any = (fast_llama_for(model) if fast and self.head is not None else None) or model.base_model
        own = isinstance(self.trunk, FastLlama)
        self.trees = fast and not own and self.head is not None and supports_trees(model)
        if own:
            self.trunk.recompute = recompute
            if isinstance(self.head, torch.nn.Module):
                self.head = partial(projected, self.head)
        self.packs = own or (bool(micro_batch_tokens) and self.head is not None and supports_packing(model))

    @property
    def line_tokens(self) -> int:
        """Tokens of a pass; few in a packed line of which attention computes the whole square."""
        sparse = isinstance(self.trunk, FastLlama) or "flash" in str(self.model.config._attn_implementation)
        bounded = self.packs and not sparse
        return min(self.micro_batch_tokens, DENSE_LINE_TOKENS) if bounded else self.micro_batch_tokens

    def batches(self, samples: Sequence[Sample]) -> Iterator[Batch]:
        """The micro-batches of some samples."""
        if self.packs:
            shares = isinstance(self.trunk, FastLlama)
            for line in packed_lines(samples, tokens=self.line_tokens, size=self.micro_batch, shares=shares):
                yield collate(line, self.loss, packed_input(line, shares=shares))
        elif self.trees and not self.micro_batch_tokens:
            yield from prefix_tree_batches(samples, self.loss, size=self.micro_batch)
        else:
            yield from microbatches(samples, self.loss, size=self.micro_batch, tokens=self.line_tokens)

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
        for batch in self.batches(samples):
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
        difference = logprobs.detach() - old
        sums.add(LossSums.of(batch, losses.detach(), entropy.detach(), difference=difference))
        if self.loss.clip == "preference":
            sums.add_pairs(batch, difference, beta=self.loss.beta)

    @torch.no_grad()
    def compute_logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-probability of every trained token (else 0), per sample and token, under the weights of now."""
        out: list[list[float]] = [[0.0] * len(s.ids) for s in samples]
        for chosen in self._read_together(samples):
            line = [samples[n] for n in chosen]
            packed = packed_input(line, shares=isinstance(self.trunk, FastLlama)) if self.packs else None
            logprobs, _ = self.logprobs(collate(line, self.loss, packed))
            values = iter(logprobs.tolist())
            for n in chosen:
                for i in samples[n].trained_positions:
                    out[n][i] = next(values)
        return out

    def _read_together(self, samples: Sequence[Sample]) -> Iterator[list[int]]:
        """Numbers of the samples that are read in one pass without gradients."""
        if self.packs:
            numbers: dict[int, list[int]] = {}
            for n, sample in enumerate(samples):
                numbers.setdefault(id(sample), []).append(n)
            shares = isinstance(self.trunk, FastLlama)
            for line in packed_lines(samples, tokens=self.micro_batch_tokens, size=self.micro_batch, shares=shares):
                yield [numbers[id(sample)].pop() for sample in line]
            return
        order = sorted((n for n, s in enumerate(samples) if s.ids), key=lambda n: len(samples[n].ids))
        for start in range(0, len(order), self.micro_batch):
            yield order[start : start + self.micro_batch]

    def logprobs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-probability of every trained token and entropy at its place, [N] each."""
        device, reading = self.parameters[0].device, batch.model_input
        back = reading.position_of_token.to(device) if reading.position_of_token is not None else None
        targets = batch.targets.to(device)
        with recomputed_layers(self.model, on=self.recompute and not isinstance(self.trunk, FastLlama)):
            if self.head is None:
                logits = self.model(input_ids=reading.ids.to(device), use_cache=False).logits.flatten(0, 1)
                return self._of_logits(logits[reading.positions.to(device)], targets, back)
            hidden = (hidden_states if reading.segments is None else packed_states)(self.trunk, reading)
        return self.logprobs_of_states(hidden, targets, back)

    def logprobs_of_states(self, hidden: Tensor, targets: Tensor, back: Tensor | None) -> tuple[Tensor, Tensor]:
        """Those of the targets [N] by the last hidden states [U, W], where `back` says which belongs to which."""
        head, device, embeddings = self.head, hidden.device, self.model.get_output_embeddings()
        assert head is not None
        if embeddings is None:  # a reward model: its score stands where others have a log-probability
            scores = head(hidden)[:, 0] if back is None else head(hidden)[back, 0]
            return scores, torch.zeros_like(scores)
        size = max(MAX_LOGITS // int(embeddings.weight.shape[0]), 1)
        if len(hidden) <= size:
            return self._of_logits(head(hidden), targets, back)
        rows = torch.arange(len(hidden), device=device) if back is None else back
        order = torch.argsort(rows, stable=True)
        counts = torch.bincount(rows[order] // size, minlength=-(-len(hidden) // size)).tolist()
        parts = [
            checkpoint(
                lambda states, *wanted: self._of_logits(head(states), *wanted),
                hidden[start : start + size],
                targets[own],
                rows[own] - start,
                use_reentrant=False,
            )
            for start, own in zip(range(0, len(hidden), size), order.split_with_sizes(counts), strict=True)
        ]
        places = torch.argsort(order)
        logprobs, entropy = (torch.cat(values)[places] for values in zip(*parts, strict=True))
        return logprobs, entropy

    def _of_logits(self, logits: Tensor, targets: Tensor, back: Tensor | None) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the targets [N], and the entropy of the row [U, V] that `back` says."""
        temperature = self.temperature or 1.0
        if not self.loss.measures_entropy and not self.loss.entropy:
            scaled = logits.float() if temperature == 1.0 else logits.float() / temperature
            logprobs = selected_logprobs(scaled, targets, back)
            return logprobs, torch.zeros_like(logprobs)
        if isinstance(self.trunk, FastLlama):
            logprobs, entropy = selected_logprobs_and_entropy(logits, targets, back, temperature=temperature)
            return logprobs, entropy if back is None else entropy[back]
        logp = torch.log_softmax(logits.float() / temperature, -1)  # [U, V]; autograd's rounding: the demo's
        entropy = -(logp.exp() * logp).sum(-1)
        if back is not None:
            return logp[back, targets], entropy[back]
        return logp.gather(1, targets[:, None])[:, 0], entropy


@contextmanager
def recomputed_layers(model: Any, *, on: bool) -> Iterator[None]:
    """Inside, layers that `transformers` reads are computed again in the backward pass instead of being kept."""
    layers = transformer_layers(model) if on and torch.is_grad_enabled() else []
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def transformer_layers(model: Any) -> list[Any]:
    """A transformer's blocks: the longest list of modules in it."""
    lists = [list(module) for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return max(lists, key=len, default=[])


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
def head_of(model: Any) -> Callable[[Tensor], Tensor] | None:
    """What makes logits of the last hidden states alone: the output embedding, with the cap or the scale of some kinds.

    None where none of these gives the model's own logits on a short row. Of a reward model: the head of its score.
    """
    if model.get_output_embeddings() is None:
        score: Callable[[Tensor], Tensor] = model.score
        return score
    ids, config, linear = torch.arange(4, device=model.device)[None], model.config, model.get_output_embeddings()
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    wanted = model(input_ids=ids, use_cache=False).logits
    heads: list[Callable[[Tensor], Tensor]] = [linear]
    if cap := getattr(config, "final_logit_softcapping", None):
        heads.append(lambda states: torch.tanh(linear(states) / cap) * cap)
    if factor := getattr(config, "logit_scale", None):
        heads.append(lambda states: linear(states) * factor)
    if divisor := getattr(config, "logits_scaling", None):
        heads.append(lambda states: linear(states) / divisor)
    return next((head for head in heads if torch.equal(head(hidden), wanted)), None)


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
        if computer.micro_batch == 1 or computer.micro_batch_tokens == 1:
            raise OutOfMemory(_advice(computer, samples)) from error
    _forget(computer)
    computer.micro_batch = (computer.micro_batch + 1) // 2
    computer.micro_batch_tokens = (computer.micro_batch_tokens + 1) // 2
    warnings.warn(
        f"memory ran out: gradients are computed over {_pass_size(computer)} at a time from now on, which is "
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


def _pass_size(computer: GradientComputer) -> str:
    tokens = computer.micro_batch_tokens
    return f"{tokens} tokens" if tokens else f"{computer.micro_batch} samples"


def _advice(reader: GradientComputer, samples: Sequence[Sample]) -> str:
    longest = max((len(sample.ids) for sample in samples), default=0)
    return (
        f"out of memory at {_pass_size(reader)} at a time, the longest of {longest} tokens: take fewer with "
        "micro_batch or micro_batch_tokens, set recompute_activations, bound answers with max_tokens, or train "
        "adapters with lora"
    )
