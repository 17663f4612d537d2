"""A judge that looks at siblings side by side: relative scores are steadier than absolute ones (RULER, ART)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import fsum
from random import Random

from wanderlust.core.contracts import Policy
from wanderlust.core.errors import RubricFailure, UsageError, WanderlustError
from wanderlust.core.messages import Message, system, user
from wanderlust.core.types import Trajectory
from wanderlust.policies.sampling import key_of
from wanderlust.rubrics.asked import SPENT, Answered, Asker
from wanderlust.rubrics.manners import COMPARED, Manner
from wanderlust.rubrics.part import Judged
from wanderlust.rubrics.verdicts import VerdictCache
from wanderlust.rubrics.waiting import settled

LONGEST = 20_000
"""Characters of one sibling that the judge is shown; of more, the middle is left out."""


@dataclass(slots=True, kw_only=True)
class GroupJudge:
    """A function of a group for rubrics: one verdict over all siblings, each scored from 0 to 1.

    What all attempts begin with is shown once. Siblings that did the very same thing are shown once and score the
    same. Several votes show them in other orders, every second one the other way round; scores are the mean. `flips` is
    the share of pairs of siblings that votes order differently, which measures how much the judge goes by position. A
    failed verdict is a RubricFailure of the group, never a 0; so is a group in which all did the same, where the manner
    only compares.
    """

    policy: Policy
    criteria: str = ""
    """What counts, in words; added to the instructions."""
    manner: Manner = COMPARED
    """`PRINCIPLED` has it write principles and critiques first, and scores single attempts too."""
    votes: int = 1
    name: str = "group_judge"
    model: str = ""
    cache: VerdictCache | None = None
    _asker: Asker = field(init=False)

    def __post_init__(self) -> None:
        if self.votes < 1:
            raise UsageError(f"{self.name!r} needs at least one vote")
        self._asker = Asker.of(self.policy, name=self.name, model=self.model, cache=self.cache)

    async def __call__(self, *, prompt: Sequence[Message], trajectories: Sequence[Trajectory]) -> list[Judged]:
        """A score per sibling."""
        told = [_told(trajectory) for trajectory in trajectories]
        different = list(dict.fromkeys(told))
        if len(different) < 2 and not self.manner.alone:
            raise RubricFailure("all siblings did the same, so there is nothing to compare")
        ended = await settled(self._vote(prompt, different, number) for number in range(self.votes))
        votes: list[Answered[dict[str, float]]] = []
        for one in ended:
            if isinstance(one, WanderlustError):
                raise one
            votes.append(one)
        spent = Counter[str]()
        for vote in votes:
            spent.update(vote.spent)
        metrics = {name: spent[name] / len(told) for name in SPENT}
        if self.votes > 1:
            metrics["flips"] = flips([vote.value for vote in votes])
        note = "\n".join(vote.answer for vote in votes)
        scores = {text: fsum(vote.value[text] for vote in votes) / len(votes) for text in different}
        return [Judged(value=scores[text], metrics=metrics, note=note) for text in told]

    async def _vote(self, prompt: Sequence[Message], told: Sequence[str], number: int) -> Answered[dict[str, float]]:
        order = list(told)
        Random(f"order/{number // 2}/{key_of(*told)}").shuffle(order)
        if number % 2:
            order.reverse()
        asked = [
            system(self.manner.instructions.replace("CRITERIA", self.criteria)),
            user("\n\n".join(_shown(prompt, order))),
        ]
        found = await self._asker.ask(asked, lambda said: self.manner.read(said, len(order)), number=number)
        values = dict(zip(order, found.value, strict=True))
        return Answered(value=values, answer=found.answer, spent=found.spent)


def _shown(prompt: Sequence[Message], order: Sequence[str]) -> Iterator[str]:
    """The task and what all attempts begin with once, then the rest of each."""
    yield "<task>\n" + _safe("\n".join(f"{m.role}: {m.content}" for m in prompt)) + "\n</task>"
    lines = [text.split("\n") for text in order]
    common = 0
    while common < min(map(len, lines)) - 1 and len({tuple(own[: common + 1]) for own in lines}) == 1:
        common += 1
    if common:
        yield "<beginning>\n" + _safe("\n".join(lines[0][:common])) + "\n</beginning>"
    for number, own in enumerate(lines, 1):
        yield f"<attempt {number}>\n" + _safe("\n".join(own[common:])) + "\n</attempt>"


def _safe(text: str) -> str:
    """Text that does not close the tag it stands in, cut to size."""
    if len(text) > LONGEST:
        half = LONGEST // 2
        text = f"{text[:half]}\n[{len(text) - LONGEST} characters left out]\n{text[-half:]}"
    return re.sub(r"</(?=task|beginning|attempt)", "<\\/", text)


def _told(trajectory: Trajectory) -> str:
    """Everything after the prompt, a line per message."""
    lines = []
    for turn_number, turn in enumerate(trajectory.turns):
        if turn_number:
            lines += [f"{m.role}: {m.content}" for m in turn.observation]
        calls = " ".join(f"{call.name}({call.arguments})" for call in turn.action.tool_calls)
        lines.append(" ".join(filter(None, (f"assistant: {turn.action.content}", calls))))
    return "\n".join(lines)


def flips(votes: Sequence[Mapping[str, float]]) -> float:
    """Share of the pairs of siblings, over pairs of votes, that are ordered differently; 0 without a pair."""
    seen = turned = 0
    for one, other in combinations(votes, 2):
        for a, b in combinations(one, 2):
            seen += 1
            turned += (one[a] - one[b]) * (other[a] - other[b]) < 0
    return turned / seen if seen else 0.0
