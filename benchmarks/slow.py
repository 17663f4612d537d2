"""An environment whose tool takes its time, for the bar of asynchronous training."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import ClassVar

from wanderlust.environment import Environment, Episode
from wanderlust.policies.scripted import Scripted
from wanderlust.types import Message, Policy, Task, user

WORDS = "abcd"
SECONDS = (0.05, 0.2)
"""Shortest and longest answer of the tool, alike in between."""


def guess(messages: Sequence[Message], rng: Random) -> str:
    """Some letter: whoever imitates it is right in a quarter of the turns."""
    return rng.choice(WORDS)


class SlowTool(Environment):
    """Two turns: name the letter that was shown, ask a slow service, then name the one that it answered with."""

    players: ClassVar[Mapping[str, Callable[[], Policy]]] = {"teacher": lambda: Scripted(guess)}

    async def run(self, episode: Episode) -> None:
        """Each right letter is half of the reward."""
        shown, answered = episode.task.info["shown"], episode.task.info["answered"]
        said = await episode.agent.act(user(shown))
        episode.reward("right", 0.5 * (said.content == shown))
        await asyncio.sleep(episode.rng("service", episode.agent.key).uniform(*SECONDS))
        said = await episode.agent.act(user(answered))
        episode.reward("right", 0.5 * (said.content == answered))

    def tasks(self, split: str = "train") -> list[Task]:
        """Every letter, with another one behind it; nothing is evaluated."""
        if split != "train":
            return []
        pairs = [(shown, WORDS[(n + 2) % len(WORDS)]) for n, shown in enumerate(WORDS)]
        return [Task(id=f"slow-{a}{b}", info={"shown": a, "answered": b}) for a, b in pairs]
