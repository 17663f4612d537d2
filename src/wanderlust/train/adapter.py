"""Low-rank adapters (LoRA, arXiv 2106.09685) beside frozen weights, by `peft`."""

from __future__ import annotations

import copy
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer


def adapt(model: Any, *, rank: int, seed: int) -> None:
    """Freeze the model and put adapters of this rank beside all its linear layers but the head; it answers as before.

    Their random half depends on `seed` alone. They are scaled by 2, whatever the rank.
    """
    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)


def merged(model: Any) -> Any:
    """A plain model with what the adapters learnt written into its weights; the model itself where it has none."""
    if not any(isinstance(module, LoraLayer) for module in model.modules()):
        return model
    plain = copy.deepcopy(model)
    for name, module in list(plain.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent, _, own = name.rpartition(".")
            setattr(plain.get_submodule(parent), own, module.get_base_layer())
    return plain
