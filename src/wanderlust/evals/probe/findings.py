"""What the policies of a probe earned, and which of them earned more than they deserve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, sqrt

from wanderlust.core.errors import UsageError
from wanderlust.core.types import Rollout
from wanderlust.evals.probe.altered import DESERVED
from wanderlust.evals.probe.altered import KIND as SPOILT
from wanderlust.evals.probe.battery import IGNORANT
from wanderlust.evals.probe.replayed import FARM, MORE, PLAIN
from wanderlust.evals.probe.replayed import KIND as AGAIN
from wanderlust.evals.statistics import Estimate

STRANGER = "stranger"
"""The kind of the one that answers what is right in another task."""
SHARE = 0.25
"""Share of what lies between chance and the oracle from which on a probe is reported."""
SURE = 3.3
"""Standard errors that the gain over chance must be above 0: about one false alarm in 2,000 probes."""
TOLD_APART, AT_LEAST = 0.4, 0.25
"""Shares of the oracle's reward that must lie above chance: the former unless the oracle clearly earns more, the latter
always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earned:
    """What one policy earned."""

    name: str
    what: str
    kind: str
    reward: Estimate
    by_task: Mapping[str, float]
    best: Rollout
    """The rollout that earned most: the transcript to read."""
    says: Counter[str] = field(default_factory=Counter)
    """Its last words, by how often it said them."""
    failed: int = 0
    """Episodes that failed; they are in no figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A degenerate policy that earns more than chance."""

    earned: Earned
    share: float
    """Of what lies between chance and the oracle."""

    @property
    def line(self) -> str:
        """In one line."""
        return f"{self.earned.name} ({self.earned.what}) earns {self.earned.reward}: {self.share:.0%} of the way up"


@dataclass(slots=True, kw_only=True)
class Findings:
    """What the battery found."""

    oracle: Earned | None
    top: float
    """What the oracle earned; without one, 1 or the most that anybody earned."""
    chance: Earned
    """The ignorant policy that earned most."""
    played: list[Earned] = field(default_factory=list)
    """Every probe that fitted, in the battery's order."""
    skipped: list[str] = field(default_factory=list)
    """Probes that did not fit, for example tools where there are none."""
    flaws: list[Flaw] = field(default_factory=list)
    """Highest share first."""
    blind: bool = False
    """Whether chance earns nearly what the oracle earns, so that the reward teaches nothing."""

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.flaws and not self.blind


def judged(known: Sequence[Earned], skipped: Sequence[str], oracle: Earned | None) -> Findings:
    chances = [earned for earned in known if earned.kind == IGNORANT]
    stranger = next((earned for earned in known if earned.kind == STRANGER), None)
    if not chances:
        raise UsageError("no episode of the ignorant policies could be scored: run wander check first")
    chance = max(chances, key=lambda earned: earned.reward.value)
    played = [earned for earned in known if earned.kind not in (IGNORANT, STRANGER)]
    most = max([earned.reward.value for earned in known])
    top = oracle.reward.value if oracle is not None else max(1.0, most)
    found = Findings(oracle=oracle, top=top, chance=chance, played=played, skipped=list(skipped))
    room = top - chance.reward.value
    needed = AT_LEAST if oracle is not None and clearly(oracle, chance) else TOLD_APART
    found.blind = room <= needed * abs(top)
    for earned in played:
        least = stranger if stranger is not None and _answers(earned, stranger) else chance
        share = _share(earned, least, top)
        needed, above = _demanded(earned, least, oracle)
        farmed = earned.name == FARM and _farms(earned, [chance, *played], room)
        if farmed or (share >= needed and clearly(earned, above)):
            found.flaws.append(Flaw(earned=earned, share=share))
    if stranger is not None and _undiscerning(stranger, chance, top):
        found.flaws.append(Flaw(earned=stranger, share=_share(stranger, chance, top)))
    found.flaws.sort(key=lambda flaw: -flaw.share)
    return found


def _share(earned: Earned, least: Earned, top: float) -> float:
    """Of what lies between the two."""
    gain, room = earned.reward.value - least.reward.value, top - least.reward.value
    return gain / room if room > 0 else float(gain > 0)


def _answers(earned: Earned, stranger: Earned) -> bool:
    """Whether what it says is mostly right somewhere, so that how often it is right says nothing of the reward."""
    right = sum(times for said, times in earned.says.items() if said in stranger.says)
    return 2 * right > sum(earned.says.values())


def _undiscerning(stranger: Earned, chance: Earned, top: float) -> bool:
    """Whether answers to other tasks are paid by far more than they can be right."""
    count = sum(stranger.says.values())
    alike = fsum((times / count) ** 2 for times in stranger.says.values())
    return _share(stranger, chance, top) - alike >= TOLD_APART and clearly(stranger, chance)


def _demanded(earned: Earned, least: Earned, oracle: Earned | None) -> tuple[float, Earned]:
    """From which share on a probe is reported, and whom it must clearly surpass."""
    if earned.kind == AGAIN and oracle is not None:
        return 1 + MORE, oracle
    return DESERVED if earned.kind == SPOILT else SHARE, least


def _farms(farm: Earned, known: Sequence[Earned], room: float) -> bool:
    """Whether going the same way again is paid again: more than chance, and than going it once or without an end."""
    chance, *played = known
    plain = [chance, *(one for one in played if one.name in PLAIN)]
    return all(farm.reward.value - one.reward.value >= SHARE * room and clearly(farm, one) for one in plain)


def clearly(one: Earned, other: Earned) -> bool:
    """Whether the first earns more on the same tasks, by SURE standard errors of the paired difference."""
    common = sorted(one.by_task.keys() & other.by_task.keys())
    gains = [one.by_task[task] - other.by_task[task] for task in common]
    count = len(gains)
    if count < 2:
        return False
    average = fsum(gains) / count
    spread = fsum((gain - average) ** 2 for gain in gains) / (count - 1)
    return average > SURE * sqrt(spread / count)
