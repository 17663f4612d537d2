"""Every number of an algorithm, optimizer and run is a setting, reaches what reads it, and is refused elsewhere."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import pytest

from toys import TOKENIZER, fresh
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.runner.progress import NullLogger
from wanderlust.training.algorithms.presets import configured_algorithm
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig, settings_by_section
from wanderlust.training.train import train
from wanderlust.training.trainers.process_pool import shard, unshard


def test_bounds_of_the_ratio_reach_the_loss() -> None:
    loss = configured_algorithm(TrainConfig(algorithm="grpo", ratio_min=0.7, ratio_max=1.4)).loss
    assert (loss.ratio_min, loss.ratio_max, loss.clip) == (0.7, 1.4, "ppo")
    own = configured_algorithm(TrainConfig(algorithm="grpo")).loss
    assert configured_algorithm(TrainConfig(algorithm="grpo", ratio_max=1.5)).loss == replace(own, ratio_max=1.5)


def test_ppos_and_dpos_numbers_reach_them() -> None:
    config = TrainConfig(algorithm="ppo", discount=0.9, gae_lambda=0.8, critic_lr=0.01, critic_epochs=3)
    ppo = cast(Any, configured_algorithm(config))
    assert (ppo.discount, ppo.trace, ppo.lr, ppo.epochs) == (0.9, 0.8, 0.01, 3)
    assert cast(Any, configured_algorithm(TrainConfig(algorithm="dpo", dpo_beta=0.3))).beta == 0.3


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"algorithm": "grpo", "discount": 0.9}, "discount is not read by the algorithm grpo"),
        ({"algorithm": "ppo", "dpo_beta": 0.3}, "dpo_beta is not read by the algorithm ppo"),
        ({"algorithm": "reinforce", "ratio_max": 2.0}, "the algorithm reinforce has no bounds"),
        ({"kl_target": 0.1}, "set kl, the weight to begin with"),
        ({"kl_target": 0.1, "kl": 0.1, "kl_into": "reward"}, "set kl_into to loss"),
        ({"algorithm": "grpo", "ratio_min": 1.5}, "ratio_min is 1.5, and must be below ratio_max, 1.2"),
    ],
)
def test_what_an_algorithm_does_not_read_is_one_line(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        configured_algorithm(TrainConfig(**settings))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("top_p", 0.0, "above 0"),
        ("top_p", 1.5, "from 0 to 1"),
        ("shards", 0, "at least 1"),
        ("beta2", 1.5, "from 0 to 1"),
        ("lr_decay", "quadratic", "one of 'constant', 'linear', 'cosine'"),
        ("engine", "vlm", "one of 'local', 'fsdp', 'vllm', 'vllm\\+fsdp'"),
    ],
)
def test_a_wrong_number_is_one_line(name: str, value: Any, why: str) -> None:
    with pytest.raises(UsageError, match=rf"{name} is .*, and must be {why}"):
        TrainConfig(**{name: value})


def test_the_optimizer_has_its_schedule_and_decays() -> None:
    optimizer = TrainConfig(lr=1.0, lr_decay="cosine", beta1=0.5, beta2=0.6, steps=10, lr_warmup_steps=0).rl_optimizer
    assert (optimizer.betas, optimizer.decay) == ((0.5, 0.6), "cosine")
    assert TrainConfig(top_p=0.9).sampling.top_p == 0.9


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_batch_is_cut_into_as_many_pieces_as_there_are_shards(shards: int) -> None:
    numbered = list(range(5, 15))
    parts = shard(numbered, 5, shards)
    assert len(parts) == shards
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert unshard(parts, 5) == numbered
    config = TrainConfig(env="toys:Twice", shards=shards)
    assert TrainConfig.from_dict(config.as_dict()).shards == shards


class Lines(NullLogger):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def log_line(self, line: str) -> None:
        self.said.append(line)


def test_workers_that_get_no_work_are_told(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "fresh", fresh(0), TOKENIZER)
    config = TrainConfig(env="toys:Twice", policy=str(tmp_path / "fresh"), shards=1, steps=1, result_samples=0)
    config, lines = config.replace(tasks_per_step=2, group_size=2, max_tokens=1), Lines()
    train(config.env, config.policy, config=config, out=tmp_path / "run", workers=3, progress=lines)
    assert lines.said[0] == "1 of 3 workers have work: a batch is cut into 1 pieces (shards)"


def test_every_setting_is_in_one_section() -> None:
    names = [field.name for field in fields(TrainConfig)]
    assert [name for section in settings_by_section(names).values() for name in section] == names


def test_a_configuration_is_the_same_after_a_file(tmp_path: Path) -> None:
    config = TrainConfig(
        env="tictactoe",
        policy='runs/"odd" \\ näme\x7f\t',
        lr=1e-05,
        steps=7,
        recompute_activations=True,
        temperature=1,
        label_question=True,
    )
    file = tmp_path / "run.toml"
    file.write_text(config.to_toml())
    assert TrainConfig.load(file) == config
    file.write_text("[optimizer]\nlr = 3e-4\n")
    assert TrainConfig.load(file) == TrainConfig(lr=3e-4)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "[rollout]\ntask_per_step = 3",
            r"there is no setting 'task_per_step' in \[rollout\]; did you mean tasks_per_",
        ),
        ("[rollout]\nlr = 3", r"there is no setting 'lr' in \[rollout\]; it belongs in \[optimizer\]"),
        ("lr = 3", r"lr is in no section: it belongs in \[optimizer\]"),
        ("[optimiser]\nlr = 3", r"there is no section \[optimiser\]; did you mean optimizer"),
        ("optimizer = 3", r"optimizer is in no section|optimizer must be a section"),
        ("[optimizer]\nlr = '3'", 'lr is "3", which is no float'),
        ("[optimizer]\nsteps = true", "steps is true, which is no int"),
        ("[optimizer]\nlr = -3", "lr is -3, and must be above 0"),
        ("[optimizer\n", "is no TOML"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=why) as raised:
        TrainConfig.load(file)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_run_keeps_its_settings_in_full(tmp_path: Path) -> None:
    config = TrainConfig(env="tictactoe", policy="fresh", steps=3)
    Run.begin(tmp_path / "run", config).store.close()
    assert TrainConfig.load(tmp_path / "run" / "config.toml") == config


def test_options_take_precedence_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[model]\nenv = "tictactoe"\npolicy = "fresh"\n[optimizer]\nlr = 3e-4\nsteps = 9\n')
    begun: list[TrainConfig] = []

    def stop(env: str, policy: str, *, config: TrainConfig, **_: Any) -> None:
        begun.append(config)
        raise UsageError("enough")

    monkeypatch.setattr("wanderlust.training.train.train", stop)
    default = ["--steps", "100"]  # the default of the option, yet it was given
    for words in ([], default, ["kuhn", *default]):
        with pytest.raises(SystemExit):
            main(["train", *words, "--config", str(file), "--out", str(tmp_path / "out")])
    assert [(config.env, config.steps, config.lr) for config in begun] == [
        ("tictactoe", 9, 3e-4),
        ("tictactoe", 100, 3e-4),
        ("kuhn", 100, 3e-4),
    ]
