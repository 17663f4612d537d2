"""Reinforcement learning of any model in any environment: configuration, engine, steps, report, on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.runner.engine import run_blocking, suspended_loop
from wanderlust.runner.progress import Logger, ProgressLogger
from wanderlust.store.run_folder import RUNS_FOLDER
from wanderlust.tasks.curriculum import Curriculum
from wanderlust.tasks.registry import resolve_environment
from wanderlust.training.algorithms.base import Algorithm
from wanderlust.training.checkpoint import Run, check_same_run, load_config, open_run
from wanderlust.training.config import TrainConfig, default_workers
from wanderlust.training.engines import hardware_note, join_if_led
from wanderlust.training.group_source import RayCluster
from wanderlust.training.loggers import MultiLogger, open_loggers
from wanderlust.training.models import resolve_models
from wanderlust.training.result import TrainResult, conclude
from wanderlust.training.rl_stage import run_rl_stage
from wanderlust.training.setup import check_run
from wanderlust.training.warmup import save_initial_model


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
    if isinstance(policy, str) and (policy.startswith(("http://", "https://")) or policy in config.make_env().players):
        raise UsageError(f"{policy} cannot be trained: only a checkpoint can, a run that has one, smollm2, or fresh")
    folder = Path(out) if out is not None else RUNS_FOLDER / f"train-{config.env_name.split(':')[-1]}-seed{config.seed}"
    if folder.exists() and not resume:
        raise UsageError(f"{folder} exists already: resume it, or choose another folder")
    config = resolve_models(config, policy, folder).with_sft_defaults()
    if finished := TrainResult.of(folder):
        check_same_run(folder, config)
        return finished
    with open_loggers(loggers, folder, config.as_dict(), progress=progress) as logger:
        run = partial(_train_in_folder, folder, config, workers=workers, ray=ray, logger=logger)
        return run(command=command, accept_changes=accept_changes)


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
    if finished := TrainResult.of(folder):
        return finished
    if engine_url is not None:
        config = config.replace(engine_url=engine_url)
    with open_loggers(loggers, folder, config.as_dict(), progress=progress) as logger:
        return _train_in_folder(
            folder,
            config,
            workers=workers,
            ray=RayCluster.of(ray_workers, ray_address),
            logger=logger,
            accept_changes=accept_changes,
            previous_state=previous_state,
        )


def _train_in_folder(
    folder: Path,
    config: TrainConfig,
    *,
    workers: int | None,
    logger: MultiLogger,
    ray: RayCluster | None = None,
    command: Sequence[str] = (),
    accept_changes: bool = False,
    previous_state: bool = False,
) -> TrainResult:
    """Begin the run, or go on with it, and play, learn and evaluate until its steps are done."""
    many, resumes = workers or default_workers(config.device), folder.exists()
    if resumes:
        check_same_run(folder, config)
    check_run(config, resumes=resumes, workers=many, ray=ray)
    if config.engine == "local" and ray is None and many > config.shards:
        logger.log_line(
            f"{config.shards} of {many} workers have work: a batch is cut into {config.shards} pieces (shards)"
        )
    opened = open_run(
        folder,
        config,
        note=logger.log_line,
        command=command,
        previous_state=previous_state,
        accept_changes=accept_changes,
    )
    with opened as run:
        changed = run.lock(config, command=command, accept_changes=accept_changes)
        if changed:
            logger.log_line(f"accepted changes: {', '.join(changed)}")
        return TrainResult(path=folder, report=run_training(config, run, logger=logger, workers=many, ray=ray))


def run_training(
    config: TrainConfig, run: Run, *, logger: Logger, workers: int = 2, ray: RayCluster | None = None
) -> dict[str, Any]:
    """Run the remaining steps, rollouts on `ray` where it is given; returns the content of the run's report.

    A run that was interrupted at any moment and resumed ends with the same weights, where `max_staleness` is 0;
    else no group is lost and none is learnt from twice.
    """
    if isinstance(logger, ProgressLogger) and (note := hardware_note(config)):
        logger.log_line(note)
    start = save_initial_model(config, logger, run)
    curve = run_blocking(partial(run_rl_stage, config, run, start=start, logger=logger, workers=workers, ray=ray))
    run.clock.record()
    return conclude(config, run, curve, logger=logger)
