"""Courses and fresh models: what they are made from, and every course in miniature."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tiers import proof_except
from toys import TOKENIZER, fresh
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.plugins import declared
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.policies.resolve import teacher_policy
from wanderlust.runner.progress import NullLogger
from wanderlust.tasks.registry import load_environment
from wanderlust.training.algorithms.grpo import GroupRelative
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.checkpoint import Run, load_config
from wanderlust.training.config import TrainConfig
from wanderlust.training.optimizer import weights_of
from wanderlust.training.presets import PRESETS, load_preset
from wanderlust.training.setup import validate_config
from wanderlust.training.train import run_training
from wanderlust.training.warmup import fresh_model_after_sft, fresh_shape
from wanderlust.types import Tokens, Trajectory, Turn, assistant, user

LOADED = {name: load_preset(name) for name in declared(PRESETS)}
TRAIN_PRESETS = {name: one for name, one in LOADED.items() if isinstance(one, TrainConfig) and one.env}
OPEN_PRESETS = {name: one for name, one in LOADED.items() if isinstance(one, TrainConfig) and not one.env}
"""Settings for any environment."""
LITTLE: dict[str, Any] = {
    "policy": "fresh",
    "sft_episodes": 8,
    "sft_steps": 30,
    "sft_batch": 4,
    "fresh_width": 32,
    "fresh_layers": 1,
}


def small(name: str) -> TrainConfig:
    """The course, in seconds."""
    return replace(TRAIN_PRESETS[name], **LITTLE, steps=2, tasks_per_step=2, group_size=4)


def played(config: TrainConfig, path: Path, watch: object = None) -> list[dict[str, object]]:
    run = Run.resume(path) if path.exists() else Run.begin(path, config)
    with closing(run.store):
        curve: list[dict[str, object]] = run_training(config, run, logger=watch or NullLogger(), workers=1)["curve"]  # type: ignore[arg-type]
    return curve


class Cut:
    """Pulls the plug at one place, once."""

    def __init__(self, *place: object):
        self.place = place

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        if (stage, step) == self.place:
            self.place = ()
            raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
@pytest.mark.parametrize("name", proof_except(["kuhn", "wordle"], TRAIN_PRESETS, group="resumes"))
def test_a_course_runs_and_ends_in_the_same_weights_when_it_was_cut(name: str, tmp_path: Path) -> None:
    config, whole, cut = small(name), tmp_path / "whole", tmp_path / "cut"
    curve = played(config, whole)
    assert [point["step"] for point in curve] == [0, 2]
    for place in (("sft", 25), ("rl", 1)):
        with pytest.raises(KeyboardInterrupt):
            played(config, cut, Cut(*place))
    assert played(config, cut) == curve
    ends = [load_pretrained(path / "checkpoints" / "rl")[0] for path in (whole, cut)]
    starts = [load_pretrained(path / "checkpoints" / "start")[0] for path in (whole, cut)]
    assert torch.equal(*map(weights_of, ends))
    assert torch.equal(*map(weights_of, starts))


@pytest.mark.parametrize("name", TRAIN_PRESETS)
def test_a_course_can_begin(name: str) -> None:
    validate_config(TRAIN_PRESETS[name])


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
@pytest.mark.parametrize("name", OPEN_PRESETS)
def test_settings_for_any_environment_train_in_one(name: str, tmp_path: Path) -> None:
    assert name.startswith("compute-as-teacher")
    words = [
        "train",
        "toys:Again",
        "--policy",
        str(tmp_path / "start"),
        "--preset",
        name,
        "--out",
        str(tmp_path / "run"),
    ]
    save_pretrained(tmp_path / "start", fresh(0), TOKENIZER)
    less = {"steps": 1, "tasks-per-step": 2, "max-tokens": 4, "label-estimator": "none", "label-reward": "match"}
    with pytest.raises(SystemExit) as end:
        main([*words, *(word for key, value in less.items() for word in (f"--{key}", str(value)))])
    assert end.value.code == 0
    config = load_config(tmp_path / "run", TrainConfig)
    assert (config.kl, config.kl_into, config.lr, config.group_size) == (1e-3, "reward", 5e-7, 8)
    assert (config.algorithm, config.steps) == (OPEN_PRESETS[name].algorithm, 1)


def test_an_answer_above_750_tokens_loses_one() -> None:
    method = configured_algorithm(OPEN_PRESETS["compute-as-teacher-rubric"])
    assert isinstance(method, GroupRelative)
    assert method.overlong is not None

    def penalty(count: int) -> float:
        tokens = Tokens(prompt=(1,), completion=(2,) * count, logprobs=(-1.0,) * count, offset=0)
        turn = Turn(observation=(user("?"),), action=assistant("x"), tokens=tokens)
        assert method.overlong is not None
        return method.overlong.penalty(Trajectory(turns=[turn]))

    assert [penalty(count) for count in (10, 750, 751, 900)] == pytest.approx([0.0, 0.0, -1.0, -1.0])


def test_another_seed_is_another_model() -> None:
    one, again, other = (
        fresh_model_after_sft(small("kuhn").replace(seed=seed), logger=NullLogger())[0] for seed in (0, 0, 1)
    )
    assert torch.equal(weights_of(one), weights_of(again))
    assert not torch.equal(weights_of(one), weights_of(other))


def test_settings_of_a_fresh_model() -> None:
    fresh = TrainConfig(policy="fresh").with_sft_defaults()
    assert (fresh.sft_episodes, fresh.sft_steps, fresh.sft_batch, fresh.sft_lr) == (400, 400, 16, 5e-3)
    given = TrainConfig(policy="runs/x", sft_episodes=9, sft_lr=1).with_sft_defaults()
    assert (given.sft_episodes, given.sft_steps, given.sft_batch, given.sft_lr) == (9, 60, 8, 1)
    assert TrainConfig(policy="runs/x").with_sft_defaults().sft_episodes == 0
    assert fresh_shape(TrainConfig(fresh_width=96)).heads == 6


@pytest.mark.parametrize(
    ("name", "value", "must"),
    [
        ("fresh_width", 100, "a multiple of 16"),
        ("sft_steps", -1, "at least 0"),
        ("sft_steps", 1.5, "a whole number"),
        ("steps", True, "a whole number"),
        ("sft_lr", "fast", "a number"),
        ("sft_context_weight", float("nan"), "at least 0"),
        ("group_size", 0, "at least 1"),
        ("temperature", 0.0, "above 0"),
        ("ema_decay", 1.5, "from 0 to 1"),
        ("kl_into", "both", "one of 'loss', 'reward'"),
        ("label_reward", "best", "one of 'match', 'rubric'"),
        ("label_estimator", "majorty", "one of 'none', 'majority'"),
        ("label_dropout", 1.1, "from 0 to 1"),
    ],
)
def test_a_wrong_setting_is_one_line(name: str, value: object, must: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name} is {value!r}, and must be {must}[^\n]*$"):
        TrainConfig(**{name: value})  # type: ignore[arg-type]


def test_a_fresh_model_needs_somebody_to_imitate() -> None:
    kuhn = TRAIN_PRESETS["kuhn"]
    env = load_environment(kuhn.env)
    assert teacher_policy(env, "equilibrium") is not None
    with pytest.raises(UsageError, match=r"no player 'nobody'.*equilibrium.*teacher"):
        validate_config(replace(kuhn, sft_teacher="nobody"))
    with pytest.raises(UsageError, match=r"no player 'oracle'"):
        teacher_policy(load_environment(f"{__name__}:Nobody"), "")
    with pytest.raises(UsageError, match="tokenizer"):
        validate_config(replace(kuhn, teacher="elsewhere"))


class Nobody(type(load_environment("wanderlust.environments.wordle:Wordle"))):  # type: ignore[misc]
    """Has no players."""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--preset", "chess"], "no preset 'chess'"),
        (["--preset", "kuhn", "--steps", "3"], "says how to train"),
        (["kuhn", "--preset", "kuhn"], "leave both out"),
        (["kuhn"], "--preset NAME"),
        (["kuhn", "--policy", "fresh", "--fresh-width", "3"], "fresh_width is 3, and must be a multiple of 16"),
    ],
)
def test_what_cannot_be_a_course_is_said_in_one_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["train", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
def test_a_fresh_model_is_trained_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word for name, value in LITTLE.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    with pytest.raises(SystemExit) as ended:
        main(["train", "kuhn", *words, "--steps", "1", "--tasks-per-step", "2", "--workers", "1", "--json"])
    assert ended.value.code in (0, None)
    assert json.loads(capsys.readouterr().out)["checkpoint"].endswith("rl")
