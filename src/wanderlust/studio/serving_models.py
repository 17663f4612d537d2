"""Models as `wander serve` serves them. Needs the extra `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wanderlust.core.errors import UsageError
from wanderlust.core.extras import load
from wanderlust.policies.local import Engine
from wanderlust.policies.local.policy import LocalSampler
from wanderlust.policies.models import Adapt, Served
from wanderlust.policies.render import Renderer


def served(name: str, model: Any, tokenizer: Any, *, concurrency: int = 64, parent: str = "") -> Served:
    """A model with an engine of its own."""
    renderer = Renderer(tokenizer)
    engine = Engine(model, end_ids=renderer.end_ids, decode=tokenizer.decode, max_rows=concurrency)
    return Served(
        name=name,
        sampler=LocalSampler(engine),
        renderer=renderer,
        positions=engine.max_positions,
        vocabulary=int(model.config.vocab_size),
        parent=parent,
    )


def adapting(base: Served) -> Adapt:
    """Makes models of adapters: each is a copy of the base model with the adapter in its weights."""
    with_adapter = load("wanderlust.train.adapter:with_adapter", extra="lora")
    sampler = base.sampler
    if not isinstance(sampler, LocalSampler):
        raise UsageError(f"{base.name} is not a model of this process: adapters cannot be put into it")
    engine = sampler.engine

    def adapt(name: str, folder: Path) -> Served:
        model = with_adapter(engine.model, folder)
        return served(name, model, base.renderer.tokenizer, concurrency=engine.max_rows, parent=base.name)

    return adapt
