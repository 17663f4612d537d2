"""What a reasoner is taught and measured by: right answers, form and skill by set, and what is monitored in RL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean

from wanderlust.errors import WanderlustError
from wanderlust.evals.statistics import corrected, estimate, paired_difference
from wanderlust.store.records import count_tokens
from wanderlust.store.run import load_run
from wanderlust.tasks.mixture import ENVIRONMENT_KEY
from wanderlust.training.config import TrainConfig
from wanderlust.types import Rollout, Task
from wanderlust_reasoning.environment import parse_tagged_answer, pupil
from wanderlust_reasoning.reasoner_report import AFTER_RL, AFTER_SFT, BASE, Exam, HeldOutSet, Monitored
from wanderlust_reasoning.reasoner_sets import CandidateSet

MONITORED_STEPS = 5
"""First and last steps of RL that are compared."""
MIN_SIGNAL, COLLAPSE, BLOW_UP, MAX_KL, MAX_CUT = 0.1, 0.1, 3.0, 0.5, 0.2
"""Least share of groups with signal; entropy against that of the first steps, least and most; most divergence from the
start, in nats per token; most answers that reach the bound of tokens."""


def right_answer(task: Task, *, thinks: bool) -> str:
    """What SFT teaches: columns and the result of a sum of two numbers, where there is room, and else the answer.

    The scripted pupil forgets carries, so its columns are taken where they come to the right result.
    """
    if thinks:
        worked = pupil(task.prompt, Random(f"reasoner/pupil/{task.id}"))
        if worked and parse_tagged_answer(worked) == task.answer:
            return worked
    return f"<answer>{task.answer}</answer>"


def answer_is_right(rollout: Rollout) -> bool:
    """Whether the set's scorer gives the answer 1; what it gives for less is not counted."""
    score = rollout.trajectory.score
    return score is not None and score.reward >= 1


def right_by_task(rollouts: Iterable[Rollout]) -> dict[str, list[float]]:
    """0 or 1 of every question."""
    return {one.task.id: [float(answer_is_right(one))] for one in rollouts}


def by_set(rollouts: Iterable[Rollout]) -> dict[str, list[Rollout]]:
    """The rollouts of each set, in order of the names."""
    sets: dict[str, list[Rollout]] = {}
    for one in sorted(rollouts, key=lambda one: str(one.task.info[ENVIRONMENT_KEY])):
        sets.setdefault(str(one.task.info[ENVIRONMENT_KEY]), []).append(one)
    return sets


def of_sets(ids: Sequence[str], sets: Sequence[CandidateSet]) -> list[str]:
    """Of the questions of a mixture, those of some sets."""
    names = {one.name for one in sets}
    return [one for one in ids if one.partition("/")[0] in names]


def held_out_sets(sets: Sequence[CandidateSet], answers: Mapping[str, Sequence[Rollout]]) -> tuple[HeldOutSet, ...]:
    """The figures of all held-out sets, p-values corrected for their number."""
    found = [held_out_set(one, answers) for one in sets]
    over_base, over_sft = (
        corrected({one.name: getattr(one, name) for one in found}) for name in ("over_base", "over_sft")
    )
    return tuple(replace(one, over_base=over_base[one.name], over_sft=over_sft[one.name]) for one in found)


def held_out_set(one: CandidateSet, answers: Mapping[str, Sequence[Rollout]]) -> HeldOutSet:
    """The figures of one held-out set. Raises WanderlustError where an exam has no scored rollout of it."""
    own = {name: by_set(rollouts).get(one.name, []) for name, rollouts in answers.items()}
    if missing := [name for name, rollouts in own.items() if not rollouts]:
        raise WanderlustError(f"{one.name}: no rollout could be scored in the exam {missing[0]!r}")
    right = {name: right_by_task(rollouts) for name, rollouts in own.items()}
    wanted = Counter(rollout.task.answer for rollout in own[BASE])
    return HeldOutSet(
        name=one.name,
        family=one.family,
        exams={name: exam(rollouts) for name, rollouts in own.items()},
        over_base=paired_difference(right[AFTER_RL], right[BASE]),
        over_sft=paired_difference(right[AFTER_RL], right[AFTER_SFT]),
        constant=max(wanted.values()) / wanted.total(),
    )


def exam(rollouts: Sequence[Rollout]) -> Exam:
    """Form and skill of one policy in one set."""
    answered = [
        one for one in rollouts if parse_tagged_answer(str(one.trajectory.turns[-1].action.content)) is not None
    ]
    return Exam(
        right=estimate(right_by_task(rollouts).values()),
        answered=len(answered) / len(rollouts),
        right_of_answered=fmean(map(answer_is_right, answered)) if answered else None,
        tokens=fmean(map(written_tokens, rollouts)),
    )


def written_tokens(rollout: Rollout) -> int:
    """Tokens of its answers."""
    return count_tokens(rollout.trajectory.turns)[1]


def monitored(run: Path, config: TrainConfig) -> Iterator[Monitored]:
    """Signal, entropy, divergence from the start, and length of an RL run, each with what is wrong."""
    with load_run(run) as opened:
        metrics = {name: [value for _, value in points] for name, points in opened.metrics("rl").items()}
        groups = [opened.groups("rl", step) for step in range(config.steps)]
    lengths = [[written_tokens(one) for group in step for one in group.rollouts] for step in groups]
    kl = [value / config.kl for value in metrics.get("kl", ())] if config.kl and not config.kl_target else []
    figures = {
        "groups with signal": metrics.get("frac_groups_with_signal", []),
        "entropy, nats per token": metrics.get("entropy", []),
        "divergence from the start, nats per token": kl,
        "tokens of an answer": [fmean(step) for step in lengths if step],
        "answers at the bound of tokens": [fmean(n >= config.max_tokens for n in step) for step in lengths if step],
        "reward": metrics.get("reward", []),
    }
    for name, values in figures.items():
        if values:
            first, last = fmean(values[:MONITORED_STEPS]), fmean(values[-MONITORED_STEPS:])
            yield Monitored(name=name, first=first, last=last, fault=fault_of(name, first, last))


def fault_of(name: str, first: float, last: float) -> str:
    """What is wrong with a monitored figure; empty where nothing is."""
    kind = name.partition(",")[0]
    faults = {
        "groups with signal": (last < MIN_SIGNAL, f"only {last:.0%} of the groups have different rewards"),
        "entropy": (not COLLAPSE * first <= last <= BLOW_UP * first, f"went from {first:.2g} to {last:.2g}"),
        "divergence from the start": (last > MAX_KL, f"is {last:.2g}"),
        "answers at the bound of tokens": (last > max(MAX_CUT, first), f"rose to {last:.0%}"),
    }
    wrong, what = faults.get(kind, (False, ""))
    return what if wrong else ""
