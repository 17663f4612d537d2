"""Plays the battery, the ignorant and the oracle on the same tasks, and says who earns what he does not deserve."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from wanderlust.core.contracts import Environment, Limits, Policy
from wanderlust.core.errors import UsageError
from wanderlust.core.messages import Message
from wanderlust.core.types import Rollout, Task
from wanderlust.evals.probe.altered import ALTERED, Alteration, Altered
from wanderlust.evals.probe.battery import IGNORANT, NothingToDo, Probe, always
from wanderlust.evals.probe.code import CODE
from wanderlust.evals.probe.findings import STRANGER, Earned, Findings, clearly, judged
from wanderlust.evals.probe.grasping import GRASPING
from wanderlust.evals.probe.hands import HANDS, RANDOM_TOOLS
from wanderlust.evals.probe.judges import JUDGES
from wanderlust.evals.probe.replayed import REPLAYED, Replayed
from wanderlust.evals.probe.style import STYLE
from wanderlust.evals.probe.tricks import TRICKS
from wanderlust.evals.probe.words import IGNORANCE, WORDS
from wanderlust.evals.statistics import mean
from wanderlust.rollout.engine import rollout

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
