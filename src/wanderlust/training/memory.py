"""Whether a run's models fit into memory, by arithmetic over the checkpoint's header, before anything is loaded.

What certainly is needed (weights, gradients, optimizer, moving average) and does not fit is refused. What depends on
the episodes (activations, logits, cached keys and values) is estimated, and warned of.
"""

from __future__ import annotations

import json
import os
import warnings
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Self

import torch

from wanderlust.errors import UsageError
from wanderlust.policies.local.device import available_memory
from wanderlust.policies.local.pretrained import weight_shapes
from wanderlust.store.run_folder import FRESH_POLICY, SMOLLM2_POLICY
from wanderlust.training.config import TrainConfig

GIB = 2**30
WARNING_SHARE = 0.9
"""Share of the available memory above which the estimate is warned of."""
VLLM_CACHE_BYTES = GIB
"""Keys and values of a vLLM server on processors, as it is started here."""
LAYER_ACTIVATIONS = 16
"""Numbers kept for the backward pass, per token, layer and unit of the width (arXiv 2205.05198, without attention)."""


class MemoryWarning(UserWarning):
    """A run fits into memory, but perhaps not with its activations and caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Numbers of a model that memory depends on."""

    parameters: int
    linear_sides: int
    """Sum of rows and columns of the layers' matrices; an adapter of rank r has r times as many parameters."""
    layers: int
    width: int
    vocabulary: int
    cached: int
    """Numbers of keys and values for each token, all layers together."""

    @classmethod
    def of(cls, folder: Path) -> Self | None:
        """That of a checkpoint, from its configuration and the headers of its weights; None where they do not say."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            config = json.loads((folder / "config.json").read_text())
            config = config.get("text_config") or config
            shapes = weight_shapes(folder)
            layers, width = int(config["num_hidden_layers"]), int(config["hidden_size"])
            heads = int(config.get("num_attention_heads") or 1)
            groups = int(config.get("num_key_value_heads") or heads)
            size = int(config.get("head_dim") or width // heads)
            if shapes:
                return cls(
                    parameters=sum(map(prod, shapes.values())),
                    linear_sides=sum(sum(s) for name, s in shapes.items() if len(s) == 2 and "layers." in name),
                    layers=layers,
                    width=width,
                    vocabulary=int(config["vocab_size"]),
                    cached=2 * layers * groups * size,
                )
        return None


SMOLLM2 = ModelSize(
    parameters=134_515_008, linear_sides=30 * 10_176, layers=30, width=576, vocabulary=49_152, cached=11_520
)
"""The pretrained model that may have to be downloaded first."""


def check_memory(config: TrainConfig, *, workers: int, available: int | None = None) -> None:
    """Raises UsageError, in one line with the arithmetic, for a model that does not fit; warns where it may not.

    `available` is in bytes; None: what the device has now.
    """
    if config.policy == FRESH_POLICY:
        return
    size = ModelSize.of(Path(config.policy)) if config.policy != SMOLLM2_POLICY else SMOLLM2
    if size is None:
        return
    available = available_memory(config.device) if available is None else available
    certain, likely = needed_bytes(config, size, workers=workers)
    where = config.device if config.device != "cpu" else "this machine"
    total = sum(certain.values())
    told = ", ".join(f"{name} {amount / GIB:.1f}" for name, amount in certain.items() if amount)
    if total > available:
        raise UsageError(
            f"training {Path(config.policy).name or config.policy} ({size.parameters / 1e9:.2f}B parameters) needs "
            f"{total / GIB:.1f} GiB ({told}) and {where} has {available / GIB:.1f} GiB available: take adapters "
            "(lora), fewer workers, more processes with the engine fsdp, or a smaller model"
        )
    if total + sum(likely.values()) > WARNING_SHARE * available:
        more = ", ".join(f"{name} {amount / GIB:.1f}" for name, amount in likely.items())
        warnings.warn(
            f"memory may run out: {total / GIB:.1f} GiB ({told}) are needed and perhaps {more} more, and {where} has "
            f"{available / GIB:.1f} GiB available: take a smaller micro_batch, max_tokens or cache_gib",
            MemoryWarning,
            stacklevel=2,
        )


def needed_bytes(config: TrainConfig, size: ModelSize, *, workers: int) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes by purpose on the device or machine: those that are certain, and those that are likely besides."""
    numbers = size.parameters
    trained = config.lora * size.linear_sides if config.lora else numbers
    copy = numbers * (2 if config.precision == "bf16" else 4) + (4 * trained if config.lora else 0)
    engine, on_gpu, here = config.engine, config.device != "cpu", not config.engine_url
    sharded = config.processes if "fsdp" in engine else 1
    computing = sharded if sharded > 1 else min(workers, config.shards) if engine == "local" else 1
    together = 1 if on_gpu else sharded  # on GPUs every process has one of its own
    players = {"local": 3 if config.max_staleness else computing, "fsdp": together}.get(engine, 0)
    certain = {
        "weights that learn": 4 * numbers * together // sharded,
        "copies that sample": copy * players,
        "gradients": 4 * trained * together // sharded if sharded > 1 else 8 * trained * computing,
        "optimizer": 8 * trained * together // sharded,
        "average": 4 * trained * together // sharded,
        "reference": copy * max(players, 1) if config.kl else 0,
        "servers": config.servers * (copy + VLLM_CACHE_BYTES) if "vllm" in engine and here and not on_gpu else 0,
    }
    tokens = config.micro_batch * config.max_tokens
    activations = 4 * tokens * (LAYER_ACTIVATIONS * size.layers * size.width + 3 * size.vocabulary)
    games = min(config.concurrency, -(-config.tasks_per_step * config.group_size // max(computing, 1)))
    cache = 4 * size.cached * config.max_tokens * games if players else 0
    if config.cache_gib:
        cache = min(cache, int(config.cache_gib * GIB))
    many = 1 if on_gpu else computing
    return certain, {"activations": activations * many, "caches": cache * many}


def check_gpus(config: TrainConfig, *, there: int | None = None) -> None:
    """Raises UsageError, in one line, where an engine wants more GPUs than there are (None: as PyTorch counts them)."""
    if not config.device.startswith("cuda"):
        return
    there = torch.cuda.device_count() if there is None else there
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "0"))
    if "fsdp" in config.engine and (wanted := ranks or config.processes) > there:
        raise UsageError(f"{wanted} processes need a GPU each, and there are {there}: set processes to {there}")
    if "vllm" in config.engine and not config.engine_url and (wanted := gpus_of_servers(config)) > there:
        raise UsageError(
            f"{config.servers} servers need {wanted} GPUs, and there are {there}: start fewer servers, take "
            "another --tensor-parallel-size, or name servers elsewhere with engine_url"
        )


def gpus_of_servers(config: TrainConfig) -> int:
    """GPUs that the servers want which are started here."""
    words = config.server_options.replace("=", " ").split()
    each = 1
    for name in ("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--data-parallel-size", "-dp"):
        with suppress(ValueError, IndexError):
            each *= int(words[words.index(name) + 1])
    return config.servers * each
