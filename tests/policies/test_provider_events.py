"""One event has one meaning, whatever the API: each event, as each API says it, is the same answer or failure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provider_apis import (
    APIS,
    BLOCKS,
    GEMINI_USAGE,
    NO,
    TASKS,
    basket,
    chat,
    claude,
    error,
    filled,
    gemini,
    says_right,
    served,
)
from wanderlust.environment import Limits, SingleTurnEnvironment
from wanderlust.errors import PolicyFailure, PolicyRefused
from wanderlust.evals.evaluate import evaluate
from wanderlust.policies import endpoint as endpoint_module
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import RolloutJob, RolloutSettings
from wanderlust.store.run import load_run
from wanderlust.tools.tool_calls import ERROR_PREFIX
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Status, Task, user

CLAUDE_CALL = {"type": "tool_use", "id": "c", "name": "add", "input": {}}
CHAT_CALL = {"id": "c", "function": {"name": "add", "arguments": "{}"}}
GEMINI_CALL = {"functionCall": {"name": "add", "args": {}}}
EVENTS: dict[str, tuple[tuple[str, int, str], dict[str, Any]]] = {
    "refusal": ((NO, 0, "refusal"), {name: api.refusals[0] for name, api in APIS.items()}),
    "refusal before a call": (
        (NO, 1, "tool_calls"),
        {
            "chat": chat({"content": None, "refusal": NO, "tool_calls": [CHAT_CALL]}, "tool_calls"),
            "anthropic": claude({"type": "text", "text": NO}, CLAUDE_CALL, reason="tool_use"),
            "google": gemini({"text": NO}, GEMINI_CALL),
        },
    ),
    "refusal within a call": (
        (NO, 1, "tool_calls"),
        {
            "chat": chat({"content": NO, "refusal": "", "tool_calls": [CHAT_CALL]}),
            "anthropic": claude({"type": "text", "text": NO}, CLAUDE_CALL, reason="refusal"),
        },
    ),
    "refusal after thinking": (
        (NO, 0, "refusal"),
        {
            "chat": chat({"content": None, "refusal": NO, "reasoning_content": "hm"}),
            "anthropic": claude(
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                reason="refusal",
                stop_details={"type": "refusal", "explanation": NO},
            ),
            "google": gemini({"text": "hm", "thought": True}, {"text": NO}),
        },
    ),
    "length": (
        ("The first", 0, "length"),
        {
            "chat": chat({"content": "The first"}, "length"),
            "mistral": chat({"content": "The first"}, "model_length"),
            "anthropic": claude({"type": "text", "text": "The first"}, reason="max_tokens"),
            "google": gemini({"text": "The first"}, reason="MAX_TOKENS"),
        },
    ),
    "length with nothing": (
        ("", 0, "length"),
        {
            "chat": {"choices": [{"message": {"content": ""}, "finish_reason": "length"}]},
            "anthropic": {"content": [], "stop_reason": "max_tokens"},
            "google": {"candidates": [{"finishReason": "MAX_TOKENS"}]},
        },
    ),
    "length within a call": (
        ("", 1, "length"),
        {
            "chat": chat({"content": None, "tool_calls": [CHAT_CALL]}, "length"),
            "anthropic": claude(CLAUDE_CALL, reason="max_tokens"),
            "google": gemini(GEMINI_CALL, reason="MAX_TOKENS"),
        },
    ),
    "calls": (
        ("", 1, "tool_calls"),
        {
            "chat": chat({"content": None, "tool_calls": [CHAT_CALL]}, "stop"),
            "anthropic": claude(CLAUDE_CALL, reason="tool_use"),
            "google": gemini(GEMINI_CALL),
        },
    ),
    "parts": (
        ("right", 0, "stop"),
        {
            "chat": chat({"content": [{"type": "text", "text": "ri"}, {"type": "text", "text": "ght"}]}),
            "anthropic": claude({"type": "text", "text": "ri"}, {"type": "text", "text": "ght"}),
            "google": gemini({"text": "ri"}, {"text": "ght"}),
        },
    ),
    "reasoning alone": (
        ("", 0, "stop"),
        {
            "chat": chat({"content": None, "reasoning_content": "hm"}, "end_turn"),
            "anthropic": claude({"type": "thinking", "thinking": "hm", "signature": "s"}),
            "google": gemini({"text": "hm", "thought": True}),
        },
    ),
}
"""Text, number of calls and finish of an answer, and how each API says it. Google's says nothing of refusals."""


@pytest.mark.parametrize(
    ("event", "name"), [(event, name) for event, (_, replies) in EVENTS.items() for name in replies]
)
def test_one_event_has_one_meaning(event: str, name: str) -> None:
    (text, calls, finish), replies = EVENTS[event]

    async def ask(policy: Any) -> Any:
        return await policy.complete([user("?")])

    done, asked = served(APIS.get(name, APIS["chat"]), lambda *_: replies[name], ask)
    said = "stop" if (name, finish) == ("google", "refusal") else finish
    assert (done.message.content, len(done.message.tool_calls), done.finish, asked) == (text, calls, said, 1)


@pytest.mark.parametrize("name", APIS)
def test_a_setting_makes_refusals_failures_that_keep_their_text_and_stop_no_run(name: str, tmp_path: Path) -> None:
    async def ask(policy: Any) -> Any:
        env = SingleTurnEnvironment(TASKS * 2, rubric=Rubric(says_right))
        limits = Limits(refusals="failure")
        return await evaluate(env, policy, out=tmp_path, limits=limits, concurrency=1, progress=False)

    report, asked = served(APIS[name], lambda *_: APIS[name].refusals[0], ask)
    failed = 0 if name == "google" else 12  # whose API does not say that it is one
    assert (report.played, report.failed, asked) == (12, failed, 12)
    with load_run(tmp_path) as run:
        assert {one.trajectory.messages[-1].content for one in run.rollouts} == {NO}
        assert all(NO in (one.error or NO) for one in run.rollouts)


@pytest.mark.parametrize(("name", "block"), BLOCKS)
def test_a_blocked_answer_keeps_the_text_that_came(name: str, block: Any) -> None:
    async def ask(policy: Any) -> Any:
        with pytest.raises(PolicyFailure) as failed:
            await policy.complete([user("?")])
        return str(failed.value)

    told, _ = served(APIS[name], lambda *_: block, ask)
    assert ("The first step is" in told) == ("The first step is" in str(block))


NO_CREDIT = {
    "openai": ("chat", error(429, message="You exceeded your current quota.", code="insufficient_quota")),
    "openrouter": ("chat", error(402, message="Insufficient credits", code=402)),
    "within 200": ("chat", {"error": {"message": "Insufficient credits", "code": 402}}),
    "anthropic": ("anthropic", error(400, message="Your credit balance is too low to access the API.")),
    "anthropic, by type": ("anthropic", error(403, type="billing_error", message="no")),
}


@pytest.mark.parametrize("account", NO_CREDIT)
def test_no_credit_is_one_event(account: str) -> None:
    name, reply = NO_CREDIT[account]

    async def ask(policy: Any) -> Any:
        env = SingleTurnEnvironment([Task(id=f"t{n}", prompt=(user("hard"),)) for n in range(50)])
        with pytest.raises(PolicyRefused, match="nothing left to pay with"):
            await evaluate(env, policy, concurrency=4, progress=False)

    _, asked = served(APIS[name], lambda *_: reply, ask)
    assert asked <= 8


BLOCKED_PROMPTS = {
    "anthropic": error(400, message="Output blocked by content filtering policy", type="invalid_request_error"),
    "chat": error(403, message="Content violates usage guidelines.", code="The caller has no permission"),
    "google": {"promptFeedback": {"blockReason": "SAFETY"}},
}


@pytest.mark.parametrize("name", BLOCKED_PROMPTS)
def test_a_prompt_blocked_in_words_stops_no_run(name: str) -> None:
    async def ask(policy: Any) -> Any:
        env = SingleTurnEnvironment([Task(id=f"t{n}", prompt=(user("hard"),)) for n in range(12)])
        return await evaluate(env, policy, concurrency=1, progress=False)

    report, asked = served(APIS[name], lambda *_: BLOCKED_PROMPTS[name], ask)
    assert (report.played, report.failed, asked) == (12, 12, 12)


OVERLOAD = {
    "chat": [error(429, message="slow down"), {"error": {"message": "overloaded", "code": 503}}, error(503)],
    "anthropic": [error(529, type="overloaded_error", message="Overloaded"), error(429, type="rate_limit_error")],
    "google": [error(503, status="UNAVAILABLE"), error(429, status="RESOURCE_EXHAUSTED", message="quota per minute")],
}


@pytest.mark.parametrize(("name", "busy"), [(name, busy) for name, replies in OVERLOAD.items() for busy in replies])
def test_an_overloaded_server_is_asked_again(name: str, busy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "FIRST_PAUSE_SECONDS", 0.001)

    async def ask(policy: Any) -> Any:
        return await policy.complete([user("?")])

    done, asked = served(APIS[name], lambda _, n: busy if n < 3 else APIS[name].text("right"), ask)
    assert (done.message.content, asked) == ("right", 3)


def test_the_pause_that_google_names_is_kept_to() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3600s"}]

    async def ask(policy: Any) -> Any:
        with pytest.raises(PolicyFailure, match="quota"):
            await policy.complete([user("?")])

    _, asked = served(APIS["google"], lambda *_: error(429, message="quota", details=details), ask)
    assert asked == 1


EMPTY = {
    "chat": {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]},
    "anthropic": {"content": [], "stop_reason": "end_turn"},
    "google": {"candidates": [{"finishReason": "STOP"}]},
}


@pytest.mark.parametrize("name", APIS)
def test_an_empty_answer_is_asked_for_again_and_then_a_failure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "FIRST_PAUSE_SECONDS", 0.001)

    async def ask(policy: Any) -> Any:
        with pytest.raises(PolicyFailure):
            await policy.complete([user("?")])

    _, asked = served(APIS[name], lambda *_: EMPTY[name], ask)
    assert asked == endpoint_module.MAX_ATTEMPTS


def test_a_paused_turn_goes_on_and_is_one_answer() -> None:
    searched = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    first = claude({"type": "text", "text": "I look. "}, searched, reason="pause_turn")
    second = claude({"type": "text", "text": "Found."})

    async def ask(policy: Any) -> Any:
        begun = await policy.complete([user("?")])
        await policy.complete([user("?"), begun.message, user("and?")])
        return begun

    sent = list[Any]()

    def reply(text: str, number: int) -> Any:
        sent.append(json.loads(text)["messages"])
        return first if number == 1 else second

    done, asked = served(APIS["anthropic"], reply, ask)
    assert (done.message.content, done.finish, asked) == ("I look. Found.", "stop", 3)
    assert done.usage == {"prompt_tokens": 20, "completion_tokens": 10}
    assert sent[1][-1] == {"role": "assistant", "content": first["content"]}
    assert sent[2][1] == {"role": "assistant", "content": [*first["content"], *second["content"]]}


BROKEN_CALLS = {
    "chat": chat({"content": None, "tool_calls": [{"id": "c", "function": {"name": "add", "arguments": "{not"}}]}),
    "google": {
        "candidates": [
            {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed function call: add({not"}
        ],
        "usageMetadata": GEMINI_USAGE,
    },
}


@pytest.mark.parametrize("name", BROKEN_CALLS)
def test_a_call_that_cannot_be_read_is_answered_and_the_episode_goes_on(name: str) -> None:
    async def ask(policy: Any) -> Any:
        env = ToolEnvironment([Task(id="t", prompt=(user("Fill it."),))], tools=[basket], rubric=Rubric(filled))
        return await RolloutSettings(env=env, policy=policy).run(RolloutJob(next(iter(env.tasks())), 0))

    played, _ = served(APIS[name], lambda _, n: BROKEN_CALLS[name] if n == 1 else APIS[name].text("right"), ask)
    first, second = played.trajectory.turns
    assert "{not" in first.action.tool_calls[0].arguments
    assert second.observation[0].content.startswith(ERROR_PREFIX)
    assert (played.status, played.trajectory.score.reward, second.action.content) == (Status.DONE, 0.0, "right")
