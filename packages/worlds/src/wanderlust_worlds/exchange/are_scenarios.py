"""Scenarios in files of ARE's JSON, as Gaia2 has them, played and verified turn by turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from wanderlust.errors import UsageError
from wanderlust.types import Completion, Message, Policy, Task, Tool, ToolCall, assistant
from wanderlust_worlds.engine.events import (
    PlannedCall,
    ScenarioError,
    fill_placeholders,
    is_agent_call,
    resolve_placeholder,
    result_part,
)
from wanderlust_worlds.engine.log import LogEntry
from wanderlust_worlds.engine.world import World
from wanderlust_worlds.exchange.read import read_scenarios
from wanderlust_worlds.verification.oracle import plain_value
from wanderlust_worlds.wrap.assistant import (
    ASSISTANT_RULES,
    MAX_WAIT_SECONDS,
    WAIT_ACTION,
    call_due_at,
    idle_policy,
    tool_call_message,
)
from wanderlust_worlds.wrap.teams import AppExpert
from wanderlust_worlds.wrap.verified_environment import OracleRubric, VerifiedWorldEnvironment
from wanderlust_worlds.wrap.world_environment import AppTool


class TurnOracle:
    """Plays the oracle's acts when they are due, through the tools; it reads the world behind them.

    It finds its acts in the log: in worlds whose turns are verified they are done only when the turn has ended. In a
    team it asks the agents of apps to act, and acts itself where it sits on their seat.
    """

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """The next act, or a wait for it."""
        own = {(tool.app, tool.action.name): tool for tool in tools if isinstance(tool, AppTool)}
        experts = {tool.app: tool for tool in tools if isinstance(tool, AppExpert)}
        if not own:
            raise UsageError("the oracle needs the tools of a world")
        world, call_id = next(iter(own.values())).world, f"call-{len(messages)}"
        done = _done(world)
        left = [act for act in _acts(world) if act.id not in done]
        ready = [act for act in left if all(name in done for name in act.after)]
        due = sorted((call_due_at(world, act, done), n) for n, act in enumerate(ready))
        for act in [ready[n] for at, n in due if at <= world.now]:
            if (act.app, act.action) in own:
                args = _args(world, act, done)
                return Completion(message=tool_call_message(own[act.app, act.action], args, call_id=call_id))
            if act.app in experts:
                task = json.dumps({"task": f"Use {act.action}."})
                call = ToolCall(id=call_id, name=experts[act.app].name, arguments=task)
                return Completion(message=assistant("", call))
        waiting = next((tool for (_, action), tool in own.items() if action == WAIT_ACTION), None)
        if waiting is None or not left:
            return Completion(message=assistant("" if waiting is not None else "Done."))
        seconds = ceil(due[0][0] - world.now) if due else MAX_WAIT_SECONDS
        return Completion(message=tool_call_message(waiting, {"timeout": seconds}, call_id=call_id))


def _acts(world: World) -> list[PlannedCall]:
    return [event for event in world.plan.events.values() if isinstance(event, PlannedCall) and is_agent_call(event)]


def _done(world: World) -> dict[str, int]:
    """The line of each event that has happened, and of each act that the log has already."""
    done, acts, known = dict(world.done), _acts(world), {*world.done.values()}
    for number, line in enumerate(world.log):
        if line.by != "agent" or line.error is not None or number in known:
            continue
        for act in acts:
            same = act.id not in done and (act.app, act.action) == (line.app, line.action)
            if same and all(name in done for name in act.after) and _may_be(world, act, line, done=done):
                done[act.id] = number
                break
    return done


def _may_be(world: World, act: PlannedCall, line: LogEntry, *, done: Mapping[str, int]) -> bool:
    """Whether no argument of the line is certainly another than the act's: texts may be in other words."""
    action = world.apps[act.app].actions[act.action]
    wanted, actual = action.complete(_args(world, act, done)), action.complete(line.args)
    return all(action.check(name).same(value, actual.get(name)) is not False for name, value in wanted.items())


def _args(world: World, act: PlannedCall, done: Mapping[str, int]) -> Mapping[str, Any]:
    def result(name: str) -> Any:
        origin = resolve_placeholder(name, done)
        if origin is None:
            raise UsageError(f"event {act.id!r}: {{{{{name}}}}} has not happened")
        return plain_value(result_part(world.log[done[origin[0]]].result, origin[1]))

    args: Mapping[str, Any] = fill_placeholders(act.args, result)
    return args


class AreScenarios(VerifiedWorldEnvironment):
    """The scenarios in a folder of ARE's JSON, or of rows (JSONL, Parquet): `are,folder=DIR`. All are in both splits.

    The reward is 1 when every turn was accepted. Without a `judge` (any policy, or its name with `judge_model`) an
    undecided verdict counts as not accepted, and the metric `undecided` is its share. `info` has the `capability`,
    which is the file's first tag.
    """

    group_by = "capability"
    players: Mapping[str, Callable[[], Policy]] = {"oracle": TurnOracle, "nothing": idle_policy}

    def __init__(self, folder: str | Path = "", **options: Any):
        """Options as of VerifiedWorlds, `compat` among them.

        Raises ScenarioError, which names the file: also for one that expects nothing of the agent, since whoever does
        nothing would earn the reward (a `rubric` of your own may be meant for that).
        """
        if not str(folder):
            raise UsageError("pass the folder of scenarios: are,folder=DIR")
        scenarios = read_scenarios(Path(folder))
        for place, one in scenarios.items():
            if not one.scenario.oracle and options.get("rubric") is None:
                raise ScenarioError(f"{place}: no event is the agent's: doing nothing would pass, expected its acts")
        super().__init__([one.scenario for one in scenarios.values()], **options)
        self.files = {one.scenario.id: place.removeprefix(f"{Path(folder)}/") for place, one in scenarios.items()}
        """The file of each scenario, and its row where it is one."""
        self.rubric = options.get("rubric") or OracleRubric(self)

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """One task per file, in the order of their names. Raises UsageError when there is no such split."""
        tasks = []
        for task in super().tasks(split):
            tags = task.info.get("tags")
            capability = str(tags[0]) if isinstance(tags, list) and tags else "none"
            info = {"capability": capability, "file": self.files[task.id]}
            tasks.append(Task(id=task.id, prompt=task.prompt or (ASSISTANT_RULES,), info=info))
        return tasks
