"""Sources of groups: tasks in, groups with advantages out.

Where the groups of a step come from: played when they are asked for, or (`async_source.py`) ahead of the trainer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import torch

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.policies.base import Sampler, derive_key
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.policy import ExploringStarts
from wanderlust.policies.resolve import fixed_player, matches_against
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.runner.engine import DEFAULT_CONCURRENCY, WorkerBackend, play_groups
from wanderlust.serving.remote_sampler import RemoteSampler, serve_samplers
from wanderlust.tasks.curriculum import Curriculum, SupportsCalibration, SupportsMetrics
from wanderlust.training.algorithms.base import (
    Algorithm,
    AlgorithmContext,
    DynamicSampling,
    HasRolloutPolicy,
    NeedsContext,
    SupportsBatchAdvantages,
)
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.batch.samples import trajectories_of
from wanderlust.training.config import TrainConfig
from wanderlust.training.label_free_rewards import label_free_rubric
from wanderlust.training.losses import KL, kl_estimate
from wanderlust.training.models import Scorer, algorithm_context, load_frozen, rendering_of
from wanderlust.types import Group, Policy, RubricLike, Task, Trajectory

EXACT_POLICY = "rl"
"""Name of the policy in the rows of exact figures of a training run."""


class GroupSource(Protocol):
    """Plays a group per task and credits it."""

    async def play(self, tasks: Sequence[Task], *, seed: int, first: int = 0) -> list[Group]:
        """Credited groups in the tasks' order, numbered from `first`; equal weights and seeds play equally."""
        ...


class Player(GroupSource, Protocol):
    """Evaluates as well."""

    async def evaluate(self, tasks: Sequence[Task], seat: str = "") -> list[Group]:
        """One greedy episode per task, in the tasks' order; with a `seat`, the others have the fixed player."""
        ...

    async def exact(self) -> list[dict[str, Any]] | None:
        """Exact figures of the greedy policy, as the environment computes them; None where it computes none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RayCluster:
    """Ray actors that play a run's rollouts; no setting of the run, as no figure of a synchronous one depends on it."""

    workers: int
    address: str | None = None
    """HOST:PORT of the cluster. None: processes of this machine, or the Ray that this process is connected with."""

    @classmethod
    def of(cls, workers: int | None, address: str | None) -> Self | None:
        """The cluster that these options name; None without workers. UsageError for an address without workers."""
        if address is not None and workers is None:
            raise UsageError("ray_address needs ray_workers")
        return cls(workers=workers, address=address) if workers is not None else None


class LocalPlayer:
    """A player of this process, whatever engine samples; episodes run here, or by a backend's workers."""

    def __init__(
        self,
        env: Environment,
        config: TrainConfig,
        policy: Callable[[int], TokenPolicy],
        *,
        algorithm: Algorithm,
        evaluated: TokenPolicy | None = None,
        reference: Scorer | None = None,
        rubric: RubricLike | None = None,
        backend: WorkerBackend | None = None,
    ):
        """`policy` makes one that draws by a seed; `algorithm` is the config's, bound to the run; `evaluated` is the
        policy of evaluations; `rubric` is used in place of the environment's; `backend` plays the episodes elsewhere.
        """
        self.backend, self.evaluated = backend, evaluated or policy(config.seed)
        self.env, self.config, self.policy = env, config, policy
        self.algorithm, self.reference, self.rubric = algorithm, reference, rubric

    def rollout_policy(self, seed: int) -> Policy:
        """Who plays the groups of one call of `play`."""
        policy = self.policy(seed)
        if isinstance(self.algorithm, HasRolloutPolicy):
            return self.algorithm.rollout_policy(policy)
        if self.config.exploring_starts:
            own = self.config.group_size - self.config.exploring_starts
            return ExploringStarts(policy, self.env.first_move, first=own)
        return policy

    async def play(self, tasks: Sequence[Task], *, seed: int, first: int = 0) -> list[Group]:
        """Play all of them at once, wait for the last one, credit them."""
        config = self.config
        groups = await play_groups(
            self.env,
            tasks,
            self.rollout_policy(seed),
            rubric=self.rubric,
            group_size=config.group_size,
            concurrency=self.backend or config.concurrency,
            seed=seed,
        )
        await self.assign_advantages(groups)
        for index, group in enumerate(groups, first):
            group.index = index
        return groups

    async def evaluate(self, tasks: Sequence[Task], seat: str = "") -> list[Group]:
        """One greedy episode per task, in the tasks' order; by the backend's workers, where there are any.

        With a `seat` it is the only one that learns: the others have the environment's teacher or random player.
        """
        opponent = fixed_player(self.env, self.config.sft_teacher, tasks) if seat else None
        return await play_groups(
            matches_against(opponent[1], self.env)[seat] if opponent else self.env,
            tasks,
            self.evaluated.greedy(),
            seed=self.config.seed,
            concurrency=self.backend or DEFAULT_CONCURRENCY,
        )

    async def exact(self) -> list[dict[str, Any]] | None:
        """Exact figures of the greedy policy, as the environment computes them."""
        return await self.env.exact(self.evaluated.greedy(), name=EXACT_POLICY)

    async def assign_advantages(self, groups: Sequence[Group]) -> None:
        """Ask the reference, where there is one, then the algorithm."""
        if self.reference is not None:
            played = [t for t in trajectories_of(groups) if t.trainable and t.score is not None]
            for trajectory, logprobs in zip(played, self.reference.logprobs(played), strict=True):
                trajectory.reference_logprobs = logprobs
        await assign_advantages(self.algorithm, groups)


async def assign_advantages(algorithm: Algorithm, groups: Sequence[Group]) -> None:
    """Annotate each group by itself."""
    with with_kl_penalty(groups, algorithm.loss.kl):
        for group in groups:
            await algorithm.assign_advantages(group)


async def assign_batch_advantages(algorithm: Algorithm, groups: Sequence[Group]) -> None:
    """Annotate all groups of a step together, where the algorithm wants to."""
    if isinstance(algorithm, SupportsBatchAdvantages):
        with with_kl_penalty(groups, algorithm.loss.kl):
            await algorithm.assign_batch_advantages(groups)


@contextmanager
def with_kl_penalty(groups: Sequence[Group], kl: KL | None) -> Iterator[None]:
    """Inside, rewards are less by the distance to the reference, where the leash goes into the reward."""
    before = [(t, t.score) for g in groups for r in g.rollouts for t in r.trajectories]
    if kl is not None and kl.into == "reward":
        for trajectory, score in before:
            if score is not None and trajectory.trainable and trajectory.reference_logprobs is not None:
                trajectory.score = replace(score, reward=score.reward - kl.weight * kl_to_reference(trajectory, kl))
    try:
        yield
    finally:
        for trajectory, score in before:
            trajectory.score = score


def kl_to_reference(trajectory: Trajectory, kl: KL) -> float:
    """Estimate of the distance between sampler and reference, summed over the sampled tokens."""
    sampler_logprobs = [p for turn in trajectory.turns if turn.tokens is not None for p in turn.tokens.logprobs]
    reference_logprobs = [p for turn in trajectory.reference_logprobs or () for p in turn]
    return float(kl_estimate(torch.tensor(sampler_logprobs), torch.tensor(reference_logprobs), kl.estimator).sum())


def bind_algorithm(algorithm: Algorithm, context: AlgorithmContext) -> Algorithm:
    """The algorithm with what it asks for."""
    return algorithm.bind(context) if isinstance(algorithm, NeedsContext) else algorithm


def bound_algorithm(config: TrainConfig, start: Path, tokenizer: Any) -> Algorithm:
    """The configured algorithm with what it asks for."""
    return bind_algorithm(configured_algorithm(config), algorithm_context(config, start, tokenizer))


def reference_scorer(algorithm: Algorithm, context: AlgorithmContext) -> Scorer | None:
    """The first model, where the algorithm's loss has a leash to it."""
    return (
        Scorer(context.load_initial_model(), temperature=context.temperature) if algorithm.loss.kl is not None else None
    )


@asynccontextmanager
async def open_player(
    config: TrainConfig,
    start: Path,
    tokenizer: Any,
    *,
    training: Sampler,
    evaluation: Sampler,
    ray: RayCluster | None = None,
) -> AsyncIterator[LocalPlayer]:
    """Episodes in this process, or by Ray actors that ask the samplers over connections to this process.

    `evaluation` has the averaged weights inside the trainer's `ema_weights`.
    """
    async with AsyncExitStack() as stack:
        backend: WorkerBackend | None = None
        if ray is not None:
            with needs_extra("ray"):
                from wanderlust.runner.ray import node_address, ray_backend
            each = ceil(config.concurrency / ray.workers)
            backend = await stack.enter_async_context(ray_backend(ray.workers, each=each, address=ray.address))
            served = {"training": training, "evaluation": evaluation}
            address = await stack.enter_async_context(serve_samplers(served, host=node_address()))
            training, evaluation = (RemoteSampler(address, name) for name in served)
        env, renderer = config.make_env(), Renderer(tokenizer, rendering_of(config))
        context = algorithm_context(config, start, tokenizer)
        algorithm = bind_algorithm(configured_algorithm(config), context)

        def sampling_policy(seed: int) -> TokenPolicy:
            return TokenPolicy(training, renderer, config.sampling, seed=derive_key(config.seed, seed))

        yield LocalPlayer(
            env,
            config,
            sampling_policy,
            algorithm=algorithm,
            evaluated=TokenPolicy(evaluation, renderer, config.sampling, seed=config.seed),
            reference=reference_scorer(algorithm, context),
            rubric=label_free_rubric(config, env, partial(load_frozen, config, start)),
            backend=backend,
        )


REFILL_SEED_STRIDE = 1_000_000_007
"""Added to the seed each time that a step plays more groups."""

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class StepBatch:
    """The groups that a step learns from."""

    groups: list[Group] = field(default_factory=list)
    """Credited, and numbered in their order."""
    waited_seconds: float = 0.0
    """Seconds until they were there."""
    idle_seconds: float | None = None
    """Seconds in which nothing was played since the last batch. None: nothing is played while weights learn."""
    metrics: dict[str, float] = field(default_factory=dict)


class BatchSource(Protocol):
    """Hands out the groups of a step; owns the curriculum. What it has begun ends with the block it is entered for."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def next_groups(self, step: int) -> StepBatch:
        """Wait for the groups of a step."""
        ...

    def state(self) -> dict[str, Any]:
        """Plain data that `restore` takes back: between two steps, all that is needed to lose no group."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        ...


class OnPolicySource:
    """Synchronous: a step's groups are played by the weights that learn from them, and the trainer waits for all."""

    def __init__(
        self, group_source: GroupSource, curriculum: Curriculum, *, count: int, algorithm: Algorithm | None = None
    ):
        """`count` groups a step; the `algorithm` may ask for more in place of those that are no use to it."""
        self.group_source, self.curriculum, self.count = group_source, curriculum, count
        self.dynamic_sampling = algorithm if isinstance(algorithm, DynamicSampling) else None
        self.max_refills = self.dynamic_sampling.max_refills if self.dynamic_sampling is not None else 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def next_groups(self, step: int) -> StepBatch:
        """Play the groups of a step; those that are no use are replaced as often as the algorithm likes."""
        began, out, missing = time.monotonic(), StepBatch(), self.count
        for again in range(1 + self.max_refills):
            if not missing:
                break
            tasks = self.curriculum.next(step, missing)
            newest = await self.group_source.play(tasks, seed=step + REFILL_SEED_STRIDE * again, first=len(out.groups))
            for group in newest:
                self.curriculum.observe(group)
            out.groups += newest
            missing -= count_useful(newest, self.dynamic_sampling) if self.max_refills else len(newest)
        out.waited_seconds = time.monotonic() - began
        out.metrics = curriculum_metrics(self.curriculum)
        return out

    def state(self) -> dict[str, Any]:
        """The curriculum's."""
        return self.curriculum.state()

    def restore(self, state: dict[str, Any]) -> None:
        """The curriculum's."""
        self.curriculum.restore(state)


def count_useful(groups: Sequence[Group], selects: DynamicSampling | None) -> int:
    """How many groups need no replacement."""
    return sum(map(selects.keep, groups)) if selects is not None else len(groups)


CALIBRATION_SEED = -1
"""Seed of the rollouts that the first model plays for the curriculum."""


async def calibrate(curriculum: Curriculum, player: GroupSource) -> None:
    """Show the curriculum how the first model plays the tasks that it asks for."""
    if isinstance(curriculum, SupportsCalibration):
        for group in await player.play(curriculum.calibration_tasks(), seed=CALIBRATION_SEED):
            curriculum.observe(group)


def curriculum_metrics(curriculum: Curriculum) -> dict[str, float]:
    """The curriculum's own figures, where it has any."""
    return curriculum.metrics() if isinstance(curriculum, SupportsMetrics) else {}


async def run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run what computes for long in another thread, with an event loop of its own, so that this one goes on."""
    return await asyncio.to_thread(asyncio.run, work)
