"""Move models to their device and precision.

In bfloat16 the layers' weights and activations are rounded; embeddings and head stay in fp32, and so do logits:
rounded logits are half of the difference between two passes over one model (decision 0030).
"""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from wanderlust.errors import UsageError
from wanderlust.policies.base import Hardware, Precision


class SlowPrecision(UserWarning):
    """The precision is supported by the device, but slow."""


def resolve_device(hardware: Hardware) -> Hardware:
    """Replace `auto` by the device that it stands for. Raises UsageError of one line where the device is missing."""
    return replace(hardware, device=_device(hardware))


def warn_slow_precision(hardware: Hardware) -> None:
    """Warn with SlowPrecision where bf16 is asked of a processor without bf16 products. UsageError as above."""
    if hardware.precision == "bf16" and _device(hardware) == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        warnings.warn(
            "this processor has no instructions for bf16: products take several times as long as in fp32",
            SlowPrecision,
            stacklevel=2,
        )


def _device(hardware: Hardware) -> str:
    if hardware.precision not in get_args(Precision):
        raise UsageError(f"precision {hardware.precision!r}: there are {' and '.join(get_args(Precision))}")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    name = hardware.device
    if name == "auto":
        name = "cuda" if there else "cpu"
    kind, colon, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (colon and not (kind == "cuda" and number.isdecimal())):
        raise UsageError(f"device {name!r}: there are auto, cpu, cuda and cuda:N")
    if kind == "cuda":
        _has_gpu(name, int(number or 0), there=there, precision=hardware.precision)
    return name


def _has_gpu(name: str, number: int, *, there: int, precision: Precision) -> None:
    if not there:
        why = "this PyTorch is built without it" if torch.version.cuda is None else "PyTorch finds no GPU"
        raise UsageError(f"device {name}: there is no CUDA here ({why}): take cpu, or auto")
    if number >= there:
        raise UsageError(f"device {name}: there are {there} GPUs here, the last is cuda:{there - 1}")
    if precision == "bf16" and torch.cuda.get_device_capability(number) < (8, 0):
        raise UsageError(f"device {name}: {torch.cuda.get_device_name(number)} does not compute in bf16: take fp32")


MEMORY_BOUNDS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Bound of this process's control group, of version 2 and 1."""


def memory_of(device: Any) -> int:
    """Bytes of the device's memory; for the processor, of the machine or of this process's control group."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    bounds = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in MEMORY_BOUNDS:
        with suppress(OSError, ValueError):  # no such group, or no bound
            bounds.append(int(path.read_text()))
    return min(bounds)


def available_memory(device: str) -> int:
    """Bytes that nobody uses: on the GPU, or on this machine and in this process's control group."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    free = [memory_of(device)]
    with suppress(OSError, IndexError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    for bound in MEMORY_BOUNDS:
        with suppress(OSError, ValueError):
            used = bound.with_name("memory.current" if bound.name == "memory.max" else "memory.usage_in_bytes")
            free.append(int(bound.read_text()) - int(used.read_text()))
    return min(free)


def one_thread() -> None:
    """One core per process: idle threads that spin cost more than they bring on small models."""
    torch.set_num_threads(1)


def to_device_fp32(model: Any, hardware: Hardware) -> Any:
    """Move the model in place to the device, in fp32, for training; returns it."""
    return model.to(_device(hardware))


def to_device(model: Any, hardware: Hardware) -> Any:
    """Move the model in place to the device and the precision, from fp32; returns it.

    A rounded model is for sampling and for gradients of weights that are kept in fp32 elsewhere.
    """
    model = to_device_fp32(model, hardware)
    trunk, embedding, head = model.base_model, model.get_input_embeddings(), model.get_output_embeddings()
    if hardware.precision == "fp32" or dtype_of(trunk) != torch.float32:
        return model
    if head is None or embedding is None:
        raise UsageError(f"bf16: a {type(model).__name__} does not say which its embeddings are: take fp32")
    whole = {id(parameter) for module in (embedding, head) for parameter in module.parameters()}
    for parameter in model.parameters():
        if id(parameter) not in whole:
            parameter.data = parameter.data.to(torch.bfloat16)
    *_, last = trunk.parameters()
    embedding.register_forward_hook(partial(_as_layers, last=last))
    head.register_forward_pre_hook(_as_head)
    return model


def dtype_of(trunk: Any) -> torch.dtype:
    """Precision of the layers of a model's trunk; its embeddings may be wider."""
    *_, last = trunk.parameters()
    kind: torch.dtype = last.dtype
    return kind


def _as_layers(_module: Any, _inputs: Any, out: Tensor, *, last: Tensor) -> Tensor:
    return out.to(last.dtype)


def _as_head(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    hidden, *rest = inputs
    return (hidden.to(module.weight.dtype), *rest)
