"""The engines of a training run by name: who samples, who computes gradients, and how weights reach the samplers.

local: this process and its workers do both, in turn; or at once in this process, where rollouts may be stale.
vllm: vLLM servers sample, this process computes gradients. fsdp: processes with sharded weights compute gradients, and
each plays with a copy of the model. vllm+fsdp: servers sample, sharded processes compute gradients. tinker: a service
does both.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from wanderlust._lazy import needs_extra
from wanderlust.errors import UsageError
from wanderlust.policies.base import API_KEY_VARIABLE, Sampler, derive_key
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.policies.vllm_servers import VLLMOptions, WeightFormat, find_vllm_servers, start_vllm_servers
from wanderlust.policies.weight_sender import WeightSender
from wanderlust.runner.engine import WorkerBackend
from wanderlust.serving.remote_sampler import RemoteSampler, serve_samplers
from wanderlust.tasks.curriculum import Curriculum
from wanderlust.training import losses
from wanderlust.training.algorithms.base import Algorithm, AlgorithmContext
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.async_source import AsyncSource
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import TrainConfig
from wanderlust.training.gradient import GradientComputer
from wanderlust.training.group_source import (
    EXACT_POLICY,
    BatchSource,
    GroupSource,
    LocalPlayer,
    OnPolicySource,
    bind_algorithm,
    play_greedy,
    reference_scorer,
)
from wanderlust.training.models import (
    algorithm_context,
    cache_bytes,
    label_free_rubric,
    load_frozen,
    load_trainable,
    merge_adapters,
    rendering_of,
)
from wanderlust.training.setup import SERVER_CLIENTS, RayCluster, check_engine, check_ray
from wanderlust.training.trainers.base import SupportsLogprobs, SupportsWholeModel, Trainer
from wanderlust.training.trainers.fsdp_group import FsdpGroup, FsdpTrainer, RankOptions, fsdp_group
from wanderlust.training.trainers.in_process import InProcessTrainer, LocalLearner
from wanderlust.training.trainers.process_pool import ProcessPoolTrainer
from wanderlust.training.trainers.replica import Replica
from wanderlust.training.trainers.served import EvaluationSampler, ServedTrainer, write_weights
from wanderlust.types import Group, Task, user

WEIGHTS_FOLDER = "weights"
"""Folder of a run, from which servers read the weights that are published."""
SERVICE_PLACE_FILE = "service-weights.txt"
"""File of a run that says where a service keeps the weights that were exported last."""
PROBE_TEXT = "The quick brown fox jumps over the lazy dog. 2 + 2 = 4"
MAX_PROBE_DIFFERENCE = 0.5
"""Mean difference of log-probabilities above which a service is said to have another model; bf16 makes below 0.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """Trainer, algorithm and sources of a run."""

    trainer: Trainer
    tokenizer: Any
    algorithm: Algorithm
    """The configuration's, bound to this run."""
    source: Callable[[Curriculum], BatchSource]
    """Hands out the groups of each step."""
    evaluate: Callable[[Sequence[Task]], Awaitable[list[Group]]]
    """Plays tasks greedily, inside the trainer's `ema_weights`."""
    exact: Callable[[], Awaitable[list[dict[str, Any]] | None]]
    """The environment's exact figures of the greedy policy, there too."""
    group_source: GroupSource
    """Plays and credits groups as in a step."""
    whole_model: Callable[..., Awaitable[Any]]
    """The newest weights (`averaged`: their moving average) as a model in this process, adapters merged; None where a
    service does not hand them out."""
    export: Callable[..., Awaitable[None]] | None = None
    """Writes the weights (`averaged`) as a Hugging Face folder without bringing them together in one process."""


@asynccontextmanager
async def open_engine(
    config: TrainConfig, start: Path, *, workers: int, run: Path, ray: RayCluster | None = None
) -> AsyncIterator[TrainingSetup]:
    """The engine that a configuration names, over the checkpoint `start`; whatever is started ends with the block.

    `run` is the run's folder, for what servers read and log; `ray` plays the rollouts. UsageError for what the engine
    cannot do.
    """
    check_engine(config)
    check_ray(config, ray)
    async with AsyncExitStack() as stack:
        if config.engine in ("vllm", "vllm+fsdp"):
            yield await _with_servers(stack, config, start, run=run, ray=ray)
        elif config.engine == "tinker":
            yield await _with_service(stack, config, start, run=run, ray=ray)
        elif config.engine == "fsdp":
            yield _with_fsdp(stack, config, start)
        elif config.max_staleness:
            yield await _in_process(stack, config, start, ray=ray)
        else:
            yield _with_workers(stack, config, start, workers=workers, ray=ray)


def _with_workers(
    stack: AsyncExitStack, config: TrainConfig, start: Path, *, workers: int, ray: RayCluster | None
) -> TrainingSetup:
    """Worker processes, or Ray actors, play and compute gradients in turn."""
    model, tokenizer = load_trainable(config, start)
    method, _ = _bound(config, start, tokenizer)
    load = partial(Replica.load, start.absolute(), config)
    actors = None
    if ray is not None:
        with needs_extra("ray"):
            from wanderlust.training.trainers.ray_replicas import RayReplicas
        actors = RayReplicas(load, count=min(ray.workers, config.shards), address=ray.address)
    count = min(workers, config.shards)
    pool = stack.enter_context(
        ProcessPoolTrainer(load, model, config.rl_optimizer, count=count, shards=config.shards, workers=actors)
    )
    return _synchronous(config, pool, tokenizer=tokenizer, method=method)


def _with_fsdp(stack: AsyncExitStack, config: TrainConfig, start: Path) -> TrainingSetup:
    """Processes that each hold a part of the weights, and a copy to play with."""
    _, tokenizer = load_frozen(config, start)
    method, _ = _bound(config, start, tokenizer)
    options = RankOptions(config=config, start=start, plays=True)
    group = stack.enter_context(fsdp_group(options, processes=config.processes))
    assert isinstance(group, FsdpTrainer)
    return _synchronous(config, group, tokenizer=tokenizer, method=method)


def _synchronous(
    config: TrainConfig, trainer: ProcessPoolTrainer | FsdpTrainer, *, tokenizer: Any, method: Algorithm
) -> TrainingSetup:
    """A trainer that plays by itself, in turn with its updates."""
    return TrainingSetup(
        trainer=trainer,
        tokenizer=tokenizer,
        algorithm=method,
        source=partial(OnPolicySource, trainer, count=config.tasks_per_step, algorithm=method),
        evaluate=trainer.evaluate,
        exact=trainer.exact,
        group_source=trainer,
        whole_model=trainer.whole_model,
        export=_export(config, trainer),
    )


def _export(config: TrainConfig, learner: Any) -> Callable[..., Awaitable[None]] | None:
    """How sharded weights are written by the processes that hold them; None for adapters, which are merged first."""
    return learner.export if isinstance(learner, FsdpGroup) and not config.lora else None


async def _in_process(
    stack: AsyncExitStack, config: TrainConfig, start: Path, *, ray: RayCluster | None
) -> TrainingSetup:
    """This process plays and learns at once."""
    one_thread()
    model, tokenizer = load_trainable(config, start)
    cache = cache_bytes(config, model.device)
    trainer = InProcessTrainer(model, tokenizer, config.rl_optimizer, **_computing(config), cache_bytes=cache)
    stack.enter_context(trainer)
    samplers = Samplers(training=trainer, evaluation=trainer.eval_sampler)
    return _played(
        config,
        start,
        await _sent_to(stack, samplers, config, ray=ray),
        trainer=trainer,
        tokenizer=tokenizer,
        whole_model=trainer.whole_model,
    )


async def _with_servers(
    stack: AsyncExitStack, config: TrainConfig, start: Path, *, run: Path, ray: RayCluster | None
) -> TrainingSetup:
    """Servers sample; weights learn in this process or in a group, and reach the servers through the run's folder."""
    one_thread()
    model, tokenizer = load_trainable(config, start)
    learner: SupportsWholeModel
    if config.engine == "vllm":
        learner = stack.enter_context(LocalLearner(model, config.rl_optimizer, **_computing(config)))
    else:
        options = RankOptions(config=config, start=start, plays=False)
        learner = stack.enter_context(fsdp_group(options, processes=config.processes))
    weights, end_ids = run / WEIGHTS_FOLDER, Renderer(tokenizer).end_ids
    kind: WeightFormat = "adapter" if config.lora else "checkpoint"
    sender = None
    if config.weight_transfer != "folder":
        half = config.precision == "bf16"
        kind, sender = "tensors", WeightSender(config.weight_transfer, device=config.hardware.device, half=half)
    if config.engine_url:
        found = find_vllm_servers(
            [url.strip() for url in config.engine_url.split(",")],
            api_key=os.environ.get(API_KEY_VARIABLE),
            end_ids=end_ids,
            concurrency=config.concurrency,
            kind=SERVER_CLIENTS[config.server_api],
            sender=sender,
        )
        servers = await stack.enter_async_context(found)
    else:
        served = weights / "served"
        if not served.exists():
            plain, _ = load_frozen(config, start)
            write_weights(served, plain, kind="checkpoint")
            tokenizer.save_pretrained(served)
        how = VLLMOptions(
            command=config.server_command,
            extra=config.server_options,
            hardware=config.hardware,
            max_context=config.max_context,
            concurrency=config.concurrency,
            lora_rank=config.lora,
            processed=config.temperature != 1,
            receives=sender is not None,
        )
        started = start_vllm_servers(served, how, count=config.servers, logs=run, end_ids=end_ids, sender=sender)
        servers = await stack.enter_async_context(started)
    trainer = ServedTrainer(learner, servers, folder=weights / "published", kind=kind)
    samplers = Samplers(training=trainer, evaluation=EvaluationSampler(trainer))
    return _played(
        config,
        start,
        await _sent_to(stack, samplers, config, ray=ray),
        trainer=trainer,
        tokenizer=tokenizer,
        whole_model=learner.whole_model,
        export=_export(config, learner),
    )


async def _with_service(
    stack: AsyncExitStack, config: TrainConfig, start: Path, *, run: Path, ray: RayCluster | None
) -> TrainingSetup:
    """A Tinker service samples and learns; its adapter is put on the model in this process where one is saved."""
    with needs_extra("tinker"):
        from wanderlust.training.trainers.tinker import TinkerService, connect_tinker
    with needs_extra("lora"):
        from wanderlust.policies.local.lora import with_adapter
    model, tokenizer = load_frozen(config, start)
    service = TinkerService.of(config)
    trainer = await stack.enter_async_context(connect_tinker(service, tokenizer, config.rl_optimizer))
    await _check_same_model(trainer, model, tokenizer, name=service.model)

    async def whole_model(*, averaged: bool = False) -> Any:
        folder = run / WEIGHTS_FOLDER / "adapter"
        place = await trainer.export_adapter(folder)
        (run / SERVICE_PLACE_FILE).write_text(f"{place}\n")
        return with_adapter(model, folder) if folder.exists() else None

    samplers = await _sent_to(stack, Samplers(training=trainer, evaluation=trainer), config, ray=ray)
    return _played(config, start, samplers, trainer=trainer, tokenizer=tokenizer, whole_model=whole_model)


async def _check_same_model(trainer: SupportsLogprobs, model: Any, tokenizer: Any, *, name: str) -> None:
    """Raises UsageError when a new adapter's log-probabilities are not those of the checkpoint."""
    ids = [*Renderer(tokenizer).start([user(PROBE_TEXT)])]
    sample = Sample()
    sample.append_context(ids[:1])
    sample.append_completion(ids[1:], [0.0] * (len(ids) - 1), [1.0] * (len(ids) - 1))
    loss = losses.IMPORTANCE_LOSS
    (theirs,), (ours,) = (
        await trainer.compute_logprobs([sample], loss),
        GradientComputer(model, loss=loss).compute_logprobs([sample]),
    )
    apart = sum(abs(a - b) for a, b in zip(theirs, ours, strict=True)) / (len(ids) - 1)
    if not apart < MAX_PROBE_DIFFERENCE:
        raise UsageError(
            f"the service's model {name} is not that of the checkpoint: log-probabilities of a token are {apart:.2g} "
            "apart on average; name the right one with engine_model"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Samplers:
    """Who draws answers, and where the episodes are played that ask for them."""

    training: Sampler
    evaluation: Sampler
    """Has the averaged weights inside the trainer's `ema_weights`."""
    backend: WorkerBackend | None = None
    """None: this process plays."""


async def _sent_to(
    stack: AsyncExitStack, samplers: Samplers, config: TrainConfig, *, ray: RayCluster | None
) -> Samplers:
    """The samplers as Ray actors ask for them, if there are to be any: over connections to this process."""
    if ray is None:
        return samplers
    with needs_extra("ray"):
        from wanderlust.runner.ray import node_address, ray_backend
    each = ceil(config.concurrency / ray.workers)
    backend = await stack.enter_async_context(ray_backend(ray.workers, each=each, address=ray.address))
    served = {"training": samplers.training, "evaluation": samplers.evaluation}
    address = await stack.enter_async_context(serve_samplers(served, host=node_address()))
    remote = {name: RemoteSampler(address, name) for name in served}
    return Samplers(**remote, backend=backend)


def _played(
    config: TrainConfig,
    start: Path,
    samplers: Samplers,
    *,
    trainer: Trainer,
    tokenizer: Any,
    whole_model: Callable[..., Awaitable[Any]],
    export: Callable[..., Awaitable[None]] | None = None,
) -> TrainingSetup:
    """Episodes in this process or on Ray, whoever samples; ahead of the trainer where rollouts may be stale."""
    env, renderer = config.make_env(), Renderer(tokenizer, rendering_of(config))
    backend = samplers.backend
    method, context = _bound(config, start, tokenizer)

    def sampling_policy(seed: int) -> TokenPolicy:
        return TokenPolicy(samplers.training, renderer, config.sampling, seed=derive_key(config.seed, seed))

    policy = TokenPolicy(samplers.evaluation, renderer, config.sampling, seed=config.seed)

    player = LocalPlayer(
        env,
        config,
        sampling_policy,
        algorithm=method,
        reference=reference_scorer(method, context),
        rubric=label_free_rubric(config, env, partial(load_frozen, config, start)),
        backend=backend,
    )

    def source(curriculum: Curriculum) -> BatchSource:
        if not config.max_staleness:
            return OnPolicySource(player, curriculum, count=config.tasks_per_step, algorithm=method)
        return AsyncSource(
            player,
            curriculum,
            version=lambda: trainer.version,
            count=config.tasks_per_step,
            steps=config.steps,
            max_staleness=config.max_staleness,
        )

    return TrainingSetup(
        trainer=trainer,
        tokenizer=tokenizer,
        algorithm=method,
        source=source,
        evaluate=lambda tasks: play_greedy(env, tasks, policy, seed=config.seed, backend=backend),
        exact=lambda: env.exact(policy.greedy(), name=EXACT_POLICY),
        group_source=player,
        whole_model=whole_model,
        export=export,
    )


def _bound(config: TrainConfig, start: Path, tokenizer: Any) -> tuple[Algorithm, AlgorithmContext]:
    """The configured algorithm with what it asks for."""
    context = algorithm_context(config, start, tokenizer)
    return bind_algorithm(configured_algorithm(config), context), context


def _computing(config: TrainConfig) -> dict[str, Any]:
    """Settings of gradients in this process."""
    return {
        "temperature": config.temperature,
        "micro_batch": config.micro_batch,
        "micro_batch_tokens": config.micro_batch_tokens,
        "recompute": config.recompute_activations,
        "fast": config.fast,
        "hardware": config.hardware,
    }


async def save_checkpoint(folder: Path, config: TrainConfig, setup: TrainingSetup, *, averaged: bool = False) -> None:
    """Save the newest weights, or their moving average, as a Hugging Face folder, where the engine hands them out."""
    if setup.export is not None:
        await setup.export(folder, setup.tokenizer, averaged=averaged)
        return
    model = await setup.whole_model(averaged=averaged)
    if model is None:
        return
    save_pretrained(folder, merge_adapters(config, model), setup.tokenizer)
