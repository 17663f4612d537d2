"""What happened in a world, as a table to read: when, who, what, and what came of it.

`wander world budget`: success against tokens, simulated time and money, as numbers and as a chart of text.

`wander world`: families of scenarios, what happens in one, and how somebody fares in it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from wanderlust.cli.options import JsonFlag
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.cli.progress import set_library_environment
from wanderlust.cli.world_files import import_command, verify_command
from wanderlust.cli.world_options import (
    BudgetOptions,
    VerifyOptions,
    WorldCommand,
    WorldModelOptions,
    WorldOptions,
    format_duration,
    load_rollout_and_scenario,
    resolve_scenario,
    scenario_id,
)
from wanderlust.environments.assistant_life import LIFE_PLAYERS, AssistantLife
from wanderlust.errors import StoreError, UsageError, nearest_names, one_line
from wanderlust.evals.report import MEASURES, CurvePoint, budget_grid, budget_outcomes, success_curve
from wanderlust.policies.resolve import open_policies, resolve_policy
from wanderlust.runner.engine import rollout
from wanderlust.store.run_folder import EVALUATION_STAGE, STORE_FILE, find_evaluation
from wanderlust.store.store import RunStore
from wanderlust.types import Rollout, Status, Task
from wanderlust.worlds.engine.app import format_time
from wanderlust.worlds.engine.events import ConditionEvent, Event, PlannedCall
from wanderlust.worlds.engine.log import ENGINE, LogEntry
from wanderlust.worlds.engine.scenario import Scenario
from wanderlust.worlds.life.families.family import all_families
from wanderlust.worlds.life.grading import AnswerFacts, describe_facts, facts_of
from wanderlust.worlds.life.players import OraclePolicy
from wanderlust.worlds.wrap.world_environment import log_of

ACTOR_COLOURS: Mapping[str, str] = {"user": "cyan", "agent": "green", "env": "yellow", "world": "dim"}
MAX_VALUE_CHARS_PRINTED = 300
"""Characters of what one action was given, or gave."""
HIDDEN_ACTIONS = ("deliver", "fulfil")
"""The engine's own lines that say nothing to a reader."""


def render_timeline(log: Iterable[LogEntry], start: float) -> Table:
    """The lines of a log; times count from the start."""
    table = _table("time", "who", "what", "with", "came to")
    for line in log:
        if line.app == ENGINE and (line.action in HIDDEN_ACTIONS or line.args.get("seconds", True) in (0, None)):
            continue
        came = f"error: {line.error}" if line.error is not None else _render_value(line.result)
        what = line.action if line.app == ENGINE else f"{line.app}.{line.action}"
        cells = (format_duration(line.time - start), line.by, what, render_arguments(line.args), came)
        style = "red" if line.error is not None else ACTOR_COLOURS.get(line.by, "")
        table.add_row(*(Text(one_line(cell, MAX_VALUE_CHARS_PRINTED), style=style) for cell in cells))
    return table


def _table(*names: str) -> Table:
    table = Table()
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def render_events(scenario: Scenario) -> Table:
    """The events of a scenario: what will happen, and what a perfect agent does."""
    table = _table("event", "after", "who", "what", "with, and what must be said")
    facts = facts_of(scenario)
    for event in scenario.events:
        cells, who = _event(event, facts.get(event.id, {}), scenario.start)
        table.add_row(
            *(Text(one_line(cell, 2 * MAX_VALUE_CHARS_PRINTED), style=ACTOR_COLOURS.get(who, "")) for cell in cells)
        )
    return table


def _event(event: Event, facts: Mapping[str, AnswerFacts], start: float) -> tuple[tuple[str, ...], str]:
    after = ", ".join(event.after) or "start"
    after += f" +{format_duration(event.delay)}" if event.delay else ""
    after += f" at {format_duration(event.at - start)}" if event.at is not None else ""
    if isinstance(event, PlannedCall):
        must = [
            f"{name} must say {'; '.join(describe_facts(one))}"
            for name, one in facts.items()
            if one.says or one.forbidden
        ]
        return (
            event.id,
            after,
            event.by,
            f"{event.app}.{event.action}",
            " | ".join([render_arguments(event.args), *must]),
        ), event.by
    kind = type(event).__name__.lower()
    within = (
        f"within {format_duration(event.within)}"
        if isinstance(event, ConditionEvent) and event.within is not None
        else ""
    )
    return (event.id, after, "", kind, within), "world"


def describe_scenario(scenario: Scenario) -> list[str]:
    """Lines about a scenario."""
    about = ", ".join(f"{key} {value}" for key, value in scenario.info.items() if key != "facts")
    lasts = format_duration(scenario.duration)
    return [f"{scenario.id}: {about}", f"begins {format_time(scenario.start)} UTC, lasts {lasts} at most"]


def render_arguments(args: Mapping[str, Any]) -> str:
    """Arguments as one reads them."""
    return ", ".join(f"{name}={_render_value(value)}" for name, value in args.items())


def _render_value(value: Any) -> str:
    if value is None:
        return ""
    plain = msgspec.to_builtins(value, str_keys=True, builtin_types=())
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


CHART_WIDTH = 40
"""Characters of a full bar."""
ALL_VALUES = "all"


def print_budget(command: WorldCommand) -> int:
    """A curve for each measure that the rollouts know of, and for each value of the key that was asked for."""
    parts = _rollouts_by_key(command.first_argument, command.budget_options.group_by)
    curves: list[tuple[str, str, list[CurvePoint], int]] = []
    for measure in MEASURES:
        for value, played in sorted(parts.items()):
            budget_options = command.budget_options
            budget_points, unknown = budget_outcomes(
                played, measure, pass_threshold=budget_options.pass_threshold, prices=budget_options.prices()
            )
            if budget_points:
                curves.append((measure, value, success_curve(budget_points, budget_grid(budget_points)), unknown))
    if not curves:
        raise UsageError(f"{command.first_argument}: no scored rollout in it says what it spent")
    if command.json:
        print_json(
            {
                "run": command.first_argument,
                "by": command.budget_options.group_by,
                "curves": [_record(*one[:3], unknown=one[3]) for one in curves],
            }
        )
        return 0
    for measure, value, points, unknown in curves:
        print_result(_chart(measure, value, points))
        if unknown:
            print_note(f"{unknown} rollouts do not say what they spent ({measure}) and are in no figure")
    return 0


def _rollouts_by_key(run: str, group_by: str | None) -> dict[str, list[Rollout]]:
    """The rollouts of an evaluation, by a key of their tasks' info, without what they said."""
    parts: dict[str, list[Rollout]] = {}
    try:
        with RunStore.read(find_evaluation(Path(run))[0]) as reader:
            for group in reader.iter_groups(EVALUATION_STAGE, 0):
                for played in group.rollouts:
                    value = ALL_VALUES if group_by is None else str(played.task.info.get(group_by, "none"))
                    parts.setdefault(value, []).append(played)
    except StoreError as error:
        raise UsageError(str(error)) from error
    if not parts:
        raise UsageError(f"{run}: no rollouts of an evaluation in it")
    return parts


def _record(measure: str, value: str, points: Sequence[CurvePoint], *, unknown: int) -> dict[str, Any]:
    return {"measure": measure, "value": value, "unknown": unknown, "points": [asdict(point) for point in points]}


def _chart(measure: str, value: str, points: Sequence[CurvePoint]) -> Table:
    count = points[0].success.count
    title = measure.replace("_", " ") + ("" if value == ALL_VALUES else f", {one_line(value)}")
    table = Table(title=f"success within a budget of {title} ({count} rollouts)", title_justify="left")
    for name in ("at most", "success", "95% interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for point in points:
        low, high = point.success.low or 0.0, point.success.high or 0.0
        solid, light = round(CHART_WIDTH * point.success.value), round(CHART_WIDTH * high)
        bar = "█" * solid + "░" * max(light - solid, 0)
        interval = f"{low:.3f} to {high:.3f}"
        table.add_row(_amount(point.budget, measure), f"{point.success.value:.3f}", interval, Text(bar))
    return table


def _amount(budget: float, measure: str) -> str:
    return f"${budget:,.4f}" if measure == "dollars" else f"{budget:,.0f}"


DEFAULT_WORLD_OPTIONS, DEFAULT_MODEL_OPTIONS, DEFAULT_VERIFY_OPTIONS, DEFAULT_BUDGET_OPTIONS = (
    WorldOptions(),
    WorldModelOptions(),
    VerifyOptions(),
    BudgetOptions(),
)


def world_command(
    verb: str,
    /,
    *arguments: str,
    options: WorldOptions = DEFAULT_WORLD_OPTIONS,
    model_options: WorldModelOptions = DEFAULT_MODEL_OPTIONS,
    verify_options: VerifyOptions = DEFAULT_VERIFY_OPTIONS,
    budget_options: BudgetOptions = DEFAULT_BUDGET_OPTIONS,
    json: JsonFlag = False,
) -> int:
    """Simulated lives: list their families, show a scenario, run a policy in one, verify, import, draw budgets.

    `world list`; `world show SCENARIO`; `world show RUN ROLLOUT`; `world run SCENARIO --policy NAME`;
    `world verify SCENARIO`, which plays the oracle and tests the verifier on it; `world verify SCENARIO --log FILE`;
    `world verify RUN ROLLOUT`; `world import FILE...`; `world budget RUN`. A scenario is family/split-seed/level, as
    in invite/eval-0/1, or a file of ARE's JSON; a family alone is its first scenario of the eval split.

    `verify` exits with 0 when the log is accepted, 1 when it is rejected, 3 when only a judge could tell.

    Parameters
    ----------
    verb:
        list, show, run, verify, import or budget.
    what:
        A scenario, a family, a file, or a run's folder and the number of a rollout.
    """
    if verb not in WORLD_VERBS:
        raise UsageError(f"wander world cannot {verb!r}; {nearest_names(verb, [*WORLD_VERBS], kind='it can')}")
    least, most, example = ARGUMENT_COUNTS[verb]
    if len(arguments) < least:
        raise UsageError(f"wander world {verb} needs {example}")
    if len(arguments) > most:
        raise UsageError(f"wander world {verb} takes no further {arguments[-1]!r}; it takes {example}")
    return WORLD_VERBS[verb](
        WorldCommand(
            arguments=arguments,
            options=options,
            model_options=model_options,
            verify_options=verify_options,
            budget_options=budget_options,
            json=json,
        )
    )


def _list(command: WorldCommand) -> int:
    families = all_families().values()
    if command.json:
        print_json({"families": [{k: getattr(f, k) for k in ("name", "capability", "asks", "hard")} for f in families]})
        return 0
    table = Table("family", "capability", "asks", "what makes it hard")
    for one in sorted(families, key=lambda one: (one.capability, one.name)):
        table.add_row(*map(Text, (one.name, one.capability, one.asks, one.hard)))
    print_result(
        table, f"{len(families)} families. Look at one: wander world show {next(iter(families)).name}/eval-0/1"
    )
    return 0


def _show(command: WorldCommand) -> int:
    if Path(command.first_argument).is_dir() or Path(command.first_argument).name == STORE_FILE:
        return _print_outcome(load_rollout_and_scenario(command.first_argument, command.rollout_number())[0], command)
    if len(command.arguments) > 1:
        raise UsageError(f"{command.first_argument} is no run: there is no rollout {command.arguments[1]!r} to show")
    scenario = resolve_scenario(command.first_argument).scenario
    if command.json:
        print_json({"id": scenario.id, "info": scenario.info, "events": [*map(repr, scenario.events)]})
        return 0
    print_result(render_events(scenario), *describe_scenario(scenario))
    return 0


def _run(command: WorldCommand) -> int:
    set_library_environment()
    env, name, policy_name = AssistantLife(), scenario_id(command.first_argument), command.options.policy
    task = Task(id=name, prompt=next(iter(env.tasks("eval"))).prompt, info=dict(env.scenario_and_grader(name)[0].info))
    players = {**LIFE_PLAYERS, "oracle": OraclePolicy}
    policy = (
        players[policy_name]()
        if policy_name in players
        else resolve_policy(policy_name, env, command.model_options.policy_options()).policy
    )

    async def played() -> Rollout:
        async with open_policies([policy]):
            return await rollout(env, task, policy, seed=command.model_options.seed)

    return _print_outcome(asyncio.run(played()), command)


def _print_outcome(rollout: Rollout, command: WorldCommand) -> int:
    log = log_of(rollout)
    score = next((one.score for one in rollout.trajectories), None)
    reward = None if score is None else score.reward
    verdict = "" if score is None else str(score.notes.get("verdict", ""))
    if command.json:
        lines = [{"time": one.time, "by": one.by, "app": one.app, "action": one.action} for one in log]
        body = {"task": rollout.task.id, "stop": rollout.stop_reason, "error": rollout.error, "reward": reward}
        print_json({**body, "verdict": verdict, "digest": rollout.state.get("digest"), "log": lines})
    else:
        summary = f"Reward: {'none' if reward is None else f'{reward:g}'}. {verdict}"
        error = [f"Error: {rollout.error}"] if rollout.error is not None else []
        print_result(
            render_timeline(log, log[0].time if log else 0.0),
            rollout.task.id,
            *error,
            f"Ended: {rollout.stop_reason}",
            summary,
        )
    return 1 if rollout.status is Status.ERROR else 0


WORLD_VERBS: Mapping[str, Callable[[WorldCommand], int]] = {
    "list": _list,
    "show": _show,
    "run": _run,
    "verify": verify_command,
    "import": import_command,
    "budget": print_budget,
}
"""Commands of `wander world`."""
SCENARIO_HELP = "a scenario, as in invite/eval-0/1"
ARGUMENT_COUNTS: Mapping[str, tuple[int, float, str]] = {
    "list": (0, 0, "nothing"),
    "show": (1, 2, f"{SCENARIO_HELP}, or a run and the number of a rollout"),
    "run": (1, 1, SCENARIO_HELP),
    "verify": (1, 3, f"{SCENARIO_HELP}, or a file, or a run and the number of a rollout, or both"),
    "import": (1, inf, "files of ARE's JSON"),
    "budget": (1, 1, "the folder of an evaluation"),
}
"""How many words each of them takes at least and at most, and which."""
