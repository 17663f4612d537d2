"""Reinforcement learning of any model in any environment: configuration, engine, steps, report, on one screen."""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, UsageError
from wanderlust.evals.accumulator import report_of_groups
from wanderlust.evals.report import Report, render_html, render_text
from wanderlust.policies.base import DEFAULT_HARDWARE
from wanderlust.policies.local.device import resolve_device
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.resolve import RUNS_FOLDER, resolve_checkpoint, resolve_start
from wanderlust.rubrics.label_free import ESTIMATOR_NAMES
from wanderlust.runner.blocking import run_blocking
from wanderlust.runner.control import serve_control
from wanderlust.runner.progress import Logger, NullLogger, Progress, ProgressLogger
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER, COMMAND_KEY, REPORT_FILE
from wanderlust.tasks.curriculum import Curriculum, SupportsCalibration
from wanderlust.tasks.registry import resolve_environment
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.training.algorithms.base import Algorithm
from wanderlust.training.checkpoint import best_point, eval_curve, prune, save_pretrained
from wanderlust.training.config import TrainConfig
from wanderlust.training.label_free_rewards import is_label_free
from wanderlust.training.loggers import open_loggers
from wanderlust.training.loop import RLConfig, TrainingLoop
from wanderlust.training.losses import TIS
from wanderlust.training.optimizer import set_weights
from wanderlust.training.reward_hacking import RewardHackingMonitors
from wanderlust.training.run import Run, load_config
from wanderlust.training.setup import TrainingSetup, build_training, curriculum_of, initial_model, validate_config
from wanderlust.types import Group, Task

MAX_EVAL_TASKS = 300
"""Tasks of the `eval` split that are played at one evaluation, at most."""
CALIBRATION_SEED = -1
"""Seed of the rollouts that the first model plays for the curriculum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """A finished training run."""

    path: Path
    """The run's folder."""
    report: dict[str, Any]
    """Content of `report.json`: seed, seconds, checkpoint, the curve of evaluations, the best one."""

    @property
    def policy_folder(self) -> Path:
        """The trained model: a Hugging Face folder that `transformers` loads without this library."""
        return Path(self.report["checkpoint"])

    @property
    def curve(self) -> list[dict[str, Any]]:
        """The evaluations, oldest first, each with its step and its figures."""
        return list(self.report["curve"])

    def table(self) -> Table:
        """Greedy answers on the eval split, before training and after it, with 95% intervals."""
        table = Table("", title="Greedy answers, eval split", title_justify="left")
        if not self.curve:
            return table
        before, after = self.curve[0], self.curve[-1]
        table.add_column("before")
        table.add_column(f"after {after['step']} steps")
        for kind in ("rewards", "parts", "metrics"):
            for name, end in after[kind].items():
                label = "reward" if kind == "rewards" and len(after[kind]) == 1 else name
                table.add_row(label, _with_interval(before[kind].get(name)), _with_interval(end))
        failed = [str(point["failed"]) for point in (before, after)]
        if failed != ["0", "0"]:
            table.add_row("failed rollouts", *failed)
        return table

    def __str__(self) -> str:
        return f"{render_text(self.table())}\nCheckpoint: {self.policy_folder}"

    def _repr_html_(self) -> str:
        return render_html(self.table())


def train(  # noqa: PLR0913 (the whole of `wander train` as one call)
    env: Environment | str,
    policy: str | Path | LocalPolicy = "fresh",
    *,
    config: TrainConfig | None = None,
    algorithm: str | Algorithm | None = None,
    curriculum: str | Curriculum | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    workers: int | None = None,
    loggers: Sequence[str] = (),
    progress: Logger | bool = True,
    command: Sequence[str] = (),
) -> TrainResult:
    """Train a model in an environment by reinforcement learning; it is evaluated before, meanwhile and after.

    A run that was interrupted at any moment and resumed ends with the same weights, bit for bit, where
    `config.max_staleness` is 0. Works in scripts, and where an event loop runs already.

    Args:
        env: The environment, or its name as `load_environment` takes it.
        policy: A checkpoint or run folder, `smollm2`, or `fresh` for a small new model that first imitates the
            environment's teacher; settings may follow, as in `fresh,width=96`. Or a model in this process.
        config: Everything that the figures depend on.
        algorithm: Takes the place of `config.algorithm`.
        curriculum: Takes the place of `config.curriculum`.
        out: Folder of the run. Default: `runs/train-ENV-seedN`.
        resume: Whether `out` may hold the same run already, which then goes on. Else it must be new.
        workers: Processes, one core each; no figure depends on it. Default: 2, or 1 on one core and on a GPU.
        loggers: Send metrics to tensorboard, wandb, trackio or mlflow as well.
        progress: Whether to draw progress on stderr, or the logger that gets it.
        command: Words of the command that began the run, which are kept with it.

    Returns:
        The finished run: `.report`, `.curve`, `.policy_folder`.

    Raises:
        UsageError: when an argument is wrong, or `out` holds another run.

    Example:
        >>> result = train("tictactoe", "runs/start", config=TrainConfig(steps=50), out="runs/more")
        >>> result.policy_folder
        PosixPath('runs/more/checkpoints/rl')
    """
    changes = {"algorithm": algorithm, "curriculum": curriculum}
    config = (config or TrainConfig()).replace(**{name: value for name, value in changes.items() if value is not None})
    config = config.replace(env=resolve_environment(env).target if isinstance(env, str) else env)
    hardware = resolve_device(config.hardware)
    config = config.replace(
        teacher=_resolve_teacher(config.teacher), device=hardware.device, precision=hardware.precision
    )
    if isinstance(policy, str) and (policy.startswith(("http://", "https://")) or policy in config.make_env().players):
        raise UsageError(f"{policy} cannot be trained: only a checkpoint can, a run that has one, smollm2, or fresh")
    folder = Path(out) if out is not None else RUNS_FOLDER / f"train-{config.env_name.split(':')[-1]}-seed{config.seed}"
    if folder.exists() and not resume:
        raise UsageError(f"{folder} exists already: resume it, or choose another folder")
    config = config.replace(policy=resolve_start(_start_folder(policy, folder)))
    with _progress(progress) as logger:
        if (folder / REPORT_FILE).is_file():
            _check_same(folder, config)
            return TrainResult(path=folder, report=json.loads((folder / REPORT_FILE).read_text()))
        with open_loggers(loggers, folder, config.as_dict(), logger=logger) as everyone:
            return _train_in_folder(folder, config, workers=workers, logger=everyone, command=command)


def resume_training(
    folder: Path, *, workers: int | None = None, loggers: Sequence[str] = (), progress: Logger | bool = True
) -> TrainResult:
    """Go on with the run in `folder` as it was begun, or return what it came to where it is finished."""
    config = load_config(folder, TrainConfig)
    if (folder / REPORT_FILE).is_file():
        return TrainResult(path=folder, report=json.loads((folder / REPORT_FILE).read_text()))
    with _progress(progress) as logger, open_loggers(loggers, folder, config.as_dict(), logger=logger) as everyone:
        return _train_in_folder(folder, config, workers=workers, logger=everyone)


def _train_in_folder(
    folder: Path, config: TrainConfig, *, workers: int | None, logger: Logger, command: Sequence[str] = ()
) -> TrainResult:
    """Begin the run, or go on with it, and play, learn and evaluate until its steps are done."""
    if folder.exists():
        _check_same(folder, config)
        run = Run.resume(folder)
    else:
        validate_config(config)
        run = Run.begin(folder, config)
        if command:
            run.store.set_meta(COMMAND_KEY, tuple(command))
    note = logger.log_line if isinstance(logger, ProgressLogger) else None
    many = 1 if config.device.startswith("cuda") else min(2, available_cores())
    with closing(run.store), serve_control(run.store.path, note) if note else nullcontext():
        return TrainResult(path=folder, report=run_training(config, run, logger=logger, workers=workers or many))


def _start_folder(policy: str | Path | LocalPolicy, folder: Path) -> str:
    """Folder or name of the initial policy; a model in this process is first saved next to the run."""
    if isinstance(policy, LocalPolicy):
        start = folder.with_name(f"{folder.name}-start")
        if not start.exists():
            save_pretrained(start, policy.engine.model, policy.renderer.tokenizer)
        return str(start)
    return str(policy)


def _resolve_teacher(name: str) -> str:
    """The checkpoint folder of that name; an estimator of label-free rewards stays as it is."""
    if not name or (is_label_free(name) and not Path(name).exists()):
        return name
    return str(resolve_checkpoint(name, ESTIMATOR_NAMES).resolve())


def _check_same(folder: Path, config: TrainConfig) -> None:
    """Raises UsageError when the run in the folder has other settings."""
    stored, asked = load_config(folder, TrainConfig).as_dict(), config.as_dict()
    other = [f"{name} was {stored[name]} and is {value}" for name, value in asked.items() if stored[name] != value]
    if other:
        raise UsageError(f"{folder} holds another run ({'; '.join(other)}): choose another folder")


@contextmanager
def _progress(progress: Logger | bool) -> Iterator[Logger]:
    if progress is True:
        with Progress() as drawn:
            yield drawn
    else:
        yield NullLogger() if progress is False else progress


def _with_interval(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    if figure["low"] is None:
        return f"{figure['value']:.3f}"
    return f"{figure['value']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]"


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_training(config: TrainConfig, run: Run, *, logger: Logger, workers: int = 2) -> dict[str, Any]:
    """Run the remaining steps; returns the content of the run's report.

    A run that was interrupted at any moment and resumed ends with the same weights, where `max_staleness` is 0;
    else no group is lost and none is learnt from twice.
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
        run_blocking(partial(_run_rl, config, run, engine, facts=facts, logger=logger))
        save_pretrained(end, config.merge_adapters(engine.trainer.model), engine.tokenizer)
    facts["seconds"] += time.monotonic() - began
    curve = facts["curve"]
    body = {"seed": config.seed, "wall_s": round(facts["seconds"], 1), "checkpoint": str(end), "curve": curve}
    top = best_point(eval_curve(curve, config.best_metric))
    body["best"] = None if top is None else {"step": top.step, config.best_metric: top.value}
    (run.path / REPORT_FILE).write_text(json.dumps(body, indent=2) + "\n")
    return body


def _log_hardware(config: TrainConfig, logger: Logger) -> None:
    """Say where is computed, where that is not as ever, and what makes up for it."""
    hardware, loss = resolve_device(config.hardware), config.rollout_config.algorithm.loss
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
    monitors = RewardHackingMonitors.for_environment(env, stop_on_warning=config.on_hack == "stop")
    learner = TrainingLoop(run, setup.trainer, logger=logger, facts=facts, algorithm=setup.algorithm, monitors=monitors)
    examine = partial(
        _evaluate_step, learner, setup, tasks=choose_tasks(iter_tasks(env, "eval"), MAX_EVAL_TASKS), config=config
    )
    chosen = curriculum_of(config, env)
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
        env=config.env_name,
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
    loop.run.store.add(stage="eval", step=step, env=config.env_name, metrics=figures)
    loop.logger.log_step("eval", step, of=config.steps, metrics=figures)
    plain = partial(_save_ema_checkpoint, config, setup)
    return prune(
        loop.run.path / CHECKPOINTS_FOLDER,
        curve,
        metric=config.best_metric,
        keep_last=config.keep_last,
        patience=config.patience,
        save=plain,
    )


def _save_ema_checkpoint(config: TrainConfig, setup: TrainingSetup, folder: Path) -> None:
    """Save the moving average of the weights, which is evaluated, as a checkpoint."""
    model = copy.deepcopy(setup.trainer.model)
    set_weights(model, setup.trainer.weights.ema_weights)
    save_pretrained(folder, config.merge_adapters(model), setup.tokenizer)


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
