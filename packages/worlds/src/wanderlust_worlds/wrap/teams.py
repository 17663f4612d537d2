"""Teams of agents: chosen apps are used through an agent of their own that has their tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from wanderlust.agent import Agent
from wanderlust.environment import Episode
from wanderlust.errors import UsageError
from wanderlust.tools.tool_calls import call_tools, count_outcomes
from wanderlust.types import Message, Tool, system, user
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.engine.world import World
from wanderlust_worlds.wrap.verified_environment import VerifiedWorldEnvironment
from wanderlust_worlds.wrap.world_environment import TOOL_NAME_SEPARATOR, WorldEnvironment

EXPERT_TOOL_NAME = "expert_agent"
"""The action that asks an app's agent."""
MAX_EXPERT_TURNS = 20
"""Turns that an app's agent may take for one task."""
MAX_TASK_CHARS = 20_000
"""Characters of one task for an app's agent."""


class TeamWorldEnvironment(VerifiedWorldEnvironment):
    """Plays scenarios in a team: the seat `agent` has, for each of the chosen apps, one tool that asks the app's agent.

    Each chosen app is a seat of its name, with a policy of its own. It reads the task, uses its app's tools, and its
    first answer without a call is what the asker gets. Thinking takes time for everybody. Writes stand in the log as
    ever, so verification is the same as without a team; only the seat `agent` is trained unless others are made so.
    """

    def __init__(self, *args: Any, apps: Sequence[str], trains_apps: bool = False, **options: Any):
        """`apps` are the names of those that get an agent. Raises UsageError for one that a scenario has not."""
        super().__init__(*args, **options)
        self.apps, self.trains_apps = tuple(apps), trains_apps
        for scenario in self._scenario_of_id.values():
            if missing := set(apps) - {app.name for app in scenario.apps}:
                raise UsageError(f"the scenario {scenario.id!r} has no app {', '.join(sorted(missing))} to be an agent")
        self.seats = ("agent", *self.apps)  # type: ignore[misc]

    def tools(self, world: World, episode: Episode) -> list[Tool]:
        """The tools of the apps that are apps still, and a way to ask each of the others."""
        tools = super().tools(world, episode)
        experts: list[Tool] = []
        for app in self.apps:
            agent = episode.agents[app]
            agent.trajectory.trainable = self.trains_apps
            own = [tool for tool in tools if getattr(tool, "app", None) == app]
            experts.append(AppExpert(env=self, world=world, episode=episode, app=app, agent=agent, tools=own))
        return [*(tool for tool in tools if getattr(tool, "app", None) not in self.apps), *experts]


def chosen_apps(scenario: Scenario, share: float, *, seed: int = 0) -> tuple[str, ...]:
    """A share of the apps that could be agents: those with more for the agent to do than to end its turn and wait."""
    names = []
    for app in scenario.apps:
        actions = app.actions.values()
        channel = any(one.ends_turn or one.name == "wait_for_notification" for one in actions)
        if not channel and any("agent" in one.scopes for one in actions):
            names.append(app.name)
    rng = Random(f"{scenario.id}/{seed}/team")
    return tuple(sorted(rng.sample(names, round(share * len(names)))))


@dataclass(slots=True, kw_only=True)
class AppExpert:
    """An app's agent, as a tool of the agent. It remembers what it was asked before."""

    env: WorldEnvironment
    world: World
    episode: Episode
    app: str
    agent: Agent
    """The seat that plays it, which may play those of other apps as well."""
    tools: Sequence[Tool]
    talk: list[Message] = field(init=False, default_factory=list)
    name: str = field(init=False)
    description: str = field(init=False)
    schema: dict[str, Any] = field(init=False)
    ordered: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.name = f"{self.app}{TOOL_NAME_SEPARATOR}{EXPERT_TOOL_NAME}"
        self.description = f"Ask the agent of {self.app} to do something with its tools: " + ", ".join(
            tool.name.partition(TOOL_NAME_SEPARATOR)[2] or tool.name for tool in self.tools
        )
        task = {"type": "string", "description": "What to do, with all that it must know: it sees nothing else."}
        self.schema = {"type": "object", "properties": {"task": task}, "required": ["task"]}

    async def __call__(self, /, **arguments: Any) -> str:
        """Have the task done; its answer."""
        task = str(arguments.get("task", ""))[:MAX_TASK_CHARS]
        role = "Do what you are asked with your tools, then answer in words what you did."
        start = () if self.talk else (system(f"You are the agent of {self.app}. {role}"),)
        new: Sequence[Message] = [*start, user(task)]
        for _ in range(MAX_EXPERT_TURNS):
            self.talk += new
            answer = await self.env.think_with_context(self.world, self.talk, agent=self.agent, tools=self.tools)
            self.talk.append(answer)
            if self.world.stopped:
                return "the world has ended"
            if not answer.tool_calls:
                return answer.content
            called = await call_tools(answer.tool_calls, self.tools, self.env.call_limits)
            count_outcomes(called, self.episode.state["tool_calls"])
            new = [one.message for one in called]
        return f"the agent of {self.app} did not come to an end within {MAX_EXPERT_TURNS} turns"
