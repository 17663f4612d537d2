"""Gaia2's scenarios in the three phases of its own run: standard, agent to agent, noise.

`wander eval gaia2,folder=DIR --policy URL --samples 3 --judge URL` is the whole run. `wander export RUN --to gaia2`
writes its figures in the form of ARE's report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wanderlust.environment import Episode
from wanderlust.errors import UsageError
from wanderlust.types import Policy, RubricLike, Task, Tool
from wanderlust_worlds.engine.world import World
from wanderlust_worlds.exchange.are_scenarios import TurnOracle
from wanderlust_worlds.exchange.gaia2_folder import AGENT2AGENT, PHASES, gaia2_tasks, tags_of
from wanderlust_worlds.verification.verdict import Compat
from wanderlust_worlds.wrap.assistant import ASSISTANT_RULES, idle_policy
from wanderlust_worlds.wrap.teams import AppExpert
from wanderlust_worlds.wrap.verified_environment import OracleRubric, VerifiedWorldEnvironment
from wanderlust_worlds.wrap.world_environment import (
    ThinkingTime,
    measured_thinking_time,
    no_thinking_time,
    thinking_time_per_token,
)

APPS_SEAT = "apps"
"""The seat that plays the agents of all apps."""


class Gaia2(VerifiedWorldEnvironment):
    """Gaia2's scenarios from a folder of files or rows, in all phases of its own run: `gaia2,folder=DIR`.

    Each folder in DIR is a configuration, as on the hub: `execution`, `search`, `adaptability`, `time`, `ambiguity` and
    `mini`. The first five are played as they are. Those in `mini` are played in a team, where each app is an agent (the
    seat `apps` plays them), and with the noise of the file's `augmentation`. A folder without `mini` is played in all
    phases.

    The reward is 1 when every turn was accepted, as ARE's judge decides (`compat`). Thinking takes as long as it took,
    as there; the log has the seconds, so a replay is exact. `info` has `phase`, `config`, `capability` and `file`. All
    tasks are in both splits.
    """

    group_by = "config"
    players: Mapping[str, Callable[[], Policy]] = {"oracle": TurnOracle, "nothing": idle_policy}

    def __init__(
        self,
        folder: str | Path = "",
        *,
        phases: Sequence[str] | str = PHASES,
        thinking: ThinkingTime | str | float = "measured",
        share: float = 1.0,
        compat: Compat = "are",
        rubric: RubricLike | None = None,
        **options: Any,
    ):
        """`phases` are those to play, or one of them. `thinking` is `measured`, `none`, or seconds per token written.

        `share` of the apps are agents in the phase `agent2agent`. Other options as of VerifiedWorldEnvironment, `judge`
        and `judge_model` among them.

        Raises ScenarioError, which names the file, for one that cannot be played, and UsageError for other options.
        """
        if not str(folder):
            raise UsageError("pass the folder of scenarios: gaia2,folder=DIR")
        named = (phases,) if isinstance(phases, str) else tuple(phases)
        wrong = [one for one in named if one not in PHASES]
        if wrong or not named:
            what = repr(wrong[0]) if wrong else "with no name"
            raise UsageError(f"there is no phase {what}: name one or more of {', '.join(PHASES)}")
        if not 0 < share <= 1:
            raise UsageError(f"share is {share!r}, expected a share of the apps above 0, at most 1")
        self._tasks = {one.scenario.id: one for one in gaia2_tasks(Path(folder), named, share=share)}
        scenarios = [one.scenario for one in self._tasks.values()]
        super().__init__(scenarios, thinking=thinking_time(thinking), compat=compat, rubric=rubric, **options)
        self.seats = ("agent", APPS_SEAT) if AGENT2AGENT in named else ("agent",)  # type: ignore[misc]
        self.rubric = rubric or OracleRubric(self)

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """One task for each scenario and phase, phase by phase. Raises UsageError when there is no such split."""
        tasks = []
        for task in super().tasks(split):
            one = self._tasks[task.id]
            capability = next(iter(tags_of(one.scenario)), "none")
            info = {"phase": one.phase, "config": one.config, "capability": capability, "file": one.file}
            tasks.append(Task(id=task.id, prompt=task.prompt or (ASSISTANT_RULES,), info=info))
        return tasks

    def tools(self, world: World, episode: Episode) -> list[Tool]:
        """The tools of the apps; in a team, one tool to ask the agent of each."""
        tools, asked = super().tools(world, episode), self._tasks[episode.task.id].apps
        if APPS_SEAT in self.seats:
            episode.agents[APPS_SEAT].trajectory.trainable = False
        own = {app: [tool for tool in tools if getattr(tool, "app", None) == app] for app in asked}
        experts = [
            AppExpert(env=self, world=world, episode=episode, app=app, agent=episode.agents[APPS_SEAT], tools=theirs)
            for app, theirs in own.items()
        ]
        return [*(tool for tool in tools if getattr(tool, "app", None) not in own), *experts]


def thinking_time(value: ThinkingTime | str | float) -> ThinkingTime:
    """What a turn costs: `measured`, `none`, seconds per token, or a function. Raises UsageError for anything else."""
    if callable(value):
        return value
    if isinstance(value, str) and value in ("measured", "none"):
        return measured_thinking_time if value == "measured" else no_thinking_time
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return thinking_time_per_token(float(value))
    raise UsageError(f"thinking is {value!r}, expected measured, none, or seconds per token")
