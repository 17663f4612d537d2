"""Every shape of environment, and a policy whose episode ends in every way; closing code marks that it ran."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.boxes import ASK, MEDIUM

from repository_shelf import SHELF
from test_repository import needs_own_python
from wanderlust.adapters.external_program import Program
from wanderlust.environment import (
    Environment,
    Episode,
    Limits,
    MultiTurnEnvironment,
    SingleTurnEnvironment,
    Step,
    WrappedEnvironment,
)
from wanderlust.environment import StepEnvironment as StepWise
from wanderlust.errors import ContextFull, PolicyFailure, StopEpisode
from wanderlust.policies.base import TokenPrices
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import RolloutJob, RolloutSettings, rollout
from wanderlust.tools.function import open_toolsets, toolset
from wanderlust.tools.mcp_server import serve_http
from wanderlust.tools.mcp_toolset import McpServer
from wanderlust.tools.sandbox import open_sandbox
from wanderlust.tools.sandbox.box import Box
from wanderlust.tools.sandbox.bubblewrap import find_python
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Completion, Rollout, Task, ToolCall, assistant, user
from wanderlust_repository.environment import Repository
from wanderlust_repository.mining import MiningOptions, mine
from wanderlust_worlds.apps.user_interface import UserInterface
from wanderlust_worlds.engine.scenario import Scenario, capture
from wanderlust_worlds.wrap.verified_environment import OracleRubric, VerifiedWorldEnvironment
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


class Recording:
    """Records what is thrown into its block."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        THROWN.extend([kind.__name__] if kind else [])


@toolset
async def inner(episode: Episode) -> AsyncIterator[Any]:
    """Nothing protects the line after `yield`, as in the docs."""
    yield [work]
    await asyncio.sleep(0)
    mark(episode, "2 inner")


@toolset
async def outer(episode: Episode) -> AsyncIterator[Any]:
    with Recording():
        yield [inner]
        mark(episode, "1 outer")


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


@cache
def mined() -> TemporaryDirectory[str]:
    """A folder with one task of a small package."""
    needs_own_python()
    folder = TemporaryDirectory()
    for path, text in SHELF.items():
        place = Path(folder.name, "shelf", path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    options = MiningOptions(per_package=1, installed=True)
    mine([Path(folder.name, "shelf")], Path(folder.name, "out"), options=options)
    return folder


@asynccontextmanager
async def repository() -> AsyncIterator[Environment]:
    folder = await asyncio.to_thread(mined)
    yield Repository(str(Path(folder.name, "out")))


SHAPES: dict[str, Callable[[], Any]] = {
    "single": lambda: plain(Single([TASK], rubric=JUDGED)),
    "loop": lambda: plain(Loop()),
    "multi-turn": lambda: plain(Talk([TASK], rubric=JUDGED)),
    "tool": tools(work),
    "toolset": tools(outer),
    "mcp": over_mcp,
    "sandbox": tools(shell),
    "repository": repository,
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
        names = [tool.name for tool in tools if tool.name in ("work", "Notes__list_notes", "read_file")]
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


class Seen(WrappedEnvironment):
    """The same environment, whose episode the test can end."""

    def __init__(self, env: Environment, worker: Worker):
        self.env, self.worker = env, worker

    async def run(self, episode: Episode) -> None:
        self.worker.episode = episode
        await self.env.run(episode)


async def play(ending: str, shape: Callable[[], Any], *, last: int = LAST_TURN) -> Rollout | None:
    """One episode; None where it was cancelled."""
    THROWN.clear()
    async with shape() as env:
        worker = Worker(ending, last=last)
        limits, _ = LIMITS.get(ending, (Limits(), ""))
        settings = RolloutSettings(env=Seen(env, worker), policy=worker, limits=limits)
        settings.spending.prices = TokenPrices(input=1e6, output=1e6)
        task = next(iter([*env.tasks("train"), *env.tasks("eval")]), TASK) if isinstance(env, Repository) else TASK
        playing = asyncio.create_task(settings.run(RolloutJob(task, 0)))
        if ending in ("time", "cancel"):
            await worker.waits.wait()
            assert worker.episode is not None
            worker.episode.play.end(StopEpisode("timeout")) if ending == "time" else playing.cancel()
        (played,) = await asyncio.gather(playing, return_exceptions=True)
        assert isinstance(played, Rollout | asyncio.CancelledError)
        return played if isinstance(played, Rollout) else None


def run(env: Environment, policy: Any, limits: Limits | None = None) -> Any:
    THROWN.clear()
    return asyncio.run(rollout(env, TASK, policy, limits=limits))
