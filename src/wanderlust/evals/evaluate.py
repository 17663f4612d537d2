"""`evaluate`: play the tasks of an environment, keep every rollout, and report figures with intervals."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

from wanderlust.agent.limits import Spending
from wanderlust.environment import Environment, Limits, declaration_error
from wanderlust.errors import UsageError
from wanderlust.evals.aggregation import SelfConsistency
from wanderlust.evals.evaluation import Evaluation, Observer, open_workers
from wanderlust.evals.report import Report
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.runner.engine import RolloutSettings, SeatPolicies, WorkerBackend, run_blocking, suspended_loop
from wanderlust.runner.progress import Logger, open_progress
from wanderlust.store.run_folder import format_eval_command
from wanderlust.tasks.registry import environment_name, resolve_environment
from wanderlust.types import Policy, RubricLike, Task

DEFAULT_ROLLOUT_SECONDS = 3600.0
"""Wall-clock seconds that a rollout may take where neither the environment nor the caller sets a limit."""


async def evaluate(  # noqa: PLR0913 (the whole of `wander eval` as one call)
    env: Environment | str,
    policy: SeatPolicies | str | Path,
    *,
    tasks: Iterable[Task] | None = None,
    split: str = "eval",
    n: int | None = None,
    task: str | None = None,
    samples: int = 1,
    seats: Mapping[str, Policy] | None = None,
    rubric: RubricLike | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    accept_changes: bool = False,
    concurrency: int | WorkerBackend = 128,
    ray_workers: int | None = None,
    ray_address: str | None = None,
    limits: Limits | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 (of one rollout, not of this call)
    seed: int = 0,
    group_by: str | None = None,
    pass_threshold: float = 1.0,
    prices: TokenPrices | None = None,
    max_cost: float | None = None,
    aggregation: SelfConsistency | None = None,
    traits: bool = False,
    observers: Sequence[Observer] = (),
    progress: Logger | bool = True,
    settings: Mapping[str, Any] | None = None,
    name: str = "",
) -> Report:
    """Play every task `samples` times and report the figures with 95% intervals.

    A rollout that fails is in no figure and never counts as reward 0; the report says how many failed and why. With
    `out` every rollout is stored as it finishes, and the same call goes on where it was stopped.

    Args:
        env: An environment, or the name of one as `load_environment` takes it.
        policy: A policy for every seat, a mapping from seats to policies, or a name (a player of the environment, a
            run or a checkpoint folder).
        tasks: Tasks to play; they must end. Default: those of `split`.
        split: Split of the environment that is played.
        n: Number of tasks, spread evenly over the split. Default: all.
        task: Id of the only task to play; `ID#2` is its sample 2.
        samples: Rollouts per task.
        seats: Policies of some seats (a simulated user, an opponent); `policy` plays the others.
        rubric: Scores the rollouts. Default: the environment's rubric.
        out: Folder that keeps the rollouts and the report.
        resume: Whether `out` may hold the same evaluation already, which then goes on. Else it must be new.
        accept_changes: Whether an evaluation goes on whose code, rubric, tasks, policy or settings have changed since;
            the report then has figures for each version, and none of both.
        concurrency: Rollouts at once, or the workers that play them.
        ray_workers: Number of Ray workers that play, sharing `concurrency` (needs the extra `ray`).
        ray_address: `HOST:PORT` of their cluster. Default: processes of this machine.
        limits: Bounds of an episode. Default: the environment's.
        timeout: Wall-clock seconds of one rollout. Default: the limits', or an hour.
        seed: Seed of everything random.
        group_by: Key of `Task.info` by which the report is broken down. Default: the environment's.
        pass_threshold: Smallest reward that counts as passed, for pass@k.
        prices: Dollars per million tokens, for the cost.
        max_cost: Dollars from which on no rollout starts; those under way are finished. Needs `prices`.
        aggregation: What is made of all samples of a task together.
        traits: Whether to measure traits of reasoning, the report's `traits`; with `out` they are also kept there, with
            a picture.
        observers: Called with the groups that have finished; what one raises ends the evaluation.
        progress: Whether to draw progress on stderr, or the logger that gets it.
        settings: What the folder says of the evaluation. Default: made from the arguments.
        name: Name of the environment in the store and in messages. Default: as it was given, or its class.

    Returns:
        The report.

    Raises:
        UsageError: when an argument is wrong, or `out` holds another evaluation.
        PolicyRefused: when the policy's server refuses every request (a wrong key, an unknown model).
        StoreError: when a rollout cannot be stored.

    Example:
        >>> report = await evaluate(HigherLower(), Endpoint(url, model="small"), n=50, samples=4, out="runs/small")
        >>> report.reward.value
        0.62
    """
    environment = _well_declared(resolve_environment(env).env if isinstance(env, str) else env, rubric)
    if isinstance(policy, str | Path):
        policy = resolve_policy(str(policy), environment, PolicyOptions(seed=seed, split=split)).policy
    name = name or environment_name(env)
    listed = {"split": split, "n": n, "task": task, "samples": samples, "seed": seed}
    record = settings if settings is not None else {"env": name, "policy": policy_name(policy), **listed}
    whole = Evaluation(
        name=name,
        settings=RolloutSettings(
            env=environment,
            policy=_seat_policies(environment, policy, seats),
            rubric=rubric,
            limits=_evaluation_limits(limits or environment.limits, timeout, max_cost, prices=prices),
            retries=1,
            spending=Spending(prices=prices),
        ),
        max_cost=max_cost,
        pass_threshold=pass_threshold,
        prices=prices,
        group_by=group_by or environment.group_by,
        aggregation=aggregation,
        measures_traits=traits,
        command=None if settings is None else shlex.split(format_eval_command(settings))[1:],
        accept_changes=accept_changes,
    )
    jobs = whole.choose_jobs(tasks, split, n=n, only=task, samples=samples, seed=seed)
    backend = partial(open_workers, whole.settings, concurrency, ray_workers, ray_address=ray_address)
    with open_progress(progress) as log:
        return await whole.play(jobs, backend, out=out, record=record, resume=resume, observers=observers, logger=log)


@suspended_loop()
def evaluate_sync(env: Environment | str, policy: SeatPolicies | str | Path, **options: Any) -> Report:
    """Call `evaluate` and wait for it; works in scripts and where an event loop runs already, as in a notebook.

    Takes the arguments of `evaluate`, returns its report and raises its errors.

    Example:
        >>> print(evaluate_sync("tictactoe", "teacher", n=30))
    """
    return run_blocking(partial(evaluate, env, policy, **options))


def _well_declared(env: Environment, rubric: RubricLike | None) -> Environment:
    """The same environment. UsageError for wrong seats, limits, players or rubric."""
    wrong = declaration_error(env)
    if not wrong and rubric is not None and not hasattr(rubric, "score"):
        wrong = f"the rubric is a {type(rubric).__name__}: it must be a Rubric(...)"
    if wrong:
        raise UsageError(wrong)
    return env


def _evaluation_limits(
    limits: Limits, timeout: float | None, max_cost: float | None, *, prices: TokenPrices | None
) -> Limits:
    """The limits of each rollout, with a bound of its time. UsageError for a bound of the cost without prices."""
    if max_cost is not None and not max_cost > 0:
        raise UsageError(f"max_cost is {max_cost:g}, and must be above 0")
    if prices is None and (max_cost is not None or limits.max_episode_cost is not None):
        raise UsageError("bounds of the cost need prices: prices=TokenPrices(...), or --price-in and --price-out")
    return replace(limits, timeout=timeout or limits.timeout or DEFAULT_ROLLOUT_SECONDS)


def policy_name(policy: SeatPolicies) -> str:
    """The name of a policy in a run's settings: a model and where it is, or the name of a class."""
    if isinstance(policy, Mapping):
        return ", ".join(f"{seat}={policy_name(one)}" for seat, one in policy.items())
    label = getattr(policy, "label", None)
    return label if isinstance(label, str) else type(policy).__name__


def _seat_policies(env: Environment, policy: SeatPolicies, seats: Mapping[str, Policy] | None) -> SeatPolicies:
    """The policy, or those of all seats. UsageError for a seat that is not there or not played, and for no policy."""
    named = {**(policy if isinstance(policy, Mapping) else {}), **(seats or {})}
    if unknown := named.keys() - set(env.seats):
        raise UsageError(f"no seat {sorted(unknown)[0]!r} in {type(env).__name__}; there are: {', '.join(env.seats)}")
    if isinstance(policy, Mapping) and (missing := [seat for seat in env.seats if seat not in named]):
        raise UsageError(f"nobody plays the seat {missing[0]!r}: name a policy for it")
    for one in named.values() if isinstance(policy, Mapping) else (policy, *named.values()):
        if one is None or isinstance(one, type | FunctionType):
            what = one.__name__ if isinstance(one, type) else f"a {type(one).__name__}"
            raise UsageError(f"{what} is no policy: make one, like Scripted(function) or Endpoint(url, model=...)")
    if not seats:
        return policy
    return named if isinstance(policy, Mapping) else {**dict.fromkeys(env.seats, policy), **named}
