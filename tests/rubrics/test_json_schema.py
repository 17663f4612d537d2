"""Answers that are held to a JSON schema: by the local engine, over `wander serve`, and by real vLLM."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.peer import VLLM_CPU, made
from jsonschema import validate

import toys
from wanderlust.errors import PolicyFailure, RubricFailure
from wanderlust.policies.base import NOT_SAMPLED, SamplingOptions
from wanderlust.policies.local import LocalPolicy
from wanderlust.policies.local.inference_engine import draw_tokens, uniforms
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.policies.local.smollm2 import fetch_smollm2
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.policies.vllm import VLLM
from wanderlust.policies.vllm_servers import VLLMOptions, start_vllm_servers
from wanderlust.rubrics.judge import Judge, JudgeOptions
from wanderlust.rubrics.model_request import object_format
from wanderlust.rubrics.rubric import RewardResult
from wanderlust.serving.http import AgentServer
from wanderlust.serving.local_models import make_served_model
from wanderlust.serving.model_api import ModelAPI
from wanderlust.types import AnswerOptions, user

PERSON = object_format(
    "person",
    {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
)
ANY = {"type": "json_object"}


@pytest.fixture(scope="module")
def small() -> LocalPolicy:
    return LocalPolicy.of(*load_pretrained(fetch_smollm2()), SamplingOptions(max_tokens=40), seed=0)


def asked(policy: Any, form: Any, *texts: str) -> list[Any]:
    async def story() -> list[Any]:
        options = AnswerOptions(response_format=form)
        asks = (policy.complete_with_options(options, [user(text)], key=text) for text in texts)
        return list(await asyncio.gather(*asks))

    return asyncio.run(story())


def test_every_draw_keeps_to_the_schema_at_any_temperature(small: LocalPolicy) -> None:
    options = AnswerOptions(response_format=PERSON)

    async def story() -> list[Any]:
        asks = (
            small.with_sampling(SamplingOptions(max_tokens=40, temperature=temperature)).complete_with_options(
                options, [user(text)], key=f"{temperature}/{text}"
            )
            for temperature in (0.0, 2.0)
            for text in ("Tell me about Anna, aged 30.", "Say nothing but: sorry, no.")
        )
        return await asyncio.gather(*asks)

    for one in asyncio.run(story()):
        validate(json.loads(one.message.content), PERSON["json_schema"]["schema"])
        assert one.finish == NOT_SAMPLED


def test_others_in_the_batch_answer_as_they_do_alone(small: LocalPolicy) -> None:
    policy = small.with_sampling(SamplingOptions(max_tokens=16))

    async def story(*, together: bool) -> list[str]:
        held = policy.complete_with_options(AnswerOptions(response_format=PERSON), [user("Who?")], key="held")
        free = policy.complete([user("Count to five.")], key="free")
        done = await asyncio.gather(held, free) if together else [await held, await free]
        for key in ("held", "free"):
            policy.release(key)
        return [one.message.content for one in done]

    assert asyncio.run(story(together=True)) == asyncio.run(story(together=False))


def test_log_probabilities_are_those_of_all_tokens(small: LocalPolicy) -> None:
    (done,) = asked(small, ANY, "Describe a cat as JSON.")
    tokens = done.tokens
    scored = asyncio.run(small.local_sampler.score(tokens.prompt, [tokens.completion]))
    assert sum(tokens.logprobs) == pytest.approx(scored[0], abs=1e-2)


def test_a_mask_leaves_the_shares_of_what_is_allowed() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.1, 0.1]])).repeat(4000, 1)
    allowed = torch.tensor([[False, True, False, True]]).repeat(4000, 1)
    one = torch.ones(4000)
    u = uniforms([*range(4000)], [1] * 4000)
    tokens, logprobs = draw_tokens(logits, u, temperature=one, top_p=one, allowed=allowed)
    assert set(tokens.tolist()) == {1, 3}
    assert (tokens == 1).float().mean().item() == pytest.approx(0.75, abs=0.03)
    assert logprobs[tokens == 1][0].exp().item() == pytest.approx(0.3)
    greedy, _ = draw_tokens(logits[:1], u[:1], temperature=torch.zeros(1), top_p=torch.ones(1), allowed=allowed[:1])
    assert greedy.tolist() == [1]


def test_a_tokenizer_whose_tokens_have_no_bytes_is_one_line() -> None:
    policy = LocalPolicy.of(toys.fresh(0), toys.TOKENIZER, SamplingOptions(max_tokens=8), seed=0)
    with pytest.raises(PolicyFailure, match="cannot be held to this JSON schema"):
        asked(policy, ANY, "abc")
    assert asyncio.run(policy.complete([user("abc")])).message.content is not None


def test_what_cannot_be_held_to_is_one_line(small: LocalPolicy) -> None:
    broken = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}
    with pytest.raises(PolicyFailure, match="cannot be held to this JSON schema") as told:
        asked(small, broken, "Who?")
    assert "\n" not in str(told.value)

    class Elsewhere:
        async def sample(self, prompt: Any, sampling: Any, *, key: int, session: str = "") -> Any: ...
        def release(self, session: str) -> None: ...

    policy = TokenPolicy(Elsewhere(), small.renderer)
    assert policy.unsupported_option(AnswerOptions(response_format=ANY)) == "response_format"
    assert small.unsupported_option(AnswerOptions(response_format=ANY)) == ""


def test_a_small_judge_gives_a_verdict_that_can_be_read_every_time(small: LocalPolicy) -> None:
    policy = small.with_sampling(SamplingOptions(max_tokens=120, temperature=1.0))

    async def failures(*, schema: bool) -> int:
        judge = Judge(policy=policy, options=JudgeOptions(schema=schema, attempts=1))
        asks = (judge(prompt=f"What is {n} + 1?", completion=str(n), answer=str(n + 1)) for n in range(3))
        found = await asyncio.gather(*asks, return_exceptions=True)
        assert all(isinstance(one, RewardResult | RubricFailure) for one in found)
        return sum(isinstance(one, RubricFailure) for one in found)

    async def both() -> list[int]:
        return await asyncio.gather(failures(schema=True), failures(schema=False))

    held, free = asyncio.run(both())
    assert held <= 1  # a reason may be longer than an answer
    assert free > held


def held_over_http(sampler: Any, small: LocalPolicy) -> str:
    async def story() -> str:
        async with AsyncExitStack() as stack:
            policy = TokenPolicy(await sampler(stack), small.renderer, SamplingOptions(max_tokens=40))
            options = AnswerOptions(response_format=PERSON)
            return (await policy.complete_with_options(options, [user("Who are you?")], key="k")).message.content

    return asyncio.run(story())


def test_a_server_of_ours_holds_answers_to_a_schema(small: LocalPolicy) -> None:
    async def ours(stack: AsyncExitStack) -> VLLM:
        server = await stack.enter_async_context(AgentServer())
        model = make_served_model("small", small.engine.model, small.renderer.tokenizer)
        key = await stack.enter_async_context(server.serving(ModelAPI(model)))
        return await stack.enter_async_context(VLLM(server.url, "small", api_key=key))

    validate(json.loads(held_over_http(ours, small)), PERSON["json_schema"]["schema"])


@pytest.mark.skipif(made(VLLM_CPU) is None, reason="vLLM is not installed: make peers")
@pytest.mark.xdist_group("vllm")
def test_real_vllm_holds_answers_to_a_schema(small: LocalPolicy, tmp_path: Path) -> None:
    python = made(VLLM_CPU)
    assert python is not None
    options = VLLMOptions(command=f"{python.parent / 'vllm'} serve", max_context=512, concurrency=4)

    async def theirs(stack: AsyncExitStack) -> Any:
        ends = small.renderer.end_ids
        started = start_vllm_servers(fetch_smollm2(), options, count=1, logs=tmp_path, end_ids=ends)
        return await stack.enter_async_context(started)

    validate(json.loads(held_over_http(theirs, small)), PERSON["json_schema"]["schema"])
