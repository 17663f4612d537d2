"""Scenarios as an environment: tools are the apps' actions, messages are the agent's notices.

Thinking costs time of the world: a number that the caller chose, recorded in the log.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias

from wanderlust.agent import Agent
from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import UsageError
from wanderlust.tools.function import TOOL_NAME_PATTERN, WrongArguments, as_text
from wanderlust.tools.tool_calls import CallLimits, call_tools, count_outcomes
from wanderlust.types import Message, Rollout, RubricLike, Task, Tool, Turn, user
from wanderlust_worlds.apps.user_interface import UserInterface
from wanderlust_worlds.engine.app import AppAction, format_time
from wanderlust_worlds.engine.log import ENGINE, LogEntry, log_bytes, read_log
from wanderlust_worlds.engine.replay import replay_log
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.engine.world import Gate, Notice, World, match_first
from wanderlust_worlds.wrap.branches import WorldBranches

ThinkingTime: TypeAlias = Callable[[Sequence[Turn], float], float]
"""Seconds of the world's clock to charge for the last of the seat's turns, given the wall-clock seconds it took."""
THINKING_REASON = "thinking"
"""The reason that stands in the log."""


def no_thinking_time(turns: Sequence[Turn], measured: float) -> float:
    """Thinking takes no time."""
    return 0.0


def fixed_thinking_time(seconds: float) -> ThinkingTime:
    """Every turn takes as long."""
    return lambda turns, measured: seconds


def thinking_time_per_token(seconds: float, *, fallback: float = 0.25) -> ThinkingTime:
    """So many seconds for each token that was written.

    Tokens are those that were sampled, else those that the policy reported, else `fallback` of one per character.
    """

    def charge(turns: Sequence[Turn], measured: float) -> float:
        turn = turns[-1]
        if turn.tokens is not None:
            return seconds * len(turn.tokens.completion)
        if "completion_tokens" in turn.usage:
            return seconds * turn.usage["completion_tokens"]
        action = turn.action
        written = (
            len(action.content) + len(action.reasoning or "") + sum(len(call.arguments) for call in action.tool_calls)
        )
        return seconds * fallback * written

    return charge


def measured_thinking_time(turns: Sequence[Turn], measured: float) -> float:
    """As long as it really took. Only a recording can be replayed: use `recorded_thinking_time`."""
    return measured


def charged_seconds(log: Iterable[LogEntry], why: str = THINKING_REASON) -> list[float]:
    """The seconds charged for each turn of a log, in order, for this reason."""
    return [h.args["seconds"] for h in log if h.app == ENGINE and h.action == "advance" and h.args["why"] == why]


def decision_lines(log: Iterable[LogEntry], why: str = THINKING_REASON) -> list[int]:
    """The line of each decision of the agent, in order: the one that charges its thinking time."""
    return [n for n, h in enumerate(log) if h.app == ENGINE and h.action == "advance" and h.args["why"] == why]


def recorded_thinking_time(log: Iterable[LogEntry], why: str = THINKING_REASON) -> ThinkingTime:
    """The seconds that each turn was charged in this log. IndexError for a turn beyond it."""
    seconds = charged_seconds(log, why)
    return lambda turns, measured: seconds[len(turns) - 1]


TOOL_NAME_SEPARATOR = "__"
"""Between the app's and the action's name in the name of a tool."""
NO_NAMES: Mapping[str, str] = {}


@dataclass(slots=True)
class AppTool:
    """An action of an app of a live world, as a tool of the agent. Its calls are made one after another."""

    world: World
    app: str
    action: AppAction
    name: str
    description: str
    schema: dict[str, Any]
    original_names: Mapping[str, str] = field(default_factory=dict)
    """The arguments' own names, by the names shown to the agent, where those differ."""
    ordered: ClassVar[bool] = True

    async def __call__(self, /, **arguments: Any) -> str:
        """Use the action. Nothing in a world waits for anything outside, so this returns at once."""
        original = (
            {self.original_names.get(name, name): value for name, value in arguments.items()}
            if self.original_names
            else arguments
        )
        try:
            answer = self.world.call(self.app, self.action.name, original)
        except WrongArguments as wrong:
            text = str(wrong)
            for shown_name, name in self.original_names.items():
                text = re.sub(rf"\b{re.escape(name)}\b", shown_name, text)
            raise WrongArguments(text) from wrong
        return "done" if answer is None and self.action.silent else as_text(answer)


def agent_tools(
    world: World, names: Mapping[str, str] = NO_NAMES, descriptions: Mapping[str, str] = NO_NAMES
) -> list[Tool]:
    """The agent's actions of all apps, as tools. Raises UsageError for a name that no endpoint takes.

    `names` and `descriptions` as of a scenario: those shown to the agent instead of the true ones.
    """
    tools: list[Tool] = []
    every = ((app, action) for app, one in world.apps.items() for action in one.actions.values())
    for app, action in every:
        if "agent" not in action.scopes:
            continue
        key = f"{app}.{action.name}"
        name = names.get(key, f"{app}{TOOL_NAME_SEPARATOR}{action.name}")
        if not TOOL_NAME_PATTERN.fullmatch(name):
            raise UsageError(f"the app {app!r}: {name!r} cannot be a tool's name; give the app another one")
        schema = action.tool.schema
        new_names = {arg: names[f"{key}.{arg}"] for arg in schema["properties"] if f"{key}.{arg}" in names}
        if new_names:
            properties = {new_names.get(arg, arg): value for arg, value in schema["properties"].items()}
            required = [new_names.get(arg, arg) for arg in schema.get("required", ())]
            schema = {**schema, "properties": properties, "required": required}
        true = {new_name: arg for arg, new_name in new_names.items()}
        about = descriptions.get(key, action.tool.description)
        tools.append(AppTool(world, app, action, name, about, schema, true))
    return tools


def only_app_tools(tools: Iterable[Tool]) -> list[AppTool]:
    """The tools, all of which act in a world alone. Raises UsageError where one does more, as other agents do."""
    found = []
    for tool in tools:
        if not isinstance(tool, AppTool):
            raise UsageError(f"the tool {tool.name} acts outside of the world: leave `branches` out")
        found.append(tool)
    return found


def notice_messages(notices: Iterable[Notice]) -> list[Message]:
    """One message with all notices: the user's text as it is, others after time and app. No message without notices."""
    lines = [n.text if n.by == "user" else f"[{format_time(n.time)}] {n.app}: {n.text}" for n in notices]
    return [user("\n\n".join(lines))] if lines else []


def log_of(rollout: Rollout) -> list[LogEntry]:
    """The log that a rollout of a world left. Raises UsageError when there is none."""
    if "log" not in rollout.state:
        raise UsageError(f"the rollout of task {rollout.task.id!r} has no log of a world")
    return read_log(rollout.state["log"])


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchStart:
    """The state from which a branched rollout goes on."""

    world: World
    history: tuple[Message, ...]
    """The messages that the agent has read and written until then."""
    state: Mapping[str, Any]
    """The entries of the rollout's state that stay valid."""


class WorldEnvironment(Environment):
    """Plays scenarios: one task each.

    The agent reads its notices before each action. An answer without a call is sent to the user. After a message to the
    user, time jumps to the agent's next notice; when there is none, the episode is over. The state of a rollout has the
    `log` (JSON lines; `log_of` reads them), its `digest`, the time `now`, and why it `stopped`.
    """

    limits = Limits(max_turns=200)
    call_limits: ClassVar[CallLimits] = CallLimits(timeout=None)

    def __init__(
        self,
        scenarios: Sequence[Scenario] | Mapping[str, Sequence[Scenario]] = (),
        *,
        thinking: ThinkingTime = no_thinking_time,
        gate: Gate | None = match_first,
        rubric: RubricLike | None = None,
        limits: Limits | None = None,
        branches: bool = False,
        forget: bool = False,
    ):
        """`thinking` says what a turn costs in time of the world; `gate` recognises what the oracle expects.

        With `branches` the agent has the tools of `WorldBranches` as well, and what it tried stands in the state as
        `branches`. With `forget` an undo takes the conversation back, too, but for the agent's note.

        Raises ScenarioError for a scenario that cannot be played, and UsageError for options that are something else.
        """
        for name, value, fits, expected in (
            ("thinking", thinking, callable(thinking), "a function of the turns and the seconds they took"),
            ("gate", gate, gate is None or callable(gate), "a function of a world and a line of its log"),
            ("rubric", rubric, rubric is None or hasattr(rubric, "score"), "a rubric"),
            ("limits", limits, limits is None or isinstance(limits, Limits), "Limits"),
        ):
            if not fits:
                raise UsageError(f"{name} is {value!r}, expected {expected}")
        splits = scenarios if isinstance(scenarios, Mapping) else {"train": scenarios, "eval": scenarios}
        self._splits = {name: tuple(split_scenarios) for name, split_scenarios in splits.items()}
        self._scenario_of_id = {
            scenario.id: scenario for split_scenarios in self._splits.values() for scenario in split_scenarios
        }
        for scenario in self._scenario_of_id.values():
            scenario.plan  # noqa: B018 (making it is checking it)
        self.thinking, self.gate, self.branches, self.forget = thinking, gate, branches or forget, forget
        self.past: list[LogEntry] | None = None
        self.origin: BranchStart | None = None
        self.rubric, self.limits = rubric or self.rubric, limits or self.limits

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """One task per scenario of the split. Raises UsageError when there is no such split."""
        if split not in self._splits:
            raise UsageError(f"there is no split {split!r}: one of {', '.join(self._splits)}")
        return [Task(id=one.id, prompt=one.prompt, info=one.info) for one in self._splits[split]]

    def scenario(self, task: Task) -> Scenario:
        """The scenario of a task; to be overridden where scenarios are made from tasks."""
        if task.id not in self._scenario_of_id:
            raise UsageError(f"there is no scenario {task.id!r}")
        return self._scenario_of_id[task.id]

    def with_recorded_thinking(self, rollout: Rollout) -> Self:
        """The environment in which this rollout can be replayed: thinking takes as long as it took then."""
        twin = copy(self)
        twin.past = log_of(rollout)
        return twin

    def branch_at(self, rollout: Rollout, decision_number: int) -> Self:
        """The environment that continues this rollout from the agent's decision of that number, from 0, taken anew.

        The agent reads the conversation until then at once; other seats begin with an empty one. The log is whole
        again, so that what is played can be verified and replayed like any other. Raises UsageError without such a
        decision, and where the log cannot be replayed.
        """
        twin, lines = copy(self), log_of(rollout)
        places = decision_lines(lines)
        if not 0 <= decision_number < len(places):
            raise UsageError(f"the agent decided {len(places)} times: there is no decision {decision_number}")
        scenario = self.scenario(rollout.task)
        world = replay_log(scenario, lines[: places[decision_number]], rollout.seed)
        world.gate = self.gate_of(scenario)
        seat = next(one for one in rollout.trajectories if one.seat == self.seats[0])
        turn, before = seat.turns[decision_number - len(places)], len(seat.turns) - len(places) + decision_number
        parent = seat.parent(before)
        history = (*(seat.conversation(parent) if parent is not None else ()), *turn.observation)
        state = {key: rollout.state[key] for key in ("answers",) if key in rollout.state}
        twin.origin = BranchStart(world=world, history=history, state=state)
        return twin

    async def run(self, episode: Episode) -> None:
        """Play the scenario of the episode's task."""
        scenario, origin = self.scenario(episode.task), self.origin
        world = origin.world.branch() if origin else scenario.world(episode.seed, gate=self.gate_of(scenario))
        episode.state.update(origin.state if origin else {}, tool_calls={})
        try:
            with episode.playing():
                if not origin:
                    world.wait()
                first = origin.history if origin else [*episode.task.prompt, *notice_messages(world.deliver())]
                await self.run_world(world, episode, first)
            await self.on_episode_end(world, episode)
        finally:
            log = log_bytes(world.log).decode()
            episode.state.update(log=log, digest=world.digest(), now=world.now, stopped=world.stopped)

    async def run_world(self, world: World, episode: Episode, new: Sequence[Message]) -> None:
        """The loop itself, in any world from wherever it stands; `new` is what the agent reads first."""
        agent, tools = episode.agents[self.seats[0]], self.tools(world, episode)
        trying = WorldBranches(world, only_app_tools(tools), forget=self.forget) if self.branches else None
        if trying is not None:
            episode.state["branches"], tools = trying.history, [*tools, *trying.tools()]
        while new:
            answer = await self.think(world, new, agent=agent, tools=tools)
            if world.stopped:
                return
            at = len(world.log)
            called = await call_tools(answer.tool_calls, tools, self.call_limits)
            count_outcomes(called, episode.state["tool_calls"])
            interface = None if called else world.find(UserInterface)
            if interface is not None and answer.content:
                content = answer.content.encode(errors="backslashreplace").decode()  # no lone surrogates in a log
                world.call(interface.name, "send_message_to_user", {"content": content})
            done = [world.action(line) for line in world.log[at:] if line.by == "agent" and line.error is None]
            if ends := not called or any(action.ends_turn for action in done if action is not None):
                await self.on_turn_end(world, episode)
            if ends and trying is not None:
                trying.close()
            if ends and not world.stopped:
                world.wait()
            news = notice_messages(world.deliver())
            if world.stopped or (ends and not news):
                return
            answers = [one.message for one in called]
            new = [*(answers if trying is None else trying.answered(agent, answers)), *news]

    # What kinds of worlds may do otherwise

    def gate_of(self, scenario: Scenario) -> Gate | None:
        """The gate of a scenario's worlds."""
        return self.gate

    def tools(self, world: World, episode: Episode) -> list[Tool]:
        """The agent's tools in a world."""
        scenario = self.scenario(episode.task)
        return agent_tools(world, scenario.names, scenario.descriptions)

    async def on_turn_end(self, world: World, episode: Episode) -> None:
        """Called when the agent has ended a turn, before time passes."""

    async def on_episode_end(self, world: World, episode: Episode) -> None:
        """Called at the end of an episode."""

    async def think(self, world: World, new: Sequence[Message], *, agent: Agent, tools: Sequence[Tool]) -> Message:
        """A seat's next turn. The world's clock advances by its thinking time."""
        started = time.monotonic()
        answer = await agent.act(*new, tools=tools)
        self._charge(world, agent, time.monotonic() - started)
        return answer

    async def think_with_context(
        self, world: World, context: Sequence[Message], *, agent: Agent, tools: Sequence[Tool]
    ) -> Message:
        """The next turn of one of a seat's conversations, which `context` is; time passes as in `think`."""
        started = time.monotonic()
        answer = await agent.act_with_context(context, tools)
        self._charge(world, agent, time.monotonic() - started)
        return answer

    def _charge(self, world: World, agent: Agent, measured: float) -> None:
        """Let the thinking time of a seat's latest turn pass."""
        seat = agent.trajectory.seat
        why = THINKING_REASON if seat == self.seats[0] else f"{THINKING_REASON} {seat}"
        thinking = self.thinking if self.past is None else recorded_thinking_time(self.past, why)
        world.advance(thinking(agent.trajectory.turns, measured), why)
