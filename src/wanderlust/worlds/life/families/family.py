"""Families: seeded makers of scenarios, each told as a story on a stage. A new one is one function in any file here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from random import Random
from typing import Literal, TypeAlias

import msgspec

from wanderlust.errors import UsageError
from wanderlust.worlds.authoring.scenario_builder import capture
from wanderlust.worlds.engine.scenario import Scenario
from wanderlust.worlds.life import families
from wanderlust.worlds.life.families.builder import Stage
from wanderlust.worlds.life.universes.generate import SizeName, Universe, universe
from wanderlust.worlds.life.universes.text_templates import Split
from wanderlust.worlds.wrap.noise import distracted, noisy

Capability: TypeAlias = Literal["execution", "search", "adaptability", "time", "ambiguity", "noise", "agent2agent"]
Building: TypeAlias = Callable[[Stage], None]
SHARED = 8
"""Scenarios of one family and level that share a universe in training, so that few universes are made."""
HELD = 10
"""Universes for evaluation."""
NOISY = 300.0
"""Seconds in which mails distract."""
_MARK = "__family__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """How hard a scenario is."""

    steps: int
    """How much there is to be done or found, about."""
    decoys: int
    """How many things look like the right ones, about."""
    size: SizeName
    """Of the universe around it."""


LEVELS: Mapping[int, Knobs] = {
    1: Knobs(steps=1, decoys=1, size="small"),
    2: Knobs(steps=2, decoys=3, size="medium"),
    3: Knobs(steps=4, decoys=6, size="gaia2"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kind of scenario."""

    name: str
    capability: Capability
    asks: str
    """What it asks of an agent."""
    hard: str
    """What makes it hard."""
    build: Building

    def scenario(
        self, seed: int, knobs: Knobs, *, split: Split = "train", name: str = "", within: Universe | None = None
    ) -> Scenario:
        """The scenario of a seed: equal seeds, equal scenarios. `name` is its id.

        `within` another universe (in other words, for one) than that of the seed.
        """
        place = within or universe(seed // SHARED if split == "train" else seed % HELD, knobs.size, split)
        rng = Random(f"{self.name}/{split}/{seed}/{knobs}")
        stage = Stage(place, rng, steps=knobs.steps, decoys=knobs.decoys)
        with capture(*stage.apps.values()) as story:
            stage.story = story
            self.build(stage)
        made = Scenario(
            id=name or f"{self.name}-{split}-{seed}-{knobs.size}",
            apps=tuple(stage.apps.values()),
            events=tuple(stage.events()),
            start=place.start,
            duration=stage.duration,
            seed=seed,
            info={"facts": msgspec.to_builtins(stage.facts), "family": self.name, "capability": self.capability},
        )
        if self.capability == "noise":
            found = noisy(made, failures=0.05 * knobs.steps, names=0.3, seed=seed)
            return distracted(found, 0.5 * knobs.decoys, seed=seed, until=NOISY)
        return made


def family(capability: Capability, *, asks: str, hard: str) -> Callable[[Building], Building]:
    """Makes a function that tells a story on a stage a family of the function's name."""

    def mark(build: Building) -> Building:
        name = build.__name__.replace("_", "-")
        setattr(build, _MARK, Family(name=name, capability=capability, asks=asks, hard=hard, build=build))
        return build

    return mark


@cache
def all_families() -> Mapping[str, Family]:
    """Every family by name. Raises UsageError when two share one."""
    found: dict[str, Family] = {}
    for module in iter_modules(families.__path__, f"{families.__name__}."):
        for value in vars(import_module(module.name)).values():
            one = getattr(value, _MARK, None)
            if isinstance(one, Family) and one.build.__module__ == module.name:
                if one.name in found:
                    raise UsageError(f"two families are called {one.name}")
                found[one.name] = one
    return found
