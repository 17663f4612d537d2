"""`wander serve`: a model of ours behind OpenAI's API, asked by the SDK, by hand and by our own endpoint policy."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys

import aiohttp
import pytest
import torch

from patience import PATIENCE
from templates import Says
from wanderlust.cli.main import main
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.policies.base import SampledTokens, SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.policies.streaming_text import StreamingText
from wanderlust.policies.tool_formats.tagged_json import HERMES, LLAMA
from wanderlust.serving.model_api import ModelAPI, ServedModel
from wanderlust.serving.model_requests import parse_completion_request
from wanderlust.types import user

openai = pytest.importorskip("openai", reason="the SDK is not installed: pip install 'wanderlust[openai]'")
from serving import ASK, LOOK, MODEL, TOKENIZER, asked, models  # noqa: E402


def test_chat_with_ids_and_logprobs_is_what_the_model_says():
    async def program(client, url, key):
        listed = await client.models.list()
        done = await client.chat.completions.create(
            model="tiny", messages=ASK, seed=5, logprobs=True, extra_body={"return_token_ids": True}
        )
        again = await client.chat.completions.create(model="tiny", messages=ASK, seed=5)
        other = await client.chat.completions.create(model="tiny", messages=ASK, seed=6)
        return listed, done, again, other

    listed, done, again, other = asked(models(), program)
    assert [model.id for model in listed.data] == ["tiny"]
    (choice,) = done.choices
    prompt, ids = done.prompt_token_ids, choice.token_ids
    assert tuple(prompt) == Renderer(TOKENIZER).start([user("hello")])
    assert choice.message.content == Renderer(TOKENIZER).parse_answer(ids).content == again.choices[0].message.content
    assert other.choices[0].message.content != choice.message.content
    with torch.no_grad():
        plain = MODEL(torch.tensor([[*prompt, *ids]])).logits[0].log_softmax(-1)
    for place, (token, told) in enumerate(zip(ids, choice.logprobs.content, strict=True), len(prompt)):
        assert abs(float(plain[place - 1, token]) - told.logprob) < 1e-4
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (len(prompt), len(ids))


def test_a_stream_brings_tokens_one_by_one_and_adds_up():
    async def program(client, url, key):
        options = {"model": "tiny", "messages": ASK, "seed": 5, "logprobs": True}
        whole = await client.chat.completions.create(**options, extra_body={"return_token_ids": True})
        stream = await client.chat.completions.create(
            **options, stream=True, stream_options={"include_usage": True}, extra_body={"return_token_ids": True}
        )
        return whole, [chunk async for chunk in stream]

    whole, chunks = asked(models(), program)
    deltas = [chunk.choices[0] for chunk in chunks if chunk.choices]
    (choice,) = whole.choices
    assert "".join(delta.delta.content or "" for delta in deltas) == choice.message.content
    assert [token for delta in deltas for token in getattr(delta, "token_ids", None) or ()] == choice.token_ids
    told = [one.logprob for delta in deltas if delta.logprobs for one in delta.logprobs.content]
    assert told == pytest.approx([one.logprob for one in choice.logprobs.content], abs=1e-5)
    assert sum(bool(getattr(delta, "token_ids", None)) for delta in deltas) > 3
    assert chunks[0].prompt_token_ids == whole.prompt_token_ids
    assert deltas[-1].finish_reason == choice.finish_reason
    assert chunks[-1].usage.completion_tokens == len(choice.token_ids)


def test_the_first_chunk_comes_before_the_last_token_is_sampled():
    class Waits(Says):
        go = asyncio.Event()

        async def sample(self, prompt, sampling, *, key, session="", on_tokens=None):
            ids = tuple(TOKENIZER.encode("hello world"))
            on_tokens(ids[:1], (0.0,))
            await self.go.wait()
            return SampledTokens(ids=ids, logprobs=(0.0,) * len(ids), finish="length")

    says = Waits(tokenizer=TOKENIZER)
    model = ServedModel(
        name="tiny", sampler=says, renderer=Renderer(TOKENIZER), max_positions=99, vocabulary_size=len(TOKENIZER)
    )

    async def program(client, url, key):
        said = ""
        async with await client.chat.completions.create(model="tiny", messages=ASK, stream=True) as stream:
            async for chunk in stream:
                said += chunk.choices[0].delta.content or ""
                if said:
                    says.go.set()
        return said

    assert asked(ModelAPI(model), program) == "hello world"


def test_completions_of_texts_and_ids():
    prompt = list(Renderer(TOKENIZER).start([user("hello")]))

    async def program(client, url, key):
        body = {"model": "tiny", "seed": 1, "logprobs": 1, "max_tokens": 4, "extra_body": {"return_token_ids": True}}
        ids = await client.completions.create(prompt=prompt, n=3, **body)
        text = await client.completions.create(prompt=TOKENIZER.decode(prompt), n=3, **body)
        both = await client.completions.create(prompt=[prompt, prompt[:3]], **body)
        stream = await client.completions.create(prompt=prompt, n=3, stream=True, **body)
        pieces = ["", "", ""]
        async for chunk in stream:
            pieces[chunk.choices[0].index] += chunk.choices[0].text
        return ids, text, both, pieces

    ids, text, both, pieces = asked(models(), program)
    assert [choice.index for choice in ids.choices] == [0, 1, 2]
    assert len({choice.text for choice in ids.choices}) > 1
    assert [choice.token_ids for choice in ids.choices] == [choice.token_ids for choice in text.choices]
    assert [choice.prompt_token_ids for choice in both.choices] == [prompt, prompt[:3]]
    assert all(len(choice.logprobs.token_logprobs) == len(choice.token_ids) <= 4 for choice in ids.choices)
    assert pieces == [choice.text for choice in ids.choices]


REFUSED = [
    ({"messages": []}, 400, "without messages"),
    ({"messages": ASK, "model": "gpt"}, 400, "there is no model 'gpt'; there are tiny"),
    ({"messages": ASK, "temperature": -1}, 400, "temperature"),
    ({"messages": ASK, "temperature": 1e400}, 400, ""),
    ({"messages": ASK, "top_p": 0}, 400, "top_p"),
    ({"messages": ASK, "n": 10**9}, 400, "n:"),
    ({"messages": ASK, "max_tokens": 0}, 400, "max_tokens"),
    ({"messages": ASK, "stop": [""]}, 400, "stop"),
    ({"messages": ASK, "presence_penalty": 1.5}, 400, "presence_penalty is not to be had"),
    ({"messages": ASK, "logprobs": True, "top_logprobs": 5}, 400, "only those of the sampled tokens"),
    ({"messages": ASK, "tools": [LOOK], "tool_choice": "required"}, 400, "tool_choice"),
    (
        {"messages": ASK, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 3}}}},
        500,
        "schema",
    ),
    ({"messages": [{"role": "user", "content": "x" * 9000}]}, 400, "tokens and tiny reads"),
    ({"messages": 3}, 400, "messages"),
    ({"prompt": [0, 10**9]}, 400, "is no token id"),
    ({"prompt": []}, 400, "prompt"),
    ({"prompt": [[1], "x", -1]}, 400, "prompt"),
    ({"prompt": {"a": 1}}, 400, "prompt"),
    ({"prompt": ["x"] * 300}, 400, "answers at once"),
    ({"lora_name": "x", "lora_path": "/"}, 404, "there is no POST /load_lora_adapter"),
]


def test_what_cannot_be_done_is_one_line():
    paths = {"messages": "chat/completions", "prompt": "completions", "lora_name": "load_lora_adapter"}

    async def program(client, url, key):
        told = []
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session:
            for body, _, _ in REFUSED:
                path = next(path for name, path in paths.items() if name in body)
                async with session.post(f"{url}/{path}", data=json.dumps(body)) as response:
                    told.append((response.status, (await response.json())["error"]["message"]))
            async with session.get(url.replace("/v1", "/health"), headers={"Authorization": ""}) as response:
                told.append((response.status, await response.text()))
            async with session.post(f"{url}/completions", headers={"Authorization": "Bearer no"}) as response:
                told.append((response.status, await response.text()))
        return told

    *told, health, stranger = asked(models(), program)
    for (status, line), (body, wanted, why) in zip(told, REFUSED, strict=True):
        assert (status, "\n" in line) == (wanted, False), body
        assert why in line, body
    assert health == (200, "")
    assert stranger[0] == 401


def test_a_model_that_fails_is_told_whole_and_in_a_stream():
    class Fails(Says):
        async def sample(self, prompt, sampling, *, key, session="", on_tokens=None):
            raise PolicyFailure("out of memory")

    model = ServedModel(
        name="tiny",
        sampler=Fails(tokenizer=TOKENIZER),
        renderer=Renderer(TOKENIZER),
        max_positions=99,
        vocabulary_size=300,
    )

    async def program(client, url, key):
        with pytest.raises(openai.InternalServerError, match="out of memory"):
            await client.chat.completions.create(model="tiny", messages=ASK)
        with pytest.raises(openai.APIError, match="out of memory"):
            async for _ in await client.chat.completions.create(model="tiny", messages=ASK, stream=True):
                pass

    asked(ModelAPI(model), program)


def test_many_at_once_are_answered_as_if_each_were_alone():
    async def program(client, url, key):
        def one(seed):
            return client.chat.completions.create(model="tiny", messages=ASK, seed=seed)

        together = await asyncio.gather(*(one(seed) for seed in range(40)))
        alone = [await one(seed) for seed in range(0, 40, 13)]
        return [d.choices[0].message.content for d in together], [d.choices[0].message.content for d in alone]

    together, alone = asked(models(), program)
    assert together[::13] == alone
    assert len(set(together)) > 30


def test_a_client_that_hangs_up_ends_its_sampling():
    class Endless(Says):
        def __init__(self):
            super().__init__(tokenizer=TOKENIZER)
            self.left = asyncio.Event()

        async def sample(self, prompt, sampling, *, key, session="", on_tokens=None):
            on_tokens(tuple(self.tokenizer.encode("hello")), (0.0,) * 9)
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()

    says = Endless()
    model = ServedModel(
        name="tiny", sampler=says, renderer=Renderer(TOKENIZER), max_positions=99, vocabulary_size=len(TOKENIZER)
    )

    async def program(client, url, key):
        async with await client.chat.completions.create(model="tiny", messages=ASK, stream=True) as stream:
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    break
        await says.left.wait()

    asked(ModelAPI(model), program)
    assert says.released == ["chat-1"]


def test_speech_is_the_text_in_pieces():
    renderer = Renderer(TOKENIZER)
    for text in ("héllo wörld 🙂 so", "a <tool_calls are not", '{"name": 1}', "  x"):
        ids = TOKENIZER.encode(text, add_special_tokens=False)
        for dialect in (None, HERMES, LLAMA):
            speech = StreamingText(TOKENIZER.decode, ends=renderer.end_ids, tool_call_format=dialect)
            said = "".join(speech.advance(ids[:end]) for end in range(1, len(ids) + 1))
            assert said + speech.remainder(text) == text


def test_options_that_do_nothing_may_stand():
    body = {"prompt": "x", "top_k": -1, "repetition_penalty": 1.0, "user": "me", "logit_bias": None}
    assert parse_completion_request(body, SamplingOptions())[1] == ["x"]
    with pytest.raises(UsageError, match="top_k"):
        parse_completion_request({"prompt": "x", "top_k": 50}, SamplingOptions())


# --- the command ---


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny"
    save_pretrained(path, MODEL, TOKENIZER)
    return path


def test_the_command_serves_until_it_is_stopped(checkpoint):
    command = [sys.executable, "-m", "wanderlust.cli.main", "serve", checkpoint, "--port", "0", "--json"]
    env = {name: value for name, value in os.environ.items() if name != "WANDER_API_KEY"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        told = json.loads("".join(process.stdout.readline() for _ in range(5)))
        with openai.OpenAI(base_url=told["url"], api_key=told["api_key"], max_retries=0) as client:
            done = client.chat.completions.create(model=told["model"], messages=ASK, max_tokens=3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert done.usage.completion_tokens <= 3
    assert (process.returncode, out) == (130, "")
    assert err.splitlines() == ["wander: stopping; requests under way are finished (Ctrl-C again ends at once)"]


def test_a_taken_port_and_an_unknown_name_are_one_line(checkpoint, capsys, monkeypatch):
    monkeypatch.setenv("WANDER_API_KEY", "k")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words in (
            [str(checkpoint), "--port", port],
            ["smolm2"],
            [".", "--api-key", "NO"],
        ):
            with pytest.raises(SystemExit) as ended:
                main(["serve", *words])
            assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"wander: cannot listen on 127.0.0.1:{port}: ")
    assert "smollm2" in lines[1]
    assert lines[2] == "wander: the environment variable NO is not set: it is to hold the API key"
    assert len(lines) == 3
