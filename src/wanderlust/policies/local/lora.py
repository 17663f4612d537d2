"""Low-rank adapters (LoRA, arXiv 2106.09685) on frozen weights, by `peft`."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, get_peft_model_state_dict, inject_adapter_in_model, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from wanderlust.errors import StoreError, UsageError, one_line, writing
from wanderlust.policies.local.pretrained import SCORE_HEAD
from wanderlust.store.whole_files import replacing

DEFAULT_ALPHA = 32
"""That of the Tinker API."""


def adapt(model: Any, *, rank: int, seed: int, alpha: int = DEFAULT_ALPHA) -> None:
    """Freeze the model and put adapters of this rank beside all its linear layers but the head; it answers as before.

    Their random half depends on `seed` alone. They are scaled by `alpha / rank`. The head of a reward model learns
    itself.
    """
    others = [SCORE_HEAD] if hasattr(model, SCORE_HEAD) else None
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules="all-linear", exclude_modules=others)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name or name == f"{SCORE_HEAD}.weight")


def merge_adapter(model: Any) -> Any:
    """A plain model with the adapters merged into its weights; the model itself where it has none."""
    if not any(isinstance(module, LoraLayer) for module in model.modules()):
        return model
    plain = copy.deepcopy(model)
    for name, module in list(plain.named_modules()):
        if isinstance(module, LoraLayer):
            module.merge()
            parent, _, own = name.rpartition(".")
            setattr(plain.get_submodule(parent), own, module.get_base_layer())
    return plain


ADAPTER_WEIGHTS_FILE, ADAPTER_CONFIG_FILE, PEFT_KEY_PREFIX = (
    "adapter_model.safetensors",
    "adapter_config.json",
    "base_model.model.",
)


def save_adapter(path: Path, model: Any) -> None:
    """Save the adapters as a folder that `peft` and vLLM load; it is replaced atomically.

    Raises UsageError for a model without adapters.
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    if not layers:
        raise UsageError("the model has no adapters to save: call adapt first")
    layer = next(iter(layers.values()))
    rank, alpha = layer.r["default"], layer.lora_alpha["default"]
    settings = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        target_modules=sorted({name.rpartition(".")[2] for name in layers}),
        task_type="CAUSAL_LM",
        base_model_name_or_path=getattr(model.config, "_name_or_path", ""),
    )
    weights = get_peft_model_state_dict(model, adapter_name="default")
    tensors = {PEFT_KEY_PREFIX + name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    with writing(path), replacing(path) as draft:
        settings.save_pretrained(str(draft))
        save_file(tensors, draft / ADAPTER_WEIGHTS_FILE)


def with_adapter(model: Any, path: Path) -> Any:
    """A copy of a plain model with a saved adapter written into its weights. StoreError when the folder holds none.

    No code of the folder is run and nothing is fetched.
    """
    try:
        settings = json.loads((path / ADAPTER_CONFIG_FILE).read_text())
        config = PeftConfig.from_peft_type(**{**settings, "inference_mode": True})  # type: ignore[no-untyped-call]
        weights = {
            name.removeprefix(PEFT_KEY_PREFIX): weight
            for name, weight in load_file(path / ADAPTER_WEIGHTS_FILE).items()
        }
        copied = copy.deepcopy(model)
        inject_adapter_in_model(config, copied)
        load_result: Any = set_peft_model_state_dict(copied, weights, adapter_name="default")
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        why = one_line(str(error) or type(error).__name__)
        raise StoreError(f"cannot load the adapter {path}: {why}") from error
    missing = [name for name in load_result.missing_keys if "lora_" in name]
    if load_result.unexpected_keys or missing:
        raise StoreError(f"cannot load the adapter {path}: it belongs to another model")
    return merge_adapter(copied)
