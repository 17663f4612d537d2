"""Wordle over 300 words: how often a small model finds the word, before and after reinforcement.

The list of words is closed. 240 of them are the secrets that reinforcement plays for, and the bars are about those, in
the ordinary game of six guesses; the other 60 may be guessed but were nobody's secret. How often the model finds
*them* is told as well: what it learns by heart it does not find there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import Learnt, gained, learnt, sampled, told, walls
from wanderlust.environments.wordle import BriefWordle
from wanderlust.training.presets import WORDLE

WORDS = 300
GAMES = 3
"""Played for each secret."""
ENV = BriefWordle(words=WORDS)


def solved(checkpoint: Path, split: str) -> float:
    """Share of ordinary games in which the secret is found, over the split's secrets."""
    played = sampled(checkpoint, ENV, ENV.tasks(split) * GAMES, max_tokens=WORDLE.max_tokens)
    return fmean(game.task.answer in game.state["guesses"] for game in played)


def bars() -> Iterator[Bar]:
    """Words found after, words gained by reinforcement, and the longest run."""
    held: list[float] = []

    def figure(checkpoint: Path) -> float:
        held.append(solved(checkpoint, "eval"))
        return solved(checkpoint, "train")

    runs = learnt(WORDLE, figure)
    unseen = [replace(run, before=held[2 * n], after=held[2 * n + 1]) for n, run in enumerate(runs)]
    yield from judge(runs, unseen)


def judge(runs: list[Learnt], unseen: list[Learnt]) -> Iterator[Bar]:
    """The bars of some seeds' figures, on trained secrets and on held-out ones."""
    what = f"Wordle, {WORDS} words"
    worst = min(run.after for run in runs)
    note = f"{told(runs)}; of 60 held-out secrets {told(unseen).removeprefix('seeds: ')}"
    yield Bar(name=f"{what}: found, worst seed", figure=worst, bar=0.75, aim=0.9, better="higher", note=note)
    yield from gained(what, runs, bar=0.15, aim=0.3)
    yield from walls(f"{what}: wall time of a run", runs, bar=900, aim=300)
