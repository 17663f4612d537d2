"""The HTTP endpoint in front of a seat, asked by hand: what clients may do wrong, and what happens at once."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import socket
import warnings
from urllib.parse import urlsplit

import aiohttp
import pytest

from wanderlust.agent import Agent
from wanderlust.environment import Limits
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.serving import http as serving
from wanderlust.serving.agent_api import MAX_WAITING_SEAT_REQUESTS, AgentAPI
from wanderlust.serving.http import AgentServer, HttpResponse
from wanderlust.types import Completion, assistant, system, user


def echo(messages, rng):
    return assistant(f"echo: {messages[-1].content}")


def said(*contents, **options):
    return {"model": "m", "messages": [{"role": "user", "content": c} for c in contents], **options}


def asked(program, policy=None, seats=("agent",), **limits):
    """What `program(ask)` returns, and the seats; `ask(path, body)` gives status, headers and body."""

    async def go():
        agents = {s: Agent(policy or Scripted(echo), key=f"k/{s}", seat=s, limits=Limits(**limits)) for s in seats}
        async with AgentServer() as server, server.serving(AgentAPI(agents)) as key, aiohttp.ClientSession() as session:

            async def ask(path, body=None, *, method="POST", key=key):
                data = (
                    body if body is None else io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
                )
                headers = {"Authorization": f"Bearer {key}"}
                async with session.request(method, server.url + path, data=data, headers=headers) as response:
                    return response.status, response.headers, await response.read()

            return await program(ask), agents

    return asyncio.run(go())


def content(reply):
    status, _, body = reply
    assert status == 200, body
    return json.loads(body)["choices"][0]["message"]["content"]


def error(reply):
    status, headers, body = reply
    told = json.loads(body)["error"]["message"]
    assert "\n" not in told
    return status, headers["x-should-retry"], told


def test_a_turn_is_recorded_and_a_conversation_goes_on():
    async def program(ask):
        one = content(await ask("/chat/completions", said("a")))
        messages = [*said("a")["messages"], {"role": "assistant", "content": one}, *said("b")["messages"]]
        return one, content(await ask("/chat/completions", {"model": "any", "messages": messages}))

    replies, agents = asked(program)
    assert replies == ("echo: a", "echo: b")
    turns = agents["agent"].trajectory.turns
    assert [t.observation for t in turns] == [(user("a"),), (user("b"),)]
    assert not any(t.resets_context for t in turns)


def test_a_stream_is_the_same_answer_in_pieces():
    async def program(ask):
        _, headers, body = await ask(
            "/chat/completions", said("a", stream=True, stream_options={"include_usage": True})
        )
        assert headers["Content-Type"].startswith("text/event-stream")
        _, _, events = await ask("/responses", {"input": "a", "stream": True})
        return body, events

    (body, events), _ = asked(program)
    *chunks, done = [line.removeprefix(b"data: ") for line in body.splitlines() if line]
    assert done == b"[DONE]"
    deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in map(json.loads, chunks) if chunk["choices"]]
    assert "".join(deltas) == "echo: a"
    assert "usage" in json.loads(chunks[-1])
    numbers = [json.loads(line[6:])["sequence_number"] for line in events.splitlines() if line.startswith(b"data: ")]
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"messages": ' + b"[" * 100_000,
        b'{"messages": 3, "input": 3}',
        b'{"messages": [{}], "input": [{}]}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}], "input": "\\ud800"}',
        b'{"messages": [], "tools": [{"type": "computer"}]}',
        b'{"input": [{"type": "item_reference"}], "messages": null}',
    ],
)
def test_what_is_no_request_is_told_and_ends_nothing(path, body):
    async def program(ask):
        wrong = error(await ask(path, body))
        return wrong, content(await ask("/chat/completions", said("a")))

    ((status, again, _), after), agents = asked(program)
    assert (status, again, after) == (400, "false", "echo: a")
    assert len(agents["agent"].trajectory.turns) == 1


def test_other_doors_and_keys_are_refused_in_one_line():
    async def program(ask):
        return [
            error(await ask("/chat/completions", said("a"), key="other")),
            error(await ask("/models", method="GET", key="")),
            error(await ask("/embeddings", said("a"))),
            error(await ask("/chat/completions", method="GET")),
            error(await ask("/chat/completions", b" " * (serving.MAX_REQUEST_BYTES + 1))),
        ]

    refused, agents = asked(program)
    assert [(status, again) for status, again, _ in refused] == [(s, "false") for s in (401, 401, 404, 404, 413)]
    assert agents["agent"].trajectory.turns == []


UNHONOURED = {
    "stop": ["Observation:"],
    "max_tokens": 5,
    "max_completion_tokens": 5,
    "max_output_tokens": 5,
    "tool_choice": "required",
    "logprobs": True,
    "top_logprobs": 3,
    "functions": [{"name": "f"}],
    "function_call": {"name": "f"},
    "logit_bias": {"5": 1},
    "n": 2,
}


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
def test_options_that_a_seat_cannot_honour_are_refused_by_name(path):
    async def program(ask):
        body = said("a") | {"input": "a"}
        named = {"type": "function", "function": {"name": "f"}}
        tried = [*UNHONOURED.items(), ("tool_choice", named), ("stop", "x"), ("logprobs", 1)]
        harmless = {
            "stop": [],
            "tool_choice": "auto",
            "logprobs": False,
            "n": 1,
            "max_tokens": None,
            "temperature": 0.5,
        }
        fine = await ask(path, body | harmless)
        return [(name, error(await ask(path, body | {name: value}))) for name, value in tried], fine[0]

    (refused, fine), agents = asked(program)
    for name, (status, again, told) in refused:
        assert (status, again, f"{name}`" in told, "\n" in told) == (400, "false", True, False)
    assert fine == 200
    assert len(agents["agent"].trajectory.turns) == 1


def test_options_are_ignored_where_that_is_said():
    async def go():
        front = AgentAPI({"agent": Agent(Scripted(echo))}, ignored_options={"max_tokens", "stop"})
        await front.chat(said("a") | {"max_tokens": 5, "stop": "x"})
        with pytest.raises(UsageError, match="`logprobs`"):
            await front.chat(said("a") | {"logprobs": True})

    asyncio.run(go())


def test_a_key_is_forgotten_with_its_episode():
    async def go():
        front = AgentAPI({"agent": Agent(Scripted(echo))})
        async with AgentServer() as server, aiohttp.ClientSession() as session:
            async with server.serving(front) as key:
                pass
            headers = {"Authorization": f"Bearer {key}"}
            async with session.post(server.url + "/chat/completions", json=said("a"), headers=headers) as response:
                return response.status

    assert asyncio.run(go()) == 401


def test_after_the_last_turn_everything_is_refused_for_good():
    async def program(ask):
        await ask("/chat/completions", said("a"))
        return [error(await ask(path, said("b") | {"input": "b"})) for path in ("/chat/completions", "/responses")]

    refused, agents = asked(program, max_turns=1)
    assert refused == [(403, "false", "the episode is over: max_turns")] * 2
    assert str(agents["agent"].interruption) == "max_turns"


def test_a_failure_is_told_once_and_the_policy_is_left_alone():
    calls = []

    def boom(messages, rng):
        calls.append(1)
        raise RuntimeError("boom")

    async def program(ask):
        return [error(await ask("/chat/completions", said("a")))[:2] for _ in range(3)]

    assert asked(program, Scripted(boom))[0] == [(502, "false"), (403, "false"), (403, "false")]
    assert len(calls) == 1


class Slow:
    """Answers when told to, and counts questions at once."""

    def __init__(self):
        self.asked, self.go, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.live = 0

    async def all_asked(self, number):
        while self.live < number:
            self.asked.clear()
            await self.asked.wait()

    async def complete(self, messages, tools=(), *, key=""):
        self.live += 1
        self.asked.set()
        try:
            await self.go.wait()
        finally:
            self.live -= 1
            self.left.set()
        return Completion(message=echo(messages, None))


def test_requests_at_once_are_answered_at_once_each_with_its_context():
    policy = Slow()

    async def program(ask):
        asking = [asyncio.create_task(ask("/chat/completions", said(f"sub-agent {n}"))) for n in range(20)]
        await policy.all_asked(20)
        policy.go.set()
        return await asyncio.gather(*asking)

    replies, agents = asked(program, policy)
    assert [content(r) for r in replies] == [f"echo: sub-agent {n}" for n in range(20)]
    turns = agents["agent"].trajectory.turns
    assert [t.resets_context for t in turns] == [False] + [True] * 19
    assert all(t.action.content == f"echo: {t.observation[0].content}" for t in turns)


def test_seats_side_by_side_keep_their_own_trajectories():
    async def program(ask):
        async def talk(seat):
            messages = []
            for n in range(5):
                messages.append({"role": "user", "content": f"{seat} {n}"})
                messages.append(
                    {
                        "role": "assistant",
                        "content": content(await ask("/chat/completions", {"model": seat, "messages": messages})),
                    }
                )

        await asyncio.gather(talk("main"), talk("sub"))
        models = json.loads((await ask("/models", method="GET"))[2])
        return [m["id"] for m in models["data"]], error(await ask("/chat/completions", said("x")))

    (models, refused), agents = asked(program, seats=("main", "sub"))
    assert models == ["main", "sub"]
    assert refused == (400, "false", "there is no model 'm'; there are main, sub")
    for agent in agents.values():
        assert len(agent.trajectory.turns) == 5
        assert not any(t.resets_context for t in agent.trajectory.turns)


def test_who_asks_for_too_much_at_once_must_wait():
    policy = Slow()

    async def program(ask):
        many = [asyncio.create_task(ask("/chat/completions", said("x"))) for _ in range(MAX_WAITING_SEAT_REQUESTS + 1)]
        done, _ = await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)
        policy.go.set()
        await asyncio.gather(*many)
        return [error(task.result()) for task in done], [task.result()[0] for task in many]

    (refused, statuses), _ = asked(program, policy, max_turns=100)
    assert refused == [(429, "true", f"more than {MAX_WAITING_SEAT_REQUESTS} requests of one episode at once")]
    assert sorted(statuses) == [200] * MAX_WAITING_SEAT_REQUESTS + [429]


def test_a_program_that_hangs_up_leaves_no_turn_and_may_ask_again():
    policy = Slow()

    async def program(ask):
        dropped = asyncio.create_task(ask("/chat/completions", said("a")))
        await policy.asked.wait()
        dropped.cancel()
        await asyncio.gather(dropped, return_exceptions=True)
        await policy.left.wait()
        policy.go.set()
        return content(await ask("/chat/completions", said("a")))

    reply, agents = asked(program, policy)
    assert reply == "echo: a"
    (turn,) = agents["agent"].trajectory.turns
    assert not turn.resets_context


def test_a_response_goes_on_from_another_without_its_instructions():
    async def program(ask):
        first = json.loads((await ask("/responses", {"instructions": "s", "input": "a"}))[2])
        again = {"instructions": "other", "input": "b", "previous_response_id": first["id"]}
        second = json.loads((await ask("/responses", again))[2])
        lost = error(await ask("/responses", {"input": "c", "previous_response_id": "resp_9_agent"}))
        return second["output"][0]["content"][0]["text"], lost

    (text, lost), agents = asked(program)
    assert text == "echo: b"
    assert lost[:2] == (400, "false")
    first, second = agents["agent"].trajectory.turns
    assert second.observation == (system("other"), user("a"), first.action, user("b"))
    assert second.resets_context


def test_the_server_is_on_this_machine_alone_and_can_be_entered_twice():
    async def go():
        server = AgentServer()
        async with server:
            first = server.url
            async with server:
                assert server.url == first
            assert server.url == first
        return first

    assert asyncio.run(go()).startswith("http://127.0.0.1:")


def test_whoever_enters_while_it_starts_waits_for_it_and_one_server_serves_one_loop_after_another():
    server = AgentServer()

    async def enter():
        async with server:
            return server.url

    async def several():
        return await asyncio.gather(*(enter() for _ in range(5)))

    for _ in range(2):
        assert len(set(asyncio.run(several()))) == 1


def test_a_taken_port_is_told_to_everyone_who_enters():
    async def go():
        async with AgentServer() as first:
            taken = AgentServer(port=int(first.url.split(":")[2].removesuffix("/v1")))
            return await asyncio.gather(*(taken.__aenter__() for _ in range(3)), return_exceptions=True)

    for refused in asyncio.run(go()):
        assert isinstance(refused, UsageError)
        assert str(refused).startswith("cannot listen on 127.0.0.1:")


class Large:
    """Answers with more than sockets hold."""

    async def answer(self, method, path, body, *, prefer="", style="openai"):
        return HttpResponse(200, b"x" * 2**25)


def left_open(program):
    """What is found open after `program(host, port, key)` has run beside a server, which then ends."""

    async def go():
        server = AgentServer()
        async with server, server.serving(Large()) as key:
            url = urlsplit(server.url)
            return await program(url.hostname, url.port, key)

    gc.collect()
    clients = asyncio.run(go())
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        gc.collect()
    for client in clients:
        client.close()
    return [str(one.message) for one in warned]


def test_a_client_that_does_not_read_is_closed_in_the_end():
    async def ask(host, port, key):
        client = socket.create_connection((host, port))
        head = f"POST /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nContent-Length: 0\r\n\r\n"
        client.sendall(head.encode())
        await asyncio.sleep(0.3)
        return [client]

    assert left_open(ask) == []


@pytest.mark.parametrize("rounds", range(5))
def test_a_client_of_the_last_moment_is_closed_too(rounds):
    async def come(host, port, key):
        clients = [socket.create_connection((host, port)) for _ in range(3)]
        for _ in range(rounds):
            await asyncio.sleep(0)
        return clients

    assert left_open(come) == []
