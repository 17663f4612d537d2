"""Matrix products in fp32, by the library that suits the processor.

PyTorch gives them to MKL, which computes with AVX2 on processors that are not Intel's. oneDNN, which PyTorch ships as
well, takes AVX-512 wherever it is, and then needs half of the time (docs/decisions/0055).
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

MIN_MULTIPLICATIONS = 2**20
"""Smaller products take longer to hand over to oneDNN than to compute."""
CPU_DESCRIPTION = Path("/proc/cpuinfo")


@cache
def uses_onednn() -> bool:
    """Whether products go to oneDNN here: on processors with AVX-512 that are not Intel's."""
    described = ""
    with suppress(OSError):
        described = CPU_DESCRIPTION.read_text()
    return (
        "AuthenticAMD" in described
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def product(x: Tensor, weight: Tensor) -> Tensor:
    """`x` [..., K] times the transpose of `weight` [N, K]: [..., N], with gradients; as a linear layer without bias."""
    suits = (
        x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and x.numel() * len(weight) >= MIN_MULTIPLICATIONS
        and uses_onednn()
    )
    if not suits:
        return functional.linear(x, weight)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        out: Tensor = _Product.apply(x, weight)  # type: ignore[no-untyped-call]
        return out
    return _by_onednn(_padded(x.flatten(0, -2)), weight)[: x.numel() // x.shape[-1]].view(*x.shape[:-1], -1)


def projected(layer: Any, x: Tensor) -> Tensor:
    """What a linear layer makes of `x`; one with a bias, adapters, hooks or another precision computes it itself."""
    plain = type(layer) is torch.nn.Linear and layer.bias is None and not layer._forward_pre_hooks
    if plain and not layer._forward_hooks and layer.weight.dtype == x.dtype:
        return product(x, layer.weight)
    out: Tensor = layer(x)
    return out


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        x, weight = inputs
        padded = _padded(x.flatten(0, -2))
        ctx.save_for_backward(padded, weight)
        return _by_onednn(padded, weight)[: x.numel() // x.shape[-1]].view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        padded, weight = ctx.saved_tensors
        count = gradient.numel() // gradient.shape[-1]
        own = _padded(gradient.reshape(count, -1))
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = _by_onednn(own, weight.T)[:count].view(*gradient.shape[:-1], -1)
        if ctx.needs_input_grad[1]:  # the fewer rows the result has, the faster it is
            wide = own.shape[1] <= padded.shape[1]
            of_weight = _by_onednn(own.T, padded.T) if wide else _by_onednn(padded.T, own.T).T
        return of_x, of_weight


def missing_rows(count: int) -> int:
    """Rows that a matrix of `count` lacks of a round number; oneDNN generates code for every new one."""
    return -count % (8 if count <= 64 else 32 if count <= 512 else 64) if uses_onednn() else 0


def _padded(x: Tensor) -> Tensor:
    missing = missing_rows(len(x))
    return functional.pad(x, (0, 0, 0, missing)) if missing else x


def _by_onednn(x: Tensor, weight: Tensor) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return out
