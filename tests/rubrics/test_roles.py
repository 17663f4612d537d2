"""Who plays which seat, and who judges: on the command line, in Python, and in training beside frozen seats."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from wanderlust.cli.main import main
from wanderlust.environment import Environment, Episode
from wanderlust.environments.kuhn import KuhnPoker
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.judge import REFERENCE_FREE_TEMPLATE, GroupJudge, Judge
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import rollout
from wanderlust.store.store import RunStore
from wanderlust.training.config import TrainConfig
from wanderlust.training.train import train
from wanderlust.types import Task, user

HERE = "test_roles"


def likes(messages, rng):
    """A judge that likes every answer."""
    return '{"reason": "fine", "score": 10}'


def dislikes(messages, rng):
    """A judge that likes none."""
    return '{"reason": "bad", "score": 0}'


class Talk(Environment):
    """The agent says something to a user; a judge scores it."""

    seats = ("agent", "user")
    rubric = Rubric(Judge(Scripted(likes), REFERENCE_FREE_TEMPLATE))

    def tasks(self, split="train"):
        return [Task(id=f"t{n}", prompt=(user("Talk."),)) for n in range(3)]

    async def run(self, episode: Episode) -> None:
        said = await episode.agents["agent"].act(*episode.task.prompt)
        await episode.agents["user"].act(said)


def says_a(messages, rng):
    """Says a."""
    return "a"


def says_b(messages, rng):
    """Says b."""
    return "b"


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["eval", f"{HERE}:Talk", "--policy", f"{HERE}:says_a", *words])
    return int(end.value.code or 0)


def test_seats_and_the_judge_are_named_on_the_command_line_and_kept_in_the_run(tmp_path, capsys):
    out = tmp_path / "run"
    roles = ["--seat", f"user={HERE}:says_b", "--judge", f"{HERE}:dislikes", "--out", str(out)]
    assert command(*roles, "--json") == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert report["rewards"]["agent"]["value"] == 0.0
    with RunStore.read(out / "rollouts.db") as reader:
        said = {trajectory.seat: trajectory.turns[-1].action.content for trajectory in reader.get(1).trajectories}
    assert said == {"agent": "a", "user": "b"}
    settings = json.loads((out / "run.json").read_text())["config"]
    assert (settings["seats"], settings["judge"]) == (f"user={HERE}:says_b", f"{HERE}:dislikes")
    assert command(*roles, "--json") == 0  # the same evaluation
    assert command("--judge", f"{HERE}:likes", "--out", str(out)) != 0
    assert "judge" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--seat", "nobody=x"], "there is no seat 'nobody'; there are: agent, user"),
        (["--seat", "user"], "'user' is no SEAT=POLICY"),
        (["--seats", "user=x user=y"], "names a seat twice|neither"),
        (["--seat", f"user={HERE}:says_b", "--ray-workers", "1"], "leave --ray-workers out"),
    ],
)
def test_a_role_that_there_is_not_is_one_line(words, why, capsys):
    assert command(*words) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1


def test_a_rubric_asks_another_policy_in_all_of_its_judges():
    rubric = Rubric(Judge(Scripted(likes), REFERENCE_FREE_TEMPLATE), GroupJudge(policy=Scripted(likes)))
    other = rubric.asking(Scripted(dislikes))
    judges = [part.function for part in other.parts]
    assert [type(judge) for judge in judges] == [Judge, GroupJudge]
    assert all(judge.policy is judges[0].policy for judge in judges)
    assert rubric.parts[0].function.policy is not judges[0].policy
    assert asyncio.run(judges[0](prompt=[user("?")], completion="!")).value == 0.0
    assert asyncio.run(rubric.parts[0].function(prompt=[user("?")], completion="!")).value == 1.0
    with pytest.raises(UsageError, match="no part of this rubric asks a judge"):
        Rubric(always_right).asking(Scripted(likes))


def always_right(completion):
    return 1.0


def test_frozen_seats_are_played_by_their_policy_and_learn_nothing():
    env = Talk().with_frozen_seats({"user": Scripted(says_b)})
    played = asyncio.run(rollout(env, env.tasks()[0], Scripted(says_a)))
    assert [(t.seat, t.trainable, t.messages[-1].content) for t in played.trajectories] == [
        ("agent", True, "a"),
        ("user", False, "b"),
    ]
    assert Talk.frozen_seats == {}
    with pytest.raises(UsageError, match="every seat has a policy that does not learn"):
        env.with_frozen_seats({"agent": Scripted(says_a)})
    with pytest.raises(UsageError, match="there is no seat 'x'"):
        env.with_frozen_seats({"x": Scripted(says_a)})


def test_a_seat_learns_against_one_that_does_not(tmp_path: Path):
    config = TrainConfig(
        env="wanderlust.environments.kuhn:KuhnPoker",
        policy="fresh",
        seats="second=equilibrium",
        sft_episodes=40,
        sft_steps=60,
        steps=2,
        tasks_per_step=6,
        group_size=8,
        fresh_width=32,
        fresh_layers=1,
        algorithm="rloo",
        max_tokens=4,
        eval_tasks=4,
    )
    result = train(config=config, env=config.env, out=tmp_path / "run", progress=False, workers=1)
    with RunStore.read(tmp_path / "run" / "rollouts.db") as reader:
        groups = list(reader.iter_groups("rl", 0))
    played = [t for group in groups for one in group.rollouts for t in one.trajectories if t.turns]
    seats = {t.seat: (t.trainable, t.turns[0].tokens is None) for t in played}
    assert seats == {"first": (True, False), "second": (False, True)}
    assert result is not None
    with pytest.raises(UsageError, match="there is no seat 'third'; there are: first, second"):
        config.replace(seats="third=teacher").make_env()
    assert isinstance(config.make_env(), KuhnPoker)
