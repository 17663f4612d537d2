"""False alarms of the monitors where nothing changes: runs of one fixed policy, drawn by a seed.

Every step has new tasks of random difficulty; answers, rewards, lengths and the held-out metric have the same
distribution from the first step to the last. Whatever a monitor says of such a run is chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from wanderlust.rubrics.moments import Moments, change_of
from wanderlust.rubrics.monitors import run_monitors
from wanderlust.rubrics.step_statistics import StepStatistics, compute_step_statistics
from wanderlust.types import Group, Rollout, Score, Status, Task, Trajectory, Turn, assistant, user

WORDS = [first + second for first in ("bal", "cor", "den", "fim", "gur", "hos") for second in ("ka", "lo", "mi", "nu")]


@dataclass(frozen=True, slots=True)
class Draw:
    """One rollout: text, parts of the reward, held-out metric."""

    text: str
    parts: dict[str, float]
    truth: float


Policy = Callable[[Random, float], Draw]
"""From a generator and the task's difficulty (0 to 1)."""


def prose(rng: Random, least: int, most: int) -> str:
    """Random words."""
    return " ".join(rng.choices(WORDS, k=rng.randint(least, most)))


def passed(rng: Random, hard: float) -> Draw:
    """Right or wrong; the truth is the same with slips."""
    right = rng.random() > hard
    return Draw(prose(rng, 4, 12), {"right": float(right)}, float(right) if rng.random() < 0.9 else rng.random())


def plateau(rng: Random, hard: float) -> Draw:
    """Nearly always right, and a noisy judge's mark as the truth."""
    right = rng.random() > 0.1 * hard
    return Draw(prose(rng, 4, 12), {"right": float(right)}, 5 * right + rng.gauss(0, 2))


def graded(rng: Random, hard: float) -> Draw:
    """Two parts, one of them graded and skewed."""
    grade = rng.betavariate(0.4, 0.4 + 2 * hard)
    form = float(rng.random() < 0.7)
    return Draw(prose(rng, 2, 30), {"grade": grade, "form": 0.3 * form}, grade + rng.gauss(0, 0.3))


NULLS: dict[str, Policy] = {"passed": passed, "plateau": plateau, "graded": graded}


def null_step(policy: Policy, rng: Random, number: int, *, groups: int, siblings: int) -> StepStatistics:
    """The statistics of one step."""
    played = []
    for index in range(groups):
        task, hard, rollouts = Task(id=f"{number}/{index}"), rng.random(), []
        for sibling in range(siblings):
            one = policy(rng, hard)
            score = Score(reward=sum(one.parts.values()), parts=one.parts, metrics={"truth": one.truth})
            turn = Turn(observation=(user(f"question {number} {index}"),), action=assistant(one.text))
            trajectory = Trajectory(turns=[turn], score=score)
            rollouts.append(
                Rollout(task=task, seed=0, sample_index=sibling, trajectories=[trajectory], status=Status.DONE)
            )
        played.append(Group(task=task, rollouts=rollouts, index=index))
    return compute_step_statistics(played, step=number, held_out_names=["truth"])


def null_alarms(name: str, *, seed: int, steps: int, groups: int, siblings: int) -> list[str]:
    """The monitors that speak in one run, each once."""
    rng, history, heard = Random(f"{name}/{seed}"), list[StepStatistics](), dict[str, None]()
    for number in range(steps):
        history.append(null_step(NULLS[name], rng, number, groups=groups, siblings=siblings))
        heard |= dict.fromkeys(alert.monitor for alert in run_monitors(history))
    return [*heard]


def exceedance(chance: float, *, reference: int, groups: int, draws: int, seed: int = 0) -> float:
    """Share of changes between equal steps that `chance` calls clear; it should be at most `chance`."""
    rng, found = Random(f"exceedance/{seed}"), 0
    for _ in range(draws):
        steps = [Moments.of([[rng.gauss(0, 1)] for _ in range(groups)]) for _ in range(reference + 1)]
        found += change_of(steps[:-1], steps[-1:]).is_clear(chance=chance)
    return found / draws


def main(sizes: Sequence[tuple[int, int]] = ((8, 4), (16, 8)), *, runs: int = 40, steps: int = 200) -> None:
    """Print how often a single change is exceeded, and which monitors spoke in how many runs."""
    for reference in (5, 10):
        for groups in (8, 16):
            rates = ", ".join(
                f"{exceedance(chance, reference=reference, groups=groups, draws=40_000):.2%} of {chance:.1%}"
                for chance in (0.05, 0.01, 0.001)
            )
            print(f"{reference} steps before, {groups} groups: exceeded in {rates}")
    for groups, siblings in sizes:
        for name in NULLS:
            heard = [null_alarms(name, seed=n, steps=steps, groups=groups, siblings=siblings) for n in range(runs)]
            spoke = Counter(monitor for one in heard for monitor in one)
            share = sum(map(bool, heard))
            print(f"{name}, {groups} x {siblings}: {share} of {runs} runs of {steps} steps {dict(spoke)}", flush=True)


if __name__ == "__main__":
    main()
