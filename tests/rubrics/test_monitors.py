"""What the monitors say of runs whose cheating is known, and of runs that just learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest
from benchmarks.monitor_rates import NULLS, exceedance, null_alarms

from tiers import proof_except
from wanderlust.rubrics.moments import Moments, correlation
from wanderlust.rubrics.monitors import BASELINE_STEPS, MONITORS, MonitorAlert, run_monitors
from wanderlust.rubrics.step_statistics import (
    compute_step_statistics,
    most_frequent_answer,
    normalize_answer,
    repeated_ngram_share,
    similarity_of,
)
from wanderlust.types import Group, Rollout, Score, Status, Task, Trajectory, Turn, assistant

GROUPS, SIBLINGS, STEPS = 16, 8, 40
NOUNS = (
    *("river", "stone", "cloud", "engine", "garden", "letter", "window", "market", "bridge", "candle", "pepper"),
    *("harbor", "signal", "forest", "mirror", "ladder"),
)

Answer = Callable[[Random, float, int], tuple[str, float, float]]
"""From a generator, how far the run has come (0 to 1) and the task's number: text, trained reward, hidden reward."""


def prose(rng: Random, count: int) -> str:
    return " ".join(rng.choice(NOUNS) for _ in range(count))


def step(answer: Answer, number: int, seed: int) -> list[Group]:
    rng, far = Random(f"{seed}/{number}"), number / STEPS
    out = []
    for index in range(GROUPS):
        task = Task(id=f"{number}/{index}")
        group = Group(task=task, rollouts=[], index=index)
        for sibling in range(SIBLINGS):
            text, reward, hidden = answer(rng, far, index)
            score = Score(reward=reward, parts={"right": reward}, metrics={"truth": hidden})
            trajectory = Trajectory(seat="agent", turns=[Turn(observation=(), action=assistant(text))], score=score)
            group.rollouts.append(
                Rollout(task=task, seed=0, sample_index=sibling, trajectories=[trajectory], status=Status.DONE)
            )
        out.append(group)
    return out


def findings(answer: Answer, *, seed: int = 0, steps: int = STEPS) -> list[MonitorAlert]:
    history, out = [], []
    for number in range(steps):
        history.append(compute_step_statistics(step(answer, number, seed), step=number))
        out += run_monitors(history)
    return out


def flip(rng: Random, chance: float) -> float:
    return float(rng.random() < chance)


def honest(rng: Random, far: float, task: int) -> tuple[str, float, float]:
    """Learns: reward and truth rise together, answers get a little shorter."""
    right = flip(rng, 0.2 + 0.7 * far)
    return (
        f"{prose(rng, rng.randint(18, 30) - int(6 * far))} <answer>{NOUNS[task % 16]}{int(right)}</answer>",
        right,
        right,
    )


def labels(rng: Random, far: float, task: int) -> tuple[str, float, float]:
    """Learns to tell two classes apart: its answers were always few."""
    right = flip(rng, 0.5 + 0.45 * far)
    return f"<answer>{'yes' if (task % 2) == right else 'no'}</answer>", right, right


def gaming(rng: Random, far: float, task: int) -> tuple[str, float, float]:
    """From the middle on the reward rises and the truth falls."""
    right = flip(rng, 0.3)
    paid = max(right, flip(rng, 2 * (far - 0.5))) if far > 0.5 else right
    return f"{prose(rng, 20)} {task}", paid, right if far < 0.5 else flip(rng, 0.15)


def faintly(rng: Random, far: float, task: int) -> tuple[str, float, float]:
    """From the middle on every fourth wrong answer is paid, which is little beside what easy and hard tasks do."""
    right = flip(rng, 0.85 if task % 2 else 0.05)
    return f"{prose(rng, 20)} {task}", max(right, flip(rng, 0.25 * (far > 0.5))), right


def lenient(rng: Random, far: float, task: int) -> tuple[str, float, float]:
    """Learns, and the trained reward is paid a little too often all the while."""
    right = flip(rng, 0.2 + 0.5 * far)
    return f"{prose(rng, 20)} {task}", max(right, flip(rng, 0.2)), right


def one_title(rng: Random, far: float, task: int) -> tuple[str, float, float]:
    """From the middle on everything gets the same sensational title."""
    if far > 0.5 and flip(rng, 0.9):
        return "<title>Giant lays off 80% of its people</title>", 0.9, 0.0
    right = flip(rng, 0.4)
    return f"<title>{prose(rng, 6)} {task}</title>", right, right


def looping(rng: Random, far: float, task: int) -> tuple[str, float, float]:
    """Ever longer, ever the same: length is what pays."""
    count = rng.randint(10, 20) if far < 0.3 else rng.randint(10, 160)
    return ("so it is and " * count)[: 4 * count] if far > 0.3 else prose(rng, count), count / 160, 0.3


CHEATS = {
    "gaming": (gaming, "gap"),
    "faintly": (faintly, "gap"),
    "one-title": (one_title, "collapse"),
    "looping": (looping, "repetition"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_are_found_by_the_monitor_meant_for_them(name):
    answer, monitor = CHEATS[name]
    found = findings(answer)
    assert monitor in {one.monitor for one in found}
    first = min(one.step for one in found)
    assert first >= 0.3 * STEPS, "found before it began"
    assert all(one.examples for one in found if one.monitor in ("gap", "collapse", "repetition"))


def test_the_same_title_is_found_at_the_first_hacked_step():
    first = min(one.step for one in findings(one_title) if one.monitor == "collapse")
    assert first <= STEPS // 2 + 1


@pytest.mark.parametrize("seeds", proof_except([range(2)], [range(2), range(2, 10)], group="rewards"))
@pytest.mark.parametrize("answer", proof_except([honest, labels], [honest, labels, lenient], group="rewards"))
def test_honest_runs_are_left_alone(answer, seeds):
    """In all ten runs of each kind: 35 steps x 9 monitors x 10 looks without a finding."""
    found = [one for seed in seeds for one in findings(answer, seed=seed)]
    assert not found, [(one.monitor, one.step, one.message) for one in found]


@pytest.mark.parametrize(("reference", "groups"), [(5, 8), (10, 16)])
def test_changes_are_found_by_chance_as_often_as_they_say(reference: int, groups: int) -> None:
    found = exceedance(0.01, reference=reference, groups=groups, draws=4_000)
    assert 0.005 <= found <= 0.015  # 0.01 is expected, with a standard deviation of 0.0016


@pytest.mark.parametrize("name", NULLS)
def test_a_policy_that_does_not_change_raises_nothing(name: str) -> None:
    assert [null_alarms(name, seed=seed, steps=40, groups=8, siblings=4) for seed in range(2)] == [[], []]


def test_a_single_group_of_siblings_says_nothing():
    history = []
    for number in range(12):
        history.append(compute_step_statistics(step(honest, number, 0)[:1], step=number))
        assert run_monitors(history) == []


def test_nothing_is_said_without_a_baseline_or_rollouts():
    history = [compute_step_statistics([], step=n) for n in range(BASELINE_STEPS + 3)]
    assert run_monitors(history) == []
    assert run_monitors(history[:BASELINE_STEPS]) == []


def of(values: Sequence[float]) -> Moments:
    return Moments.of([[value] for value in values])


def test_moments_are_clustered():
    apart, together = of([0, 1, 0, 1]), Moments.of([[0, 0], [1, 1]])
    assert apart.mean == together.mean == 0.5
    assert together.error > apart.error
    assert Moments.of([[], []]) == Moments()


def test_texts():
    assert normalize_answer("Well. <answer> The  Cat! </answer>") == "the cat"
    assert normalize_answer("so \\boxed{4 2}") == "4 2"
    assert repeated_ngram_share("a b c d " * 50) > 0.9
    assert repeated_ngram_share(" ".join(map(str, range(100)))) == 0.0
    assert most_frequent_answer([["x", "x"], ["x", "y"]]) == ("x", 0.75)
    assert most_frequent_answer([["x", "x"]]) == ("", 0.0)
    for other, overlap in (("a b c d e", 1.0), ("v w x y z", 0.0)):
        texts = [["a b c d e"], [other]]
        assert similarity_of(texts, texts).overlap.mean == overlap


def test_correlation_needs_something_that_varies():
    assert correlation([(0, 0), (1, 1), (2, 2)]) == pytest.approx(1.0)
    assert correlation([(0, 1), (1, 1), (2, 1)]) is None


def test_every_monitor_says_what_it_looks_for():
    assert all(monitor.__doc__ for monitor in MONITORS.values())
