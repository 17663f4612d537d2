"""A few worker processes as one trainer: each batch is cut into shards, which are dealt to the workers.

A shard's result depends on the shard alone, so one worker that does two shards one after the other and two workers that
do one each return the same values, bit for bit.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import multiprocessing
import pickle
import signal
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from torch import Tensor

from wanderlust._lazy import needs_extra
from wanderlust.errors import WanderlustError, WorkerRestartWarning
from wanderlust.policies.base import SampledTokens, SamplingOptions
from wanderlust.policies.local.policy import LocalPolicy, LocalSampler
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample, episodes_of
from wanderlust.training.config import OptimizerConfig
from wanderlust.training.gradient import combine
from wanderlust.training.group_source import bound_algorithm
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.models import load_trainable
from wanderlust.training.optimizer import TrainableWeights, publish_weights, weights_of
from wanderlust.training.trainers.base import EngineOptions, TrainingSetup
from wanderlust.training.trainers.replica import PUBLISH, Replica, WorkerError, serialized
from wanderlust.types import Group, Task

T = TypeVar("T")


def shard_samples(samples: Sequence[Sample], shards: int) -> list[list[Sample]]:
    """The shards: a group goes to the one of its number, an episode of no group to that of its place, in turn."""
    out: list[list[Sample]] = [[] for _ in range(shards)]
    for place, episode in enumerate(episodes_of(samples)):
        out[(episode[0].group if episode[0].group >= 0 else place) % shards] += episode
    return out


def minibatches(samples: Sequence[Sample], *, parts: int, shards: int) -> list[list[Sample]]:
    """The samples in `parts` slices of as many episodes each, none of which is cut; each takes from every shard.

    Equal episodes, which were merged, stay together, and the others make up for it; those that are only counted, as
    they have no gradient, are dealt out one by one.
    """
    if parts == 1:
        return [list(samples)]
    episodes = [episode for shard in shard_samples(samples, shards) for episode in episodes_of(shard)]
    out, counts, counted = [list[Sample]() for _ in range(parts)], [0] * parts, list[list[Sample]]()
    for episode in episodes:
        if not any(sample.ids for sample in episode):
            counted += [[replace(sample, copies=1) for sample in episode]] * episode[0].copies
    for episode in (*(episode for episode in episodes if any(sample.ids for sample in episode)), *counted):
        smallest = counts.index(min(counts))
        out[smallest] += episode
        counts[smallest] += episode[0].copies
    return out


def shard(numbered: Sequence[T], first: int, shards: int) -> list[Sequence[T]]:
    """The items numbered from `first`, by shard."""
    return [numbered[(shard - first) % shards :: shards] for shard in range(shards)]


def unshard(shards: Sequence[Sequence[T]], first: int) -> list[T]:
    """The items that `shard` divided, in their order."""
    passing = [iter(shard) for shard in shards]
    return [next(passing[number % len(shards)]) for number in range(first, first + sum(map(len, shards)))]


MAX_WORKER_DEATHS = 3
"""Deaths during one call after which a worker is not started once more: it would die again."""


class Workers:
    """This process and `count - 1` others, each holding one object made by `make`.

    A process that dies is replaced: the new one gets the last published weights and does the call's work again, with
    the same results.

    `make` is sent by value where it cannot be sent by name (a class of a script or a notebook), and a script is not run
    again in the workers.

    The others end with this one, however it ends: they read from a pipe that closes.
    """

    def __init__(self, make: Callable[[], Any], *, count: int):
        self._make, self.count, self.restarts = make, count, 0
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        self._published: tuple[Any, ...] = ()
        """Arguments of the last call of PUBLISH."""

    def __enter__(self) -> Self:
        self._serialized = serialized(self._make) if self.count > 1 else b""
        for _ in range(self.count - 1):
            pipe, process = self._start()
            self._pipes.append(pipe)
            self._processes.append(process)
        self.local = _make_local(self._make)
        return self

    def _start(self) -> tuple[Connection, Any]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._serialized), daemon=True)
        with sheltered(), without_main_module():
            process.start()
        theirs.close()
        return ours, process

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.terminate()
            process.join()

    def call(self, method: str, shards: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call `method` once per shard with that shard's arguments; results in the order of the shards."""
        jobs: list[list[int]] = [list(range(w, len(shards), self.count)) for w in range(self.count)]
        messages = [pickle.dumps((method, [shards[i] for i in mine]), protocol=5) for mine in jobs[1:]]
        for pipe, message in zip(self._pipes, messages, strict=True):
            with suppress(OSError):  # it has died, and its answer will be missed
                pipe.send_bytes(message)
        results: dict[int, Any] = {i: getattr(self.local, method)(*shards[i]) for i in jobs[0]}
        for number, (message, mine) in enumerate(zip(messages, jobs[1:], strict=True)):
            results.update(zip(mine, self._answer(number, message), strict=True))
        if method == PUBLISH and shards:
            self._published = shards[0]
        return [results[i] for i in range(len(shards))]

    def _answer(self, number: int, message: bytes) -> list[Any]:
        """The answer of a worker; where it has died, that of the process that takes its place."""
        for death in range(MAX_WORKER_DEATHS + 1):
            try:
                return _receive(self._pipes[number])
            except (EOFError, OSError) as error:
                code = self._bury(number)
                if death == MAX_WORKER_DEATHS:
                    raise WorkerError(
                        f"a worker process died {death + 1} times at the same work (exit code {code}; -9: killed, "
                        "perhaps for want of memory); the run can be resumed"
                    ) from error
                warnings.warn(
                    f"a worker process died (exit code {code}); another one does its work again",
                    WorkerRestartWarning,
                    stacklevel=2,
                )
                self._replace(number, message)
        raise AssertionError

    def _bury(self, number: int) -> int | None:
        """End what is left of a worker; its exit code."""
        self._pipes[number].close()
        process = self._processes[number]
        process.terminate()
        process.join()
        code: int | None = process.exitcode
        return code

    def _replace(self, number: int, message: bytes) -> None:
        """Start a worker in a dead one's place and send it the weights and the work."""
        self.restarts += 1
        pipe, process = self._start()
        self._pipes[number], self._processes[number] = pipe, process
        with suppress(EOFError, OSError):  # if this one dies as well, the answer is missed again
            if self._published:
                pipe.send_bytes(pickle.dumps((PUBLISH, [self._published]), protocol=5))
                _receive(pipe)
            pipe.send_bytes(message)


@contextmanager
def sheltered() -> Iterator[None]:
    """A process started here never hears of Ctrl-C, not even while it imports: that is its parent's to handle."""
    resource_tracker.ensure_running()  # starting it together with the first process would unblock the signal again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _receive(pipe: Connection) -> list[Any]:
    ok, value = pickle.loads(pipe.recv_bytes())
    if not ok:
        raise WorkerError(value)
    return list(value)


def _make_local(make: Callable[[], Any]) -> Any:
    """What `make` makes; it and all that was imported stay, so the garbage collector need not look there again."""
    made = make()
    gc.freeze()
    return made


@contextmanager
def without_main_module() -> Iterator[None]:
    """A process started here does not run the main script again: what it needs of it is sent by value."""
    main = sys.modules["__main__"]
    spec, file = main.__spec__, main.__dict__.pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file


def _serve(pipe: Connection, make: bytes) -> None:
    """A worker's life: answer calls until the pipe closes."""
    target = _make_local(pickle.loads(make))
    while True:
        try:
            method, shards = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        answer: tuple[bool, Any]
        try:
            answer = (True, [getattr(target, method)(*arguments) for arguments in shards])
        except WanderlustError as error:
            answer = (False, str(error))
        try:
            pipe.send_bytes(pickle.dumps(answer, protocol=5))
        except OSError:
            return


class ProcessPoolTrainer:
    """A `Trainer` and a `Player` over replicas that `make` makes, this process being the first of the workers.

    The same bits on any number of workers. A context manager; the processes live inside. What computes runs in a
    thread, and a call that is cancelled is finished there before the block is left.
    """

    def __init__(
        self,
        make: Callable[[], Replica],
        model: Any,
        config: OptimizerConfig,
        *,
        count: int,
        shards: int = 2,
        workers: Any = None,
    ):
        """`model` is the one whose weights are trained: none of the replicas'. A batch is cut into `shards` pieces.

        `workers` stand in place of `count` processes of this machine."""
        self.shards = shards
        self.workers: Any = workers if workers is not None else Workers(make, count=count)
        self.weights = TrainableWeights(model, config)
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
        return self.weights.model

    @property
    def version(self) -> int:
        """Number of times that weights were published."""
        return self.weights.version

    def begin(self, config: OptimizerConfig) -> None:
        """A fresh optimizer."""
        self.weights.begin(config)

    async def call(self, method: str, shards: Sequence[tuple[Any, ...]]) -> list[Any]:
        """A method of the replicas, once per shard; this process is free meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, partial(self.workers.call, method, shards)
        )

    async def play(self, tasks: Sequence[Task], *, seed: int, first: int = 0) -> list[Group]:
        """Each worker plays and credits its shards under the weights published last."""
        await self._send_weights(self._published)
        played = await self.call("play", [(mine, seed) for mine in shard(tasks, first, self.shards)])
        groups: list[Group] = unshard(played, first)
        for index, group in enumerate(groups, first):
            group.index = index
        return groups

    async def evaluate(self, tasks: Sequence[Task], seat: str = "") -> list[Group]:
        """One greedy episode per task, in the tasks' order; with a `seat`, the others have the fixed player."""
        return unshard(await self.call("evaluate", [(mine, seat) for mine in shard(tasks, 0, self.shards)]), 0)

    async def exact(self) -> list[dict[str, Any]] | None:
        """Exact figures of the greedy policy, computed by this process's replica."""
        (rows,) = await self.call("exact", [()])
        return list(rows) if rows is not None else None

    async def forward_backward(
        self, samples: Sequence[Sample], loss: PolicyLoss, *, totals: BatchTotals | None = None
    ) -> dict[str, float]:
        """Each worker computes the gradient of its shards; they are added in their order."""
        whole = totals or BatchTotals.of(samples, loss)
        await self._send_weights(weights_of(self.model))
        gradients = await self.call("gradient", [(shard, loss, whole) for shard in shard_samples(samples, self.shards)])
        return self.weights.add(combine(gradients, whole.rl))

    async def compute_logprobs(self, samples: Sequence[Sample], loss: PolicyLoss) -> list[list[float]]:
        """Log-probabilities under the newest weights, computed by shard as for a gradient."""
        await self._send_weights(weights_of(self.model))
        shards = shard_samples(samples, self.shards)
        read = chain.from_iterable(await self.call("compute_logprobs", [(shard, loss) for shard in shards]))
        row_of = {id(sample): row for sample, row in zip(chain.from_iterable(shards), read, strict=True)}
        return [row_of[id(sample)] for sample in samples]

    async def optim_step(self) -> dict[str, float]:
        """The owner's step, in this process."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.weights.step)

    async def publish(self) -> int:
        """Publish the newest weights: later rollouts use them."""
        self.weights.version += 1
        await self._publish()
        return self.weights.version

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw in this process, from a copy of the published weights that is made when it is first asked for."""
        if self._sampler is None:
            own: Replica = self.workers.local
            self._sampler = LocalSampler(LocalPolicy.of(copy.deepcopy(own.model), own.tokenizer).engine)
            publish_weights(self._sampler.engine, self._published, self.version)
        return await self._sampler.sample(prompt, sampling, key=key, session=session)

    def release(self, session: str) -> None:
        """Forget a conversation."""
        if self._sampler is not None:
            self._sampler.release(session)

    def update_ema(self, decay: float) -> None:
        """Let the average follow the weights."""
        self.weights.update_ema(decay)

    @asynccontextmanager
    async def ema_weights(self) -> AsyncIterator[None]:
        """Inside, the replicas have the averaged weights."""
        await self._send_weights(self.weights.ema_weights)
        yield
        await self._send_weights(self._published)

    async def use_ema(self) -> None:
        """The average becomes the weights."""
        self.weights.use_ema()
        await self.publish()

    async def whole_model(self, *, averaged: bool = False) -> Any:
        """The model that learns, or a copy with the averaged weights."""
        return self.weights.whole_model(averaged=averaged)

    async def save_state(self, path: Path) -> None:
        """One file."""
        self.weights.save(path)

    async def load_state(self, path: Path) -> None:
        """Go on from it."""
        self.weights.load(path)
        await self._publish()

    async def _publish(self) -> None:
        self._published, self._known = weights_of(self.model), None
        await self._send_weights(self._published)
        if self._sampler is not None:
            publish_weights(self._sampler.engine, self._published, self.version)

    async def _send_weights(self, weights: Tensor) -> None:
        """Let the replicas have these weights, unless they do."""
        if self._known is not None and self._known.equal(weights):
            return
        await self.call("publish", [(weights, self.version)] * self.workers.count)
        self._known = weights


@asynccontextmanager
async def worker_engine(options: EngineOptions) -> AsyncIterator[TrainingSetup]:
    """Worker processes, or Ray actors, play and compute gradients in turn."""
    config, start, ray = options.config, options.start, options.ray
    model, tokenizer = load_trainable(config, start)
    algorithm = bound_algorithm(config, start, tokenizer)
    load = partial(Replica.load, start.absolute(), config)
    actors = None
    if ray is not None:
        with needs_extra("ray"):
            from wanderlust.training.trainers.ray_replicas import RayReplicas
        actors = RayReplicas(load, count=min(ray.workers, config.shards), address=ray.address)
    count = min(options.workers, config.shards)
    with ProcessPoolTrainer(
        load, model, config.rl_optimizer, count=count, shards=config.shards, workers=actors
    ) as trainer:
        yield TrainingSetup(
            trainer=trainer,
            tokenizer=tokenizer,
            algorithm=algorithm,
            player=trainer,
            whole_model=trainer.whole_model,
        )
