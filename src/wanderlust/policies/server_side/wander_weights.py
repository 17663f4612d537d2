"""Weights over the network: one process sends all tensors of a model, the workers of servers receive them.

Both sides import this file. A vLLM server does so by `--worker-extension-cls wander_weights.ReceivingWorker`, with this
folder in its PYTHONPATH; it needs PyTorch and nothing else of this project. The group is a process group of its own,
beside whatever groups either side has: NCCL between GPUs, gloo between processors.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

SENDER = 0
"""Rank of the process that sends."""


def open_group(backend: str, store: TCPStore, *, address: str, rank: int, size: int, seconds: float) -> Any:
    """The process group of a transfer; all `size` processes call it. RuntimeError where one does not come in time."""
    patience, own = timedelta(seconds=seconds), PrefixStore(backend, store)
    if backend == "gloo":
        from torch.distributed import ProcessGroupGloo

        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [ProcessGroupGloo.create_device(hostname=address)]
        options._timeout = patience
        return ProcessGroupGloo(own, rank, size, options)
    from torch.distributed import ProcessGroupNCCL

    settings = ProcessGroupNCCL.Options()
    settings._timeout = patience
    return ProcessGroupNCCL(own, rank, size, settings)


def own_address(towards: str, port: int) -> str:
    """The address of this machine that a process at `towards` reaches."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((towards, port))
        return str(probe.getsockname()[0])


def broadcast(group: Any, tensor: Tensor) -> None:
    """Send the tensor, as the sender; fill it, as a receiver."""
    options = torch.distributed.BroadcastOptions()
    options.rootRank = SENDER
    group.broadcast([tensor], options).wait()


class ReceivingWorker:
    """What a worker of a vLLM server can do besides; each call is made on all workers of the server at once."""

    rank: int
    device: torch.device

    def wander_workers(self) -> dict[str, int]:
        """Which worker of the server this is."""
        return {"rank": self.rank}

    def wander_join(self, *, backend: str, address: str, port: int, first: int, size: int, seconds: float) -> None:
        """Join the group; this worker's rank there is `first` and its own rank in the server."""
        self._wander_group = None  # the group before is given up
        store = TCPStore(address, port, size, is_master=False, timeout=timedelta(seconds=seconds))
        here = own_address(address, port)
        rank = first + self.rank
        self._wander_group = open_group(backend, store, address=here, rank=rank, size=size, seconds=seconds)

    def wander_receive(self, tensors: list[tuple[str, str, list[int]]]) -> None:
        """Take in all weights: names, types and shapes of the tensors, in the order in which they are sent."""

        def incoming() -> Iterator[tuple[str, Tensor]]:
            for name, kind, shape in tensors:
                tensor = torch.empty(shape, dtype=getattr(torch, kind), device=self.device)
                broadcast(self._wander_group, tensor)
                yield name, tensor

        self.reload_weights(weights_iterator=incoming())  # type: ignore[attr-defined]
