"""Gradients to better weights: clipping, schedule, AdamW or Muon; state that can be saved and put back exactly.

Muon: momentum, orthogonalised, as the step of every matrix (Jordan et al. 2024), scaled to AdamW's step size.

The same rule as `torch.optim.Muon` with `adjust_lr_fn="match_rms_adamw"`, but orthogonalised in the parameters' own
precision: that one always uses bfloat16, whose small products are slow on CPUs (a step of the demo's optimizer
took 77 ms with it and 20 ms with this one, both on a busy core).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wanderlust.errors import StoreError, UsageError
from wanderlust.policies.local.inference_engine import Engine
from wanderlust.policies.local.products import product
from wanderlust.training.checkpoint import load_state, save_state
from wanderlust.training.config import OptimizerConfig
from wanderlust.training.gradient import Gradient

NOTHING_ADDED = "optim_step comes after forward_backward: no gradient was added"
"""The line of the error of every trainer."""
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
        gram = product(x, x)
        mixed = product(gram, gram).mul_(c).add_(gram, alpha=b)  # symmetric, as both are
        x = product(mixed, x.mT).add_(x, alpha=a)
    return x if wide else x.mT


class Optimizer:
    """Takes combined gradients one step at a time; counts its steps."""

    def __init__(self, model: Any, config: OptimizerConfig):
        self.config, self.taken = config, 0
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.parameters: list[Tensor] = [p for _, p in named]
        hidden = [
            p
            for name, p in named
            if config.method == "muon" and p.dim() == 2 and (not any(part in name for part in ("embed", "lm_head")))
        ]
        rest = [p for p in self.parameters if not any(p is h for h in hidden)]
        adamw = torch.optim.AdamW(
            rest, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=config.fused or None
        )
        self.methods: list[torch.optim.Optimizer] = [adamw]
        if hidden:
            self.methods.append(Muon(hidden, lr=config.lr, weight_decay=config.weight_decay))

    @torch.no_grad()
    def step(self, gradient: Gradient) -> dict[str, float]:
        """Clip and apply; returns the gradient's norm before clipping and the learning rate used."""
        norm = float(gradient.values.norm())
        if norm > self.config.max_norm:
            gradient.values *= self.config.max_norm / norm
        start = 0
        for parameter in self.parameters:
            count = parameter.numel()
            parameter.grad = gradient.values[start : start + count].view_as(parameter).to(parameter)
            start += count
        lr = self.config.lr_at(self.taken)
        for method in self.methods:
            for group in method.param_groups:
                group["lr"] = lr
            method.step()
        self.taken += 1
        return {"grad_norm": norm, "lr": lr}

    def skip(self) -> None:
        """Let the schedule go on without a step."""
        self.taken += 1

    def state(self) -> dict[str, Any]:
        """Everything that a later `restore` needs to go on bit for bit."""
        return {"methods": [method.state_dict() for method in self.methods], "taken": self.taken}

    def restore(self, state: dict[str, Any]) -> None:
        """Put a saved state back."""
        for method, saved in zip(self.methods, state["methods"], strict=True):
            method.load_state_dict(saved)
        self.taken = state["taken"]


def weights_of(model: Any) -> Tensor:
    """All trainable parameters as one vector [P], a copy."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters() if p.requires_grad])


@torch.no_grad()
def set_weights(model: Any, values: Tensor) -> None:
    """Write a vector made by `weights_of` into the model."""
    start = 0
    for parameter in (p for p in model.parameters() if p.requires_grad):
        parameter.copy_(values[start : start + parameter.numel()].view_as(parameter))
        start += parameter.numel()


def publish_weights(engine: Engine, values: Tensor, version: int) -> None:
    """Let a sampler go on with these weights [P], under this version; it forgets what it computed under the old."""
    set_weights(engine.model, values)
    engine.publish()
    engine.version = version


class TrainableWeights:
    """Weights, moving average and optimizer, shared by all local trainers."""

    def __init__(self, model: Any, config: OptimizerConfig):
        """UsageError for a model in bf16: small steps would be rounded away."""
        if any(p.requires_grad and p.dtype.itemsize < 4 for p in model.parameters()):
            raise UsageError("what learns is kept in fp32, and this model is not: call its float(), or load_pretrained")
        self.model, self.version = model, 0
        self.begin(config)

    def begin(self, config: OptimizerConfig) -> None:
        """A fresh optimizer; the average begins at the weights of now."""
        self.optimizer = Optimizer(self.model, config)
        self.ema_weights = weights_of(self.model)
        self._added: Gradient | None = None

    def add(self, gradient: Gradient) -> dict[str, float]:
        """Take in the gradient of a piece of the batch, divided already; returns what is known of the piece."""
        figures = {**gradient.sums.metrics(), "tokens": float(gradient.sums.tokens)}
        if self._added is None:
            self._added = gradient
        else:
            self._added.values += gradient.values
            self._added.sums.add(gradient.sums)
        return figures

    def step(self) -> dict[str, float]:
        """Step along what was added. Loss or gradient that is no finite number: the schedule goes on, nothing else.

        A gradient of 0 is a step as well: what momentum there is goes on.
        """
        gradient, self._added = self._added, None
        if gradient is None:
            raise UsageError(NOTHING_ADDED)
        if gradient.finite:
            return self.optimizer.step(gradient)
        lr = self.optimizer.config.lr_at(self.optimizer.taken)
        self.optimizer.skip()
        return {"skipped": 1.0, "lr": lr}

    def update_ema(self, decay: float) -> None:
        """Let the average follow the weights."""
        self.ema_weights = torch.lerp(weights_of(self.model), self.ema_weights, decay)

    def use_ema(self) -> None:
        """Make the average the newest weights."""
        set_weights(self.model, self.ema_weights)

    def whole_model(self, *, averaged: bool = False) -> Any:
        """The model, or a copy with the averaged weights."""
        if not averaged:
            return self.model
        copied = copy.deepcopy(self.model)
        set_weights(copied, self.ema_weights)
        return copied

    def save(self, path: Path) -> None:
        """Everything in one file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "shape": _shape(self.model),
            "weights": weights_of(self.model),
            "averaged": self.ema_weights,
            "optimizer": self.optimizer.state(),
            "version": self.version,
        }
        save_state(path, state)

    def load(self, path: Path) -> None:
        """Put back what `save` kept. StoreError when it is something else or of another model."""
        state = load_state(path)
        if state.get("shape") != _shape(self.model):
            raise StoreError(f"{path} is the state of another model or of other adapters; nothing was changed")
        if state["weights"].dtype.itemsize < 4:
            raise StoreError(f"{path} has its weights in {state['weights'].dtype}, and they learn in fp32")
        set_weights(self.model, state["weights"])
        self.ema_weights, self.version, self._added = state["averaged"].to(self.ema_weights), state["version"], None
        self.optimizer.restore(state["optimizer"])


def _shape(model: Any) -> list[list[Any]]:
    """Names and sizes of what is trained."""
    return [[name, *p.shape] for name, p in model.named_parameters() if p.requires_grad]
