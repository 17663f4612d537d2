"""Every architecture is sampled right, greedy tokens and log-probabilities as by plain forward passes, or refused."""

from __future__ import annotations

import asyncio
import random
import warnings
from typing import Any

import pytest
import torch

from architectures import KINDS, tiny_model
from tiers import proof_except
from wanderlust.errors import UsageError
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.kv_cache import BatchedKVCache, SingleKVCache, SingleStates
from wanderlust.policies.local.sampler_trial import RecomputedContexts, RecomputedContextWarning
from wanderlust.training.tiny_model import fresh_tokenizer
from wanderlust.types import Completion, Message, system, user

TEXTS = ["You are X.", "You start.\n012\n345\n678", "O plays 4.\nX12\n3O5\n678", "<think>block</think><move>2</move>"]
TOKENIZER = fresh_tokenizer(TEXTS * 20)
BATCHED = {
    *("llama", "llama-tied", "gpt2", "gptneox", "qwen2", "qwen3", "qwen3moe", "mixtral", "phi3", "olmo2", "smollm3"),
    *("deepseek-v3", "opt", "granite", "cohere", "gemma2", "gemma3", "mistral-window", "gpt-oss"),
    *("lfm2", "lfm2moe", "falcon-h1", "qwen3next", "mamba", "mamba2"),
}
QUICK = ["llama", "lfm2", "mamba", "bloom"]


def sampled(model: Any, temperature: float) -> list[list[Completion]]:
    """Seven ragged conversations of three turns at once."""
    policy = LocalPolicy.of(model, TOKENIZER, SamplingOptions(temperature=temperature, max_tokens=6))

    async def talk(number: int) -> list[Completion]:
        rng = random.Random(number)
        messages: list[Message] = [system("You are X."), user(rng.choice(TEXTS) * rng.randint(1, 2))]
        out = []
        for _ in range(3):
            done = await policy.complete(messages, key=f"k{number}")
            out.append(done)
            messages = [*messages, done.message, user(rng.choice(TEXTS)[: rng.randint(1, 20)])]
        return out

    async def talks() -> list[list[Completion]]:
        return await asyncio.gather(*(talk(number) for number in range(7)))

    return asyncio.run(talks())


def gaps(model: Any, conversations: list[list[Completion]], temperature: float) -> tuple[int, float]:
    """Answers with a token that a plain forward pass ranks below another one, and the largest log-probability gap."""
    wrong, worst = 0, 0.0
    for turns in conversations:
        ids: list[int] = []
        for turn in turns:
            assert turn.tokens is not None
            ids = [*ids[: turn.tokens.offset], *turn.tokens.prompt]
            start = len(ids)
            ids += turn.tokens.completion
            with torch.no_grad():
                plain = (model(torch.tensor([ids]), use_cache=False).logits[0] / (temperature or 1)).log_softmax(-1)
            at = plain[start - 1 : len(ids) - 1]
            chosen = at.gather(1, torch.tensor(ids[start:])[:, None])[:, 0]
            worst = max(worst, float((chosen - torch.tensor(turn.tokens.logprobs)).abs().max()))
            wrong += int(bool((at.max(-1).values - chosen > 1e-4).any()))
    return wrong, worst


@pytest.mark.parametrize("kind", proof_except(QUICK, KINDS, group="architectures"))
def test_every_architecture_is_sampled_right(kind: str) -> None:
    model = tiny_model(kind, vocabulary=len(TOKENIZER), end=TOKENIZER.eos_token_id)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        greedy = sampled(model, 0)
        cache = LocalPolicy.of(model, TOKENIZER).engine.kv_cache
    recomputed = [one for one in said if one.category is RecomputedContextWarning]
    assert not recomputed
    assert not isinstance(cache, RecomputedContexts)
    assert isinstance(cache, SingleStates) == (kind == "rwkv")
    assert isinstance(cache, BatchedKVCache) == (kind in BATCHED)
    wrong, worst = gaps(model, greedy, 0)
    assert wrong == 0
    assert worst < 1e-4
    drawn = sampled(model, 0.8)
    assert gaps(model, drawn, 0.8)[1] < 1e-4
    turn = greedy[0][0].tokens
    assert turn is not None
    prompt = torch.tensor([turn.prompt])
    said_by_generate = model.generate(
        prompt, max_new_tokens=6, do_sample=False, attention_mask=torch.ones_like(prompt), use_cache=False
    )
    assert said_by_generate[0, len(turn.prompt) :].tolist()[: len(turn.completion)] == list(turn.completion)


def test_there_are_enough_architectures() -> None:
    assert len(KINDS) >= 23


class Forgetful(torch.nn.Module):
    """Answers differently at every call: no way of sampling it can be right."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = tiny_model("llama", vocabulary=len(TOKENIZER), end=TOKENIZER.eos_token_id)
        self.config, self.device, self.calls = self.inner.config, self.inner.device, 0

    def get_input_embeddings(self) -> Any:
        return self.inner.get_input_embeddings()

    def forward(self, *arguments: Any, **settings: Any) -> Any:
        self.calls += 1
        out = self.inner(*arguments, **settings)
        out.logits = out.logits.roll(self.calls, -1)
        return out


def test_what_cannot_be_sampled_is_refused_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"^Forgetful cannot be sampled here: [^\n]*$"):
        LocalPolicy(*_engine(Forgetful()))


def _engine(model: Any) -> tuple[Any, Renderer]:
    renderer = Renderer(TOKENIZER)
    return LocalPolicy.of(model, TOKENIZER, fast=False).engine, renderer


def test_the_general_cache_is_used_where_the_batched_one_would_be_wrong() -> None:
    model = tiny_model("bloom", vocabulary=len(TOKENIZER), end=TOKENIZER.eos_token_id)
    assert isinstance(LocalPolicy.of(model, TOKENIZER).engine.kv_cache, SingleKVCache)


@pytest.mark.parametrize(
    "kind",
    proof_except(
        ["lfm2", "qwen3next", "gemma3", "mamba2"],
        ["lfm2", "qwen3next", "gemma3", "falcon-h1", "mamba", "mamba2"],
        group="architectures",
    ),
)
def test_states_and_windows_of_many_long_conversations(kind: str) -> None:
    """More rows and positions than a cache begins with; beginnings and whole prompts that several have in common."""
    model = tiny_model(kind, vocabulary=len(TOKENIZER), end=None)
    policy = LocalPolicy.of(model, TOKENIZER, SamplingOptions(max_tokens=4))
    assert isinstance(policy.engine.kv_cache, BatchedKVCache)

    async def talk(number: int) -> list[Completion]:
        rng = random.Random(number // 3)  # three siblings of each
        messages: list[Message] = [system("You are X." * 12), user(rng.choice(TEXTS) * rng.randint(1, 3))]
        out = []
        for _ in range(3):
            out.append(await policy.complete(messages, key=f"k{number}"))
            messages = [*messages, out[-1].message, user(rng.choice(TEXTS)[: rng.randint(1, 20)])]
        policy.release(f"k{number}")
        return out

    async def talks() -> list[list[Completion]]:
        return await asyncio.gather(*(talk(number) for number in range(90)))

    conversations = asyncio.run(talks())
    assert len({turns[0].tokens.completion for turns in conversations[:3] if turns[0].tokens}) > 1
    assert gaps(model, conversations, 1.0)[1] < 1e-4
