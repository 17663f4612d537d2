"""What monitors begin to find while a run learns is kept as its events, once, also by a run that is gone on with."""

from __future__ import annotations

from pathlib import Path

from wanderlust.core.messages import assistant, user
from wanderlust.core.types import Group, Rollout, Score, Task, Trajectory, Turn
from wanderlust.recipes.monitored import Monitored
from wanderlust.recipes.watch import Silent
from wanderlust.rollout.store import RunStore

HONEST, STEPS = 7, 10


def step(number: int) -> list[Group]:
    """Different answers and little reward at first, then the same answer everywhere and all of the reward."""
    honest = number < HONEST
    groups = []
    for index in range(8):
        task = Task(id=f"t{index}", prompt=(user("?"),))
        rollouts = []
        for sibling in range(4):
            said = f"answer {index} {sibling} {number}" if honest else "always the same"
            reward = (index * 7 + sibling * 3 + number) % 5 / 20 if honest else 1.0
            seat = Trajectory(turns=[Turn(observation=task.prompt, action=assistant(said))], score=Score(reward=reward))
            rollouts.append(Rollout(task=task, seed=number, sibling=sibling, trajectories=[seat]))
        groups.append(Group(task=task, rollouts=rollouts, index=index))
    return groups


def learnt(store: RunStore, start: int, end: int) -> list[tuple[str, int, list[int]]]:
    """Take these steps; all findings of the run."""
    watch = Monitored(Silent(), store, done=start)
    for number in range(start, end):
        store.add(step(number), stage="reinforce", step=number, metrics={"reward": 0.0})
        watch.show("reinforce", number + 1, of=STEPS, figures={})
    bodies = [event.body for event in store.events() if event.kind == "finding"]
    return [(body["monitor"], body["step"], body["evidence"]) for body in bodies]


def test_what_begins_is_kept_once_with_what_to_read(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "a.db") as store:
        found = learnt(store, 0, STEPS)
        assert {("jump", HONEST), ("collapse", HONEST)} <= {(monitor, at) for monitor, at, _ in found}
        assert len({monitor for monitor, _, _ in found}) == len(found)
        rows = {row.id: row for row in store.rollouts({"stage": "reinforce", "step": HONEST})}
        assert all(id in rows for _, _, evidence in found for id in evidence)
        assert all(evidence for _, _, evidence in found)


def test_a_run_that_is_gone_on_with_has_the_same_findings(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "a.db") as store:
        whole = [(monitor, at) for monitor, at, _ in learnt(store, 0, STEPS)]
    with RunStore.create(tmp_path / "b.db") as store:
        learnt(store, 0, HONEST + 1)
        store.truncate(["reinforce"], HONEST - 1)  # what a killed run does again
        assert [(monitor, at) for monitor, at, _ in learnt(store, HONEST - 1, STEPS)] == whole
