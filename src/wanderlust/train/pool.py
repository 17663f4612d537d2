"""A few worker processes as one trainer: every batch is cut into shards, and the shards are dealt to the workers."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from wanderlust.core.types import Group, Task
from wanderlust.policies.local.policy import LocalPolicy, LocalSampler
from wanderlust.policies.sampling import Sampled, Sampling
from wanderlust.train.batch import Totals
from wanderlust.train.gradient import combine
from wanderlust.train.losses import PolicyLoss
from wanderlust.train.optimizer import OptimizerConfig, set_weights, weights_of
from wanderlust.train.owner import Owner
from wanderlust.train.replica import Replica
from wanderlust.train.samples import Sample
from wanderlust.train.shards import dealt, joined, split
from wanderlust.train.workers import Workers


class Pool:
    """A `Trainer` and a `Player` over replicas that `make` makes, this process being the first of the workers.

    The same bits on any number of workers. A context manager; the processes live inside. What computes runs in a
    thread, and a call that is cancelled is finished there before the block is left.
    """

    def __init__(self, make: Callable[[], Replica], model: Any, config: OptimizerConfig, *, count: int):
        """`model` is the one whose weights are trained: none of the replicas'."""
        self.workers, self.owner = Workers(make, count=count), Owner(model, config)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pool")
        self._known: Tensor | None = None
        """The weights that the replicas have."""
        self._sampler: LocalSampler | None = None
        self._published = weights_of(model)

    def __enter__(self) -> Self:
        self.workers.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        self.workers.__exit__(kind, error, trace)

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

    async def call(self, method: str, shards: Sequence[tuple[Any, ...]]) -> list[Any]:
        """A method of the replicas, once per shard; this process is free meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, partial(self.workers.call, method, shards)
        )

    async def play(self, tasks: Sequence[Task], *, seed: int, first: int = 0) -> list[Group]:
        """Each worker plays and credits its shards under the weights published last."""
        await self._give(self._published)
        played = await self.call("play", [(mine, seed) for mine in split(tasks, first)])
        groups: list[Group] = joined(played, first)
        for index, group in enumerate(groups, first):
            group.index = index
        return groups

    async def forward_backward(
        self, samples: Sequence[Sample], loss: PolicyLoss, *, totals: Totals | None = None
    ) -> dict[str, float]:
        """Each worker computes the gradient of its shards; they are added in their order."""
        whole = totals or Totals.of(samples, loss)
        await self._give(weights_of(self.model))
        gradients = await self.call("gradient", [(shard, loss, whole) for shard in dealt(samples)])
        return self.owner.add(combine(gradients, whole.rl))

    async def look(self, samples: Sequence[Sample], loss: PolicyLoss) -> list[list[float]]:
        """What the newest weights would have said, the shards read apart as for a gradient."""
        await self._give(weights_of(self.model))
        shards = dealt(samples)
        read = chain.from_iterable(await self.call("look", [(shard, loss) for shard in shards]))
        found = {id(sample): row for sample, row in zip(chain.from_iterable(shards), read, strict=True)}
        return [found[id(sample)] for sample in samples]

    async def optim_step(self) -> dict[str, float]:
        """The owner's step, in this process."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.owner.step)

    async def publish(self) -> int:
        """What is played from now on has the newest weights."""
        self.owner.version += 1
        await self._publish()
        return self.owner.version

    async def sample(self, prompt: Sequence[int], sampling: Sampling, *, key: int, session: str = "") -> Sampled:
        """Draw in this process, from a copy of the published weights that is made when it is first asked for."""
        if self._sampler is None:
            own: Replica = self.workers.local
            self._sampler = LocalSampler(LocalPolicy.of(copy.deepcopy(own.model), own.tokenizer).engine)
            self._renew(self._sampler)
        return await self._sampler.sample(prompt, sampling, key=key, session=session)

    def release(self, session: str) -> None:
        """Forget a conversation."""
        if self._sampler is not None:
            self._sampler.release(session)

    def average(self, keep: float) -> None:
        """Let the average follow the weights."""
        self.owner.average(keep)

    @asynccontextmanager
    async def averaged(self) -> AsyncIterator[None]:
        """Inside, the replicas have the averaged weights."""
        await self._give(self.owner.averaged)
        yield
        await self._give(self._published)

    async def settle(self) -> None:
        """The average becomes the weights."""
        self.owner.settle()
        await self.publish()

    async def save_state(self, path: Path) -> None:
        """One file."""
        self.owner.save(path)

    async def load_state(self, path: Path) -> None:
        """Go on from it."""
        self.owner.load(path)
        await self._publish()

    async def _publish(self) -> None:
        self._published, self._known = weights_of(self.model), None
        await self._give(self._published)
        if self._sampler is not None:
            self._renew(self._sampler)

    def _renew(self, sampler: LocalSampler) -> None:
        set_weights(sampler.engine.model, self._published)
        sampler.engine.publish()
        sampler.engine.version = self.version

    async def _give(self, weights: Tensor) -> None:
        """Let the replicas have these weights, unless they do."""
        if self._known is not None and self._known.equal(weights):
            return
        await self.call("publish", [(weights, self.version)] * self.workers.count)
        self._known = weights
