"""The RL stage of a run: initial model, steps, evaluations on the way, final checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from hashlib import blake2b
from statistics import fmean
from typing import Any

from wanderlust.errors import EnvironmentFailure
from wanderlust.evals.accumulator import report_of_groups
from wanderlust.evals.report import Report
from wanderlust.evals.statistics import estimate
from wanderlust.policies.base import DEFAULT_HARDWARE
from wanderlust.policies.local.device import resolve_device
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.runner.engine import run_blocking
from wanderlust.runner.progress import Logger, ProgressLogger
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER
from wanderlust.tasks.curriculum import SupportsCalibration
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.checkpoint import Run, best_point, eval_curve, point_estimates, prune
from wanderlust.training.config import RayCluster, TrainConfig
from wanderlust.training.curricula import run_curriculum
from wanderlust.training.engines import SERVICE_PLACE_FILE, TrainingSetup, open_engine, save_checkpoint
from wanderlust.training.loop import TrainingLoop
from wanderlust.training.losses import TIS
from wanderlust.training.result import (
    CHECKPOINT_OF,
    LAST_CHECKPOINT,
    START_CHECKPOINT,
    evaluate_result,
    rewards_of,
)
from wanderlust.training.reward_hacking import RewardHackingMonitors, truth_names
from wanderlust.training.run_report import (
    OVEROPTIMISATION_FILE,
    draw_overoptimisation,
    overoptimisation,
    policy_sentence,
    write_run_report,
)
from wanderlust.training.verdict import AFTER, advise, advise_during
from wanderlust.training.warmup import initial_model
from wanderlust.types import Group, Task

NO_INTERVAL = {"low": None, "high": None, "clusters": 1}
CALIBRATION_SEED = -1
"""Seed of the rollouts that the first model plays for the curriculum."""
ADVICE_EVENT = "advice"
"""Kind of the store's events."""
ADVICE_METRICS = ("frac_groups_with_signal", "entropy", "groups_dropped")


def run_training(
    config: TrainConfig, run: Run, *, logger: Logger, workers: int = 2, ray: RayCluster | None = None
) -> dict[str, Any]:
    """Run the remaining steps, rollouts on `ray` where it is given; returns the content of the run's report.

    A run that was interrupted at any moment and resumed ends with the same weights, where `max_staleness` is 0;
    else no group is lost and none is learnt from twice.
    """
    _log_hardware(config, logger)
    start, end = (run.path / CHECKPOINTS_FOLDER / name for name in (START_CHECKPOINT, LAST_CHECKPOINT))
    if not start.exists():
        save_pretrained(start, *initial_model(config, logger, run))
        run.clock.record()
    state: dict[str, Any] = {"step": 0, "facts": {"curve": []}}
    if run.state is not None and run.state["stage"] == "rl":
        state = run.state
    facts: dict[str, Any] = state["facts"]
    run.store.truncate(["rl"], state["step"])
    run_blocking(partial(_train_and_save, config, run, facts=facts, logger=logger, workers=workers, ray=ray))
    run.clock.record()
    curve = facts["curve"]
    body = {"seed": config.seed, "wall_s": 0.0, "checkpoint": str(end), "curve": curve}
    points, chosen_by = eval_curve(curve, config.best_metric), selection_metric(config)
    top = best_point(eval_curve(curve, chosen_by))
    body["best"] = None if top is None else {"step": top.step, chosen_by: top.value}
    result = body["result"] = evaluate_result(
        config, run, best_step=top.step if top is not None else None, logger=logger
    )
    body["policy_checkpoint"] = CHECKPOINT_OF[result.get("policy", AFTER)]
    if not end.exists():
        body["service_weights"] = (run.path / SERVICE_PLACE_FILE).read_text().strip()
    signal, clipped = (
        [value for _, value in run.store.metrics("rl", name)] for name in ("frac_groups_with_signal", "clip_fraction")
    )
    body["advice"] = (
        [result["advice"]]
        if result.get("advice")
        else advise(
            config,
            rewards=result.get("rewards", {}),
            verdict=result.get("verdict", ""),
            signal=signal,
            points=points,
            unchanged=result.get("unchanged"),
            clipped=clipped,
        )
    )
    body["policy_sentence"] = policy_sentence(body)
    if curve_of_truth := overoptimisation(run.store, kl_weight=config.kl):
        body["overoptimisation"] = curve_of_truth
        draw_overoptimisation(run.path / OVEROPTIMISATION_FILE, curve_of_truth)
    body["wall_s"] = round(run.clock.record(), 1)
    title = f"Training in {config.env_name}"
    write_run_report(run.path, body, title=title, rewards=run.store.metrics("rl", "reward"))
    return body


async def _train_and_save(
    config: TrainConfig, run: Run, *, facts: dict[str, Any], logger: Logger, workers: int, ray: RayCluster | None
) -> None:
    """Take the remaining steps and save the last weights; the engine's memory is free again afterwards."""
    folder = run.path / CHECKPOINTS_FOLDER
    async with open_engine(config, folder / START_CHECKPOINT, workers=workers, run=run.path, ray=ray) as setup:
        await _run_rl(config, run, setup, facts=facts, logger=logger)
        await save_checkpoint(folder / LAST_CHECKPOINT, config, setup)


def _log_hardware(config: TrainConfig, logger: Logger) -> None:
    """Say where is computed, where that is not as ever, and what makes up for it."""
    hardware, loss = resolve_device(config.hardware), configured_algorithm(config).loss
    if hardware == DEFAULT_HARDWARE or not isinstance(logger, ProgressLogger):
        return
    line = f"computing on {hardware.device} in {hardware.precision}"
    if hardware.precision != "fp32" and loss.correction == TIS:
        line += f"; tokens weigh p_trainer / p_sampler, at most {TIS.ratio_max:g} (TIS), as the two round differently"
    logger.log_line(line)


async def _run_rl(
    config: TrainConfig, run: Run, setup: TrainingSetup, *, facts: dict[str, Any], logger: Logger
) -> None:
    env = config.make_env()
    monitors = RewardHackingMonitors.for_environment(
        env, stop_on_warning=config.on_hack == "stop", is_own_reward=config.label_estimator == "none"
    )
    learner = TrainingLoop(run, setup.trainer, logger=logger, facts=facts, algorithm=setup.algorithm, monitors=monitors)
    tasks = choose_tasks(iter_tasks(env, "eval"), config.eval_tasks) if config.eval_tasks else []
    examine = partial(_evaluate_step, learner, setup, tasks=tasks, config=config)
    chosen = run_curriculum(config, env)
    if run.state is None or run.state["stage"] != "rl":
        await setup.trainer.publish()
        async with learner.ema_weights():
            await examine(0)
        if isinstance(chosen, SupportsCalibration):
            for group in await setup.group_source.play(chosen.calibration_tasks(), seed=CALIBRATION_SEED):
                chosen.observe(group)
    await learner.run_rl(
        setup.source(chosen), config, env=config.env_name, group_metrics=_environment_metrics, evaluate=examine
    )


async def _evaluate_step(
    loop: TrainingLoop, setup: TrainingSetup, step: int, *, tasks: Sequence[Task], config: TrainConfig
) -> bool:
    """A point of the learning curve: the greedy policy on the `eval` split; whether to go on after it."""
    if not tasks and config.eval_tasks:
        return True
    groups: list[Group] = []
    if tasks:
        groups = await setup.evaluate(tasks)
        point, figures = _played_point(groups)
    else:
        point, figures = _exact_point(await setup.exact() or ())
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


def selection_metric(config: TrainConfig) -> str:
    """The figure by which the best checkpoint is chosen: the first held-out part, where no other one is asked for."""
    truths = truth_names(config.make_env()) if config.best_metric == "reward" else []
    return truths[0] if truths else config.best_metric


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


def _environment_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Mean of every metric that the environment records."""
    result = _checked_report(report_of_groups(groups))
    return {f"metric/{name}": estimate.value for name, estimate in result.metrics.items()}
