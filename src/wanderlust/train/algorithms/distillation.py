"""On-policy distillation: the student plays, the teacher says how likely each of its tokens was (arXiv 2306.13649)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from wanderlust.core.errors import UsageError
from wanderlust.core.types import Group
from wanderlust.train import losses
from wanderlust.train.algorithms.contract import Lent, scored, write
from wanderlust.train.losses import PolicyLoss
from wanderlust.train.scoring import Scorer


@dataclass(frozen=True, slots=True, kw_only=True)
class Distillation:
    """Advantage of a token = log p_teacher - log p_student: its part of the reverse KL, and no reward at all.

    A token answers for itself only (later ones are discounted to nothing), so the expected gradient is that of
    KL(student || teacher) at each place the student came to.
    """

    weight: float = 1.0
    loss: PolicyLoss = losses.IMPORTANCE
    teacher: Scorer | None = None

    def equip(self, lent: Lent) -> Self:
        """Ask the run for its teacher."""
        return replace(self, teacher=Scorer(lent.teacher(), temperature=lent.temperature))

    async def annotate(self, group: Group) -> None:
        """Write `advantages` on every scored trajectory that is trained; failed rollouts get none."""
        if self.teacher is None:
            raise UsageError("distillation needs a teacher: equip() it first")
        played = [t for seat in scored(group) for t, _ in seat if t.trainable]
        for trajectory, known in zip(played, self.teacher.logprobs(played), strict=True):
            ours = [p for turn in trajectory.turns if turn.tokens is not None for p in turn.tokens.logprobs]
            theirs = [p for turn in known for p in turn]
            write(trajectory, [self.weight * (t - o) for t, o in zip(theirs, ours, strict=True)])
