"""The tic-tac-toe environment: what is said, what is counted, what is drawn."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest

from wanderlust.environment import Limits
from wanderlust.environments.tictactoe import (
    TicTacToe,
    eval_tasks,
    optimal_opponent,
    stratified_tasks,
    tictactoe_teacher,
)
from wanderlust.environments.tictactoe.prompts import ParsedMove, board_digits, find_board, read, wording_named
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout, rollouts
from wanderlust.types import Rollout, Status, Task

LATE = {"board": "XX.OO....", "opponent": "optimal"}


def play(info: dict[str, object], *lines: str, **options: object) -> Rollout:
    task = Task(id="t", info=info)
    return asyncio.run(rollout(TicTacToe(**options), task, Scripted(lines)))


def said(move: int) -> str:
    return f"<think>so</think><move>{move}</move>"


def test_a_win_is_worth_one_and_a_bit() -> None:
    result = play(LATE, said(2))
    assert [m.content for m in result.trajectory.messages] == [
        "You are X.",
        "Your turn.\nXX2\nOO5\n678",
        "<think>so</think><move>2</move>",
    ]
    assert result.state["winner"] == "X"
    assert result.trajectory.score is not None
    assert result.trajectory.score.reward == pytest.approx(1.2)


def test_refused_answers_are_told_and_counted_and_the_game_goes_on() -> None:
    result = play(LATE, said(0), "no idea", "<move>9</move>", said(2))
    heard = [turn.observation[-1].content.split("\n")[0] for turn in result.trajectory.turns]
    assert heard == ["Your turn.", "Illegal move.", "Use the move tags.", "Illegal move."]
    state = result.state
    assert (state["turns"], state["invalid"], state["malformed"], state["winner"]) == (4, 3, 2, "X")
    assert result.trajectory.score is not None
    assert result.trajectory.score.parts == {"result": 1.0, "format": 0.5, "invalid": 1.0}
    assert result.trajectory.score.reward == pytest.approx(1 + 0.2 * 0.5 - 0.1)


def test_a_readable_move_counts_without_the_form() -> None:
    result = play(LATE, "I take <move> 2 </move>, of course")
    assert (result.state["winner"], result.state["invalid"], result.state["malformed"]) == ("X", 0, 1)


def test_opponent_moves_are_told() -> None:
    result = play({**LATE, "board": "X...O...."}, said(8), *["pass"] * 6)
    reply = int(result.state["moves"][1][1])
    assert result.trajectory.turns[1].observation[-1].content.startswith(f"O plays {reply}.\nX")
    assert result.state["moves"][:2] == ["X8", f"O{reply}"]


def test_a_start_board_can_look_like_a_game_under_way() -> None:
    result = play({**LATE, "last": 4}, said(2))
    assert result.trajectory.turns[0].observation[-1].content == "O plays 4.\nXX2\nOO5\n678"
    assert "no mark on cell 5" in (play({**LATE, "last": 5}, said(2)).error or "")


def test_an_empty_start_board_leaves_the_opening_to_x() -> None:
    assert all(play({"board": "." * 9}, *["?"] * 7).state["first"] for _ in range(2))
    result = play({"board": "." * 9}, *["?"] * 7)
    assert result.trajectory.turns[0].observation[-1].content.startswith("You start.")


def test_given_moves_are_part_of_the_conversation() -> None:
    whole = play({"opponent": "optimal", "first": False}, said(4), *["pass"] * 6)
    if whole.state["moves"][0] == "O4":
        whole = play({"opponent": "optimal", "first": False}, said(0), *["pass"] * 6)
    moves = whole.state["moves"][:3]
    rest = play({"opponent": "optimal", "moves": moves, "answers": [said(int(moves[1][1]))]}, *["pass"] * 7)
    assert rest.trajectory.messages[:4] == whole.trajectory.messages[:4]
    assert len(rest.trajectory.turns[0].observation) == 4
    assert (rest.state["moves"], rest.state["given"], rest.state["first"]) == (moves, 3, False)
    assert rest.state["board"] == whole.state["board"]


@pytest.mark.parametrize(
    "moves", [["X4", "X0"], ["X4", "O4"], ["X9"], ["O"], [""], ["X0", "O3", "X1", "O4", "X2", "O5"]]
)
def test_moves_that_cannot_be_played_are_refused(moves: list[str]) -> None:
    refused = play({"moves": moves, "answers": [""] * 3}, said(8))
    assert refused.status is Status.ERROR
    assert "cannot be played on the tic-tac-toe board" in (refused.error or "")


def test_a_game_that_never_ends_is_cut_and_worth_nothing() -> None:
    result = play({"first": True}, *["..."] * 7)
    assert (result.status, result.stop_reason) == (Status.TRUNCATED, "max_turns")
    assert result.state["winner"] is None
    assert result.trajectory.score is not None
    assert result.trajectory.score.reward == pytest.approx(-0.1)


def test_a_game_cut_short_by_the_caller_is_scored_as_it_stands() -> None:
    policy = Scripted(lambda messages, _: said(next(c for c in range(9) if str(c) in messages[-1].content)))
    task = Task(id="t", info={"first": True})
    result = asyncio.run(rollout(TicTacToe(), task, policy, limits=Limits(max_turns=1)))
    assert (result.status, result.state["turns"], result.state["winner"]) == (Status.TRUNCATED, 1, None)
    assert len(result.state["moves"]) == 2


def test_who_opens_is_a_coin_unless_the_task_says() -> None:
    first = {str(n): play_first(n, {}) for n in range(200)}
    assert 70 < sum(first.values()) < 130
    assert all(play_first(n, {"first": True}) for n in range(5))
    assert not any(play_first(n, {"first": False}) for n in range(5))


def play_first(n: int, info: dict[str, object]) -> bool:
    result = asyncio.run(rollout(TicTacToe(), Task(id=f"t{n}", info=info), Scripted(["x"] * 7)))
    assert (result.state["moves"] == []) == result.state["first"]
    return bool(result.state["first"])


async def group_of(policy: Scripted, size: int, task: Task) -> list[Rollout]:
    async with rollouts(TicTacToe(), [task], policy, group_size=size) as groups:
        return [result async for group in groups for result in group.rollouts]


def test_siblings_meet_the_same_opponent() -> None:
    task = Task(id="t", info={"opponent": "random"})
    games = asyncio.run(group_of(tictactoe_teacher(), 40, task))
    assert len({tuple(game.state["moves"]) for game in games}) > 1
    replies: dict[str, set[str]] = {}
    for game in games:
        board = "." * 9
        for move in game.state["moves"]:
            if move[0] == "O":
                replies.setdefault(board, set()).add(move)
            board = board[: int(move[1])] + move[0] + board[int(move[1]) + 1 :]
    assert all(len(moves) == 1 for moves in replies.values())


def test_the_reply_depends_on_the_board_and_not_on_how_it_came_about() -> None:
    for n in range(8):
        task = Task(id=f"t{n}", info={"opponent": "random", "first": True})
        straight, detour = (
            asyncio.run(rollout(TicTacToe(), task, Scripted([*talk, said(4), *["?"] * 6]))).state["moves"]
            for talk in ([], ["?", said(9)])
        )
        assert straight == detour
        assert straight[0] == "X4"


def test_the_same_seed_gives_the_same_game_and_another_seed_another() -> None:
    task = Task(id="t", info={"opponent": "random"})
    games = [
        asyncio.run(rollout(TicTacToe(), task, tictactoe_teacher(), seed=seed)).state["moves"]
        for seed in (1, 1, *range(2, 8))
    ]
    assert games[0] == games[1]
    assert len(set(map(tuple, games))) > 2


def test_optimal_opponent_plays_best_moves_only() -> None:
    for task in eval_tasks(["optimal"], 20):
        state = asyncio.run(rollout(TicTacToe(), task, tictactoe_teacher())).state
        board = state["start"]
        for move in state["moves"]:
            cell = int(move[1])
            assert move[0] == "X" or cell in optimal_opponent(board)
            board = board[:cell] + move[0] + board[cell + 1 :]
        assert board == state["board"]


def test_training_tasks_are_stratified_and_endless() -> None:
    env = TicTacToe(groups=10, low=0.2, high=0.7, seed=3)
    tasks = list(islice(env.tasks(), 30))
    for n, task in enumerate(tasks):
        assert 0.2 + 0.05 * (n % 10) <= task.info["random"] <= 0.2 + 0.05 * (n % 10 + 1)
    assert tasks == list(islice(env.tasks(), 30))
    assert len({task.id for task in tasks}) == 30
    assert tasks[10:20] == stratified_tasks(3, 1, 10, low=0.2, high=0.7)


def test_eval_tasks_are_fixed() -> None:
    tasks = list(TicTacToe().tasks("eval"))
    assert [(t.info["opponent"], t.info["first"]) for t in tasks[99:101]] == [
        ("random", False),
        ("optimal", True),
    ]
    assert len({t.id for t in tasks}) == 300


@pytest.mark.parametrize("name", ["compact", "course"])
def test_every_wording_shows_a_board_that_can_be_read_back(name: str) -> None:
    wording = wording_named(name)
    for board in (".........", "XOX.O.X..", "XOXOXOOX."):
        for event in (4, "start", "turn", "illegal", "malformed"):
            text = wording.show("X", event, board).content
            assert find_board(text) == board
            assert all(cell in text for cell in board_digits(board))
    assert find_board("no board here: XOX") is None


def test_course_wording_plays_the_same_game() -> None:
    games = [
        asyncio.run(rollout(TicTacToe(wording=name), Task(id="t"), tictactoe_teacher())).state["moves"]
        for name in ("compact", "course")
    ]
    assert games[0] == games[1]


@pytest.mark.parametrize(
    ("text", "move", "well_formed"),
    [
        ("<think>a\nb</think>\n<move>3</move>", 3, True),
        ("<think></think><move>9</move>", 9, True),
        ("<think>a</think><move>3</move> ", 3, False),
        ("<move>3</move>", 3, False),
        ("<think>a</think><move>1</move><think>b</think><move>2</move>", 2, False),
        ("<think><move>1</move></think><move>2</move>", 2, False),
        ("<think>a</think><move>12</move>", None, False),
        ("<think>a</think><move>\u0663</move>", None, False),
        ("3", None, False),
        ("", None, False),
        ("<think>" + "a" * 30_000 + "</think><move>3</move>", None, False),
    ],
)
def test_reading_answers(text: str, move: int | None, well_formed: bool) -> None:
    assert read(text) == ParsedMove(move, well_formed)


def test_reading_hostile_answers_takes_linear_time() -> None:
    for piece in ("<think>", "<move> ", "</think>", "<move>1", " ", "<"):
        assert read(piece * (20_000 // len(piece))).well_formed is False


@pytest.mark.parametrize("board", ["XX.......", "XXXOO....", "X", "XOZ......", "XXXOOO..."])
def test_impossible_start_boards_are_refused(board: str) -> None:
    refused = play({"board": board}, said(0))
    assert refused.stop_reason == "EnvironmentFailure"
    assert "cannot be to move" in (refused.error or "")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="no split 'test'"):
        TicTacToe().tasks("test")
    with pytest.raises(UsageError, match="no tic-tac-toe wording"):
        TicTacToe(wording="poem")
    assert "did you mean 'greedy'" in (play({"opponent": "gredy"}, said(0)).error or "")
