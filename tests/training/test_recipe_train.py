"""Reinforcement learning of a checkpoint in somebody's environment: it learns, and goes on exactly where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import cycle, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from wanderlust import load_run
from wanderlust.environment import Environment, Episode
from wanderlust.errors import EnvironmentFailure, UsageError
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.progress import NullLogger
from wanderlust.store.run_folder import checkpoints_of, open_folder, runs_in
from wanderlust.tasks.curriculum import TaskStream
from wanderlust.tasks.selection import choose_tasks
from wanderlust.training.checkpoint import Run, load_config, open_run
from wanderlust.training.config import TrainConfig
from wanderlust.training.optimizer import weights_of
from wanderlust.training.setup import validate_config
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.training.train import run_training
from wanderlust.types import Policy, Task, user


class Echo(Environment):
    """Say the digit you are shown; near ones are worth something."""

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(user(f"say {episode.task.answer}"))
        near = abs(int(said.content) - int(episode.task.answer)) if said.content in set("0123456789") else 10
        episode.reward("echo", (1 - near / 10) ** 2)

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"echo-{digit}", answer=str(digit)) for digit in range(10)]


class Known(Echo):
    """Somebody knows what to say."""

    def oracle(self, task: Task) -> Policy:
        return Scripted(lambda _messages, _rng: str(task.answer))


class Broken(Echo):
    """Never gets anywhere."""

    async def run(self, episode: Episode) -> None:
        raise ZeroDivisionError("no world today")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "fresh"
    tokenizer = fresh_tokenizer(["say 0", "say 1", "0123456789"] * 20)
    shape = ModelShape(width=32, layers=1, heads=2, inner=64, positions=64)
    save_pretrained(folder, fresh_model(tokenizer, shape, seed=0), tokenizer)
    return folder


def config(checkpoint: Path, env: type[Environment] = Echo, **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {"steps": 12, "tasks_per_step": 8, "lr": 3e-3, "max_tokens": 1, "eval_every": 6}
    return TrainConfig(env=f"{__name__}:{env.__name__}", policy=str(checkpoint), **{**settings, **changes})


class Stopping:
    """Pulls the plug when a step of the stage is shown."""

    def __init__(self, stage: str, step: int):
        self.place = (stage, step)

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        if (stage, step) == self.place:
            raise KeyboardInterrupt


def finished(path: Path) -> tuple[Any, torch.Tensor]:
    body = json.loads((path / "report.json").read_text())
    return body["curve"], weights_of(load_pretrained(path / "checkpoints" / "rl")[0])


def test_training_pays_and_resumes_to_the_same_weights(checkpoint: Path, tmp_path: Path) -> None:
    settings = config(checkpoint)
    whole = Run.begin(tmp_path / "whole", settings)
    body = run_training(settings, whole, logger=NullLogger(), workers=1)
    whole.store.close()
    first, last = body["curve"][0], body["curve"][-1]
    assert [point["step"] for point in body["curve"]] == [0, 6, 12]
    assert last["rewards"]["agent"]["value"] > first["rewards"]["agent"]["value"] + 0.1

    stopped = Run.begin(tmp_path / "stopped", settings)
    for place in (("eval", 0), ("rl", 2), ("rl", 8), ("eval", 12), None):
        if place is not None:
            with pytest.raises(KeyboardInterrupt):
                run_training(settings, stopped, logger=Stopping(*place), workers=1)
        else:
            run_training(settings, stopped, logger=NullLogger(), workers=2)
        stopped.store.close()
        stopped = Run.resume(tmp_path / "stopped")
    stopped.store.close()
    assert load_config(tmp_path / "stopped", TrainConfig) == settings
    (curve, weights), (expected, same) = finished(tmp_path / "stopped"), finished(tmp_path / "whole")
    assert curve == expected
    assert torch.equal(weights, same)


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
@pytest.mark.parametrize("lora", [0, 4])
def test_a_checkpoint_is_shown_episodes_first_and_goes_on_from_there(
    lora: int, checkpoint: Path, tmp_path: Path
) -> None:
    shown = config(checkpoint, env=Known, steps=1, lora=lora)
    shown = shown.replace(sft_episodes=40, sft_steps=40, sft_batch=10, sft_lr=0.03)
    for name, cut in (("whole", None), ("cut", ("sft", 25))):
        run = Run.begin(tmp_path / name, shown)
        if cut is not None:
            with pytest.raises(KeyboardInterrupt):
                run_training(shown, run, logger=Stopping(*cut), workers=1)
            run.store.close()
            run = Run.resume(tmp_path / name)
        body = run_training(shown, run, logger=NullLogger(), workers=1)
        run.store.close()
        assert body["curve"][0]["rewards"]["agent"]["value"] > 0.75  # of 1; whoever always says 5 has 0.585
    (curve, weights), (expected, same) = finished(tmp_path / "cut"), finished(tmp_path / "whole")
    assert curve == expected
    assert torch.equal(weights, same)


@pytest.mark.proof("learning")
def test_the_weight_of_the_kl_divergence_follows_its_target(checkpoint: Path, tmp_path: Path) -> None:
    held = config(checkpoint, kl=0.5, kl_target=0.02, lr=0.02, steps=40, eval_every=40)
    run_training(held, Run.begin(tmp_path / "whole", held), logger=NullLogger(), workers=1)
    metrics = load_run(tmp_path / "whole").metrics()
    weights, terms = ([value for _, value in metrics[name]] for name in ("kl_weight", "kl"))
    assert weights[0] == 0.5
    for (weight, after), term in zip(pairwise(weights), terms, strict=False):
        error = min(max(term / weight / 0.02 - 1, -0.2), 0.2)
        assert after == pytest.approx(weight * (1 + 0.1 * error), rel=1e-12)
    assert max(weights) > min(weights)
    late = [term / weight for term, weight in zip(terms[-10:], weights[-10:], strict=True)]
    free = config(checkpoint, kl=1e-9, lr=0.02, steps=40, eval_every=40)
    run_training(free, Run.begin(tmp_path / "free", free), logger=NullLogger(), workers=1)
    ungoverned = [value / 1e-9 for _, value in load_run(tmp_path / "free").metrics()["kl"]][-10:]
    assert fmean(late) < fmean(ungoverned) / 2

    stopped = Run.begin(tmp_path / "stopped", held)
    with pytest.raises(KeyboardInterrupt):
        run_training(held, stopped, logger=Stopping("rl", 13), workers=1)
    stopped.store.close()
    run_training(held, Run.resume(tmp_path / "stopped"), logger=NullLogger(), workers=1)
    assert torch.equal(finished(tmp_path / "stopped")[1], finished(tmp_path / "whole")[1])


def test_a_warmup_without_a_teacher_is_one_line(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match=r"^[^\n]*no player 'x'[^\n]*$"):
        validate_config(config(checkpoint, env=Known, sft_episodes=4, sft_teacher="x"))


def test_run_folders_say_what_they_hold(checkpoint: Path, tmp_path: Path) -> None:
    settings = config(checkpoint, steps=7)
    run = Run.begin(tmp_path / "runs" / "a", settings)
    (tmp_path / "runs" / "b").mkdir()
    (tmp_path / "runs" / "b" / "run.json").write_text("{")
    (found,) = runs_in(tmp_path / "runs")
    assert (found.describe_progress(), found.finished) == ("nothing yet", False)
    with pytest.raises(KeyboardInterrupt):
        run_training(settings, run, logger=Stopping("rl", 3), workers=1)
    assert found.describe_progress() == "rl 3 of 7"
    assert [p.name for p in checkpoints_of(found.path)] == ["start"]
    run.store.close()
    assert open_folder(tmp_path) is None


@pytest.mark.parametrize("file", ["run.json", "config.toml"])
def test_settings_that_were_edited_since_it_began_are_said(file: str, checkpoint: Path, tmp_path: Path) -> None:
    folder, notes, begun = tmp_path / "run", list[str](), config(checkpoint, algorithm="grpo")
    with open_run(folder, begun, note=notes.append):
        pass
    (folder / file).write_text((folder / file).read_text().replace("0.003", "0.3").replace("grpo", "reinforce"))
    edited = load_config(folder, TrainConfig)
    for accept in (None, False):
        with (
            pytest.raises(UsageError, match=rf"lr of {file} was 0\.003 and is 0\.3.*: undo the edit") as told,
            open_run(folder, edited, note=notes.append, accept_changes=accept),
        ):
            pass
        assert f"algorithm of {file} was grpo and is reinforce" in str(told.value)
        assert ("--accept-changes" in str(told.value)) == (accept is False)
    with open_run(folder, edited, note=notes.append, accept_changes=True):
        assert notes[-1].startswith("accepted edits: ")
    with open_run(folder, load_config(folder, TrainConfig), note=notes.append):
        assert len(notes) == 1


def test_an_environment_that_always_fails_stops_the_run(checkpoint: Path, tmp_path: Path) -> None:
    settings = config(checkpoint, env=Broken)
    run = Run.begin(tmp_path / "run", settings)
    with pytest.raises(EnvironmentFailure, match=r"all 10 rollouts failed.*no world today"):
        run_training(settings, run, logger=NullLogger(), workers=1)
    run.store.close()


def test_streams_go_on_where_they_stopped() -> None:
    tasks = Echo().tasks()
    stream = TaskStream(lambda: tasks)
    taken = [task.id for step in range(3) for task in stream.next(step, 4)]
    assert taken == [f"echo-{n % 10}" for n in range(12)]
    again = TaskStream(lambda: tasks)
    again.restore(stream.state())
    assert [t.id for t in again.next(3, 2)] == [t.id for t in stream.next(3, 2)] == ["echo-2", "echo-3"]
    with pytest.raises(UsageError, match="no tasks"):
        TaskStream(list).next(0, 1)


def test_chosen_tasks_are_spread_over_the_split() -> None:
    tasks = Echo().tasks()
    assert [t.id for t in choose_tasks(tasks, 4)] == ["echo-0", "echo-2", "echo-5", "echo-7"]
    assert choose_tasks(tasks) == choose_tasks(tasks, 99) == tasks
    assert len(choose_tasks(cycle(tasks), 3)) == 3
    with pytest.raises(UsageError, match="more than 10000"):
        choose_tasks(cycle(tasks))
