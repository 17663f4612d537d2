"""Sends all weights to servers over the network: the other side of `server_side/wander_weights`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from wanderlust.errors import PolicyFailure, one_line
from wanderlust.policies.server_side.wander_weights import SENDER, broadcast, open_group, own_address
from wanderlust.policies.vllm import VLLM

Backend: TypeAlias = Literal["gloo", "nccl"]
NamedTensors: TypeAlias = Sequence[tuple[str, Tensor]]
TRANSFER_SECONDS = 300.0
"""Time in which all processes of a group must come together, and in which a tensor must arrive."""


class WeightSender:
    """Holds the process group of this process and the workers of the servers that were sent to last."""

    def __init__(self, backend: Backend, *, device: str = "cpu", half: bool = False, seconds: float = TRANSFER_SECONDS):
        """nccl sends from a GPU, `device` where it names one; gloo from processors. `half`: rounded to bfloat16."""
        self.backend, self.seconds = backend, seconds
        self.device = torch.device("cpu" if backend == "gloo" else device.replace("auto", "cuda"))
        self.dtype = torch.bfloat16 if half else torch.float32
        self._lock = asyncio.Lock()
        self._group: Any = None
        self._store: TCPStore | None = None
        self._members: tuple[int, ...] = ()

    def forget(self) -> None:
        """A server was started anew or failed: the next transfer makes another group."""
        self._group, self._members = None, ()

    async def send(self, servers: Sequence[VLLM], tensors: NamedTensors) -> None:
        """Have all workers of the servers take in the tensors. PolicyFailure when one of them does not."""
        described = [(name, str(self.dtype).removeprefix("torch."), list(t.shape)) for name, t in tensors]

        def send_all(group: Any) -> None:
            for _, tensor in tensors:
                broadcast(group, tensor.to(self.device, self.dtype).contiguous())

        async with self._lock:
            try:
                if self._members != tuple(map(id, servers)):
                    await self._join(servers)
                group, self._members = self._group, ()  # until all has arrived
                received = [one.call_workers("wander_receive", tensors=described) for one in servers]
                await asyncio.gather(asyncio.to_thread(send_all, group), *received)
                if self._group is group:  # nobody asked for another one meanwhile
                    self._members = tuple(map(id, servers))
            except (RuntimeError, OSError) as error:  # those of a process group
                raise PolicyFailure(f"weights were not transferred: {one_line(str(error))}", transient=True) from error

    async def _join(self, servers: Sequence[VLLM]) -> None:
        """A new group of this process and all workers of the servers."""
        self.forget()
        workers = await asyncio.gather(*(one.call_workers("wander_workers") for one in servers))
        first, firsts = SENDER + 1, list[int]()
        for own in workers:
            firsts.append(first)
            first += len(own)
        root = servers[0].root
        listener = socket.create_server((own_address(root.host or "127.0.0.1", root.port or 80), 0))
        address, port = listener.getsockname()[:2]
        patience = timedelta(seconds=self.seconds)
        self._store = TCPStore(
            address, port, is_master=True, timeout=patience, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        about = {"backend": self.backend, "address": address, "port": port, "size": first, "seconds": self.seconds}
        joined = [one.call_workers("wander_join", **about, first=n) for one, n in zip(servers, firsts, strict=True)]
        opened = asyncio.to_thread(
            open_group, self.backend, self._store, address=address, rank=SENDER, size=first, seconds=self.seconds
        )
        self._group, *_ = await asyncio.gather(opened, *joined)
