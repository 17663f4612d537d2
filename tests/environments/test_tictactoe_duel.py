"""Two seats on one board."""

from __future__ import annotations

import asyncio

import pytest

from wanderlust.environment import Limits
from wanderlust.environments.tictactoe import TicTacToe, TicTacToeDuel, tictactoe_teacher
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.types import Rollout, Status, Task


def duel(x: Scripted, o: Scripted, info: dict[str, object], limits: Limits | None = None) -> Rollout:
    task = Task(id="t", info=info)
    return asyncio.run(rollout(TicTacToeDuel(), task, {"agent": x, "opponent": o}, limits=limits))


def moves(*cells: int) -> Scripted:
    return Scripted([f"<think>so</think><move>{cell}</move>" for cell in cells])


def test_each_side_reads_its_own_view() -> None:
    result = duel(moves(0, 1, 2), Scripted(["what?", "0", " 3 ", "<move>4</move>"]), {"first": True})
    agent, person = result.trajectories
    assert [m.content for m in agent.messages if m.role != "assistant"] == [
        "You are X.",
        "You start.\n012\n345\n678",
        "O plays 3.\nX12\nO45\n678",
        "O plays 4.\nXX2\nOO5\n678",
    ]
    assert [m.content for m in person.messages if m.role != "assistant"] == [
        "You are O.",
        "X plays 0.\nX12\n345\n678",
        "Use the move tags.\nX12\n345\n678",
        "Illegal move.\nX12\n345\n678",
        "X plays 1.\nXX2\nO45\n678",
    ]
    assert (result.state["winner"], result.state["board"], result.state["invalid"]) == ("X", "XXXOO....", 0)
    assert [t.score.reward for t in result.trajectories if t.score] == [1.0, 0.0]


def test_the_agent_reads_what_it_reads_in_the_one_seat_game() -> None:
    alone = asyncio.run(rollout(TicTacToe(), Task(id="t", info={"first": False}), tictactoe_teacher()))
    replies = Scripted([move[1] for move in alone.state["moves"] if move[0] == "O"])
    said = [turn.action for turn in alone.trajectory.turns]
    again = duel(Scripted(said), replies, {"first": False})
    assert again.trajectories[0].messages == alone.trajectory.messages
    assert again.state["winner"] == alone.state["winner"]


def test_the_opponent_can_win_and_can_open() -> None:
    result = duel(moves(3, 4), Scripted("012"), {"first": False})
    assert (result.state["winner"], result.state["moves"][0]) == ("O", "O0")
    assert [t.score.reward for t in result.trajectories if t.score] == [0.0, 1.0]


def test_an_agent_that_talks_nonsense_is_cut_after_seven_answers() -> None:
    result = duel(Scripted(["?"] * 9), Scripted([]), {"first": True})
    assert (result.status, result.stop_reason, result.state["turns"]) == (Status.TRUNCATED, "max_turns", 7)


def test_duel_tasks_alternate_who_opens() -> None:
    tasks = iter(TicTacToe.duel().tasks())
    assert [next(tasks).info["first"] for _ in range(4)] == [True, False, True, False]


@pytest.mark.parametrize("board", ["XX.OO....", "X...O...."])
def test_a_duel_can_start_in_mid_game(board: str) -> None:
    result = duel(moves(2, 6), Scripted(["8", "7"]), {"board": board})
    assert result.trajectories[0].messages[1].content.startswith("Your turn.\n")
