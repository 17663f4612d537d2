"""Runs with the curriculum `self-made`: both seats learn, and the run is the same on any number of workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanderlust.environments.kuhn import KuhnPoker
from wanderlust.errors import UsageError
from wanderlust.runner.progress import NullLogger
from wanderlust.tasks.curriculum.uniform import resolve_curriculum
from wanderlust.training.checkpoint import Run
from wanderlust.training.train import run_training
from wanderlust_proofs.presets import SELF_MADE


def test_an_environment_that_makes_no_tasks_is_refused():
    with pytest.raises(UsageError, match="KuhnPoker makes no tasks"):
        resolve_curriculum("self-made", KuhnPoker(), seed=0)


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")  # a model that hardly knows a thing
def test_both_seats_learn_and_workers_change_nothing(tmp_path: Path):
    little = SELF_MADE.replace(
        env="wanderlust_proofs.self_made:SelfMadeTasks,size=200,eval_size=8",
        sft_episodes=200,
        sft_steps=20,
        fresh_width=32,
        fresh_layers=1,
        steps=2,
        tasks_per_step=4,
        group_size=4,
        eval_every=2,
        curriculum="self-made,min_tasks=1,propose=0.5",
        result_samples=0,
    )
    kept = []
    for workers in (1, 2):
        run = Run.begin(tmp_path / str(workers), little)
        report = run_training(little, run, logger=NullLogger(), workers=workers)
        played = [one for step in (0, 1) for group in run.store.groups("rl", step) for one in group.rollouts]
        learnt = {t.seat for one in played for t in one.trajectories if t.trainable and t.turns}
        kept.append([report["curve"], run.store.metrics("rl", "curriculum_accepted")])
        run.store.close()
        assert learnt == {"proposer", "solver"}
    assert kept[0] == kept[1]
