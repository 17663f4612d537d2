"""The engine in this process as a trainer: it samples from the published weights while the newest ones learn."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from torch import Tensor

from wanderlust.policies.base import PLAIN, Hardware, Sampled, Sampling
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.device import moved, placed
from wanderlust.policies.local.engine import Engine
from wanderlust.policies.local.policy import LocalSampler
from wanderlust.training import gradient, losses
from wanderlust.training.batch.collate import Totals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.gradient import Differentiator, combine
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.optimizer import OptimizerConfig, set_weights, weights_of
from wanderlust.training.weights import Owner

T = TypeVar("T")


class Embedded:
    """A `Trainer` with three copies of the model: newest, published, and one to be examined.

    Gradients and steps are computed in one thread of their own, so that episodes go on meanwhile. At `publish` the
    weights change between two passes of the sampler: answers under way go on, reading what they remember under the
    old weights. Every token keeps the log-probability it was drawn with, and the answer names the oldest weights
    that had a part in it; what a correction makes up for is thus known. A context manager that ends the thread.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        config: OptimizerConfig,
        *,
        temperature: float = 1.0,
        micro_batch: int = 64,
        fast: bool = False,
        hardware: Hardware = PLAIN,
    ):
        """`model` is trained in place: all of it, or the adapters beside it. `temperature` is that of the draws.

        Where the hardware rounds, a fourth copy is rounded and read, and `model` learns in fp32.
        """
        self.owner, self.renderer = Owner(moved(model.eval(), hardware), config), Renderer(tokenizer)
        self.hardware = hardware
        self.published, self.aside = (self._copy(model, tokenizer) for _ in range(2))
        read = model if hardware.precision == "fp32" else placed(copy.deepcopy(model), hardware)
        self._reads = Differentiator(
            read, loss=losses.CISPO, temperature=temperature, micro_batch=micro_batch, fast=fast
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trainer")

    def _copy(self, model: Any, tokenizer: Any) -> LocalSampler:
        end_ids = self.renderer.end_ids
        copied = placed(copy.deepcopy(model), self.hardware)
        return LocalSampler(Engine(copied, end_ids=end_ids, decode=tokenizer.decode))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()

    @property
    def model(self) -> Any:
        """The model with the newest weights."""
        return self.owner.model

    @property
    def version(self) -> int:
        """How often weights were published."""
        return self.owner.version

    def begin(self, config: OptimizerConfig) -> None:
        """A fresh optimizer."""
        self.owner.begin(config)

    async def sample(self, prompt: Sequence[int], sampling: Sampling, *, key: int, session: str = "") -> Sampled:
        """Draw one answer from the published weights; equal keys draw equally."""
        return await self.published.sample(prompt, sampling, key=key, session=session)

    def release(self, session: str) -> None:
        """Forget a conversation."""
        self.published.release(session)

    async def forward_backward(
        self, samples: Sequence[Sample], loss: PolicyLoss, *, totals: Totals | None = None
    ) -> dict[str, float]:
        """Add a gradient. OutOfMemory where even half the micro-batch does not fit."""
        whole = totals or Totals.of(samples, loss)

        def added() -> dict[str, float]:
            return self.owner.add(combine([gradient.gradient(self._reading(loss), samples, whole)], whole.rl))

        return await self._compute(added)

    async def look(self, samples: Sequence[Sample], loss: PolicyLoss) -> list[list[float]]:
        """What the newest weights would have said."""

        def looked() -> list[list[float]]:
            return self._reading(loss).look(samples)

        return await self._compute(looked)

    async def optim_step(self) -> dict[str, float]:
        """Take the step."""
        return await self._compute(self.owner.step)

    async def publish(self) -> int:
        """The sampler has the newest weights from its next pass on."""
        self.owner.version += 1
        self._give(self.published, weights_of(self.model))
        return self.version

    def average(self, keep: float) -> None:
        """Let the average follow the weights."""
        self.owner.average(keep)

    @asynccontextmanager
    async def averaged(self) -> AsyncIterator[None]:
        """Inside, `aside` has the averaged weights."""
        self._give(self.aside, self.owner.averaged)
        yield

    async def settle(self) -> None:
        """The average becomes the weights."""
        self.owner.settle()
        await self.publish()

    async def save_state(self, path: Path) -> None:
        """One file."""
        await self._compute(lambda: self.owner.save(path))

    async def load_state(self, path: Path) -> None:
        """Go on from it."""
        self.owner.load(path)
        self._give(self.published, weights_of(self.model))

    def _give(self, sampler: LocalSampler, weights: Tensor) -> None:
        set_weights(sampler.engine.model, weights)
        sampler.engine.publish()
        sampler.engine.version = self.version

    def _reading(self, loss: PolicyLoss) -> Differentiator:
        """What reads the newest weights."""
        reads = self._reads
        if reads.model is not self.model:
            set_weights(reads.model, weights_of(self.model))
        reads.loss = loss
        return reads

    async def _compute(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
