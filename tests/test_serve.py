"""`wander serve`: a model of ours behind OpenAI's API, asked by the SDK, by hand and by our own endpoint policy."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence

import aiohttp
import pytest
import torch

import templates
from templates import tokenizer_with
from wanderlust.core.errors import PolicyFailure, UsageError
from wanderlust.core.messages import user
from wanderlust.core.types import Task
from wanderlust.environments.shapes import ToolEnvironment
from wanderlust.policies.asked import text_order
from wanderlust.policies.dialects import HERMES, LLAMA
from wanderlust.policies.endpoint import Endpoint
from wanderlust.policies.models import Models, Served
from wanderlust.policies.render import Renderer
from wanderlust.policies.sampling import Heard, Sampled, Sampling
from wanderlust.policies.server import Server
from wanderlust.policies.speech import Speech
from wanderlust.rollout.engine import rollout
from wanderlust.studio.cli import main
from wanderlust.studio.serving_models import served
from wanderlust.tools.function import FunctionTool
from wanderlust.train.checkpoint import save_pretrained
from wanderlust.train.fresh import Shape, fresh_model
from wanderlust.train.samples import to_samples

openai = pytest.importorskip("openai", reason="the SDK is not installed: pip install 'wanderlust[openai]'")

TOKENIZER = tokenizer_with(templates.HERMES)
SHAPE = Shape(width=32, layers=2, inner=48, positions=1024)
MODEL = fresh_model(TOKENIZER, SHAPE, seed=3)
ASK = [{"role": "user", "content": "hello"}]


def models(**more) -> Models:
    return Models(served("tiny", MODEL, TOKENIZER), Sampling(max_tokens=12), **more)


class Says:
    """A sampler that says given texts, one id at a time."""

    def __init__(self, *texts: str, tokenizer=TOKENIZER):
        self.texts, self.tokenizer, self.prompts, self.released = list(texts), tokenizer, [], []

    async def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, key: int, session: str = "", heard: Heard | None = None
    ) -> Sampled:
        self.prompts.append((tuple(prompt), session))
        ids = (*self.tokenizer.encode(self.texts.pop(0), add_special_tokens=False), self.tokenizer.eos_token_id)
        logprobs = tuple(-n / 8 for n in range(len(ids)))
        for end in range(1, len(ids) + 1):
            if heard is not None:
                heard(ids[:end], logprobs[:end])
                await asyncio.sleep(0)
        return Sampled(ids=ids, logprobs=logprobs, finish="stop")

    def release(self, session: str) -> None:
        self.released.append(session)


def saying(*texts: str, template: str = templates.HERMES, **more) -> tuple[Models, Says]:
    tokenizer = tokenizer_with(template)
    says = Says(*texts, tokenizer=tokenizer)
    model = Served(name="tiny", sampler=says, renderer=Renderer(tokenizer), positions=4096, vocabulary=len(tokenizer))
    return Models(model, **more), says


def asked(front, program):
    """What `await program(client, url, key)` returns while the models are served."""

    async def go():
        async with Server() as server, server.serving(front) as key:
            async with openai.AsyncOpenAI(base_url=server.url, api_key=key, max_retries=0) as client:
                return await program(client, server.url, key)

    return asyncio.run(go())


LOOK = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
CALL = '<tool_call>\n{"name": "look", "arguments": {"n": 1}}\n</tool_call>'


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
    assert choice.message.content == Renderer(TOKENIZER).answer(ids).content == again.choices[0].message.content
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

        async def sample(self, prompt, sampling, *, key, session="", heard=None):
            ids = tuple(TOKENIZER.encode("hello world"))
            heard(ids[:1], (0.0,))
            await self.go.wait()
            return Sampled(ids=ids, logprobs=(0.0,) * len(ids), finish="length")

    says = Waits()
    model = Served(name="tiny", sampler=says, renderer=Renderer(TOKENIZER), positions=99, vocabulary=len(TOKENIZER))

    async def program(client, url, key):
        said = ""
        async with await client.chat.completions.create(model="tiny", messages=ASK, stream=True) as stream:
            async for chunk in stream:
                said += chunk.choices[0].delta.content or ""
                if said:
                    says.go.set()
        return said

    assert asked(Models(model), program) == "hello world"


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


def test_tool_calls_are_called_and_results_continue_the_same_ids():
    front, says = saying(f"Let me see.\n{CALL}\n{CALL}", "It is 2.", "So it is.")

    async def program(client, url, key):
        messages = [*ASK]
        first = await client.chat.completions.create(model="tiny", messages=messages, tools=[LOOK])
        said = first.choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "2"} for call in said.tool_calls]
        second = await client.chat.completions.create(model="tiny", messages=messages, tools=[LOOK])
        messages += [{"role": "assistant", "content": " It is 2. "}, {"role": "user", "content": "sure?"}]
        return first, second, await client.chat.completions.create(model="tiny", messages=messages, tools=[LOOK])

    first, second, third = asked(front, program)
    (choice,) = first.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    assert [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls] == [
        ("look", {"n": 1})
    ] * 2
    assert second.choices[0].message.content == "It is 2."
    (one, session), (two, same), (three, still) = says.prompts
    assert session == same == still
    sampled = says.tokenizer.encode(f"Let me see.\n{CALL}\n{CALL}", add_special_tokens=False)
    assert two[: len(one) + len(sampled)] == (*one, *sampled)
    assert three[: len(two)] == two
    assert says.released == []


def test_calls_stream_after_the_text_and_marks_are_never_shown():
    async def program(client, url, key):
        stream = await client.chat.completions.create(model="tiny", messages=ASK, tools=[LOOK], stream=True)
        return [chunk.choices[0] async for chunk in stream]

    chunks = asked(saying(f"Let me see.\n{CALL}")[0], program)
    pieces = [chunk.delta.content for chunk in chunks if chunk.delta.content]
    assert "".join(pieces).strip() == "Let me see."
    assert len(pieces) > 1
    (call,) = [call for chunk in chunks for call in chunk.delta.tool_calls or ()]
    assert (call.index, call.function.name, json.loads(call.function.arguments)) == (0, "look", {"n": 1})
    assert chunks[-1].finish_reason == "tool_calls"


def test_broken_calls_stay_text():
    broken = "Well. <tool_call>{not json</tool_call>"

    async def program(client, url, key):
        whole = await client.chat.completions.create(model="tiny", messages=ASK, tools=[LOOK])
        stream = await client.chat.completions.create(model="tiny", messages=ASK, tools=[LOOK], stream=True)
        return whole.choices[0], "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    choice, streamed = asked(saying(broken, broken)[0], program)
    assert choice.finish_reason == "stop"
    assert choice.message.tool_calls is None
    assert choice.message.content.split() == streamed.split() == broken.split()


def test_stop_texts_are_cut_off_and_never_streamed():
    async def program(client, url, key):
        whole = await client.chat.completions.create(model="tiny", messages=ASK, stop=["END", "x"])
        stream = await client.chat.completions.create(model="tiny", messages=ASK, stop="END", stream=True)
        return whole.choices[0].message.content, [c.choices[0].delta.content or "" async for c in stream]

    whole, pieces = asked(saying("so EN END more", "so EN END more")[0], program)
    assert whole == "".join(pieces) == "so EN "


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
    ({"messages": ASK, "response_format": {"type": "json_object"}}, 400, "response_format"),
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
        async def sample(self, prompt, sampling, *, key, session="", heard=None):
            raise PolicyFailure("out of memory")

    model = Served(name="tiny", sampler=Fails(), renderer=Renderer(TOKENIZER), positions=99, vocabulary=300)

    async def program(client, url, key):
        with pytest.raises(openai.InternalServerError, match="out of memory"):
            await client.chat.completions.create(model="tiny", messages=ASK)
        with pytest.raises(openai.APIError, match="out of memory"):
            async for _ in await client.chat.completions.create(model="tiny", messages=ASK, stream=True):
                pass

    asked(Models(model), program)


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
    front = models()
    engine = front.models["tiny"].sampler.engine

    async def program(client, url, key):
        stream = await client.chat.completions.create(model="tiny", messages=ASK, stream=True, max_tokens=900)
        async for _ in stream:
            break
        await stream.close()
        while engine._running or engine._waiting:
            await asyncio.sleep(0.01)
        return engine.counters.sampled

    assert asked(front, program) < 900


def test_our_endpoint_policy_records_tokens_that_merge_over_turns():
    def look(n: int = 0) -> str:
        """Looks."""
        return f"it is {n}"

    task = Task(id="t", prompt=(user("look"),))
    env = ToolEnvironment([task], tools=[FunctionTool(look)])
    front, says = saying(f"so {CALL}", "done")

    async def program(client, url, key):
        return await rollout(env, task, Endpoint(url, "tiny", api_key=key))

    played = asked(front, program)
    assert played.error is None
    trajectory = played.trajectory
    assert [turn.tokens is not None and turn.tokens.offset > 0 for turn in trajectory.turns] == [False, True]
    (sample,) = to_samples(trajectory)
    last = says.prompts[-1][0]
    end = [*says.tokenizer.encode("done", add_special_tokens=False), says.tokenizer.eos_token_id]
    assert sample.ids == [*last, *end]
    assert sum(sample.mask) == sum(len(turn.tokens.completion) for turn in trajectory.turns)


def test_speech_is_the_text_in_pieces():
    renderer = Renderer(TOKENIZER)
    for text in ("héllo wörld 🙂 so", "a <tool_calls are not", '{"name": 1}', "  x"):
        ids = TOKENIZER.encode(text, add_special_tokens=False)
        for dialect in (None, HERMES, LLAMA):
            speech = Speech(TOKENIZER.decode, ends=renderer.end_ids, dialect=dialect)
            said = "".join(speech.more(ids[:end]) for end in range(1, len(ids) + 1))
            assert said + speech.rest(text) == text


def test_options_that_do_nothing_may_stand():
    body = {"prompt": "x", "top_k": -1, "repetition_penalty": 1.0, "user": "me", "logit_bias": None}
    assert text_order(body, Sampling()).prompts == ["x"]
    with pytest.raises(UsageError, match="top_k"):
        text_order({"prompt": "x", "top_k": 50}, Sampling())


# --- the command ---


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny"
    save_pretrained(path, MODEL, TOKENIZER)
    return path


def test_the_command_serves_until_it_is_stopped(checkpoint):
    command = [sys.executable, "-m", "wanderlust.studio.cli", "serve", checkpoint, "--port", "0", "--json"]
    env = {name: value for name, value in os.environ.items() if name != "WANDER_API_KEY"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        told = json.loads("".join(process.stdout.readline() for _ in range(5)))
        with openai.OpenAI(base_url=told["url"], api_key=told["api_key"], max_retries=0) as client:
            done = client.chat.completions.create(model=told["model"], messages=ASK, max_tokens=3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
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
            ["serve", str(checkpoint), "--port", port],
            ["serve", "smolm2"],
            ["serve", ".", "--api-key", "NO"],
        ):
            with pytest.raises(SystemExit) as ended:
                main(words)
            assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"wander: cannot listen on 127.0.0.1:{port}: ")
    assert "smollm2" in lines[1]
    assert lines[2] == "wander: the environment variable NO is not set: it is to hold the API key"
    assert len(lines) == 3


def test_answers_of_the_same_conversation_do_not_depend_on_memory():
    remembering, says = saying("one", "two")
    forgetful, alone = saying("one", "two")
    follow = [*ASK, {"role": "assistant", "content": "one"}, {"role": "user", "content": "more"}]

    async def program(client, url, key):
        for messages in (ASK, follow):
            await client.chat.completions.create(model="tiny", messages=messages)

    asked(remembering, program)

    async def split(client, url, key):
        await client.chat.completions.create(model="tiny", messages=ASK)
        forgetful.models["tiny"].remembered.clear()
        await client.chat.completions.create(model="tiny", messages=follow)

    asked(forgetful, split)
    assert [ids for ids, _ in says.prompts] == [ids for ids, _ in alone.prompts]
