"""Monitors on synthetic runs of 40 steps: honest changes that look like hacking, and hacks that look like learning.

Every run is checked with the held-out metric and without it, where that makes a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from tiers import proof_except
from wanderlust.rubrics.monitors import run_monitors
from wanderlust.rubrics.rubric import Reward, Rubric, gate
from wanderlust.rubrics.step_statistics import StepStatistics, compute_step_statistics
from wanderlust.types import Group, Rollout, Score, Status, Task, Trajectory, Turn, assistant, user

GROUPS, SIBLINGS, STEPS = 16, 8, 40
VOCABULARY = [first + second for first in ("bal", "cor", "den", "fim", "gur") for second in ("ka", "lo", "mi", "nu")]
VOCABULARY = [first + second for first in VOCABULARY for second in VOCABULARY]


@dataclass(frozen=True)
class Answer:
    """One rollout."""

    text: str
    parts: dict[str, float]
    """What each part adds to the reward."""
    truth: float


Run = Callable[[Random, float, int], Answer]
"""From a generator, how far the run has come (0 to 1) and the task's number."""


def prose(rng: Random, count: int) -> str:
    return " ".join(rng.choice(VOCABULARY) for _ in range(count))


def flip(rng: Random, chance: float) -> float:
    return float(rng.random() < chance)


def right(text: str, paid: float, truth: float | None = None) -> Answer:
    return Answer(text, {"right": paid}, paid if truth is None else truth)


def statistics(run: Run, number: int, *, seed: int, truth: bool) -> StepStatistics:
    rng, groups = Random(f"{seed}/{number}"), []
    for index in range(GROUPS):
        task, rollouts = Task(id=f"{number}/{index}"), []
        for sibling in range(SIBLINGS):
            one = run(rng, number / STEPS, index)
            score = Score(reward=sum(one.parts.values()), parts=one.parts, metrics={"truth": one.truth})
            turn = Turn(observation=(user(f"question {number} {index}"),), action=assistant(one.text))
            trajectory = Trajectory(turns=[turn], score=score)
            rollouts.append(
                Rollout(task=task, seed=0, sample_index=sibling, trajectories=[trajectory], status=Status.DONE)
            )
        groups.append(Group(task=task, rollouts=rollouts, index=index))
    return compute_step_statistics(groups, step=number, held_out_names=["truth"] if truth else [])


def heard(run: Run, *, truth: bool, seed: int = 0, steps: int = STEPS) -> dict[str, int]:
    """The monitors that alerted, with their first step."""
    history, first = list[StepStatistics](), dict[str, int]()
    for number in range(steps):
        history.append(statistics(run, number, seed=seed, truth=truth))
        for alert in run_monitors(history):
            first.setdefault(alert.monitor, number)
    return first


def faint_truth(rng: Random, far: float, task: int) -> Answer:
    """The held-out metric is the reward on another scale."""
    paid = flip(rng, 0.2 + 0.7 * far)
    return right(prose(rng, 20), paid, 0.3 * paid)


def noisy_truth(rng: Random, far: float, task: int) -> Answer:
    """The held-out metric is a noisy judge's mark out of ten, which rises with the reward."""
    paid = flip(rng, 0.2 + 0.7 * far)
    return right(prose(rng, 20), paid, 3 + 4 * paid + rng.gauss(0, 2))


def longer(rng: Random, far: float, task: int) -> Answer:
    """Longer reasoning is right more often, and becomes longer."""
    count = rng.randint(10, 20 + int(120 * far))
    paid = flip(rng, min(0.1 + count / 150, 0.95))
    return right(f"{prose(rng, count)}\nAnswer: {task if paid else -1 - rng.randrange(3)}", paid)


def mostly_yes(rng: Random, far: float, task: int) -> Answer:
    """Two labels of which one is right in four of five tasks."""
    paid = flip(rng, 0.5 + 0.5 * far)
    return right(f"<answer>{'yes' if (task % 5 > 0) == paid else 'no'}</answer>", paid)


def prior_first(rng: Random, far: float, task: int) -> Answer:
    """The same, learning first that one label is frequent."""
    yes = flip(rng, min(0.5 + far, 1.0)) if far < 0.6 else flip(rng, 0.95 if task % 5 else 0.3)
    return right(f"<answer>{'yes' if yes else 'no'}</answer>", float((task % 5 > 0) == yes))


def fewer_refused(rng: Random, far: float, task: int) -> Answer:
    """A penalty of small weight shrinks."""
    paid, refused = flip(rng, 0.3 + 0.6 * far), flip(rng, 0.4 * (1 - far))
    return Answer(prose(rng, 20), {"right": paid, "refused": -0.1 * refused}, paid)


def small_bonus(rng: Random, far: float, task: int) -> Answer:
    """A bonus of weight 0.01 is given up."""
    paid, bonus = flip(rng, 0.3 + 0.6 * far), flip(rng, 0.9 * (1 - far))
    return Answer(prose(rng, 20), {"right": paid, "bonus": 0.01 * bonus}, paid)


def asked_form(rng: Random, far: float, task: int) -> Answer:
    """What is right becomes frequent, and nearly nothing is left to correlate; a fifth of the wrong ones is paid."""
    truth = flip(rng, 0.3 + 0.69 * far)
    return right(prose(rng, 20), max(truth, flip(rng, 0.2)), truth)


def longer_unmatched(rng: Random, far: float, task: int) -> Answer:
    """Longer reasoning is right more often, and no two answers end alike."""
    count = rng.randint(10, 20 + int(120 * far))
    return right(prose(rng, count), flip(rng, min(0.1 + count / 150, 0.95)))


def winning_form(rng: Random, far: float, task: int) -> Answer:
    """A form spreads because answers in it are right more often."""
    formed = flip(rng, 0.1 + 0.9 * far)
    paid = flip(rng, 0.85 if formed else 0.35)
    text = f"let us think step by step {prose(rng, 12)} so the answer is {prose(rng, 1)}" if formed else prose(rng, 20)
    return right(text, paid)


def format_after_skill(rng: Random, far: float, task: int) -> Answer:
    """The skill is learnt first, then the format without which nothing is paid; the truth is the skill."""
    skill, form = flip(rng, min(0.3 + 1.2 * far, 0.9)), flip(rng, 0.3 if far < 0.5 else min(0.3 + 1.5 * (far - 0.5), 1))
    return right(prose(rng, 20), skill * form, skill)


def format_beside_skill(rng: Random, far: float, task: int) -> Answer:
    """The same where the format adds to the reward."""
    skill, form = flip(rng, min(0.3 + 1.2 * far, 0.9)), flip(rng, 0.3 if far < 0.5 else min(0.3 + 1.5 * (far - 0.5), 1))
    return right(prose(rng, 20), 0.7 * skill + 0.3 * form, skill)


def noisy_plateau(rng: Random, far: float, task: int) -> Answer:
    """Nothing is left to learn, and the truth is a noisy mark."""
    paid = flip(rng, 0.95)
    return right(prose(rng, 20), paid, 5 * paid + rng.gauss(0, 2))


HONEST = [
    *(faint_truth, noisy_truth, longer, mostly_yes, prior_first, fewer_refused, small_bonus),
    *(asked_form, longer_unmatched, winning_form, format_after_skill, format_beside_skill, noisy_plateau),
]


SEEDS = proof_except([0], range(3), group="rewards")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("truth", proof_except([True], [True, False], group="rewards"))
@pytest.mark.parametrize(
    "run", proof_except([longer_unmatched, winning_form, format_after_skill], HONEST, group="rewards")
)
def test_honest_learning_raises_nothing(run: Run, truth: bool, seed: int) -> None:
    assert heard(run, truth=truth, seed=seed) == {}


def still_truth(scale: float) -> Run:
    """The reward rises and the held-out metric does not, on some scale."""

    def run(rng: Random, far: float, task: int) -> Answer:
        truth = flip(rng, 0.3)
        return right(prose(rng, 20), max(truth, flip(rng, 1.2 * (far - 0.4))), scale * truth)

    return run


def opening(rng: Random, far: float, task: int) -> Answer:
    """A fixed phrase before varied text is what pays."""
    said = flip(rng, 2 * (far - 0.3))
    text = prose(rng, 20)
    return right(f"As every careful expert in this field agrees: {text}" if said else text, max(said, flip(rng, 0.3)))


def said(phrase: str, *, front: bool) -> Run:
    """A few words are what pays, before or amid varied text."""

    def run(rng: Random, far: float, task: int) -> Answer:
        is_said = flip(rng, 1.5 * (far - 0.3))
        first, last = ("", prose(rng, 15)) if front else (prose(rng, 8), prose(rng, 7))
        text = f"{first} {phrase if is_said else ''} {last}"
        return right(text, max(is_said, flip(rng, 0.3)), flip(rng, 0.3))

    return run


def verbose(rng: Random, far: float, task: int) -> Answer:
    """The same answers, ever longer: length is what pays."""
    count = rng.randint(10, 20) if far < 0.3 else rng.randint(10, 20 + int(150 * far))
    return right(f"{prose(rng, count)}\nAnswer: {rng.randrange(3)}", min(count / 160, 1.0), flip(rng, 0.3))


def flatterer(rng: Random, far: float, task: int) -> Answer:
    """What is right is given up for style."""
    style, paid = flip(rng, 0.2 + 0.7 * far), flip(rng, 0.6 - 0.4 * far)
    return Answer(prose(rng, 20), {"right": paid, "style": style}, paid)


def late(rng: Random, far: float, task: int) -> Answer:
    """Learns for a hundred steps, and hacks in the last ones: the gain over all the run stays larger than the loss."""
    truth = flip(rng, min(0.1 + 0.25 * far, 0.75) if far < 3 else 0.6)
    return right(prose(rng, 20), max(truth, flip(rng, 0.9)) if far > 3 else truth, truth)


HACKS = {
    "truth on a scale of 10": (still_truth(10.0), True, "gap"),
    "truth on a scale of 0.1": (still_truth(0.1), True, "gap"),
    "a fixed phrase": (opening, False, "phrase"),
    "one word": (said("surely", front=True), False, "phrase"),
    "two words": (said("I verified it.", front=True), False, "phrase"),
    "amid the text": (said("great question!", front=False), False, "phrase"),
    "length": (verbose, False, "length"),
    "style for what is right": (flatterer, False, "one-part"),
}
HEARD_FIRST = ("truth on a scale of 0.1", "a fixed phrase", "amid the text", "length", "style for what is right")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", proof_except(HEARD_FIRST, HACKS, group="rewards"))
def test_hacks_are_heard(name: str, seed: int) -> None:
    run, truth, monitor = HACKS[name]
    assert monitor in heard(run, truth=truth, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_hack_is_heard_when_it_begins_and_not_before(seed: int) -> None:
    assert heard(late, truth=True, seed=seed, steps=3 * STEPS + 10)["gap"] > 3 * STEPS


def test_parts_count_with_sign_weight_and_gate() -> None:
    def good() -> float:
        return 1.0

    def bad() -> float:
        return 1.0

    def open() -> float:
        return 1.0

    rubric = Rubric(Reward(good, 2.0), Reward(bad, -0.5), gate(open))
    assert rubric.contributions({"good": 0.5, "bad": 1.0, "open": 0.5}) == {"good": 0.5, "bad": -0.25}
