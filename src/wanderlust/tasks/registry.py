"""Environments by name: ready-made ones of any installed package, and anybody's `package.module:Name`."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from wanderlust import plugins
from wanderlust._lazy import import_from_file, import_object, moved_module
from wanderlust.environment import Environment, declaration_error
from wanderlust.errors import EnvironmentFailure, UsageError, boundary, nearest_names, one_line

ENTRY_POINTS = "wanderlust.environments"

LISTS = "wanderlust.environment_lists"
"""Functions of installed packages that list further environments: names to targets, as hubs have added them."""


def installed_environments() -> dict[str, str]:
    """`package.module:Name` of every environment that is installed or that a package lists, by its short name."""
    listed = [plugins.load(point)() for point in plugins.declared(LISTS).values()]
    return dict(ChainMap({name: point.value for name, point in plugins.declared(ENTRY_POINTS).items()}, *listed))


def resolve_object(target: str) -> Any:
    """The object at `package.module:Name` or `folder/file.py:Name`; modules in the current folder are found too.

    A file is that file, also where an installed module has its name. Raises UsageError when there is none, or when
    its code fails.
    """
    try:
        with boundary(EnvironmentFailure):
            return _imported(target)
    except EnvironmentFailure as failure:
        if isinstance(failure.__cause__, ImportError):
            raise failure.__cause__ from None
        raise UsageError(f"{target} cannot be imported: {one_line(str(failure))}") from failure


def _imported(target: str) -> Any:
    """The same, whose code may raise anything."""
    where, _, name = target.rpartition(":")
    is_file = where.endswith(".py")
    if not name or not where or (where.startswith(".") and not is_file):
        raise UsageError(f"{target!r} names nothing to import: write package.module:Name, or file.py:Name")
    if is_file:
        file = Path(where).resolve()
        if not file.is_file():
            raise UsageError(f"there is no file {where}")
        return import_from_file(file, name)
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    return import_object(target)


def make_environment(target: str) -> Environment:
    """The environment at `target`: an object, or a class or function that makes one.

    `target` is what `resolve_object` takes, with settings after it: `package.module:Name,size=20,wording=short`. A
    setting is JSON, or else text. Raises UsageError when there is none of that name or it does not take the settings,
    and EnvironmentFailure when its own code fails.
    """
    where, settings = target.partition(",")[0], parse_settings(target)
    try:
        with boundary(EnvironmentFailure):
            target_object = _imported(where)
            if callable(target_object) and not isinstance(target_object, Environment):
                _check_settings(target_object, settings, where)
                made = target_object(**settings)
            else:
                made = target_object
    except EnvironmentFailure as failure:
        raise EnvironmentFailure(f"cannot make the environment {target}: {failure}") from failure
    if not isinstance(made, Environment):
        raise UsageError(f"{where} is no environment, but a {type(made).__name__}")
    if wrong := declaration_error(made):
        raise UsageError(wrong)
    if made is target_object and settings:
        raise UsageError(f"{where} is made already and takes no settings")
    return made


_BETWEEN_SETTINGS = re.compile(r",(?![^][]*\])")
"""A comma, unless it stands in brackets."""


def parse_settings(text: str) -> dict[str, Any]:
    """The settings after a name, as in `name,size=20,levels=[1,2]`. Raises UsageError for what is none."""
    settings: dict[str, Any] = {}
    for setting in _BETWEEN_SETTINGS.split(text)[1:]:
        name, equals, value = setting.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"{text}: {setting!r} is no setting; they are written name=value")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def parse_settings_like(text: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The settings after a name, each of them one of `defaults` and of the type of its value there.

    Raises UsageError for any other.
    """
    settings = parse_settings(text)
    for name, value in settings.items():
        if name not in defaults:
            raise UsageError(f"{text}: there is no setting {name!r}; there are {', '.join(defaults) or 'none'}")
        kind = type(defaults[name])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise UsageError(f"{text}: {name} is to be of type {kind.__name__}, like {defaults[name]!r}")
    return settings


def _check_settings(make: Callable[..., Any], settings: Mapping[str, Any], where: str) -> None:
    """Raises UsageError that names what can be set, and what must be."""
    taken = inspect.signature(make).parameters.values()
    required = [
        one.name for one in taken if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    missing = [name for name in required if name not in settings]
    if missing:
        example = ",".join(f"{name}=..." for name in missing)
        raise UsageError(f"{where} needs settings: {', '.join(missing)}; write {where},{example}")
    valid_names = _setting_names(make)
    strange = [] if valid_names is None else [name for name in settings if name not in valid_names]
    if strange:
        raise UsageError(f"{where} has no setting {strange[0]!r}; there are: {', '.join(valid_names or ()) or 'none'}")


def _setting_names(make: Callable[..., Any]) -> list[str] | None:
    """Names of what can be set, those that a class passes on to the classes above it among them; None: any name."""
    made = (
        [vars(kind)["__init__"] for kind in make.__mro__ if "__init__" in vars(kind)] if isinstance(make, type) else []
    )
    names: dict[str, None] = {}
    for function in made or [make]:
        taken = [*inspect.signature(function).parameters.values()][1 if made else 0 :]
        names |= {one.name: None for one in taken if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
        if not any(one.kind is one.VAR_KEYWORD for one in taken):
            return [*names]
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedEnvironment:
    """An environment, its name and its target."""

    name: str
    target: str
    """`package.module:Name`."""
    env: Environment


def resolve_environment(name: str) -> ResolvedEnvironment:
    """A ready-made environment, `package.module:Name` or `file.py:Name`; with settings after it: `,size=20`."""
    names, (where, comma, settings) = installed_environments(), name.partition(",")
    if ":" in where:
        file, _, member = where.rpartition(":")
        target = f"{Path(file).resolve()}:{member}" if file.endswith(".py") else where  # the same from any folder
    elif where in names:
        target = names[where]
    else:
        if install := plugins.how_to_install(ENTRY_POINTS, where):
            raise UsageError(f"the environment {where!r} is not installed: {install}")
        guess = nearest_names(where, [*names], kind="environments")
        raise UsageError(
            f"no environment {where!r}; {guess} (wander list shows all; or package.module:Name, or file.py:Name)"
        )
    target = f"{target}{comma}{settings}"
    return ResolvedEnvironment(name=name, target=target, env=make_environment(target))


def two_seat_environment(resolved: ResolvedEnvironment) -> Environment:
    """The same game with a second seat, for a person. Raises UsageError when there is none."""
    game = resolved.env.duel()
    if game is None:
        raise UsageError(
            f"{resolved.name} has no seat for a person beside the policy: leave --policy out to play it alone"
        )
    if not isinstance(game, Environment) or len(game.seats) < 2:
        raise UsageError(f"{resolved.name}: what `duel` makes is no environment with two seats")
    return game


def load_environment(name: str) -> Environment:
    """Load an environment by name.

    Args:
        name: A ready-made environment (`wordle`), `package.module:Name` or `file.py:Name`; settings may follow, as in
            `wordle,words=300`.

    Returns:
        The environment.

    Raises:
        UsageError: when there is none of that name, or it does not take the settings.

    Example:
        >>> load_environment("tictactoe")
    """
    return resolve_environment(name).env


def environment_within(env: Environment | str, settings: Mapping[str, Any]) -> Environment:
    """The environment that a wrapper is made around, with the settings that are not the wrapper's own.

    Raises UsageError for settings of an environment that is made already.
    """
    if isinstance(env, str):
        return load_environment(",".join([env, *(f"{name}={value}" for name, value in settings.items())]))
    if settings:
        raise UsageError(f"there is no setting {next(iter(settings))!r} of an environment that is made already")
    return env


def environment_name(env: Environment | str) -> str:
    """The one name under which runs store an environment: valid from any folder, short for a ready-made one.

    `tictactoe`, `package.module:Name`, `/folder/file.py:Name`, with the settings after it; `module:Class` of an object.
    """
    if not isinstance(env, str):
        return f"{type(env).__module__}:{type(env).__qualname__}"
    where, comma, settings = short_environment_name(env).partition(",")
    file, _, member = where.rpartition(":")
    return f"{Path(file).resolve()}:{member}{comma}{settings}" if file.endswith(".py") else f"{where}{comma}{settings}"


def short_environment_name(name: str) -> str:
    """The name of a ready-made environment where its target `package.module:Name` is given; else `name`."""
    (where, comma, settings), names = name.partition(","), _names_by_target()
    module, colon, member = where.partition(":")
    short = names.get(where) or names.get(f"{moved_module(module)}{colon}{member}", where)
    return f"{short}{comma}{settings}"


@cache
def _names_by_target() -> dict[str, str]:
    return {target: name for name, target in installed_environments().items()}
