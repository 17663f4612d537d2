"""Policies as people name them: the oracle, a script, a recording."""

from __future__ import annotations

import asyncio
import json
import pickle
from contextlib import closing
from pathlib import Path

import pytest

from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.policies.scripted import PerRolloutPolicy, Scripted, parse_rollout_key
from wanderlust.runner.engine import rollout
from wanderlust.store.run import load_run
from wanderlust.tasks.registry import environment_name, resolve_environment, resolve_object
from wanderlust.training.config import TrainConfig
from wanderlust.training.train import resume_training, train
from wanderlust.types import Status
from worlds import found, wander


def play(name, task=3):
    env = resolve_environment("calculator").env
    tasks = list(env.tasks("eval"))
    policy = resolve_policy(name, env, PolicyOptions()).policy
    return asyncio.run(rollout(env, tasks[task], policy))


def test_the_oracle_knows_every_task_of_the_eval_split():
    assert [play("oracle", task).trajectory.score.reward for task in (50, 0, 3)] == [1.0, 1.0, 1.0]


def test_the_oracle_does_not_know_other_tasks():
    env = resolve_environment("calculator").env
    played = asyncio.run(
        rollout(env, next(iter(env.tasks("train"))), resolve_policy("oracle", env, PolicyOptions()).policy)
    )
    assert (played.status, played.stop_reason) == (Status.ERROR, "PolicyFailure")
    assert "none of them" in played.error


def test_the_oracle_of_another_split_is_asked_for(tmp_path):
    assert evaluate_sync("calculator", "oracle", split="train", n=5, progress=False).reward.value == 1.0
    words = ["eval", "calculator", "--policy", "oracle", "--split", "train", "-n", "5", "--json"]
    done = wander(*words, cwd=tmp_path)
    assert (done.returncode, json.loads(done.stdout)["report"]["rewards"]["agent"]["value"]) == (0, 1.0), done.stderr


def test_a_script_is_a_function_a_policy_or_a_class(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts.py").write_text(
        "from wanderlust.policies.scripted import Scripted\n"
        "def eight(messages, rng):\n    return '8'\n"
        "nine = Scripted(['9'])\n"
        "class Ten(Scripted):\n    def __init__(self):\n        super().__init__(['10'])\n"
        "eleven = 11\n"
    )
    said = [play(f"scripts:{name}").trajectory.turns[-1].action.content for name in ("eight", "nine", "Ten")]
    assert said == ["8", "9", "10"]
    with pytest.raises(UsageError, match="scripts:eleven is neither a policy nor a function that answers"):
        play("scripts:eleven")


def test_a_recording_says_again_what_was_said_and_fails_where_it_has_nothing(tmp_path: Path):
    folder = found(tmp_path)
    (folder / "scripts.py").write_text("def say(messages, rng):\n    return str(rng.randrange(2))\n")
    common = ("eval", "world:World", "--samples", "2", "--json")
    first = wander(*common, "--policy", "scripts:say", "-n", "10", "--out", "kept", cwd=folder)
    again = wander(*common, "--policy", "kept", "-n", "10", cwd=folder)
    assert (first.returncode, again.returncode) == (0, 0), again.stderr
    assert json.loads(first.stdout)["tasks"] == json.loads(again.stdout)["tasks"]
    more = wander("eval", "world:World", "--policy", "kept/rollouts.db", "-n", "20", "--json", cwd=folder)
    errors = json.loads(more.stdout)["report"]["errors"]
    assert more.returncode == 1
    failed = errors["PolicyFailure"]
    assert (failed["count"], failed["first"]) == (10, "not recorded: sample 0 with seed 0")


def test_keyed_policies_live_as_long_as_their_rollout():
    made = []

    def of(where):
        made.append(where)
        return Scripted(["one", "two"])

    async def talk():
        policy, key = PerRolloutPolicy(of), "a/b/7/2/agent"
        await policy.complete((), key=key)
        await policy.complete((), key=key)
        policy.release(key)
        policy.release(key)
        await policy.complete((), key=key)

    asyncio.run(talk())
    assert made == [("a/b", 7, 2, "agent")] * 2
    assert parse_rollout_key("x/1/0/left").seat == "left"


def test_what_a_missing_policy_raises_is_that_rollouts_failure():
    def of(where):
        raise PolicyFailure("nobody there")

    env = resolve_environment("calculator").env
    played = asyncio.run(rollout(env, next(iter(env.tasks("train"))), PerRolloutPolicy(of)))
    assert (played.status, played.error) == (Status.ERROR, "nobody there")


def test_a_file_can_be_named_from_anywhere(tmp_path: Path) -> None:
    folder = found(tmp_path)
    (folder / "say_one.py").write_text("def say(messages, rng):\n    return '1'\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/seconds").write_text("0")
    (tmp_path / "elsewhere/mended").touch()
    words = ("eval", "../world.py:World", "--policy", "../say_one.py:say", "-n", "4", "--json")
    done = wander(*words, cwd=tmp_path / "elsewhere")
    assert json.loads(done.stdout)["report"]["scored"] == 4, done.stderr
    lost = wander("eval", "no/world.py:World", "--policy", "me", cwd=tmp_path)
    assert (lost.returncode, lost.stdout) == (2, "")
    assert "there is no file" in lost.stderr


def test_settings_follow_the_name_of_an_environment() -> None:
    env = resolve_environment("tictactoe,low=0.5,wording=course,groups=2").env
    assert (env.low, env.groups, env.wording) != (0.0, 32, resolve_environment("tictactoe").env.wording)
    assert resolve_environment("tictactoe,seed=3").target.endswith(":TicTacToe,seed=3")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("tictactoe,lo=0.5", "has no setting 'lo'; there are: wording, groups, low, high, seed"),
        ("tictactoe,low", "'low' is no setting; they are written name=value"),
        ("chess,low=1", "no environment 'chess'"),
        ("wanderlust.tools.tool_environment:ToolEnvironment,size=3", "has no setting 'size'"),
    ],
)
def test_wrong_settings_are_one_line(name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        resolve_environment(name)


@pytest.mark.parametrize("stem", ["six", "test", "code", "calendar", "json", "my-env", "a.b", "wanderlust"])
def test_a_named_file_is_that_file_whatever_else_has_its_name(stem, tmp_path):
    """The name of an installed module, one of Python's own, one that no import can say."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "beside.py").write_text("HERE = 1\n")
        (tmp_path / folder / f"{stem}.py").write_text(f"from beside import HERE\nclass Own:\n    place = {folder!r}\n")
        found = resolve_object(f"{tmp_path / folder / stem}.py:Own")
        assert found.place == folder
        assert resolve_object(f"{tmp_path / folder / stem}.py:Own") is found
        assert pickle.loads(pickle.dumps(found)) is found
    with pytest.raises(UsageError, match="has no 'Other'"):
        resolve_object(f"{tmp_path / 'one' / stem}.py:Other")


def test_a_named_file_that_fails_is_tried_again(tmp_path):
    file = tmp_path / "six.py"
    file.write_text("raise RuntimeError('not yet')\n")
    with pytest.raises(UsageError, match=r"six\.py:Own cannot be imported: RuntimeError: not yet"):
        resolve_object(f"{file}:Own")
    file.write_text("Own = 3\n")
    assert resolve_object(f"{file}:Own") == 3


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("tictactoe", "tictactoe"),
        ("tictactoe,low=0.5", "tictactoe,low=0.5"),
        ("wanderlust.environments.tictactoe:TicTacToe", "tictactoe"),
        ("wanderlust.environments.tictactoe:TicTacToe,low=0.5", "tictactoe,low=0.5"),
        ("package.module:Name,size=2", "package.module:Name,size=2"),
        ("sub/own.py:Own,size=2", "{here}/sub/own.py:Own,size=2"),
        ("{here}/sub/own.py:Own", "{here}/sub/own.py:Own"),
    ],
)
def test_an_environment_has_one_name_in_stores(
    name: str, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert environment_name(name.format(here=tmp_path)) == stored.format(here=tmp_path)


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
def test_training_and_evaluation_store_the_same_name(tmp_path: Path) -> None:
    options = {"tasks_per_step": 1, "group_size": 2, "max_tokens": 8, "steps": 1, "result_samples": 0, "sft_steps": 1}
    result = train("tictactoe,low=0.5", config=TrainConfig(**options), out=tmp_path / "t", workers=1, progress=False)
    evaluate_sync("tictactoe,low=0.5", "teacher", n=1, out=tmp_path / "e", progress=False)
    for folder in (result.path, tmp_path / "e"):
        with closing(load_run(folder)) as run:
            assert {row.env for row in run.rollouts.rows()} == {"tictactoe,low=0.5"}
    config = json.loads((result.path / "run.json").read_text())
    assert config["config"]["env"] == "tictactoe,low=0.5"
    config["config"]["env"] = "wanderlust.environments.tictactoe:TicTacToe,low=0.5"  # as earlier versions wrote it
    (result.path / "run.json").write_text(json.dumps(config))
    assert resume_training(result.path, progress=False).report == result.report
    again = train("tictactoe,low=0.5", config=TrainConfig(**options), out=tmp_path / "t", workers=1, progress=False)
    assert again.report == result.report


def test_a_configuration_of_an_earlier_version_is_the_same_one() -> None:
    config = TrainConfig(env="tictactoe")
    stored = {**config.as_dict(), "env": "wanderlust.environments.tictactoe:TicTacToe"}
    assert TrainConfig.from_dict(stored) == config
    assert config.as_dict()["env"] == "tictactoe"
