"""Wordle in few words: what is told, what is earned, what is held out, and a teacher who likes eight words too much."""

from __future__ import annotations

import asyncio

import pytest

from wanderlust.environments.wordle import SECRET_WORDS, TEACHER_CARE, BriefWordle, is_possible, wordle_teacher
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout, rollouts
from wanderlust.testing import check_environment
from wanderlust.types import Rollout, Task

ENV = BriefWordle(words=len(SECRET_WORDS))


def play(secret: str, *said: str, env: BriefWordle = ENV) -> Rollout:
    return asyncio.run(rollout(env, Task(id="w", answer=secret), Scripted(list(said))))


def earned(played: Rollout) -> dict[str, float]:
    score = played.trajectories[0].score
    assert score is not None
    return dict(score.parts)


def test_what_is_told_and_earned() -> None:
    played = play("eagle", "eerie", "easel", "Eagle\n")
    read = [turn.observation[-1].content for turn in played.trajectory.turns[1:]]
    assert read == ["eag ebx rcx idx eeg", "eag abg scx edy ley"]
    assert played.state == {"guesses": ["eerie", "easel", "eagle"], "marks": ["GXXXG", "GGXYY", "GGGGG"]}
    assert earned(played)["found"] == 1.0
    assert played.trajectory.rewards == pytest.approx([0.2, 0.0, 1.2])


@pytest.mark.parametrize("said", ["zzzzz", "", "easel eagle", "x" * 10_000])
def test_what_is_no_word_costs_a_guess(said: str) -> None:
    played = play("eagle", said, "eerie", said, said, said, said, "never asked")
    assert (len(played.trajectory.turns), played.state["guesses"]) == (6, ["eerie"])
    assert earned(played) == {"found": 0.0, "heed": pytest.approx(0.2)}


def test_in_a_hard_game_a_guess_that_heeds_not_loses() -> None:
    hard = BriefWordle(words=len(SECRET_WORDS), hard=True)
    assert earned(play("eagle", "eerie", "abate", "never asked", env=hard)) == {
        "found": 0.0,
        "heed": pytest.approx(0.2),
    }
    assert earned(play("eagle", "eerie", "eagle", env=hard))["found"] == 1.0


def test_who_guesses_only_what_fits_always_heeds_and_nobody_knows_the_secret() -> None:
    assert is_possible("eagle", ["eerie"], ["GXXXG"])
    assert not is_possible("eerie", ["eerie"], ["GXXXG"])
    assert is_possible("eerie", [], [])
    for task in ENV.tasks()[:3]:
        assert task.answer not in task.id + task.prompt[0].content


def test_secrets_of_the_evaluation_are_nobodys_in_training() -> None:
    env = BriefWordle(words=320)
    train, held = ([task.answer for task in env.tasks(split)] for split in ("train", "eval"))
    assert (len(train), len(held), len({*train, *held}), {*train, *held} == env.allowed_words) == (256, 64, 320, True)
    with pytest.raises(UsageError, match="words"):
        BriefWordle(words=3000)
    with pytest.raises(UsageError, match="held"):
        BriefWordle(held=1)


def test_the_teacher_is_better_the_more_it_cares() -> None:
    async def share(care: float) -> float:
        env = BriefWordle(words=320)
        async with rollouts(env, env.tasks("eval"), wordle_teacher(env.words, care=care)) as stream:
            done = [group.rollouts[0] async for group in stream]
        return sum(game.task.answer in game.state["guesses"] for game in done) / len(done)

    shares = [asyncio.run(share(care)) for care in (0.0, TEACHER_CARE, 1.0)]
    assert shares[0] < 0.3 < shares[1] < shares[2]
    assert shares[2] > 0.95


def test_it_keeps_its_promises() -> None:
    env = BriefWordle(words=60)
    for policy in (None, env.players["teacher"]()):
        assert asyncio.run(check_environment(env, policy) if policy else check_environment(env)) == []
