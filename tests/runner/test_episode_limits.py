"""Bounds of an episode and of a run's cost: each ends what it bounds, under its own name, and is told."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from patience import PATIENCE
from wanderlust.agent.limits import cut_text
from wanderlust.environment import Environment, Limits, SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.evals.evaluate import evaluate
from wanderlust.policies.base import TokenPrices
from wanderlust.rubrics.judge import Judge, JudgeOptions
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import RolloutJob, RolloutSettings, rollout
from wanderlust.store.provenance import provenance_of
from wanderlust.tasks.mixture import Mixture
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Completion, Message, Status, Task, ToolCall, assistant, user
from worlds import WANDER

PRICES = TokenPrices(input=1000.0, output=10_000.0)
"""A turn of 10 + 5 tokens costs 6 cents."""


class Talker:
    """Reports 10 more tokens read at each turn, and 5 written."""

    async def complete(self, messages: Any, tools: Any = (), *, key: str = "") -> Completion:
        turns = sum(message.role == "assistant" for message in messages)
        usage = {"prompt_tokens": 10 * (turns + 1), "completion_tokens": 5}
        return Completion(message=assistant("on"), usage=usage)


class Priced:
    """A judge that says the same to all, for 3 cents."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    async def complete(self, messages: Any, tools: Any = (), *, key: str = "") -> Completion:
        return Completion(message=assistant(self.answer), usage={"prompt_tokens": 20, "completion_tokens": 1})


class Numbered:
    """Repeats the question, for 6 cents."""

    async def complete(self, messages: Any, tools: Any = (), *, key: str = "") -> Completion:
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        return Completion(message=assistant(messages[-1].content), usage=usage)


class Endless(Environment):
    """Pays 1 for each turn, for ever."""

    limits = Limits(max_turns=30)

    def __init__(self, count: int = 12) -> None:
        self.count = count

    async def run(self, episode: Any) -> None:
        while True:
            await episode.agent.act(user("go on"))
            episode.reward("turns", 1.0)

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"t{n}") for n in range(self.count)]


def play(limits: Limits, prices: TokenPrices | None = None) -> Any:
    async def go() -> Any:
        settings = RolloutSettings(env=Endless(), policy=Talker(), limits=limits)
        settings.spending.prices = prices
        return await settings.run(RolloutJob(Task(id="t"), 0))

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("limits", "turns", "stop"),
    [
        (Limits(max_turns=4), 4, "max_turns"),
        (Limits(max_episode_tokens=15), 3, "max_episode_tokens"),
        (Limits(max_episode_tokens=16), 4, "max_episode_tokens"),
        (Limits(max_context_tokens=25), 2, "max_context_tokens"),
        (Limits(max_context_tokens=26), 3, "max_context_tokens"),
        (Limits(max_episode_cost=0.06), 1, "max_episode_cost"),
        (Limits(max_episode_cost=0.07), 2, "max_episode_cost"),
    ],
)
def test_a_bound_truncates_under_its_own_name(limits: Limits, turns: int, stop: str) -> None:
    played = play(limits, PRICES)
    assert (played.status, played.stop_reason, played.trajectory.score.reward) == (Status.TRUNCATED, stop, turns)


class Pair(Endless):
    seats = ("one", "two")

    async def run(self, episode: Any) -> None:
        while True:
            for seat in self.seats:
                await episode.agents[seat].act(user("go on"))


def test_seats_share_the_tokens_of_their_episode() -> None:
    played = asyncio.run(rollout(Pair(), Task(id="t"), Talker(), limits=Limits(max_episode_tokens=15)))
    assert [len(seat.turns) for seat in played.trajectories] == [2, 1]
    assert played.stop_reason == "max_episode_tokens"


class Shouting(ToolEnvironment):
    """A tool that answers at length, once."""

    def __init__(self) -> None:
        super().__init__([Task(id="t", prompt=(user("?"),))], tools=[shout])


def shout(n: int) -> str:
    """Shout."""
    return "A" * n


class Caller:
    async def complete(self, messages: Any, tools: Any = (), *, key: str = "") -> Completion:
        if messages[-1].role == "tool":
            return Completion(message=assistant(messages[-1].content))
        return Completion(message=assistant("", ToolCall(id="c", name="shout", arguments='{"n": 50000}')))


def test_a_tools_result_is_cut_with_a_note_that_the_model_reads() -> None:
    limits = Limits(max_tool_chars=200)
    played = asyncio.run(rollout(Shouting(), Shouting().tasks()[0], Caller(), limits=limits))  # type: ignore[index]
    seen = played.trajectory.messages[-1].content
    assert played.status is Status.DONE
    assert seen == "A" * 136 + "\n[cut: the first 136 of 50000 characters]"
    assert played.state["tool_calls"]["truncated"] == 1


class Foreign(Environment):
    """Keeps its own conversation, like an agent from outside, and repeats what its tool said in full."""

    async def run(self, episode: Any) -> None:
        talk = [user("?")]
        for _ in range(3):
            answer = await episode.agent.act_with_context(talk)
            talk += [answer, Message("tool", "B" * 900, tool_call_id="c")]


def test_tool_messages_of_any_environment_are_cut_and_stay_one_conversation() -> None:
    played = asyncio.run(rollout(Foreign(), Task(id="t"), Talker(), limits=Limits(max_tool_chars=300)))
    turns = played.trajectory.turns
    assert [turn.resets_context for turn in turns] == [False] * 3
    results = [m.content for turn in turns for m in turn.observation if m.role == "tool"]
    assert [len(text) for text in results] == [300, 300]
    assert all(text.endswith("of 900 characters]") for text in results)


def test_what_was_cut_is_not_cut_again() -> None:
    once = cut_text("x" * 5000, 120)
    assert len(once) <= 120
    assert cut_text(once, 120) == once


@pytest.mark.parametrize("bad", [{"max_turns": 0}, {"max_episode_tokens": 0}, {"max_tool_chars": 20}, {"timeout": -1}])
def test_bounds_that_bound_nothing_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(bad))):
        Limits(**bad)


def test_a_mixture_keeps_the_bounds_of_each_environment() -> None:
    class Bounded(Endless):
        limits = Limits(max_turns=9, max_episode_tokens=10)

    mixed = Mixture({Bounded(): 1})
    played = asyncio.run(rollout(mixed, next(iter(mixed.tasks())), Talker()))
    assert (played.stop_reason, len(played.trajectory.turns)) == ("max_episode_tokens", 2)


def test_bounds_are_part_of_what_made_a_rollout_and_the_clock_is_not() -> None:
    def digest(**limits: Any) -> str:
        return provenance_of(Endless(), limits=Limits(**limits)).digest

    plain = digest()
    assert digest(timeout=9.0) == plain
    names = {field.name for field in fields(Limits)} - {"timeout"}
    assert len({plain, *(digest(**{name: 700}) for name in names)}) == 1 + len(names)


@pytest.mark.parametrize("samples", [1, 3])
def test_a_run_that_has_cost_enough_starts_no_further_rollout(samples: int) -> None:
    async def go(max_cost: float | None) -> Any:
        limits = Limits(max_turns=1)
        options: dict[str, Any] = {"limits": limits, "prices": PRICES, "max_cost": max_cost, "concurrency": 1}
        return await evaluate(Endless(), Talker(), split="train", samples=samples, progress=False, **options)

    report = asyncio.run(go(0.30))
    assert (report.played, report.not_started) == (5, 12 * samples - 5)
    assert report.usage.dollars == pytest.approx(0.30)
    assert report.incomplete
    assert report.stopped == "the run's max_cost of $0.30 is reached: $0.30"
    assert "not started" in str(report)
    assert report.as_dict()["not_started"] == 12 * samples - 5
    assert not asyncio.run(go(None)).incomplete
    assert asyncio.run(go(99.0)).not_started == 0


def test_a_resumed_run_counts_what_was_spent_before(tmp_path: Path) -> None:
    def go(max_cost: float) -> Any:
        options: dict[str, Any] = {"limits": Limits(max_turns=1), "prices": PRICES, "concurrency": 1}
        return asyncio.run(
            evaluate(
                Endless(), Talker(), split="train", out=tmp_path / "run", max_cost=max_cost, progress=False, **options
            )
        )

    assert go(0.12).played == 2
    assert go(0.12).played == 2
    again = go(0.24)
    assert (again.played, again.not_started) == (4, 8)
    assert json.loads((tmp_path / "run" / "report.json").read_text())["not_started"] == 8


def test_bounds_of_the_cost_need_prices() -> None:
    for options in ({"max_cost": 1.0}, {"limits": Limits(max_episode_cost=1.0)}):
        with pytest.raises(UsageError, match="need prices"):
            asyncio.run(evaluate(Endless(), Talker(), split="train", **options))  # type: ignore[arg-type]


def test_cached_tokens_have_their_price() -> None:
    usage = {"prompt_tokens": 1000, "cached_tokens": 900, "completion_tokens": 100}
    assert TokenPrices(input=10.0, output=20.0).cost_of(usage) == pytest.approx(0.012)
    assert TokenPrices(input=10.0, output=20.0, cached=1.0).cost_of(usage) == pytest.approx(0.0039)


def test_judges_with_prices_are_part_of_the_cost() -> None:
    tasks = [Task(id=f"t{n}", prompt=(user(f"{n}"),)) for n in range(10)]

    def go(max_cost: float | None) -> Any:
        answers = Priced('{"reason": "fine", "score": 1}')
        judge = Judge(answers, "Is this right? {completion}", options=JudgeOptions(prices=PRICES))
        env = SingleTurnEnvironment(tasks, rubric=Rubric(judge))
        options: dict[str, Any] = {"prices": PRICES, "max_cost": max_cost, "concurrency": 1, "progress": False}
        return asyncio.run(evaluate(env, Numbered(), **options))

    report = go(None)
    assert (report.scored, report.usage.dollars) == (10, pytest.approx(0.6))
    assert report.usage.judge_dollars == pytest.approx(0.3)
    assert "$0.9000 (judges $0.3000)" in str(report)
    assert go(0.23).played == 3


def test_the_command_takes_all_bounds(tmp_path: Path) -> None:
    bodies: list[dict[str, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        usage = {
            "prompt_tokens": 1000,
            "completion_tokens": 100,
            "prompt_tokens_details": {"cached_tokens": 800},
            "completion_tokens_details": {"reasoning_tokens": 60},
        }
        message = {"content": "<move>1</move>"}
        return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})

    async def go(*words: str) -> tuple[int | None, str, str]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        async with TestServer(app) as server:
            command = (*WANDER, "eval", "tictactoe", "--policy", str(server.make_url("/v1")), "--model", "m", *words)
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=pipe, stderr=pipe)
            out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
            return process.returncode, out.decode(), err.decode()

    prices = ("--price-in", "1000", "--price-out", "5000", "--price-cached", "100")
    words = ("-n", "9", "--concurrency", "1", "--max-turns", "1", "--max-cost", "2", "--json", *prices)
    code, out, err = asyncio.run(go(*words, "--extra-body", '{"top_p": 0.9}'))
    report = json.loads(out)["report"]
    assert code == 1
    assert (report["played"], report["not_started"]) == (3, 6)
    assert report["usage"]["dollars"] == pytest.approx(3 * (0.2 + 0.08 + 0.5))
    assert (report["usage"]["tokens_cached"], report["usage"]["tokens_reasoning"]) == (2400, 180)
    assert "wander: the run's max_cost of $2.00 is reached: $2.34; 6 rollouts were not started" in err
    assert bodies[0]["top_p"] == 0.9
    code, _, err = asyncio.run(go("--extra-body", "[1]"))
    assert (code, len(err.splitlines())) == (2, 1)
    assert "--extra-body must be a JSON object" in err
    code, _, err = asyncio.run(go("--max-cost", "1"))
    assert (code, "need prices" in err) == (2, True)
