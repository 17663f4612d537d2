"""Weights that learn in this process, and the engine of this process as a trainer over them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from wanderlust.policies.base import DEFAULT_HARDWARE, Hardware, SampledTokens, SamplingOptions
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.device import one_thread, to_device, to_device_fp32
from wanderlust.policies.local.inference_engine import Engine
from wanderlust.policies.local.policy import LocalSampler
from wanderlust.training import gradient, losses
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import OptimizerConfig
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.group_source import open_player
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.models import cache_bytes, gradient_settings, load_trainable
from wanderlust.training.optimizer import TrainableWeights, publish_weights, set_weights, weights_of
from wanderlust.training.trainers.base import EngineOptions, TrainingSetup

T = TypeVar("T")


class LocalLearner:
    """A `Trainer` in this process from which nobody samples.

    Gradients and steps are computed in one thread of their own, so that episodes go on meanwhile.

    A context manager that ends the thread. Where the hardware rounds, a copy is rounded and read, and `model` learns
    in fp32.
    """

    def __init__(
        self,
        model: Any,
        config: OptimizerConfig,
        *,
        hardware: Hardware = DEFAULT_HARDWARE,
        **reading: Any,
    ):
        """`model` is trained in place: all of it, or the adapters beside it. `reading` is as of `GradientComputer`."""
        self.weights, self.hardware = TrainableWeights(to_device_fp32(model.eval(), hardware), config), hardware
        read = model if hardware.precision == "fp32" else to_device(copy.deepcopy(model), hardware)
        self._reads = GradientComputer(read, loss=losses.CISPO_LOSS, **reading)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trainer")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()

    @property
    def model(self) -> Any:
        """The model with the newest weights."""
        return self.weights.model

    @property
    def version(self) -> int:
        """Number of times that weights were published."""
        return self.weights.version

    def begin(self, config: OptimizerConfig) -> None:
        """A fresh optimizer."""
        self.weights.begin(config)

    async def forward_backward(
        self, samples: Sequence[Sample], loss: PolicyLoss, *, totals: BatchTotals | None = None
    ) -> dict[str, float]:
        """Add a gradient. OutOfMemory where even half the micro-batch does not fit."""
        whole = totals or BatchTotals.of(samples, loss)

        def added() -> dict[str, float]:
            return self.weights.add(
                combine([gradient.gradient_with_oom_retry(self._gradient_computer(loss), samples, whole)], whole.rl)
            )

        return await self._compute(added)

    async def compute_logprobs(self, samples: Sequence[Sample], loss: PolicyLoss) -> list[list[float]]:
        """Log-probabilities under the newest weights."""

        def looked() -> list[list[float]]:
            return self._gradient_computer(loss).compute_logprobs(samples)

        return await self._compute(looked)

    async def optim_step(self) -> dict[str, float]:
        """Take the step."""
        return await self._compute(self.weights.step)

    def update_ema(self, decay: float) -> None:
        """Let the average follow the weights."""
        self.weights.update_ema(decay)

    async def publish(self) -> int:
        """Count one more version."""
        self.weights.version += 1
        return self.version

    @asynccontextmanager
    async def ema_weights(self) -> AsyncIterator[None]:
        """Nothing is evaluated here."""
        yield

    async def use_ema(self) -> None:
        """The average becomes the weights."""
        self.weights.use_ema()
        await self.publish()

    async def save_state(self, path: Path) -> None:
        """One file."""
        await self._compute(lambda: self.weights.save(path))

    async def load_state(self, path: Path) -> None:
        """Go on from it."""
        self.weights.load(path)

    async def whole_model(self, *, averaged: bool = False) -> Any:
        """The model that learns, or a copy with the averaged weights."""
        return self.weights.whole_model(averaged=averaged)

    def _gradient_computer(self, loss: PolicyLoss) -> GradientComputer:
        """The gradient computer of the newest weights."""
        reads = self._reads
        if reads.model is not self.model:
            set_weights(reads.model, weights_of(self.model))
        reads.loss = loss
        return reads

    async def _compute(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class InProcessTrainer(LocalLearner):
    """A `Trainer` with three copies of the model: newest, published, and one to be examined.

    It samples from the published weights while the newest ones learn. At `publish` the weights change between two
    passes of the sampler: answers under way go on, reading what they remember under the old weights. Every token keeps
    the log-probability it was drawn with, and the answer names the oldest weights that had a part in it; what a
    correction makes up for is thus known.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        config: OptimizerConfig,
        *,
        hardware: Hardware = DEFAULT_HARDWARE,
        cache_bytes: int = 0,
        **reading: Any,
    ):
        """As `LocalLearner`; `tokenizer` ends and decodes the answers; `cache_bytes`: see `Engine`."""
        super().__init__(model, config, hardware=hardware, **reading)
        self.renderer = Renderer(tokenizer)
        copies = (to_device(copy.deepcopy(model), hardware) for _ in range(2))
        ends, decode = self.renderer.end_ids, tokenizer.decode
        engines = (Engine(one, end_ids=ends, decode=decode, cache_bytes=cache_bytes) for one in copies)
        self.published, self.eval_sampler = map(LocalSampler, engines)

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw one answer from the published weights; equal keys draw equally."""
        return await self.published.sample(prompt, sampling, key=key, session=session)

    def release(self, session: str) -> None:
        """Forget a conversation."""
        self.published.release(session)

    async def publish(self) -> int:
        """The sampler has the newest weights from its next pass on."""
        await super().publish()
        publish_weights(self.published.engine, weights_of(self.model), self.version)
        return self.version

    @asynccontextmanager
    async def ema_weights(self) -> AsyncIterator[None]:
        """Inside, `eval_sampler` has the averaged weights."""
        publish_weights(self.eval_sampler.engine, self.weights.ema_weights, self.version)
        yield

    async def load_state(self, path: Path) -> None:
        """Go on from it."""
        await super().load_state(path)
        publish_weights(self.published.engine, weights_of(self.model), self.version)


@asynccontextmanager
async def in_process_engine(options: EngineOptions) -> AsyncIterator[TrainingSetup]:
    """This process plays and learns at once, so that rollouts may be stale."""
    config = options.config
    one_thread()
    model, tokenizer = load_trainable(config, options.start)
    cache = cache_bytes(config, model.device)
    reading, hardware = gradient_settings(config), config.hardware
    learning = InProcessTrainer(model, tokenizer, config.rl_optimizer, hardware=hardware, cache_bytes=cache, **reading)
    with learning as trainer:
        playing = open_player(
            config, options.start, tokenizer, training=trainer, evaluation=trainer.eval_sampler, ray=options.ray
        )
        async with playing as player:
            yield TrainingSetup(
                trainer=trainer,
                tokenizer=tokenizer,
                algorithm=player.algorithm,
                player=player,
                whole_model=trainer.whole_model,
            )
