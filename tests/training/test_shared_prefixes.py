"""New conversations that begin alike are read once, and answer as if each had been read by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import torch

from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local import kv_cache as room
from wanderlust.policies.local.fast_llama import FastLlamaPass
from wanderlust.policies.local.kv_cache import _families
from wanderlust.policies.local.rows import Context, RowPool
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.types import Completion, Message, assistant, system, user

RULES = "One of the numbered cells, which are free, is yours to take."
TOKENIZER = fresh_tokenizer([RULES, "What about 0 1 2 3 4 5 6 7 8 9?", "<move>3</move>"] * 20)
EXAMPLES: tuple[Message, ...] = (
    system(RULES * 3),
    user("What about 0 1 2?"),
    assistant("<move>3</move>"),
    user("What about 4 5 6?"),
    assistant("<move>7</move>"),
)


def policy() -> LocalPolicy:
    return LocalPolicy.of(
        fresh_model(TOKENIZER, ModelShape(positions=512), seed=1), TOKENIZER, SamplingOptions(max_tokens=12), seed=5
    )


def asked(policy: LocalPolicy, numbers: Sequence[int], *, alone: bool) -> list[list[Completion]]:
    async def talk(number: int) -> list[Completion]:
        messages = [*EXAMPLES, user(f"What about {number} {number // 2} 9?")]
        first = await policy.complete(messages, key=f"k{number}")
        more = [*messages, first.message, user("And 5?")]
        return [first, await policy.complete(more, key=f"k{number}")]

    async def go() -> list[list[Completion]]:
        if alone:
            return [await talk(n) for n in numbers]
        return await asyncio.gather(*map(talk, numbers))

    return asyncio.run(go())


def test_together_they_read_less_and_say_the_same() -> None:
    numbers = [*range(20), 3, 3]
    numbers = [*dict.fromkeys(numbers)]
    apart, together = policy(), policy()
    first, second = asked(apart, numbers, alone=True), asked(together, numbers, alone=False)
    opening = len(together.renderer.start(EXAMPLES)) - 10
    assert opening > room.MIN_SHARED_PREFIX_TOKENS
    for one, other in zip(first, second, strict=True):
        for was, now in zip(one, other, strict=True):
            assert was.tokens is not None
            assert now.tokens is not None
            assert was.tokens.completion == now.tokens.completion
            assert now.tokens.logprobs == pytest.approx(was.tokens.logprobs, abs=1e-4)


def test_the_opening_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    plan = FastLlamaPass.read

    def counting(self: FastLlamaPass, parts: list[tuple[RowPool, list[Context]]]) -> torch.Tensor:
        read.append(sum(c.end - c.cached_length for _, batch in parts for c in batch))
        return plan(self, parts)

    whole = policy()
    monkeypatch.setattr(FastLlamaPass, "read", counting)
    asked(whole, range(20), alone=False)
    length = len(whole.renderer.start([*EXAMPLES, user("What about 1 0 9?")]))
    assert read[0] > room.MIN_SHARED_PREFIX_TOKENS  # the opening, once
    assert read[1] < 20 * (length - read[0] + 4)  # what comes after it, for each
    assert read[0] + read[1] < 0.4 * 20 * length


def test_families_share_what_all_of_them_begin_with() -> None:
    opening = list(range(100))
    one, two = Context(ids=[*opening, 1, 2]), Context(ids=[*opening, 1, 3, 4])
    inside, stranger = Context(ids=opening[:80]), Context(ids=[*range(50, 200)])
    twin = Context(ids=[*range(50, 200)])
    found = list(_families([one, stranger, two, twin, inside]))
    assert [({id(c) for c in family}, common) for family, common in found] == [({id(one), id(two), id(inside)}, 79)]
    assert list(_families([one])) == []
