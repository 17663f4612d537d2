"""Processes that hold a model's sharded weights together, led by this one: the engine `fsdp`.

This process is the first of them. It plays the run; the others wait for its calls. They are started here, or by
`torchrun`, which starts the same command in every process.
"""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import os
import pickle
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
from torch import distributed as dist

from wanderlust.errors import WanderlustError, one_line
from wanderlust.policies.base import SampledTokens, SamplingOptions
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.local.policy import LocalSampler
from wanderlust.store.whole_files import replacing
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import OptimizerConfig, TrainConfig
from wanderlust.training.group_source import bound_algorithm
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.models import load_frozen, load_trainable
from wanderlust.training.trainers.base import EngineOptions, TrainingSetup
from wanderlust.training.trainers.fsdp import (
    ShardedConfig,
    ShardedTrainer,
    copy_weights,
    distributed,
    rank_and_world_size,
)
from wanderlust.training.trainers.process_pool import shard, sheltered, unshard, without_main_module
from wanderlust.training.trainers.replica import Replica, WorkerError, serialized
from wanderlust.types import Group, Task

T = TypeVar("T")
CALL_TIMEOUT = timedelta(days=30)
"""The other processes wait for the next call while episodes are played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOptions:
    """What every process of a group makes of a configuration."""

    config: TrainConfig
    start: Path
    """The checkpoint that training starts from."""
    plays: bool
    """Whether the processes play episodes, too, each with a whole copy of the model."""


class FsdpRank:
    """One process of a group: its part of the weights, and what it plays with; other calls are the trainer's own."""

    def __init__(self, options: RankOptions):
        config = options.config
        model, _ = load_trainable(config, options.start)
        self.trainable = [name for name, p in model.named_parameters() if p.requires_grad]
        settings = ShardedConfig(
            optimizer=config.rl_optimizer,
            temperature=config.temperature,
            micro_batch=config.micro_batch,
            micro_batch_tokens=config.micro_batch_tokens,
            recompute=config.recompute_activations,
            offload=config.offload,
            context_parallel=config.context_parallel,
            precision=config.precision,
        )
        self.whole = copy.deepcopy(model).to("cpu") if rank_and_world_size()[0] == 0 else None
        self.trainer = ShardedTrainer(model, settings, sampler=_NoSampler())
        self.replica = Replica.load(options.start, config) if options.plays else None

    def forward_backward(self, samples: Sequence[Sample], loss: PolicyLoss, totals: BatchTotals | None) -> Any:
        """Add the gradient of the samples, the same ones in every process."""
        return asyncio.run(self.trainer.forward_backward(samples, loss, totals=totals))

    def load_state(self, path: Path) -> int:
        """Every process reads its part; returns the version."""
        asyncio.run(self.trainer.load_state(path))
        return self.trainer.version

    def set_version(self, version: int) -> None:
        """Weights were published."""
        self.trainer.version = version

    def gather(self, averaged: bool) -> None:
        """Bring the weights together in the first process."""
        weights = self.trainer.weights(averaged=averaged)
        if self.whole is not None:
            copy_weights(self.whole, weights)
        else:
            for _ in weights:
                pass

    def export(self, folder: Path, averaged: bool) -> None:
        """Every process writes its part of the weights."""
        self.trainer.export(folder, averaged=averaged)

    def publish(self, averaged: bool, version: int) -> None:
        """Give the weights, or their averages, to what plays in every process."""
        assert self.replica is not None
        copy_weights(self.replica.model, self.trainer.weights(averaged=averaged))
        self.replica.policy.engine.publish()
        self.replica.policy.engine.version = version

    def play(self, shards: Sequence[tuple[Sequence[Task], int]]) -> list[list[Group]]:
        """Play this process's shards."""
        assert self.replica is not None
        rank, world = rank_and_world_size()
        return [self.replica.play(tasks, seed) for tasks, seed in shards[rank::world]]

    def evaluate(self, shards: Sequence[Sequence[Task]], seat: str) -> list[list[Group]]:
        """Evaluate on this process's shards."""
        assert self.replica is not None
        rank, world = rank_and_world_size()
        return [self.replica.evaluate(tasks, seat) for tasks in shards[rank::world]]


class _NoSampler:
    """Stands where a trainer has a sampler: weights leave the group by `gather` and `publish`."""

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        raise NotImplementedError

    def release(self, session: str) -> None: ...

    def load_weights(self, weights: Any) -> None: ...


class FsdpGroup:
    """A `Trainer` over a group of processes, this one being the first; also plays, where `plays` was asked for.

    Figures are those of one process up to rounding. A process that dies ends the run, which can be resumed: the
    state is that of any number of processes.
    """

    def __init__(self, rank: FsdpRank):
        self.rank = rank
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fsdp")
        self._version = 0
        self._sampler: LocalSampler | None = None

    @property
    def version(self) -> int:
        """Number of times that weights were published."""
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        self._version = version
        self._now("set_version", version)

    def begin(self, config: OptimizerConfig) -> None:
        """A fresh optimizer in every process."""
        self._now("begin", config)

    async def forward_backward(
        self, samples: Sequence[Sample], loss: PolicyLoss, *, totals: BatchTotals | None = None
    ) -> dict[str, float]:
        """Each process reads its part of the samples."""
        figures: dict[str, float] = (await self._call("forward_backward", list(samples), loss, totals))[0]
        return figures

    async def compute_logprobs(self, samples: Sequence[Sample], loss: PolicyLoss) -> list[list[float]]:
        """Log-probabilities under the newest weights."""
        rows: list[list[float]] = (await self._call("compute_logprobs", list(samples), loss))[0]
        return rows

    async def optim_step(self) -> dict[str, float]:
        """Each process steps its part."""
        figures: dict[str, float] = (await self._call("optim_step"))[0]
        return figures

    def update_ema(self, decay: float) -> None:
        """Let the average follow the weights."""
        self._now("update_ema", decay)

    async def publish(self) -> int:
        """Count one more version."""
        self.version += 1
        return self.version

    @asynccontextmanager
    async def ema_weights(self) -> AsyncIterator[None]:
        """Nothing is evaluated here."""
        yield

    async def use_ema(self) -> None:
        """The average becomes the weights."""
        await self._call("adopt_ema")
        await self.publish()

    async def save_state(self, path: Path) -> None:
        """A folder, to which every process writes its part."""
        await self._call("save_state", path)

    async def load_state(self, path: Path) -> None:
        """Go on from it."""
        self._version = (await self._call("load_state", path))[0]

    async def whole_model(self, *, averaged: bool = False) -> Any:
        """The weights, brought together in this process; valid until the next call."""
        await self._call("gather", averaged)
        return self.rank.whole

    async def export(self, folder: Path, tokenizer: Any, *, averaged: bool = False) -> None:
        """Write a Hugging Face folder of whole weights, to which every process writes its part.

        The folder is the old one or the new one; it must be on a disk that all processes share.
        """
        with replacing(folder) as draft:
            draft.mkdir()
            await self._call("export", draft, averaged)
            self.rank.trainer.model.config.save_pretrained(draft)
            tokenizer.save_pretrained(draft)

    async def _call(self, method: str, *arguments: Any) -> list[Any]:
        """The method in every process; what each returned, in their order."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, partial(_lead, self.rank, method, arguments)
        )

    def _now(self, method: str, *arguments: Any) -> None:
        self._thread.submit(_lead, self.rank, method, arguments).result()

    def close(self) -> None:
        """Let the others end."""
        try:
            self._thread.submit(_lead, None, STOP, ()).result()
        finally:
            self._thread.shutdown()


class FsdpTrainer(FsdpGroup):
    """A `Trainer` and a source of groups: every process plays a share of the tasks with a copy of the weights."""

    async def play(self, tasks: Sequence[Task], *, seed: int, first: int = 0) -> list[Group]:
        """Each process plays and credits its shards under the weights published last."""
        parts = shard(tasks, first, rank_and_world_size()[1])
        played = await self._call("play", [(part, seed) for part in parts])
        groups: list[Group] = unshard([*chain.from_iterable(played)], first)
        for index, group in enumerate(groups, first):
            group.index = index
        return groups

    async def evaluate(self, tasks: Sequence[Task], seat: str = "") -> list[Group]:
        """One greedy episode per task, in the tasks' order; with a `seat`, the others have the fixed player."""
        played = await self._call("evaluate", shard(tasks, 0, rank_and_world_size()[1]), seat)
        return unshard([*chain.from_iterable(played)], 0)

    async def exact(self) -> list[dict[str, Any]] | None:
        """Exact figures of the greedy policy, computed by this process's replica."""
        assert self.rank.replica is not None
        return await asyncio.to_thread(self.rank.replica.exact)

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw one answer in this process with the weights that were published last."""
        assert self.rank.replica is not None
        if self._sampler is None:
            self._sampler = LocalSampler(self.rank.replica.policy.engine)
        return await self._sampler.sample(prompt, sampling, key=key, session=session)

    def release(self, session: str) -> None:
        """Forget a conversation."""
        if self._sampler is not None:
            self._sampler.release(session)

    async def publish(self) -> int:
        """Every process's copy has the newest weights."""
        await super().publish()
        await self._call("publish", False, self.version)
        return self.version

    @asynccontextmanager
    async def ema_weights(self) -> AsyncIterator[None]:
        """Inside, every process's copy has the averaged weights."""
        await self._call("publish", True, self.version)
        yield
        await self._call("publish", False, self.version)

    async def load_state(self, path: Path) -> None:
        """Go on from a state, which is published."""
        await super().load_state(path)
        await self._call("publish", False, self.version)


GATHERED = frozenset({"play", "evaluate"})
"""Methods whose results differ between the processes."""
STOP = ""
"""The call that ends a group."""


def _lead(rank: FsdpRank | None, method: str, arguments: tuple[Any, ...]) -> list[Any]:
    """Call a method in every process. Raises WorkerError when one has died."""
    if not dist.is_initialized():
        return [_perform(rank, method, arguments)] if rank is not None else []
    try:
        dist.broadcast_object_list([cloudpickle.dumps((method, arguments))], src=0, group=_control())
        return _run(rank, method, arguments) if rank is not None else []
    except RuntimeError as error:
        if isinstance(error, WanderlustError) or "gloo" not in str(error).lower() + type(error).__module__:
            raise
        raise WorkerError("a process that holds a part of the weights has died; the run can be resumed") from error


def _perform(rank: FsdpRank, method: str, arguments: tuple[Any, ...]) -> Any:
    """Call a method of the process, or where it has none of that name, of its trainer."""
    result = getattr(rank if hasattr(rank, method) else rank.trainer, method)(*arguments)
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def _run(rank: FsdpRank, method: str, arguments: tuple[Any, ...]) -> list[Any]:
    """This process's part of a call; in the first one, the results of all that gather them.

    What fails in one process is raised in the first one, and all go on to the next call.
    """
    failure, result = "", None
    own: WanderlustError | None = None
    try:
        result = _perform(rank, method, arguments)
    except WorkerError:
        raise
    except WanderlustError as error:
        own, failure = error, str(error)
    number, world = rank_and_world_size()
    outcomes: list[Any] | None = [None] * world if number == 0 else None
    dist.gather_object((failure, result if method in GATHERED else None), outcomes, dst=0, group=_control())
    if outcomes is None:
        return []
    if own is not None:
        raise own
    for number, (text, _) in enumerate(outcomes):
        if text:
            raise WorkerError(f"process {number} of the group: {text}")
    return [other for _, other in outcomes] if method in GATHERED else [result]


@cache
def _control() -> Any:
    """The group by which calls are told: its members wait for as long as it takes."""
    return dist.new_group(backend="gloo", timeout=CALL_TIMEOUT)


def join_group() -> None:
    """Be one of the processes that another one leads, until it ends the group."""
    with distributed():
        one_thread()
        made: list[Any] = [None]
        dist.broadcast_object_list(made, src=0, group=_control())
        rank = pickle.loads(made[0])()
        while True:
            call: list[Any] = [None]
            dist.broadcast_object_list(call, src=0, group=_control())
            method, arguments = pickle.loads(call[0])
            if method == STOP:
                _control.cache_clear()
                return
            _run(rank, method, arguments)


def _join(environment: dict[str, str]) -> None:
    """The life of a process that was started here."""
    os.environ.update(environment)
    try:
        join_group()
    except (WanderlustError, RuntimeError, OSError, EOFError) as error:  # the others must see at once that it is gone
        print(f"wander: a trainer process ended: {one_line(str(error), 300)}", file=sys.stderr, flush=True)
        os._exit(1)


@contextmanager
def _started(processes: int) -> Iterator[None]:
    """All but the first process of a group, and in this one the variables that `torchrun` would have set."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    context, started = multiprocessing.get_context("spawn"), []
    for number in range(1, processes):
        own = {**shared, "RANK": str(number), "LOCAL_RANK": str(number)}
        process = context.Process(target=_join, args=(own,), daemon=True)
        with sheltered(), without_main_module():
            process.start()
        started.append(process)
    mine = {**shared, "RANK": "0", "LOCAL_RANK": "0"}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)
        for process in started:
            process.join(END_SECONDS)
            process.terminate()
            process.join()


END_SECONDS = 10.0
"""Time that the other processes have to end by themselves."""


@contextmanager
def fsdp_group(options: RankOptions, *, processes: int) -> Iterator[FsdpGroup]:
    """Start a group of so many processes, or lead the one that `torchrun` started; it ends with the block.

    Raises WorkerError when a process cannot start.
    """
    with ExitStack() as stack:
        if "WORLD_SIZE" not in os.environ and processes > 1:
            stack.enter_context(_started(processes))
        stack.enter_context(distributed())
        one_thread()
        if dist.is_initialized():
            dist.broadcast_object_list([serialized(partial(FsdpRank, options))], src=0, group=_control())
        group = (FsdpTrainer if options.plays else FsdpGroup)(FsdpRank(options))
        try:
            yield group
        finally:
            with suppress(WorkerError, RuntimeError):
                group.close()
            _control.cache_clear()


@asynccontextmanager
async def fsdp_engine(options: EngineOptions) -> AsyncIterator[TrainingSetup]:
    """Processes that each hold a part of the weights, and a copy to play with."""
    config, start = options.config, options.start
    _, tokenizer = load_frozen(config, start)
    algorithm = bound_algorithm(config, start, tokenizer)
    with fsdp_group(RankOptions(config=config, start=start, plays=True), processes=config.processes) as group:
        assert isinstance(group, FsdpTrainer)
        yield TrainingSetup(
            trainer=group,
            tokenizer=tokenizer,
            algorithm=algorithm,
            player=group,
            whole_model=group.whole_model,
            export=sharded_export(config, group),
        )


def sharded_export(config: TrainConfig, group: FsdpGroup) -> Callable[..., Awaitable[None]] | None:
    """How the processes that hold the weights write them; None for adapters, which are merged first."""
    return group.export if not config.lora else None
