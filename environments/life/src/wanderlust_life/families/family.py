"""Families: seeded makers of scenarios, each a function that tells a story on a stage.

The project's own are the functions in the files of this folder. Other packages name theirs by entry points, and anybody
by a file.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from random import Random
from types import ModuleType
from typing import Literal, Protocol, TypeAlias

import msgspec

from wanderlust.errors import UsageError, one_line
from wanderlust.plugins import declared
from wanderlust.tasks.registry import resolve_object
from wanderlust_life import families
from wanderlust_life.families.builder import FamilyBuilder
from wanderlust_life.universes.generate import SizeName, Universe, make_universe
from wanderlust_life.universes.personas import Persona
from wanderlust_life.universes.text_templates import Split
from wanderlust_worlds.engine.app import App
from wanderlust_worlds.engine.scenario import Scenario, capture
from wanderlust_worlds.wrap.noise import with_distractions, with_noise

Capability: TypeAlias = Literal["execution", "search", "adaptability", "time", "ambiguity", "noise", "agent2agent"]
FamilyFunction: TypeAlias = Callable[[FamilyBuilder], None]
OwnApps: TypeAlias = Callable[[Universe, Random], Iterable[App]]
"""Makes apps that stand on the stage beside those of a life, from a universe and a seeded draw."""


class UniverseFunction(Protocol):
    """Makes the universe of a seed: equal arguments, equal universes."""

    def __call__(
        self, seed: int, size: SizeName = ..., split: Split = ..., *, persona: Persona | None = ...
    ) -> Universe:
        """The universe of a seed, a size and a split, with the names of a persona."""


APP_ENTRY_POINTS = "wanderlust.apps"
"""Group of entry points of packages: each names an app's class, or a function that makes apps."""
FAMILY_ENTRY_POINTS = "wanderlust.families"
"""Group of entry points of packages: each names a marked function, or a module with some."""
SCENARIOS_PER_UNIVERSE = 8
"""Scenarios of one family and level that share a universe in training, to save making universes."""
HELD_OUT_UNIVERSES = 10
"""Number of universes for evaluation."""
PRIVATE_SEEDS = 10**9
"""Seeds from here on are those of private splits: each has held-out universes of its own."""
DISTRACTION_SECONDS = 300.0
"""Seconds of the world's clock, from the start, in which distracting mails arrive."""
_MARK = "__family__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difficulty:
    """The difficulty of a scenario."""

    steps: int
    """Approximate number of things to do or to find."""
    decoys: int
    """Approximate number of things that look like the right ones."""
    size: SizeName
    """The size of the universe."""


LEVELS: Mapping[int, Difficulty] = {
    1: Difficulty(steps=1, decoys=1, size="small"),
    2: Difficulty(steps=2, decoys=3, size="medium"),
    3: Difficulty(steps=4, decoys=6, size="gaia2"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kind of scenario."""

    name: str
    capability: Capability
    asks: str
    """The task that it sets the agent."""
    hard: str
    """The reason why the task is hard."""
    build: FamilyFunction
    apps: OwnApps | None = None
    """Apps of its own."""
    make: UniverseFunction = make_universe
    """Makes the universes that its scenarios are in."""

    def scenario(
        self,
        seed: int,
        difficulty: Difficulty,
        *,
        split: Split = "train",
        name: str = "",
        within: Universe | None = None,
        apps: Sequence[OwnApps] = (),
    ) -> Scenario:
        """The scenario of a seed: equal seeds, equal scenarios. `name` is its id.

        `within` another universe (in other words, for one) than that of the seed; `apps` stand beside the others.
        Raises UsageError for an app whose name another one has.
        """
        place = within or self.make(universe_seed(seed, split), difficulty.size, split)
        rng = Random(f"{self.name}/{split}/{seed}/{difficulty}")
        stage = FamilyBuilder(place, rng, steps=difficulty.steps, decoys=difficulty.decoys)
        for number, own in enumerate((*([self.apps] if self.apps is not None else []), *apps)):
            for app in own(place, Random(f"apps/{number}/{split}/{seed}/{difficulty}")):
                if app.name in stage.apps:
                    raise UsageError(f"the family {self.name}: two apps are called {app.name}")
                stage.apps[app.name] = app
        with capture(*stage.apps.values()) as story:
            stage.story = story
            self.build(stage)
        made = Scenario(
            id=name or f"{self.name}-{split}-{seed}-{difficulty.size}",
            apps=tuple(stage.apps.values()),
            events=tuple(stage.events()),
            start=place.start,
            duration=stage.duration,
            seed=seed,
            info={
                "facts": msgspec.to_builtins(stage.facts),
                "family": self.name,
                "capability": self.capability,
                **stage.info,
            },
        )
        if self.capability == "noise":
            result = with_noise(made, failures=0.05 * difficulty.steps, names=0.3, descriptions=0.3, seed=seed)
            return with_distractions(result, 0.5 * difficulty.decoys, seed=seed, until=DISTRACTION_SECONDS)
        return made


def universe_seed(seed: int, split: Split) -> int:
    """The universe in which the scenario of a seed takes place."""
    if split == "train":
        return seed // SCENARIOS_PER_UNIVERSE
    return seed if seed >= PRIVATE_SEEDS else seed % HELD_OUT_UNIVERSES


def family(
    capability: Capability, *, asks: str, hard: str, apps: OwnApps | None = None
) -> Callable[[FamilyFunction], FamilyFunction]:
    """Decorate a function that tells a story on a stage as a family of the function's name, with apps of its own."""

    def mark(build: FamilyFunction) -> FamilyFunction:
        name = build.__name__.replace("_", "-")
        setattr(build, _MARK, Family(name=name, capability=capability, asks=asks, hard=hard, build=build, apps=apps))
        return build

    return mark


@cache
def all_families() -> Mapping[str, Family]:
    """Every family by name: those of the project, then those of installed packages.

    Raises UsageError when two share a name. A package whose entry point cannot be imported is left out, with a warning.
    """
    modules = [import_module(one.name) for one in iter_modules(families.__path__, f"{families.__name__}.")]
    found = [one for module in modules for one in families_of(module)]
    for point in declared(FAMILY_ENTRY_POINTS).values():
        try:
            found += families_at(point.value)
        except UsageError as error:
            warnings.warn(f"the families of {point.name} are left out: {one_line(str(error))}", stacklevel=2)
    by_name: dict[str, Family] = {}
    for one in found:
        if one.name in by_name:
            raise UsageError(f"two families are called {one.name}: in {_home(by_name[one.name])} and in {_home(one)}")
        by_name[one.name] = one
    return by_name


def families_of(module: ModuleType) -> list[Family]:
    """The families that a module defines."""
    marked = (getattr(value, _MARK, None) for value in vars(module).values())
    return [one for one in marked if isinstance(one, Family) and one.build.__module__ == module.__name__]


def families_at(target: str) -> list[Family]:
    """The families at `package.module`, `package.module:function`, `folder/file.py` or `folder/file.py:function`.

    Raises UsageError when there are none.
    """
    if ":" in target:
        one = getattr(resolve_object(target), _MARK, None)
        found = [one] if isinstance(one, Family) else []
    else:
        found = families_of(sys.modules[resolve_object(f"{target}:__name__")])
    if not found:
        raise UsageError(f"{target} is no family: mark a function with @family(...)")
    return found


def find_families(name: str) -> list[Family]:
    """The families of a name, or at a place that `families_at` takes. Raises UsageError when there are none."""
    known = all_families()
    if name in known:
        return [known[name]]
    if ":" in name or name.endswith(".py"):
        return families_at(name)
    raise UsageError(f"there is no family {name!r}: one of {', '.join(known)}; or file.py:name, or a story's file.json")


def find_apps(named: OwnApps | type[App] | str) -> OwnApps:
    """The function that makes apps: itself, of a class, or of an installed name, `module:name` or `file.py:name`.

    Raises UsageError when there is none.
    """
    found: object = named
    if isinstance(named, str):
        points = {name: point.value for name, point in declared(APP_ENTRY_POINTS).items()}
        if named not in points and ":" not in named:
            raise UsageError(f"there is no app {named!r}: {', '.join(points) or 'none is installed'}; or file.py:Name")
        found = resolve_object(points.get(named, named))
    if isinstance(found, type) and issubclass(found, App):
        kind = found
        return lambda universe, rng: [kind()]
    if not callable(found):
        raise UsageError(f"{named} makes no apps: it is a {type(found).__name__}")
    return found


def _home(one: Family) -> str:
    return f"{one.build.__module__}.{one.build.__qualname__}"
