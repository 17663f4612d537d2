"""The dialects of a seat asked by hand: options, images, stored answers, errors, and what a client may do wrong."""

from __future__ import annotations

import asyncio
import json

import pytest

import templates
from dialects import PATHS, URL, Options, bodies, run, told
from templates import Says, tokenizer_with
from wanderlust.environment import Agent, Limits
from wanderlust.policies.base import NOT_SAMPLED, SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.endpoint import Endpoint
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.scripted import Scripted
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.serving.agent_api import AgentAPI
from wanderlust.serving.http import AgentServer, path_below_version, recognize_style
from wanderlust.training.tiny_model import ModelShape, fresh_model
from wanderlust.types import IMAGE_MARK, AnswerOptions, Completion, Message, ToolCall, assistant

TOKENIZER = tokenizer_with(templates.HERMES)
MODEL = fresh_model(TOKENIZER, ModelShape(width=32, layers=2, inner=48, positions=1024), seed=3)
TOOL = {"type": "object", "properties": {"n": {"type": "integer"}}}


OPTIONS = {
    "openai": {
        "stop": ["a", "b"],
        "max_completion_tokens": 7,
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "parallel_tool_calls": False,
        "logprobs": True,
        "top_logprobs": 2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": TOOL}},
    },
    "responses": {
        "stop": ["a", "b"],
        "max_output_tokens": 7,
        "tool_choice": {"type": "function", "name": "look"},
        "parallel_tool_calls": False,
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": TOOL}},
    },
    "anthropic": {
        "stop_sequences": ["a", "b"],
        "max_tokens": 7,
        "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        "output_config": {"format": {"type": "json_schema", "schema": TOOL}},
    },
    "google": {
        "generationConfig": {
            "stopSequences": ["a", "b"],
            "max_output_tokens": 7,
            "responseLogprobs": True,
            "logprobs": 2,
            "responseMimeType": "application/json",
            "responseSchema": {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}},
        },
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["look"]}},
    },
}


@pytest.mark.parametrize("dialect", PATHS)
def test_options_reach_the_policy_alike_in_every_dialect(dialect):
    async def program(ask):
        return await ask(PATHS[dialect], bodies()[dialect] | OPTIONS[dialect])

    policy = Options()
    (status, _), _ = run(policy, program)
    assert status == 200
    (options,) = policy.asked
    assert options.stop == ("a", "b")
    assert options.max_tokens == 7
    assert (options.tool_choice, options.tool_name) == ("required", "look")
    assert options.response_format["json_schema"]["schema"] == TOOL
    assert options.parallel_tool_calls is (dialect == "google")  # which has no such option
    if dialect != "anthropic":  # which has none
        assert (options.logprobs, options.top_logprobs) == (True, 2)


REFUSED = {
    "openai": [
        ("response_format", {"response_format": OPTIONS["openai"]["response_format"]}),
        ("tool_choice", {"tool_choice": "required"}),
    ],
    "responses": [
        ("text.format", {"text": OPTIONS["responses"]["text"]}),
        ("tool_choice", {"tool_choice": "required"}),
    ],
    "anthropic": [
        ("output_config", {"output_config": OPTIONS["anthropic"]["output_config"]}),
        ("tool_choice", {"tool_choice": {"type": "any"}}),
    ],
    "google": [
        ("responseSchema", {"generationConfig": {"responseSchema": {"type": "OBJECT"}}}),
        ("functionCallingConfig", {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}),
        ("cachedContent", {"cachedContent": "cachedContents/x"}),
        ("speechConfig", {"generationConfig": {"speechConfig": {"voice": "a"}}}),
    ],
}


@pytest.mark.parametrize("dialect", PATHS)
def test_what_a_token_policy_cannot_honour_is_refused_by_its_name_and_can_be_ignored(dialect):
    policy = TokenPolicy(Says(*["yes"] * 9, tokenizer=TOKENIZER), Renderer(TOKENIZER))
    asked = REFUSED[dialect]

    async def program(ask):
        return [(name, told(await ask(PATHS[dialect], bodies()[dialect] | value))) for name, value in asked]

    refused, agent = run(policy, program)
    for name, (status, message) in refused:
        assert (status, f"`{name}`" in message) == (400, True), message
    assert agent.trajectory.turns == []

    async def ignoring(ask):
        return [(await ask(PATHS[dialect], bodies()[dialect] | value))[0] for _, value in asked]

    names = {"response_format", "tool_choice", "cachedContent", "speechConfig"}
    assert set(run(policy, ignoring, ignored_options=names)[0]) == {200}


@pytest.mark.parametrize("dialect", PATHS)
def test_a_local_policy_keeps_to_a_schema_and_an_answer_cut_at_its_limit_says_so(dialect):
    policy = LocalPolicy.of(MODEL, TOKENIZER, SamplingOptions(max_tokens=6))
    ((_, value), *_) = REFUSED[dialect]

    async def program(ask):
        return await ask(PATHS[dialect], bodies()[dialect] | value)

    (status, body), agent = run(policy, program)
    assert status == 200
    reasons = ('"finish_reason":"length"', '"reason":"max_output_tokens"', '"stop_reason":"max_tokens"', '"MAX_TOKENS"')
    assert any(reason in body.decode() for reason in reasons), body
    (turn,) = agent.trajectory.turns
    assert turn.action.content.startswith("{")
    assert (len(turn.tokens.completion), turn.finish) == (6, NOT_SAMPLED)


def test_a_stop_text_ends_the_tokens_and_the_text_goes_on_from_there():
    says = Says("one two three", "four", tokenizer=TOKENIZER)
    stopped = []

    class Stopping(Says):
        async def sample(self, prompt, sampling, **more):
            stopped.append(sampling.stop)
            done = await says.sample(prompt, sampling, **more)
            ids = TOKENIZER.encode("one two", add_special_tokens=False) if sampling.stop else done.ids
            return type(done)(ids=tuple(ids), logprobs=done.logprobs[: len(ids)], finish="stop")

    policy = TokenPolicy(Stopping(tokenizer=TOKENIZER), Renderer(TOKENIZER))

    async def program(ask):
        body = bodies()["openai"]
        first = json.loads((await ask("/v1/chat/completions", body | {"stop": ["two", "x"]}))[1])
        said = first["choices"][0]["message"]
        more = [*body["messages"], said, {"role": "user", "content": "more"}]
        return first, json.loads((await ask("/v1/chat/completions", {"model": "m", "messages": more}))[1])

    (first, second), agent = run(policy, program)
    assert first["choices"][0]["message"]["content"] == "one "
    assert second["choices"][0]["message"]["content"] == "four"
    one, two = agent.trajectory.turns
    assert stopped == [("two", "x"), ()]
    assert one.details.stop == "two"
    assert two.tokens.offset == len(one.tokens.prompt) + len(one.tokens.completion)
    assert not two.resets_context


def test_a_local_policy_ends_where_the_request_says():
    policy = LocalPolicy.of(MODEL, TOKENIZER, SamplingOptions(max_tokens=24), seed=5)

    def asked(**more):
        """The answer to the same request in an episode of its own, which draws the same, and its turns."""

        body = bodies()["openai"] | more
        (_, answer, *_), agent = run(policy, lambda ask: ask("/v1/chat/completions", body))
        return json.loads(answer), agent.trajectory.turns

    whole, whole_turns = asked()
    text = whole["choices"][0]["message"]["content"]
    stop = text[len(text) // 2 : len(text) // 2 + 2]
    (cut,), cut_turns = asked(stop=stop)[0]["choices"], asked(stop=stop)[1]
    (few, _), (many, _) = asked(max_tokens=3), asked(max_tokens=999)
    several, turns = asked(n=3, logprobs=True)
    assert cut["message"]["content"] == text[: text.index(stop)]
    assert (few["choices"][0]["finish_reason"], few["usage"]["completion_tokens"]) == ("length", 3)
    assert many["usage"]["completion_tokens"] <= 24  # the policy's own bound
    assert len(turns) == 3
    assert len(cut_turns[0].tokens.completion) <= len(whole_turns[0].tokens.completion)
    answers = [choice["message"]["content"] for choice in several["choices"]]
    assert len(set(answers)) > 1
    assert answers[0] == text  # the first of several draws is that of one alone
    for turn, choice in zip(turns, several["choices"], strict=True):
        logprobs = [one["logprob"] for one in choice["logprobs"]["content"]]
        assert logprobs == pytest.approx(turn.tokens.logprobs)


@pytest.mark.parametrize("dialect", PATHS)
def test_images_reach_policies_that_take_them_and_no_others(dialect):
    async def program(ask):
        return await ask(PATHS[dialect], bodies("What is this?", image=True)[dialect])

    policy = Options()
    assert run(policy, program)[0][0] == 200
    ((message,),) = policy.messages
    assert message == Message("user", f"What is this?{IMAGE_MARK}", images=(URL,))
    status, why = told(run(Scripted(["x"]), program)[0])
    assert (status, why) == (400, "an image: the policy of this seat reads text alone")


def test_an_endpoint_gets_images_and_options_as_they_were_sent():
    class Echo(Options):
        async def complete_with_options(self, options, messages, tools=(), *, key="", on_text=None):
            await super().complete_with_options(options, messages, tools, key=key)
            return Completion(message=assistant("ok"), usage={"prompt_tokens": 3, "completion_tokens": 1})

    inner = Echo()

    async def go():
        async with (
            AgentServer() as server,
            server.serving(AgentAPI({"agent": Agent(inner)})) as key,
            Endpoint(server.url, "m", api_key=key, max_tokens=50) as endpoint,
        ):
            message = Message("user", f"a {IMAGE_MARK} b", images=(URL,))
            options = AnswerOptions(stop=("x",), max_tokens=80, tool_choice="required", logprobs=True, top_logprobs=1)
            return await endpoint.complete_with_options(options, [message], key="k")

    assert asyncio.run(go()).message.content == "ok"
    assert inner.messages == [[Message("user", f"a {IMAGE_MARK} b", images=(URL,))]]
    (options,) = inner.asked
    assert options == AnswerOptions(stop=("x",), max_tokens=50, tool_choice="required", logprobs=True, top_logprobs=1)


def test_keys_and_versions_are_found_wherever_a_client_puts_them():
    for path in ("/v1/messages", "/v1/v1/messages", "/v1beta/messages", "/messages", "/v1alpha/messages"):
        assert path_below_version(path) == "/messages"
    assert path_below_version("/v1beta/models/v1:generateContent") == "/models/v1:generateContent"
    assert recognize_style("/models/v1:generateContent", {}, {}) == "google"
    assert recognize_style("/models/ft:gpt", {}, {}) == "openai"

    async def program(ask):
        body = bodies()
        tried = [
            ("/v1/messages", body["anthropic"], {"x-api-key": ask.key}),
            ("/v1beta/models/m:generateContent", body["google"], {"x-goog-api-key": ask.key}),
            (f"/v1beta/models/m:generateContent?key={ask.key}", body["google"], {}),
            ("/chat/completions", body["openai"], {"Authorization": f"Bearer {ask.key}"}),
        ]
        fine = [(await ask(path, body, headers=headers))[0] for path, body, headers in tried]
        wrong = [
            await ask("/v1/messages", body["anthropic"], headers={"x-api-key": "no"}),
            await ask("/v1beta/models/m:generateContent?key=no", body["google"], headers={}),
            await ask("/v1/chat/completions", body["openai"], headers={}),
        ]
        return fine, wrong

    (fine, wrong), _ = run(Options(), program)
    assert fine == [200] * 4
    assert [status for status, _ in wrong] == [401] * 3
    claude, google, chat = (json.loads(body) for _, body in wrong)
    assert (claude["type"], claude["error"]["type"]) == ("error", "authentication_error")
    assert (google["error"]["code"], google["error"]["status"]) == (401, "UNAUTHENTICATED")
    assert chat["error"]["code"] == "invalid_api_key"


def test_errors_have_the_form_of_the_api():
    async def program(ask):
        await ask("/v1/messages", bodies()["anthropic"])
        return [json.loads((await ask(PATHS[dialect], bodies()[dialect]))[1]) for dialect in PATHS]

    (chat, responses, claude, google), _ = run(Options(), program, limits=Limits(max_turns=1))
    assert chat["error"]["code"] == responses["error"]["code"] == "episode_over"
    assert claude["error"] == {"type": "permission_error", "message": "the episode is over: max_turns"}
    assert google["error"]["status"] == "PERMISSION_DENIED"


def test_stored_responses_are_given_back_and_forgotten():
    async def program(ask):
        kept = json.loads((await ask("/v1/responses", {"model": "m", "input": "a"}))[1])
        not_kept = json.loads((await ask("/v1/responses", {"model": "m", "input": "b", "store": False}))[1])
        path = f"/v1/responses/{kept['id']}"
        found = await ask(path, method="GET")
        items = json.loads((await ask(f"{path}/input_items", method="GET"))[1])
        missing = await ask(f"/v1/responses/{not_kept['id']}", method="GET")
        gone = [await ask(path, method="DELETE"), await ask(path, method="GET")]
        after = told(await ask("/v1/responses", {"model": "m", "input": "c", "previous_response_id": kept["id"]}))
        return kept, found, items, missing, gone, after

    (kept, found, items, missing, gone, after), _ = run(Options(), program)
    assert json.loads(found[1]) == kept
    assert [item["content"] for item in items["data"]] == ["a"]
    assert (missing[0], [status for status, _ in gone]) == (404, [200, 404])
    assert after == (400, f"there is no response {kept['id']!r} in this episode")


def test_counting_tokens_is_no_turn_and_is_refused_where_the_policy_cannot():
    policy = LocalPolicy.of(MODEL, TOKENIZER, SamplingOptions(max_tokens=6))

    async def program(ask):
        claude = json.loads((await ask("/v1/messages/count_tokens", bodies()["anthropic"]))[1])
        google = json.loads((await ask("/v1beta/models/m:countTokens", bodies()["google"]))[1])
        whole = json.loads((await ask("/v1/messages", bodies()["anthropic"]))[1])
        return claude["input_tokens"], google["totalTokens"], whole["usage"]["input_tokens"]

    (claude, google, read), agent = run(policy, program)
    assert claude == google == read > 0
    assert len(agent.trajectory.turns) == 1

    async def refused(ask):
        return told(await ask("/v1/messages/count_tokens", bodies()["anthropic"]))

    assert run(Scripted(["x"]), refused)[0] == (400, "the policy of this seat cannot count tokens")


ADD = ToolCall(id="c", name="add", arguments="{}")
ANSWERS = {
    "an answer": Completion(message=assistant("right")),
    "a refusal": Completion(message=assistant("I cannot."), finish="refusal"),
    "a cut answer": Completion(message=assistant("The first"), finish="length"),
    "a call": Completion(message=assistant("So:", ADD), finish="tool_calls"),
    "a cut call": Completion(message=assistant("So:", ADD), finish="length"),
}


class Answers(Options):
    """Gives one answer, whatever it is asked."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    async def complete_with_options(self, options, messages, tools=(), *, key="", on_text=None):
        await super().complete_with_options(options, messages, tools, key=key)
        return self.answer


def sse(body):
    """The JSON of a stream's events."""
    lines = [line.removeprefix("data: ") for line in body.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def read_openai(body, stream):
    if not stream:
        (choice,) = json.loads(body)["choices"]
        message = choice["message"]
        return told_by(
            message.get("content"), message.get("refusal"), message.get("tool_calls"), choice["finish_reason"]
        )
    choices = [event["choices"][0] for event in sse(body) if event["choices"]]
    parts = {name: "".join(one["delta"].get(name) or "" for one in choices) for name in ("content", "refusal")}
    calls = [call for one in choices for call in one["delta"].get("tool_calls", ())]
    return told_by(parts["content"], parts["refusal"], calls, choices[-1]["finish_reason"])


def told_by(content, refusal, calls, finish):
    return (content or "") + (refusal or ""), len(calls or ()), "refusal" if refusal else finish


def read_responses(body, stream):
    events = sse(body) if stream else []
    answer = events[-1]["response"] if stream else json.loads(body)
    parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
    texts = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    calls = sum(item["type"] == "function_call" for item in answer["output"])
    if stream:
        assert texts == "".join(one["delta"] for one in events if one["type"].endswith(("text.delta", "refusal.delta")))
        opened = [event["part"]["type"] for event in events if event["type"] == "response.content_part.added"]
        assert opened == [part["type"] for part in parts]
    cut = answer["status"] == "incomplete"
    refused = any(part["type"] == "refusal" for part in parts)
    return texts, calls, "length" if cut else "refusal" if refused else "tool_calls" if calls else "stop"


CLAUDE_REASONS = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls", "refusal": "refusal"}


def read_anthropic(body, stream):
    if not stream:
        answer = json.loads(body)
        texts = "".join(block.get("text", "") for block in answer["content"])
        calls = sum(block["type"] == "tool_use" for block in answer["content"])
        return texts, calls, CLAUDE_REASONS[answer["stop_reason"]]
    events = sse(body)
    texts = "".join(one["delta"].get("text", "") for one in events if one["type"] == "content_block_delta")
    calls = sum(one["type"] == "content_block_start" and one["content_block"]["type"] == "tool_use" for one in events)
    (reason,) = [one["delta"]["stop_reason"] for one in events if one["type"] == "message_delta"]
    return texts, calls, CLAUDE_REASONS[reason]


def read_google(body, stream):
    answers = sse(body) if stream else [json.loads(body)]
    parts = [part for answer in answers for part in answer["candidates"][0]["content"]["parts"]]
    (reason,) = [
        answer["candidates"][0]["finishReason"] for answer in answers if "finishReason" in answer["candidates"][0]
    ]
    calls = sum("functionCall" in part for part in parts)
    cut = reason == "MAX_TOKENS"
    return (
        "".join(part.get("text", "") for part in parts),
        calls,
        "length" if cut else "tool_calls" if calls else "stop",
    )


READERS = {"openai": read_openai, "responses": read_responses, "anthropic": read_anthropic, "google": read_google}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("event", ANSWERS)
def test_one_event_is_told_alike_in_every_dialect(event, dialect, stream):
    answer, path, body = ANSWERS[event], PATHS[dialect], bodies()[dialect]
    if dialect == "google":
        path = path.replace("generateContent", "streamGenerateContent?alt=sse") if stream else path
    elif stream:
        body |= {"stream": True}
    (status, reply), agent = run(Answers(answer), lambda ask: ask(path, body))
    expected = answer.finish
    if (dialect, answer.finish) == ("google", "refusal"):
        expected = "stop"  # this API has no word for it
    assert status == 200, reply
    assert READERS[dialect](reply, stream) == (answer.message.content, len(answer.message.tool_calls), expected)
    assert agent.trajectory.turns[0].finish == answer.finish
