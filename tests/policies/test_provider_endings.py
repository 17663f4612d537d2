"""What a provider says at the end of a turn has one meaning, whatever its API: refusals, blocks, limits, no credit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from provider_apis import APIS, BLOCKS, NO, REFUSALS, TASKS, TIME_IS_UP, basket, chat, error, filled, says_right, served
from toys import TOKENIZER, fresh
from wanderlust.cli.main import main
from wanderlust.environment import Limits, MultiTurnEnvironment, SingleTurnEnvironment
from wanderlust.errors import PolicyRefused
from wanderlust.evals.evaluate import evaluate
from wanderlust.policies.base import SamplingOptions, TokenPrices
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import RolloutJob, RolloutSettings, play_groups
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Status, Task, user


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
