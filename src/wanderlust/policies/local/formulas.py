"""What stands between the matrix products of a Llama, with gradients written by hand: few passes over the numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


def normed(x: Tensor, norm: Any) -> Tensor:
    """RMSNorm (arXiv 1910.07467) of the last dimension, by a module with `weight` and `variance_epsilon`."""
    if torch.is_grad_enabled():
        out: Tensor = _Normed.apply(x, norm.weight, norm.variance_epsilon)  # type: ignore[no-untyped-call]
        return out
    out = (x.float() * _scale(x, norm.variance_epsilon)).to(x.dtype).mul_(norm.weight)
    return out


def _scale(x: Tensor, epsilon: float) -> Tensor:
    """One over the root of the mean square, float32 [..., 1]."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    scale: Tensor = length.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
    return scale


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        x, weight, epsilon = given
        scale = _scale(x, epsilon)
        ctx.save_for_backward(x, weight, scale)
        out: Tensor = (x.float() * scale).to(x.dtype).mul_(weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight, scale = ctx.saved_tensors
        unit, gradient, wide = x.float() * scale, gradient.float(), weight.float()
        shares = gradient * unit
        mean = torch.mv(shares.flatten(0, -2), wide).div_(x.shape[-1]).view_as(scale)
        out = (gradient * wide).addcmul_(unit, mean, value=-1).mul_(scale)
        whole = shares.flatten(0, -2).sum(0).to(weight.dtype) if ctx.needs_input_grad[1] else None
        return out.to(x.dtype), whole, None


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions (arXiv 2104.09864) on [..., heads, D], halves as pairs; `cos` and `sin` are [..., 1, D]."""
    if torch.is_grad_enabled():
        out: Tensor = _Rotated.apply(x, cos, sin)  # type: ignore[no-untyped-call]
        return out
    return _turned(x, cos, sin, sign=1)


def _turned(x: Tensor, cos: Tensor, sin: Tensor, *, sign: int) -> Tensor:
    half = x.shape[-1] // 2
    sin = sin[..., :half]
    out = x * cos
    out[..., :half].addcmul_(x[..., half:], sin, value=-sign)
    out[..., half:].addcmul_(x[..., :half], sin, value=sign)
    return out


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        x, cos, sin = given
        ctx.save_for_backward(cos, sin)
        return _turned(x, cos, sin, sign=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _turned(gradient, *ctx.saved_tensors, sign=-1), None, None


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """SwiGLU's middle (arXiv 2002.05202); takes both over."""
    if torch.is_grad_enabled():
        return functional.silu(gate) * up
    return functional.silu(gate, inplace=True).mul_(up)
