"""Other names of tools, as a file's `augmentation` gives them: what a scenario has as `names`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wanderlust.tools.function import NAME
from wanderlust.worlds.app import App
from wanderlust.worlds.apps.system import System
from wanderlust.worlds.apps.user_interface import UserInterface
from wanderlust.worlds.environment import SEPARATOR
from wanderlust.worlds.events import ScenarioError
from wanderlust.worlds.exchange.notes import Notes

WHERE = "augmentation.tool_names_mapping"


def names_of(augmentation: Mapping[str, Any], apps: Iterable[App], notes: Notes) -> dict[str, str]:
    """What tools are called, by `App.action`. Tools that are not there, and the user's and time's own, keep theirs.

    Raises ScenarioError for a name that no endpoint takes, and for one that two tools would have.
    """
    given = augmentation.get("tool_names_mapping") or {}
    if not isinstance(given, Mapping):
        raise ScenarioError(f"{WHERE} is {type(given).__name__}, expected an object")
    if augmentation.get("tool_descriptions_mapping"):
        notes.add("other descriptions of tools are left out", "augmentation.tool_descriptions_mapping")
    tools = {f"{app.name}{SEPARATOR}{one}": (app, one) for app in apps for one in _offered(app)}
    found: dict[str, str] = {}
    for old, new in given.items():
        if not isinstance(new, str) or not NAME.fullmatch(new):
            raise ScenarioError(
                f"{WHERE}: {old!r} is to be called {new!r}, expected a name of letters, digits, _ and -"
            )
        if old not in tools:
            notes.add("there is no such tool to be called otherwise", f"{WHERE}, {old!r}")
            continue
        app, action = tools[old]
        if not isinstance(app, System | UserInterface):
            found[f"{app.name}.{action}"] = new
    _apart({old: found.get(f"{app.name}.{one}", old) for old, (app, one) in tools.items()})
    return found


def _offered(app: App) -> list[str]:
    return [action.name for action in app.actions.values() if "agent" in action.scopes]


def _apart(called: Mapping[str, str]) -> None:
    first: dict[str, str] = {}
    for old, new in called.items():
        if first.setdefault(new, old) != old:
            raise ScenarioError(f"{WHERE}: {first[new]!r} and {old!r} would both be called {new!r}")
