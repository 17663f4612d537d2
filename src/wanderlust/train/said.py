"""Log-probabilities of single tokens and the entropy where they stand, with a gradient that makes few passes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def said(logits: Tensor, targets: Tensor, rows: Tensor | None, *, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Of softmax(logits / temperature): the log-probability of every target [N], and the entropy of every row [U].

    `logits` are [U, V]; `rows` [N] says whose each target is (None: one target a row). Both have gradients.
    """
    out: tuple[Tensor, Tensor] = _Said.apply(logits, targets, rows, temperature)  # type: ignore[no-untyped-call]
    return out


class _Said(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        logits, targets, rows, temperature = given
        wide = logits.float() if temperature == 1.0 else logits.float() / temperature
        logp = torch.log_softmax(wide, -1)
        p = logp.exp()
        entropy = -(p * logp).sum(-1)
        ctx.save_for_backward(logp, p, entropy, targets, rows)
        ctx.temperature, ctx.kind = temperature, logits.dtype
        ctx.set_materialize_grads(False)
        return (logp.gather(1, targets[:, None])[:, 0] if rows is None else logp[rows, targets]), entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, said: Tensor | None, spread: Tensor | None) -> tuple[Tensor, None, None, None]:
        logp, p, entropy, targets, rows = ctx.saved_tensors
        if said is None:
            out = torch.zeros_like(p)
        elif rows is None:
            out = (p * -said[:, None]).scatter_add_(1, targets[:, None], said[:, None])
        else:
            out = p * -said.new_zeros(len(p)).index_add_(0, rows, said)[:, None]
            out.index_put_((rows, targets), said, accumulate=True)
        if spread is not None:
            out -= spread[:, None] * p * (logp + entropy[:, None])
        if ctx.temperature != 1.0:
            out /= ctx.temperature
        return out.to(ctx.kind), None, None, None
