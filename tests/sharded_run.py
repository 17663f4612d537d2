"""Small training runs for any number of processes: `torchrun ... tests/sharded_run.py FOLDER` makes three of them."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from toys import SHAPE, TOKENIZER
from wanderlust.policies.base import SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.inference_engine import Engine
from wanderlust.policies.local.lora import adapt
from wanderlust.policies.local.policy import LocalSampler
from wanderlust.training import gradient
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import OptimizerConfig
from wanderlust.training.losses import CISPO_LOSS, KL
from wanderlust.training.optimizer import weights_of
from wanderlust.training.tiny_model import fresh_model
from wanderlust.training.trainers.base import Trainer
from wanderlust.training.trainers.fsdp import (
    ShardedConfig,
    ShardedTrainer,
    all_gather,
    copy_weights,
    distributed,
    rank_and_world_size,
)

STEPS, KEPT = 6, 3
OPTIMIZER = OptimizerConfig(steps=STEPS, lr=3e-3, warmup=2, weight_decay=0.01, max_norm=0.5)
LOSS = replace(CISPO_LOSS, entropy=0.01, kl=KL(weight=0.1))
MICRO_BATCH = 2
FILE_BYTES = 30_000


class LocalWeightReceiver(LocalSampler):
    """The engine of this process, over a whole copy of the model that is trained."""

    @torch.no_grad()
    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Write the weights into the engine's model; what it remembered under the old ones is forgotten."""
        copy_weights(self.engine.model, weights)
        self.engine.publish()


def model_of(kind: str) -> Any:
    """A model of two layers; `lora` trains adapters alone."""
    model = fresh_model(TOKENIZER, replace(SHAPE, layers=2), seed=4)
    if kind == "lora":
        adapt(model, rank=2, seed=1)
    return model


def samples_of(step: int) -> list[Sample]:
    """13 samples, so that two processes never have equally many."""
    rng, out = Random(f"samples/{step}"), []
    for number in range(13):
        sample, length = Sample(), rng.randrange(4, 20)
        sample.append_context([rng.randrange(11) for _ in range(3)])
        ids, credit = [rng.randrange(11) for _ in range(length)], rng.choice([-1.0, 0.5, 1.0])
        sample.append_completion(ids, [-2.0 - rng.random() for _ in ids], [credit] * length)
        if number % 3 == 0:
            sample.add_terms(ce=0.3, kl=0.1, reference=[-2.3] * length)
        out.append(sample)
    return out


def trainer_of(kind: str, **config: Any) -> ShardedTrainer:
    """A trainer whose sampler has a copy of its own."""
    model, renderer = model_of(kind), Renderer(TOKENIZER)
    engine = Engine(copy.deepcopy(model), end_ids=renderer.end_ids, decode=TOKENIZER.decode)
    settings = ShardedConfig(optimizer=OPTIMIZER, micro_batch=MICRO_BATCH, **config)
    return ShardedTrainer(model, settings, sampler=LocalWeightReceiver(engine))


async def run(trainer: Trainer, folder: Path, *, first: int = 0, last: int = STEPS) -> list[dict[str, float]]:
    """The figures of each step."""
    told = []
    if first:
        await trainer.load_state(folder / "state")
    for step in range(first, last):
        samples = samples_of(step)
        totals = BatchTotals.of(samples, LOSS)
        for part in (samples[:5], samples[5:]):
            figures = await trainer.forward_backward(part, LOSS, totals=totals)
        told.append({**figures, **await trainer.optim_step()})
        if step + 1 == KEPT:
            await trainer.save_state(folder / "state")
    return told


async def finish(trainer: ShardedTrainer, folder: Path, told: list[dict[str, float]]) -> None:
    """Write what came of a run: figures, the published weights, an answer, and who took part."""
    await trainer.publish()
    answer = await trainer.sample([5, 6, 7], SamplingOptions(max_tokens=8), key=3)
    here = sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in trainer.model.parameters())
    parts, export = all_gather([here]), folder / "export"
    if all(parameter.requires_grad for parameter in trainer.model.parameters()):
        trainer.export(export, file_bytes=FILE_BYTES)
    if rank_and_world_size()[0] == 0:
        files = sorted(file.name for file in export.glob("*"))
        trainer.model.config.save_pretrained(export)
        body = {"figures": told, "answer": answer.ids, "parts": parts, "files": files}
        (folder / "told.json").write_text(json.dumps(body))
        torch.save(weights_of(trainer.sampler.engine.model), folder / "weights.pt")  # type: ignore[attr-defined]


async def main(folder: Path) -> None:
    """A whole run; one from a kept state; one in packed lines and few logits; in bfloat16; offloaded; one killed."""
    trainer = trainer_of("full", recompute=True)
    await finish(trainer, folder / "full", await run(trainer, folder / "full"))
    trainer = trainer_of("lora")
    await finish(trainer, folder / "lora", await run(trainer, folder / "lora", first=KEPT))
    most, gradient.MAX_LOGITS = gradient.MAX_LOGITS, 5 * len(TOKENIZER)
    trainer = trainer_of("full", micro_batch_tokens=40, recompute=True)
    assert trainer._passing.packs
    await finish(trainer, folder / "lean", await run(trainer, folder / "lean"))
    gradient.MAX_LOGITS = most
    trainer, widths = trainer_of("full", context_parallel=2, recompute=True), list[int]()
    trainer.model.base_model.register_forward_pre_hook(
        lambda _, __, given: widths.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    await finish(trainer, folder / "split", await run(trainer, folder / "split"))
    assert 2 < max(widths) <= 12  # of sequences of up to 22 tokens
    gathered = await trainer.compute_logprobs(samples_of(0), LOSS)
    (folder / f"logprobs-{rank_and_world_size()[0]}.json").write_text(json.dumps(gathered))
    trainer = trainer_of("full", precision="bf16", recompute=True)
    await finish(trainer, folder / "mixed", await run(trainer, folder / "mixed", last=KEPT))
    trainer = trainer_of("full", offload=True)
    await finish(trainer, folder / "offloaded", await run(trainer, folder / "offloaded", last=KEPT))
    await run(trainer_of("full"), folder / "killed", last=KEPT + 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with distributed():
        asyncio.run(main(Path(sys.argv[1])))
