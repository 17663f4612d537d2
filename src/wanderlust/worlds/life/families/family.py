"""Families: seeded makers of scenarios, each a function that tells a story on a stage. A new one is one function in any
file of this folder.
"""

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
from wanderlust.worlds.engine.scenario import Scenario, capture
from wanderlust.worlds.life import families
from wanderlust.worlds.life.families.builder import FamilyBuilder
from wanderlust.worlds.life.universes.generate import SizeName, Universe, make_universe
from wanderlust.worlds.life.universes.text_templates import Split
from wanderlust.worlds.wrap.noise import with_distractions, with_noise

Capability: TypeAlias = Literal["execution", "search", "adaptability", "time", "ambiguity", "noise", "agent2agent"]
FamilyFunction: TypeAlias = Callable[[FamilyBuilder], None]
SCENARIOS_PER_UNIVERSE = 8
"""Scenarios of one family and level that share a universe in training, to save making universes."""
HELD_OUT_UNIVERSES = 10
"""Number of universes for evaluation."""
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

    def scenario(
        self,
        seed: int,
        difficulty: Difficulty,
        *,
        split: Split = "train",
        name: str = "",
        within: Universe | None = None,
    ) -> Scenario:
        """The scenario of a seed: equal seeds, equal scenarios. `name` is its id.

        `within` another universe (in other words, for one) than that of the seed.
        """
        place = within or make_universe(
            seed // SCENARIOS_PER_UNIVERSE if split == "train" else seed % HELD_OUT_UNIVERSES, difficulty.size, split
        )
        rng = Random(f"{self.name}/{split}/{seed}/{difficulty}")
        stage = FamilyBuilder(place, rng, steps=difficulty.steps, decoys=difficulty.decoys)
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
            info={"facts": msgspec.to_builtins(stage.facts), "family": self.name, "capability": self.capability},
        )
        if self.capability == "noise":
            result = with_noise(made, failures=0.05 * difficulty.steps, names=0.3, seed=seed)
            return with_distractions(result, 0.5 * difficulty.decoys, seed=seed, until=DISTRACTION_SECONDS)
        return made


def family(capability: Capability, *, asks: str, hard: str) -> Callable[[FamilyFunction], FamilyFunction]:
    """Decorate a function that tells a story on a stage as a family of the function's name."""

    def mark(build: FamilyFunction) -> FamilyFunction:
        name = build.__name__.replace("_", "-")
        setattr(build, _MARK, Family(name=name, capability=capability, asks=asks, hard=hard, build=build))
        return build

    return mark


@cache
def all_families() -> Mapping[str, Family]:
    """Every family by name. Raises UsageError when two share one."""
    families_by_name: dict[str, Family] = {}
    for module in iter_modules(families.__path__, f"{families.__name__}."):
        for value in vars(import_module(module.name)).values():
            one = getattr(value, _MARK, None)
            if isinstance(one, Family) and one.build.__module__ == module.name:
                if one.name in families_by_name:
                    raise UsageError(f"two families are called {one.name}")
                families_by_name[one.name] = one
    return families_by_name
