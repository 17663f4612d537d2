"""Options that several commands of `wander world` take, and the scenarios and rollouts that are meant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from wanderlust import plugins
from wanderlust.errors import StoreError, UsageError
from wanderlust.policies.resolve import PolicyOptions
from wanderlust.store.run_folder import find_evaluation
from wanderlust.store.store import RunStore
from wanderlust.tasks.registry import resolve_environment
from wanderlust.types import Rollout
from wanderlust_worlds import Scenario, WorldEnvironment
from wanderlust_worlds.exchange.read import ImportedScenario, read_scenario

SCENARIOS = "wanderlust_worlds.scenarios"
"""Group of entry points: functions that make a scenario of a name, or raise UsageError."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class WorldModelOptions:
    """Sampling options of a model."""

    model: str | None = None
    """Name of the model, where the policy or the judge is a URL."""
    max_tokens: int | None = None
    """Bound of one answer."""
    seed: int = 0
    """Random seed."""

    def policy_options(self) -> PolicyOptions:
        """As policies take it."""
        return PolicyOptions(model=self.model, max_tokens=self.max_tokens, seed=self.seed)


DEFAULT_MODEL_OPTIONS = WorldModelOptions()


def rollout_number(run: str, word: str | None) -> int:
    """The number of a rollout. Raises UsageError when the word is none."""
    if word is None or not word.isdecimal():
        raise UsageError(f"say which rollout of {run}, by its number: wander show lists them")
    return int(word)


def resolve_scenario(name: str) -> ImportedScenario:
    """The scenario in a file, or of a name that an installed package knows. Raises UsageError in one line."""
    if Path(name).exists() or name.endswith(".json"):
        return read_scenario(Path(name))
    refusals = list[str]()
    for point in plugins.declared(SCENARIOS).values():
        try:
            return ImportedScenario(scenario=plugins.load(point)(name))
        except UsageError as error:
            refusals.append(str(error))
    missing = plugins.how_to_install("wanderlust.environments", "life")
    none = f"{name!r} is no file of a scenario, and the environment 'life' is not installed: {missing}"
    raise UsageError("; ".join(refusals) or none)


def load_rollout_and_scenario(run: str, number: int) -> tuple[Rollout, Scenario | None]:
    """A rollout, and the scenario that it was played in where the run says so. UsageError when there is none."""
    try:
        store, settings = find_evaluation(Path(run))
        with RunStore.read(store) as reader:
            played = reader.get(number)
    except StoreError as error:
        raise UsageError(str(error)) from error
    if "env" not in settings:
        return played, None
    env = resolve_environment(str(settings["env"])).env
    return played, env.scenario(played.task) if isinstance(env, WorldEnvironment) else None


def format_duration(seconds: float) -> str:
    """A duration as minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
