"""Whole runs with what an algorithm may ask of a step: all groups at once, more groups, a teacher; and bad batches."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_recipe_train import Stopping

from project_files import ROOT
from tiers import proof_except
from toys import SHAPE, TOKENIZER, Duel, Twice, fresh, teacher
from wanderlust.environment import Environment, Episode
from wanderlust.errors import StoreError, UsageError
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.runner.progress import NullLogger
from wanderlust.store.store import RunStore
from wanderlust.training.algorithms.presets import ALGORITHMS
from wanderlust.training.checkpoint import Run, load_config, load_state
from wanderlust.training.config import TrainConfig
from wanderlust.training.loop import (
    MAX_NONFINITE_UPDATES,
    NONFINITE_BATCH_FILE,
    NONFINITE_STATE_FILE,
    NonFiniteUpdate,
    NoSignalWarning,
)
from wanderlust.training.optimizer import weights_of
from wanderlust.training.setup import validate_config
from wanderlust.training.tiny_model import fresh_model, fresh_tokenizer
from wanderlust.training.train import run_training
from wanderlust.types import Task, user


class Once(Twice):
    """The first letter only; no examination."""

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(user("a"))
        episode.reward("right", float(said.content == "b"))

    def tasks(self, split: str = "train") -> list[Task]:
        return [] if split == "eval" else [Task(id=f"once-{n}") for n in range(40)]


class Alike(Once):
    """Pays everybody the same."""

    async def run(self, episode: Episode) -> None:
        await episode.agent.act(user("a"))
        episode.reward("right", 1.0)


class Absurd(Once):
    """Pays more than a float32 can hold."""

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(user("a"))
        episode.reward("right", 1e60 * (1 + len(said.content)))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    save_pretrained(folder / "fresh", fresh(0), TOKENIZER)
    save_pretrained(folder / "teacher", teacher(), TOKENIZER)
    return folder


def config(checkpoints: Path, algorithm: str, *, env: type[Environment] = Twice, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {"steps": 4, "tasks_per_step": 4, "lr": 1e-2, "max_tokens": 1, "eval_every": 50}
    module = "toys" if env in (Twice, Duel) else __name__
    start = str(checkpoints / "fresh")
    return TrainConfig(env=f"{module}:{env.__name__}", policy=start, algorithm=algorithm, **{**settings, **changes})


def run(settings: TrainConfig, folder: Path, *, workers: int = 1) -> torch.Tensor:
    begun = Run.begin(folder, settings)
    run_training(settings, begun, logger=NullLogger(), workers=workers)
    begun.store.close()
    return weights_of(load_pretrained(folder / "checkpoints" / "rl")[0])


RESUMED = [("ppo", 2), ("self-play", 1), ("self-play", 2), ("reinforce++", 2), ("distill", 2)]
"""Algorithms with a critic, with baselines of seats, and others; and the workers of the run that goes on."""


@pytest.mark.parametrize(
    "resumed", proof_except(RESUMED[:2], RESUMED, group="resumes"), ids=lambda one: "-".join(map(str, one))
)
def test_runs_resume_to_the_same_weights_on_any_number_of_workers(
    resumed: tuple[str, int], checkpoints: Path, tmp_path: Path
) -> None:
    name, workers = resumed
    env = Duel if name == "self-play" else Twice
    settings = config(checkpoints, name, env=env, teacher=str(checkpoints / "teacher"))
    whole = run(settings, tmp_path / "whole")
    assert not torch.equal(whole, weights_of(fresh(0)))
    stopped = Run.begin(tmp_path / "stopped", settings)
    with pytest.raises(KeyboardInterrupt):
        run_training(settings, stopped, logger=Stopping("rl", 3), workers=1)
    stopped.store.close()
    again = Run.resume(tmp_path / "stopped")
    assert load_config(tmp_path / "stopped", TrainConfig) == settings
    run_training(settings, again, logger=NullLogger(), workers=workers)
    again.store.close()
    assert torch.equal(weights_of(load_pretrained(tmp_path / "stopped" / "checkpoints" / "rl")[0]), whole)


def test_the_page_lists_every_algorithm() -> None:
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall("`([^`]+)`", row)} == set(ALGORITHMS)


def metric(folder: Path, name: str) -> list[float]:
    with RunStore.read(folder / "rollouts.db") as store:
        return [value for _, value in store.metrics("rl", name)]


def test_dapo_plays_more_where_siblings_agree(checkpoints: Path, tmp_path: Path) -> None:
    settings = config(checkpoints, "dapo", env=Once, group_size=2, steps=3, tasks_per_step=6)
    run(settings, tmp_path / "dapo")
    run(replace(settings, algorithm="grpo"), tmp_path / "grpo")
    assert metric(tmp_path / "grpo", "rollouts") == [12, 12, 12]
    games, live = metric(tmp_path / "dapo", "rollouts"), metric(tmp_path / "dapo", "frac_groups_with_signal")
    assert max(games) > 12
    assert all(12 <= n <= 12 * 4 for n in games)
    # never more groups of use than asked for, and fewer only after all refills
    useful = [round(share * n / 2) for share, n in zip(live, games, strict=True)]
    assert all(count <= 6 for count in useful)


def test_a_batch_without_a_live_group_changes_nothing_and_says_so_once(checkpoints: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        weights = run(config(checkpoints, "grpo", env=Alike), tmp_path / "run")
    lines = [str(w.message) for w in said if w.category is NoSignalWarning]
    assert len(lines) == 1
    assert lines[0].startswith("step 0: all advantages are zero")
    assert torch.equal(weights, weights_of(fresh(0)))
    assert metric(tmp_path / "run", "steps_without_signal") == [1, 2, 3, 4]


def test_losses_that_are_no_numbers_stop_the_run_and_leave_the_batch(checkpoints: Path, tmp_path: Path) -> None:
    settings = config(checkpoints, "reinforce", env=Absurd, steps=9)
    with pytest.raises(
        NonFiniteUpdate, match=rf"{MAX_NONFINITE_UPDATES} times in a row.*{NONFINITE_BATCH_FILE}.*lower learning rate"
    ):
        run(settings, tmp_path / "run")
    assert metric(tmp_path / "run", "updates_nonfinite") == [float(n) for n in range(1, MAX_NONFINITE_UPDATES)]
    left = load_state(tmp_path / "run" / NONFINITE_BATCH_FILE)
    assert left["step"] == MAX_NONFINITE_UPDATES - 1
    assert torch.equal(load_state(tmp_path / "run" / NONFINITE_STATE_FILE)["weights"], weights_of(fresh(0)))
    assert any(max(sample["advantages"]) >= 1e60 for sample in left["samples"])


def test_what_cannot_be_is_said_before_a_run_begins(checkpoints: Path, tmp_path: Path) -> None:
    validate_config(config(checkpoints, "distill", teacher=str(checkpoints / "teacher")))
    with pytest.raises(UsageError, match="set `teacher`"):
        validate_config(config(checkpoints, "distill"))
    with pytest.raises(UsageError, match="unknown algorithm 'dappo'; did you mean dapo"):
        validate_config(config(checkpoints, "dappo"))
    with pytest.raises(StoreError, match="no checkpoint"):
        validate_config(config(checkpoints, "sft", teacher=str(tmp_path)))
    tokenizer = fresh_tokenizer(["a b c"])
    save_pretrained(tmp_path / "other", fresh_model(tokenizer, SHAPE, seed=0), tokenizer)
    with pytest.raises(UsageError, match="another tokenizer"):
        validate_config(config(checkpoints, "sft", teacher=str(tmp_path / "other")))
    with pytest.raises(UsageError, match="k1 as a loss"):
        validate_config(config(checkpoints, "grpo", kl=0.1, kl_estimator="k1"))


def test_a_leash_and_an_entropy_bonus_stand_beside_any_algorithm(checkpoints: Path, tmp_path: Path) -> None:
    run(config(checkpoints, "grpo", kl=0.1, entropy=0.01, steps=2), tmp_path / "run")
    assert metric(tmp_path / "run", "kl")[0] == pytest.approx(0, abs=1e-6)
    assert metric(tmp_path / "run", "kl")[1] > 0
