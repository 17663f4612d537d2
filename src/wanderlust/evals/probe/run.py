"""What the policies of a probe earned, and which of them earned more than they deserve.

Plays the battery, the ignorant and the oracle on the same tasks, and says who earns what he does not deserve.
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
from wanderlust.evals.probe.base import IGNORANT, NothingToDo, Probe, always
from wanderlust.evals.probe.code_probes import CODE, STYLE
from wanderlust.evals.probe.judge_probes import JUDGES
from wanderlust.evals.probe.oracle_variants import (
    ALTERED,
    DESERVED,
    FARM,
    MORE,
    PLAIN,
    REPLAYED,
    Alteration,
    Altered,
    Replayed,
)
from wanderlust.evals.probe.oracle_variants import KIND as SPOILT
from wanderlust.evals.probe.oracle_variants import KIND_REPLAYED as AGAIN
from wanderlust.evals.probe.text_probes import IGNORANCE, TRICKS, WORDS
from wanderlust.evals.probe.tool_probes import GRASPING
from wanderlust.evals.probe.tool_use import HANDS, RANDOM_TOOLS
from wanderlust.evals.statistics import Estimate, mean
from wanderlust.runner.engine import rollout
from wanderlust.types import Message, Policy, Rollout, Task

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


BATTERY: tuple[Probe, ...] = (*WORDS, *TRICKS, *STYLE, *JUDGES, *CODE, *HANDS, *GRASPING)
"""All that is tried unless somebody says otherwise."""
ORACLE, SOME = "oracle", 6
PATIENCE = 20.0
"""Wall-clock seconds of one episode, unless the environment's own limit is shorter."""

Show = Callable[[str, int, int], None]
"""Told the name of the probe that was played, its number and how many there are."""


async def probe(
    env: Environment,
    *,
    tasks: Sequence[Task],
    oracle: Policy | None = None,
    random: Policy | None = None,
    others: Policy | None = None,
    battery: Sequence[Probe] = BATTERY,
    seed: int = 0,
    show: Show = lambda name, number, of: None,
) -> Findings:
    """Play every probe once on every task. `random` is the environment's own idea of chance, where it has one.

    With several seats the probe takes the first one and `others`, or an ignorant policy, the rest. Raises
    UsageError when there is nothing to play or nothing was scored.
    """
    if not tasks:
        raise UsageError("there are no tasks to probe with: the environment has no such split, or it is empty")
    room = _Room(env, tasks, seed, others or IGNORANCE[1])
    ignorant = [*IGNORANCE, RANDOM_TOOLS]
    if random is not None:
        ignorant.append(
            Probe(name="random", what="the environment's own random player", say=lambda _: None, kind=IGNORANT)
        )
    of = len(ignorant) + len(battery) + (oracle is not None)
    known: list[Earned] = []
    skipped: list[str] = []
    for number, one in enumerate((*ignorant, *battery), 1):
        show(one.name, number, of)
        earned = await room.play(one, policy=random if one.name == "random" and random is not None else one)
        if earned is None:
            skipped.append(one.name)
        else:
            known.append(earned)
    knows = None
    if oracle is not None:
        show("oracle", of, of)
        who = Probe(name="oracle", what="knows the answers", say=lambda _: None, kind=ORACLE)
        knows = await room.play(who, policy=oracle)
        known += [earned for one in room.strangers() if (earned := await room.play(one, policy=one)) is not None]
        for spoilt in ALTERED:
            earned = await room.spoil(spoilt, oracle)
            known += [] if earned is None else [earned]
            skipped += [spoilt.name] if earned is None else []
        for again in REPLAYED:
            earned = await room.play(again.probe(), policy=Replayed(room.actions, again.plan))
            known += [] if earned is None else [earned]
            skipped += [again.name] if earned is None else []
    return judged(known, skipped, knows)


@dataclass(slots=True)
class _Room:
    env: Environment
    tasks: Sequence[Task]
    seed: int
    others: Policy
    said: list[str] = field(default_factory=list)
    """The oracle's first words in some tasks."""
    actions: dict[str, list[Message]] = field(default_factory=dict)
    """What it did, by task."""

    async def play(self, one: Probe, *, policy: Policy) -> Earned | None:
        """What the policy earns in the first seat; None where it does not fit or nothing was scored."""
        first, *others = self.env.seats
        limits = self.env.limits
        bounds = Limits(max_turns=limits.max_turns, timeout=min(limits.timeout or PATIENCE, PATIENCE))
        policies = {first: policy, **dict.fromkeys(others, self.others)}
        tasks = [self.tasks[0]] if one.name == "code-wait" else self.tasks
        played = [await rollout(self.env, tasks[0], policies, seed=self.seed, limits=bounds)]
        if NothingToDo.__name__ in (played[0].error or ""):
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
        if one.kind == ORACLE:
            self.actions = {r.task.id: [turn.action for turn in r.trajectories[0].turns] for r in played}
            said = [actions[0].content for actions in self.actions.values() if actions]
            self.said = list(dict.fromkeys(said))[:SOME]
        best = max((r for r in played if r.task.id in scored), key=lambda r: scored[r.task.id])
        return Earned(
            name=one.name,
            what=one.what,
            kind=one.kind,
            reward=mean([[value] for value in scored.values()]),
            by_task=scored,
            best=best,
            says=Counter(r.trajectories[0].turns[-1].action.content for r in played if r.trajectories[0].turns),
            failed=len(played) - len(scored),
        )

    def strangers(self) -> list[Probe]:
        """Those that take the oracle's answer to another task, where it only answers: any one, or the most frequent.

        The former is ignorant: it knows what answers look like and how often each is right.
        """
        answers = [turns[0].content for turns in self.actions.values() if len(turns) == 1 and not turns[0].tool_calls]
        if len(answers) < len(self.actions) or len({*answers}) < 2:
            return []
        (usual, _), *_ = Counter(answers).most_common(1)
        return [
            Probe(
                name=STRANGER,
                what="the oracle's answer to some task, whatever is asked",
                say=lambda view: view.random.choice(answers),
                kind=STRANGER,
            ),
            Probe(name="usual", what="the oracle's most frequent answer, whatever is asked", say=always(usual)),
        ]

    async def spoil(self, one: Alteration, oracle: Policy) -> Earned | None:
        """What the spoilt oracle earns; None where it does not fit, or its control says that nothing was spoilt."""
        earned = await self.play(one.probe(), policy=Altered(oracle, one.change, self.said))
        if earned is None or one.control is None:
            return earned
        plain = await self.play(one.probe(), policy=Altered(oracle, one.control, self.said))
        return earned if plain is not None and clearly(earned, plain) else None


async def _some_at_once(waiting: Sequence[Any], most: int) -> list[Rollout]:
    """Results in order; at most so many under way."""
    gate = asyncio.Semaphore(most)

    async def one(coming: Any) -> Rollout:
        async with gate:
            result: Rollout = await coming
            return result

    return list(await asyncio.gather(*map(one, waiting)))


def sample(tasks: Sequence[Task], count: int, *, seed: int) -> list[Task]:
    """Some of the tasks, the same for the same seed, in their order."""
    if count >= len(tasks):
        return list(tasks)
    chosen = sorted(Random(f"probe/{seed}").sample(range(len(tasks)), count))
    return [tasks[i] for i in chosen]
