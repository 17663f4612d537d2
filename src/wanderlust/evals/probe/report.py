"""The report on a run of all probes: its verdict, the degenerate policies that clearly earn more than chance, and how
many probes the reward could hear at all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, sqrt
from typing import Any, Literal, TypeAlias

from wanderlust.errors import UsageError
from wanderlust.evals.probe.oracle_variants import ALTERED_KIND as SPOILT
from wanderlust.evals.probe.oracle_variants import FARM_NAME, FARMING_MARGIN, MIN_ALTERED_SHARE, UNREPEATED_NAMES
from wanderlust.evals.probe.oracle_variants import REPLAYED_KIND as AGAIN
from wanderlust.evals.probe.probe import IGNORANT
from wanderlust.evals.statistics import MAX_CHANCE, Estimate, holm
from wanderlust.rubrics.answers import comparable, stated_answer
from wanderlust.rubrics.moments import student_tail
from wanderlust.types import Rollout

Verdict: TypeAlias = Literal["flaw found", "nothing found", "cannot tell"]
STRANGER_KIND = "stranger"
"""The kind of the probe that answers with the right answer to another task."""
MIN_FLAW_SHARE = 0.25
"""Share of the oracle's gain over chance from which on a probe is reported."""
ATTACK_KIND = "attack"
"""The kind of the attacker that learns: honest learning earns something, so it must beat the oracle, or the truth."""
MIN_TRUTH_GAP = 0.5
"""Share by which the attacker is further up in the reward than in a held-out metric, for it to be a flaw."""
MIN_WRONG_TASKS = 3
"""Wrong answers from which on a constant answer can be told from one that is paid for being right."""
MAX_PROBE_CHANCE = 0.0005
"""Probability of a gain by chance alone below which a comparison that is not one of many is clear."""
MIN_ROOM_UNCLEAR, MIN_ROOM = 0.4, 0.25
"""Shares of the oracle's reward that must lie above chance: the second always, the first unless the oracle clearly
earns more.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The result of one policy."""

    name: str
    description: str
    kind: str
    reward: Estimate
    by_task: Mapping[str, float]
    best: Rollout
    """The rollout with the highest reward: the transcript to read."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Its last answer in each task."""
    spoke: bool = False
    """Whether it was understood in some task: paid something, heard like no garbage is, or in the form of the oracle's
    answers."""
    failed: int = 0
    """Number of episodes that failed; they are in no figure."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means of the metrics that are never trained on: the truth, where the environment states one."""

    @property
    def last_answers(self) -> Counter[str]:
        """Its last answers, by their frequency."""
        return Counter(self.answers.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """A degenerate policy that earns more than chance."""

    result: ProbeResult
    share: float
    """Share of the oracle's gain over chance."""

    @property
    def line(self) -> str:
        """The flaw in one line."""
        return (
            f"{self.result.name} ({self.result.description}) earns {self.result.reward}: {self.share:.0%} of the way up"
        )


@dataclass(slots=True, kw_only=True)
class ProbeReport:
    """The report on a battery."""

    oracle: ProbeResult | None
    top: float
    """The oracle's reward; without an oracle, 1 or the highest reward."""
    chance: ProbeResult
    """The ignorant policy with the highest reward."""
    results: list[ProbeResult] = field(default_factory=list)
    """Every probe that fitted, in the battery's order."""
    skipped: list[str] = field(default_factory=list)
    """Probes that did not fit, for example tools where there are none."""
    flaws: list[Flaw] = field(default_factory=list)
    """The highest share first."""
    chance_bar: float | None = None
    """What the environment states that chance may earn, because it teaches the form alone."""
    formless: float = 0.0
    """Mean reward of a text without any form."""
    blind: bool = False
    """Whether chance earns nearly what the oracle earns, so that the reward teaches nothing."""
    crashes: list[str] = field(default_factory=list)
    """Probes that raised, with the error: mistakes of the battery, not of the environment."""
    failures: list[str] = field(default_factory=list)
    """Probes whose episodes failed in the environment or its rubric, with the first error."""
    oracle_failure: str = ""
    """First error of the oracle's own episodes; those that failed are in no figure."""

    @property
    def teaches_form(self) -> bool:
        """Whether the environment states that chance may earn as much, and a text without the form earns little."""
        stated = self.chance_bar is not None and self.chance.reward.value <= self.chance_bar + 1e-9
        return stated and self.top - self.formless > MIN_ROOM_UNCLEAR * abs(self.top)

    @property
    def attack(self) -> str:
        """What the attacker that learns earned, beside chance, the oracle and the truth; empty without one."""
        for earned in self.results:
            if earned.kind == ATTACK_KIND:
                truth = "".join(f", its {name} is {value:.3f}" for name, value in earned.metrics.items())
                share = _share_of_way(earned, self.chance, self.top)
                return f"the attacker that learns earns {earned.reward}: {share:.0%} of the way up{truth}"
        return ""

    @property
    def spoke(self) -> list[ProbeResult]:
        """The probes that the reward could hear."""
        return [result for result in self.results if result.spoke and result.kind not in (SPOILT, AGAIN, ATTACK_KIND)]

    @property
    def coverage(self) -> str:
        """How many probes could speak the form that the environment wants."""
        played = [result for result in self.results if result.kind not in (SPOILT, AGAIN, ATTACK_KIND)]
        form = (
            "; only the form is taught, as it states: chance earns what the oracle earns" if self.teaches_form else ""
        )
        return f"{len(self.spoke)} of {len(played)} probes could speak the form that the environment wants{form}"

    @property
    def verdict(self) -> Verdict:
        """`nothing found` holds for the probes that could speak; without such ones it is `cannot tell`."""
        if self.flaws or (self.blind and not self.teaches_form):
            return "flaw found"
        return "nothing found" if self.spoke and not self.crashes else "cannot tell"

    @property
    def sound(self) -> bool:
        """Whether probes that could speak found no flaw, and none of them crashed."""
        return self.verdict == "nothing found"


def assess_probes(results: Sequence[ProbeResult], skipped: Sequence[str], oracle: ProbeResult | None) -> ProbeReport:
    chances = [earned for earned in results if earned.kind == IGNORANT]
    stranger = next((earned for earned in results if earned.kind == STRANGER_KIND), None)
    if not chances:
        raise UsageError("no episode of the ignorant policies could be scored: run wander check first")
    chance = max(chances, key=lambda earned: earned.reward.value)
    played = [earned for earned in results if earned.kind not in (IGNORANT, STRANGER_KIND)]
    most = max([earned.reward.value for earned in results])
    top = oracle.reward.value if oracle is not None else max(1.0, most)
    report = ProbeReport(oracle=oracle, top=top, chance=chance, results=played, skipped=list(skipped))
    room = top - chance.reward.value
    needed = MIN_ROOM if oracle is not None and clearly_exceeds(oracle, chance) else MIN_ROOM_UNCLEAR
    report.blind = room <= needed * abs(top)
    found: list[tuple[float, Flaw]] = []
    for earned in played:
        least = chance
        if stranger is not None and _mostly_right_elsewhere(earned, stranger):
            least = max(stranger, chance, key=lambda one: one.reward.value)
        share = _share_of_way(earned, least, top)
        if earned.kind in (AGAIN, ATTACK_KIND) and oracle is not None:
            needed, above = 1 + FARMING_MARGIN, oracle
        else:
            needed, above = MIN_ALTERED_SHARE if earned.kind == SPOILT else MIN_FLAW_SHARE, least
        if earned.kind == ATTACK_KIND and _is_untrue(earned, oracle, chance, share=share):
            report.flaws.append(Flaw(result=earned, share=share))
            continue
        if _deserves_it(earned, oracle, top=top) or (earned.kind == ATTACK_KIND and oracle is None):
            continue
        farmed = earned.name == FARM_NAME and _is_farming(earned, [chance, *played], room)
        if farmed:
            report.flaws.append(Flaw(result=earned, share=share))
        elif share >= needed:
            found.append((gain_p_value(earned, above), Flaw(result=earned, share=share)))
    untold = [1.0] * (len(played) - len(found))  # probes that earned too little to be looked at count as well
    corrected = holm([*(chance for chance, _ in found), *untold])
    report.flaws += [flaw for (_, flaw), chance in zip(found, corrected, strict=False) if chance < MAX_CHANCE]
    if stranger is not None and _undiscerning(stranger, oracle, chance=chance, top=top):
        report.flaws.append(Flaw(result=stranger, share=_share_of_way(stranger, chance, top)))
    report.flaws.sort(key=lambda flaw: -flaw.share)
    return report


def _is_untrue(earned: ProbeResult, oracle: ProbeResult | None, chance: ProbeResult, *, share: float) -> bool:
    """Whether a held-out metric rose by far less of the way to the oracle's than the reward did."""
    for name, best in oracle.metrics.items() if oracle is not None else ():
        start = chance.metrics.get(name, 0.0)
        if best > start and name in earned.metrics:
            return share - (earned.metrics[name] - start) / (best - start) >= MIN_TRUTH_GAP
    return False


def _share_of_way(earned: ProbeResult, least: ProbeResult, top: float) -> float:
    """The position of a reward between `least` (0) and `top` (1)."""
    gain, room = earned.reward.value - least.reward.value, top - least.reward.value
    return gain / room if room > 0 else float(gain > 0)


Reading: TypeAlias = Callable[[str], str]
"""The part of an answer by which it may be read."""


def _label(text: str) -> str:
    """The word that an answer begins with, where a sign or a new line follows it: `No, because ...` is read as `no`.

    Programs begin with the name of their language, which is no label.
    """
    if "```" in text:
        return text
    match = re.match(r"\W*(\w+)[ \t]*(?:[,.:;)\]\u2014\n-]|$)", text)
    return match[1].lower() if match else text


READINGS: Sequence[Reading] = (str.strip, lambda text: comparable(stated_answer(text)) or text.strip(), _label)


def _mostly_right_elsewhere(earned: ProbeResult, stranger: ProbeResult) -> bool:
    """Whether its answers are mostly right in some task, so that their frequency says nothing about the reward."""
    answers = earned.last_answers
    for read in READINGS:
        known = {read(answer) for answer in stranger.last_answers}
        if 2 * sum(times for answer, times in answers.items() if read(answer) in known) > answers.total():
            return True
    return False


def _deserves_it(earned: ProbeResult, oracle: ProbeResult | None, *, top: float) -> bool:
    """Whether a policy is paid for one label only: a coin toss, however frequent the label is."""
    if oracle is None:
        return False
    lowest = min(earned.by_task.values())
    enough = lowest + MIN_FLAW_SHARE * (top - lowest)
    paid = [task for task, reward in earned.by_task.items() if reward >= enough]
    unpaid = earned.by_task.keys() - {*paid}
    if len(unpaid) < MIN_WRONG_TASKS:
        return False
    for read in READINGS:
        labels = {read(oracle.answers[task]) for task in paid if task in oracle.answers}
        if len(labels) == 1 and not labels & {read(oracle.answers[task]) for task in unpaid if task in oracle.answers}:
            return True
    return False


def _undiscerning(stranger: ProbeResult, oracle: ProbeResult | None, *, chance: ProbeResult, top: float) -> bool:
    """Whether answers to other tasks earn far more than their frequency of being right."""
    readings = READINGS if oracle is None or len(set(map(_label, oracle.answers.values()))) <= 4 else READINGS[:2]
    for read in readings:
        times = Counter(map(read, stranger.answers.values()))
        alike = fsum((one / times.total()) ** 2 for one in times.values())
        if _share_of_way(stranger, chance, top) - alike < MIN_ROOM_UNCLEAR:
            return False
    return clearly_exceeds(stranger, chance)


def _is_farming(farm: ProbeResult, results: Sequence[ProbeResult], room: float) -> bool:
    """Whether repeating the way is paid again: more than chance, and than going it once or without an end."""
    chance, *played = results
    plain = [chance, *(one for one in played if one.name in UNREPEATED_NAMES)]
    return all(
        farm.reward.value - one.reward.value >= MIN_FLAW_SHARE * room and clearly_exceeds(farm, one) for one in plain
    )


def clearly_exceeds(one: ProbeResult, other: ProbeResult) -> bool:
    """Whether the first earns more on the same tasks; for a comparison that is not one of many."""
    return gain_p_value(one, other) < MAX_PROBE_CHANCE


def gain_p_value(one: ProbeResult, other: ProbeResult) -> float:
    """Probability that the first earns so much more on the same tasks by chance: Student's t of the paired gains."""
    common = sorted(one.by_task.keys() & other.by_task.keys())
    gains = [one.by_task[task] - other.by_task[task] for task in common]
    count = len(gains)
    average = fsum(gains) / max(count, 1)
    if count < 2 or average <= 0:
        return 1.0
    error = sqrt(fsum((gain - average) ** 2 for gain in gains) / (count - 1) / count)
    return student_tail(average / error, count - 1) if error else 0.0


def findings_record(findings: ProbeReport) -> dict[str, Any]:
    """JSON data."""
    return {
        "verdict": findings.verdict,
        "coverage": findings.coverage,
        "sound": findings.sound,
        "blind": findings.blind,
        "teaches_form": findings.teaches_form,
        "top": findings.top,
        "chance": _earnings_record(findings.chance),
        "flaws": [
            {
                **_earnings_record(flaw.result),
                "share": flaw.share,
                "transcript": [
                    {"role": m.role, "content": m.content[:4_000]} for m in flaw.result.best.trajectories[0].messages
                ],
            }
            for flaw in findings.flaws
        ],
        "played": [_earnings_record(earned) for earned in findings.results],
        "attack": findings.attack,
        "skipped": findings.skipped,
        "crashes": findings.crashes,
        "failures": findings.failures,
        "oracle_failure": findings.oracle_failure,
    }


def _earnings_record(earned: ProbeResult) -> dict[str, Any]:
    reward = earned.reward
    return {
        "probe": earned.name,
        "what": earned.description,
        "kind": earned.kind,
        "reward": {"value": reward.value, "low": reward.low, "high": reward.high},
        "spoke": earned.spoke,
        "failed": earned.failed,
    }
