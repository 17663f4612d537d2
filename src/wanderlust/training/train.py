"""Reinforcement learning of any model in any environment: configuration, engine, steps, report, on one screen."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.evals.report import render_html, render_text
from wanderlust.policies.base import DEFAULT_HARDWARE
from wanderlust.policies.checkpoints import resolve_checkpoint, resolve_start
from wanderlust.policies.local.device import resolve_device
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.runner.control import serve_control
from wanderlust.runner.engine import run_blocking, suspended_loop
from wanderlust.runner.progress import Logger, ProgressLogger, open_progress
from wanderlust.runner.terminal import Table
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER, COMMAND_KEY, REPORT_FILE, RUNS_FOLDER
from wanderlust.tasks.curriculum import Curriculum, SupportsCalibration
from wanderlust.tasks.registry import resolve_environment
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.training.algorithms.base import Algorithm
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.checkpoint import Run, best_point, eval_curve, load_config, write_config
from wanderlust.training.config import ADDRESSES, TrainConfig, default_workers
from wanderlust.training.engines import SERVICE_PLACE_FILE, open_engine, save_checkpoint
from wanderlust.training.learning_curve import environment_metrics, evaluate_step, selection_metric
from wanderlust.training.loggers import open_loggers
from wanderlust.training.loop import TrainingLoop
from wanderlust.training.losses import TIS
from wanderlust.training.memory import check_memory
from wanderlust.training.models import import_adapters
from wanderlust.training.result import (
    CHECKPOINT_OF,
    LAST_CHECKPOINT,
    START_CHECKPOINT,
    evaluate_result,
)
from wanderlust.training.reward_hacking import RewardHackingMonitors
from wanderlust.training.run_report import (
    OVEROPTIMISATION_FILE,
    describe_result,
    draw_overoptimisation,
    figure_text,
    overoptimisation,
    policy_sentence,
    result_header,
    result_rows,
    write_run_report,
)
from wanderlust.training.setup import (
    RayCluster,
    check_engine,
    check_ray,
    check_servers,
    run_curriculum,
    validate_config,
)
from wanderlust.training.trainers.fsdp_group import join_group
from wanderlust.training.verdict import AFTER, advise
from wanderlust.training.warmup import initial_model

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
        """The model that `--policy RUN` takes: a Hugging Face folder that `transformers` loads without this library.

        The last weights, unless the best evaluated ones, or those before training, are clearly better.
        """
        last = Path(self.report["checkpoint"])
        return last.with_name(self.report.get("policy_checkpoint", last.name))

    @property
    def verdict(self) -> str:
        """Whether training helped, in one sentence, with the interval of the paired difference; empty if unknown."""
        return str(self.report.get("result", {}).get("sentence", self.report.get("verdict", "")))

    @property
    def curve(self) -> list[dict[str, Any]]:
        """The evaluations, oldest first, each with its step and its figures."""
        return list(self.report["curve"])

    def table(self) -> Table:
        """The first and the last evaluation, with 95% intervals: greedy answers on the eval split, or held-out loss."""
        table = Table("", title=self.report.get("table_title", "Greedy answers, eval split"), title_justify="left")
        if not self.curve:
            return table
        before, after = self.curve[0], self.curve[-1]
        table.add_column("before")
        table.add_column(f"after {after['step']} steps")
        for kind in ("rewards", "parts", "metrics"):
            for name, end in after[kind].items():
                label = "reward" if kind == "rewards" and len(after[kind]) == 1 else name
                table.add_row(label, figure_text(before[kind].get(name)), figure_text(end))
        failed = [str(point["failed"]) for point in (before, after)]
        if failed != ["0", "0"]:
            table.add_row("failed rollouts", *failed)
        return table

    def result_table(self) -> Table:
        """Before and after, sampled as in training on the same held-out tasks, with reference players."""
        result = self.report["result"]
        title = f"Sampled: {describe_result(result)}"
        table = Table(*result_header(result), title=title, title_justify="left")
        for row in result_rows(result):
            table.add_row(*row)
        return table

    def __str__(self) -> str:
        sampled = f"{render_text(self.result_table())}\n" if self.report.get("result") else ""
        verdict = f"{self.verdict}\n" if self.verdict else ""
        return f"{render_text(self.table())}\n{sampled}{verdict}Checkpoint: {self.policy_folder}"

    def _repr_html_(self) -> str:
        return render_html(self.table())


@suspended_loop()
def train(  # noqa: PLR0913 (the whole of `wander train` as one call)
    env: Environment | str,
    policy: str | Path | LocalPolicy = "fresh",
    *,
    config: TrainConfig | None = None,
    algorithm: str | Algorithm | None = None,
    curriculum: str | Curriculum | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    accept_changes: bool = False,
    workers: int | None = None,
    ray_workers: int | None = None,
    ray_address: str | None = None,
    loggers: Sequence[str] = (),
    progress: Logger | bool = True,
    command: Sequence[str] = (),
) -> TrainResult:
    """Train a model in an environment by reinforcement learning; it is evaluated before, meanwhile and after.

    A run that was interrupted at any moment and resumed ends with the same weights, bit for bit, where
    `config.max_staleness` is 0. Works in scripts, and where an event loop runs already. Under `torchrun` only the first
    process returns; the others hold parts of the weights and end with the run.

    Args:
        env: The environment, or its name as `load_environment` takes it.
        policy: A checkpoint or run folder, `smollm2`, or `fresh` for a small new model that first imitates the
            environment's teacher. Or a model in this process.
        config: Everything that the figures depend on.
        algorithm: Takes the place of `config.algorithm`.
        curriculum: Takes the place of `config.curriculum`.
        out: Folder of the run. Default: `runs/train-ENV-seedN`.
        resume: Whether `out` may hold the same run already, which then goes on. Else it must be new.
        accept_changes: Whether a run goes on whose environment, rubric or tasks have changed since.
        workers: Processes, one core each; no figure depends on it. Default: 2, or 1 on one core and on a GPU.
        ray_workers: Number of Ray workers that play in place of `workers` (needs the extra `ray`); they share
            `config.concurrency`.
        ray_address: `HOST:PORT` of their cluster. Default: processes of this machine.
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
    join_if_led()
    ray = RayCluster.of(ray_workers, ray_address)
    changes = {"algorithm": algorithm, "curriculum": curriculum}
    config = (config or TrainConfig()).replace(**{name: value for name, value in changes.items() if value is not None})
    config = config.replace(env=resolve_environment(env).target if isinstance(env, str) else env)
    hardware = resolve_device(config.hardware)
    teacher = str(resolve_checkpoint(config.teacher).resolve()) if config.teacher else ""
    config = config.replace(teacher=teacher, device=hardware.device, precision=hardware.precision)
    if isinstance(policy, str) and (policy.startswith(("http://", "https://")) or policy in config.make_env().players):
        raise UsageError(f"{policy} cannot be trained: only a checkpoint can, a run that has one, smollm2, or fresh")
    folder = Path(out) if out is not None else RUNS_FOLDER / f"train-{config.env_name.split(':')[-1]}-seed{config.seed}"
    if folder.exists() and not resume:
        raise UsageError(f"{folder} exists already: resume it, or choose another folder")
    config = config.replace(policy=resolve_start(start_folder(policy, folder))).with_sft_defaults()
    with open_progress(progress) as logger:
        if (folder / REPORT_FILE).is_file():
            check_same_run(folder, config)
            return TrainResult(path=folder, report=json.loads((folder / REPORT_FILE).read_text()))
        with open_loggers(loggers, folder, config.as_dict(), logger=logger) as everyone:
            return _train_in_folder(
                folder,
                config,
                workers=workers,
                ray=ray,
                logger=everyone,
                command=command,
                accept_changes=accept_changes,
            )


@suspended_loop()
def resume_training(
    folder: Path,
    *,
    workers: int | None = None,
    ray_workers: int | None = None,
    ray_address: str | None = None,
    loggers: Sequence[str] = (),
    progress: Logger | bool = True,
    accept_changes: bool = False,
    previous_state: bool = False,
    engine_url: str | None = None,
) -> TrainResult:
    """Go on with the run in `folder` as it was begun, or return what it came to where it is finished.

    `engine_url` takes the place of the addresses that the run was begun with, which are no part of what is computed.
    With `previous_state`, from the state saved before the last one: for a last one that is damaged. Raises StoreError,
    which names the file, when a saved state is damaged; UsageError when the environment, its rubric or its tasks have
    changed since, unless `accept_changes`.
    """
    join_if_led()
    config = load_config(folder, TrainConfig)
    if (folder / REPORT_FILE).is_file():
        return TrainResult(path=folder, report=json.loads((folder / REPORT_FILE).read_text()))
    if engine_url is not None:
        config = config.replace(engine_url=engine_url)
        check_engine(config)
    with open_progress(progress) as logger, open_loggers(loggers, folder, config.as_dict(), logger=logger) as everyone:
        return _train_in_folder(
            folder,
            config,
            workers=workers,
            ray=RayCluster.of(ray_workers, ray_address),
            logger=everyone,
            accept_changes=accept_changes,
            previous_state=previous_state,
        )


def _train_in_folder(
    folder: Path,
    config: TrainConfig,
    *,
    workers: int | None,
    logger: Logger,
    ray: RayCluster | None = None,
    command: Sequence[str] = (),
    accept_changes: bool = False,
    previous_state: bool = False,
) -> TrainResult:
    """Begin the run, or go on with it, and play, learn and evaluate until its steps are done."""
    if config.lora:
        import_adapters()
    many = workers or default_workers(config.device)
    check_memory(config, workers=many)
    if folder.exists():
        check_same_run(folder, config)
        check_ray(config, ray)
        check_servers(config)
        run = Run.resume(folder, previous_state=previous_state)
        write_config(folder, config)
    else:
        validate_config(config)
        check_ray(config, ray)
        run = Run.begin(folder, config)
        if command:
            run.store.set_meta(COMMAND_KEY, tuple(command))
    note = logger.log_line if isinstance(logger, ProgressLogger) else None
    if note and config.engine == "local" and ray is None and many > config.shards:
        note(f"{config.shards} of {many} workers have work: a batch is cut into {config.shards} pieces (shards)")
    with closing(run.store), serve_control(run.store.path, note) if note else nullcontext():
        changed = run.lock(config, command=command, accept_changes=accept_changes)
        if changed and note:
            note(f"accepted changes: {', '.join(changed)}")
        return TrainResult(path=folder, report=run_training(config, run, logger=logger, workers=many, ray=ray))


def join_if_led() -> None:
    """In the processes that `torchrun` started beside the first: hold a part of the weights until the run is over.

    The process then ends, as only the first one has a result.
    """
    if int(os.environ.get("RANK", "0")) > 0:
        join_group()
        sys.exit()


def start_folder(policy: str | Path | LocalPolicy, folder: Path) -> str:
    """Folder or name of the initial policy; a model in this process is first saved next to the run."""
    if isinstance(policy, LocalPolicy):
        start = folder.with_name(f"{folder.name}-start")
        if not start.exists():
            save_pretrained(start, policy.engine.model, policy.renderer.tokenizer)
        return str(start)
    return str(policy)


def check_same_run(folder: Path, config: Any) -> None:
    """Raises UsageError when the run in the folder has other settings; addresses of servers may change."""
    stored, asked = load_config(folder, type(config)).as_dict(), config.as_dict()
    stored |= {name: asked[name] for name in ADDRESSES if name in asked}
    other = [f"{name} was {stored[name]} and is {value}" for name, value in asked.items() if stored[name] != value]
    if other:
        raise UsageError(f"{folder} holds another run ({'; '.join(other)}): choose another folder")


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
    env, folder = config.make_env(), run.path / CHECKPOINTS_FOLDER
    tasks = choose_tasks(iter_tasks(env, "eval"), config.eval_tasks) if config.eval_tasks else []
    monitors = RewardHackingMonitors.for_environment(
        env, stop_on_warning=config.on_hack == "stop", is_own_reward=config.label_estimator == "none"
    )
    chosen = run_curriculum(config, env)
    async with open_engine(config, folder / START_CHECKPOINT, workers=workers, run=run.path, ray=ray) as setup:
        loop = TrainingLoop(
            run, setup.trainer, logger=logger, facts=facts, algorithm=setup.algorithm, monitors=monitors
        )
        examine = partial(evaluate_step, loop, setup, tasks=tasks, config=config)
        if run.state is None or run.state["stage"] != "rl":
            await setup.trainer.publish()
            async with loop.ema_weights():
                await examine(0)
            if isinstance(chosen, SupportsCalibration):
                for group in await setup.group_source.play(chosen.calibration_tasks(), seed=CALIBRATION_SEED):
                    chosen.observe(group)
        await loop.run_rl(
            setup.source(chosen), config, env=config.env_name, group_metrics=environment_metrics, evaluate=examine
        )
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
