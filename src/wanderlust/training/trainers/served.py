"""A trainer whose answers come from servers: weights learn here, and reach the servers through a folder."""

from __future__ import annotations

import asyncio
import copy
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from wanderlust._lazy import needs_extra
from wanderlust.errors import writing
from wanderlust.policies.base import SampledTokens, SamplingOptions
from wanderlust.policies.vllm_servers import VLLMServers, WeightFormat
from wanderlust.store.whole_files import replacing
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import OptimizerConfig
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.trainers.base import SupportsWholeModel

KEPT_EXPORTS = 3
"""Exported weights that stay: servers may still read the older ones."""


class ServedTrainer:
    """A `Trainer` made of one without a sampler, and of servers that sample.

    At `publish` the newest weights are written to a folder that the servers read: the adapter where there is one, else
    a whole checkpoint; or all of them are sent over the network. With adapters, answers under way end under the weights
    they began with; with whole weights they are held and go on under the new ones, and their version is the older.
    While averaged weights are evaluated, other requests wait.
    """

    def __init__(self, learner: SupportsWholeModel, servers: VLLMServers, *, folder: Path, kind: WeightFormat):
        """`folder`, which servers and learner share, takes the exported weights."""
        self.learner, self.servers, self.folder, self.kind = learner, servers, folder, kind
        self._exports = self._under_way = 0
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._idle.set()

    @property
    def version(self) -> int:
        """Number of times that weights were published."""
        return self.learner.version

    def begin(self, config: OptimizerConfig) -> None:
        """A fresh optimizer."""
        self.learner.begin(config)

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw one answer with the weights that were published last."""
        await self._open.wait()
        self._under_way += 1
        self._idle.clear()
        try:
            return await self.servers.sample(prompt, sampling, key=key, session=session)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()

    def release(self, session: str) -> None:
        """A conversation is over."""
        self.servers.release(session)

    async def forward_backward(
        self, samples: Sequence[Sample], loss: PolicyLoss, *, totals: BatchTotals | None = None
    ) -> dict[str, float]:
        """The learner's gradient, and how the servers fare."""
        return {**await self.learner.forward_backward(samples, loss, totals=totals), **self.servers.metrics()}

    async def compute_logprobs(self, samples: Sequence[Sample], loss: PolicyLoss) -> list[list[float]]:
        """Log-probabilities under the newest weights."""
        return await self.learner.compute_logprobs(samples, loss)

    async def optim_step(self) -> dict[str, float]:
        """The learner's step."""
        return await self.learner.optim_step()

    async def publish(self) -> int:
        """Write the newest weights and have every server read them."""
        await self.learner.publish()
        await self._send(averaged=False)
        return self.version

    def update_ema(self, decay: float) -> None:
        """Let the average follow the weights."""
        self.learner.update_ema(decay)

    @asynccontextmanager
    async def ema_weights(self) -> AsyncIterator[None]:
        """Inside, `EvaluationSampler` draws with the averaged weights; what is under way ends before."""
        self._open.clear()
        try:
            await self._idle.wait()
            await self._send(averaged=True)
            yield
            await self._send(averaged=False)
        finally:
            self._open.set()

    async def use_ema(self) -> None:
        """The average becomes the weights."""
        await self.learner.use_ema()
        await self._send(averaged=False)

    async def save_state(self, path: Path) -> None:
        """The learner's."""
        await self.learner.save_state(path)

    async def load_state(self, path: Path) -> None:
        """The learner's, published under the version it had then."""
        await self.learner.load_state(path)
        await self._send(averaged=False)

    async def _send(self, *, averaged: bool) -> None:
        model = await self.learner.whole_model(averaged=averaged)
        if self.kind == "tensors":
            copies = [(name, tensor.to("cpu", copy=True)) for name, tensor in untied(model).state_dict().items()]
            await self.servers.publish(copies, self.version, self.kind)
            return
        self._exports += 1
        folder = self.folder / f"{self._exports:06}"
        await asyncio.to_thread(write_weights, folder, model, kind=self.kind)
        await self.servers.publish(folder, self.version, self.kind)
        for old in sorted(self.folder.iterdir())[:-KEPT_EXPORTS]:
            shutil.rmtree(old, ignore_errors=True)


class EvaluationSampler:
    """The servers, for whoever evaluates inside `ema_weights`: its requests do not wait."""

    def __init__(self, trainer: ServedTrainer):
        self.servers = trainer.servers
        self.sample: Callable[..., Any] = trainer.servers.sample
        self.release = trainer.servers.release


def write_weights(folder: Path, model: Any, *, kind: WeightFormat) -> None:
    """Write what servers read: the adapter of the model, or all its weights with the head beside the embeddings."""
    if kind == "adapter":
        with needs_extra("lora"):
            from wanderlust.policies.local.lora import save_adapter
        save_adapter(folder, model)
    else:
        with writing(folder), replacing(folder) as draft:
            untied(model).save_pretrained(draft)


@torch.no_grad()
def untied(model: Any) -> Any:
    """The model with a head of its own.

    vLLM on processors packs the head's weights when it starts, and reloading leaves them as they were where they are
    the embeddings' (vLLM 0.32, measured: log-probabilities were off by 0.2).
    """
    if not model.config.tie_word_embeddings:
        return model
    head = model.get_output_embeddings()
    shell = copy.copy(model)
    shell._modules = dict(model._modules)
    shell.config = copy.deepcopy(model.config)
    shell.config.tie_word_embeddings = False
    own = nn.Linear(head.in_features, head.out_features, bias=head.bias is not None)
    own.weight = nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    shell.set_output_embeddings(own)
    return shell
