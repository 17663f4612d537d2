"""Test-time scaling: what more samples and more revisions of one policy bring, against their tokens and cost.

Curves over k of `samples` stored rollouts per task, and over rounds of revision. Each point is the exact mean over all
ways to take k of a task's samples, so no curve depends on an order of them; `majority` draws subsets where there are
many.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import fsum, inf
from pathlib import Path
from statistics import fmean
from typing import Any

from wanderlust.environment import Environment
from wanderlust.errors import RubricFailure, UsageError, WanderlustError, one_line
from wanderlust.evals.aggregation import MAX_CONCURRENT_ESTIMATES, estimate_group
from wanderlust.evals.choices import ScaledSample, expected_best, expected_majority
from wanderlust.evals.evaluate import evaluate, policy_name
from wanderlust.evals.report import Report
from wanderlust.evals.scaling_report import ScalingPoint, ScalingReport
from wanderlust.evals.statistics import estimate, mean
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.resolve import PolicyOptions, open_policies, resolve_policy
from wanderlust.rubrics.judge import Judge
from wanderlust.rubrics.label_free import (
    ReferenceEstimator,
    RewardCheck,
    Synthesis,
    answer_extractor,
    environment_check,
    shown_prompt,
)
from wanderlust.rubrics.rubric import RewardResult, gather_results
from wanderlust.runner.progress import Logger, open_progress
from wanderlust.store.run_folder import EVALUATION_STAGE, find_evaluation
from wanderlust.store.store import RunStore
from wanderlust.tasks.registry import environment_name, resolve_environment
from wanderlust.tasks.revision import History, build_history, resolve_revision, revision_task
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.types import Group, Policy, Rollout, Task, Trajectory

JUDGE = "judge"
DIFFICULTIES = ((1 / 3, "hard"), (2 / 3, "middle"), (2.0, "easy"))
"""Names of the tasks by their pass rate, and below what rate they end."""
SAMPLES_FOLDER, RESULT_FILE = "samples", "scaling.json"


@dataclass(slots=True, kw_only=True)
class _Curves:
    """Makes the points of the curves from the samples of each task."""

    samples: Mapping[str, Sequence[ScaledSample]]
    chains: Mapping[str, Sequence[ScaledSample]]
    """Per task, the first sample and its revisions."""
    selectors: Sequence[str]
    estimated: Sequence[EstimatedRewards] = ()

    def by_difficulty(self) -> list[ScalingPoint]:
        """The curves of each difficulty, which other samples of the same tasks decide."""
        rates = {task: fmean([one.reward for one in samples[::2]]) for task, samples in self.samples.items()}
        kept = {task: samples[1::2] for task, samples in self.samples.items()}
        rest = _Curves(samples=kept, chains={}, selectors=self.selectors)
        points, low = list[ScalingPoint](), -inf
        for high, name in DIFFICULTIES:
            tasks = [task for task, rate in rates.items() if low <= rate < high]
            points += rest.points(tasks, name) if tasks else []
            low = high
        return points

    def points(self, tasks: Sequence[str], difficulty: str = "") -> list[ScalingPoint]:
        """All curves of these tasks."""
        counts = powers_of_two(min(len(self.samples[task]) for task in tasks))
        strategies: dict[str, Callable[[str, int], float]] = {
            "pass": lambda task, k: expected_best(self.samples[task], k, lambda sample: sample.reward),
            **{f"best of n by {name}": self._by(name) for name in self.selectors},
        }
        if any(sample.answer for task in tasks for sample in self.samples[task]):
            strategies["majority"] = lambda task, k: expected_majority(self.samples[task], k, key=task)
        single = {task: fmean([sample.reward for sample in self.samples[task]]) for task in tasks}
        earned = [(name, k, {task: way(task, k) for task in tasks}) for name, way in strategies.items() for k in counts]
        for made in self.estimated:
            known = {task: made.rewards[task] for task in tasks if task in made.rewards}
            earned += [(made.name, k, {task: by[k] for task, by in known.items()}) for k in made.counts if known]
        points = []
        for name, k, rewards in earned:
            groups = [self.samples[task] for task in rewards]
            spent = [(k * fmean([one.tokens for one in g]), k * fmean([one.cost for one in g])) for g in groups]
            points.append(_point(name, k, rewards, single=single, spent=spent, difficulty=difficulty))
        chains = {task: self.chains[task] for task in tasks if task in self.chains}
        first = {task: chain[0].reward for task, chain in chains.items()}
        for k in range(1, max(map(len, chains.values()), default=0) + 1):
            rewards = {task: chain[:k][-1].reward for task, chain in chains.items()}  # the last answer stands
            done = [chain[:k] for chain in chains.values()]
            spent = [(fsum(one.tokens for one in chain), fsum(one.cost for one in chain)) for chain in done]
            points.append(_point("revision", k, rewards, single=first, spent=spent, difficulty=difficulty))
        return points

    def _by(self, name: str) -> Callable[[str, int], float]:
        return lambda task, k: expected_best(self.samples[task], k, lambda sample: sample.choices[name])


def _point(
    name: str,
    k: int,
    rewards: Mapping[str, float],
    *,
    single: Mapping[str, float],
    spent: Sequence[tuple[float, float]],
    difficulty: str,
) -> ScalingPoint:
    return ScalingPoint(
        strategy=name,
        k=k,
        reward=estimate([[reward] for reward in rewards.values()]),
        over_one=mean([[reward - single[task]] for task, reward in rewards.items()]),
        tokens=fmean([tokens for tokens, _ in spent]),
        cost=fmean([cost for _, cost in spent]),
        difficulty=difficulty,
    )


@dataclass(slots=True, kw_only=True)
class _Player:
    """Plays what the curves are of, as evaluations in folders of their own, which go on where they were stopped."""

    env: Environment
    folder: Path
    play: Callable[..., Awaitable[Report]]
    """`evaluate`, but for tasks, samples and folder."""

    async def groups(self, name: str, tasks: Sequence[Task], samples: int) -> dict[str, Group]:
        """The rollouts of each task, by its id."""
        await self.play(tasks=tasks, samples=samples, out=self.folder / name)
        with RunStore.read(find_evaluation(self.folder / name)[0]) as reader:
            return {group.task.id: group for group in reader.iter_groups(EVALUATION_STAGE, 0)}

    async def revisions(
        self, groups: Mapping[str, Group], tasks: Sequence[Task], rounds: int
    ) -> dict[str, list[Rollout]]:
        """Per task, the first sample and its revisions; a task with a failed one is left out."""
        revision, by_id = resolve_revision(self.env), {task.id: task for task in tasks}
        chains = {id: [rollout] for id in by_id if (rollout := _first(groups.get(id))) is not None}
        histories: dict[str, History] = {id: build_history(chain[0]) for id, chain in chains.items()}
        for number in range(1, rounds + 1):
            asked = {
                f"{id}~{number}": revision_task(by_id[id], history, revision, id=f"{id}~{number}")
                for id, history in histories.items()
                if history
            }
            played = await self.groups(f"revision-{number}", [*asked.values()], 1)
            for name, group in played.items():
                id, rollout = name.rpartition("~")[0], _first(group)
                if rollout is None:
                    del chains[id], histories[id]
                    continue
                chains[id].append(rollout)
                histories[id] = build_history(rollout, histories[id], is_revision=True)
        return chains


def _first(group: Group | None) -> Rollout | None:
    """The first rollout of a group, if it was scored."""
    rollouts = [] if group is None else [one for one in group.rollouts if one.sample_index == 0]
    return next((one for one in rollouts if one.main_trajectory is not None), None)


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Makes samples of rollouts."""

    env: Environment
    names: Sequence[str]
    judge: Judge | None
    prices: TokenPrices | None
    first_failure: str = ""
    """Of the judge."""

    async def all_samples(self, rollouts: Mapping[str, Sequence[Rollout]]) -> dict[str, list[ScaledSample]]:
        """Per task one sample per rollout, all of which are scored; a task on which the judge fails is left out.

        Raises UsageError for a selector that scores do not have.
        """
        found: dict[str, list[ScaledSample]] = {}
        for task, played in rollouts.items():
            try:
                verdicts = await self._verdicts(played)
                found[task] = [
                    self._sample(rollout, verdict) for rollout, verdict in zip(played, verdicts, strict=True)
                ]
            except RubricFailure as failure:
                self.first_failure = self.first_failure or str(failure)
        return found

    async def _verdicts(self, rollouts: Sequence[Rollout]) -> list[float | None]:
        if self.judge is None:
            return [None] * len(rollouts)
        asked = [
            (shown_prompt(one.task, [trajectory]), _last_answer(trajectory)) for one, trajectory in _scored(rollouts)
        ]
        found = await gather_results(self.judge(prompt=prompt, completion=text) for prompt, text in asked)
        for one in found:
            if isinstance(one, WanderlustError):
                raise one
        return [one.value for one in found if isinstance(one, RewardResult)]

    def _sample(self, rollout: Rollout, verdict: float | None) -> ScaledSample:
        ((_, trajectory),) = _scored([rollout])
        score = trajectory.score
        assert score is not None
        known = {**score.parts, **score.metrics}
        if missing := [name for name in self.names if name not in known]:
            raise UsageError(f"the score has no {missing[0]!r} to choose by; it has: {', '.join(known) or 'nothing'}")
        behaviour = rollout.state.get("behaviour")
        answer = (
            json.dumps(behaviour) if behaviour is not None else answer_extractor(self.env)(_last_answer(trajectory))
        )
        return ScaledSample(
            reward=score.reward,
            answer=answer,
            tokens=sum(turn.usage.get("completion_tokens", 0) for turn in trajectory.turns),
            cost=fsum(self.prices.cost_of(turn.usage) for turn in trajectory.turns) if self.prices else 0.0,
            choices={name: known[name] for name in self.names} | ({} if verdict is None else {JUDGE: verdict}),
        )


def _scored(rollouts: Sequence[Rollout]) -> list[tuple[Rollout, Trajectory]]:
    return [(one, trajectory) for one in rollouts if (trajectory := one.main_trajectory) is not None]


def _last_answer(trajectory: Trajectory) -> str:
    return trajectory.turns[-1].action.content if trajectory.turns else ""


async def _curves(
    reader: _Reader,
    groups: Mapping[str, Group],
    chains: Mapping[str, Sequence[Rollout]],
    *,
    estimators: Mapping[str, ReferenceEstimator],
    progress: Logger | bool,
) -> _Curves:
    """Ask the judge and the estimators. Raises UsageError when the judge has not judged all samples of any task."""
    counts = powers_of_two(min(len(group.rollouts) for group in groups.values()))
    check = environment_check(reader.env)
    estimated = [
        EstimatedRewards(name=name, estimator=one, check=check, counts=counts) for name, one in estimators.items()
    ]
    judges = [] if reader.judge is None else [reader.judge.policy]
    writers = [made.estimator.synthesizer for made in estimated if isinstance(made.estimator, Synthesis)]
    async with open_policies([*judges, *writers]):
        sampled = await reader.all_samples({id: group.rollouts for id, group in groups.items()})
        if not sampled:
            raise UsageError(f"no task has all of its verdicts: {reader.first_failure}")
        revised = await reader.all_samples({id: chain for id, chain in chains.items() if id in sampled})
        with open_progress(progress) as logger:
            for made in estimated:
                await made.add_all({id: groups[id] for id in sampled}, logger)
    selectors = [*reader.names, *([JUDGE] if judges else [])]
    return _Curves(samples=sampled, chains=revised, selectors=selectors, estimated=estimated)


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4 and so on, and `most` itself."""
    return [*(2**n for n in range(most.bit_length()) if 2**n < most), most]


async def scale(  # noqa: PLR0913 (the whole of `wander scale` as one call)
    env: Environment | str,
    policy: Policy | str | Path,
    *,
    split: str = "eval",
    n: int | None = None,
    samples: int = 16,
    rounds: int = 0,
    choose_by: Sequence[str] = (),
    judge: Judge | None = None,
    estimators: Mapping[str, ReferenceEstimator] | None = None,
    prices: TokenPrices | None = None,
    out: str | Path | None = None,
    concurrency: int = 128,
    seed: int = 0,
    progress: Logger | bool = True,
) -> ScalingReport:
    """Play every task `samples` times, revise the first answer `rounds` times, and report what each choice earns.

    Args:
        env: An environment, or the name of one as `load_environment` takes it.
        policy: The policy, or its name as `evaluate` takes it. With temperature 0 all samples are equal.
        split: Split of the environment that is played.
        n: Number of tasks, spread evenly over the split. Default: all.
        samples: Rollouts per task, at least 2.
        rounds: Revisions of the first sample, one after the other; the environment must take conversations as tasks.
        choose_by: Parts or metrics of the score by which best-of-n chooses; they must not read the answer. Default: the
            environment's `choose_by`.
        judge: Scores each sample's last answer, without a reference (`REFERENCE_FREE_TEMPLATE`); best-of-n chooses by
            that, too. Its tokens are in no figure.
        estimators: By the name of a curve, what makes one answer of k samples (`build_estimator`). Its reward is the
            environment's, on average over at most four sets of k samples that share none. Its tokens are in no figure.
        prices: Dollars per million tokens.
        out: Folder that keeps rollouts, `scaling.json` and `scaling.png`; the same call goes on where it was stopped.
        concurrency: Rollouts at once.
        seed: Seed of everything random.
        progress: Whether to draw progress on stderr, or the logger that gets it.

    Returns:
        The report: a point per strategy, k and difficulty. The difficulty of a task is its pass rate over the samples
        with an even index, and its curves are of those with an odd one, so that chance in the one is not in the other.
        Tasks with a failed rollout are left out, and counted.

    Raises:
        UsageError: when an argument is wrong, or every task was left out.
    """
    if samples < 2:
        raise UsageError("scaling needs at least 2 samples of a task")
    environment = resolve_environment(env).env if isinstance(env, str) else env
    if isinstance(policy, str | Path):
        policy = resolve_policy(str(policy), environment, PolicyOptions(seed=seed, split=split)).policy
    if rounds:
        resolve_revision(environment)
    names = [*choose_by] or ([environment.choose_by] if environment.choose_by else [])
    tasks = choose_tasks(iter_tasks(environment, split), n)
    with nullcontext(str(out)) if out is not None else tempfile.TemporaryDirectory() as folder:
        same: dict[str, Any] = {"seed": seed, "concurrency": concurrency, "prices": prices, "progress": progress}
        play = partial(evaluate, environment, policy, **same)
        player = _Player(env=environment, folder=Path(folder), play=play)
        groups = await player.groups(SAMPLES_FOLDER, tasks, samples)
        chains = await player.revisions(groups, tasks, rounds) if rounds else {}
        whole = {id: group for id, group in groups.items() if len(_scored(group.rollouts)) == samples}
        if not whole:
            errors = (one.error for group in groups.values() for one in group.rollouts if one.error)
            raise UsageError(f"no task has all of its samples scored: {one_line(next(errors, 'none has a reward'))}")
        reader = _Reader(env=environment, names=names, judge=judge, prices=prices)
        curves = await _curves(reader, whole, chains, estimators=estimators or {}, progress=progress)
        sampled, revised = curves.samples, curves.chains
        report = ScalingReport(
            env=environment_name(env),
            policy=policy_name(policy),
            tasks=len(sampled),
            left_out=len(tasks) - len(sampled),
            revision_left_out=len(sampled) - len(revised) if rounds else 0,
            samples=samples,
            points=(*curves.points([*sampled]), *curves.by_difficulty()),
            estimates_left_out={one.name: len(one.errors) for one in curves.estimated},
            first_failure=next((error for one in curves.estimated for error in one.errors), ""),
        )
        if out is not None:
            (Path(folder) / RESULT_FILE).write_text(json.dumps(asdict(report), indent=1) + "\n", encoding="utf-8")
    return report


MAX_SETS = 4
"""Sets of k samples of a task that an estimate is made of, at most. They share no sample."""


def disjoint_sets(group: Group, k: int) -> list[Group]:
    """Groups of k of a group's rollouts each, in their order; a rollout is in one of them at most."""
    count = min(MAX_SETS, len(group.rollouts) // k)
    return [replace(group, rollouts=group.rollouts[n * k : (n + 1) * k]) for n in range(count)]


@dataclass(slots=True, kw_only=True)
class EstimatedRewards:
    """Rewards of one estimator by task and k; a task with an estimate that failed is in none of them."""

    name: str
    estimator: ReferenceEstimator
    check: RewardCheck
    counts: Sequence[int]
    rewards: dict[str, dict[int, float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    async def add_all(self, groups: Mapping[str, Group], progress: Logger) -> None:
        """Make the estimates of all tasks, some tasks at once."""
        waiting = [*groups.items()]
        for start in range(0, len(waiting), MAX_CONCURRENT_ESTIMATES):
            some = waiting[start : start + MAX_CONCURRENT_ESTIMATES]
            ended = await gather_results(self._of_task(group) for _, group in some)
            for (task, _), found in zip(some, ended, strict=True):
                if isinstance(found, WanderlustError):
                    self.errors.append(f"{task}: {one_line(str(found))}")
                else:
                    self.rewards[task] = found
            progress.log_step(self.name, start + len(some), of=len(waiting), metrics={})

    async def _of_task(self, group: Group) -> dict[int, float]:
        single = [one.main_trajectory for one in group.rollouts]
        rewards = [one.score.reward for one in single if one is not None and one.score is not None]
        found = {1: fmean(rewards)}
        for k in self.counts[1:]:
            values = [(await estimate_group(one, self.estimator, self.check)).value for one in disjoint_sets(group, k)]
            found[k] = fmean(values)
        return found
