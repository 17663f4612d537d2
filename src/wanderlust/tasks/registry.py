"""Environments by name: ready-made ones of any installed package, and anybody's `package.module:Name`."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from wanderlust._lazy import load
from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, UsageError, boundary, near

ENTRY_POINTS = "wanderlust.environments"


def ready_made() -> dict[str, str]:
    """`package.module:Name` of every installed environment, by its short name."""
    return {point.name: point.value for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda p: p.name)}


def named(target: str) -> Any:
    """The object at `package.module:Name` or `folder/file.py:Name`; modules in the current folder are found too.

    Raises UsageError when there is none.
    """
    where, _, name = target.rpartition(":")
    folder, module = Path.cwd(), where
    if where.endswith(".py"):
        file = Path(where).resolve()
        if not file.is_file():
            raise UsageError(f"there is no file {where}")
        folder, module = file.parent, file.stem
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return load(f"{module}:{name}")


def environment(target: str) -> Environment:
    """The environment at `target`: an object, or a class or function that makes one.

    `target` is what `named` takes, and settings after it: `package.module:Name,size=20,wording=short`. A setting is
    JSON, or else text. Raises UsageError when there is none of that name or it does not take the settings, and
    EnvironmentFailure when its own code fails.
    """
    where, settings = target.partition(",")[0], settings_in(target)
    try:
        with boundary(EnvironmentFailure):
            found = named(where)
            if callable(found) and not isinstance(found, Environment):
                _accepts(found, settings, where)
                made = found(**settings)
            else:
                made = found
    except EnvironmentFailure as failure:
        raise EnvironmentFailure(f"cannot make the environment {target}: {failure}") from failure
    if not isinstance(made, Environment):
        raise UsageError(f"{where} is no environment, but a {type(made).__name__}")
    if made is found and settings:
        raise UsageError(f"{where} is made already and takes no settings")
    return made


def settings_in(text: str) -> dict[str, Any]:
    """The settings after a name, as in `name,size=20,wording=short`. Raises UsageError for what is none."""
    return dict(_setting(one, text) for one in text.split(",")[1:])


def settings_like(text: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """The settings after a name, each of them one of `known` and of the type of its value there.

    Raises UsageError for any other.
    """
    given = settings_in(text)
    for name, value in given.items():
        if name not in known:
            raise UsageError(f"{text}: there is no setting {name!r}; there are {', '.join(known) or 'none'}")
        kind = type(known[name])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise UsageError(f"{text}: {name} is to be of type {kind.__name__}, like {known[name]!r}")
    return given


def _setting(text: str, target: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"{target}: {text!r} is no setting; they are written name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _accepts(make: Callable[..., Any], settings: Mapping[str, Any], where: str) -> None:
    """Raises UsageError that names what can be set."""
    taken = inspect.signature(make).parameters.values()
    known = [one.name for one in taken if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    strange = [name for name in settings if name not in known]
    if strange and not any(one.kind is one.VAR_KEYWORD for one in taken):
        raise UsageError(f"{where} has no setting {strange[0]!r}; there are: {', '.join(known) or 'none'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An environment that somebody named."""

    name: str
    target: str
    """`package.module:Name`."""
    env: Environment


def find_environment(name: str) -> Found:
    """A ready-made environment, `package.module:Name` or `file.py:Name`; with settings after it: `,size=20`."""
    known, (where, comma, settings) = ready_made(), name.partition(",")
    if ":" in where:
        file, _, member = where.rpartition(":")
        target = f"{Path(file).resolve()}:{member}" if file.endswith(".py") else where  # the same from any folder
    elif where in known:
        target = known[where]
    else:
        guess = near(where, [*known], kind="environments")
        raise UsageError(
            f"no environment {where!r}; {guess} (wander list shows all; or package.module:Name, or file.py:Name)"
        )
    target = f"{target}{comma}{settings}"
    return Found(name=name, target=target, env=environment(target))


def for_two(found: Found) -> Environment:
    """The same game with a seat for a person beside the policy's. Raises UsageError when there is none."""
    duel = getattr(found.env, "duel", None)
    if duel is None:
        raise UsageError(
            f"{found.name} has no seat for a person beside the policy: leave --policy out to play it alone"
        )
    game = duel()
    if not isinstance(game, Environment) or len(game.seats) < 2:
        raise UsageError(f"{found.name}: what `duel` makes is no environment with two seats")
    return game
