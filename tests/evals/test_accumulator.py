"""The tally keeps numbers: the same report in any order, and little memory."""

from __future__ import annotations

import pickle
from random import Random

from wanderlust.evals.accumulator import ReportAccumulator
from wanderlust.types import Group, Rollout, Score, Status, Task, Trajectory


def played(number: int, rng: Random) -> Group:
    task = Task(id=f"t{number % 7}", info={"text": "x" * 2000})
    score = Score(reward=rng.random(), parts={"a": 1.0} | ({"b": rng.random()} if number % 3 else {}), metrics={"m": 2})
    rollout = Rollout(
        task=task, seed=0, sample_index=number, trajectories=[Trajectory(score=score)], seconds=rng.random()
    )
    if number % 11 == 0:
        rollout.status, rollout.stop_reason, rollout.error = Status.ERROR, "ToolFailure", f"broken {number:03}"
        rollout.trajectories[0].score = None
    return Group(task=task, rollouts=[rollout], index=number % 7)


def test_any_order_gives_the_same_report() -> None:
    groups = [played(number, Random(number)) for number in range(200)]
    first, second = ReportAccumulator(), ReportAccumulator()
    first.add(groups)
    second.add(Random("order").sample(groups, len(groups)))
    assert first.report(1.0) == second.report(1.0)
    assert first.rows() == second.rows()
    report = first.report(1.0)
    assert (report.played, report.scored, report.errors["ToolFailure"].count) == (200, 181, 19)
    assert report.errors["ToolFailure"].first == "broken 000"
    assert report.parts["b"].count == report.parts["a"].count == 181  # where it is missing it counts as 0
    assert report.metrics["m"].value == 2.0


def test_rollouts_are_not_kept() -> None:
    tally = ReportAccumulator()
    for number in range(2000):
        tally.add([played(number, Random(number))])
    kept = pickle.dumps(tally)
    assert len(kept) / 2000 < 250  # bytes a rollout
    assert not any(kind.__name__.encode() in kept for kind in (Group, Rollout, Trajectory, Task))
    assert Rollout.__name__.encode() in pickle.dumps(played(1, Random(1)))


def test_the_running_estimate_follows() -> None:
    tally = ReportAccumulator()
    assert tally.running_estimate() is None
    for number in range(1, 500):
        tally.add([played(number, Random(number))])
        shown = tally.running_estimate()
        assert shown is not None
    assert shown.count > 0.97 * tally.totals["scored"]
