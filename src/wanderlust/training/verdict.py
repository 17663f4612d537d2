"""The verdict on a training run: one value that its sentence, its choice of weights, its advice and its page are from.

It weighs the paired change of the reward, that of every held-out part on the same tasks, the monitors' warnings, and
how far the reward of tasks trained on rose beside that of held-out ones. Where they disagree, the sentence says so.
Where seats that learn earn differently, each of them is judged by itself, in matches against players that do not learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any, Literal, TypeAlias

from wanderlust.errors import UsageError
from wanderlust.evals.comparison import Comparison, compare_rewards, corrected_comparisons
from wanderlust.evals.statistics import Estimate, is_clearly_above, mean_rise
from wanderlust.store.run_folder import FRESH_POLICY
from wanderlust.training.checkpoint import EvalPoint, best_point
from wanderlust.training.config import TrainConfig

BEFORE, AFTER, BEST, TEACHER, RANDOM = "before", "after", "best", "teacher", "random"
"""Names of the policies that are compared."""
TaskRewards: TypeAlias = Mapping[str, Sequence[float]]
"""The figures of every task's samples."""
VerdictKind: TypeAlias = Literal["better", "worse", "none", "mixed", "exploited", "doubtful", "overfitted"]

MIN_RESULT_TASKS = 6
"""Tasks below which signs alone are chance with a probability of 5% and more."""
MAX_CARRIED = 0.5
"""Share of the rise on tasks trained on below which a smaller one on held-out tasks is the headline."""
NOTHING_SCORED = "No difference shown: too few rollouts could be scored."


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a finished run knows of itself."""

    rewards: Mapping[str, TaskRewards] = field(default_factory=dict)
    """Of each policy, on the same held-out tasks."""
    matches: Mapping[str, Mapping[str, TaskRewards]] = field(default_factory=dict)
    """In place of these where seats that learn earn differently: by match, such as `buyer against the teacher`."""
    truths: Mapping[str, Mapping[str, TaskRewards]]
    """By held-out part, the same of it."""
    warnings: Sequence[Mapping[str, Any]] = ()
    """Of the monitors: `step`, `monitor` and `text`, in their order."""
    revisions: int = 0
    """How often the answers were revised, where that is what is trained."""
    first_answers: Mapping[str, TaskRewards] = field(default_factory=dict)
    """Of each policy, before they were revised."""
    trained: Mapping[str, TaskRewards] = field(default_factory=dict)
    """Of each policy, on tasks that were trained on, sampled as the held-out ones are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run came to."""

    verdict: VerdictKind
    """`exploited`: a held-out part fell while the reward rose; `doubtful`: the reward rose, and monitors warned or a
    held-out part did not follow; `overfitted`: tasks trained on rose far more than held-out ones; `mixed`: better
    in some matches and worse in others."""
    sentence: str
    policy: str
    """Whose weights are handed out: BEFORE, BEST or AFTER."""
    difference: Mapping[str, Any] | None = None
    """Of the reward, after less before, with its interval and p-value; None where `matches` has several."""
    matches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By match, the same of it; p-values are corrected for their number (Holm)."""
    truths: Mapping[str, Mapping[str, Any]]
    """By held-out part, the same of it."""
    warnings: Sequence[str] = ()
    """One line each, with its step."""
    advice: str = ""
    """What to do, where that is not to train on; stands in place of advice on settings."""


def judge_result(found: Evidence) -> Verdict:
    """Weigh everything that a run knows; see the module."""
    warnings = [f"step {one['step']}: {one['monitor']}: {one['text']}" for one in found.warnings]
    moved = _moved(found)
    truths = _compare_all(found.truths)
    if not moved:
        sentence = " ".join([NOTHING_SCORED, *_warning_sentence(found.warnings)])
        return Verdict(verdict="none", sentence=sentence, policy=AFTER, truths={}, warnings=warnings)
    kind, sentence = _judge(moved, truths, found)
    policy = choose_policy(found)
    if kind in ("exploited", "doubtful"):
        sentence += f"; {HANDED_OUT[policy]} are handed out"
    if found.revisions:
        first = _compare(found.first_answers)
        beside = "" if first is None else f"; first answers {_signed(first.difference)}"
        sentence += f", in answers revised {found.revisions} times{beside}"
    shown = next(iter(moved.values()))
    many = f"{shown.difference.clusters} held-out tasks, {shown.second.count} sampled rollouts each way"
    chance = (
        f"p = {shown.p_value:.2g}" if len(moved) == 1 else f"each of {len(moved)} matches, corrected for their number"
    )
    sentence = f"{sentence} ({many}, {chance})."
    if found.warnings and kind not in ("exploited", "doubtful"):
        sentence = " ".join([sentence, *_warning_sentence(found.warnings)])
    records = {name: {**asdict(each.difference), "p_value": each.p_value} for name, each in moved.items()}
    return Verdict(
        verdict=kind,
        sentence=sentence,
        policy=policy,
        difference=None if found.matches else records[""],
        matches=records if found.matches else {},
        truths={name: {**asdict(one.difference), "p_value": one.p_value} for name, one in truths.items()},
        warnings=warnings,
        advice=_advice(kind, moved, truths, warned=bool(found.warnings))
        or (OVERFITTING if _overfitting(found) else ""),
    )


OVERFITTING = (
    "What was learnt carries over to held-out tasks in part: more training tasks help, or fewer --steps, --patience, "
    "or --kl 0.01; more steps or a larger model do not."
)
HANDED_OUT = {
    BEFORE: "the weights before training",
    BEST: "the weights of the best greedy evaluation",
    AFTER: "the last weights",
}


def choose_policy(found: Evidence) -> str:
    """The last weights, the best greedy evaluation's or the first: the first of these that no other is better than.

    Better means clearly better in a held-out part and clearly worse in none; or, where no held-out part tells the two
    apart, clearly better in the reward, of several matches in one of them, and clearly worse in none.
    """
    some = next(iter(found.matches.values()), found.rewards)
    names = [name for name in (AFTER, BEST, BEFORE) if name in some]

    def is_better(one: str, other: str) -> bool:
        truths = [_sign(each) for each in _compare_all(found.truths, first=other, second=one).values()]
        signs = truths if any(truths) else [_sign(each) for each in _moved(found, first=other, second=one).values()]
        return max(signs, default=0) > 0 and min(signs) >= 0

    return next((one for one in names if not any(is_better(two, one) for two in names if two != one)), BEFORE)


def _moved(found: Evidence, *, first: str = BEFORE, second: str = AFTER) -> dict[str, Comparison]:
    """The rewards of two policies, of each match or of the only one, which has no name; those with a task in common."""
    return _compare_all(found.matches or {"": found.rewards}, first=first, second=second)


def _compare_all(
    figures: Mapping[str, Mapping[str, TaskRewards]], *, first: str = BEFORE, second: str = AFTER
) -> dict[str, Comparison]:
    """Two policies in several figures, corrected for their number; those in which both have a task in common."""
    found = {name: one for name, by in figures.items() if (one := _compare(by, first=first, second=second))}
    return corrected_comparisons(found)


def _judge(
    moved: Mapping[str, Comparison], truths: Mapping[str, Comparison], found: Evidence
) -> tuple[VerdictKind, str]:
    """The kind, and the sentence without its end."""
    signs, size = [_sign(one) for one in moved.values()], next(iter(moved.values())).difference
    each = "; ".join(f"{name} {_signed(one.difference)}".strip() for name, one in moved.items())
    lost = " and ".join(f"`{name}` fell by {_turned(one.difference)}" for name, one in truths.items() if _sign(one) < 0)
    if size.clusters < MIN_RESULT_TASKS:
        few = f"Too few held-out tasks to tell ({size.clusters}; at least {MIN_RESULT_TASKS})"
        return "none", f"{few}: {each if found.matches else f'{size.value:+.3f}'}"
    if max(signs) > 0 > min(signs):
        return "mixed", f"Better in some matches and worse in others after training: {each}{_beside(truths)}"
    if max(signs) > 0:
        return _judge_rise(f": {each}" if found.matches else f" by {size}", truths, found=found, lost=lost)
    if min(signs) < 0:
        by = f" after training: {each}" if found.matches else f" by {_turned(size)} after training"
        return "worse", f"Worse{by}{', and ' if lost else ''}{lost}{_on_trained(found)}"
    if lost:
        return "worse", f"Worse: {lost}, reward {each}"
    return _overfitted(found) or ("none", f"No difference shown: {each} after training{_beside(truths)}")


def _judge_rise(by: str, truths: Mapping[str, Comparison], *, found: Evidence, lost: str) -> tuple[VerdictKind, str]:
    """The same where the held-out reward clearly rose, `by` so much."""
    warned = "".join(f", see the warnings at {one}" for one in _steps(found.warnings))
    if lost:
        return "exploited", f"Reward rose{by} but {lost} on the same held-out tasks: the reward was exploited{warned}"
    behind = [f"`{name}` {_signed(one.difference)}" for name, one in truths.items() if one.difference.value <= 0]
    confirmed = bool(truths) and all(_sign(one) > 0 for one in truths.values())
    if behind:
        return "doubtful", f"Reward rose{by} but not the held-out part it stands for ({', '.join(behind)}){warned}"
    if found.warnings and not confirmed:
        steps = "".join(_steps(found.warnings))
        hacked = f"but monitors warned that it is exploited, at {steps}: read those"
        return "doubtful", f"Reward rose{by}{_beside(truths)}, {hacked}"
    better = f"Better after training{by}" if found.matches else f"Better{by} after training"
    return _overfitted(found) or ("better", f"{better}{_beside(truths)}{_on_trained(found)}")


def _overfitting(found: Evidence) -> tuple[Estimate, Estimate] | None:
    """The rise on tasks trained on and that on held-out ones, where the first is clearly the larger one."""
    pair = [_compare(found.trained), _compare(found.rewards)]
    if pair[0] is None or pair[1] is None:
        return None
    trained, held_out = (one.difference for one in pair if one is not None)
    clear = trained.low is not None and trained.low > 0
    return (trained, held_out) if clear and is_clearly_above(trained, held_out) else None


def _overfitted(found: Evidence) -> tuple[VerdictKind, str] | None:
    """The kind and sentence where less than half of the rise on tasks trained on is seen on held-out ones."""
    pair = _overfitting(found)
    if pair is None or pair[1].value >= MAX_CARRIED * pair[0].value:
        return None
    trained, held_out = pair
    return (
        "overfitted",
        f"Reward rose by {trained} on tasks trained on, but on held-out ones only by {_signed(held_out)}",
    )


def _on_trained(found: Evidence) -> str:
    """What tasks trained on show beside it, where that is clearly more."""
    pair = _overfitting(found)
    return "" if pair is None else f", while tasks trained on rose by {pair[0]}"


def _advice(
    kind: VerdictKind, moved: Mapping[str, Comparison], truths: Mapping[str, Comparison], *, warned: bool
) -> str:
    if kind == "doubtful" and not warned:
        return "Read rollouts before training on, and compare on more held-out tasks with --result-tasks."
    if kind in ("exploited", "doubtful"):
        names = " and ".join(f"`{name}`" for name in truths)
        wanted = f"what {names} measures" if names else "what you want (a held-out part would measure it)"
        return (
            f"Mend the reward before training on: it pays for something else than {wanted}. Read the rollouts that the "
            "warnings name, and try the reward with `wander probe`."
        )
    if kind == "mixed":
        lost = ", ".join(name for name, one in moved.items() if _sign(one) < 0)
        return (
            f"Worse: {lost}. Read rollouts of it (`wander eval ENV --policy RUN --seats SEAT=PLAYER`), and train "
            "against that player with --seats, lower --lr, or hold the policy to its start with --kl 0.01."
        )
    return ""


def _compare(by: Mapping[str, TaskRewards], *, first: str = BEFORE, second: str = AFTER) -> Comparison | None:
    """Two policies; None where they have no scored task in common."""
    try:
        return compare_rewards(by.get(first, {}), by.get(second, {}))
    except UsageError:
        return None


def _sign(one: Comparison | None) -> int:
    """1 or -1 for a clear difference, else 0."""
    return 0 if one is None or not one.clear else 1 if one.difference.value > 0 else -1


def _beside(truths: Mapping[str, Comparison]) -> str:
    return "".join(f", `{name}` {_signed(one.difference)}" for name, one in truths.items())


def _steps(warnings: Sequence[Mapping[str, Any]]) -> list[str]:
    """`step 11 (agreement), step 19 (gap)` as one text; none without warnings."""
    first = {str(one["monitor"]): int(one["step"]) for one in reversed(warnings)}
    named = [f"step {step} ({monitor})" for monitor, step in sorted(first.items(), key=lambda item: item[1])]
    return [", ".join(named)] if named else []


def _warning_sentence(warnings: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"Monitors warned at {steps}." for steps in _steps(warnings)]


def _signed(one: Estimate) -> str:
    interval = "" if one.low is None else f" [{one.low:.3f}, {one.high:.3f}]"
    return f"{one.value:+.3f}{interval}"


def _turned(one: Estimate) -> str:
    """A fall as a positive figure."""
    interval = "" if one.low is None else f" [{-(one.high or 0):.3f}, {-one.low:.3f}]"
    return f"{-one.value:.3f}{interval}"


MIN_TEACHER_SHARE = 0.7
"""Share of the teacher's lead over random play (or over 0) below which a warm-up is said to be poor."""
MIN_SIGNAL = 0.1
"""Mean share of groups with a signal below which a run is said to have learnt from almost nothing."""
HARDLY_MOVED = 0.5
"""Share of rollouts that are the same after training from which on the policy is said to have hardly moved: what
training can gain is bounded by the others."""
MAX_CLIP_FRACTION = 0.2
"""Mean share of tokens outside of the clip's range above which steps are said to be too long (docs/metrics.md)."""
PLATEAU_POINTS = 4
"""Evaluations from which on a plateau can be seen."""
STUCK_SHARE = 0.95
"""Share of greedy episodes that are the same as before training from which on the learning rate is said to be low."""
FIRST_STEPS = 5
"""Steps that later ones are compared with."""
COLLAPSE = 0.1
"""Share of the first steps' entropy below which it is said to have collapsed, where signal was lost with it."""


def advise_during(
    config: TrainConfig,
    *,
    metrics: Mapping[str, Sequence[float]],
    points: Sequence[Mapping[str, Any]],
    unchanged: float,
) -> dict[str, str]:
    """Advice at an evaluation, one line by its kind; empty where nothing stands out.

    `metrics` are those of the steps so far; `points` the evaluations of the best metric (`step`, `value`, `low`,
    `high`), the one before training first; `unchanged` is the share of greedy episodes equal to those before training.
    """
    if len(points) < 2 or any(point["low"] is None for point in points):  # a single task has no interval
        return {}
    first, last, step = points[0], points[-1], int(points[-1]["step"])
    window = max(step - int(points[-2]["step"]), 1)
    recent = {name: fmean(values[-window:]) for name, values in metrics.items() if values}
    early = {name: fmean(values[:FIRST_STEPS]) for name, values in metrics.items() if values}
    best = max(points, key=lambda point: (point["value"], -point["step"]))
    signal = recent.get("frac_groups_with_signal", 1.0)
    lines: dict[str, str] = {}
    rewards, gained = metrics.get("reward", ()), last["value"] - first["value"]
    rise = mean_rise(rewards[:window], rewards[-window:]) if len(rewards) >= 2 * window else None
    overfits = rise is not None and rise.low is not None and rise.low > max(last["high"] - first["low"], 0.0)
    if rise is not None and overfits and gained < MAX_CARRIED * rise.value:
        lines["overfitting"] = (
            f"Reward rose by {rise.value:.3f} in training and by {gained:.3f} in evaluations of held-out tasks: "
            "more training tasks help, or --patience, or --kl 0.01; more steps or a larger model do not."
        )
    if signal < MIN_SIGNAL:
        lines["signal"] = _no_signal(config, metrics["frac_groups_with_signal"][-window:])
    elif unchanged >= STUCK_SHARE and last["low"] <= first["high"]:
        lines["learning_rate"] = (
            f"{unchanged:.0%} of the greedy episodes are word for word those from before training: raise --lr (now "
            f"{config.lr:g})."
        )
    if last["high"] < first["low"]:
        lines["worse"] = (
            f"Evaluations are worse than before training ({last['value']:.3f} after {first['value']:.3f}): lower --lr "
            f"(now {config.lr:g}), or hold the policy to its start with --kl 0.01."
        )
    elif last["high"] < best["low"]:
        lines["best"] = (
            f"The evaluation at step {best['step']:.0f} was better ({best['value']:.3f}, now {last['value']:.3f}); its "
            "checkpoint is kept. Lower --lr, or stop early with --patience."
        )
    elif len(points) > PLATEAU_POINTS and best["step"] <= points[-PLATEAU_POINTS]["step"] and not lines:
        lines["plateau"] = (
            f"No evaluation after step {best['step']:.0f} was better ({best['value']:.3f}): more --tasks-per-step (now "
            f"{config.tasks_per_step}), other tasks with --curriculum, or stop early with --patience."
        )
    spread, lost = early.get("entropy", 0.0), signal < early.get("frac_groups_with_signal", 0.0) / 2
    if lost and recent.get("entropy", spread) < COLLAPSE * spread and last["value"] < best["value"]:
        lines["entropy"] = (
            f"Entropy fell from {spread:.2g} to {recent['entropy']:.2g} nats per token, and groups with different "
            f"rewards from {early['frac_groups_with_signal']:.0%} to {signal:.0%}: add --entropy 0.001, raise "
            f"--temperature (now {config.temperature:g}), or lower --lr (now {config.lr:g})."
        )
    dropped = sum(metrics.get("groups_dropped", ())[-window:])
    if dropped:
        lines["staleness"] = (
            f"{dropped:.0f} groups became too old and were played again: raise --max-staleness (now "
            f"{config.max_staleness}), or have more samplers."
        )
    return lines


def advise(
    config: TrainConfig,
    *,
    rewards: Mapping[str, TaskRewards],
    match_rewards: Mapping[str, Mapping[str, TaskRewards]] | None = None,
    verdict: str,
    signal: Sequence[float],
    points: Sequence[EvalPoint],
    unchanged: float | None = None,
    clipped: Sequence[float] = (),
) -> list[str]:
    """Lines of advice from what was measured; none where nothing stands out.

    `rewards` are those of the sampled evaluation, by policy, or `match_rewards` by match and policy; `unchanged` is its
    share of rollouts that are the same after training; `signal` is the share of groups with different rewards and
    `clipped` that of tokens outside of the clip's range, step by step; `points` are the greedy evaluations.
    """
    config = config.with_sft_defaults()
    learnt_from_something = not signal or fmean(signal[len(signal) // 2 :]) >= MIN_SIGNAL
    lines = [_warm_up(config, by, match) for match, by in (match_rewards or {"": rewards}).items()]
    if not learnt_from_something:
        lines.append(_no_signal(config, signal))
    else:
        lines.append(_learning_rate(config, verdict, unchanged=unchanged, clipped=clipped))
        lines.append(_plateau(config, points, verdict))
    return [line for line in lines if line]


def _warm_up(config: TrainConfig, rewards: Mapping[str, TaskRewards], match: str) -> str:
    """Says that imitation fell far short of the teacher, and that reinforcement did not make up for it."""
    if not config.sft_episodes or not {BEFORE, AFTER, TEACHER} <= rewards.keys():
        return ""
    try:
        short = compare_rewards(rewards[BEFORE], rewards[TEACHER])
    except UsageError:
        return ""
    before, teacher, after = (_mean(rewards[name]) for name in (BEFORE, TEACHER, AFTER))
    floor = _mean(rewards[RANDOM]) if RANDOM in rewards else 0.0
    if not short.clear or teacher <= max(floor, before, after):
        return ""
    share = max(before - floor, 0.0) / (teacher - floor)
    if share >= MIN_TEACHER_SHARE:
        return ""
    above = f", both above random play's {floor:.3f}" if RANDOM in rewards and before > floor else ""
    width = f", or a larger --fresh-width (now {config.fresh_width})" if config.policy == FRESH_POLICY else ""
    start = f"As {match}: the" if match else "The"
    return (
        f"{start} warm-up reached {share:.0%} of its teacher ({before:.3f} of {teacher:.3f}{above}): more "
        f"--sft-episodes (now {config.sft_episodes}) and --sft-steps (now {config.sft_steps}){width}."
    )


def _no_signal(config: TrainConfig, signal: Sequence[float]) -> str:
    share = fmean(signal[len(signal) // 2 :])
    groups = f"only {share:.0%} of the groups" if share else "no group"
    return (
        f"Rewards differed in {groups}: tasks are too hard or too easy for this model. Choose them with "
        f"--curriculum learnability, raise --group-size (now {config.group_size}), or imitate examples first with "
        "--sft-episodes."
    )


def _learning_rate(config: TrainConfig, verdict: str, *, unchanged: float | None, clipped: Sequence[float]) -> str:
    """Says that steps were too long or too short, by how far they moved the policy."""
    share = fmean(clipped[len(clipped) // 2 :]) if clipped else 0.0
    if share > MAX_CLIP_FRACTION:
        return (
            f"{share:.0%} of the tokens left the clip's range within a step: lower --lr (now {config.lr:g}), or "
            f"--updates-per-step (now {config.updates_per_step})."
        )
    moved = "" if unchanged is None else f", and {1 - unchanged:.0%} of its sampled rollouts changed"
    if verdict == "worse":
        return f"Training made it worse{moved}: lower --lr (now {config.lr:g}), or hold it to its start with --kl 0.01."
    if verdict == "none" and unchanged is not None and unchanged >= HARDLY_MOVED:
        return (
            f"The policy hardly moved: {unchanged:.0%} of the sampled rollouts are word for word those from before "
            f"training. Raise --lr (now {config.lr:g}), or --steps (now {config.steps})."
        )
    return ""


def _plateau(config: TrainConfig, points: Sequence[EvalPoint], verdict: str) -> str:
    top = best_point(points)
    if top is None or len(points) < PLATEAU_POINTS or verdict == "worse" or top.step > points[-1].step / 2:
        return ""
    return (
        f"No greedy evaluation after step {top.step} was better ({top.value:.3f}): more steps of this kind will hardly "
        f"help. Try more --tasks-per-step (now {config.tasks_per_step}), or other tasks with --curriculum."
    )


def _mean(rewards: TaskRewards) -> float:
    return fmean(fmean(values) for values in rewards.values())
