"""What a model plays in Kuhn poker, exactly: the probability of every move in every place, from its own logits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import exp, fsum
from typing import Any

from wanderlust.core.types import Task, Trajectory
from wanderlust.environments.kuhn import KuhnPoker, Strategy, choices
from wanderlust.policies.render import Renderer
from wanderlust.policies.scripted import Scripted
from wanderlust.rollout.engine import rollout
from wanderlust.train import losses
from wanderlust.train.gradient import Differentiator
from wanderlust.train.imitation import to_imitate


def strategy(model: Any, tokenizer: Any) -> Strategy:
    """How the model plays both seats at temperature 1.

    Every deal and line is played and read. A move's probability is that of its usual tokens with nothing else around
    them, so what is missing from 1 is at most what the model says that is no move.
    """
    renderer, reader = Renderer(tokenizer), Differentiator(model, loss=losses.IMITATION)
    played = [seat for game in asyncio.run(_games()) for seat in game]
    samples = [to_imitate(trajectory, renderer) for trajectory, _ in played]
    table: dict[tuple[str, tuple[str, ...], str], float] = {}
    for (_, places), sample, logprobs in zip(played, samples, reader.look(samples), strict=True):
        said = groupby(zip(sample.mask, logprobs, strict=True), key=lambda pair: pair[0])
        turns = [exp(fsum(value for _, value in turn)) for on, turn in said if on]
        table.update(zip(places, turns, strict=True))
    return lambda card, history, move: table[card, tuple(history), move]


async def _games() -> list[list[tuple[Trajectory, list[tuple[str, tuple[str, ...], str]]]]]:
    """Every deal and line as it is said in each seat, with the card, the moves before and the move of each turn."""
    env = KuhnPoker()
    return [[seat async for seat in _seats(env, task, line)] for task in env.tasks() for line in _lines()]


async def _seats(env: KuhnPoker, task: Task, line: Sequence[str]) -> Any:
    policies = {
        name: Scripted([f"<move>{move}</move>" for move in line[seat::2]]) for seat, name in enumerate(env.seats)
    }
    game = await rollout(env, task, policies)
    for seat, trajectory in enumerate(game.trajectories):
        card = task.info["cards"][seat]
        yield trajectory, [(card, tuple(line[:n]), line[n]) for n in range(seat, len(line), 2)]


def _lines(history: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All ways in which a game can go."""
    if not choices(history):
        yield history
    for move in choices(history):
        yield from _lines((*history, move))
