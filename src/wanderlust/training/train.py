"""Reinforcement learning of any checkpoint in any environment, on one screen."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from wanderlust.errors import EnvironmentFailure
from wanderlust.evals.evaluate import report_of_groups
from wanderlust.evals.report import Report
from wanderlust.policies.base import DEFAULT_HARDWARE
from wanderlust.policies.local.device import resolve_device
from wanderlust.runner.progress import Logger, ProgressLogger
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER, REPORT_FILE
from wanderlust.tasks.curriculum import SupportsCalibration
from wanderlust.tasks.registry import make_environment
from wanderlust.tasks.selection import choose_tasks
from wanderlust.training.checkpoint import best_point, eval_curve, prune, save_pretrained
from wanderlust.training.curricula import resolve_curriculum
from wanderlust.training.loop import RLConfig, TrainingLoop
from wanderlust.training.losses import TIS
from wanderlust.training.optimizer import set_weights
from wanderlust.training.reward_hacking import RewardHackingMonitors
from wanderlust.training.run import Run
from wanderlust.training.setup import (
    TrainConfig,
    TrainingSetup,
    TrainSections,
    build_training,
    initial_model,
    validate_config,
    warmup_tasks,
)
from wanderlust.types import Group, Task

__all__ = ["TrainConfig", "TrainSections", "train", "validate_config"]

MAX_EVAL_TASKS = 300
"""At most this many tasks of the `eval` split are played at an examination."""
CALIBRATION_SEED = -1
"""Seed of what the first model plays for the curriculum."""


def train(config: TrainConfig, run: Run, *, logger: Logger, workers: int = 2) -> dict[str, Any]:
    """Run what is left to run; the facts it returns stand in the run's report as well.

    Guarantees that a run which was interrupted at any moment and gone on with ends in the same weights, where
    `max_staleness` is 0; else that no group is lost, none learnt from twice.
    """
    began = time.monotonic()
    _log_hardware(config, logger)
    start, end = run.path / CHECKPOINTS_FOLDER / "start", run.path / CHECKPOINTS_FOLDER / "rl"
    if not start.exists():
        save_pretrained(start, *initial_model(config, logger))
    state = run.state or {"step": 0, "facts": {"curve": [], "seconds": 0.0}}
    facts: dict[str, Any] = state["facts"]
    run.store.truncate(["rl"], state["step"])
    with build_training(config, start, workers=workers) as engine:
        asyncio.run(_run_rl(config, run, engine, facts=facts, logger=logger))
        save_pretrained(end, config.sections.merge_adapters(engine.trainer.model), engine.tokenizer)
    facts["seconds"] += time.monotonic() - began
    curve = facts["curve"]
    body = {"seed": config.seed, "wall_s": round(facts["seconds"], 1), "checkpoint": str(end), "curve": curve}
    top = best_point(eval_curve(curve, config.sections.checkpoints.metric))
    body["best"] = None if top is None else {"step": top.step, config.sections.checkpoints.metric: top.value}
    (run.path / REPORT_FILE).write_text(json.dumps(body, indent=2) + "\n")
    return body


def _log_hardware(config: TrainConfig, logger: Logger) -> None:
    """Say where is computed, where that is not as ever, and what makes up for it."""
    hardware, loss = resolve_device(config.sections.hardware), config.rollout_config.algorithm.loss
    if hardware == DEFAULT_HARDWARE or not isinstance(logger, ProgressLogger):
        return
    line = f"computing on {hardware.device} in {hardware.precision}"
    if hardware.precision != "fp32" and loss.correction == TIS:
        line += f"; tokens weigh p_trainer / p_sampler, at most {TIS.ratio_max:g} (TIS), as the two round differently"
    logger.log_line(line)


async def _run_rl(
    config: TrainConfig, run: Run, setup: TrainingSetup, *, facts: dict[str, Any], logger: Logger
) -> None:
    env = make_environment(config.env)
    monitors = RewardHackingMonitors.for_environment(env, stop_on_warning=config.sections.checkpoints.on_hack == "stop")
    learner = TrainingLoop(run, setup.trainer, logger=logger, facts=facts, algorithm=setup.algorithm, monitors=monitors)
    examine = partial(
        _evaluate_step, learner, setup, tasks=choose_tasks(env.tasks("eval"), MAX_EVAL_TASKS), config=config
    )
    chosen = resolve_curriculum(config.sections.curriculum, env, seed=config.seed, after=warmup_tasks(config))
    if run.state is None:
        await setup.trainer.publish()
        async with setup.trainer.ema_weights():
            await examine(0)
        if isinstance(chosen, SupportsCalibration):
            for group in await setup.group_source.play(chosen.calibration_tasks(), seed=CALIBRATION_SEED):
                chosen.observe(group)
    await learner.run_rl(
        setup.source(chosen),
        RLConfig(
            optimizer=config.optimizer,
            steps=config.steps,
            tasks_per_step=config.tasks_per_step,
            eval_every=config.eval_every,
        ),
        env=config.env,
        group_metrics=_environment_metrics,
        evaluate=examine,
    )


async def _evaluate_step(
    loop: TrainingLoop, setup: TrainingSetup, step: int, *, tasks: Sequence[Task], config: TrainConfig
) -> bool:
    """A point of the learning curve: the greedy policy on the `eval` split; whether to go on after it."""
    if not tasks:
        return True
    result = _checked_report(report_of_groups(await setup.evaluate(tasks)))
    curve = loop.facts["curve"]
    timeless = replace(result, usage=replace(result.usage, latency={}))  # no clock's: a resumed run has the same
    curve[:] = [point for point in curve if point["step"] < step] + [{"step": step, **timeless.as_dict()}]
    estimates = (
        {"reward": result.reward, **result.parts, **result.metrics} if len(result.rewards) == 1 else result.rewards
    )
    figures = {name: estimate.value for name, estimate in estimates.items() if estimate is not None}
    loop.run.store.add(stage="eval", step=step, env=config.env, metrics=figures)
    loop.logger.log_step("eval", step, of=config.steps, metrics=figures)
    plain = partial(_save_ema_checkpoint, config, setup)
    return prune(loop.run.path / CHECKPOINTS_FOLDER, curve, config.sections.checkpoints, save=plain)


def _save_ema_checkpoint(config: TrainConfig, setup: TrainingSetup, folder: Path) -> None:
    """What is examined, the averaged weights, as a checkpoint that anybody loads."""
    model = copy.deepcopy(setup.trainer.model)
    set_weights(model, setup.trainer.weights.ema_weights)
    save_pretrained(folder, config.sections.merge_adapters(model), setup.tokenizer)


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
