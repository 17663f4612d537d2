"""Low-rank adapters: nothing changes at first, only they learn, and what they learnt ends in plain weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_recipe_train import Stopping, config

from tiers import proof_except
from wanderlust.policies.local.lora import adapt, merge_adapter
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.runner.progress import NullLogger
from wanderlust.training.checkpoint import Run
from wanderlust.training.optimizer import set_weights, weights_of
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.training.train import run_training

TOKENIZER = fresh_tokenizer(["take the free cell", "<move>3</move>"] * 10)
IDS = torch.tensor([[1, 5, 9, 12, 7, 3]])


def model(seed: int = 1) -> Any:
    return fresh_model(TOKENIZER, ModelShape(), seed=seed)


def logits(one: Any) -> torch.Tensor:
    with torch.no_grad():
        return one(IDS).logits


def test_adapters_begin_as_nothing_and_are_all_that_learns() -> None:
    plain, adapted = model(), model()
    adapt(adapted, rank=4, seed=0)
    assert torch.equal(logits(plain), logits(adapted))
    trained = [name for name, p in adapted.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    assert weights_of(adapted).numel() < weights_of(plain).numel() / 2


def test_the_seed_decides_and_the_global_generator_is_left_alone() -> None:
    one, same, other = model(), model(), model()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    for adapted, seed in ((one, 0), (same, 0), (other, 1)):
        adapt(adapted, rank=4, seed=seed)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(weights_of(one), weights_of(same))
    assert not torch.equal(weights_of(one), weights_of(other))


def test_what_was_learnt_ends_in_a_plain_checkpoint(tmp_path: Path) -> None:
    adapted = model()
    adapt(adapted, rank=4, seed=0)
    generator = torch.Generator().manual_seed(0)
    weights = weights_of(adapted)
    set_weights(adapted, weights + 0.05 * torch.randn(weights.shape, generator=generator))
    assert float((logits(adapted) - logits(model())).abs().max()) > 0.01
    before = logits(adapted)
    save_pretrained(tmp_path / "end", merge_adapter(adapted), TOKENIZER)
    assert torch.equal(logits(adapted), before)  # the model that learns on is left as it was
    again, _ = load_pretrained(tmp_path / "end")
    assert not any("lora" in name for name, _ in again.named_parameters())
    torch.testing.assert_close(logits(again), before, rtol=1e-4, atol=1e-4)


def test_a_model_without_adapters_is_its_own_plain_one() -> None:
    one = model()
    assert merge_adapter(one) is one


@pytest.mark.parametrize("workers", proof_except([1], [1, 2], group="resumes"))
def test_training_with_adapters_resumes_to_the_same_weights(tmp_path: Path, workers: int) -> None:
    start = tmp_path / "start"
    save_pretrained(start, model(), TOKENIZER)
    settings = config(start, steps=6, lora=2)
    whole, stopped = Run.begin(tmp_path / "whole", settings), Run.begin(tmp_path / "stopped", settings)
    run_training(settings, whole, logger=NullLogger(), workers=1)
    whole.store.close()
    with pytest.raises(KeyboardInterrupt):
        run_training(settings, stopped, logger=Stopping("rl", 1 if workers == 2 else 3), workers=1)
    stopped.store.close()
    stopped = Run.resume(tmp_path / "stopped")
    run_training(settings, stopped, logger=NullLogger(), workers=workers)
    stopped.store.close()
    one, other = (load_pretrained(tmp_path / name / "checkpoints/rl")[0] for name in ("whole", "stopped"))
    assert torch.equal(weights_of(one), weights_of(other))
