"""The end of an episode's play: what is cancelled when the time is up, what is not, and whose fault an error is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from endings import JUDGED, TASK, THROWN, Seen, Tools, Worker, inner, mark, outer, run
from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import StopEpisode
from wanderlust.evals.evaluate import evaluate
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tasks.mixture import Mixture
from wanderlust.tools.function import open_toolsets, toolset
from wanderlust.tools.tool_calls import CallLimits
from wanderlust.types import Completion, Status, ToolCall, assistant, user


class Hangs:
    """A policy that never answers."""

    async def complete(self, messages: Any, tools: Any = (), *, key: str = "") -> Completion:
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("mixed", [False, True])
def test_a_time_limit_ends_a_turn_and_a_tool_that_hang(mixed: bool) -> None:
    async def hang() -> str:
        """Never come back."""
        await asyncio.Event().wait()
        raise AssertionError

    class Patient(Tools):
        call_limits = CallLimits(timeout=None)
        limits = Limits(timeout=0.3)

    call = assistant("", ToolCall(id="1", name="hang", arguments="{}"))
    for policy in (Hangs(), Scripted([call])):
        env: Environment = Patient([TASK], tools=[hang, outer], rubric=JUDGED)
        task = TASK
        if mixed:
            env = Mixture({env: 1})
            task = next(iter(env.tasks()))
        played = asyncio.run(rollout(env, task, policy))
        assert (played.error, played.stop_reason) == (None, "timeout")
        assert played.state["closed"] == ["2 inner", "1 outer", "0 run"]
        assert played.trajectory.score.reward == 1.0


class Closing(Environment):
    """Takes a turn, then does something else."""

    rubric = JUDGED

    def __init__(self, close: Callable[[Episode], Any], *, turns: int = 9, seconds: float = 60.0):
        self.close, self.turns, self.seconds = close, turns, seconds

    async def run(self, episode: Episode) -> None:
        episode.play.closing_seconds = self.seconds
        close = self.close

        @toolset
        async def closing(episode: Episode) -> AsyncIterator[Any]:
            yield []
            await close(episode)
            mark(episode, "3 closing")

        async with open_toolsets([outer, closing], episode):
            for _ in range(self.turns):
                await episode.agent.act(user("on"))
        mark(episode, "0 run")


def test_what_closes_an_episode_is_not_cancelled_when_the_time_is_up() -> None:
    async def slowly(episode: Episode) -> None:
        while episode.play.stop is None:  # noqa: ASYNC110 (nobody tells when the time is up)
            await asyncio.sleep(0.01)

    played = run(Closing(slowly, turns=1), Scripted(["on"]), Limits(timeout=0.2))
    assert (played.error, played.status, played.stop_reason) == (None, Status.DONE, "done")
    assert played.trajectory.score.reward == 1.0


def test_what_never_ends_after_a_time_limit_is_a_failure_in_one_line() -> None:
    async def hang(episode: Episode) -> None:
        await asyncio.Event().wait()

    played = run(Closing(hang, seconds=0.05), Hangs(), Limits(timeout=0.05))
    assert (played.status, played.stop_reason) == (Status.ERROR, "EnvironmentFailure")
    assert "`yield`" in played.error
    assert "did not end within 0.05 s after timeout had ended the play" in played.error
    assert THROWN == ["CancelledError"]
    assert played.trajectory.score is None


def test_a_loop_without_a_block_that_never_ends_after_a_time_limit_is_a_failure_too() -> None:
    class Bare(Environment):
        async def run(self, episode: Episode) -> None:
            episode.play.closing_seconds = 0.05
            try:
                await episode.agent.act(user("on"))
            finally:
                await asyncio.Event().wait()

    class Deaf(Environment):
        async def run(self, episode: Episode) -> None:
            episode.play.closing_seconds = 0.05
            with episode.playing(), suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await asyncio.Event().wait()

    for env in (Bare(), Deaf()):
        played = run(env, Hangs(), Limits(timeout=0.05))
        assert (played.status, played.stop_reason) == (Status.ERROR, "EnvironmentFailure")
        assert "did not end within 0.05 s" in played.error


def test_an_error_after_the_play_is_the_environments_whatever_ended_the_play() -> None:
    async def fail(episode: Episode) -> None:
        raise KeyError("cart")

    for policy, limits in ((Hangs(), Limits(timeout=0.05)), (Worker(), Limits(max_turns=2)), (Worker(), None)):
        played = run(Closing(fail), policy, limits)
        assert (played.stop_reason, played.error) == ("EnvironmentFailure", "KeyError: 'cart'")
        assert played.trajectory.score is None
        assert THROWN == ["KeyError"]


def test_a_turn_that_is_asked_for_after_the_play_keeps_no_toolset_from_being_closed() -> None:
    async def ask(episode: Episode) -> None:
        await episode.agent.act(user("what did you do?"))

    played = run(Closing(ask), Worker(), Limits(max_turns=2))
    assert (played.error, played.stop_reason) == (None, "max_turns")
    assert played.state["closed"] == ["2 inner", "1 outer", "0 run"]


def test_a_limit_that_comes_while_toolsets_are_opened_closes_those_that_are_open() -> None:
    @toolset
    async def opens(episode: Episode) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield []

    env = Tools([TASK], tools=[outer, opens, inner], rubric=JUDGED)
    played = run(env, Worker(), Limits(timeout=0.2))
    assert (played.error, played.stop_reason, played.state["closed"]) == (None, "timeout", ["2 inner", "1 outer"])


@pytest.mark.parametrize("policy", [Scripted(["on"] * 3), Hangs()])
def test_code_that_replaces_a_limit_by_an_error_of_its_own_closes_as_usual(policy: Any) -> None:
    class Wraps(Environment):
        rubric = JUDGED

        async def run(self, episode: Episode) -> None:
            async with outer.open(episode):  # a toolset by itself
                try:
                    while True:
                        await episode.agent.act(user("on"))
                except StopEpisode as stop:
                    raise RuntimeError("the agent failed") from stop
            mark(episode, "0 run")

    played = run(Wraps(), policy, Limits(max_turns=2, timeout=0.3))
    assert (played.error, played.status) == (None, Status.TRUNCATED)
    assert (played.state["closed"], THROWN) == (["2 inner", "1 outer", "0 run"], [])


def test_what_waits_for_something_else_than_the_turns_is_cut_later() -> None:
    class Waits(Environment):
        rubric = JUDGED

        async def run(self, episode: Episode) -> None:
            episode.play.closing_seconds = 0.05
            with episode.playing():
                talk = asyncio.create_task(episode.agent.act(user("on")))
                await asyncio.wait([talk])
                await asyncio.Event().wait()
            mark(episode, "run")

    played = run(Waits(), Hangs(), Limits(timeout=0.05))
    assert (played.error, played.stop_reason, played.trajectory.score.reward) == (None, "timeout", 1.0)


def test_a_cancellation_passes_when_it_comes_with_the_time_limit_and_after_it() -> None:
    async def hang(episode: Episode) -> None:
        await asyncio.Event().wait()

    async def go(both_at_once: bool) -> list[str]:
        THROWN.clear()
        worker = Worker("time")
        playing = asyncio.create_task(rollout(Seen(Closing(hang), worker), TASK, worker))
        await worker.waits.wait()
        assert worker.episode is not None
        worker.episode.play.end(StopEpisode("timeout"))
        if not both_at_once:
            await asyncio.sleep(0.05)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        return [*THROWN]

    assert [asyncio.run(go(both)) for both in (True, False)] == [["CancelledError"], ["CancelledError"]]


HELD: list[asyncio.Event] = []


class Held:
    """Waits as long as it is held."""

    async def complete(self, messages: Any, tools: Any = (), *, key: str = "") -> Completion:
        if HELD:
            HELD[0].set()
            await asyncio.Event().wait()
        return Completion(message=assistant("on"))


def test_an_evaluation_that_is_cut_plays_again_what_was_cancelled(tmp_path: Path) -> None:
    env, cut = Tools([TASK], tools=[outer], rubric=JUDGED), Limits(max_turns=3)

    async def stop_in_a_turn() -> None:
        HELD.append(asyncio.Event())
        evaluating = asyncio.create_task(evaluate(env, Held(), limits=cut, out=tmp_path, progress=False))
        held = asyncio.create_task(HELD[0].wait())
        await asyncio.wait({evaluating, held}, return_when=asyncio.FIRST_COMPLETED)
        assert held.done(), evaluating.exception()
        evaluating.cancel()
        await asyncio.gather(evaluating, return_exceptions=True)

    asyncio.run(stop_in_a_turn())
    HELD.clear()
    report = asyncio.run(evaluate(env, Held(), limits=cut, out=tmp_path, progress=False))
    assert (report.played, report.failed, report.reward.value) == (1, 0, 1.0)
