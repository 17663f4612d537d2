"""Whether a training run could begin."""

from __future__ import annotations

import os
import shlex
import shutil
from functools import partial

from wanderlust._lazy import needs_extra
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.policies.base import API_KEY_VARIABLE
from wanderlust.policies.local.device import warn_slow_precision
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.policies.sglang import SGLang
from wanderlust.policies.vllm import VLLM
from wanderlust.policies.vllm_servers import no_server_program
from wanderlust.runner.engine import run_blocking
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.tasks.selection import iter_tasks
from wanderlust.training.algorithms.base import HasRolloutPolicy
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.config import RayCluster, TrainConfig
from wanderlust.training.curricula import run_curriculum
from wanderlust.training.group_source import (
    bind_algorithm,
)
from wanderlust.training.label_free_rewards import label_judge
from wanderlust.training.models import algorithm_context, checkpoint_folder
from wanderlust.training.warmup import teacher_policy

SERVER_CLIENTS: dict[str, type[VLLM]] = {"vllm": VLLM, "sglang": SGLang}
"""Client of each API of servers."""
OF_SERVERS = {"servers": 1, "server_command": "vllm serve", "server_options": "", "max_context": 0}
"""Settings of servers that are started, with their defaults."""


def check_engine(config: TrainConfig) -> None:
    """Raises UsageError, in one line, for what the engine cannot do, and for settings that it does not read."""
    engine, serves, sharded = config.engine, "vllm" in config.engine, "fsdp" in config.engine
    service = engine == "tinker"
    unread = {
        "engine_url": not serves and not service and bool(config.engine_url),
        "server_api": not (serves and config.engine_url) and config.server_api != "vllm",
        "engine_model": not service and bool(config.engine_model),
        "engine_service": not service and config.engine_service != "tinker",
        "micro_batch": service and config.micro_batch != TrainConfig().micro_batch,
        **{
            name: (not serves or bool(config.engine_url)) and getattr(config, name) != default
            for name, default in OF_SERVERS.items()
        },
        "processes": not sharded and config.processes > 1,
        "offload": not sharded and config.offload,
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
    if serves and config.engine_url and config.temperature != 1:
        raise UsageError(
            f"log-probabilities at temperature {config.temperature:g} need servers that are started here: leave "
            "engine_url out, or set temperature to 1"
        )
    if serves and not config.engine_url and shutil.which(shlex.split(config.server_command)[0]) is None:
        raise UsageError(no_server_program(config.server_command))


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


def check_servers(config: TrainConfig) -> None:
    """Raises UsageError, in one line, when a server at `engine_url`, or the Tinker service, does not answer."""
    if config.engine == "tinker":
        with needs_extra("tinker"):
            from wanderlust.training.trainers.tinker import TinkerService, check_tinker
        run_blocking(partial(check_tinker, TinkerService.of(config)))
        return
    for url in filter(None, map(str.strip, config.engine_url.split(","))):
        client = SERVER_CLIENTS[config.server_api](url, "", api_key=os.environ.get(API_KEY_VARIABLE))
        try:
            run_blocking(client.first_model)
        except PolicyFailure as error:
            raise UsageError(str(error)) from error


def validate_config(config: TrainConfig) -> None:
    """Raises UsageError or StoreError, in one line, when a run with this config could not begin."""
    config = config.with_sft_defaults()
    check_engine(config)
    check_servers(config)
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
