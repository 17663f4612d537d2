"""What a group of rollouts knows together, against what each of them says alone (Compute as Teacher, at inference)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import fsum
from typing import Any

from wanderlust.errors import RubricFailure, WanderlustError, one_line
from wanderlust.evals.statistics import Estimate, estimate, mean, share
from wanderlust.rubrics.label_free import Check, asked, worth
from wanderlust.rubrics.references import Estimator, refer
from wanderlust.rubrics.rubric import settled
from wanderlust.types import Group, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """One group's reference, and what it would have earned."""

    task: str
    text: str
    value: float
    """Of the reference, under the environment's own reward."""
    rewards: tuple[float, ...]
    """Of the siblings."""
    disagrees: bool
    """Whether it is not what most siblings say."""
    diversity: float

    @property
    def mean(self) -> float:
        """Of the siblings' rewards."""
        return fsum(self.rewards) / len(self.rewards)


async def reference_of(group: Group, estimator: Estimator, check: Check) -> Estimated:
    """The reference of a group's scored siblings, and its worth. RubricFailure where there is none, or no worth."""
    if any(len(r.trajectories) > 1 for r in group.rollouts):
        raise RubricFailure("an estimate is of one seat, and this environment has several")
    known = [(r.seed, t, t.score.reward) for r in group.rollouts for t in r.trajectories if t.score is not None]
    if len(known) < 2:
        raise RubricFailure(f"{len(known)} of {len(group.rollouts)} rollouts are scored, and siblings are needed")
    seed, siblings, rewards = known[0][0], [t for _, t, _ in known], [reward for *_, reward in known]
    said = [_last(t) for t in siblings]
    found = await refer(estimator, asked(group.task, siblings), said, trajectories=siblings)
    value = await worth(partial(check, group.task, seed), found.text, said=said, known=rewards)
    return Estimated(
        task=group.task.id,
        text=found.text,
        value=value,
        rewards=tuple(rewards),
        disagrees=not found.agrees,
        diversity=found.diversity,
    )


def _last(trajectory: Trajectory) -> str:
    return trajectory.turns[-1].action.content if trajectory.turns else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateReport:
    """Estimates of many groups; groups without one are in no figure but `failed`."""

    name: str
    """Which estimate."""
    groups: int
    failed: int
    first: str
    """Why the first of those that failed did."""
    value: Estimate | None
    """Reward of the estimate."""
    mean: Estimate | None
    """Mean reward of the rollouts it was made from."""
    gain: Estimate | None
    """The difference, paired by task."""
    disagrees: Estimate | None
    """Share of groups where the estimate is not what most siblings say."""
    right_apart: Estimate | None
    """Reward of the estimate in those groups."""
    beyond: Estimate | None
    """Share of groups where it earns more than any sibling."""
    diversity: Estimate | None

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        return asdict(self)

    def rows(self) -> Iterator[tuple[str, Estimate]]:
        """For the terminal: what there is a figure of."""
        for label, found in (
            (f"{self.name}: reward of the estimate", self.value),
            ("mean rollout", self.mean),
            ("gain, paired by task", self.gain),
            ("is not what most siblings say", self.disagrees),
            ("reward of the estimate there", self.right_apart),
            ("earns more than any sibling", self.beyond),
            ("diversity of the siblings' answers", self.diversity),
        ):
            if found is not None:
                yield label, found


@dataclass(slots=True, kw_only=True)
class Estimates:
    """Estimates one group after the other; a group without one is counted and never a 0."""

    name: str
    estimator: Estimator
    check: Check
    done: list[Estimated] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    async def add(self, groups: Sequence[Group]) -> None:
        """Groups with all their siblings, estimated at once."""
        ended = await settled(reference_of(group, self.estimator, self.check) for group in groups)
        for group, found in zip(groups, ended, strict=True):
            if isinstance(found, WanderlustError):
                self.errors.append(f"{group.task.id}: {one_line(str(found))}")
            else:
                self.done.append(found)

    def report(self) -> EstimateReport:
        """All of it."""
        done = self.done
        apart = [one for one in done if one.disagrees]
        return EstimateReport(
            name=self.name,
            groups=len(done),
            failed=len(self.errors),
            first=self.errors[0] if self.errors else "",
            value=estimate([[one.value] for one in done]) if done else None,
            mean=mean([[one.mean] for one in done]) if done else None,
            gain=mean([[one.value - one.mean] for one in done]) if done else None,
            disagrees=share([[float(one.disagrees)] for one in done]) if done else None,
            right_apart=estimate([[one.value] for one in apart]) if apart else None,
            beyond=share([[float(one.value > max(one.rewards))] for one in done]) if done else None,
            diversity=mean([[one.diversity] for one in done]) if done else None,
        )
