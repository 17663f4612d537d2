"""Token trees: the gradient is that of rows, at a fraction of the tokens."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from wanderlust.policies.local.rows import common_prefix_length
from wanderlust.training import losses
from wanderlust.training.batch import token_tree
from wanderlust.training.batch.samples import Sample
from wanderlust.training.batch.token_tree import (
    MIN_SHARED_TOKENS,
    prefix_tree_batches,
    prefix_trees,
    supports_trees,
)
from wanderlust.training.gradient import GradientComputer

SMALL: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


def made(kind: Any, config: Any, **more: Any) -> Any:
    torch.manual_seed(0)
    return kind(config(**SMALL, **more)).eval()


def llama() -> Any:
    return made(LlamaForCausalLM, LlamaConfig)


def sample(rng: Random, *parts: list[int], say: int = 6) -> Sample:
    """What was read, in parts, with a few sampled tokens after each."""
    out = Sample()
    for part in parts:
        out.append_context(part)
        said = [rng.randrange(97) for _ in range(say)]
        out.append_completion(said, [-rng.random() for _ in said], [rng.gauss(0, 1)] * say)
    return out


def families(rng: Random, groups: int = 4, siblings: int = 8) -> list[Sample]:
    out = []
    for _ in range(groups):
        prompt = [rng.randrange(97) for _ in range(rng.randrange(30, 60))]
        for _ in range(siblings):
            turns = [[rng.randrange(97) for _ in range(rng.randrange(3, 9))] for _ in range(rng.randrange(3))]
            out.append(sample(rng, prompt, *turns))
    return out


@pytest.mark.parametrize(
    ("model", "trees"),
    [
        (llama(), False),
        (made(Qwen3ForCausalLM, Qwen3Config, head_dim=8), False),
        (made(GemmaForCausalLM, GemmaConfig, head_dim=8), True),
    ],
    ids=["llama", "qwen3", "gemma"],
)
@pytest.mark.parametrize("loss", [losses.CISPO_LOSS, losses.GRPO_LOSS, losses.GSPO_LOSS], ids=["cispo", "grpo", "gspo"])
def test_the_gradient_is_that_of_rows(model: Any, trees: bool, loss: losses.PolicyLoss) -> None:
    """Packed where our own pass reads the model, else as trees."""
    samples = families(Random(str(loss)))
    plain, sharing = (GradientComputer(model, loss=loss, fast=fast) for fast in (False, True))
    assert (sharing.trees, sharing.packs) == (trees, not trees)
    rows, branches = plain.gradient(samples), sharing.gradient(samples)
    assert branches.denominator == rows.denominator
    torch.testing.assert_close(branches.values, rows.values, rtol=1e-3, atol=1e-4)
    for name in ("loss", "entropy", "kl_k3", "clipped"):
        assert getattr(branches.sums, name) == pytest.approx(getattr(rows.sums, name), rel=1e-3, abs=1e-3)
    assert branches.sums.count == rows.sums.count


def test_what_siblings_share_is_read_once() -> None:
    samples = families(Random("saving"))
    read = sum(len(tree.ids) for tree in prefix_trees(samples))
    assert read < 0.45 * sum(len(s.ids) for s in samples)
    assert sorted(id(s) for tree in prefix_trees(samples) for s in tree.samples) == sorted(map(id, samples))


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=40), min_size=1, max_size=12))
def test_every_path_spells_its_sample(rows: list[list[int]]) -> None:
    samples = [Sample(ids=ids, mask=[n > 0 for n in range(len(ids))]) for ids in rows]
    for tree in prefix_trees(samples):
        for one, path in zip(tree.samples, tree.paths, strict=True):
            assert [tree.ids[place] for place in path] == one.ids
            assert [tree.depths[place] for place in path] == list(range(len(one.ids)))


def test_rows_are_bounded_and_passes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_tree, "ROW_TOKENS", 120)
    samples = families(Random("bounds"))
    for tree in prefix_trees(samples):
        assert len(tree.ids) <= 120 or len(tree.samples) == 1
    made = [batch.model_input.ids.shape for batch in prefix_tree_batches(samples, losses.CISPO_LOSS, size=16)]
    assert len(made) > 1
    assert sum(rows for rows, _ in made) == len(prefix_trees(samples))


def test_strangers_do_not_share_a_row() -> None:
    rng = Random("strangers")
    samples = [sample(rng, [rng.randrange(97) for _ in range(30)]) for _ in range(5)]
    assert len(prefix_trees(samples)) == 5
    assert common_prefix_length(samples[0].ids, samples[1].ids) < MIN_SHARED_TOKENS


def test_models_with_windows_read_rows() -> None:
    assert supports_trees(llama())
    model = made(MistralForCausalLM, MistralConfig, sliding_window=16)
    assert not supports_trees(model)
    samples = families(Random("window"))
    rows, told = (GradientComputer(model, loss=losses.CISPO_LOSS, fast=t).gradient(samples) for t in (False, True))
    assert torch.equal(rows.values, told.values)
