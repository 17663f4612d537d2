"""The run of all probes, with the oracle and the ignorant policies on the same tasks (`run_probes`)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from random import Random
from typing import Any

from wanderlust.environment import Environment
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.evals.probe.attack import BATCH, train_attacker
from wanderlust.evals.probe.code_probes import CODE_PROBES
from wanderlust.evals.probe.judge_probes import JUDGE_PROBES, STYLE_PROBES
from wanderlust.evals.probe.oracle_variants import (
    ALTERATIONS,
    MISQUOTES,
    REPLAY_VARIANTS,
    Alteration,
    AlteredOracle,
    MisquotedOracle,
    OracleElsewhere,
    ReplayedOracle,
)
from wanderlust.evals.probe.probe import (
    IGNORANT,
    AnswerForm,
    Probe,
    ProbeDoesNotFit,
    ProbePlayer,
    always_answer,
    learn_form,
    named_probe,
)
from wanderlust.evals.probe.report import (
    ATTACK_KIND,
    STRANGER_KIND,
    ProbeReport,
    ProbeResult,
    assess_probes,
    clearly_exceeds,
)
from wanderlust.evals.probe.search import search_text
from wanderlust.evals.probe.source_words import source_words
from wanderlust.evals.probe.text_probes import IGNORANT_PROBES, TEXT_PROBES, TRICK_PROBES, random_example
from wanderlust.evals.probe.tool_probes import GRASPING_PROBES, source_probe
from wanderlust.evals.probe.tool_use import RANDOM_TOOLS, TOOL_PROBES
from wanderlust.evals.statistics import mean
from wanderlust.runner.engine import rollout
from wanderlust.types import Message, Policy, Rollout, Score, Task, Trajectory

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
MAX_FORM_TEXTS = 200
"""The oracle's texts from which the form of answers is learnt."""
MIN_SEARCH_TASKS = 6
"""Tasks that the search over the reward is scored on; as many again are needed to check what it found."""
GARBAGE = "lorem ipsum dolor sit amet"
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
    attack: int = 0,
    seed: int = 0,
    on_probe: OnProbe = lambda name, number, of: None,
) -> ProbeReport:
    """Play every probe once on every task. `random` is the environment's own idea of chance, where it has one.

    With `attack`, a small attacker learns from so many episodes, on half of the tasks, and plays the other half.

    With several seats the probe takes the first one that learns and `others`, or an ignorant policy, the rest. Raises
    UsageError when there is nothing to play or nothing was scored.
    """
    if not tasks:
        raise UsageError("there are no tasks to probe with: the environment has no such split, or it is empty")
    room = ProbeRun(env, tasks, seed, others or IGNORANT_PROBES[1])
    await room.choose_seat()
    ignorant = [*IGNORANT_PROBES, RANDOM_TOOLS]
    of = len(ignorant) + len(battery) + (oracle is not None) + (random is not None) + 1
    oracle_result = None
    by_name: list[tuple[str, ProbeResult | None]] = []
    if oracle is not None:
        on_probe("oracle", 1, of)
        who = named_probe("oracle", "knows the answers", lambda _: None, kind=ORACLE_KIND)
        oracle_result = await room.play(who, policy=oracle)
    strangers = room.stranger_probes()
    if oracle is None or room.takes_turns:
        ignorant.append(named_probe("random-example", "a random known answer", random_example, kind=IGNORANT))
    await room.listen_to_garbage()
    for number, one in enumerate((*ignorant, *battery), 2 if oracle is not None else 1):
        on_probe(one.name, min(number, of), of)
        by_name.append((one.name, await room.play(one, policy=one)))
    if random is not None:
        chance = named_probe("random", "the environment's own random player", lambda _: None, kind=IGNORANT)
        by_name.append((chance.name, await room.play(chance, policy=random)))
    words = source_words(env, answers=room.right_answers)
    if words:
        by_tools = source_probe(words)
        by_name.append((by_tools.name, await room.play(by_tools, policy=by_tools)))
    by_name.append(("search", await room.searched(words)))
    if attack:
        by_name.append((ATTACK_KIND, await room.attacked(attack)))
    if oracle is not None:
        by_name += await room.play_from_oracle(OracleElsewhere(oracle), strangers)
    on_probe("search", of, of)
    results = [earned for _, earned in by_name if earned is not None]
    silent = {*room.crashes, *room.failures}
    skipped = [name for name, earned in by_name if earned is None and name not in silent]
    report = assess_probes(results, skipped, oracle_result)
    dull = [score.reward for r in room.garbage.values() if (score := r.trajectories[0].score) is not None]
    report.chance_bar, report.formless = env.chance_bar, fsum(dull) / max(len(dull), 1)
    report.oracle_failure = room.failures.pop("oracle", "")
    report.crashes = [f"{name}: {error}" for name, error in room.crashes.items()]
    report.failures = [f"{name}: {error}" for name, error in room.failures.items()]
    return report


@dataclass(slots=True)
class ProbeRun:
    """What a run of all probes has learnt of the environment so far."""

    env: Environment
    tasks: Sequence[Task]
    seed: int
    others: Policy
    seat: str = ""
    """The seat that is probed; its trajectory is the first of every rollout."""
    oracle_answers: list[str] = field(default_factory=list)
    """The oracle's first answers in some tasks."""
    actions: dict[str, list[Message]] = field(default_factory=dict)
    """The oracle's actions, by task."""
    form: AnswerForm | None = None
    """The form of the oracle's answers."""
    garbage: dict[str, Rollout] = field(default_factory=dict)
    """What becomes of a text without any form, by task."""
    crashes: dict[str, str] = field(default_factory=dict)
    """Errors of probes, by name."""
    failures: dict[str, str] = field(default_factory=dict)
    """First errors of the environment and its rubric, by the probe's name."""

    def __post_init__(self) -> None:
        self.seat = self.seat or self.env.seats[0]

    async def choose_seat(self) -> None:
        """Probe the first seat that learns, which shows as soon as it is played; the first where none does."""
        if len(self.env.seats) > 1:
            (trial,) = await self._rollouts(self.others, self.tasks[:1])
            self.seat = next((t.seat for t in trial.trajectories if t.trainable), self.seat)

    async def _rollouts(self, policy: Policy, tasks: Sequence[Task]) -> list[Rollout]:
        """One rollout a task, the first one alone: a policy that does not fit is not played further."""
        limits = self.env.limits
        bounds = replace(limits, timeout=min(limits.timeout or PROBE_EPISODE_SECONDS, PROBE_EPISODE_SECONDS))
        policies = {**dict.fromkeys(self.env.seats, self.others), self.seat: policy}
        played = [await rollout(self.env, tasks[0], policies, seed=self.seed, limits=bounds)]
        if ProbeDoesNotFit.__name__ not in (played[0].error or ""):
            rest = [rollout(self.env, task, policies, seed=self.seed, limits=bounds) for task in tasks[1:]]
            played += await _some_at_once(rest, 16)
        for one in played:
            one.trajectories.sort(key=lambda trajectory: trajectory.seat != self.seat)
        return played

    @property
    def takes_turns(self) -> bool:
        """Whether the oracle answers several times an episode, by text: then a random answer of it is chance."""
        turns = [action for actions in self.actions.values() for action in actions]
        return len(turns) > len(self.actions) and not any(action.tool_calls for action in turns)

    @property
    def right_answers(self) -> set[str]:
        """What is known to be right in some task."""
        keys = {str(task.answer) for task in self.tasks if isinstance(task.answer, str | int | float)}
        return keys | {*(self.form.contents if self.form is not None else ())}

    async def listen_to_garbage(self) -> None:
        """Play a text without any form, which nothing that is understood looks like."""
        garbage = named_probe("garbage", "no form at all", always_answer(GARBAGE))
        self.garbage = {r.task.id: r for r in await self._rollouts(garbage, self.tasks)}

    async def searched(self, words: Sequence[str]) -> ProbeResult | None:
        """The best text of a short search on half of the tasks, played on the other half; None where tools count."""
        half = len(self.tasks) // 2
        if half < MIN_SEARCH_TASKS or any(action.tool_calls for actions in self.actions.values() for action in actions):
            return None

        async def fitness(one: Probe) -> float | None:
            played = await self._rollouts(ProbePlayer(one, self.form), self.tasks[:MIN_SEARCH_TASKS])
            self._keep_crashes(one.name, played)
            scores = [
                score.reward for r in played if r.error is None and (score := r.trajectories[0].score) is not None
            ]
            return fsum(scores) / len(scores) if scores else None

        best = await search_text(fitness, seed=self.seed, words=words)
        return None if best is None else await self.play(best, policy=best, tasks=self.tasks[half:])

    async def attacked(self, episodes: int) -> ProbeResult | None:
        """The attacker's result after so many episodes on half of the tasks, played on the other half."""
        half = max(len(self.tasks) // 2, 1)
        turns, actions = 0, [action for actions in self.actions.values() for action in actions]

        async def batch(policy: Policy) -> dict[str, float]:
            nonlocal turns
            turns += 1
            drawn = Random(f"attack/{self.seed}/{turns}").sample(self.tasks[:half], min(half, BATCH))
            played = await self._rollouts(policy, drawn)
            self._keep_crashes(ATTACK_KIND, played)
            scores = {r.task.id: r.trajectories[0].score for r in played if r.error is None}
            return {task: score.reward for task, score in scores.items() if score is not None}

        attacker = await train_attacker(batch, actions, episodes=episodes, seed=self.seed)
        what = f"a small policy that learnt from {episodes} episodes"
        who = named_probe(ATTACK_KIND, what, lambda _: None, kind=ATTACK_KIND)
        return await self.play(who, policy=attacker, tasks=self.tasks[half:] or self.tasks)

    async def play(self, one: Probe, *, policy: Policy, tasks: Sequence[Task] = ()) -> ProbeResult | None:
        """The policy's result in its seat; None where it does not fit, crashed, or nothing was scored."""
        tasks = tasks or ([self.tasks[0]] if one.name == "code-wait" else self.tasks)
        played = await self._rollouts(ProbePlayer(one, self.form) if policy is one else policy, tasks)
        if ProbeDoesNotFit.__name__ in (played[0].error or ""):
            return None
        if policy is one or one.kind not in (ORACLE_KIND, IGNORANT):  # else it is a player of the environment
            self._keep_crashes(one.name, played)
        for r in played:
            failed = r.error is not None and ProbeDoesNotFit.__name__ not in r.error
            if failed and (one.kind == ORACLE_KIND or r.stop_reason != PolicyFailure.__name__):
                self.failures.setdefault(one.name, f"task {r.task.id!r}: {r.error}")
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
            # Behind calls of tools only the last text is an answer.
            texts = [action.content for actions in self.actions.values() for action in actions if not action.tool_calls]
            self.form = learn_form(texts[:MAX_FORM_TEXTS])
        best = max((r for r in played if r.task.id in scored), key=lambda r: scored[r.task.id])
        return ProbeResult(
            name=one.name,
            description=one.description,
            kind=one.kind,
            reward=mean([[value] for value in scored.values()]),
            by_task=scored,
            best=best,
            answers={r.task.id: r.trajectories[0].turns[-1].action.content for r in played if r.trajectories[0].turns},
            spoke=any(self._understood(r) for r in played if r.task.id in scored),
            failed=len(played) - len(scored),
            metrics=_mean_metrics([r.trajectories[0].score for r in played if r.task.id in scored]),
        )

    def _keep_crashes(self, name: str, played: Sequence[Rollout]) -> None:
        """Keep the first error that a policy of the battery raised."""
        for r in played:
            if r.stop_reason == PolicyFailure.__name__ and ProbeDoesNotFit.__name__ not in (r.error or ""):
                self.crashes.setdefault(name, f"task {r.task.id!r}: {r.error}")

    def _understood(self, played: Rollout) -> bool:
        """Whether the environment heard more than garbage: a call worked, a part paid, the answer was another one."""
        trajectory, dull = played.trajectories[0], self.garbage.get(played.task.id)
        if any(m.role == "tool" and not m.content.startswith("error") for m in trajectory.messages):
            return True
        if (
            len(trajectory.turns) == 1
            and self.form is not None
            and self.form.matches(trajectory.turns[0].action.content)
        ):
            return True
        if dull is None or trajectory.score is None or not dull.trajectories or dull.trajectories[0].score is None:
            return False
        if trajectory.score.reward > dull.trajectories[0].score.reward:
            return True
        return _reply(trajectory) != _reply(dull.trajectories[0])

    def stranger_probes(self) -> list[Probe]:
        """Probes with the oracle's answer to another task, if it only answers: a random one, and the most frequent.

        The first is ignorant: it knows the form of answers and how often each is right.
        """
        said = (_only_words(turns, self.env.graded_arguments) for turns in self.actions.values())
        answers = [words for words in said if words is not None]
        if len(answers) < len(self.actions) or len({*answers}) < 2:
            return []
        (usual, _), *_ = Counter(answers).most_common(1)
        what = "the oracle's answer to some task, whatever is asked"
        return [
            named_probe(STRANGER_KIND, what, lambda view: view.random.choice(answers), kind=STRANGER_KIND),
            named_probe("usual", "the oracle's most frequent answer, whatever is asked", always_answer(usual)),
        ]

    async def play_from_oracle(
        self, oracle: Policy, strangers: Sequence[Probe]
    ) -> list[tuple[str, ProbeResult | None]]:
        """Everything made of the oracle's play: its answers elsewhere, spoilt ones, and its actions repeated."""
        elsewhere = [(one.name, await self.play(one, policy=one)) for one in strangers]
        results: list[tuple[str, ProbeResult | None]] = [one for one in elsewhere if one[1] is not None]
        results += [(spoilt.name, await self.play_altered(spoilt, oracle)) for spoilt in ALTERATIONS]
        for name, what, change in MISQUOTES if self.env.graded_arguments else ():
            results.append((name, await self.play_misquoted(name, what, oracle=oracle, change=change)))
        for again in REPLAY_VARIANTS:
            results.append(
                (again.name, await self.play(again.probe(), policy=ReplayedOracle(self.actions, again.plan)))
            )
        return results

    async def play_altered(self, one: Alteration, oracle: Policy) -> ProbeResult | None:
        """The altered oracle's result; None where it does not fit, or where its control is paid as well."""
        earned = await self.play(one.probe(), policy=AlteredOracle(oracle, one.change, self.oracle_answers))
        if earned is None or one.control is None:
            return earned
        plain = await self.play(one.probe(), policy=AlteredOracle(oracle, one.control, self.oracle_answers))
        return earned if plain is not None and clearly_exceeds(earned, plain) else None

    async def play_misquoted(
        self, name: str, what: str, *, oracle: Policy, change: Callable[[str], str]
    ) -> ProbeResult | None:
        """The oracle's result with changed texts in its calls, in the tasks where there was something to change."""
        policy = MisquotedOracle(oracle, change, self.env.graded_arguments)
        one = named_probe(name, what, lambda _: None, kind="tools")
        earned = await self.play(one, policy=policy)
        changed = {} if earned is None else {t: r for t, r in earned.by_task.items() if t in policy.changed}
        if earned is None or not changed:
            return None
        return replace(earned, by_task=changed, reward=mean([[value] for value in changed.values()]))


def _mean_metrics(scores: Sequence[Score | None]) -> dict[str, float]:
    """The mean of each metric that is recorded in every score."""
    all_metrics = [score.metrics for score in scores if score is not None]
    names = set.intersection(*map(set, all_metrics)) if all_metrics else set[str]()
    return {name: fsum(one[name] for one in all_metrics) / len(all_metrics) for name in sorted(names)}


async def _some_at_once(waiting: Sequence[Any], most: int) -> list[Rollout]:
    """The results in order; at most `most` rollouts run at once."""
    gate = asyncio.Semaphore(most)

    async def one(coming: Any) -> Rollout:
        async with gate:
            result: Rollout = await coming
            return result

    return list(await asyncio.gather(*map(one, waiting)))


def _reply(trajectory: Trajectory) -> str:
    """What the environment said to the first answer, without that answer."""
    if len(trajectory.turns) < 2:
        return ""
    said = trajectory.turns[0].action.content.strip()
    text = "\n".join(message.content for message in trajectory.turns[1].observation)
    return text.replace(said, "") if said else text


def sample_tasks(tasks: Sequence[Task], count: int, *, seed: int) -> list[Task]:
    """Draw `count` of the tasks, the same for the same seed, and keep their order."""
    if count >= len(tasks):
        return list(tasks)
    chosen = sorted(Random(f"probe/{seed}").sample(range(len(tasks)), count))
    return [tasks[i] for i in chosen]


def _only_words(turns: Sequence[Message], graded: Collection[str]) -> str | None:
    """What the oracle said where it did nothing else: its answer, or a call that has a graded text and nothing else."""
    if len(turns) != 1 or len(turns[0].tool_calls) > 1:
        return None
    for call in turns[0].tool_calls:
        given = json.loads(call.arguments) if graded else {}
        return next((str(text) for name, text in given.items() if name in graded and len(given) == 1), None)
    return turns[0].content
