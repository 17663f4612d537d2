"""What `wander world` is asked for, and the scenarios and rollouts that are meant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust.cli.options import PositiveInt
from wanderlust.environments.assistant_life import SCENARIO_ID, scenario_of
from wanderlust.errors import StoreError, UsageError
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.resolve import PolicyOptions
from wanderlust.store.run_folder import find_evaluation
from wanderlust.store.store import RunStore
from wanderlust.tasks.registry import resolve_environment
from wanderlust.types import Rollout
from wanderlust.worlds import Scenario, WorldEnvironment
from wanderlust.worlds.exchange.read import ImportedScenario, read_scenario
from wanderlust.worlds.verification.verdict import Compat


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """Policy, and where results go."""

    policy: str = "oracle"
    """For run and bench: oracle, planner, greedy, nothing, an endpoint's URL, a checkpoint, a script. For write: who
    drafts, or who rewords."""
    out: Path | None = None
    """For import: folder for the files as they were understood. For bench: folder of the rollouts and the report. For
    write: folder of the drafts."""
    samples: PositiveInt = 3
    """For bench: runs of every task."""
    player: tuple[str, ...] = ()
    """For bench: a further player as NAME=POLICY; several by giving the option again."""
    count: PositiveInt = 5
    """For write: drafts that the folder is to have."""
    about: str = ""
    """For write: what the stories shall be about."""
    reword: tuple[str, ...] = ()
    """For write: reword mails and messages instead, of a scenario or a story's file; several by giving it again."""
    solver: tuple[str, ...] = ("greedy",)
    """For write: policies that play each draft; several by giving the option again."""
    solved_at_most: Annotated[float, Parameter(validator=Number(gte=0, lte=1))] = 0.9
    """For write: a draft of which a solver passes a larger share is too easy."""
    comment: str = ""
    """For review: words to a decision."""


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


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Options of the verification of a log."""

    log: Path | None = None
    """For verify: a file with the log of a world, JSON lines."""
    compat: Compat = "strict"
    """For verify: whose verdict; strict is this project's own, the others are as ARE's two judges."""
    judge: str | None = None
    """For verify: who is asked what comparing cannot tell; named as a policy is."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """Options of the budget curves."""

    group_by: str | None = None
    """For budget: a curve for each value of this key of the tasks' info."""
    pass_threshold: float = 1.0
    """For budget: the reward from which on a rollout has passed."""
    price_in: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """For budget and bench: dollars per million tokens read."""
    price_out: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """For budget and bench: dollars per million tokens written."""

    def prices(self) -> TokenPrices | None:
        """None when none is known."""
        has_prices = self.price_in is not None or self.price_out is not None
        return TokenPrices(input=self.price_in or 0.0, output=self.price_out or 0.0) if has_prices else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldCommand:
    """One call of `wander world`."""

    arguments: tuple[str, ...]
    options: WorldOptions
    model_options: WorldModelOptions
    verify_options: VerifyOptions
    budget_options: BudgetOptions
    json: bool

    @property
    def first_argument(self) -> str:
        """The first word."""
        return self.arguments[0]

    def rollout_number(self) -> int:
        """The number of a rollout, which is the last word. Raises UsageError when it is none."""
        if len(self.arguments) < 2 or not self.arguments[-1].isdecimal():
            raise UsageError(f"say which rollout of {self.arguments[0]}, by its number: wander show lists them")
        return int(self.arguments[-1])


def scenario_id(name: str) -> str:
    """A scenario's id; a family's name alone is its first scenario of the eval split."""
    return name if SCENARIO_ID.fullmatch(name) else f"{name}/eval-0/1"


def resolve_scenario(name: str) -> ImportedScenario:
    """The scenario in a file, or of an id, or the first one of a family. Raises UsageError in one line."""
    if Path(name).exists() or name.endswith(".json"):
        return read_scenario(Path(name))
    return ImportedScenario(scenario=scenario_of(scenario_id(name)))


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
