"""What can be played, and against whom."""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from wanderlust.core.contracts import Environment, Policy
from wanderlust.core.errors import EnvironmentFailure, UsageError, WanderlustError, boundary
from wanderlust.core.text import one_line
from wanderlust.core.types import Rollout, Task
from wanderlust.environments.named import named, ready_made
from wanderlust.recipes.folder import checkpoints_of
from wanderlust.studio.played import HAND, Stored, folder_for, keep
from wanderlust.studio.playing import for_two
from wanderlust.studio.resolve import Found, Voice, find_environment, find_policy, players_of, written
from wanderlust.studio.server.session import Setting
from wanderlust.worlds.environment import WorldEnvironment, log_of
from wanderlust.worlds.team import TeamWorlds
from wanderlust.worlds.thinking import decisions

Keep: TypeAlias = Callable[[Rollout], Stored]
MOST_TASKS = 200
"""Tasks that are listed at once."""
FAR = 100_000
"""How far into a split a task is looked for by its id."""


@cache
def environments() -> list[dict[str, Any]]:
    """Every ready-made environment: its settings, its seats, who can play in it; with `problem` where it cannot be."""
    return [_told(name, target) for name, target in ready_made().items()]


def _told(name: str, target: str) -> dict[str, Any]:
    try:
        with boundary(EnvironmentFailure):
            kind = named(target)
    except WanderlustError as error:
        return {"name": name, "settings": [], "seats": [], "world": False, "problem": one_line(str(error))}
    seats = list(getattr(kind, "seats", ("agent",)))
    team = inspect.isclass(kind) and issubclass(kind, TeamWorlds)
    duel = getattr(kind, "duel", None)
    return {
        "name": name,
        "about": one_line((inspect.getdoc(kind) or "").partition("\n")[0]),
        "settings": list(_settings(kind)),
        "seats": seats,
        "world": inspect.isclass(kind) and issubclass(kind, WorldEnvironment),
        "players": [*getattr(kind, "players", {}), *(["oracle"] if hasattr(kind, "oracle") else [])],
        "opponent": "needed" if team or len(seats) > 1 else "possible" if duel is not None else "none",
    }


def _settings(kind: Any) -> Iterator[dict[str, Any]]:
    for one in inspect.signature(kind).parameters.values():
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            default = one.default if isinstance(one.default, str | int | float | bool | None) else None
            yield {"name": one.name, "default": None if one.default is one.empty else default}


def opponents_in(folders: Iterable[Path]) -> list[Path]:
    """The checkpoints of these runs."""
    return [path for folder in folders for path in checkpoints_of(folder)]


def checkpoints(folders: Iterable[Path]) -> list[dict[str, str]]:
    """The checkpoints of these runs, as opponents: what to show, and the path that names each."""
    found = ((folder, one) for folder in folders for one in checkpoints_of(folder))
    return [{"name": f"{folder.name}/{one.name}", "path": str(one)} for folder, one in found]


def tasks(env: str, split: str, *, offset: int = 0, limit: int = 50) -> dict[str, Any]:
    """Some tasks of a split, with how they begin. Raises UsageError for what is not ready-made."""
    _ready(env)
    found = find_environment(env).env
    with boundary(EnvironmentFailure):
        some = list(islice(found.tasks(split), offset, offset + limit + 1))
    shown = [{"index": offset + n, "id": task.id, "begins": _begins(task)} for n, task in enumerate(some[:limit])]
    return {"tasks": shown, "more": len(some) > limit}


def _begins(task: Task) -> str:
    said = next((message.content for message in reversed(task.prompt) if message.role == "user"), "")
    told = ", ".join(f"{key} {value}" for key, value in task.info.items() if isinstance(value, str | int | float))
    return one_line(said or told, 160)


def the_task(env: Environment, split: str, asked: Any) -> Task:
    """A task by its position or its id. Raises UsageError when there is none."""
    if isinstance(asked, int) and asked >= 0:
        found = next(islice(env.tasks(split), asked, None), None)
    else:
        found = next((task for task in islice(env.tasks(split), FAR) if task.id == asked), None)
    if found is None:
        raise UsageError(f"the split {split!r} has no task {one_line(repr(asked))}")
    return found


def allowed(name: str, env: Environment, opponents: Iterable[Path]) -> str:
    """An opponent's name, if it is a player of the environment or a checkpoint of a run that is open here."""
    known = [*players_of(env), *(str(path) for path in opponents)]
    if name not in known:
        raise UsageError(f"there is no opponent {one_line(name)!r}; there are: {', '.join(known[:20]) or 'none'}")
    return name


def seated(body: Mapping[str, Any], *, root: Path, folders: Iterable[Path]) -> Setting:
    """The game that somebody asks for. Raises UsageError in one line for whatever cannot be."""
    name = body.get("env")
    if not isinstance(name, str):
        raise UsageError("say which environment is to be played: env")
    _ready(name)
    found, opponent, seed = find_environment(name), body.get("opponent") or "", body.get("seed", 0)
    if not isinstance(seed, int) or not isinstance(opponent, str):
        raise UsageError("seed is a whole number, and opponent a name")
    game, seat, others = _seats(
        found, opponent and allowed(opponent, found.env, opponents_in(folders)), str(body.get("seat") or "")
    )
    with boundary(EnvironmentFailure):
        task = the_task(game, str(body.get("split") or "train"), body.get("task", 0))
    return Setting(
        name=name, env=game, task=task, seed=seed, seat=seat, others=others,
        labels={seat: HAND, **dict.fromkeys(others, opponent)} if others else {},
        keep=keeper(root, found, name=f"play-{name}", settings={"env": written(found), "policy": HAND}),
    )  # fmt: skip


def _ready(name: str) -> None:
    if ":" in name.partition(",")[0]:
        raise UsageError(f"only ready-made environments are played here, and {one_line(name)!r} is none")


def _seats(found: Found, opponent: str, seat: str) -> tuple[Environment, str, dict[str, Policy]]:
    """The game, the person's seat, and who sits in the others."""
    env = found.env
    if not opponent:
        if len(env.seats) > 1:
            raise UsageError(f"{found.name} has the seats {', '.join(env.seats)}: choose who plays the others")
        return env, env.seats[0], {}
    policy = find_policy(opponent, env, Voice(temperature=0.0)).policy
    if len(env.seats) == 1:
        env = for_two(found)
        seat = seat or env.seats[1]
    seat = seat or env.seats[0]
    if seat not in env.seats:
        raise UsageError(f"{found.name} has no seat {one_line(seat)!r}: one of {', '.join(env.seats)}")
    return env, seat, {one: policy for one in env.seats if one != seat}


def keeper(root: Path, found: Found, *, name: str, settings: Mapping[str, Any]) -> Keep:
    """A function that keeps games with these settings in a run below `root`."""
    return lambda played: keep(played, folder_for(root, name, settings), env=found.name, settings=settings)


def onward(
    rollout: Rollout,
    moment: int,
    found: Found,
    *,
    policy: str,
    since: Mapping[str, Any],
    keep: Keep,
    opponents: Iterable[Path],
) -> Setting:
    """The game that goes on from the first decision of a rollout at or after a moment, by hand or with a policy.

    Raises UsageError where nothing is left to be decided, and for a team by hand: its other seats need somebody.
    """
    env = found.env
    if not isinstance(env, WorldEnvironment):
        raise UsageError(f"{found.name} is no world: there is nothing to go on from")
    places = decisions(log_of(rollout))
    number = bisect_left(places, moment)
    if number == len(places):
        raise UsageError("the agent decides nothing after this moment: choose an earlier one")
    player = None
    if policy != HAND:
        player = find_policy(allowed(policy, env, opponents), env, Voice(temperature=0.0)).policy
    elif len(env.seats) > 1:
        raise UsageError(f"the seats {', '.join(env.seats[1:])} need somebody: go on with a policy")
    seat, others = env.seats[0], {} if player is None else dict.fromkeys(env.seats[1:], player)
    return Setting(
        name=found.name, env=env.onward(rollout, number), task=rollout.task, seed=rollout.seed, seat=seat,
        policy=player, others=others, labels={seat: policy, **dict.fromkeys(others, policy)},
        since={**since, "n": places[number], "decision": number}, keep=keep,
    )  # fmt: skip
