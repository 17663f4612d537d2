"""What a provider says at the end of a turn has one meaning, whatever its API: refusals, blocks, limits, no credit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from toys import TOKENIZER, fresh
from wanderlust.cli.main import main
from wanderlust.environment import Limits, MultiTurnEnvironment, SingleTurnEnvironment
from wanderlust.errors import PolicyRefused, StopEpisode
from wanderlust.evals.evaluate import evaluate
from wanderlust.policies.anthropic_messages import AnthropicMessages
from wanderlust.policies.base import SamplingOptions, TokenPrices
from wanderlust.policies.endpoint import Endpoint
from wanderlust.policies.gemini_content import GeminiContent
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import RolloutJob, RolloutSettings, play_groups
from wanderlust.tools.function import toolset
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Status, Task, user

NO = "I cannot help with that."
TIME_IS_UP = "the time is up"
LIVE: list[Any] = []
"""The episode under way."""
CHAT_USAGE = {"prompt_tokens": 10, "completion_tokens": 5}
CLAUDE_USAGE = {"input_tokens": 10, "output_tokens": 5}
GEMINI_USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 5}


def chat(message: Any, finish: str = "stop") -> Any:
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": CHAT_USAGE}


def claude(*content: Any, reason: str = "end_turn", **more: Any) -> Any:
    return {"content": [*content], "stop_reason": reason, "usage": CLAUDE_USAGE, **more}


def gemini(*parts: Any, reason: str = "STOP") -> Any:
    return {"candidates": [{"content": {"parts": [*parts]}, "finishReason": reason}], "usageMetadata": GEMINI_USAGE}


def error(status: int, **fields: Any) -> Any:
    return status, {"error": fields}


@dataclass(frozen=True)
class Api:
    """How one API says the same things."""

    policy: Callable[..., Any]
    text: Callable[[str], Any]
    call: Any
    refusals: tuple[Any, ...]
    blocks: tuple[Any, ...]
    too_long: Any


APIS = {
    "chat": Api(
        policy=Endpoint,
        text=lambda text: chat({"content": text}),
        call=chat({"content": "", "tool_calls": [{"id": "c", "function": {"name": "add"}}]}, "tool_calls"),
        refusals=(
            chat({"content": None, "refusal": NO}),
            chat({"content": "", "refusal": NO}, "length"),
            chat({"content": [{"type": "refusal", "refusal": NO}]}),
        ),
        blocks=(
            chat({"content": ""}, "content_filter"),
            chat({"content": "The first step is"}, "content_filter"),
            error(400, message="the prompt was filtered", code="content_filter"),
        ),
        too_long=error(400, message="too long", code="context_length_exceeded"),
    ),
    "anthropic": Api(
        policy=AnthropicMessages,
        text=lambda text: claude({"type": "text", "text": text}),
        call=claude({"type": "tool_use", "id": "c", "name": "add", "input": {}}, reason="tool_use"),
        refusals=(
            claude({"type": "text", "text": NO}, reason="refusal"),
            claude(reason="refusal", stop_details={"type": "refusal", "explanation": NO}),
        ),
        blocks=(),
        too_long=error(400, message="prompt is too long: 9 tokens > 8 maximum", type="invalid_request_error"),
    ),
    "google": Api(
        policy=GeminiContent,
        text=lambda text: gemini({"text": text}),
        call=gemini({"functionCall": {"name": "add", "args": {}}}),
        refusals=(gemini({"text": NO}),),
        blocks=(
            gemini(reason="SAFETY"),
            gemini({"text": "The first step is"}, reason="PROHIBITED_CONTENT"),
            {"promptFeedback": {"blockReason": "SAFETY"}},
        ),
        too_long=error(400, message="The input token count (9) exceeds the maximum number of tokens allowed (8)."),
    ),
}
REFUSALS = [(name, reply) for name, api in APIS.items() for reply in api.refusals]
BLOCKS = [(name, reply) for name, api in APIS.items() for reply in api.blocks]


def served(api: Api, reply: Callable[[str, int], Any], ask: Callable[[Any], Any]) -> tuple[Any, int]:
    """What `ask(policy)` returns, and how often the server was asked; `reply` of the request's text and its number."""
    asked = list[str]()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(await request.text())
        made = reply(asked[-1], len(asked))
        status, body = made if isinstance(made, tuple) else (200, made)
        if body == TIME_IS_UP:
            LIVE[0].play.end(StopEpisode("timeout"))
            await asyncio.Event().wait()
        return web.json_response(body, status=status)

    async def go() -> Any:
        app = web.Application()
        app.router.add_post("/{path:.*}", answer)
        async with (
            TestServer(app, handler_cancellation=True) as server,
            api.policy(str(server.make_url("")), "m") as policy,
        ):
            return await ask(policy)

    return asyncio.run(go()), len(asked)


def says_right(completion: str) -> float:
    """1 for the right answer."""
    return float(completion == "right")


TASKS = [Task(id=f"t{n}", prompt=(user(f"{word} {n}"),)) for n in range(6) for word in [("hard", "easy")[n % 2]]]


@pytest.mark.parametrize(("name", "refusal"), REFUSALS)
def test_a_refusal_is_an_answer_with_its_text_in_every_api(name: str, refusal: Any) -> None:
    api = APIS[name]

    async def ask(policy: Any) -> Any:
        env = SingleTurnEnvironment(TASKS, rubric=Rubric(says_right))
        return await play_groups(env, TASKS, policy)

    groups, asked = served(api, lambda text, _: refusal if "hard" in text else api.text("right"), ask)
    played = [group.rollouts[0] for group in groups]
    assert [one.status for one in played] == [Status.DONE] * 6
    assert [one.trajectory.score.reward for one in played] == [0.0, 1.0] * 3
    assert [one.trajectory.messages[-1].content for one in played] == [NO, "right"] * 3
    assert name == "google" or played[0].trajectory.turns[0].finish == "refusal"
    assert asked == 6


@pytest.mark.parametrize(("name", "refusal"), REFUSALS)
def test_refusals_alone_stop_no_run(name: str, refusal: Any) -> None:
    async def ask(policy: Any) -> Any:
        env = SingleTurnEnvironment([Task(id=f"t{n}", prompt=(user("hard"),)) for n in range(12)])
        return await evaluate(env, policy, concurrency=1, progress=False)

    report, _ = served(APIS[name], lambda *_: refusal, ask)
    assert (report.played, report.scored, report.failed) == (12, 12, 0)


@pytest.mark.parametrize(("name", "block"), BLOCKS)
def test_a_block_by_a_filter_has_no_score_and_stops_no_run(name: str, block: Any) -> None:
    async def ask(policy: Any) -> Any:
        env = SingleTurnEnvironment([Task(id=f"t{n}", prompt=(user("hard"),)) for n in range(12)])
        return await evaluate(env, policy, concurrency=1, progress=False)

    report, asked = served(APIS[name], lambda *_: block, ask)
    assert (report.played, report.scored, report.failed) == (12, 0, 12)
    assert asked == 12  # asking again is no use
    assert [*report.errors] == ["PolicyFailure"]


def test_an_account_without_credit_stops_the_run_at_once() -> None:
    async def ask(policy: Any) -> Any:
        env = SingleTurnEnvironment([Task(id=f"t{n}", prompt=(user("hard"),)) for n in range(50)])
        with pytest.raises(PolicyRefused, match="nothing left to pay with"):
            await evaluate(env, policy, concurrency=4, progress=False)

    broke = error(429, message="You exceeded your current quota.", type="insufficient_quota", code="insufficient_quota")
    _, asked = served(APIS["chat"], lambda *_: broke, ask)
    assert asked <= 8


def test_content_in_parts_is_read() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [thinking, {"type": "text", "text": "ri"}, {"type": "text", "text": "ght"}, {"type": "other", "x": None}]

    async def ask(policy: Any) -> Any:
        return await policy.complete([user("?")])

    done, asked = served(APIS["chat"], lambda *_: chat({"content": parts}), ask)
    assert (done.message.content, done.message.reasoning, done.finish, asked) == ("right", "hm", "stop", 1)


def test_a_refusal_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def ask(policy: Any) -> Any:
        env = SingleTurnEnvironment(TASKS[:1], rubric=Rubric(says_right))
        return await evaluate(env, policy, out=tmp_path, progress=False)

    served(APIS["chat"], lambda *_: APIS["chat"].refusals[0], ask)
    with pytest.raises(SystemExit):
        main(["show", str(tmp_path), "1"])
    shown = capsys.readouterr().out
    assert NO in shown
    assert "turn 1, refusal" in shown


class Letters(MultiTurnEnvironment):
    def respond(self, messages: Any, episode: Any) -> str:
        return "a"

    async def run(self, episode: Any) -> None:
        await super().run(episode)
        episode.state["made"] = len(episode.agent.trajectory.turns)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_turns=2), "max_turns"),
        (Limits(max_episode_tokens=2), "max_episode_tokens"),
        (Limits(max_context_tokens=7), "max_context_tokens"),
        (Limits(max_episode_cost=5.0), "max_episode_cost"),
        (Limits(), "context"),
    ],
)
def test_a_local_model_is_cut_and_judged_in_the_same_way(limits: Limits, reason: str) -> None:
    policy = LocalPolicy.of(fresh(0), TOKENIZER, SamplingOptions(max_tokens=1), seed=0)
    env = Letters([Task(id="t", prompt=(user("a"),))], rubric=Rubric(filled))
    settings = RolloutSettings(env=env, policy=policy, limits=limits)
    settings.spending.prices = TokenPrices(input=1e5, output=1e6)
    played = asyncio.run(settings.run(RolloutJob(next(iter(env.tasks())), 0)))
    assert (played.error, played.status, played.stop_reason) == (None, Status.TRUNCATED, reason)
    assert played.trajectory.score.reward == len(played.trajectory.turns) == played.state["made"]


@toolset
async def basket(episode: Any) -> Any:
    LIVE[:], made = [episode], 0

    def add() -> str:
        """Add something."""
        nonlocal made
        made += 1
        return "added"

    yield [add]
    episode.state["made"] = made


def filled(state: Any) -> float:
    """One point for each call."""
    return float(state["made"])


ENDINGS = {
    "turns": (Limits(max_turns=2), "max_turns"),
    "tokens": (Limits(max_episode_tokens=10), "max_episode_tokens"),
    "conversation": (Limits(max_context_tokens=15), "max_context_tokens"),
    "cost": (Limits(max_episode_cost=30.0), "max_episode_cost"),
    "context": (Limits(), "context"),
    "time": (Limits(), "timeout"),
    "refusal": (Limits(), "done"),
    "failure": (Limits(), "PolicyFailure"),
}
"""The limits of an episode, and its stop reason."""
THIRD = {"time": (200, TIME_IS_UP), "failure": error(422, message="no")}
"""The third reply, where it is the same in every API."""


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", APIS)
def test_every_ending_is_closed_and_judged_alike_over_every_api(name: str, ending: str) -> None:
    limits, reason = ENDINGS[ending]
    api, third = APIS[name], THIRD.get(ending)
    last = api.too_long if ending == "context" else api.refusals[0] if ending == "refusal" else third

    async def ask(policy: Any) -> Any:
        env = ToolEnvironment([Task(id="t", prompt=(user("Fill it."),))], tools=[basket], rubric=Rubric(filled))
        settings = RolloutSettings(env=env, policy=policy, limits=limits)
        settings.spending.prices = TokenPrices(input=1e6, output=1e6)
        return await settings.run(RolloutJob(next(iter(env.tasks())), 0))

    played, _ = served(api, lambda _, n: last if last is not None and n == 3 else api.call, ask)
    made = None if ending == "failure" else 1.0 if ending == "conversation" else 2.0
    score = played.trajectory.score
    assert (played.stop_reason, played.state.get("made"), score and score.reward) == (reason, made, made)
