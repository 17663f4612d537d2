"""The run of all probes, with the oracle and the ignorant policies on the same tasks (`probe`), and its report: the
degenerate policies that clearly earn more than chance.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, sqrt
from random import Random
from typing import Any

from wanderlust.environment import Environment, Limits
from wanderlust.errors import UsageError
from wanderlust.evals.probe.code_probes import CODE_PROBES
from wanderlust.evals.probe.judge_probes import JUDGE_PROBES, STYLE_PROBES
from wanderlust.evals.probe.oracle_variants import (
    ALTERATIONS,
    FARM_NAME,
    FARMING_MARGIN,
    MIN_ALTERED_SHARE,
    REPLAY_VARIANTS,
    UNREPEATED_NAMES,
    Alteration,
    AlteredOracle,
    ReplayedOracle,
)
from wanderlust.evals.probe.oracle_variants import ALTERED_KIND as SPOILT
from wanderlust.evals.probe.oracle_variants import REPLAYED_KIND as AGAIN
from wanderlust.evals.probe.probe import IGNORANT, Probe, ProbeDoesNotFit, always_answer
from wanderlust.evals.probe.text_probes import IGNORANT_PROBES, TEXT_PROBES, TRICK_PROBES
from wanderlust.evals.probe.tool_probes import GRASPING_PROBES
from wanderlust.evals.probe.tool_use import RANDOM_TOOLS, TOOL_PROBES
from wanderlust.evals.statistics import Estimate, mean
from wanderlust.runner.engine import rollout
from wanderlust.types import Message, Policy, Rollout, Task

STRANGER_KIND = "stranger"
"""The kind of the probe that answers with the right answer to another task."""
MIN_FLAW_SHARE = 0.25
"""Share of the oracle's gain over chance from which on a probe is reported."""
PROBE_STANDARD_ERRORS = 3.3
"""Standard errors by which the gain over chance must exceed 0: about one false alarm in 2,000 probes."""
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
    last_answers: Counter[str] = field(default_factory=Counter)
    """Its last answers, by their frequency."""
    failed: int = 0
    """Number of episodes that failed; they are in no figure."""


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
    blind: bool = False
    """Whether chance earns nearly what the oracle earns, so that the reward teaches nothing."""

    @property
    def sound(self) -> bool:
        """Whether there is no flaw."""
        return not self.flaws and not self.blind


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
    for earned in played:
        least = stranger if stranger is not None and _mostly_right_elsewhere(earned, stranger) else chance
        share = _share_of_way(earned, least, top)
        if earned.kind == AGAIN and oracle is not None:
            needed, above = 1 + FARMING_MARGIN, oracle
        else:
            needed, above = MIN_ALTERED_SHARE if earned.kind == SPOILT else MIN_FLAW_SHARE, least
        farmed = earned.name == FARM_NAME and _is_farming(earned, [chance, *played], room)
        if farmed or (share >= needed and clearly_exceeds(earned, above)):
            report.flaws.append(Flaw(result=earned, share=share))
    if stranger is not None and _undiscerning(stranger, chance, top):
        report.flaws.append(Flaw(result=stranger, share=_share_of_way(stranger, chance, top)))
    report.flaws.sort(key=lambda flaw: -flaw.share)
    return report


def _share_of_way(earned: ProbeResult, least: ProbeResult, top: float) -> float:
    """The position of a reward between `least` (0) and `top` (1)."""
    gain, room = earned.reward.value - least.reward.value, top - least.reward.value
    return gain / room if room > 0 else float(gain > 0)


def _mostly_right_elsewhere(earned: ProbeResult, stranger: ProbeResult) -> bool:
    """Whether its answers are mostly right in some task, so that their frequency says nothing about the reward."""
    right = sum(times for answer, times in earned.last_answers.items() if answer in stranger.last_answers)
    return 2 * right > sum(earned.last_answers.values())


def _undiscerning(stranger: ProbeResult, chance: ProbeResult, top: float) -> bool:
    """Whether answers to other tasks earn far more than their frequency of being right."""
    count = sum(stranger.last_answers.values())
    alike = fsum((times / count) ** 2 for times in stranger.last_answers.values())
    return _share_of_way(stranger, chance, top) - alike >= MIN_ROOM_UNCLEAR and clearly_exceeds(stranger, chance)


def _is_farming(farm: ProbeResult, results: Sequence[ProbeResult], room: float) -> bool:
    """Whether repeating the way is paid again: more than chance, and than going it once or without an end."""
    chance, *played = results
    plain = [chance, *(one for one in played if one.name in UNREPEATED_NAMES)]
    return all(
        farm.reward.value - one.reward.value >= MIN_FLAW_SHARE * room and clearly_exceeds(farm, one) for one in plain
    )


def clearly_exceeds(one: ProbeResult, other: ProbeResult) -> bool:
    """Whether the first earns more on the same tasks, by PROBE_STANDARD_ERRORS of the paired difference."""
    common = sorted(one.by_task.keys() & other.by_task.keys())
    gains = [one.by_task[task] - other.by_task[task] for task in common]
    count = len(gains)
    if count < 2:
        return False
    average = fsum(gains) / count
    spread = fsum((gain - average) ** 2 for gain in gains) / (count - 1)
    return average > PROBE_STANDARD_ERRORS * sqrt(spread / count)


BATTERY: tuple[Probe, ...] = (
    *TEXT_PROBES,
    *TRICK_PROBES,
    *STYLE_PROBES,
    *JUDGE_PROBES,
    *CODE_PROBES,
    *TOOL_PROBES,
    *GRASPING_PROBES,
)
"""The default battery."""
ORACLE_KIND, MAX_OTHER_ANSWERS = "oracle", 6
PROBE_EPISODE_SECONDS = 20.0
"""Wall-clock seconds of one episode, unless the environment's own limit is shorter."""

OnProbe = Callable[[str, int, int], None]
"""Called with a probe's name, its number, and the number of all probes."""


async def run_probes(
    env: Environment,
    *,
    tasks: Sequence[Task],
    oracle: Policy | None = None,
    random: Policy | None = None,
    others: Policy | None = None,
    battery: Sequence[Probe] = BATTERY,
    seed: int = 0,
    on_probe: OnProbe = lambda name, number, of: None,
) -> ProbeReport:
    """Play every probe once on every task. `random` is the environment's own idea of chance, where it has one.

    With several seats the probe takes the first one and `others`, or an ignorant policy, the rest. Raises
    UsageError when there is nothing to play or nothing was scored.
    """
    if not tasks:
        raise UsageError("there are no tasks to probe with: the environment has no such split, or it is empty")
    room = _ProbeRun(env, tasks, seed, others or IGNORANT_PROBES[1])
    ignorant = [*IGNORANT_PROBES, RANDOM_TOOLS]
    if random is not None:
        ignorant.append(
            Probe(
                name="random", description="the environment's own random player", answer=lambda _: None, kind=IGNORANT
            )
        )
    of = len(ignorant) + len(battery) + (oracle is not None)
    by_name: list[tuple[str, ProbeResult | None]] = []
    for number, one in enumerate((*ignorant, *battery), 1):
        on_probe(one.name, number, of)
        policy = random if one.name == "random" and random is not None else one
        by_name.append((one.name, await room.play(one, policy=policy)))
    oracle_result = None
    if oracle is not None:
        on_probe("oracle", of, of)
        who = Probe(name="oracle", description="knows the answers", answer=lambda _: None, kind=ORACLE_KIND)
        oracle_result = await room.play(who, policy=oracle)
        strangers = [(one.name, await room.play(one, policy=one)) for one in room.stranger_probes()]
        by_name += [(name, earned) for name, earned in strangers if earned is not None]
        by_name += [(spoilt.name, await room.play_altered(spoilt, oracle)) for spoilt in ALTERATIONS]
        by_name += [
            (again.name, await room.play(again.probe(), policy=ReplayedOracle(room.actions, again.plan)))
            for again in REPLAY_VARIANTS
        ]
    results = [earned for _, earned in by_name if earned is not None]
    return assess_probes(results, [name for name, earned in by_name if earned is None], oracle_result)


@dataclass(slots=True)
class _ProbeRun:
    env: Environment
    tasks: Sequence[Task]
    seed: int
    others: Policy
    oracle_answers: list[str] = field(default_factory=list)
    """The oracle's first answers in some tasks."""
    actions: dict[str, list[Message]] = field(default_factory=dict)
    """The oracle's actions, by task."""

    async def play(self, one: Probe, *, policy: Policy) -> ProbeResult | None:
        """The policy's result in the first seat; None where it does not fit or nothing was scored."""
        first, *others = self.env.seats
        limits = self.env.limits
        bounds = Limits(
            max_turns=limits.max_turns, timeout=min(limits.timeout or PROBE_EPISODE_SECONDS, PROBE_EPISODE_SECONDS)
        )
        policies = {first: policy, **dict.fromkeys(others, self.others)}
        tasks = [self.tasks[0]] if one.name == "code-wait" else self.tasks
        played = [await rollout(self.env, tasks[0], policies, seed=self.seed, limits=bounds)]
        if ProbeDoesNotFit.__name__ in (played[0].error or ""):
            return None
        rest = [rollout(self.env, task, policies, seed=self.seed, limits=bounds) for task in tasks[1:]]
        played += await _some_at_once(rest, 16)
        scored = {
            r.task.id: score.reward
            for r in played
            if (score := r.trajectories[0].score) is not None and r.error is None
        }
        if not scored:
            return None
        if one.kind == ORACLE_KIND:
            self.actions = {r.task.id: [turn.action for turn in r.trajectories[0].turns] for r in played}
            answers = [actions[0].content for actions in self.actions.values() if actions]
            self.oracle_answers = list(dict.fromkeys(answers))[:MAX_OTHER_ANSWERS]
        best = max((r for r in played if r.task.id in scored), key=lambda r: scored[r.task.id])
        return ProbeResult(
            name=one.name,
            description=one.description,
            kind=one.kind,
            reward=mean([[value] for value in scored.values()]),
            by_task=scored,
            best=best,
            last_answers=Counter(r.trajectories[0].turns[-1].action.content for r in played if r.trajectories[0].turns),
            failed=len(played) - len(scored),
        )

    def stranger_probes(self) -> list[Probe]:
        """Probes with the oracle's answer to another task, if it only answers: a random one, and the most frequent.

        The first is ignorant: it knows the form of answers and how often each is right.
        """
        answers = [turns[0].content for turns in self.actions.values() if len(turns) == 1 and not turns[0].tool_calls]
        if len(answers) < len(self.actions) or len({*answers}) < 2:
            return []
        (usual, _), *_ = Counter(answers).most_common(1)
        return [
            Probe(
                name=STRANGER_KIND,
                description="the oracle's answer to some task, whatever is asked",
                answer=lambda view: view.random.choice(answers),
                kind=STRANGER_KIND,
            ),
            Probe(
                name="usual",
                description="the oracle's most frequent answer, whatever is asked",
                answer=always_answer(usual),
            ),
        ]

    async def play_altered(self, one: Alteration, oracle: Policy) -> ProbeResult | None:
        """The altered oracle's result; None where it does not fit, or where its control is paid as well."""
        earned = await self.play(one.probe(), policy=AlteredOracle(oracle, one.change, self.oracle_answers))
        if earned is None or one.control is None:
            return earned
        plain = await self.play(one.probe(), policy=AlteredOracle(oracle, one.control, self.oracle_answers))
        return earned if plain is not None and clearly_exceeds(earned, plain) else None


async def _some_at_once(waiting: Sequence[Any], most: int) -> list[Rollout]:
    """The results in order; at most `most` rollouts run at once."""
    gate = asyncio.Semaphore(most)

    async def one(coming: Any) -> Rollout:
        async with gate:
            result: Rollout = await coming
            return result

    return list(await asyncio.gather(*map(one, waiting)))


def sample_tasks(tasks: Sequence[Task], count: int, *, seed: int) -> list[Task]:
    """Draw `count` of the tasks, the same for the same seed, and keep their order."""
    if count >= len(tasks):
        return list(tasks)
    chosen = sorted(Random(f"probe/{seed}").sample(range(len(tasks)), count))
    return [tasks[i] for i in chosen]
