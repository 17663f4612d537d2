"""Viewers: how the studio shows rollouts and games of some environments in parts of the page of their own.

An installed package declares a viewer as an entry point of the group `wanderlust.viewers`: a class, which the studio
calls without arguments when it starts. A viewer names the page's part and has what it needs of the protocols below:

- `RolloutViewer`: stored rollouts. This is enough for most.
- `ExportedViewer`: they are in static exports too.
- `LiveViewer`: games that a person plays in the studio.
- `SetupViewer`: how such a game is offered and begun.
- `RoutedViewer`: anything else that the part asks for.

The page is built once, with its parts (web/src/screens), so a viewer brings data and no markup: several viewers may
give the data of one part.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from starlette.routing import Route

from wanderlust import plugins
from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, UsageError, WanderlustError, boundary, one_line
from wanderlust.store.run_folder import StoredRollout
from wanderlust.types import Policy, Rollout, Task, Tool

ENTRY_POINTS = "wanderlust.viewers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRollout:
    """A stored rollout that is shown, and where it is."""

    rollout: Rollout
    id: int
    env: str
    """The environment's name in the run."""
    folder: Path
    """The run's."""
    store: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class GameSetting:
    """The environment, task and policies of a game."""

    name: str
    """The environment's, as the page shows it."""
    env: Environment
    task: Task
    seed: int
    seat: str
    policy: Policy | None = None
    """Plays the seat; None: a person."""
    others: Mapping[str, Policy] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """Names of the seats' players."""
    person: str = ""
    """Who agreed that this is recorded as a first play; empty: nobody."""
    since: Mapping[str, Any] | None = None
    """The rollout and the moment that it continues."""
    save: Callable[[Rollout], StoredRollout]

    @property
    def policies(self) -> list[Policy]:
        """Policies of all seats but a person's."""
        return [*self.others.values(), *([self.policy] if self.policy is not None else [])]


class Viewer(Protocol):
    """What every viewer has."""

    @property
    def part(self) -> str:
        """Name of the page's part, which is a part of addresses and a key of JSON objects."""
        ...


@runtime_checkable
class RolloutViewer(Viewer, Protocol):
    """Shows stored rollouts.

    Example:
        >>> class DiceViewer:
        ...     part = "dice"
        ...     def shows(self, rollout):
        ...         return "thrown" in rollout.state
        ...     def view(self, shown):
        ...         return {"faces": shown.rollout.state["thrown"]}
    """

    def shows(self, rollout: Rollout) -> bool:
        """Whether the part has something to show of a rollout; asked about rollouts of all environments.

        The record of a rollout, `GET /api/runs/{key}/rollouts/{id}`, has it under the part's name.
        """
        ...

    def view(self, shown: ShownRollout) -> Any:
        """Plain data of a rollout, the answer to `GET /api/runs/{key}/rollouts/{id}/{part}`.

        What it raises is the line that the page shows instead.
        """
        ...


@runtime_checkable
class ExportedViewer(RolloutViewer, Protocol):
    """Shows rollouts in static exports too."""

    def exported(self, shown: ShownRollout) -> Any:
        """Plain data of a rollout with all that a server would be asked for later: the file `{id}.{part}.json`."""
        ...


@runtime_checkable
class LiveViewer(Viewer, Protocol):
    """Shows games while they are played."""

    def playable(self, kind: object) -> Mapping[str, Any]:
        """Entries of the record of an environment in the list of games; `kind` is its class, or None without one."""
        ...

    def live(self, tools: Sequence[Tool]) -> object | None:
        """The object behind a seat's tools that the part shows while the game is played, kept as `GameSession.live`.

        None where there is none. The record of a game has under the part's name whether there is one; such a game's
        record leaves out the state at its end.
        """
        ...


@runtime_checkable
class SetupViewer(Viewer, Protocol):
    """Says how games are offered and begun."""

    def offer(self) -> Mapping[str, Any]:
        """Entries of the answer to `GET /api/play`, which lists the games."""
        ...

    def hides_info(self, env: Environment) -> bool:
        """Whether the `info` of this environment's tasks must not be seen by who plays them."""
        ...

    def prepare(self, setting: GameSetting, body: Mapping[str, Any], folder: Path) -> GameSetting:
        """The game that begins, of any environment, as it was asked for by `body`; `folder` has the games' runs.

        Raises UsageError for what it does not allow.
        """
        ...


@runtime_checkable
class RoutedViewer(Viewer, Protocol):
    """Answers requests of its own."""

    def routes(self) -> Sequence[Route]:
        """Routes below `/api/`. Those of the studio itself come first; handlers may raise WanderlustError."""
        ...


def installed_viewers() -> tuple[Viewer, ...]:
    """The viewers of all installed packages, made anew.

    A broken one is left out, with a warning that names its package. Raises UsageError where two packages declare one
    name.
    """
    viewers = []
    for point in plugins.declared(ENTRY_POINTS).values():
        try:
            viewers.append(_viewer_of(point))
        except UsageError as error:
            warnings.warn(f"a viewer is left out: {error}", stacklevel=2)
    return tuple(viewers)


def _viewer_of(point: EntryPoint) -> Viewer:
    kind = plugins.load(point)
    try:
        with boundary(EnvironmentFailure):
            viewer: Viewer = kind()
            named = isinstance(viewer.part, str)
    except WanderlustError as error:
        fault = one_line(str(error))
    else:
        if named:
            return viewer
        fault = "its `part` is no text"
    raise UsageError(f"{point.value}, of the package {plugins.distribution_name(point)}, makes no viewer: {fault}")


def shown_parts(viewers: Sequence[Viewer], rollout: Rollout) -> dict[str, bool]:
    """By the name of each part, whether it has something to show of a rollout."""
    parts: dict[str, bool] = {}
    for viewer in viewers:
        if isinstance(viewer, RolloutViewer):
            parts[viewer.part] = parts.get(viewer.part, False) or viewer.shows(rollout)
    return parts


def find_viewer(viewers: Sequence[Viewer], part: str, rollout: Rollout) -> RolloutViewer | None:
    """The viewer that shows a rollout in a part, or the first one of that part; None where there is none."""
    found = [one for one in viewers if one.part == part and isinstance(one, RolloutViewer)]
    return next((one for one in found if one.shows(rollout)), next(iter(found), None))
