"""What an actor of a Ray crew is: it plays episodes in an event loop of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import ray

from wanderlust.rollout.engine import Job, Play
from wanderlust.rollout.ray_sending import receive_play, send_rollout


@dataclass(slots=True)
class _Part:
    """A play that this worker has a part in."""

    play: Play
    held: AsyncExitStack
    """What policies keep open between calls."""
    running: set[asyncio.Task[Any]] = field(default_factory=set)


class RayWorker:
    """Knows some plays by their number, and plays episodes of them, many at once."""

    def __init__(self, paths: Sequence[str]):
        """`paths` is where the other process finds modules; this one looks there last."""
        self._parts: dict[int, _Part] = {}
        sys.path += [path for path in paths if path not in sys.path]

    async def place(self) -> tuple[int, str]:
        """This process's id, and the address of its machine."""
        return os.getpid(), str(ray.util.get_node_ip_address())

    async def hear(self, number: int, sent: bytes) -> None:
        """Take part in a play. Raises EnvironmentFailure when it cannot be made again here."""
        play, held = receive_play(sent), AsyncExitStack()
        for policy in _policies(play):
            if isinstance(policy, AbstractAsyncContextManager):
                await held.enter_async_context(policy)
        self._parts[number] = _Part(play, held)

    async def play(self, number: int, job: Job) -> bytes:
        """Play and score one episode."""
        part = self._parts[number]
        episode = asyncio.create_task(part.play.stubbornly(job))
        part.running.add(episode)
        try:
            return send_rollout(await episode)
        finally:
            part.running.discard(episode)

    async def leave(self, number: int) -> None:
        """Break off whatever goes on of a play, wait for its end and forget it."""
        part = self._parts.pop(number, None)
        if part is None:
            return
        for episode in part.running:
            episode.cancel()
        await asyncio.gather(*part.running, return_exceptions=True)
        await part.held.aclose()


def _policies(play: Play) -> Iterable[Any]:
    policy: Any = play.policy
    return {id(one): one for one in policy.values()}.values() if isinstance(policy, dict) else [policy]
