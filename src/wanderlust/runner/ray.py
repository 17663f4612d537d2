"""Run episodes in Ray actors, on this machine or on many: `rollouts(..., concurrency=backend)`.

Each actor runs many episodes in an event loop of its own; settings and rollouts travel as cloudpickles. Not covered:
the loss of the cluster's head, with which Ray ends this process too; code that blocks its worker's event loop for ever;
and effects of an environment on the outside world before its worker was lost, because the episode is run again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import ceil
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from wanderlust.agent import track
from wanderlust.errors import (
    EnvironmentFailure,
    Failure,
    UsageError,
    WorkerFailure,
    WorkerRestartWarning,
    boundary,
    one_line,
)
from wanderlust.runner.engine import RolloutFn, RolloutJob, RolloutSettings
from wanderlust.runner.failures import unscore
from wanderlust.types import Rollout, Status, Task

EMPTY_TASK = Task(id="")
"""Replaces the task in a sent rollout, as the receiver has it."""


class RemoteSpec:
    """Stands for `make(*arguments, **settings)`, which is called once in every worker, when it gets the settings.

    For policies, environments and rubrics that cannot be sent: they hold a connection, a model, a lock. In this process
    it is made at its first use.
    """

    policy_here: Any = None
    """The same policy in this process, where there is one: what made the rollouts is read from it."""
    digest = sampling = None

    def __init__(self, make: Callable[..., Any], *arguments: Any, **settings: Any):
        self.label = f"{make.__module__}:{make.__qualname__} {arguments} {settings}"
        self._instance: list[Any] = []
        self._make, self._arguments, self._settings = make, arguments, settings

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_instance, (self._make, self._arguments, self._settings)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._instance:
            self._instance.append(_make_instance(self._make, self._arguments, self._settings))
        return getattr(self._instance[0], name)


def _make_instance(make: Callable[..., Any], arguments: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    return make(*arguments, **settings)


def serialize_settings(settings: RolloutSettings) -> bytes:
    """Serialize the settings for workers. Raises UsageError of one line when a part of them cannot be."""
    try:
        with boundary(EnvironmentFailure):
            return bytes(cloudpickle.dumps(replace(settings, active=set())))
    except EnvironmentFailure as failure:
        raise UsageError(
            f"the environment, the policy or the rubric cannot be sent to workers ({one_line(str(failure))}): "
            "hand over RemoteSpec(make, ...), which is made there"
        ) from failure


def deserialize_settings(data: bytes) -> RolloutSettings:
    """Restore the settings in a worker. Raises EnvironmentFailure with the reason when this machine cannot."""
    with boundary(EnvironmentFailure):
        play: RolloutSettings = cloudpickle.loads(data)
    return play


def serialize_rollout(rollout: Rollout) -> bytes:
    """Serialize a rollout without its task. A state that cannot be sent is left out, and the rollout fails."""
    bare = replace(rollout, task=EMPTY_TASK)
    try:
        with boundary(EnvironmentFailure):
            return bytes(cloudpickle.dumps(bare))
    except EnvironmentFailure as failure:
        bare.state = {}
        unscore(bare, EnvironmentFailure(f"what the episode left cannot be sent: {one_line(str(failure))}"))
        return bytes(cloudpickle.dumps(bare))


def deserialize_rollout(data: bytes, job: RolloutJob) -> Rollout:
    """Restore the rollout that a worker made of the job."""
    played: Rollout = cloudpickle.loads(data)
    played.task = job.task
    return played


def failed_rollout(job: RolloutJob, failure: Failure) -> Rollout:
    """Record an episode that ended on no worker."""
    return Rollout(
        task=job.task,
        seed=job.seed,
        sample_index=job.sample_index,
        status=Status.ERROR,
        stop_reason=type(failure).__name__,
        error=str(failure),
        transient=failure.transient,
    )


@dataclass(slots=True)
class _Part:
    """One call's settings in this worker, and its running episodes."""

    settings: RolloutSettings
    exit_stack: AsyncExitStack
    """Closes the policies."""
    running: dict[tuple[str, int, int], asyncio.Task[Any]] = field(default_factory=dict)
    """By task, seed and sample."""


class RayWorker:
    """The actor: it holds settings by number, and runs many episodes of them concurrently."""

    def __init__(self, paths: Sequence[str]):
        """`paths` is the other process's module path, which is searched last here."""
        self._parts: dict[int, _Part] = {}
        sys.path += [path for path in paths if path not in sys.path]

    async def address(self) -> tuple[int, str, str]:
        """This process's id, the address of its machine, and the id of its node."""
        return os.getpid(), str(ray.util.get_node_ip_address()), str(ray.get_runtime_context().get_node_id())

    async def receive_settings(self, number: int, data: bytes) -> None:
        """Store settings. Raises EnvironmentFailure when they cannot be restored here."""
        play, held = deserialize_settings(data), AsyncExitStack()
        policies: Any = play.policy.values() if isinstance(play.policy, dict) else [play.policy]
        for policy in {id(one): one for one in policies}.values():
            if isinstance(policy, AbstractAsyncContextManager):
                await held.enter_async_context(policy)
        self._parts[number] = _Part(play, held)

    async def run_job(self, number: int, job: RolloutJob) -> bytes:
        """Run and score one episode."""
        part, place = self._parts[number], (job.task.id, job.seed, job.sample_index)
        before = part.running.get(place)
        if before is not None:  # the same episode, which the caller has given up and begins anew
            before.cancel()
            await asyncio.gather(before, return_exceptions=True)
        episode = asyncio.create_task(part.settings.run_with_retries(job))
        part.running[place] = episode
        try:
            return serialize_rollout(await episode)
        finally:
            if part.running.get(place) is episode:
                del part.running[place]

    async def drop_settings(self, number: int) -> None:
        """Cancel the episodes of these settings, wait for their end and forget the settings."""
        part = self._parts.pop(number, None)
        if part is None:
            return
        running = list(part.running.values())
        for episode in running:
            episode.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await part.exit_stack.aclose()


MAX_WORKER_LIVES = 3
"""Workers that an episode may lose before it has failed: the episode may be the reason."""
WORKER_START_SECONDS, WORKER_RETURN_SECONDS, WORKER_STOP_SECONDS = 300.0, 120.0, 10.0
"""Seconds for all workers to start, for the successor of the last one to start, and for episodes to be cancelled."""
CONNECT_TIMEOUT_SECONDS = 5.0
"""Seconds until a cluster must answer."""
LOSS_SECONDS = 2.0
"""Seconds in which workers lost on one node are told in one line."""
OBJECT_STORE_BYTES = 80 * 2**20
"""Size of Ray's object store, where this process starts it; it holds settings, one copy for all workers."""


@dataclass(slots=True, eq=False)
class RayActor:
    """One actor, as this process knows it."""

    actor: Any
    pid: int
    address: str
    node: str
    """The node's id."""
    busy: int = 0
    """Episodes it plays."""


class RayBackend:
    """Workers that run episodes; a lost one is replaced, and its episodes are run again with the same seeds."""

    def __init__(self, workers: int, *, each: int, cpus: float):
        self.each, self.concurrency, self.restarted = each, workers * each, 0
        """`restarted` counts the episodes that began again because their worker was lost."""
        self.workers: list[RayActor] = []
        self._wanted, self._lost = workers, ""
        self._actors = ray.remote(RayWorker).options(
            num_cpus=cpus, max_concurrency=each + 16, scheduling_strategy="SPREAD"
        )
        self._numbers, self._settings = count(), dict[int, Any]()
        self._hiring: set[asyncio.Task[None]] = set()
        self._losses: dict[str, list[RayActor]] = {}
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Start all workers. Raises WorkerFailure when they have not started in time."""
        hiring = [self._replace() for _ in range(self._wanted)]
        await asyncio.wait(hiring, timeout=WORKER_START_SECONDS)
        if len(self.workers) < self._wanted:
            room = ray.cluster_resources().get("CPU", 0)
            raise WorkerFailure(
                f"{len(self.workers)} of {self._wanted} workers started within {WORKER_START_SECONDS:.0f} s"
                f"{self._lost and f' ({self._lost})'}: the cluster has {room:g} CPUs; ask for fewer workers, or fewer "
                "CPUs for each"
            )

    async def stop(self) -> None:
        """End all workers."""
        ending, self._hiring = [*self._hiring, *self._telling.values()], set()
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for node in list(self._losses):
            self._tell_loss(node)
        for worker in self.workers:
            ray.kill(worker.actor)
        self.workers.clear()

    @asynccontextmanager
    async def started(self, settings: RolloutSettings) -> AsyncIterator[RolloutFn]:
        """Send `settings` to all workers; at the end of the block their episodes are cancelled.

        Raises UsageError when the settings cannot be sent, and WorkerFailure when a worker cannot restore them.
        """
        number = next(self._numbers)
        self._settings[number] = ray.put(serialize_settings(settings))
        try:
            await asyncio.gather(*(self._send_settings(worker, number) for worker in list(self.workers)))
            yield partial(self._run_rollout, settings, number)
        finally:
            del self._settings[number]
            await asyncio.gather(*(self._release(worker, number) for worker in list(self.workers)))

    async def _run_rollout(self, settings: RolloutSettings, number: int, job: RolloutJob) -> Rollout:
        with settings._track_activity(job.task):
            for life in range(MAX_WORKER_LIVES):
                with track("a free worker"):
                    worker = await self._free()
                self.restarted += life > 0
                worker.busy += 1
                playing = worker.actor.run_job.remote(number, job)
                try:
                    with track(f"worker {worker.pid} on {worker.address}"):
                        return deserialize_rollout(await playing, job)
                except asyncio.CancelledError:
                    ray.cancel(playing)
                    raise
                except RayTaskError:
                    raise
                except RayError as error:
                    self._drop_worker(worker, error)
                finally:
                    worker.busy -= 1
                    self._change()
        lost = WorkerFailure(
            f"{MAX_WORKER_LIVES} workers were lost while they played it, at last: {self._lost}", transient=True
        )
        return failed_rollout(job, lost)

    async def _free(self) -> RayActor:
        """Wait for the least busy worker that can take an episode. Raises WorkerFailure when none is left."""
        while True:
            worker = min(self.workers, key=lambda w: w.busy, default=None)
            if worker is not None and worker.busy < self.each:
                return worker
            with suppress(TimeoutError):
                if self.workers or self._hiring:
                    async with asyncio.timeout(None if self.workers else WORKER_RETURN_SECONDS):
                        await self._changed.wait()
                    continue
            raise WorkerFailure(
                f"all {self._wanted} workers are lost and Ray has no place for another one ({self._lost}): what is "
                "finished is kept; start a node (ray start --address=...) and resume"
            )

    def _change(self) -> None:
        """Wake the rollouts that wait for a worker."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _drop_worker(self, worker: RayActor, error: RayError) -> None:
        """Kill and replace a worker; one that is only unreachable must not go on either."""
        if worker in self.workers:
            self.workers.remove(worker)
            self._lost = f"worker {worker.pid} on {worker.address}: {error_reason(error)}"
            ray.kill(worker.actor)
            self._losses.setdefault(worker.node, []).append(worker)
            if worker.node not in self._telling:
                self._telling[worker.node] = asyncio.create_task(self._tell_soon(worker.node))
            self._replace()
            self._change()

    async def _tell_soon(self, node: str) -> None:
        await asyncio.sleep(LOSS_SECONDS)
        del self._telling[node]
        self._tell_loss(node)

    def _tell_loss(self, node: str) -> None:
        """Say in one line which workers of a node were lost."""
        lost = self._losses.pop(node)
        gone = not any(known["Alive"] for known in ray.nodes() if known["NodeID"] == node)
        count, place = f"{len(lost)} of {self._wanted} Ray workers", lost[0].address
        what = f"the Ray node at {place} has left with {count}" if gone else f"{count} on {place} were lost"
        warnings.warn(f"{what} ({self._lost}); their episodes begin again", WorkerRestartWarning, stacklevel=2)

    def _replace(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._start_worker())
        self._hiring.add(task)
        task.add_done_callback(self._note_started)
        return task

    def _note_started(self, task: asyncio.Task[None]) -> None:
        self._hiring.discard(task)
        self._change()

    async def _start_worker(self) -> None:
        """Start one more worker and send it all settings; a failure is stored as the reason."""
        actor = self._actors.remote(sys.path)
        try:
            pid, address, node = await actor.address.remote()
            worker, sent_numbers = RayActor(actor, pid, address, node), set[int]()
            while missing := self._settings.keys() - sent_numbers:
                for number in missing & self._settings.keys():
                    await actor.receive_settings.remote(number, self._settings[number])
                sent_numbers |= missing
        except RayError as error:
            self._lost = error_reason(error)
            ray.kill(actor)
        except asyncio.CancelledError:
            ray.kill(actor)
            raise
        else:
            self.workers.append(worker)

    async def _send_settings(self, worker: RayActor, number: int) -> None:
        try:
            await worker.actor.receive_settings.remote(number, self._settings[number])
        except RayTaskError as error:
            raise WorkerFailure(
                f"worker {worker.pid} on {worker.address} cannot play it: {error_reason(error)}"
            ) from error
        except RayError as error:
            self._drop_worker(worker, error)

    async def _release(self, worker: RayActor, number: int) -> None:
        """Cancel a worker's episodes of these settings; where they do not end in time, the worker is killed."""
        try:
            async with asyncio.timeout(WORKER_STOP_SECONDS):
                await worker.actor.drop_settings.remote(number)
        except (RayError, TimeoutError) as error:
            self._drop_worker(
                worker, error if isinstance(error, RayError) else RayError("it did not break off in time")
            )


def error_reason(error: RayError) -> str:
    """Ray's error in one line, or the one raised in the worker."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    return one_line(str(cause).strip() or type(cause).__name__, 300)


@asynccontextmanager
async def ray_backend(
    workers: int, *, each: int = 64, cpus: float = 1.0, address: str | None = None
) -> AsyncIterator[RayBackend]:
    """Start workers for the time of the block; each runs `each` episodes concurrently and takes `cpus` of its node.

    `address` is a cluster's (`ray start --head` prints it). Without it, workers are those of the Ray this process is
    connected with, or else processes of this machine, which end with this one in any case. Raises UsageError
    when there is no cluster, and WorkerFailure when not all workers start.
    """
    with ray_connection(address, cpus=workers * cpus):
        backend = RayBackend(workers, each=each, cpus=cpus)
        try:
            await backend.start()
            yield backend
        finally:
            await backend.stop()


def node_address() -> str:
    """The address at which the cluster's other nodes reach this process's machine."""
    return str(ray.util.get_node_ip_address())


def _reach(address: str) -> None:
    """Raise UsageError when nothing listens there: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"{address!r} is not the address of a Ray cluster, like 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"no Ray at {address}: {error}") from error


@contextmanager
def ray_connection(address: str | None, *, cpus: float) -> Iterator[None]:
    """Connect with Ray for the time of the block; an existing connection stays."""
    if ray.is_initialized():
        if address is not None:
            raise UsageError("this process is connected with Ray already: leave the address out")
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    where: dict[str, Any] = {"address": address}
    if address is not None:
        _reach(address)
    else:
        where = {"address": "local", "num_cpus": max(1, ceil(cpus)), "object_store_memory": OBJECT_STORE_BYTES}
        where["include_dashboard"] = False
    try:
        with boundary(WorkerFailure):
            ray.init(**where, logging_level=logging.ERROR)
    except WorkerFailure as failure:
        raise UsageError(f"no Ray at {address or 'this machine'}: {one_line(str(failure), 300)}") from failure
    try:
        yield
    finally:
        ray.shutdown()
