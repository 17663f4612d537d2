"""The options of `wander eval`, and what is made of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from inspect import signature
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust._lazy import needs_extra
from wanderlust.cli.options import ModelOptions, PositiveInt, PriceOptions
from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.evals.aggregation import EstimateAccumulator, SelfConsistency
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.resolve import (
    SCRIPT_PATTERN,
    PolicyOptions,
    ResolvedPolicy,
    make_policy,
    resolve_judge_policy,
    resolve_seats,
)
from wanderlust.rubrics.label_free import (
    EstimatorName,
    ReferenceEstimator,
    answer_extractor,
    build_estimator,
    environment_check,
)
from wanderlust.rubrics.rubric import Rubric
from wanderlust.tasks.registry import ResolvedEnvironment, make_environment, resolve_environment
from wanderlust.types import Policy

if TYPE_CHECKING:
    from wanderlust.runner.ray import RemoteSpec


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Which tasks, how often, and within which bounds."""

    num_tasks: Annotated[PositiveInt | None, Parameter(alias="-n")] = None
    """How many tasks of the split, spread evenly over it. Default: all."""
    split: str = "eval"
    """Split of the environment that is played."""
    samples: PositiveInt = 1
    """Rollouts per task."""
    task: str | None = None
    """Play the task with this id alone; ID#2 is its rollout 2, as `wander show` names it."""
    concurrency: PositiveInt = 128
    """Rollouts at once."""
    timeout: Annotated[float | None, Parameter(validator=Number(gt=0))] = None
    """Seconds for one rollout. Default: the environment's own limit, or an hour."""
    max_turns: PositiveInt | None = None
    """Turns per seat in one rollout. Default: the environment's own limit."""
    max_episode_tokens: PositiveInt | None = None
    """Completion tokens of one rollout, after which no further turn is taken."""
    max_context_tokens: PositiveInt | None = None
    """Tokens of a conversation, prompt and completion, after which no further turn is taken."""
    max_tool_chars: Annotated[int | None, Parameter(validator=Number(gte=100))] = None
    """Characters of one tool result; a longer one is cut, with a note for the model."""
    max_episode_cost: Annotated[float | None, Parameter(validator=Number(gt=0))] = None
    """Dollars of one rollout, after which no further turn is taken; needs --price-in and --price-out."""
    refusals: Literal["answer", "failure"] = "answer"
    """What a turn is in which the model's API says that it refused: an answer, scored like any other, or a failure."""
    max_cost: Annotated[float | None, Parameter(validator=Number(gt=0))] = None
    """Dollars of the whole run, after which no rollout starts; needs --price-in and --price-out."""
    batch: bool = False
    """Ask an endpoint by its batch API (OpenAI's and Anthropic's): slow, and cheaper. Raise --concurrency with it."""
    cache: Path | None = None
    """Folder that keeps an endpoint's answers: the same request of the same sample is answered from there."""
    seats: Annotated[str, Parameter(alias="--seat")] = ""
    """Seats that other policies play: SEAT=POLICY, several with spaces between; --policy plays the others."""
    exact: bool = False
    """Compute the figures instead of sampling them; needs a checkpoint, which then is greedy, or a scripted player."""

    def recorded(self, report_options: ReportOptions, env: str) -> dict[str, Any]:
        """The options that decide what is played; prices belong to them where they bound a rollout."""
        prices = report_options.price_settings() if self.max_episode_cost is not None else {}
        names = ("num_tasks", "samples", "task", "seats", *LIMIT_NAMES)
        defaults = {"split": "eval", "refusals": "answer"}
        other = {name: own for name, value in defaults.items() if (own := getattr(self, name)) != value}
        return {name: getattr(self, name) for name in names} | other | prices | report_options.rubric_judge(env)

    def unrecorded(self) -> dict[str, Any]:
        """The options that change nothing of a rollout."""
        return {"max_cost": self.max_cost, "cache": self.cache, "batch": self.batch}

    def with_calls(self, options: PolicyOptions) -> PolicyOptions:
        """The policy's options with the split, and those that say how an endpoint is called."""
        return replace(options, concurrency=self.concurrency, cache=self.cache, batch=self.batch, split=self.split)

    def arguments(self, env: Environment) -> dict[str, Any]:
        """As `evaluate` takes them; the limits are the environment's with those that were given."""
        given = {name: value for name in LIMIT_NAMES if (value := getattr(self, name)) is not None}
        same = {
            name: getattr(self, name) for name in ("task", "split", "samples", "concurrency", "timeout", "max_cost")
        }
        given |= {"refusals": self.refusals} if self.refusals != "answer" else {}
        return {"n": self.num_tasks, "limits": replace(env.limits, **given), **same}


LIMIT_NAMES = ("max_turns", "max_episode_tokens", "max_context_tokens", "max_tool_chars", "max_episode_cost")
"""Options that are limits of a rollout."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions:
    """Where the rollouts are kept."""

    out: Path | None = None
    """Folder that keeps every rollout."""
    accept_changes: bool = False
    """Go on in --out although code, rubric, tasks, policy or settings have changed; figures are then shown for each."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of the workers that play rollouts."""

    ray_workers: PositiveInt | None = None
    """Number of Ray workers, which share --concurrency. Default: in this process."""
    ray_address: str | None = None
    """HOST:PORT of the cluster that they belong to. Default: processes of this machine."""

    def __post_init__(self) -> None:
        if self.ray_address is not None and self.ray_workers is None:
            raise UsageError("--ray-address needs --ray-workers N")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions(PriceOptions):
    """Options of the report."""

    group_by: str | None = None
    """Break the figures down by this key of the tasks' info."""
    per_task: bool = False
    """Show every task's figures too; they are in the JSON anyway."""
    pass_threshold: float = 1.0
    """Smallest reward that counts as passed, for pass@k and pass^k."""
    price_cached: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """Dollars per million tokens read that the server had cached. Default: as --price-in."""

    judge: str | None = None
    """Policy that judges, for environments that take one, and else for all judges of the environment's rubric: a URL, a
    provider's model, a script, a run or checkpoint folder."""
    judge_model: str | None = None
    """Which of the judge's models to ask, where it is a URL."""

    def environment(self, name: str) -> str:
        """The environment's name with the judge among its settings, where it takes one."""
        if self.judge_model is not None and self.judge is None:
            raise UsageError("--judge-model needs --judge URL")
        if self.judge is None:
            return name
        kinds = type(resolve_environment(name).env).__mro__[:-1]  # a class may pass its options on to those above it
        return name + self._judge_settings if any("judge" in signature(kind).parameters for kind in kinds) else name

    @property
    def _judge_settings(self) -> str:
        settings = {"judge": self.judge, "judge_model": self.judge_model}
        return "".join(f",{key}={value}" for key, value in settings.items() if value is not None)

    def rubric_judge(self, env: str) -> dict[str, str | None]:
        """The judge for the rubric's judges, as it is recorded; empty where it is a setting of the environment."""
        if self.judge is None or env.endswith(self._judge_settings):
            return {}
        return {"judge": self.judge, "judge_model": self.judge_model}

    def prices(self) -> TokenPrices | None:
        """The prices; None when none was named."""
        prices = PriceOptions.prices(self)
        return prices and replace(prices, cached=self.price_cached)

    def unrecorded(self) -> dict[str, Any]:
        """The options that change the report alone, for the command that goes on."""
        return self.price_settings() | {
            name: getattr(self, name) for name in ("group_by", "per_task", "pass_threshold")
        }

    def price_settings(self) -> dict[str, float | None]:
        """The prices by the names of their options."""
        return {name: getattr(self, name) for name in ("price_in", "price_out", "price_cached")}


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationOptions:
    """Options of estimates over all samples of a task."""

    aggregate: EstimatorName | None = None
    """Distil one answer from each task's samples, and say what it earns beside them (docs/label-free-rl.md)."""
    synthesizer: str | None = None
    """Policy that writes the synthesis, at temperature 0; as --policy, but not a scripted player. Default: the policy
    itself."""
    synthesizer_sees_question: bool = False
    """Show the synthesizer the question as well as the samples."""
    traits: bool = False
    """Measure traits of reasoning (docs/reasoning.md): accuracy against tokens, overthinking, calibration, and others.
    With --out they are kept there as traits.json and traits.png."""

    def as_settings(self, task_options: TaskOptions) -> dict[str, Any]:
        """The options by name. Raises UsageError where they do not go together."""
        if self.aggregate is None and (self.synthesizer is not None or self.synthesizer_sees_question):
            raise UsageError("--synthesizer and --synthesizer-sees-question need --aggregate synthesis")
        if self.aggregate is not None and (task_options.samples < 2 or task_options.exact):
            raise UsageError("--aggregate needs several samples of a task: add --samples 8")
        if self.traits and task_options.exact:
            raise UsageError("--traits are measured on samples: leave --exact out")
        return asdict(self)

    def arguments(
        self, resolved: ResolvedEnvironment, player: ResolvedPolicy, answer_options: ModelOptions, *, policy: str
    ) -> dict[str, Any]:
        """As `evaluate` takes them; `policy` is the player's name."""
        aggregation = self.self_consistency(resolved, player, answer_options, policy=policy)
        return {"aggregation": aggregation, "traits": self.traits}

    def self_consistency(
        self, resolved: ResolvedEnvironment, player: ResolvedPolicy, answer_options: ModelOptions, *, policy: str
    ) -> SelfConsistency | None:
        """The estimator, or None without `--aggregate`; `policy` is the player's name.

        Raises UsageError when it needs a model and has none.
        """
        if self.aggregate is None:
            return None
        options = answer_options.policy_options(greedy=True)
        writer = self.synthesizer or (policy if player.kind == "endpoint" else None)
        anchor = synthesis_writer(player, writer, options)
        estimate = make_estimator(
            self.aggregate, resolved, player, anchor=anchor, sees_question=self.synthesizer_sees_question
        )
        estimates = EstimateAccumulator(name=self.aggregate, estimator=estimate, check=environment_check(resolved.env))
        voices = [anchor] if anchor is not None and self.aggregate == "synthesis" else []
        return SelfConsistency(estimates=estimates, judges=voices)


def synthesis_writer(player: ResolvedPolicy, writer: str | None, options: PolicyOptions) -> Policy | None:
    """Who writes syntheses: the policy named `writer`, else the local player itself at temperature 0, else nobody."""
    if writer is not None:
        return resolve_judge_policy(writer, options).policy
    local: Any = player.policy
    return local.greedy() if player.kind == "local" else None


def make_estimator(
    name: EstimatorName,
    resolved: ResolvedEnvironment,
    player: ResolvedPolicy,
    *,
    anchor: Policy | None,
    sees_question: bool = False,
) -> ReferenceEstimator:
    """The estimator of that name for samples of a player. Raises UsageError when it needs a model and has none."""
    local: Any = player.policy if player.kind == "local" else None
    likelihood: Any = None
    if name == "mutual" and local is not None:
        with needs_extra("train"):
            from wanderlust.training.models import likelihood as make_likelihood
        likelihood = make_likelihood(local.engine.model, local.renderer)
    return build_estimator(
        name,
        synthesizer=anchor,
        likelihood=likelihood,
        extract=answer_extractor(resolved.env),
        synthesizer_sees_question=sees_question,
    )


def remote_specs(
    resolved: ResolvedEnvironment, policy: str, options: PolicyOptions, *, here: Policy, workers: int
) -> tuple[RemoteSpec, RemoteSpec]:
    """Environment and policy that are made in the workers, which share the calls that an endpoint gets at once."""
    with needs_extra("ray"):
        from wanderlust.runner.ray import RemoteSpec
    options = replace(options, concurrency=ceil(options.concurrency / workers))
    file, _, member = policy.rpartition(":")
    if SCRIPT_PATTERN.fullmatch(policy) and file.endswith(".py"):
        policy = f"{Path(file).resolve()}:{member}"  # workers have other working folders
    elif Path(policy).exists():
        policy = str(Path(policy).resolve())
    remote_policy = RemoteSpec(make_policy, policy, resolved.target, options)
    remote_policy.policy_here = here
    return RemoteSpec(make_environment, resolved.target), remote_policy


def resolve_roles(
    resolved: ResolvedEnvironment,
    task_options: TaskOptions,
    report_options: ReportOptions,
    *,
    options: PolicyOptions,
    workers: int | None,
) -> dict[str, Any]:
    """Policies of seats, and the rubric with the judge's policy, as `evaluate` takes them."""
    seats, judge = task_options.seats, report_options.rubric_judge(resolved.target)
    if workers is not None and (seats or judge):
        raise UsageError("--seats and --judge are policies of this process: leave --ray-workers out")
    env, rubric = resolved.env, None
    if judge:
        if not isinstance(env.rubric, Rubric):
            raise UsageError("--judge is for an environment that takes one, or whose rubric has a judge")
        asked = replace(options, model=judge["judge_model"] or options.model)
        rubric = env.rubric.asking(resolve_judge_policy(str(judge["judge"]), asked).policy)
    return {"seats": resolve_seats(seats.split(), env, options), "rubric": rubric}
