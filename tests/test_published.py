"""Three published classic environments, written anew: the same transcripts give the published rewards.

The records say which definition rewarded them: its own code was run on these answers, and what it gave written down.
Wordle's record is used in test_wordle.py.
"""

import asyncio
import json
from pathlib import Path

import pytest
from examples.tictactoe_course import CourseTicTacToe, read_first
from examples.tool_test import ToolTest

from wanderlust.environments.tictactoe import tictactoe_teacher
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import check_environment
from wanderlust.types import Task, ToolCall, assistant

RECORDED = Path(__file__).parent / "recorded"
GAMES = json.loads((RECORDED / "tictactoe.json").read_text(encoding="utf-8"))["games"]
CALLS = json.loads((RECORDED / "tool_test.json").read_text(encoding="utf-8"))["games"]


@pytest.mark.parametrize("case", GAMES, ids=lambda case: case["about"])
def test_the_course_rewards_a_game_so(case):
    task = Task(id="course", info={"opponent": "random", "first": case["first"]})
    played = asyncio.run(rollout(CourseTicTacToe(), task, Scripted(case["said"]), seed=case["seed"]))
    assert [int(move[1]) for move in played.state["moves"] if move[0] == "O"] == case["replies"]
    assert len(played.trajectory.turns) == len(case["said"])
    assert played.trajectory.score.parts == pytest.approx(case["parts"])
    assert played.trajectory.score.reward == pytest.approx(case["reward"])


def test_records_span_what_can_happen():
    results = {(case["parts"]["result"], case["parts"]["invalid"]) for case in GAMES}
    assert results >= {(1.0, 0.0), (1.0, 1.0), (0.5, 0.0), (0.0, 0.0), (0.0, 1.0)}
    assert {case["reward"] for case in CALLS} == {0.0, 1.0}


@pytest.mark.parametrize("case", CALLS, ids=lambda case: case["about"])
def test_tool_test_rewards_calls_so(case):
    task = Task(id="t", answer=case["named"])
    said = assistant("", *(ToolCall(id=f"{n}", name=name, arguments="{}") for n, name in enumerate(case["called"])))
    played = asyncio.run(rollout(ToolTest(), task, Scripted([said])))
    assert played.trajectory.score.reward == case["reward"]


def test_hostile_moves_take_linear_time():
    assert read_first("<think></think>" * 1300) == (None, False)
    assert read_first("<move>" * 9_000_000) == (None, False)


def test_both_keep_their_promises():
    def answer(messages, rng):
        named = messages[0].content
        return assistant(
            "", *(ToolCall(id=n, name=f"tool_{n}", arguments='{"x": 1}') for n in "ABCD" if f"_{n}" in named)
        )

    played = asyncio.run(rollout(ToolTest(), ToolTest().tasks("eval")[0], Scripted(answer)))
    assert played.trajectory.score.reward == 1.0
    assert asyncio.run(check_environment(ToolTest(), Scripted(answer))) == []
    assert asyncio.run(check_environment(CourseTicTacToe(), tictactoe_teacher())) == []
