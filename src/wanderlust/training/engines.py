"""The engines of a training run by name: who samples, who computes gradients, and how weights reach the samplers.

local: this process and its workers do both, in turn; or at once in this process, where rollouts may be stale.
vllm: vLLM servers sample, this process computes gradients. fsdp: processes with sharded weights compute gradients, and
each plays with a copy of the model. vllm+fsdp: servers sample, sharded processes compute gradients. tinker: a service
does both. Each is a function in the module of its trainer.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import torch

from wanderlust._lazy import needs_extra
from wanderlust.errors import UsageError
from wanderlust.policies.base import DEFAULT_HARDWARE
from wanderlust.policies.local.device import resolve_device
from wanderlust.policies.vllm_servers import no_server_program
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.training.algorithms.base import HasRolloutPolicy
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.config import TrainConfig
from wanderlust.training.group_source import RayCluster
from wanderlust.training.losses import TIS
from wanderlust.training.memory import check_gpus
from wanderlust.training.models import gradient_settings, load_trainable, save_model
from wanderlust.training.trainers.base import EngineOptions, SupportsWholeModel, TrainingSetup
from wanderlust.training.trainers.fsdp_group import RankOptions, fsdp_engine, fsdp_group, join_group
from wanderlust.training.trainers.in_process import LocalLearner, in_process_engine
from wanderlust.training.trainers.process_pool import worker_engine
from wanderlust.training.trainers.served import check_servers, served_engine

OF_SERVERS = {"servers": 1, "server_command": "vllm serve", "server_options": "", "max_context": 0}
"""Settings of servers that are started, with their defaults."""


def open_engine(options: EngineOptions) -> AbstractAsyncContextManager[TrainingSetup]:
    """The engine that the configuration names. Raises UsageError for what it cannot do."""
    config = options.config
    check_engine(config)
    check_ray(config, options.ray)
    if config.engine == "tinker":
        with needs_extra("tinker"):
            from wanderlust.training.trainers.tinker import tinker_engine
        return tinker_engine(options)
    local = in_process_engine if config.max_staleness else worker_engine
    engines = {"local": local, "fsdp": fsdp_engine, "vllm": served_engine, "vllm+fsdp": served_engine}
    return engines[config.engine](options)


@asynccontextmanager
async def open_learner(config: TrainConfig, start: Path, *, scores: bool = False) -> AsyncIterator[SupportsWholeModel]:
    """Weights that learn from samples, in this process or sharded over several; `scores`: as a reward model."""
    if config.engine == "fsdp":
        with fsdp_group(RankOptions(config=config, start=start, plays=False), processes=config.processes) as group:
            yield group
        return
    model, _ = load_trainable(config, start, scores=scores)
    with LocalLearner(model, config.rl_optimizer, hardware=config.hardware, **gradient_settings(config)) as learner:
        yield learner


async def save_checkpoint(folder: Path, config: TrainConfig, setup: TrainingSetup, *, averaged: bool = False) -> None:
    """Save the newest weights, or their moving average, as a Hugging Face folder, where the engine hands them out."""
    if setup.export is not None:
        await setup.export(folder, setup.tokenizer, averaged=averaged)
        return
    model = await setup.whole_model(averaged=averaged)
    if model is not None:
        save_model(folder, config, model=model, tokenizer=setup.tokenizer)


def join_if_led() -> None:
    """In the processes that `torchrun` started beside the first: hold a part of the weights until the run is over.

    The process then ends, as only the first one has a result.
    """
    if int(os.environ.get("RANK", "0")) > 0:
        join_group()
        sys.exit()


def hardware_note(config: TrainConfig) -> str:
    """Where is computed, and what makes up for it; empty where that is as ever."""
    hardware, loss = resolve_device(config.hardware), configured_algorithm(config).loss
    if hardware == DEFAULT_HARDWARE:
        return ""
    line = f"computing on {hardware.device} in {hardware.precision}"
    if hardware.precision != "fp32" and loss.correction == TIS:
        line += f"; tokens weigh p_trainer / p_sampler, at most {TIS.ratio_max:g} (TIS), as the two round differently"
    return line


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


def check_places(config: TrainConfig, model: Any = None, tokenizer: Any = None) -> None:
    """Raises UsageError, in one line, when the service, or a server at `engine_url`, does not answer or does not fit.

    Without a tokenizer only the first is asked.
    """
    if config.engine != "tinker":
        return check_servers(config, model, tokenizer)
    with needs_extra("tinker"):
        from wanderlust.training.trainers.tinker import check_tinker
    check_tinker(config)
