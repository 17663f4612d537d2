"""What the judge layer costs besides the model: a verdict of a policy that answers at once, in processor time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from statistics import median

from benchmarks.bar import Bar
from wanderlust.rubrics.generated import Checklist, Criterion
from wanderlust.rubrics.judge import GroupJudge, Judge
from wanderlust.types import Completion, Message, Tool, Trajectory, Turn, assistant, user

VERDICTS, ROUNDS, SIBLINGS = 2_000, 5, 8
PROMPT = (user("What is it, and why? " * 10),)
CRITERIA = [
    Criterion(text=f"Does it say {word}, at length and clearly?") for word in ("why", "what", "who", "when", "so")
]
WORDS = "word " * 100


class Instant:
    """Gives the same answer at once."""

    model = "instant"

    def __init__(self, answer: object):
        self.done = Completion(
            message=assistant(json.dumps(answer)), usage={"prompt_tokens": 9, "completion_tokens": 9}
        )

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """That answer."""
        return self.done


def said(text: str) -> Trajectory:
    """One turn."""
    return Trajectory(turns=[Turn(observation=PROMPT, action=assistant(text))])


async def alone(tag: str) -> int:
    """One verdict after the other."""
    judge = Judge(Instant({"reason": "It is right.", "score": 7}))
    for n in range(VERDICTS):
        await judge(prompt=PROMPT, answer=None, completion=f"{tag} {n} {WORDS}")
    return VERDICTS


async def at_once(tag: str) -> int:
    """Many verdicts at once."""
    judge = Judge(Instant({"reason": "It is right.", "score": 7}))
    for start in range(0, VERDICTS, 64):
        texts = [f"{tag} {n} {WORDS}" for n in range(start, start + 64)]
        await asyncio.gather(*(judge(prompt=PROMPT, answer=None, completion=text) for text in texts))
    return -(-VERDICTS // 64) * 64


async def criteria(tag: str) -> int:
    """A verdict per criterion."""
    checklist = Checklist(judge=Instant({"score": 1}))
    groups = VERDICTS // (len(CRITERIA) * SIBLINGS)
    for group in range(groups):
        await checklist.scores(CRITERIA, [f"{tag} {group} {n} {WORDS}" for n in range(SIBLINGS)])
    return groups * len(CRITERIA) * SIBLINGS


async def siblings(tag: str) -> int:
    """One verdict over a group, counted as many as it scores."""
    judge = GroupJudge(policy=Instant([{"attempt": n, "score": n / 8} for n in range(1, SIBLINGS + 1)]))
    groups = VERDICTS // SIBLINGS
    for group in range(groups):
        told = [said(f"{tag} {group} {n} {WORDS}") for n in range(SIBLINGS)]
        await judge(prompt=PROMPT, trajectories=told)
    return groups * SIBLINGS


def cost(way: Callable[[str], Awaitable[int]]) -> list[float]:
    """Milliseconds of processor time per verdict, one figure per round, the first left out."""

    async def rounds() -> list[float]:
        out = []
        for number in range(1 + ROUNDS):
            began = time.process_time()
            count = await way(f"{number}")
            out.append(1e3 * (time.process_time() - began) / count)
        return out[1:]

    return asyncio.run(rounds())


def bars() -> Iterator[Bar]:
    """Each way of asking."""
    for way, what in (
        (alone, "one after the other"),
        (at_once, "64 at once"),
        (criteria, "one per criterion"),
        (siblings, "siblings together"),
    ):
        seen = cost(way)
        note = f"{min(seen):.3f} to {max(seen):.3f} in {ROUNDS} rounds, no verdict cached"
        yield Bar(name=f"judge layer per verdict, {what}", figure=median(seen), bar=0.3, aim=0.15, unit="ms", note=note)
