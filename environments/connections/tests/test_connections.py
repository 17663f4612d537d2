"""The groups puzzle: exactly one solution, mistakes that are counted, and words that are refused."""

import asyncio

import pytest

from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import check_environment
from wanderlust.types import Status
from wanderlust_connections.connections import MAX_MISTAKES, WORD_GROUPS, Connections, make_puzzle, parse_group

ENV = Connections()
TASK = ENV.tasks("eval")[0]
RIGHT = [f"<group>{', '.join(group)}</group>" for group in TASK.answer.values()]


def play(*said, task=TASK):
    return asyncio.run(rollout(ENV, task, Scripted(list(said) if len(said) > 1 else lambda messages, rng: said[0])))


def crossed(shift, other=1):
    """A group with words of two groups."""
    groups = [*TASK.answer.values()]
    first, second = groups[0], groups[other]
    return f"<group>{', '.join([*first[: 4 - shift], *second[:shift]])}</group>"


def test_every_puzzle_has_one_solution():
    for task in [*ENV.tasks()[:200], *ENV.tasks("eval")]:
        words = task.prompt[-1].content.split(", ")
        assert len({*words}) == 16
        for name in task.answer:
            assert {*WORD_GROUPS[name].split()} & {*words} == {*task.answer[name]}
    assert make_puzzle("train-3") == make_puzzle("train-3") != make_puzzle("train-4")


def test_the_solution_scores_high_and_garbage_low():
    played = play(*RIGHT)
    assert played.trajectory.score.reward == pytest.approx(1.2)
    assert (len(played.state["found"]), played.state["mistakes"], len(played.trajectory.turns)) == (4, 0, 4)
    lost = play("I do not know")
    assert (lost.status, lost.stop_reason, lost.trajectory.score.reward) == (Status.TRUNCATED, "max_turns", 0.0)


def test_mistakes_end_the_game_and_cost_the_bonus():
    wrong = [crossed(1), crossed(2), crossed(3), crossed(2, other=2)]
    assert len({tuple(parse_group(one)) for one in wrong}) == 4
    played = play(RIGHT[3], *wrong, "never asked")
    assert (played.state["mistakes"], played.trajectory.score.reward) == (MAX_MISTAKES, 0.25)
    told = [turn.observation[0].content for turn in played.trajectory.turns[1:] if turn.observation]
    assert told[0].startswith(f"Right: {[*TASK.answer][3]}. Mistakes left: 4. Words left: ")
    assert "three of them belong together" in told[1]
    assert "three" not in told[2]
    assert len(told[0].rpartition(": ")[2].split(", ")) == 12
    assert play(crossed(1), *RIGHT).trajectory.score.reward == 1.0


@pytest.mark.parametrize(
    "said", ["<group>a, b, c, d</group>", "<group></group>", RIGHT[0][:-10], "x" * 30_000 + RIGHT[0]]
)
def test_what_is_no_group_is_refused_and_no_mistake(said):
    assert play(said, *RIGHT).trajectory.score.reward == pytest.approx(1.2)


def test_a_group_is_named_once():
    played = play(crossed(1), crossed(1).replace(",", " "), *RIGHT)
    assert played.state["mistakes"] == 1
    assert played.trajectory.turns[2].observation[0].content.startswith("You named that group before.")


def test_it_keeps_its_promises():
    assert asyncio.run(check_environment(ENV, Scripted(lambda messages, rng: crossed(rng.randrange(4))))) == []
    assert asyncio.run(check_environment(ENV)) == []
