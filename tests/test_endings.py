"""Every ending of an episode, in every shape of environment: what is scored is closed as usual, and judged alike."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.boxes import ASK, MEDIUM

from wanderlust.adapters.external_program import Program
from wanderlust.environment import Environment, Episode, Limits, MultiTurnEnvironment, SingleTurnEnvironment, Step
from wanderlust.environment import StepEnvironment as StepWise
from wanderlust.errors import ContextFull, PolicyFailure, StopEpisode
from wanderlust.evals.evaluate import evaluate
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import RolloutJob, RolloutSettings, rollout
from wanderlust.tasks.mixture import Mixture
from wanderlust.tools.function import open_toolsets, toolset
from wanderlust.tools.mcp_server import serve_http
from wanderlust.tools.mcp_toolset import McpServer
from wanderlust.tools.sandbox import open_sandbox
from wanderlust.tools.sandbox.box import Box
from wanderlust.tools.sandbox.bubblewrap import find_python
from wanderlust.tools.tool_calls import CallLimits
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Completion, Rollout, Status, Task, ToolCall, assistant, user
from wanderlust.worlds.apps.user_interface import UserInterface
from wanderlust.worlds.engine.scenario import Scenario, capture
from wanderlust.worlds.wrap.verified_environment import OracleRubric, VerifiedWorldEnvironment
from world_apps import Notes

TASK = Task(id="t", prompt=(user("Work."),))
LAST_TURN = 2
"""The turn in which the endings come that do not come from a limit."""
THROWN: list[str] = []
"""What was thrown into toolsets."""


def closed(state: Any) -> float:
    """1 where the code after the play ran; its toolsets were closed in reverse order."""
    return float(state["closed"] == sorted(state["closed"], reverse=True))


JUDGED = Rubric(closed)


def work(times: int = 1) -> str:
    """Work."""
    return "worked" * times


def mark(episode: Episode, name: str) -> None:
    episode.state.setdefault("closed", []).append(name)


@toolset
async def inner(episode: Episode) -> AsyncIterator[Any]:
    """Nothing protects the line after `yield`, as in the docs."""
    yield [work]
    await asyncio.sleep(0)
    mark(episode, "2 inner")


@toolset
async def outer(episode: Episode) -> AsyncIterator[Any]:
    try:
        yield [inner]
        mark(episode, "1 outer")
    except BaseException as thrown:
        THROWN.append(type(thrown).__name__)
        raise


@toolset
async def shell(episode: Episode) -> AsyncIterator[Any]:
    sandbox = await open_sandbox()

    async def bash(command: str) -> str:
        """Run a command."""
        return (await sandbox.run(command)).text

    try:
        yield [bash, work]
        await sandbox.run("echo 3 > left")
        mark(episode, (await sandbox.read("left")).decode().strip())
    finally:
        await sandbox.close()


class Single(SingleTurnEnvironment):
    async def run(self, episode: Episode) -> None:
        with episode.playing():
            await super().run(episode)
        mark(episode, "run")


class Loop(Environment):
    rubric = JUDGED

    async def run(self, episode: Episode) -> None:
        with episode.playing():
            while True:
                await episode.agent.act(user("on"))
        mark(episode, "run")


class Seats(Environment):
    """One seat in a task of its own, with tools of its own; the other in the environment's."""

    seats = ("one", "two")
    rubric = JUDGED

    async def run(self, episode: Episode) -> None:
        async def talk(seat: str) -> None:
            async with open_toolsets([outer] if seat == "two" else [], episode):
                while True:
                    await episode.agents[seat].act(user("on"))

        async with asyncio.TaskGroup() as group:
            group.create_task(talk("two"))
            await asyncio.sleep(0)
            await talk("one")
        mark(episode, "0 run")


class Talk(MultiTurnEnvironment):
    def respond(self, messages: Any, episode: Episode) -> str:
        return "on"

    async def run(self, episode: Episode) -> None:
        await super().run(episode)
        mark(episode, "run")


class Tools(ToolEnvironment):
    def respond(self, messages: Any, episode: Episode) -> str:
        return "on"

    async def run(self, episode: Episode) -> None:
        await super().run(episode)
        mark(episode, "0 run")


class Count:
    def reset(self) -> Step:
        return Step((user("on"),))

    def step(self, action: Any) -> Step:
        return Step((user("on"),), info={"closed": ["step"]})


class Steps(StepWise):
    rubric = JUDGED

    def start(self, task: Task, rng: Any) -> Count:
        return Count()

    async def run(self, episode: Episode) -> None:
        episode.state["closed"] = None
        await super().run(episode)


class Agent(Program):
    rubric = JUDGED

    async def judge(self, episode: Episode, ended: Any, folder: str) -> None:
        mark(episode, "judged")


ASKING = """
talk = []
while True:
    talk.append({"role": "user", "content": "on"})
    try: talk.append(post(json.dumps({"model": "m", "messages": talk}).encode())["choices"][0]["message"])
    except Exception: break
"""


def noted() -> Scenario:
    apps = (UserInterface(), Notes())
    with capture(*apps) as story:
        asked = story.user(apps[0]).send_message_to_agent("Note it.")
        made = story.agent(apps[1], after=asked).add_note(text="it")
        story.agent(apps[0], after=made).send_message_to_user("Noted.")
    return Scenario(id="t", apps=apps, events=story.events)


@asynccontextmanager
async def plain(env: Environment) -> AsyncIterator[Environment]:
    yield env


def tools(*sources: Any) -> Callable[[], Any]:
    return lambda: plain(Tools([TASK], tools=sources, rubric=JUDGED))


@asynccontextmanager
async def over_mcp() -> AsyncIterator[Environment]:
    """Its server is between two toolsets, and must be released, too."""
    async with serve_http(work) as served:
        server = McpServer(served.url, token=served.token, prefix="remote_")
        yield Tools([TASK], tools=[outer, server], rubric=JUDGED)
        assert server._connection is None


@asynccontextmanager
async def world() -> AsyncIterator[Environment]:
    env = VerifiedWorldEnvironment([noted()])
    env.rubric = OracleRubric(env)
    yield env


SHAPES: dict[str, Callable[[], Any]] = {
    "single": lambda: plain(Single([TASK], rubric=JUDGED)),
    "loop": lambda: plain(Loop()),
    "multi-turn": lambda: plain(Talk([TASK], rubric=JUDGED)),
    "tool": tools(work),
    "toolset": tools(outer),
    "mcp": over_mcp,
    "sandbox": tools(shell),
    "seats": lambda: plain(Seats()),
    "world": world,
    "step": lambda: plain(Steps()),
    "program": lambda: plain(Agent([sys.executable, "-c", ASK + ASKING])),
    "program in a box": lambda: plain(Agent([str(find_python()), "-c", ASK + ASKING], sandbox=Box(bounds=MEDIUM))),
}


@dataclass
class Worker:
    """Works, until something ends it in its second turn."""

    ending: str = ""
    last: int = LAST_TURN
    turns: int = 0
    episode: Episode | None = None
    waits: asyncio.Event = field(default_factory=asyncio.Event)

    async def complete(self, messages: Any, tools: Any = (), *, key: str = "") -> Completion:
        self.turns += 1
        if self.turns >= self.last:
            await self.end()
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        names = [tool.name for tool in tools if tool.name in ("work", "Notes__list_notes")]
        calls = [ToolCall(id=str(self.turns), name=name, arguments="{}") for name in names]
        return Completion(message=assistant("on", *calls), usage=usage)

    async def end(self) -> None:
        if self.ending == "context":
            raise ContextFull("the conversation is too long")
        if self.ending == "failure":
            raise PolicyFailure("gone")
        if self.ending == "forfeit":
            raise StopEpisode("forfeit")
        if self.ending in ("time", "cancel"):
            self.waits.set()
            await asyncio.Event().wait()


LIMITS = {
    "turns": (Limits(max_turns=1), "max_turns"),
    "tokens": (Limits(max_episode_tokens=5), "max_episode_tokens"),
    "cost": (Limits(max_episode_cost=1.0), "max_episode_cost"),
    "conversation": (Limits(max_context_tokens=15), "max_context_tokens"),
    "context": (Limits(), "context"),
    "time": (Limits(), "timeout"),
    "forfeit": (Limits(), "forfeit"),
}
"""Endings that are scored, and their stop reasons."""


class Seen(Environment):
    """The same environment, whose episode the test can end."""

    def __init__(self, env: Environment, worker: Worker):
        self.env, self.worker = env, worker
        self.seats, self.rubric = env.seats, env.rubric  # type: ignore[misc]

    async def run(self, episode: Episode) -> None:
        self.worker.episode = episode
        await self.env.run(episode)


async def play(shape: str, ending: str) -> Rollout | None:
    """One episode; None where it was cancelled."""
    THROWN.clear()
    async with SHAPES[shape]() as env:
        worker = Worker(ending, last=1 if shape == "single" else LAST_TURN)
        limits, _ = LIMITS.get(ending, (Limits(), ""))
        settings = RolloutSettings(env=Seen(env, worker), policy=worker, limits=limits)
        settings.spending.prices = TokenPrices(input=1e6, output=1e6)
        playing = asyncio.create_task(settings.run(RolloutJob(TASK, 0)))
        if ending in ("time", "cancel"):
            await worker.waits.wait()
            assert worker.episode is not None
            worker.episode.play.end(StopEpisode("timeout")) if ending == "time" else playing.cancel()
        (played,) = await asyncio.gather(playing, return_exceptions=True)
        assert isinstance(played, Rollout | asyncio.CancelledError)
        return played if isinstance(played, Rollout) else None


CASES = [(shape, ending) for shape in SHAPES for ending in LIMITS]
CASES = [case for case in CASES if case[0] != "single" or case[1] in ("context", "time", "forfeit")]
"""The only turn of an episode is its last in any case."""


@pytest.mark.parametrize(("shape", "ending"), [case for case in CASES if case != ("seats", "conversation")])
def test_after_every_limit_the_episode_is_closed_as_usual_and_judged(shape: str, ending: str) -> None:
    played = asyncio.run(play(shape, ending))
    assert played is not None
    assert (played.error, played.status, played.stop_reason) == (None, Status.TRUNCATED, LIMITS[ending][1])
    assert THROWN == []
    for seat in played.trajectories:
        assert seat.score is not None
        assert seat.score.reward == (0.0 if shape == "world" else 1.0)
    assert shape != "world" or "verdict" in played.state


@pytest.mark.parametrize("ending", ["failure", "cancel"])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape not in ("step", "world")])
def test_after_a_failure_or_a_cancellation_nothing_is_closed_as_usual_and_nothing_scored(
    shape: str, ending: str
) -> None:
    played = asyncio.run(play(shape, ending))
    if played is not None:
        assert (played.status, played.stop_reason) == (Status.ERROR, "PolicyFailure")
        assert "closed" not in played.state
        assert all(seat.score is None for seat in played.trajectories)
    assert (played is None) == (ending == "cancel")
    thrown = {"failure": "PolicyFailure", "cancel": "CancelledError"}[ending]
    assert THROWN in ([], [thrown], ["CancelledError"])
    assert (THROWN != []) == (shape in ("toolset", "mcp", "seats"))


def test_a_program_that_takes_too_long_or_floods_is_judged() -> None:
    late, flood = "ask('x'); time.sleep(99)", "ask('x')\nwhile True: print('x' * 9999)"
    for code, seconds, box, reason in (
        (late, 1.0, None, "program_seconds"),
        (late, 1.0, Box(bounds=MEDIUM), "program_seconds"),
        (flood, 20.0, Box(bounds=MEDIUM), "program_output"),
    ):
        env = Agent([str(find_python()), "-c", ASK + code], seconds=seconds, sandbox=box)
        played = run(env, Worker())
        assert (played.error, played.status, played.stop_reason) == (None, Status.TRUNCATED, reason)
        assert played.trajectory.score.reward == 1.0


def run(env: Environment, policy: Any, limits: Limits | None = None) -> Any:
    THROWN.clear()
    return asyncio.run(rollout(env, TASK, policy, limits=limits))


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
        await HELD[0].wait()
        evaluating.cancel()
        await asyncio.gather(evaluating, return_exceptions=True)

    asyncio.run(stop_in_a_turn())
    HELD.clear()
    report = asyncio.run(evaluate(env, Held(), limits=cut, out=tmp_path, progress=False))
    assert (report.played, report.failed, report.reward.value) == (1, 0, 1.0)
