"""A tiny model learns to live in time: `no-answer` in few words, a hasty teacher first, then the verifier's verdicts.

Runs the course itself, three seeds one after the other. Success is measured on held-out scenarios, whose people and
places were nobody's in training: sampled, as in training, before and after reinforcement, the same tasks for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import Learnt, gained, learnt, reward, sampled, told, walls
from wanderlust.environments.brief_life import BriefNoAnswer
from wanderlust.recipes.presets import NO_ANSWER

ENV = BriefNoAnswer(evaluated=200)


def success(checkpoint: Path) -> float:
    """Share of accepted episodes of the held-out tasks, one each, at temperature 1."""
    return fmean(map(reward, sampled(checkpoint, ENV, list(ENV.tasks("eval")), max_tokens=NO_ANSWER.max_tokens)))


def bars() -> Iterator[Bar]:
    """Success after and gained, the lower end of the gain's interval, and the longest run."""
    yield from judge(learnt(NO_ANSWER, success))


def judge(runs: list[Learnt]) -> Iterator[Bar]:
    """The bars of some seeds' figures."""
    what = "no-answer in few words, 0.15M parameters"
    worst = min(run.after for run in runs)
    name = f"{what}: held-out success, worst seed"
    yield Bar(name=name, figure=worst, bar=0.7, aim=0.9, better="higher", note=told(runs))
    yield from gained(what, runs, bar=0.2, aim=0.5)
    yield from walls(f"{what}: wall time of a run", runs, bar=360, aim=180)
