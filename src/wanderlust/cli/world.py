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

from wanderlust.cli.options import Json
from wanderlust.cli.output import note, result, result_json
from wanderlust.cli.progress import hush
from wanderlust.cli.world_files import import_files, verify_world
from wanderlust.cli.world_options import Figures, Gradings, Voices, Wish, Wishes, full, since, stored, the_scenario
from wanderlust.environments.assistant_life import PLAYERS, Life
from wanderlust.errors import StoreError, UsageError, near, one_line
from wanderlust.evals.report import MEASURES, Point, curve, grid, outcomes
from wanderlust.policies.resolve import find_policy, opened
from wanderlust.runner.engine import rollout
from wanderlust.store.run_folder import STAGE_KEPT, STORE, evaluation
from wanderlust.store.store import RunStore
from wanderlust.types import Rollout, Status, Task
from wanderlust.worlds.engine.app import told_time
from wanderlust.worlds.engine.events import Act, Condition, Event
from wanderlust.worlds.engine.log import ENGINE, Happened
from wanderlust.worlds.engine.scenario import Scenario
from wanderlust.worlds.life.answer_checks import Facts, told
from wanderlust.worlds.life.families.family import all_families
from wanderlust.worlds.life.grading import facts_of
from wanderlust.worlds.life.players import Knowing
from wanderlust.worlds.wrap.environment import log_of

COLOURS: Mapping[str, str] = {"user": "cyan", "agent": "green", "env": "yellow", "world": "dim"}
LONGEST = 300
"""Characters of what one action was given, or gave."""
QUIET = ("deliver", "fulfil")
"""The engine's own lines that say nothing to a reader."""


def timeline(log: Iterable[Happened], start: float) -> Table:
    """The lines of a log; times count from the start."""
    table = _table("time", "who", "what", "with", "came to")
    for line in log:
        if line.app == ENGINE and (line.action in QUIET or line.args.get("seconds", True) in (0, None)):
            continue
        came = f"error: {line.error}" if line.error is not None else _shown(line.result)
        what = line.action if line.app == ENGINE else f"{line.app}.{line.action}"
        cells = (since(line.time - start), line.by, what, given(line.args), came)
        style = "red" if line.error is not None else COLOURS.get(line.by, "")
        table.add_row(*(Text(one_line(cell, LONGEST), style=style) for cell in cells))
    return table


def _table(*names: str) -> Table:
    table = Table()
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def plot(scenario: Scenario) -> Table:
    """The events of a scenario: what will happen, and what a perfect agent does."""
    table = _table("event", "after", "who", "what", "with, and what must be said")
    facts = facts_of(scenario)
    for event in scenario.events:
        cells, who = _event(event, facts.get(event.id, {}), scenario.start)
        table.add_row(*(Text(one_line(cell, 2 * LONGEST), style=COLOURS.get(who, "")) for cell in cells))
    return table


def _event(event: Event, facts: Mapping[str, Facts], start: float) -> tuple[tuple[str, ...], str]:
    after = ", ".join(event.after) or "start"
    after += f" +{since(event.delay)}" if event.delay else ""
    after += f" at {since(event.at - start)}" if event.at is not None else ""
    if isinstance(event, Act):
        must = [f"{name} must say {'; '.join(told(one))}" for name, one in facts.items() if one.says or one.never]
        return (
            event.id,
            after,
            event.by,
            f"{event.app}.{event.action}",
            " | ".join([given(event.args), *must]),
        ), event.by
    kind = type(event).__name__.lower()
    within = f"within {since(event.within)}" if isinstance(event, Condition) and event.within is not None else ""
    return (event.id, after, "", kind, within), "world"


def header(scenario: Scenario) -> list[str]:
    """Lines about a scenario."""
    about = ", ".join(f"{key} {value}" for key, value in scenario.info.items() if key != "facts")
    lasts = since(scenario.duration)
    return [f"{scenario.id}: {about}", f"begins {told_time(scenario.start)} UTC, lasts {lasts} at most"]


def given(args: Mapping[str, Any]) -> str:
    """Arguments as one reads them."""
    return ", ".join(f"{name}={_shown(value)}" for name, value in args.items())


def _shown(value: Any) -> str:
    if value is None:
        return ""
    plain = msgspec.to_builtins(value, str_keys=True, builtin_types=())
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


WIDTH = 40
"""Characters of a full bar."""
ALL = "all"


def draw_budget(wish: Wish) -> int:
    """A curve for each measure that the rollouts know of, and for each value of the key that was asked for."""
    parts = _parts(wish.first, wish.figures.by)
    curves: list[tuple[str, str, list[Point], int]] = []
    for measure in MEASURES:
        for value, played in sorted(parts.items()):
            given = wish.figures
            found, unknown = outcomes(played, measure, passing=given.passing, prices=given.prices())
            if found:
                curves.append((measure, value, curve(found, grid(found)), unknown))
    if not curves:
        raise UsageError(f"{wish.first}: no scored rollout in it says what it spent")
    if wish.json:
        result_json(
            {"run": wish.first, "by": wish.figures.by, "curves": [_record(*one[:3], unknown=one[3]) for one in curves]}
        )
        return 0
    for measure, value, points, unknown in curves:
        result(_chart(measure, value, points))
        if unknown:
            note(f"{unknown} rollouts do not say what they spent ({measure}) and are in no figure")
    return 0


def _parts(run: str, by: str | None) -> dict[str, list[Rollout]]:
    """The rollouts of an evaluation, by a key of their tasks' info, without what they said."""
    parts: dict[str, list[Rollout]] = {}
    try:
        with RunStore.read(evaluation(Path(run))[0]) as reader:
            for group in reader.each_group(STAGE_KEPT, 0):
                for played in group.rollouts:
                    value = ALL if by is None else str(played.task.info.get(by, "none"))
                    parts.setdefault(value, []).append(played)
    except StoreError as error:
        raise UsageError(str(error)) from error
    if not parts:
        raise UsageError(f"{run}: no rollouts of an evaluation in it")
    return parts


def _record(measure: str, value: str, points: Sequence[Point], *, unknown: int) -> dict[str, Any]:
    return {"measure": measure, "value": value, "unknown": unknown, "points": [asdict(point) for point in points]}


def _chart(measure: str, value: str, points: Sequence[Point]) -> Table:
    count = points[0].success.count
    told = measure.replace("_", " ") + ("" if value == ALL else f", {one_line(value)}")
    table = Table(title=f"success within a budget of {told} ({count} rollouts)", title_justify="left")
    for name in ("at most", "success", "95% interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for point in points:
        low, high = point.success.low or 0.0, point.success.high or 0.0
        solid, light = round(WIDTH * point.success.value), round(WIDTH * high)
        bar = "█" * solid + "░" * max(light - solid, 0)
        interval = f"{low:.3f} to {high:.3f}"
        table.add_row(_amount(point.budget, measure), f"{point.success.value:.3f}", interval, Text(bar))
    return table


def _amount(budget: float, measure: str) -> str:
    return f"${budget:,.4f}" if measure == "dollars" else f"{budget:,.0f}"


WISHES, VOICES, GRADINGS, FIGURES = Wishes(), Voices(), Gradings(), Figures()


def world(
    verb: str,
    /,
    *what: str,
    wishes: Wishes = WISHES,
    voices: Voices = VOICES,
    gradings: Gradings = GRADINGS,
    figures: Figures = FIGURES,
    json: Json = False,
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
    if verb not in VERBS:
        raise UsageError(f"wander world cannot {verb!r}; {near(verb, [*VERBS], kind='it can')}")
    least, most, example = TAKES[verb]
    if len(what) < least:
        raise UsageError(f"wander world {verb} needs {example}")
    if len(what) > most:
        raise UsageError(f"wander world {verb} takes no further {what[-1]!r}; it takes {example}")
    return VERBS[verb](Wish(what=what, wishes=wishes, voices=voices, gradings=gradings, figures=figures, json=json))


def _list(wish: Wish) -> int:
    known = all_families().values()
    if wish.json:
        result_json({"families": [{k: getattr(f, k) for k in ("name", "capability", "asks", "hard")} for f in known]})
        return 0
    table = Table("family", "capability", "asks", "what makes it hard")
    for one in sorted(known, key=lambda one: (one.capability, one.name)):
        table.add_row(*map(Text, (one.name, one.capability, one.asks, one.hard)))
    result(table, f"{len(known)} families. Look at one: wander world show {next(iter(known)).name}/eval-0/1")
    return 0


def _show(wish: Wish) -> int:
    if Path(wish.first).is_dir() or Path(wish.first).name == STORE:
        return _told(stored(wish.first, wish.number())[0], wish)
    if len(wish.what) > 1:
        raise UsageError(f"{wish.first} is no run: there is no rollout {wish.what[1]!r} to show")
    scenario = the_scenario(wish.first).scenario
    if wish.json:
        result_json({"id": scenario.id, "info": scenario.info, "events": [*map(repr, scenario.events)]})
        return 0
    result(plot(scenario), *header(scenario))
    return 0


def _run(wish: Wish) -> int:
    hush()
    env, name, asked = Life(), full(wish.first), wish.wishes.policy
    task = Task(id=name, prompt=next(iter(env.tasks("eval"))).prompt, info=dict(env.made(name)[0].info))
    players = {**PLAYERS, "oracle": Knowing}
    policy = players[asked]() if asked in players else find_policy(asked, env, wish.voices.voice()).policy

    async def played() -> Rollout:
        async with opened([policy]):
            return await rollout(env, task, policy, seed=wish.voices.seed)

    return _told(asyncio.run(played()), wish)


def _told(played: Rollout, wish: Wish) -> int:
    log = log_of(played)
    score = next((one.score for one in played.trajectories), None)
    reward = None if score is None else score.reward
    verdict = "" if score is None else str(score.notes.get("verdict", ""))
    if wish.json:
        lines = [{"time": one.time, "by": one.by, "app": one.app, "action": one.action} for one in log]
        body = {"task": played.task.id, "stop": played.stop, "error": played.error, "reward": reward}
        result_json({**body, "verdict": verdict, "digest": played.state.get("digest"), "log": lines})
    else:
        said = f"Reward: {'none' if reward is None else f'{reward:g}'}. {verdict}"
        error = [f"Error: {played.error}"] if played.error is not None else []
        result(timeline(log, log[0].time if log else 0.0), played.task.id, *error, f"Ended: {played.stop}", said)
    return 1 if played.status is Status.ERROR else 0


VERBS: Mapping[str, Callable[[Wish], int]] = {
    "list": _list,
    "show": _show,
    "run": _run,
    "verify": verify_world,
    "import": import_files,
    "budget": draw_budget,
}
"""What `wander world` can do."""
ONE = "a scenario, as in invite/eval-0/1"
TAKES: Mapping[str, tuple[int, float, str]] = {
    "list": (0, 0, "nothing"),
    "show": (1, 2, f"{ONE}, or a run and the number of a rollout"),
    "run": (1, 1, ONE),
    "verify": (1, 3, f"{ONE}, or a file, or a run and the number of a rollout, or both"),
    "import": (1, inf, "files of ARE's JSON"),
    "budget": (1, 1, "the folder of an evaluation"),
}
"""How many words each of them takes at least and at most, and which."""
