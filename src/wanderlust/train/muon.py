"""Muon: momentum, orthogonalised, as the step of every matrix (Jordan et al. 2024), scaled to AdamW's step size.

The same rule as `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`, but orthogonalised in the parameters' own
precision: that one always uses bfloat16, whose small products are slow on CPUs (a step of the demo's optimizer
took 77 ms with it and 20 ms with this one, both on a busy core).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.775, 2.0315)
"""Of the quintic Newton-Schulz iteration."""
ITERATIONS = 5
SCALE = 0.2
"""Root mean square of an AdamW step, in learning rates (arXiv 2502.16982)."""


class Muon(torch.optim.Optimizer):
    """For matrices only; embeddings, heads and vectors belong to another optimizer."""

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step with Nesterov momentum; `closure` is not supported and must be None."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                mean: Tensor = state.setdefault("mean", torch.zeros_like(parameter))
                mean.lerp_(parameter.grad, 1 - group["momentum"])
                update = orthogonal(parameter.grad.lerp(mean, group["momentum"]))
                size = SCALE * max(parameter.shape) ** 0.5
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * size)


def orthogonal(matrix: Tensor) -> Tensor:
    """About U V^T of the singular value decomposition U S V^T of a [R, C] matrix."""
    a, b, c = COEFFICIENTS
    wide = matrix.shape[0] <= matrix.shape[1]
    x = matrix if wide else matrix.mT
    x = torch.div(x, x.norm().clamp(min=1e-7))
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.add(a * x, (b * gram + c * gram @ gram) @ x)
    return x if wide else x.mT
