"""The RL stage of a run: engine, source of groups, steps, and the evaluations that make the learning curve."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

from wanderlust.errors import EnvironmentFailure
from wanderlust.evals.accumulator import report_of_groups
from wanderlust.evals.report import Report
from wanderlust.evals.statistics import estimate
from wanderlust.runner.progress import Logger, ProgressLogger
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.training.async_source import AsyncSource
from wanderlust.training.checkpoint import LAST_CHECKPOINT, Run, point_estimates, prune
from wanderlust.training.config import TrainConfig
from wanderlust.training.engines import open_engine, save_checkpoint
from wanderlust.training.group_source import BatchSource, LocalPlayer, OnPolicySource, RayCluster, calibrate
from wanderlust.training.loop import TrainingLoop
from wanderlust.training.result import rewards_of, selection_metric
from wanderlust.training.reward_hacking import RewardHackingMonitors
from wanderlust.training.setup import run_curriculum
from wanderlust.training.trainers.base import EngineOptions, TrainingSetup
from wanderlust.training.verdict import advise_during
from wanderlust.types import Group

ADVICE_EVENT = "advice"
"""Kind of the store's events."""
ADVICE_METRICS = ("frac_groups_with_signal", "entropy", "groups_dropped")


async def run_rl_stage(
    config: TrainConfig, run: Run, *, start: Path, logger: Logger, workers: int, ray: RayCluster | None
) -> list[dict[str, Any]]:
    """Take the remaining steps from the checkpoint `start` and save the last weights; returns the learning curve.

    The engine's memory is free again afterwards.
    """
    env, began = config.make_env(), run.state is None or run.state["stage"] != "rl"
    state: dict[str, Any] = {"step": 0, "facts": {"curve": []}} if began else {**(run.state or {})}
    run.store.truncate(["rl"], state["step"])
    monitors = RewardHackingMonitors.for_environment(
        env, stop_on_warning=config.on_hack == "stop", is_own_reward=config.label_estimator == "none"
    )
    chosen = run_curriculum(config, env)
    options = EngineOptions(config=config, start=start, run=run.path, workers=workers, ray=ray)
    async with open_engine(options) as setup:
        loop = TrainingLoop(
            run, setup.trainer, logger=logger, facts=state["facts"], algorithm=setup.algorithm, monitors=monitors
        )
        evaluate = _evaluation(loop, setup, config)
        if began:
            await setup.trainer.publish()
            async with loop.ema_weights():
                await evaluate(0)
            await calibrate(chosen, setup.player)
        source: BatchSource
        if config.max_staleness:
            assert isinstance(setup.player, LocalPlayer)
            source = AsyncSource(
                setup.player,
                chosen,
                version=lambda: setup.trainer.version,
                count=config.tasks_per_step,
                steps=config.steps,
                max_staleness=config.max_staleness,
            )
        else:
            source = OnPolicySource(setup.player, chosen, count=config.tasks_per_step, algorithm=setup.algorithm)
        await loop.run_rl(source, config, env=config.env_name, group_metrics=environment_metrics, evaluate=evaluate)
        await save_checkpoint(run.path / CHECKPOINTS_FOLDER / LAST_CHECKPOINT, config, setup)
    return list(loop.facts["curve"])


def _evaluation(loop: TrainingLoop, setup: TrainingSetup, config: TrainConfig) -> Callable[[int], Awaitable[bool]]:
    """Makes a point of the learning curve, the greedy policy on the `eval` split; says whether to go on after it."""
    tasks = choose_tasks(iter_tasks(config.make_env(), "eval"), config.eval_tasks) if config.eval_tasks else []

    async def evaluate(step: int) -> bool:
        if not tasks and config.eval_tasks:
            return True
        groups: list[Group] = []
        if tasks:
            groups = await setup.player.evaluate(tasks)
            point, figures = _played_point(groups)
        else:
            point, figures = _exact_point(await setup.player.exact() or ())
        curve = loop.facts["curve"]
        curve[:] = [earlier for earlier in curve if earlier["step"] < step] + [{"step": step, **point}]
        loop.run.store.add(stage="eval", step=step, env=config.env_name, metrics=figures)
        loop.logger.log_step("eval", step, of=config.steps, metrics=figures)
        _advise(loop, step, groups, config=config)
        return await prune(
            loop.run.path / CHECKPOINTS_FOLDER,
            curve,
            metric=selection_metric(config),
            keep_last=config.keep_last,
            patience=config.patience,
            save=partial(save_checkpoint, config=config, setup=setup, averaged=True),
        )

    return evaluate


def _played_point(groups: Sequence[Group]) -> tuple[dict[str, Any], dict[str, float]]:
    """The report of one episode a task as a point of the curve, and its figures by name."""
    result = _checked_report(report_of_groups(groups))
    timeless = replace(result, usage=replace(result.usage, latency={}))  # no clock's: a resumed run has the same
    estimates = (
        {"reward": result.reward, **result.parts, **result.metrics} if len(result.rewards) == 1 else result.rewards
    )
    figures = {name: each.value for name, each in estimates.items() if each is not None}
    return {**timeless.as_dict(), "learning_reward": asdict(estimate(rewards_of(groups, "reward").values()))}, figures


def _exact_point(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, float]]:
    """Rows of exact figures as a point of the curve, which has their means, and all by name."""
    numbers = [{name: value for name, value in row.items() if isinstance(value, float)} for row in rows]
    means = {
        name: {
            "value": fmean(row[name] for row in numbers),
            "low": None,
            "high": None,
            "count": len(rows),
            "clusters": 1,
        }
        for name in numbers[0]
    }
    reward = means.pop("reward")
    labels = [next(value for name, value in row.items() if name != "policy" and isinstance(value, str)) for row in rows]
    figures = {f"{label}/{name}": row[name] for label, row in zip(labels, numbers, strict=True) for name in means}
    point = {"rewards": {"agent": reward}, "parts": {}, "metrics": means, "failed": 0, "exact": [*rows]}
    return point, figures


def _advise(loop: TrainingLoop, step: int, groups: Sequence[Group], *, config: TrainConfig) -> None:
    """Say what the figures so far suggest to change, each kind once in a run, and keep it as an event of the run."""
    store, facts = loop.run.store, loop.facts
    said = [
        [str(message.content) for message in t.messages] for g in groups for r in g.rollouts for t in r.trajectories
    ]
    digests = [blake2b(repr(one).encode(), digest_size=8).hexdigest() for one in said]
    known = facts.setdefault("greedy_before", digests)
    same = sum(a == b for a, b in zip(known, digests, strict=False)) / max(len(digests), 1)
    points = [{"step": p["step"], **_bounded(point_estimates(p).get(config.best_metric, {}))} for p in facts["curve"]]
    lines = advise_during(
        config,
        metrics={name: [value for _, value in store.metrics("rl", name)] for name in ADVICE_METRICS},
        points=[point for point in points if "value" in point],
        unchanged=same,
    )
    told: list[str] = facts.setdefault("advice_given", [])
    for kind, line in lines.items():
        if kind not in told:
            told.append(kind)
            store.add_event(ADVICE_EVENT, {"stage": "rl", "step": step - 1, "kind": kind, "text": line})
            if isinstance(loop.logger, ProgressLogger):
                loop.logger.log_line(f"eval {step}: {line}")


def _bounded(figure: Mapping[str, float]) -> dict[str, Any]:
    """A figure with ends of its interval also where all of several tasks agree, so that none can be computed."""
    agree = figure.get("low", 0.0) is None and figure["clusters"] > 1
    return {**figure, "low": figure["value"], "high": figure["value"]} if agree else {**figure}


def _checked_report(result: Report) -> Report:
    """The report. Raises EnvironmentFailure when nothing could be scored: there is nothing to learn from then."""
    if result.played and not result.scored:
        name, errors = next(iter(result.errors.items()), ("nothing was scored", None))
        raise EnvironmentFailure(f"all {result.played} rollouts failed: {name}: {errors.first if errors else ''}")
    return result


def environment_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Mean of every metric that the environment records."""
    result = _checked_report(report_of_groups(groups))
    return {f"metric/{name}": estimate.value for name, estimate in result.metrics.items()}
