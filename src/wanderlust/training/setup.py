"""Whether a training run could begin."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Self

import torch

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.policies.base import API_KEY_VARIABLE, SamplingOptions
from wanderlust.policies.local.device import warn_slow_precision
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.policies.resolve import make_player
from wanderlust.policies.sglang import SGLang
from wanderlust.policies.vllm import VLLM
from wanderlust.policies.vllm_servers import no_server_program
from wanderlust.runner.engine import run_blocking
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.tasks.curriculum.uniform import Curriculum, resolve_curriculum
from wanderlust.tasks.selection import choose_tasks, find_faulty_tasks, iter_tasks
from wanderlust.training.algorithms.base import HasRolloutPolicy, least_group_size
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.checkpoint import LOCKED_TASKS
from wanderlust.training.config import TrainConfig
from wanderlust.training.group_source import (
    bind_algorithm,
)
from wanderlust.training.memory import check_gpus
from wanderlust.training.models import algorithm_context, checkpoint_folder, label_judge
from wanderlust.training.trainers.context_parallel import check_full_attention
from wanderlust.training.verdict import RANDOM
from wanderlust.training.warmup import teacher_policy

PROBE_TEXT = "Some 3 foo_bar(x)\n\u00e9\u4f60"
"""Tokenizers differ in it, if they differ; short enough for any model."""
MAX_SERVER_GAP = 0.2
"""Difference of a log-probability that no precision explains."""
SERVER_CLIENTS: dict[str, type[VLLM]] = {"vllm": VLLM, "sglang": SGLang}
"""Client of each API of servers."""
OF_SERVERS = {"servers": 1, "server_command": "vllm serve", "server_options": "", "max_context": 0}
"""Settings of servers that are started, with their defaults."""


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


def check_engine(config: TrainConfig) -> None:
    """Raises UsageError, in one line, for what the engine cannot do, and for settings that it does not read."""
    engine, serves, sharded = config.engine, "vllm" in config.engine, "fsdp" in config.engine
    service = engine == "tinker"
    unread = {
        "engine_url": not serves and not service and bool(config.engine_url),
        "server_api": not (serves and config.engine_url) and config.server_api != "vllm",
        "weight_transfer": not serves and config.weight_transfer != "folder",
        "engine_model": not service and bool(config.engine_model),
        "engine_service": not service and config.engine_service != "tinker",
        "micro_batch": service and config.micro_batch != TrainConfig().micro_batch,
        **{
            name: (not serves or bool(config.engine_url)) and getattr(config, name) != default
            for name, default in OF_SERVERS.items()
        },
        "processes": not sharded and config.processes > 1,
        "cache_gib": serves and config.cache_gib > 0,
        "offload": not sharded and config.offload,
        "context_parallel": not sharded and config.context_parallel > 1,
    }
    for name, wrong in unread.items():
        if wrong:
            where = "with engine_url" if config.engine_url and name != "engine_url" else f"by the engine {engine}"
            where = "without engine_url" if name == "server_api" and serves else where
            raise UsageError(f"{name} is not read {where}: leave it out")
    if service:
        check_service(config)
    if engine == "fsdp" and config.max_staleness:
        raise UsageError("the engine fsdp plays and learns in turn: set max_staleness to 0, or take vllm+fsdp")
    if sharded and config.optimizer != "adamw":
        raise UsageError(f"the engine {engine} updates by adamw, not by {config.optimizer}")
    if config.weight_transfer != "folder":
        check_transfer(config)
    if sharded and "WORLD_SIZE" not in os.environ and config.processes % config.context_parallel:
        raise UsageError(
            f"context_parallel is {config.context_parallel}, and processes ({config.processes}) is no multiple of it"
        )
    if serves and config.engine_url and config.temperature != 1:
        raise UsageError(
            f"log-probabilities at temperature {config.temperature:g} need servers that are started here: leave "
            "engine_url out, or set temperature to 1"
        )
    check_gpus(config)
    if serves and not config.engine_url and shutil.which(shlex.split(config.server_command)[0]) is None:
        raise UsageError(no_server_program(config.server_command))


def check_transfer(config: TrainConfig) -> None:
    """Raises UsageError, in one line, where weights cannot be sent over the network as the configuration says."""
    way = config.weight_transfer
    if config.lora:
        raise UsageError(f"adapters reach servers by a folder: leave weight_transfer {way} out")
    if config.server_api != "vllm":
        raise UsageError(f"servers of {config.server_api} read weights from a folder: leave weight_transfer {way} out")
    if way == "nccl" and not torch.cuda.is_available():
        raise UsageError("weight_transfer nccl goes from GPU to GPU, and there is none here: take gloo, or folder")


def check_ray(config: TrainConfig, ray: RayCluster | None) -> None:
    """Raises UsageError, in one line, where Ray actors cannot play the rollouts of a run."""
    if ray is None:
        return
    if config.engine == "fsdp":
        raise UsageError("the engine fsdp plays in its own processes: leave ray_workers out, or take vllm+fsdp")
    here = config.engine != "local" or config.max_staleness > 0
    if here and isinstance(configured_algorithm(config), HasRolloutPolicy):
        raise UsageError(
            f"the algorithm {config.algorithm} plays with a teacher in this process: leave ray_workers out, or take "
            "the engine local with max_staleness 0"
        )


def check_service(config: TrainConfig) -> None:
    """Raises UsageError, in one line, for what a Tinker service cannot do."""
    for wrong, line in (
        (
            config.policy == FRESH_POLICY or config.sft_episodes,
            "trains a model that it has: a fresh one, or a warm-up (sft_episodes), needs another engine",
        ),
        (not config.lora, "trains adapters, not whole weights: set lora to their rank, for instance 32"),
        (config.lora_alpha != 32, "scales adapters by 32 / rank: leave lora_alpha out"),
        (config.ema_decay, "keeps no moving average of the weights: set ema_decay to 0"),
        (config.optimizer != "adamw", f"updates by adamw, not by {config.optimizer}"),
        (config.temperature != 1, "samples at temperature 1: set temperature to 1"),
        (config.top_p != 1, "may report log-probabilities after the top_p cut: set top_p to 1"),
    ):
        if wrong:
            raise UsageError(f"the engine tinker {line}")
    with needs_extra("tinker"):
        from wanderlust.training.trainers.tinker_rows import check_supported
    check_supported([], configured_algorithm(config).loss)


def check_servers(config: TrainConfig, model: Any = None, tokenizer: Any = None) -> None:
    """Raises UsageError, in one line, when a server at `engine_url` does not answer, or has another model, tokenizer or
    version than the others.

    Without a tokenizer only the first is asked, and of SGLang's servers. Of the engine tinker its service is asked.
    """
    if config.engine == "tinker":
        with needs_extra("tinker"):
            from wanderlust.training.trainers.tinker import TinkerService, check_tinker
        run_blocking(partial(check_tinker, TinkerService.of(config)))
        return
    versions: dict[str, str] = {}
    for url in filter(None, map(str.strip, config.engine_url.split(","))):
        client = SERVER_CLIENTS[config.server_api](url, "", api_key=os.environ.get(API_KEY_VARIABLE))
        ask = (
            client.first_model
            if tokenizer is None or config.server_api != "vllm"
            else partial(_check_server, config, client, checkpoint=(model, tokenizer))
        )
        try:
            run_blocking(ask)
        except PolicyFailure as error:
            raise UsageError(str(error)) from error
        versions[url] = run_blocking(client.library_version)
    if len(set(filter(None, versions.values()))) > 1:
        told = ", ".join(f"{url} has {version or 'one that it does not tell'}" for url, version in versions.items())
        raise UsageError(f"servers of different versions compute different numbers: {told}; start all with one version")


async def _check_server(config: TrainConfig, client: VLLM, *, checkpoint: tuple[Any, Any]) -> None:
    """Compare the ids of a text and, where adapters leave the server's own weights as they are, a log-probability."""
    model, tokenizer = checkpoint
    client.model = await client.first_model()
    async with client:
        await client.check_calls("adapter" if config.lora else "checkpoint")
        ids = tuple(tokenizer.encode(PROBE_TEXT))
        theirs = await client.tokenize(PROBE_TEXT)
        where = f"the server at {client.url.parent}"
        if theirs != ids:
            raise UsageError(
                f"{where} has another tokenizer than {config.policy}: it reads {len(theirs)} ids where this one "
                f"has {len(ids)}, as {list(theirs[:5])} for {list(ids[:5])}; start it with this checkpoint"
            )
        if not config.lora:
            return
        sampled = await client.sample(ids, SamplingOptions(temperature=0, max_tokens=1), key=1)
        with torch.inference_mode():
            ours = model(input_ids=torch.tensor([ids], device=model.device)).logits[0, -1].float().log_softmax(-1)
        gap = abs(float(ours[sampled.ids[0]]) - sampled.logprobs[0])
        if gap > MAX_SERVER_GAP:
            raise UsageError(
                f"{where} has other weights than {config.policy}: their log-probabilities of a token are {gap:.2g} "
                "apart; start it with this checkpoint"
            )


def validate_config(config: TrainConfig) -> None:
    """Raises UsageError or StoreError, in one line, when a run with this config could not begin."""
    config = config.with_sft_defaults()
    check_engine(config)
    check_servers(config)
    method, env = configured_algorithm(config), config.make_env()
    warn_slow_precision(config.hardware)
    run_curriculum(config, env)
    for tasks in (islice(iter_tasks(env, "train"), LOCKED_TASKS), choose_tasks(iter_tasks(env, "eval"), LOCKED_TASKS)):
        for why in find_faulty_tasks([*tasks]).values():  # fails here if it fails at all
            raise UsageError(f"{config.env_name}: {why}")
    if config.label_estimator != "none":
        label_judge(config)
        if config.group_size < 2:
            raise UsageError("label-free rewards compare the rollouts of a task: set group_size to 2 or more")
        if config.teacher:
            raise UsageError("set `label_estimator` or `teacher`, not both")
    if config.group_size < least_group_size(method) and config.steps:
        raise UsageError(
            f"the algorithm {config.algorithm} compares the rollouts of a task: set group_size to 2 or more, or take "
            "an algorithm without a baseline, like reinforce"
        )
    check_players(config, env)
    check_environment_gives(config, env)
    if config.policy != FRESH_POLICY:
        folder = checkpoint_folder(config.policy)
        model, tokenizer = load_pretrained(folder)
        if config.context_parallel > 1:
            check_full_attention(model.config)
        check_servers(config, model, tokenizer)
        bind_algorithm(method, algorithm_context(config, folder, tokenizer))
    elif config.teacher:
        raise UsageError("a fresh model makes its own tokenizer, so it cannot learn from the checkpoint `teacher`")


def check_environment_gives(config: TrainConfig, env: Environment) -> None:
    """Raises UsageError where exact figures or first moves are asked for, and nobody gives or reads them."""
    if not config.eval_tasks and not env.has_exact:
        raise UsageError(f"{config.env_name} computes no exact figures: set eval_tasks to 1 or more")
    if config.exploring_starts and not getattr(configured_algorithm(config), "credits_explorers", False):
        raise UsageError(f"the algorithm {config.algorithm} does not read exploring_starts: take cispo-tree")
    if config.exploring_starts >= config.group_size:
        raise UsageError(f"exploring_starts is {config.exploring_starts}, and must be below group_size")


def run_curriculum(config: TrainConfig, env: Environment) -> Curriculum:
    """The curriculum of a run: the object in the configuration, or the one of that name."""
    if not isinstance(config.curriculum, str):
        return config.curriculum
    after = 0 if config.policy == FRESH_POLICY else config.sft_episodes
    return resolve_curriculum(config.curriculum, env, seed=config.seed, after=after)


def check_players(config: TrainConfig, env: Environment) -> None:
    """Raises UsageError where the teacher, or the random player of the result, is missing or cannot be made."""
    if config.sft_episodes:
        teacher_policy(env, config.sft_teacher)
    if config.result_samples and RANDOM in env.players:
        make_player(env, RANDOM)
