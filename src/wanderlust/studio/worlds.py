"""`wander world`: families of scenarios, what happens in one, and how somebody fares in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path

from rich.table import Table
from rich.text import Text

from wanderlust.core.errors import UsageError
from wanderlust.core.types import Rollout, Status, Task
from wanderlust.environments.life import PLAYERS, Life
from wanderlust.environments.life_players import Knowing
from wanderlust.recipes.folder import STORE
from wanderlust.rollout.engine import rollout
from wanderlust.studio.arguments import Json, opened
from wanderlust.studio.output import near, result, result_json
from wanderlust.studio.resolve import find_policy
from wanderlust.studio.session import hush
from wanderlust.studio.timeline import header, plot, timeline
from wanderlust.studio.world_budget import draw_budget
from wanderlust.studio.world_import import import_files
from wanderlust.studio.world_verify import verify_world
from wanderlust.studio.world_wishes import Figures, Gradings, Voices, Wish, Wishes, full, stored, the_scenario
from wanderlust.worlds.environment import log_of
from wanderlust.worlds.families.family import all_families

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
