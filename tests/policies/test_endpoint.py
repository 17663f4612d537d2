"""The endpoint policy against real servers on this machine: good ones, busy ones, dead ones and liars."""

import asyncio
import gzip
import json
import socket
from contextlib import suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from wanderlust.environment import Environment
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.evals.evaluate import evaluate
from wanderlust.policies import endpoint
from wanderlust.policies.endpoint import Endpoint, pause_before
from wanderlust.types import AnswerOptions, DeclaredTool, Message, Task, ToolCall, assistant, system, tool_message, user


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Retries come quickly."""
    monkeypatch.setattr(endpoint, "FIRST_PAUSE_SECONDS", 0.01)


GOOD = {"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}
LOOK = DeclaredTool(name="look", description="Looks.", schema={"type": "object", "properties": {}})


def served(answer, ask, *, app=None, **options):
    """Run `ask(policy, seen)` against a server that answers with `answer(request)`."""
    seen = []

    async def handle(request):
        seen.append((request.headers, await request.json()))
        answered = answer(request) if callable(answer) else answer
        if asyncio.iscoroutine(answered):
            answered = await answered
        return answered if isinstance(answered, web.StreamResponse) else web.json_response(answered)

    async def go():
        application = web.Application(**app or {})
        application.router.add_post("/v1/chat/completions", handle)
        async with TestServer(application) as server:
            return await ask(Endpoint(str(server.make_url("/v1")), "tiny", **options), seen)

    return asyncio.run(go())


async def hello(policy, seen):
    return await policy.complete([user("hello")], key="k")


def fails(answer, **options):
    """The failure, and how often the server was asked."""

    async def ask(policy, seen):
        with pytest.raises(PolicyFailure) as told:
            await hello(policy, seen)
        assert type(told.value) is PolicyFailure
        assert "\n" not in str(told.value)
        assert str(told.value).startswith(str(policy.url))
        return told.value, len(seen)

    return served(answer, ask, **options)


def test_a_good_answer_is_read_and_the_request_is_what_endpoints_expect():
    call = ToolCall(id="c", name="look", arguments="{}")
    talk = [system("s"), user("u"), assistant("", call), tool_message("seen", call)]

    async def ask(policy, seen):
        done = await policy.complete(talk, [LOOK], key="k")
        return done, *seen[0]

    answer = GOOD | {"usage": {"prompt_tokens": 7, "completion_tokens": 1, "details": {"cached": 2}}}
    options = {"api_key": "secret\n", "temperature": 0.5, "max_tokens": 9, "extra_body": {"top_p": 0.9, "n": None}}
    done, headers, body = served(answer, ask, **options)
    assert done.message == assistant("hi")
    assert (done.finish, done.usage, done.tokens) == ("stop", {"prompt_tokens": 7, "completion_tokens": 1}, None)
    assert headers["Authorization"] == "Bearer secret"
    wire = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    assert body.pop("messages") == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [wire]},
        {"role": "tool", "content": "seen", "tool_call_id": "c"},
    ]
    (told,) = body.pop("tools")
    assert told["function"] == {"name": "look", "description": "Looks.", "parameters": LOOK.schema}
    assert isinstance(body.pop("seed"), int)
    assert body == {"model": "tiny", "temperature": 0.5, "max_tokens": 9, "top_p": 0.9}


def test_tool_calls_and_reasoning_are_read():
    calls = [
        {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
        {"function": {"name": "go", "arguments": {"to": 2}}},
    ]
    said = {"content": None, "tool_calls": calls, "reasoning_content": "hmm"}
    done = served({"choices": [{"message": said}]}, hello)
    assert done.finish == "tool_calls"
    assert done.message == Message(
        "assistant",
        "",
        (ToolCall(id="a", name="look", arguments='{"at": 1}'), ToolCall(id="call_1", name="go", arguments='{"to": 2}')),
        reasoning="hmm",
    )


def test_an_answer_cut_while_reasoning_is_an_empty_answer():
    done = served({"choices": [{"message": {"content": None}, "finish_reason": "length"}]}, hello)
    assert (done.message, done.finish) == (assistant(""), "length")


def test_the_seed_comes_from_the_key_and_the_turn():
    async def ask(policy, seen):
        for key, messages in (("a", 1), ("a", 1), ("a", 2), ("b", 1)):
            await policy.complete([user("x")] * messages, key=key)
        return [body["seed"] for _, body in seen]

    first, again, later, other = served(GOOD, ask)
    assert first == again
    assert len({first, later, other}) == 3
    assert served(GOOD, ask)[0] == first


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"<html>hello\x1b[2J</html>", "malformed"),
        (b"", "truncated"),
        (b'{"choices": []}', "without choices"),
        (b'{"error": "no"}', "choices"),
        (b"[1]", "Expected `object`"),
        (b'{"choices": [{"message": {"content": 5}}]}', "message.content"),
        (b'{"choices": [{"message": {"content": ["a"]}}]}', "message.content"),
        (b'{"choices": [{"message": {}}]}', "neither content nor tool calls"),
        (b'{"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}', "neither content nor tool calls"),
        (b'{"choices": [{"message": {"tool_calls": [{"function": {}}]}}]}', "name"),
        (b'{"choices": [{"message": {"content": "\xff"}}]}', "not a chat completion"),
        (b'{"x":' + b"[" * 100_000, "not a chat completion"),
    ],
)
def test_garbage_is_a_failure_that_says_what_came(body, told):
    failure, asked = fails(lambda _: web.Response(body=body))
    assert told in str(failure)
    assert not failure.transient
    assert asked == endpoint.MAX_ATTEMPTS
    assert str(failure).isprintable()


@pytest.mark.parametrize("status", [400, 401, 404, 422, 301])
def test_a_refusal_is_not_tried_again(status):
    elsewhere = {"Location": "/elsewhere"}
    failure, asked = fails(lambda _: web.json_response({"error": "bad model"}, status=status, headers=elsewhere))
    assert f"HTTP {status}: " in str(failure)
    assert "bad model" in str(failure)
    assert (failure.transient, asked) == (False, 1)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again_and_then_given_up(status):
    failure, asked = fails(lambda _: web.Response(status=status, text="busy", headers={"Retry-After": "0"}))
    assert f"HTTP {status}: busy" in str(failure)
    assert (failure.transient, asked) == (True, endpoint.MAX_ATTEMPTS)


def after(*first):
    """Answers with each of `first`, then well."""
    left = list(first)
    return lambda _: left.pop(0)() if left else GOOD


def test_a_server_that_recovers_is_no_failure():
    busy = lambda: web.Response(status=429, headers={"Retry-After": "0"})  # noqa: E731
    assert served(after(busy, busy), hello).message == assistant("hi")


def test_retry_after_is_respected_up_to_a_bound():
    served(after(lambda: web.Response(status=429, headers={"Retry-After": "1"})), hello)
    assert all(1 <= pause_before(2, f"draw {n}", retry_after=1.0) <= 1.25 for n in range(100))
    failure, asked = fails(lambda _: web.Response(status=429, headers={"Retry-After": "3600"}))
    assert (failure.transient, asked) == (True, 1)


def test_a_strange_retry_after_is_ignored():
    for strange in ("Wed, 21 Oct 2037 07:28:00 GMT", "-5", "nan"):
        wait = {"Retry-After": strange}
        assert served(after(lambda wait=wait: web.Response(status=503, headers=wait)), hello).finish == "stop"


def test_garbage_is_tried_again():
    for garbage in (b"<html>", b'{"choices": [{"mess', b'{"choices": [{"message": {"content": ""}}]}'):
        assert served(after(lambda garbage=garbage: web.Response(body=garbage)), hello).message == assistant("hi")


def test_an_empty_answer_that_cost_tokens_is_the_models():
    empty = {"choices": [{"message": {"content": ""}, "finish_reason": "stop"}], "usage": {"completion_tokens": 1}}
    assert served(empty, hello).message == assistant("")


def test_a_compressed_answer_is_refused_unread():
    bomb = {"body": gzip.compress(b" " * 2**25), "headers": {"Content-Encoding": "gzip"}}
    failure, _ = fails(lambda _: web.Response(**bomb))
    assert "compressed" in str(failure)


def test_pauses_grow_and_are_drawn_from_the_key():
    pauses = [endpoint.pause_before(call, "k") / endpoint.FIRST_PAUSE_SECONDS for call in (2, 3, 4)]
    assert all(0.5 <= pause / 2**n <= 1.5 for n, pause in enumerate(pauses))
    assert endpoint.pause_before(2, "k") == endpoint.pause_before(2, "k") != endpoint.pause_before(2, "j")
    assert 8 <= endpoint.pause_before(2, "k", retry_after=8) <= 10


def test_a_form_of_answer_is_passed_on():
    async def ask(policy, seen):
        await policy.complete_with_options(AnswerOptions(response_format={"type": "json_object"}), [user("x")], key="k")
        return seen[0][1]["response_format"]

    assert served(GOOD, ask) == {"type": "json_object"}


def test_a_long_conversation_travels():
    long = "x" * 3 * 2**20
    limit = {"client_max_size": 2**24}

    async def ask(policy, seen):
        await policy.complete([user(long)], key="k")
        return seen[0][1]["messages"][0]["content"]

    assert served(GOOD, ask, app=limit) == long


def test_half_a_character_travels():
    async def ask(policy, seen):
        await policy.complete([user("a\ud800")], key="k")
        return seen[0][1]["messages"][0]["content"]

    assert served(GOOD, ask) == "a\ud800"


def test_a_dropped_connection_is_tried_again():
    dropped = []

    async def answer(request):
        if not dropped:
            dropped.append(request.transport.close())
        return web.json_response(GOOD)

    assert served(answer, hello).message == assistant("hi")
    assert dropped


def test_a_slow_server_is_a_transient_failure():
    async def slow(_):
        await asyncio.sleep(5)
        return web.json_response(GOOD)

    failure, asked = fails(slow, timeout=0.1)
    assert "no answer within 0.1 seconds (the last of 5 calls)" in str(failure)
    assert (failure.transient, asked) == (True, 5)


def test_an_endless_body_is_refused():
    async def flood(request):
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(b" " * 2**20)
        return response

    failure, _ = fails(flood)
    assert "a body of more than" in str(failure)
    assert not failure.transient


@pytest.fixture
def dead_port():
    """A port on which nobody listens, and which nobody else can take."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_dead_port_is_a_transient_failure_without_secrets(dead_port):
    url = f"http://me:hidden@127.0.0.1:{dead_port}/v1?key=hidden"
    with pytest.raises(UsageError, match="leave that out"):
        Endpoint(url, "m", api_key="hidden")
    policy = Endpoint(url, "m")
    with pytest.raises(PolicyFailure, match="cannot connect") as told:
        asyncio.run(policy.complete([user("x")]))
    assert told.value.transient
    assert "hidden" not in str(told.value)
    assert "127.0.0.1" in str(told.value)


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x/v1", "http://", "http://[::1/v1", "http://h:99999999"])
def test_what_is_no_url_is_refused_at_once(url):
    with pytest.raises(UsageError, match="URL"):
        Endpoint(url, "m")


def test_a_whole_url_is_kept():
    assert str(Endpoint("http://h/v1/chat/completions", "m").url) == "http://h/v1/chat/completions"
    assert str(Endpoint("http://h/v1/", "m").url) == "http://h/v1/chat/completions"
    assert str(Endpoint("http://h/v1?version=2", "m").url) == "http://h/v1/chat/completions?version=2"


def test_no_more_calls_at_once_than_asked_for_and_waiting_is_not_a_timeout():
    live = peak = 0

    async def answer(_):
        nonlocal live, peak
        live += 1
        peak = max(peak, live)
        await asyncio.sleep(0.3)
        live -= 1
        return web.json_response(GOOD)

    async def ask(policy, seen):
        async with policy:
            await asyncio.gather(*(policy.complete([user("x")], key=str(n)) for n in range(20)))

    served(answer, ask, concurrency=3, timeout=1.8)
    assert peak == 3


def test_one_policy_serves_one_event_loop_after_another(dead_port):
    policy = Endpoint(f"http://127.0.0.1:{dead_port}", "m", concurrency=1)

    async def several():
        return await asyncio.gather(*(policy.complete([user("x")]) for _ in range(3)), return_exceptions=True)

    for _ in range(2):
        assert [type(failed) for failed in asyncio.run(several())] == [PolicyFailure] * 3


class Chat(Environment):
    async def run(self, episode):
        said = await episode.agent.act(user("hello"))
        episode.reward("polite", float(said.content == "hi"))


def test_episodes_are_played_and_scored_through_the_endpoint():
    async def ask(policy, seen):
        async with policy:
            return await evaluate(Chat(), policy, tasks=[Task(id=str(n)) for n in range(30)])

    usage = {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    found = served(lambda _: json.loads(json.dumps(GOOD | usage)), ask)
    assert (found.reward.value, found.scored, found.failed, found.usage.tokens_in) == (1.0, 30, 0, 150)


def test_a_dead_endpoint_scores_nothing_and_says_why(dead_port):
    policy = Endpoint(f"http://127.0.0.1:{dead_port}/v1", "m")
    found = asyncio.run(evaluate(Chat(), policy, tasks=[Task(id=str(n)) for n in range(30)]))
    assert (found.played, found.scored, found.failed, found.reward) == (30, 0, 30, None)
    assert found.errors.keys() == {"PolicyFailure"}
    assert found.errors["PolicyFailure"].count == 30
    assert "cannot connect" in found.errors["PolicyFailure"].first


def test_an_endpoint_that_answers_garbage_scores_nothing():
    async def ask(policy, seen):
        return await evaluate(Chat(), policy, tasks=[Task(id=str(n)) for n in range(5)])

    found = served(lambda _: web.Response(text="<html>"), ask)
    assert (found.scored, found.errors["PolicyFailure"].count) == (0, 5)
