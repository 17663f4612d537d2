"""Whether a training run could begin."""

from __future__ import annotations

import os
import shlex
import shutil
from functools import partial
from typing import Any

import torch

from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.policies.base import API_KEY_VARIABLE, SamplingOptions
from wanderlust.policies.local.device import warn_slow_precision
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.policies.vllm import VLLM
from wanderlust.policies.vllm_servers import no_server_program
from wanderlust.runner.engine import run_blocking
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.tasks.selection import iter_tasks
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.config import TrainConfig
from wanderlust.training.curricula import run_curriculum
from wanderlust.training.group_source import (
    bind_algorithm,
)
from wanderlust.training.label_free_rewards import label_judge
from wanderlust.training.memory import check_gpus
from wanderlust.training.models import algorithm_context, checkpoint_folder
from wanderlust.training.warmup import teacher_policy

PROBE_TEXT = "Some 3 foo_bar(x)\n\u00e9\u4f60"
"""Tokenizers differ in it, if they differ; short enough for any model."""
MAX_SERVER_GAP = 0.2
"""Difference of a log-probability that no precision explains."""
OF_SERVERS = {"servers": 1, "server_command": "vllm serve", "server_options": "", "max_context": 0}
"""Settings of servers that are started, with their defaults."""


def check_engine(config: TrainConfig) -> None:
    """Raises UsageError, in one line, for what the engine cannot do, and for settings that it does not read."""
    engine, serves, sharded = config.engine, "vllm" in config.engine, "fsdp" in config.engine
    unread = {
        "engine_url": not serves and bool(config.engine_url),
        **{
            name: (not serves or bool(config.engine_url)) and getattr(config, name) != default
            for name, default in OF_SERVERS.items()
        },
        "processes": not sharded and config.processes > 1,
        "cache_gib": serves and config.cache_gib > 0,
    }
    for name, wrong in unread.items():
        if wrong:
            where = "with engine_url" if config.engine_url and name != "engine_url" else f"by the engine {engine}"
            raise UsageError(f"{name} is not read {where}: leave it out")
    if engine == "fsdp" and config.max_staleness:
        raise UsageError("the engine fsdp plays and learns in turn: set max_staleness to 0, or take vllm+fsdp")
    if sharded and config.optimizer != "adamw":
        raise UsageError(f"the engine {engine} updates by adamw, not by {config.optimizer}")
    if serves and config.engine_url and config.temperature != 1:
        raise UsageError(
            f"log-probabilities at temperature {config.temperature:g} need servers that are started here: leave "
            "engine_url out, or set temperature to 1"
        )
    check_gpus(config)
    if serves and not config.engine_url and shutil.which(shlex.split(config.server_command)[0]) is None:
        raise UsageError(no_server_program(config.server_command))


def check_servers(config: TrainConfig, model: Any = None, tokenizer: Any = None) -> None:
    """Raises UsageError, in one line, when a server at `engine_url` does not answer, or has another model or tokenizer.

    Without a tokenizer only the first is asked.
    """
    for url in filter(None, map(str.strip, config.engine_url.split(","))):
        client = VLLM(url, "", api_key=os.environ.get(API_KEY_VARIABLE))
        ask = (
            client.first_model
            if tokenizer is None
            else partial(_check_server, config, client, checkpoint=(model, tokenizer))
        )
        try:
            run_blocking(ask)
        except PolicyFailure as error:
            raise UsageError(str(error)) from error


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
        model, tokenizer = load_pretrained(folder)
        check_servers(config, model, tokenizer)
        bind_algorithm(method, algorithm_context(config, folder, tokenizer))
    elif config.teacher:
        raise UsageError("a fresh model makes its own tokenizer, so it cannot learn from the checkpoint `teacher`")
