"""Commands of `wander`: those that installed packages declare as entry points in the group `wanderlust.commands`.

An entry point names a `Command` in a module that imports nothing heavy, so that the overview can list it.
"""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from cyclopts import App, ArgumentCollection

from wanderlust import __version__
from wanderlust._lazy import import_object
from wanderlust.errors import EnvironmentFailure, UsageError, WanderlustError, boundary, one_line

GROUP = "wanderlust.commands"
VERSION_FLAGS = ("--version", "-V")


GIVEN: ContextVar[frozenset[str]] = ContextVar("GIVEN", default=frozenset())
"""Names of the parameters of this command that were given, whatever their values."""


def note_given(_app: App, _commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Keep the names of the parameters that were given, for commands that also read a file of settings."""
    GIVEN.set(frozenset(part.strip("-").replace("-", "_") for one in arguments if one.tokens for part in one.names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command: `Command(target="package.module:name", help="Count the sheep.")`."""

    target: str
    """Where its function or its cyclopts App is; imported when the command is called."""
    help: str
    """Its line in the overview."""


def nested(name: str, help: str) -> App:
    """A command that has commands of its own, each a function with its own parameters: `wander world run`."""
    return App(name=name, help=help, version=__version__, version_flags=VERSION_FLAGS)


def installed_commands(core: Collection[str], name: str | None = None) -> dict[str, Command]:
    """The commands of installed packages, or the one of that name, whose target is then imported too.

    Raises UsageError in one line that names both packages where two have a command of one name, or one has a name of
    the core; and one that names the package where the command cannot be imported. Without a name, the help says so.
    """
    points = entry_points(group=GROUP) if name is None else entry_points(group=GROUP, name=name)
    found: dict[str, EntryPoint] = {}
    for point in points:
        if point.name in core or found.setdefault(point.name, point) is not point:
            other = "wanderlust" if point.name in core else _package(found[point.name])
            raise UsageError(f"{other} and {_package(point)} both have a command {point.name!r}: uninstall one of them")
    return {point.name: _load(point, called=name is not None) for point in found.values()}


def _load(point: EntryPoint, *, called: bool) -> Command:
    try:
        with boundary(EnvironmentFailure):
            command = import_object(point.value)
            if not isinstance(command, Command):
                raise UsageError(f"{point.value} is no {Command.__module__}.Command")
            if called:
                import_object(command.target)
            return command
    except WanderlustError as error:
        line = f"the command {point.name!r} of {_package(point)} cannot be imported: {one_line(str(error), 500)}"
        if called:
            raise UsageError(line) from error
        return Command(target=point.value, help=line)


def _package(point: EntryPoint) -> str:
    return "a package without a name" if point.dist is None else point.dist.name
