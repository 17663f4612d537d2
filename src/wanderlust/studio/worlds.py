"""`wander world`: families of scenarios, what happens in one, and how somebody fares in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from wanderlust.core.errors import UsageError
from wanderlust.core.types import Rollout, Status, Task
from wanderlust.environments.life import PLAYERS, Life, scenario_of
from wanderlust.environments.life_players import Knowing
from wanderlust.rollout.engine import rollout
from wanderlust.rollout.store import RunStore
from wanderlust.studio.arguments import Json, opened
from wanderlust.studio.kept import evaluation
from wanderlust.studio.output import near, result, result_json
from wanderlust.studio.resolve import Voice, find_policy
from wanderlust.studio.session import hush
from wanderlust.studio.timeline import header, plot, timeline
from wanderlust.worlds.environment import log_of
from wanderlust.worlds.families.family import all_families


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What was asked for."""

    what: str
    policy: str
    voice: Voice
    number: int
    seed: int
    json: bool


def world(
    verb: str,
    what: str = "",
    number: int = 0,
    /,
    *,
    policy: str = "oracle",
    model: str | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    json: Json = False,
) -> int:
    """Look at simulated lives: list their families, show a scenario or a rollout's timeline, run a policy in one.

    `world list`; `world show SCENARIO`; `world show RUN ROLLOUT`; `world run SCENARIO --policy NAME`. A scenario is
    family/split-seed/level, as in invite/eval-0/1; a family alone is its first scenario of the eval split.

    Parameters
    ----------
    verb:
        list, show or run.
    what:
        A scenario, a family, or (for show) a run's folder.
    number:
        Number of a rollout in the run.
    policy:
        Who acts: oracle, greedy, nothing, an endpoint's URL, a checkpoint, a script.
    model:
        Name of the model, where the policy is a URL.
    max_tokens:
        Bound of one answer of the policy.
    seed:
        Of everything random.
    """
    if verb not in VERBS:
        raise UsageError(f"wander world cannot {verb!r}; {near(verb, [*VERBS], kind='it can')}")
    if verb != "list" and not what:
        raise UsageError(f"wander world {verb} needs a scenario, as in: wander world {verb} invite/eval-0/1")
    voice = Voice(model=model, max_tokens=max_tokens, seed=seed)
    return VERBS[verb](_Wish(what=what, policy=policy, voice=voice, number=number, seed=seed, json=json))


def _list(wish: _Wish) -> int:
    known = all_families().values()
    if wish.json:
        result_json({"families": [{k: getattr(f, k) for k in ("name", "capability", "asks", "hard")} for f in known]})
        return 0
    table = Table("family", "capability", "asks", "what makes it hard")
    for one in sorted(known, key=lambda one: (one.capability, one.name)):
        table.add_row(*map(Text, (one.name, one.capability, one.asks, one.hard)))
    result(table, f"{len(known)} families. Look at one: wander world show {next(iter(known)).name}/eval-0/1")
    return 0


def _show(wish: _Wish) -> int:
    if Path(wish.what).exists():
        return _show_rollout(wish)
    scenario = scenario_of(_full(wish.what))
    if wish.json:
        result_json({"id": scenario.id, "info": scenario.info, "events": [*map(repr, scenario.events)]})
        return 0
    result(plot(scenario), *header(scenario))
    return 0


def _show_rollout(wish: _Wish) -> int:
    store, _ = evaluation(Path(wish.what))
    with RunStore.read(store) as reader:
        played = reader.get(wish.number)
    return _told(played, wish)


def _run(wish: _Wish) -> int:
    hush()
    env, name = Life(), _full(wish.what)
    task = Task(id=name, prompt=next(iter(env.tasks("eval"))).prompt, info=dict(env.made(name)[0].info))
    players = {**PLAYERS, "oracle": Knowing}
    policy = players[wish.policy]() if wish.policy in players else find_policy(wish.policy, env, wish.voice).policy

    async def played() -> Rollout:
        async with opened([policy]):
            return await rollout(env, task, policy, seed=wish.seed)

    return _told(asyncio.run(played()), wish)


def _told(played: Rollout, wish: _Wish) -> int:
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


def _full(name: str) -> str:
    """A scenario's id; a family's name alone is its first scenario of the eval split."""
    return name if "/" in name else f"{name}/eval-0/1"


VERBS: Mapping[str, Callable[[_Wish], int]] = {"list": _list, "show": _show, "run": _run}
"""What `wander world` can do: `verify` and `import` get their lines here."""
