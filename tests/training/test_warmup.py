"""The warm-up of a run: what it imitates, that it goes on where it was cut; and exact figures during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from toys import fresh
from wanderlust.environments.tictactoe import TicTacToe, tictactoe_teacher
from wanderlust.environments.tictactoe.prompts import BOARD_VIEWS
from wanderlust.errors import UsageError
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.runner.engine import play_groups, run_blocking
from wanderlust.runner.progress import NullLogger
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.optimizer import weights_of
from wanderlust.training.presets import DEMO
from wanderlust.training.setup import validate_config
from wanderlust.training.train import train
from wanderlust.training.trainers.in_process import LocalLearner
from wanderlust.training.warmup import imitate, initial_model

SMALL = DEMO.replace(
    fresh_width=32, fresh_layers=1, sft_episodes=8, sft_steps=60, sft_batch=4, steps=1, tasks_per_step=2, group_size=4
)


class Steps:
    """Notes the updates of SFT, and pulls the plug after one of them."""

    def __init__(self, last: int):
        self.last, self.taken = last, list[int]()

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        if stage == "sft":
            self.taken.append(step)
            if step == self.last:
                raise KeyboardInterrupt


def test_a_warm_up_that_was_cut_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    whole, _ = initial_model(SMALL, NullLogger())
    first, rest = Steps(55), Steps(0)
    with closing((run := Run.begin(tmp_path / "run", SMALL)).store), pytest.raises(KeyboardInterrupt):
        initial_model(SMALL, first, run)
    with closing((run := Run.resume(tmp_path / "run")).store):
        cut, _ = initial_model(SMALL, rest, run)
        assert run.store.counts()["teacher"] == {"done": 8}
        assert [step for step, _ in run.store.metrics("sft", "loss")] == list(range(60))
    assert (first.taken, rest.taken) == ([*range(1, 56)], [*range(51, 61)])
    assert torch.equal(weights_of(whole), weights_of(cut))


class Noting(LocalLearner):
    """Notes the samples of each update."""

    noted: ClassVar[list[list[Sample]]] = []

    async def forward_backward(
        self, samples: Sequence[Sample], loss: PolicyLoss, *, totals: BatchTotals | None = None
    ) -> dict[str, float]:
        self.noted.append(list(samples))
        return await super().forward_backward(samples, loss, totals=totals)


def test_a_step_imitates_so_many_episodes_however_many_sequences_they_are() -> None:
    Noting.noted = []
    whole = [
        [
            Sample(ids=[1, 2, 3 + place], mask=[False, True, True], logprobs=[0.0] * 3, advantages=[0.0, 1.0, 1.0])
            for place in range(count)
        ]
        for count in (1, 4, 2, 3, 1)
    ]
    for episode in whole:
        for sample in episode[1:]:
            sample.first_of_episode = False
    config = SMALL.replace(sft_steps=12, sft_batch=2)
    imitate(Noting(fresh(0), config.sft_optimizer), [s for own in whole for s in own], config, logger=NullLogger())
    assert len(Noting.noted) == 12
    for batch in Noting.noted:
        read = {id(sample) for sample in batch}
        drawn = [episode for episode in whole if read & {id(sample) for sample in episode}]
        assert len(drawn) == 2
        assert len(batch) == sum(map(len, drawn))


def test_the_views_of_a_game_are_imitated_and_lost_games_are_not() -> None:
    env, tasks = TicTacToe(views=True), list(zip(range(24), TicTacToe(high=1.0).tasks("train"), strict=False))
    games = [g.rollouts[0] for g in run_blocking(lambda: play_groups(env, [t for _, t in tasks], tictactoe_teacher()))]
    good = [game for game in games if game.state["winner"] in ("X", "draw")]
    assert 0 < len(good) < len(games)
    assert TicTacToe().demonstrations(games) == [game.trajectory for game in games]
    shown = env.demonstrations(games)
    assert len(shown) > len(good) * len(BOARD_VIEWS) / 2
    assert len({one.turns[-1].action.content for one in env.demonstrations(good[:1])}) > 1
    assert shown == env.demonstrations(good)


def test_figures_during_training_are_those_of_the_weights(tmp_path: Path) -> None:
    config = SMALL.replace(ema_decay=0.0, result_samples=0)
    result = train(config.env, "fresh", config=config, out=tmp_path / "run", workers=1, progress=False)
    env = config.make_env()
    for point, name in zip(result.curve, ("start", "rl"), strict=True):
        model, tokenizer = load_pretrained(tmp_path / "run/checkpoints" / name)
        policy = LocalPolicy.of(model, tokenizer, config.sampling, fast=config.fast).greedy()
        rows = run_blocking(lambda: env.exact(policy, name="rl"))  # noqa: B023
        assert point["exact"] == rows
        assert point["rewards"]["agent"]["value"] == pytest.approx(sum(row["reward"] for row in rows) / len(rows))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"env": "kuhn", "eval_tasks": 0}, "no exact figures"),
        ({"env": "tictactoe", "exploring_starts": 2}, "cispo-tree"),
        ({"env": "tictactoe", "algorithm": "cispo-tree", "exploring_starts": 8}, "below group_size"),
    ],
)
def test_what_nobody_gives_or_reads_is_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        validate_config(TrainConfig(policy="fresh", **settings))  # type: ignore[arg-type]
