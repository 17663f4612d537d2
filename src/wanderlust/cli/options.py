"""The options of `wander eval`.

Arguments that several commands take, described once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from wanderlust.errors import UsageError
from wanderlust.policies.base import Hardware, TokenPrices
from wanderlust.policies.resolve import PolicyOptions

PositiveInt = Annotated[int, Parameter(validator=Number(gte=1))]
EnvironmentName = Annotated[
    str,
    Parameter(
        help="Name of an environment, package.module:Name or file.py:Name, and settings after it:"
        " reasoning-gym,dataset=countdown"
    ),
]
PolicyName = Annotated[
    str,
    Parameter(
        help="A run or checkpoint folder, with settings after it (,device=cuda,precision=bf16), an endpoint's URL, a"
        " player of the environment (its oracle, for one), a script as package.module:Name, or an evaluation's folder,"
        " which is replayed."
    ),
]
RunPath = Annotated[Path, Parameter(help="Folder of a run, or its rollouts.db.")]
HardwareOptions = Annotated[Hardware, Parameter(name="*")]
JsonFlag = Annotated[bool, Parameter(help="Print the result as one JSON object.")]


def refuse_existing(out: Path | None) -> None:
    """Raises UsageError when there is something at `out` already."""
    if out is not None and out.exists():
        raise UsageError(f"{out} exists already: name another folder with --out")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """Sampling options."""

    model: str | None = None
    """Name of the model, where the policy is a URL."""
    temperature: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """Sampling temperature; 0 is greedy. Default: 1 for checkpoints, the server's own for endpoints."""
    greedy: bool = False
    """Always take the likeliest answer: the same as --temperature 0."""
    max_tokens: PositiveInt | None = None
    """Bound of one answer. Default: 256 for checkpoints, the server's own for endpoints."""
    seed: int = 0
    """Random seed."""
    api_key: str | None = None
    """Name of the environment variable that holds the endpoint's key. Default: WANDER_API_KEY, if it is set."""

    def policy_options(self, *, greedy: bool) -> PolicyOptions:
        """As the policies take it."""
        if self.greedy and self.temperature:
            raise UsageError("--greedy and --temperature exclude each other")
        temperature = 0.0 if greedy or self.greedy else self.temperature
        return PolicyOptions(
            model=self.model,
            temperature=temperature,
            max_tokens=self.max_tokens,
            seed=self.seed,
            api_key=self.api_key,
        )


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Which tasks, and how often."""

    num_tasks: Annotated[PositiveInt | None, Parameter(alias="-n")] = None
    """How many tasks of the `eval` split, spread evenly over it. Default: all."""
    samples: PositiveInt = 1
    """Rollouts per task."""
    task: str | None = None
    """Play the task with this id alone; ID#2 is its rollout 2, as `wander show` names it."""
    concurrency: PositiveInt = 128
    """Rollouts at once."""
    timeout: Annotated[float | None, Parameter(validator=Number(gt=0))] = None
    """Seconds for one rollout. Default: the environment's own limit, or an hour."""
    exact: bool = False
    """Compute the figures instead of sampling them; needs a checkpoint, which then is greedy, or a scripted player."""


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
class ReportOptions:
    """Options of the report."""

    group_by: str | None = None
    """Break the figures down by this key of the tasks' info."""
    per_task: bool = False
    """Show every task's figures too; they are in the JSON anyway."""
    pass_threshold: float = 1.0
    """Smallest reward that counts as passed, for pass@k and pass^k."""
    price_in: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """Dollars per million tokens read."""
    price_out: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """Dollars per million tokens written."""

    def prices(self) -> TokenPrices | None:
        """The prices; None when none was named."""
        if self.price_in is None and self.price_out is None:
            return None
        return TokenPrices(input=self.price_in or 0.0, output=self.price_out or 0.0)
