"""Ray actors in place of worker processes: each holds a replica, on any node of a cluster.

What an actor returns depends on the weights and on the call alone, so figures are those of worker processes, bit for
bit, on processors of one kind. An actor that is lost is replaced, gets the newest weights, and is asked again.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from wanderlust.errors import WanderlustError, WorkerRestartWarning
from wanderlust.runner.ray import (
    MAX_WORKER_LIVES,
    WORKER_RETURN_SECONDS,
    WORKER_START_SECONDS,
    error_reason,
    ray_connection,
)
from wanderlust.training.trainers.replica import PUBLISH, WorkerError, serialized


class _Holder:
    """The actor."""

    def __init__(self, paths: Sequence[str], make: bytes):
        sys.path += [path for path in paths if path not in sys.path]
        self._target = pickle.loads(make)()

    def ready(self) -> None:
        """Returns when the object has been made."""

    def call(self, method: str, arguments: bytes) -> bytes:
        """Call the object; errors of this library are returned as text."""
        try:
            answer = (True, getattr(self._target, method)(*cloudpickle.loads(arguments)))
        except WanderlustError as error:
            answer = (False, str(error))
        return bytes(cloudpickle.dumps(answer))


class RayReplicas:
    """As `Workers`: `count` actors, each holding one object made by `make`."""

    def __init__(self, make: Callable[[], Any], *, count: int, address: str | None = None):
        """`address` is a cluster's; without, actors are those of the Ray of this process, or of this machine."""
        self._make, self.count, self.address = make, count, address
        self._exits, self._actors = ExitStack(), list[Any]()
        self._published: Any = None
        self._lost = ""
        self.restarted = 0
        """Calls that were made again because their actor was lost."""

    def __enter__(self) -> Self:
        self._exits.enter_context(ray_connection(self.address, cpus=self.count))
        self._exits.callback(self._end)
        try:
            self._sent = ray.put(serialized(self._make))
            self._kind = ray.remote(_Holder).options(num_cpus=1, scheduling_strategy="SPREAD")
            self._actors = [self._start() for _ in range(self.count)]
            ray.get([actor.ready.remote() for actor in self._actors], timeout=WORKER_START_SECONDS)
        except GetTimeoutError as error:
            self._exits.close()
            room = ray.cluster_resources().get("CPU", 0) if ray.is_initialized() else 0
            raise WorkerError(
                f"{self.count} Ray workers did not start within {WORKER_START_SECONDS:.0f} s: the cluster has {room:g} "
                "CPUs; ask for fewer workers"
            ) from error
        except RayError as error:
            self._exits.close()
            raise WorkerError(f"a Ray worker cannot play: {error_reason(error)}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.close()

    @cached_property
    def local(self) -> Any:
        """An object of this process, made when it is first asked for."""
        return self._make()

    def call(self, method: str, shards: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call `method` once per shard with that shard's arguments; results in the order of the shards."""
        sent: dict[tuple[int, ...], Any] = {}
        arguments = []
        for shard in shards:
            same = tuple(map(id, shard))
            if same not in sent:
                sent[same] = ray.put(bytes(cloudpickle.dumps(shard)))
            arguments.append(sent[same])
        if method == PUBLISH:
            self._published = arguments[0]
        results: dict[int, Any] = {}
        for life in range(MAX_WORKER_LIVES + 1):
            missing = [n for n in range(len(shards)) if n not in results]
            if not missing:
                break
            self.restarted += len(missing) if life else 0
            asked = [self._actors[n % len(self._actors)] for n in missing]
            calls = [actor.call.remote(method, arguments[n]) for n, actor in zip(missing, asked, strict=True)]
            lost = [a for n, a, c in zip(missing, asked, calls, strict=True) if not self._take(results, n, c)]
            for actor in dict.fromkeys(lost):
                self._replace(actor)
            if lost:
                line = f"{len({*lost})} Ray workers were lost ({self._lost}); their work is done again by others"
                warnings.warn(line, WorkerRestartWarning, stacklevel=2)
        else:
            raise WorkerError(f"{MAX_WORKER_LIVES} Ray workers were lost at one call; the run can be resumed")
        return [results[n] for n in range(len(shards))]

    def _take(self, results: dict[int, Any], number: int, call: Any) -> bool:
        """Wait for a call; whether its actor lived to answer. WorkerError for what was raised there."""
        try:
            ok, value = pickle.loads(ray.get(call))
        except RayTaskError as error:
            raise WorkerError(f"a Ray worker failed: {error_reason(error)}") from error
        except RayError as error:
            self._lost = error_reason(error)
            return False
        if not ok:
            raise WorkerError(value)
        results[number] = value
        return True

    def _replace(self, lost: Any) -> None:
        """Start another actor in place of a lost one; where there is no room for it, the others do its work."""
        ray.kill(lost)
        place = self._actors.index(lost)
        self._actors[place] = new = self._start()
        ready, _ = ray.wait([new.ready.remote()], timeout=WORKER_RETURN_SECONDS)
        if not ready:
            ray.kill(new)
            del self._actors[place]
        elif self._published is not None:
            new.call.remote(PUBLISH, self._published)
        if not self._actors:
            raise WorkerError("all Ray workers are lost and Ray has no place for another one; the run can be resumed")

    def _start(self) -> Any:
        return self._kind.remote(sys.path, self._sent)

    def _end(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        self._actors.clear()
