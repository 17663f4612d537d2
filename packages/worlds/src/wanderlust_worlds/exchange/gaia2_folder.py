"""A folder of Gaia2's scenarios: its configurations, and what is played of them in each phase of Gaia2's own run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wanderlust_worlds.engine.events import ScenarioError
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.exchange.augmentation import with_augmentation
from wanderlust_worlds.exchange.read import ROW_SUFFIXES, ImportedScenario, read_scenarios
from wanderlust_worlds.wrap.teams import chosen_apps

STANDARD, AGENT2AGENT, NOISE = PHASES = ("standard", "agent2agent", "noise")
MINI = "mini"
"""The folder of the scenarios that `agent2agent` and `noise` are played on."""
STANDARD_SECONDS, TIME_SECONDS = 1_800.0, 420.0
"""Seconds of the world's clock after which ARE's run of Gaia2 ends a scenario, and one of the capability Time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaia2Task:
    """One scenario in one phase."""

    scenario: Scenario
    phase: str
    config: str
    """The capability in small letters, or `mini_` and the phase: the keys of ARE's report."""
    file: str
    apps: tuple[str, ...] = ()
    """The apps that are agents."""


def read_configurations(folder: Path) -> dict[str, dict[str, ImportedScenario]]:
    """The scenarios of each configuration, by place; those that lie in the folder itself have the name "".

    Raises ScenarioError, which names the place, for what cannot be played, and for one that expects nothing of the
    agent.
    """
    endings = (".json", *ROW_SUFFIXES)
    places = sorted({path.parent for path in folder.rglob("*") if path.suffix in endings})
    if not places:
        raise ScenarioError(f"{folder} has no files *.json, *.jsonl or *.parquet, expected scenarios of Gaia2")
    found: dict[str, dict[str, ImportedScenario]] = {}
    for place in places:
        config = next(iter(place.relative_to(folder).parts), "")
        for name, one in read_scenarios(place).items():
            if not one.scenario.oracle:
                raise ScenarioError(f"{name}: no event is the agent's: doing nothing would pass, expected its acts")
            found.setdefault(config, {})[name.removeprefix(f"{folder}/")] = one
    return found


def gaia2_tasks(folder: Path, phases: Sequence[str], *, share: float) -> Iterator[Gaia2Task]:
    """What is played in each of the phases; in a team, `share` of the apps are agents.

    Raises ScenarioError, which names the place, for what cannot be played, and for two scenarios of one id.
    """
    configurations = read_configurations(folder)
    everything = {place: one for files in configurations.values() for place, one in files.items()}
    mini = configurations.get(MINI, everything)
    others = {place: one for name, files in configurations.items() if name != MINI for place, one in files.items()}
    first: dict[str, str] = {}
    for phase in [one for one in PHASES if one in phases]:
        for place, one in (others or mini if phase == STANDARD else mini).items():
            task = _task(one, phase, place, share=share)
            if first.setdefault(task.scenario.id, place) != place:
                raise ScenarioError(
                    f"{place}: its scenario {one.scenario.id!r} is in {first[task.scenario.id]} as well"
                )
            yield task


def _task(imported: ImportedScenario, phase: str, place: str, *, share: float) -> Gaia2Task:
    tags = tags_of(imported.scenario)
    seconds = TIME_SECONDS if "Time" in tags else STANDARD_SECONDS
    scenario = replace(imported.scenario, duration=seconds)
    if imported.augmentation is not None:
        scenario = replace(scenario, names={}, descriptions={})
    if phase == STANDARD:
        return Gaia2Task(scenario=scenario, phase=phase, config=next(iter(tags), "none").lower(), file=place)
    scenario, apps = replace(scenario, id=f"{phase}/{scenario.id}"), tuple[str, ...]()
    if phase == AGENT2AGENT:
        apps = chosen_apps(scenario, share)
    else:
        try:
            scenario = with_augmentation(scenario, imported.augmentation or {})
        except ScenarioError as error:
            raise ScenarioError(f"{place}: {error}") from error
    return Gaia2Task(scenario=scenario, phase=phase, config=f"{MINI}_{phase}", file=place, apps=apps)


def tags_of(scenario: Scenario) -> tuple[str, ...]:
    """The capabilities that a scenario is tagged with."""
    tags = scenario.info.get("tags")
    return tuple(map(str, tags)) if isinstance(tags, list) else ()
