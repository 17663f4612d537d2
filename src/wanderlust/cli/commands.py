"""Commands of `wander`: those that installed packages declare as entry points in the group `wanderlust.commands`.

An entry point names a `Command` in a module that imports nothing heavy, so that the overview can list it.
"""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from cyclopts import App, ArgumentCollection

from wanderlust import __version__, plugins
from wanderlust.errors import UsageError

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
    """A command that has commands of its own, each a function with its own parameters: `wander world show`.

    Installed packages name further functions as entry points in the group `wanderlust.commands.NAME`.
    """
    app = App(name=name, help=help, version=__version__, version_flags=VERSION_FLAGS)
    for point in plugins.declared(f"{GROUP}.{name}").values():
        app.command(plugins.load(point), name=point.name)
    return app


def installed_commands(core: Collection[str], name: str | None = None) -> dict[str, Command]:
    """The commands of installed packages, or the one of that name, whose target is then imported too.

    Raises UsageError in one line that names both packages where two have a command of one name, or one has a name of
    the core; and one that names the package where the command cannot be imported. Without a name, the help says so.
    """
    points = plugins.declared(GROUP, name)
    for taken in points.keys() & {*core}:
        package = plugins.distribution_name(points[taken])
        raise UsageError(f"wanderlust and {package} both have a command {taken!r}: uninstall {package}")
    return {point.name: _load(point, called=name is not None) for point in points.values()}


def _load(point: EntryPoint, *, called: bool) -> Command:
    line = f"{point.value} of {plugins.distribution_name(point)} is no {Command.__module__}.Command"
    try:
        command = plugins.load(point)
        if called and isinstance(command, Command):
            plugins.load(point, command.target)
    except UsageError as error:
        if called:
            raise
        command, line = None, str(error)
    if not isinstance(command, Command) and called:
        raise UsageError(line)
    return command if isinstance(command, Command) else Command(target=point.value, help=line)
