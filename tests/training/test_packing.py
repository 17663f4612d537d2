"""Updates in little memory: packed lines, micro-batches by tokens, logits in pieces, activations computed again."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from architectures import KINDS, tiny_model
from tiers import proof_except
from toys import SHAPE, TOKENIZER, Twice, fresh
from wanderlust import TrainConfig, train
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.lora import adapt
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.policies.local.products import missing_rows
from wanderlust.training import gradient as gradient_module
from wanderlust.training import losses
from wanderlust.training.batch.packing import packed_input, packed_lines
from wanderlust.training.batch.samples import Sample
from wanderlust.training.conversations import conversation_samples, parse_row
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.optimizer import weights_of
from wanderlust.training.tiny_model import fresh_model

VOCABULARY = 61
CLOSE = 1e-6
STATEFUL = {"lfm2", "lfm2moe", "falcon-h1", "qwen3next", "mamba", "mamba2", "rwkv", "gpt-oss"}
"""Kinds whose sequences leak into each other in a line: those with states, and one whose masks see nothing of it."""
WITHOUT_POSITIONS = {"bloom", "opt"}


def samples_of(*, vocabulary: int = VOCABULARY, prompts: int = 3, siblings: int = 4, say: int = 7) -> list[Sample]:
    """Siblings behind common prompts, some of which begin alike, and some samples of their own."""
    rng, out = Random(5), list[Sample]()
    common = [rng.randrange(vocabulary) for _ in range(24)]
    for place in range(prompts):
        prompt = [*common, *(rng.randrange(vocabulary) for _ in range(place * 9))] if place < 2 else common[:5]
        for _ in range(siblings):
            sample = Sample()
            for part in (prompt, [3, 4]):
                sample.append_context(part)
                ids = [rng.randrange(vocabulary) for _ in range(rng.randint(1, say))]
                sample.append_completion(ids, [-rng.random() for _ in ids], [rng.gauss(0, 1) for _ in ids])
            out.append(sample)
    return out


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


def computer(kind: str = "llama", *, vocabulary: int = VOCABULARY, **options: Any) -> GradientComputer:
    return GradientComputer(tiny_model(kind, vocabulary=vocabulary, end=2), **{"loss": losses.CISPO_LOSS, **options})


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("loss", [losses.CISPO_LOSS, losses.GSPO_LOSS, losses.GRPO_LOSS])
@pytest.mark.parametrize("tokens", [1, 60, 10_000])
def test_micro_batches_by_tokens_have_the_gradient_of_the_unsplit_batch(
    tokens: int, loss: losses.PolicyLoss, fast: bool
) -> None:
    samples = samples_of()
    whole = computer(fast=fast, loss=loss, micro_batch=len(samples)).gradient(samples)
    parts = computer(fast=fast, loss=loss, micro_batch_tokens=tokens)
    assert parts.packs
    split = parts.gradient(samples)
    assert apart(split.values, whole.values) <= CLOSE
    assert split.sums.metrics() == pytest.approx(whole.sums.metrics(), abs=1e-5)
    assert split.denominator == whole.denominator
    ours, theirs = parts.compute_logprobs(samples), computer(fast=fast).compute_logprobs(samples)
    assert all(one == pytest.approx(other, abs=1e-5) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    "kind", proof_except(["gemma3", "qwen3", "lfm2", "gpt-oss", "mamba"], KINDS, group="architectures")
)
def test_sequences_of_a_line_do_not_see_each_other_or_are_read_in_rows(kind: str) -> None:
    samples = samples_of(prompts=2, siblings=2)
    rows, packed = computer(kind, micro_batch=1), computer(kind, micro_batch_tokens=10_000)
    assert not (packed.packs and kind in STATEFUL)
    if kind not in STATEFUL | WITHOUT_POSITIONS and rows.head is not None:
        assert packed.packs
    one, other = packed.gradient(samples), rows.gradient(samples)
    assert apart(one.values, other.values) <= 2e-5


def test_a_line_has_no_padding_and_reads_a_common_beginning_once() -> None:
    samples = samples_of(prompts=1, siblings=6)
    (line,) = packed_lines(samples, tokens=10_000, shares=True)
    shared, whole = packed_input(line, shares=True), packed_input(line, shares=False)
    assert whole.ids.numel() == sum(len(sample.ids) - 1 for sample in samples)
    least = whole.ids.numel() - 5 * 24
    assert shared.ids.numel() <= least + missing_rows(least)


def test_lines_stay_within_their_tokens_and_keep_pairs_together() -> None:
    samples = samples_of()
    for number, sample in enumerate(samples):
        sample.episode = number // 2
    for tokens in (30, 120, 500):
        lines = list(packed_lines(samples, tokens=tokens, shares=False))
        assert sorted(map(id, (s for line in lines for s in line))) == sorted(map(id, samples))
        assert all(sum(len(s.ids) - 1 for s in line) <= tokens or len(line) == 2 for line in lines)
        assert all(len([s for s in samples if s.episode == one.episode]) == 2 for line in lines for one in line)
        assert all(sum(s.episode == one.episode for s in line) == 2 for line in lines for one in line)


class Largest(TorchDispatchMode):
    """Notes the largest tensor that an operation makes, forwards and backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        made = [leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        self.numbers = max([self.numbers, *made])
        return out


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("packed", [0, 10_000])
def test_logits_are_never_whole_in_memory_where_they_are_many(
    monkeypatch: pytest.MonkeyPatch, fast: bool, packed: int
) -> None:
    vocabulary = 40_000
    samples = samples_of(vocabulary=vocabulary, say=30)
    tokens = sum(len(sample.trained_positions) for sample in samples)
    monkeypatch.setattr(gradient_module, "MAX_LOGITS", tokens * vocabulary * 2)
    with Largest() as whole:
        wanted = computer(vocabulary=vocabulary, fast=fast, micro_batch_tokens=packed).gradient(samples)
    monkeypatch.setattr(gradient_module, "MAX_LOGITS", 16 * vocabulary)
    with Largest() as pieces:
        computed = computer(vocabulary=vocabulary, fast=fast, micro_batch_tokens=packed)
        found = computed.gradient(samples)
    embeddings = vocabulary * 32
    assert whole.numbers > tokens * vocabulary / 4 > 2 * embeddings
    assert pieces.numbers <= embeddings + len(found.values)
    assert apart(found.values, wanted.values) <= CLOSE
    assert found.sums.metrics() == pytest.approx(wanted.sums.metrics(), abs=1e-5)


def test_logits_that_fit_are_computed_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = samples_of()
    first = computer(fast=True).gradient(samples)
    monkeypatch.setattr(gradient_module, "checkpoint", None)  # would be called for a second piece
    assert torch.equal(computer(fast=True).gradient(samples).values, first.values)


def kept_numbers(computed: GradientComputer, samples: list[Sample]) -> tuple[int, torch.Tensor]:
    """Most numbers that a forward pass keeps for the backward one, and the gradient."""
    kept = 0

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        batch = next(iter(computed.batches(samples)))
        computed.logprobs(batch)
    return kept, computed.gradient(samples).values


@pytest.mark.parametrize(("kind", "fast"), [("llama", True), ("llama", False), ("gemma3", False), ("lfm2", False)])
@pytest.mark.parametrize("tokens", [0, 400])
def test_recomputed_activations_are_the_same_gradient_in_less_memory(kind: str, fast: bool, tokens: int) -> None:
    samples = samples_of(say=20)
    plain, again = (
        computer(kind, fast=fast, micro_batch_tokens=tokens, recompute=recompute) for recompute in (False, True)
    )
    (more, wanted), (less, found) = kept_numbers(plain, samples), kept_numbers(again, samples)
    assert torch.equal(found, wanted)
    assert less < more / 2


def test_adapters_learn_in_packed_recomputed_lines() -> None:
    def adapted(**options: Any) -> torch.Tensor:
        model = fresh_model(TOKENIZER, SHAPE, seed=2)
        adapt(model, rank=2, seed=1)
        with torch.no_grad():
            for parameter in (p for p in model.parameters() if p.requires_grad):
                parameter.add_(0.01)
        samples = samples_of(vocabulary=11)
        return GradientComputer(model, loss=losses.CISPO_LOSS, **options).gradient(samples).values

    assert apart(adapted(fast=True, micro_batch_tokens=90, recompute=True), adapted()) <= 2e-6


def test_an_update_is_the_mean_cross_entropy_of_the_chosen_tokens() -> None:
    renderer, model = Renderer(TOKENIZER), fresh(5)
    rows = [{"prompt": "a b", "completion": "c"}, {"prompt": "d", "completion": "a b c d"}]
    samples = [conversation_samples(parse_row("", r, "sft").conversations[0], renderer)[0] for r in rows]
    found = combine([GradientComputer(model, loss=losses.SFT_LOSS, micro_batch_tokens=8, fast=True).gradient(samples)])
    total = torch.zeros(())
    for sample in samples:
        logp = model(torch.tensor([sample.ids])).logits.log_softmax(-1)[0]
        total = total - sum(logp[i - 1, sample.ids[i]] for i in sample.trained_positions)
    model.zero_grad()
    (total / sum(len(sample.trained_positions) for sample in samples)).backward()
    wanted = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    assert float((found.values - wanted).norm() / wanted.norm()) < 1e-5


@pytest.mark.parametrize("tokens", [0, 9, 1000])
def test_the_gradient_of_pairs_is_that_of_the_formula_of_dpo(tokens: int) -> None:
    """-log sigmoid(beta ((log p/ref)(chosen) - (log p/ref)(rejected))), averaged over pairs, by autograd alone."""
    renderer, model, reference, beta = Renderer(TOKENIZER), fresh(5), fresh(6), 0.7
    pairs = [("a", "b c", "d"), ("a b", "d", "c c c"), ("c", "a", "b")]
    samples, terms = list[Sample](), list[torch.Tensor]()
    for number, (asked, *answers) in enumerate(pairs):
        gains = []
        for sign, answer in zip((1.0, -1.0), answers, strict=True):
            row = {"prompt": asked, "completion": answer}
            (sample,) = conversation_samples(parse_row("", row, "sft").conversations[0], renderer)
            ids, places = torch.tensor([sample.ids]), sample.trained_positions
            ours, theirs = (m(ids).logits.log_softmax(-1)[0] for m in (model, reference))
            gains.append(sum(ours[i - 1, sample.ids[i]] - theirs[i - 1, sample.ids[i]].detach() for i in places))
            sample.logprobs = [
                float(theirs[i - 1, sample.ids[i]].detach()) if i in places else 0.0 for i in range(len(sample.ids))
            ]
            sample.advantages = [sign * on for on in sample.mask]
            sample.episode, sample.first_of_episode = number, sign > 0
            samples.append(sample)
        terms.append(-torch.nn.functional.logsigmoid(beta * (gains[0] - gains[1])))
    loss = losses.PolicyLoss(clip="preference", normaliser="constant", beta=beta)
    computer = GradientComputer(model, loss=loss, micro_batch=2, micro_batch_tokens=tokens, fast=True)
    found = combine([computer.gradient(samples)])
    model.zero_grad()
    (sum(terms) / len(pairs)).backward()  # type: ignore[union-attr]
    wanted = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    assert float((found.values - wanted).norm() / wanted.norm()) < 1e-5
    assert found.sums.metrics()["loss"] == pytest.approx(float(sum(terms).detach()) / len(pairs), rel=1e-5)


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
def test_micro_batches_by_tokens_and_recomputation_are_settings_of_rl(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "start", fresh(4), TOKENIZER)
    base = TrainConfig(steps=3, tasks_per_step=4, group_size=24, max_tokens=2, result_samples=0, lr=1e-3)
    weights = []
    for name, more in (("plain", {}), ("lean", {"micro_batch_tokens": 40, "recompute_activations": True})):
        config = base.replace(**more)
        run = train(Twice(), str(tmp_path / "start"), config=config, out=tmp_path / name, workers=1, progress=False)
        weights.append(weights_of(load_pretrained(run.path / "checkpoints/rl")[0]))
    start = weights_of(load_pretrained(tmp_path / "start")[0])
    assert float((weights[0] - start).norm()) > 0.01
    assert float((weights[0] - weights[1]).norm()) < 1e-3 * float((weights[0] - start).norm())


def test_lines_with_dense_masks_are_short_and_rows_are_as_asked() -> None:
    lengths = {
        kind: [batch.tokens for batch in computer(kind, micro_batch_tokens=900, micro_batch=999).batches(samples)]
        for samples in [samples_of(prompts=2, siblings=40)]
        for kind in ("gemma3", "lfm2")
    }
    assert 400 < max(lengths["gemma3"]) <= gradient_module.DENSE_LINE_TOKENS + 60
    assert gradient_module.DENSE_LINE_TOKENS + 60 < max(lengths["lfm2"]) <= 900
