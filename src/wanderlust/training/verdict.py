"""The verdict on a training run: one value that its sentence, its choice of weights, its advice and its page are from.

It weighs the paired change of the reward, that of every held-out part on the same tasks, the monitors' warnings, and
how far the reward of training rose beside that of held-out tasks. Where they disagree, the sentence says so first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from wanderlust.errors import UsageError
from wanderlust.evals.comparison import Comparison, compare_rewards
from wanderlust.evals.statistics import Estimate, mean_rise

BEFORE, AFTER, BEST, TEACHER, RANDOM = "before", "after", "best", "teacher", "random"
"""Names of the policies that are compared."""
TaskRewards: TypeAlias = Mapping[str, Sequence[float]]
"""The figures of every task's samples."""
VerdictKind: TypeAlias = Literal["better", "worse", "none", "exploited", "doubtful", "overfitted", "self-play"]

MIN_RESULT_TASKS = 6
"""Tasks below which signs alone are chance with a probability of 5% and more."""
MIN_TRAINING_STEPS = 20
"""Steps from which on the training reward's rise is compared with the held-out one."""
ENDS = 5
"""First and last steps whose mean training rewards are compared."""
MAX_CARRIED = 0.5
"""Share of the training reward's rise below which held-out tasks show overfitting."""
NOTHING_SCORED = "No difference shown: too few rollouts could be scored."


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a finished run knows of itself."""

    rewards: Mapping[str, TaskRewards]
    """Of each policy, on the same held-out tasks."""
    truths: Mapping[str, Mapping[str, TaskRewards]]
    """By held-out part, the same of it."""
    warnings: Sequence[Mapping[str, Any]] = ()
    """Of the monitors: `step`, `monitor` and `text`, in their order."""
    training_rewards: Sequence[float] = ()
    """Mean reward of each step; empty where a curriculum changes the tasks, so that steps are not comparable."""
    opponent: str = ""
    """The fixed player that has the other seats, where several learn."""
    is_self_play: bool = False
    """Whether several seats with different rewards learn and nobody fixed plays against them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run came to."""

    verdict: VerdictKind
    """`exploited`: a held-out part fell while the reward rose; `doubtful`: the reward rose, and monitors warned or a
    held-out part did not follow; `overfitted`: the training reward rose far more than the held-out one."""
    sentence: str
    policy: str
    """Whose weights are handed out: BEFORE, BEST or AFTER."""
    difference: Mapping[str, Any] | None = None
    """Of the reward, after less before, with its interval and p-value."""
    truths: Mapping[str, Mapping[str, Any]]
    """By held-out part, the same of it."""
    warnings: Sequence[str] = ()
    """One line each, with its step."""
    advice: str = ""
    """What to do, where that is not to train on; stands in place of advice on settings."""


def judge_result(found: Evidence) -> Verdict:
    """Weigh everything that a run knows; see the module."""
    warnings = [f"step {one['step']}: {one['monitor']}: {one['text']}" for one in found.warnings]
    moved = _compare(found.rewards)
    truths = {name: one for name, by in found.truths.items() if (one := _compare(by)) is not None}
    if moved is None:
        sentence = " ".join([NOTHING_SCORED, *_warning_sentence(found.warnings)])
        return Verdict(verdict="none", sentence=sentence, policy=AFTER, truths={}, warnings=warnings)
    kind, sentence = _judge(moved, truths, found)
    policy = choose_policy(found)
    if kind in ("exploited", "doubtful"):
        sentence += f"; {HANDED_OUT[policy]} are handed out"
    size = moved.difference
    against = f", {found.opponent} in the other seats" if found.opponent else ""
    many = f"{size.clusters} held-out tasks{against}, {moved.second.count} sampled rollouts each way"
    sentence = f"{sentence} ({many}, p = {moved.p_value:.2g})."
    if found.warnings and kind not in ("exploited", "doubtful"):
        sentence = " ".join([sentence, *_warning_sentence(found.warnings)])
    return Verdict(
        verdict=kind,
        sentence=sentence,
        policy=policy,
        difference={**asdict(size), "p_value": moved.p_value},
        truths={name: {**asdict(one.difference), "p_value": one.p_value} for name, one in truths.items()},
        warnings=warnings,
        advice=_advice(kind, truths, warned=bool(found.warnings)),
    )


HANDED_OUT = {
    BEFORE: "the weights before training",
    BEST: "the weights of the best greedy evaluation",
    AFTER: "the last weights",
}


def choose_policy(found: Evidence) -> str:
    """The last weights, the best greedy evaluation's or the first: the first of these that no other is better than.

    Better means clearly better in a held-out part and clearly worse in none; or, where no held-out part tells the two
    apart, clearly better in the reward.
    """
    names = [name for name in (AFTER, BEST, BEFORE) if name in found.rewards]

    def is_better(one: str, other: str) -> bool:
        truths = [_sign(_compare(by, first=other, second=one)) for by in found.truths.values()]
        reward = _sign(_compare(found.rewards, first=other, second=one))
        return max(truths) > 0 and min(truths) >= 0 if any(truths) else reward > 0 and not found.is_self_play

    return next((one for one in names if not any(is_better(two, one) for two in names if two != one)), BEFORE)


def _judge(moved: Comparison, truths: Mapping[str, Comparison], found: Evidence) -> tuple[VerdictKind, str]:
    """The kind, and the sentence without its end."""
    size, sign = moved.difference, _sign(moved)
    fell = {name: one.difference for name, one in truths.items() if _sign(one) < 0}
    if size.clusters < MIN_RESULT_TASKS:
        few = f"Too few held-out tasks to tell ({size.clusters}; at least {MIN_RESULT_TASKS}): {size.value:+.3f}"
        return "none", few
    if found.is_self_play:
        change = f"Self-play: the mean over the seats that learn changed by {_signed(size)}"
        return "self-play", f"{change}, which tells nothing of strength, as the opponent learnt too"
    lost = " and ".join(f"`{name}` fell by {_turned(one)}" for name, one in fell.items())
    if sign > 0:
        return _judge_rise(moved, truths, found=found, lost=lost)
    if sign < 0:
        return "worse", f"Worse by {_turned(size)} after training{', and ' if lost else ''}{lost}"
    if lost:
        return "worse", f"Worse: {lost}, reward {_signed(size)}"
    return _overfitted(size, found) or ("none", f"No difference shown: {_signed(size)} after training{_beside(truths)}")


def _judge_rise(
    moved: Comparison, truths: Mapping[str, Comparison], *, found: Evidence, lost: str
) -> tuple[VerdictKind, str]:
    """The same where the held-out reward clearly rose."""
    size = moved.difference
    rose = f"Reward rose by {size}"
    warned = "".join(f", see the warnings at {one}" for one in _steps(found.warnings))
    if lost:
        return "exploited", f"{rose} but {lost} on the same held-out tasks: the reward was exploited{warned}"
    behind = [f"`{name}` {_signed(one.difference)}" for name, one in truths.items() if one.difference.value <= 0]
    confirmed = bool(truths) and all(_sign(one) > 0 for one in truths.values())
    if behind:
        return "doubtful", f"{rose} but not the held-out part it stands for ({', '.join(behind)}){warned}"
    if found.warnings and not confirmed:
        steps = "".join(_steps(found.warnings))
        return "doubtful", f"{rose}{_beside(truths)}, but monitors warned that it is exploited, at {steps}: read those"
    return _overfitted(size, found) or ("better", f"Better by {size} after training{_beside(truths)}")


def _overfitted(held_out: Estimate, found: Evidence) -> tuple[VerdictKind, str] | None:
    """The same where the training reward clearly rose more than that of held-out tasks, and more than twice as far."""
    training = found.training_rewards
    if len(training) < MIN_TRAINING_STEPS or held_out.high is None:
        return None
    rise = mean_rise(training[:ENDS], training[-ENDS:])
    if rise.low is None or rise.low <= held_out.high or held_out.value >= MAX_CARRIED * rise.value:
        return None
    return "overfitted", f"Reward rose by {rise} in training, but on held-out tasks only by {_signed(held_out)}"


def _advice(kind: VerdictKind, truths: Mapping[str, Comparison], *, warned: bool) -> str:
    if kind == "doubtful" and not warned:
        return "Read rollouts before training on, and compare on more held-out tasks with --result-tasks."
    if kind in ("exploited", "doubtful"):
        names = " and ".join(f"`{name}`" for name in truths)
        wanted = f"what {names} measures" if names else "what you want (a held-out part would measure it)"
        return (
            f"Mend the reward before training on: it pays for something else than {wanted}. Read the rollouts that the "
            "warnings name, and try the reward with `wander probe`."
        )
    if kind == "overfitted":
        return (
            "What was learnt does not carry over to held-out tasks: more training tasks help, or fewer --steps, "
            "--patience, or --kl 0.01; more steps or a larger model do not."
        )
    if kind == "self-play":
        return (
            "Compare checkpoints/start and checkpoints/rl against one fixed player: `wander eval ENV --policy "
            "RUN/checkpoints/rl --seats SEAT=PLAYER`."
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
