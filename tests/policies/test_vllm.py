"""Sampling tokens over HTTP and publishing adapters, against our own server: vLLM's routes without a GPU; SGLang's."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from aiohttp import web
from aiohttp.test_utils import TestServer

import templates
from templates import tokenizer_with
from wanderlust.environment import SingleTurnEnvironment
from wanderlust.errors import PolicyFailure, StoreError, UsageError
from wanderlust.policies import endpoint
from wanderlust.policies.base import SampledTokens, SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.lora import adapt, save_adapter, with_adapter
from wanderlust.policies.sglang import SGLang
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.policies.vllm import VLLM
from wanderlust.runner.engine import rollout
from wanderlust.serving.http import AgentServer, start_app
from wanderlust.serving.local_models import adapter_loader, make_served_model
from wanderlust.serving.model_api import MAX_ADAPTERS, ModelAPI
from wanderlust.training.tiny_model import ModelShape, fresh_model
from wanderlust.types import Status, Task, user

TOKENIZER = tokenizer_with(templates.HERMES)
RENDERER = Renderer(TOKENIZER)
PROMPT = RENDERER.start([user("hello")])
TEN = SamplingOptions(max_tokens=10)


def model():
    return fresh_model(TOKENIZER, ModelShape(width=32, layers=2, inner=48), seed=3)


def trained(steps: int = 4):
    """A model whose adapters have learnt something, by AdamW."""
    learner = model()
    adapt(learner, rank=4, seed=0)
    optimizer = torch.optim.AdamW([p for p in learner.parameters() if p.requires_grad], lr=0.05)
    ids = torch.tensor([TOKENIZER.encode("hello world" * 4)])
    for _ in range(steps):
        loss = learner(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return learner.eval()


@torch.no_grad()
def logprobs(of, prompt, ids, temperature: float = 1.0):
    plain = (of(torch.tensor([[*prompt, *ids]])).logits[0] / temperature).log_softmax(-1)
    return [float(plain[place - 1, token]) for place, token in enumerate(ids, len(prompt))]


def serving(program, **options):
    """What `await program(vllm, models)` returns while a model is served."""

    async def go():
        base = make_served_model("tiny", model(), TOKENIZER)
        models = ModelAPI(base, load_adapter=adapter_loader(base))
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(AgentServer())
            key = await stack.enter_async_context(server.serving(models))
            vllm = VLLM(server.url, "tiny", api_key=key, ends=RENDERER.end_ids, **options)
            return await program(await stack.enter_async_context(vllm), models)

    return asyncio.run(go())


def test_tokens_and_logprobs_are_those_of_the_model_and_keys_draw_equally():
    async def program(vllm, models):
        asked = [vllm.sample(PROMPT, TEN, key=key) for key in (1, 1, 2, 3)]
        return await asyncio.gather(*asked)

    one, again, *others = serving(program)
    assert one == again
    assert all(other.ids != one.ids for other in others)
    for sampled in (one, *others):
        assert sampled.logprobs == pytest.approx(logprobs(model(), PROMPT, sampled.ids), abs=1e-4)
        assert sampled.finish == ("stop" if sampled.ids[-1] in RENDERER.end_ids else "length")


def test_an_adapter_that_was_trained_is_published_and_sampled_from(tmp_path):
    learner = trained()

    async def program(vllm, models):
        before = await vllm.sample(PROMPT, TEN, key=1)
        names, sampled = [], []
        for version in (1, 2, 3):
            save_adapter(tmp_path / f"{version}", learner)
            assert await vllm.publish(tmp_path / f"{version}") == version
            names.append([*models.models])
            sampled.append(await vllm.sample(PROMPT, TEN, key=1))
        await vllm.close()
        return before, sampled, names, [*models.models], await vllm.sample(PROMPT, TEN, key=1)

    before, sampled, names, left, after = serving(program)
    assert [one.version for one in sampled] == [1, 2, 3]
    for one in sampled:
        assert one.logprobs == pytest.approx(logprobs(learner, PROMPT, one.ids), abs=1e-4)
    gap = max(abs(a - b) for a, b in zip(before.logprobs, logprobs(learner, PROMPT, before.ids), strict=True))
    assert gap > 0.01
    assert [len(listed) for listed in names] == [2, 3, 3]
    assert len({name for listed in names for name in listed}) == 4
    assert (left, after.ids) == (["tiny"], before.ids)


def test_a_saved_adapter_is_one_that_peft_itself_reads(tmp_path):
    learner = trained()
    save_adapter(tmp_path / "a", learner)
    weights = peft.utils.load_peft_weights(str(tmp_path / "a"))
    assert all(name.startswith("base_model.model.model.layers.") for name in weights)
    settings = json.loads((tmp_path / "a" / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"], "q_proj" in settings["target_modules"]) == (4, 32, True)
    merged = with_adapter(model(), tmp_path / "a")
    ids = TOKENIZER.encode("hello world")
    assert logprobs(merged, PROMPT, ids) == pytest.approx(logprobs(learner, PROMPT, ids), abs=1e-5)


def test_what_is_no_adapter_of_this_model_is_told(tmp_path):
    with pytest.raises(UsageError, match="no adapters to save"):
        save_adapter(tmp_path / "a", model())
    with pytest.raises(StoreError, match="cannot load the adapter"):
        with_adapter(model(), tmp_path)
    wide = fresh_model(TOKENIZER, ModelShape(width=64, layers=3, inner=48), seed=3)
    adapt(wide, rank=2, seed=0)
    save_adapter(tmp_path / "wide", wide)
    with pytest.raises(StoreError, match="cannot load the adapter"):
        with_adapter(model(), tmp_path / "wide")

    async def program(vllm, models):
        with pytest.raises(PolicyFailure, match="cannot load the adapter") as told:
            await vllm.publish(tmp_path / "wide")
        assert "\n" not in str(told.value)
        return vllm.version, [*models.models], await vllm.sample(PROMPT, TEN, key=1)

    version, left, sampled = serving(program)
    assert (version, left, sampled.version) == (0, ["tiny"], 0)


def test_there_is_room_for_so_many_adapters(tmp_path):
    save_adapter(tmp_path / "a", trained(0))

    async def program(vllm, models):
        for number in range(MAX_ADAPTERS):
            await vllm._adapter("load", {"lora_name": f"{number}", "lora_path": str(tmp_path / "a")})
        for name in ("8", "0", "tiny"):
            with pytest.raises(PolicyFailure, match="HTTP 400"):
                await vllm._adapter("load", {"lora_name": name, "lora_path": str(tmp_path / "a")})
        with pytest.raises(PolicyFailure, match="HTTP 404"):
            await vllm._adapter("unload", {"lora_name": "tiny"})

    serving(program)


ENV = SingleTurnEnvironment([Task(id="t", prompt=(user("hello"),))])


def test_rollouts_through_it_have_exact_tokens():
    async def program(vllm, models):
        policy = TokenPolicy(vllm, RENDERER, TEN)
        return await rollout(ENV, next(iter(ENV.tasks())), policy)

    played = serving(program)
    (turn,) = played.trajectory.turns
    assert turn.tokens.prompt == PROMPT
    assert turn.tokens.logprobs == pytest.approx(logprobs(model(), PROMPT, turn.tokens.completion), abs=1e-4)


def test_temperatures_whose_logprobs_would_be_wrong_are_refused():
    async def program(vllm, models):
        return await vllm.sample(PROMPT, SamplingOptions(temperature=0.5, max_tokens=5), key=1)

    with pytest.raises(UsageError, match="processed_logprobs"):
        serving(program)
    sampled = serving(program, processed=True)
    assert sampled.logprobs == pytest.approx(logprobs(model(), PROMPT, sampled.ids, 0.5), abs=1e-4)

    async def cut(vllm, models):
        await vllm.sample(PROMPT, SamplingOptions(top_p=0.9), key=1)

    serving(cut)
    with pytest.raises(UsageError, match="top_p"):
        serving(cut, processed=True)


def test_a_server_that_goes_away_fails_the_rollout_in_one_line(monkeypatch):
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.01)

    async def go():
        base = make_served_model("tiny", model(), TOKENIZER)
        async with AgentServer() as server, server.serving(ModelAPI(base)) as key:
            vllm = VLLM(server.url, "tiny", api_key=key)
            policy = TokenPolicy(vllm, RENDERER, TEN)
            first = await rollout(ENV, next(iter(ENV.tasks())), policy)
        return first, await rollout(ENV, next(iter(ENV.tasks())), policy)

    first, second = asyncio.run(go())
    assert first.status is Status.DONE
    assert (second.status, second.stop_reason, second.transient) == (Status.ERROR, "PolicyFailure", True)
    assert "cannot connect" in second.error
    assert "\n" not in second.error


def answering(*answers):
    """What a sampler gets from a server that answers so, one after the other."""

    async def handle(request):
        asked.append(await request.json())
        return web.json_response(*answers[min(len(asked), len(answers)) - 1])

    asked = []

    async def go():
        app = web.Application()
        app.router.add_post("/v1/completions", handle)
        async with TestServer(app) as server:
            return await VLLM(str(server.make_url("/v1")), "m").sample([1, 2], TEN, key=2**64 - 1)

    return go, asked


def said(**choice):
    whole = {"token_ids": [5], "prompt_token_ids": [1, 2], "finish_reason": "stop"}
    return {"choices": [{**whole, "logprobs": {"token_logprobs": [-0.5]}, **choice}]}


def test_a_server_that_stumbles_is_asked_again(monkeypatch):
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.01)
    go, asked = answering((said(token_ids=None),), (said(),))
    assert asyncio.run(go()).ids == (5,)
    assert len(asked) == 2
    assert 0 <= asked[0]["seed"] < 2**63
    assert (asked[0]["top_k"], asked[0]["repetition_penalty"], asked[0]["min_p"]) == (-1, 1.0, 0.0)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"choices": []}, "no token ids"),
        (said(token_ids=[5, 6]), "2 token ids with 1 log-prob"),
        (said(prompt_token_ids=[1]), "read other ids"),
        (said(finish_reason="abort"), "ended as 'abort'"),
        (said(logprobs=None), "no token ids with log-prob"),
    ],
)
def test_inexact_answers_are_failures(monkeypatch, answer, why):
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.01)
    go, asked = answering((answer,))
    with pytest.raises(PolicyFailure, match=why):
        asyncio.run(go())
    assert len(asked) == endpoint.MAX_ATTEMPTS


def told(ids: list[int], *, prompt: int, finish: str = "stop") -> dict[str, Any]:
    """An answer of SGLang's `/generate`, as its documentation has it."""
    logprobs = [[-0.25 * (n + 1), token, None] for n, token in enumerate(ids)]
    info = {"id": "1", "finish_reason": {"type": finish}, "prompt_tokens": prompt, "weight_version": "default"}
    info |= {"completion_tokens": len(ids), "cached_tokens": 0, "output_token_logprobs": logprobs}
    return {"text": "said", "output_ids": ids, "meta_info": info}


DONE = {"success": True, "message": "", "error_message": ""}
CONVERSATION: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("/generate", {"input_ids": [1, 2, 3], "return_logprob": True}, told([7, 8], prompt=3)),
    ("/load_lora_adapter", {"lora_path": "/adapter"}, {**DONE, "loaded_adapters": {}}),
    ("/generate", {"input_ids": [1, 2, 3]}, told([9], prompt=3, finish="length")),
    ("/pause_generation", {"mode": "retract"}, {"status": "ok"}),
    ("/update_weights_from_disk", {"model_path": "/weights", "weight_version": "5", "flush_cache": True}, DONE),
    ("/continue_generation", {}, {"status": "ok"}),
    ("/pause_generation", {"mode": "retract"}, {"status": "ok"}),
    ("/update_weights_from_disk", {"model_path": "/none"}, {"success": False, "message": "no such folder"}),
    ("/continue_generation", {}, {"status": "ok"}),
    ("/unload_lora_adapter", {}, DONE),
]
"""Path, some of what must be sent there, and the answer."""


def test_sglang_is_spoken_to_as_its_documentation_says() -> None:
    """A written conversation, replayed: no real server took part."""
    asked: list[tuple[str, dict[str, Any]]] = []

    async def replay(request: web.Request) -> web.Response:
        path, wanted, answer = CONVERSATION[len(asked)]
        body = await request.json()
        asked.append((request.path, body))
        assert request.path == path
        assert {name: body.get(name) for name in wanted} == wanted
        return web.json_response(answer)

    async def story() -> None:
        app = web.Application()
        app.router.add_post("/{call}", replay)
        listening = await start_app(app, "127.0.0.1", 0)
        sampling = SamplingOptions(max_tokens=4, stop=("end",))
        async with SGLang(f"{listening.url}/v1", "base", ends=frozenset({2})) as client:
            first = await client.sample([1, 2, 3], sampling, key=2**63 + 5)
            assert first == SampledTokens(ids=(7, 8), logprobs=(-0.25, -0.5), finish="stop", version=0)
            assert await client.publish(Path("/adapter")) == 1
            second = await client.sample([1, 2, 3], sampling, key=6)
            assert (second.ids, second.finish, second.version) == ((9,), "length", 1)
            assert await client.load_weights(Path("/weights"), version=5) == 5
            with pytest.raises(PolicyFailure, match="update_weights_from_disk failed: no such folder"):
                await client.load_weights(Path("/none"))
            assert client.version == 5
            await client.close()
        await listening.close()

    asyncio.run(story())
    for wrong, why in (
        (told([5], prompt=4), "the server read 4 ids and was sent 1"),
        (told([], prompt=1), "no token ids with log-probabilities"),
        (told([5], prompt=1, finish="abort"), "the answer ended as 'abort'"),
        ({"text": "said"}, "no token ids with log-probabilities"),
    ):
        with pytest.raises(PolicyFailure, match=why):
            SGLang("http://127.0.0.1:9/v1", "base")._read(json.dumps(wrong).encode(), [4], 0)
    assert [path for path, _ in asked] == [path for path, _, _ in CONVERSATION]
    params = asked[0][1]["sampling_params"]
    assert (params["max_new_tokens"], params["temperature"], params["sampling_seed"]) == (4, 1.0, 5)
    assert (params["stop"], params["stop_token_ids"], params["no_stop_trim"]) == (["end"], [2], True)
    assert "lora_path" not in asked[0][1]
    assert asked[2][1]["lora_path"] == asked[1][1]["lora_name"] == asked[-1][1]["lora_name"]
