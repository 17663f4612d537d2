"""The one owner of a model's weights: newest, averaged, the optimizer, and the gradient that is being added up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from wanderlust.errors import StoreError, UsageError
from wanderlust.training.checkpoint import load_state, save_state
from wanderlust.training.config import OptimizerConfig
from wanderlust.training.gradient import Gradient
from wanderlust.training.optimizer import Optimizer, set_weights, weights_of


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
            raise UsageError("optim_step comes after forward_backward: no gradient was added")
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
