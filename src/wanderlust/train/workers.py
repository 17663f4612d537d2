"""A few processes that do the same work on different shards: one core each, the same result on any number.

Work is cut into shards, not into workers: a shard's result depends on the shard alone, so one worker that does two
shards one after the other and two workers that do one each return the same values, bit for bit.
"""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from wanderlust.core.errors import WanderlustError


class WorkerError(WanderlustError):
    """A worker process died or its work raised."""


class Workers:
    """This process and `count - 1` others, each holding one object made by `make` (which must pickle).

    The others end with this one, however it ends: they read from a pipe that closes.
    """

    def __init__(self, make: Callable[[], Any], *, count: int):
        self._make, self.count = make, count
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        for _ in range(self.count - 1):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, self._make), daemon=True)
            with _sheltered():
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        self.local = _made(self._make)
        return self

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
        for pipe, mine in zip(self._pipes, jobs[1:], strict=True):
            _send(pipe, (method, [shards[i] for i in mine]))
        results: dict[int, Any] = {i: getattr(self.local, method)(*shards[i]) for i in jobs[0]}
        for pipe, mine in zip(self._pipes, jobs[1:], strict=True):
            results.update(zip(mine, _receive(pipe), strict=True))
        return [results[i] for i in range(len(shards))]

    def tell(self, method: str, *arguments: Any) -> None:
        """Call `method` with the same arguments once in every worker."""
        self.call(method, [arguments] * self.count)


@contextmanager
def _sheltered() -> Iterator[None]:
    """A process started here never hears of Ctrl-C, not even while it imports: that is its parent's to handle."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(pipe: Connection, message: Any) -> None:
    try:
        pipe.send_bytes(pickle.dumps(message, protocol=5))
    except OSError as error:
        raise WorkerError("a worker process has died; the run can be resumed") from error


def _receive(pipe: Connection) -> list[Any]:
    try:
        ok, value = pickle.loads(pipe.recv_bytes())
    except (EOFError, OSError) as error:
        raise WorkerError("a worker process has died; the run can be resumed") from error
    if not ok:
        raise WorkerError(value)
    return list(value)


def _made(make: Callable[[], Any]) -> Any:
    """What `make` makes; it and all that was imported stay, so the garbage collector need not look there again."""
    made = make()
    gc.freeze()
    return made


def _serve(pipe: Connection, make: Callable[[], Any]) -> None:
    """A worker's life: answer calls until the pipe closes."""
    target = _made(make)
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
