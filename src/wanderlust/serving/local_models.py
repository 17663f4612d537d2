"""Models of this process as served models, and their adapters. Needs the extra `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wanderlust._lazy import needs_extra
from wanderlust.errors import UsageError
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local import Engine
from wanderlust.policies.local.policy import LocalSampler
from wanderlust.serving.model_api import LoadAdapter, ServedModel


def make_served_model(name: str, model: Any, tokenizer: Any, *, concurrency: int = 64, parent: str = "") -> ServedModel:
    """Make a served model with an engine of its own."""
    renderer = Renderer(tokenizer)
    engine = Engine(model, end_ids=renderer.end_ids, decode=tokenizer.decode, max_rows=concurrency)
    return ServedModel(
        name=name,
        sampler=LocalSampler(engine, tokenizer),
        renderer=renderer,
        max_positions=engine.max_positions,
        vocabulary_size=int(model.config.vocab_size),
        parent=parent,
    )


def adapter_loader(base: ServedModel) -> LoadAdapter:
    """Make a loader of adapters; each becomes a copy of the base model with the adapter in its weights."""
    with needs_extra("lora"):
        from wanderlust.policies.local.lora import with_adapter
    sampler = base.sampler
    if not isinstance(sampler, LocalSampler):
        raise UsageError(f"{base.name} is not a model of this process: adapters cannot be put into it")
    engine = sampler.engine

    def adapt(name: str, folder: Path) -> ServedModel:
        model = with_adapter(engine.model, folder)
        return make_served_model(name, model, base.renderer.tokenizer, concurrency=engine.max_rows, parent=base.name)

    return adapt
