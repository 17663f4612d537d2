"""A training run's trainer, algorithm and sources, built from its configuration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from wanderlust.errors import UsageError
from wanderlust.policies.base import derive_key
from wanderlust.policies.local.device import one_thread, warn_slow_precision
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.tasks.curriculum import Curriculum
from wanderlust.tasks.selection import iter_tasks
from wanderlust.training.algorithms.base import Algorithm
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.async_source import AsyncSource
from wanderlust.training.config import TrainConfig
from wanderlust.training.curricula import run_curriculum
from wanderlust.training.group_source import (
    BatchSource,
    GroupSource,
    LocalPlayer,
    OnPolicySource,
    bind_algorithm,
    play_greedy,
    reference_scorer,
)
from wanderlust.training.label_free_rewards import label_free_rubric, label_judge
from wanderlust.training.models import algorithm_context, checkpoint_folder, load_frozen, load_trainable
from wanderlust.training.trainers.in_process import InProcessTrainer
from wanderlust.training.trainers.process_pool import ProcessPoolTrainer
from wanderlust.training.trainers.replica import Replica
from wanderlust.training.warmup import teacher_policy
from wanderlust.types import Group, Task


def validate_config(config: TrainConfig) -> None:
    """Raises UsageError or StoreError, in one line, when a run with this config could not begin."""
    config = config.with_sft_defaults()
    method, env = configured_algorithm(config), config.make_env()
    warn_slow_precision(config.hardware)
    run_curriculum(config, env)
    next(iter_tasks(env, "train"), None)  # fails here if it fails at all
    if config.label_estimator != "none":
        label_judge(config)
        if config.group_size < 2:
            raise UsageError("label-free rewards compare the rollouts of a task: set group_size to 2 or more")
        if config.teacher:
            raise UsageError("set `label_estimator` or `teacher`, not both")
    if config.sft_episodes:
        teacher_policy(env, config.sft_teacher)
    if config.policy != FRESH_POLICY:
        folder = checkpoint_folder(config.policy)
        bind_algorithm(method, algorithm_context(config, folder, load_pretrained(folder)[1]))
    elif config.teacher:
        raise UsageError("a fresh model makes its own tokenizer, so it cannot learn from the checkpoint `teacher`")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """Trainer, algorithm and sources of a run."""

    trainer: ProcessPoolTrainer | InProcessTrainer
    tokenizer: Any
    algorithm: Algorithm
    """The configuration's, bound to this run."""
    source: Callable[[Curriculum], BatchSource]
    """Hands out the groups of each step."""
    evaluate: Callable[[Sequence[Task]], Awaitable[list[Group]]]
    """Plays tasks greedily, inside the trainer's `ema_weights`."""
    group_source: GroupSource
    """Plays and credits groups as in a step."""


@contextmanager
def build_training(config: TrainConfig, start: Path, *, workers: int) -> Iterator[TrainingSetup]:
    """The setup that a config asks for, over the checkpoint `start`; whatever has been started ends with the block.

    Worker processes play and compute gradients in turn. Where rollouts may be stale, this process does both at once.
    """
    model, tokenizer = load_trainable(config, start)
    context = algorithm_context(config, start, tokenizer)
    method = bind_algorithm(configured_algorithm(config), context)
    if not config.max_staleness:
        with ProcessPoolTrainer(
            partial(Replica.load, start, config), model, config.rl_optimizer, count=workers
        ) as pool:
            yield TrainingSetup(
                trainer=pool,
                tokenizer=tokenizer,
                algorithm=method,
                source=partial(OnPolicySource, pool, count=config.tasks_per_step, algorithm=method),
                evaluate=pool.evaluate,
                group_source=pool,
            )
        return
    one_thread()
    with InProcessTrainer(
        model,
        tokenizer,
        config.rl_optimizer,
        temperature=config.temperature,
        micro_batch=config.micro_batch,
        fast=config.fast,
        hardware=config.hardware,
    ) as trainer:
        env = config.make_env()

        def sampling_policy(seed: int) -> TokenPolicy:
            return TokenPolicy(trainer, trainer.renderer, config.sampling, seed=derive_key(config.seed, seed))

        def play_eval(tasks: Sequence[Task]) -> Awaitable[list[Group]]:
            policy = TokenPolicy(trainer.eval_sampler, trainer.renderer, config.sampling, seed=config.seed)
            return play_greedy(env, tasks, policy, seed=config.seed)

        player = LocalPlayer(
            env,
            config,
            sampling_policy,
            algorithm=method,
            reference=reference_scorer(method, context),
            rubric=label_free_rubric(config, env, partial(load_frozen, config, start)),
        )
        yield TrainingSetup(
            trainer=trainer,
            tokenizer=tokenizer,
            algorithm=method,
            source=partial(
                AsyncSource,
                player,
                version=lambda: trainer.version,
                count=config.tasks_per_step,
                steps=config.steps,
                max_staleness=config.max_staleness,
            ),
            evaluate=play_eval,
            group_source=player,
        )
