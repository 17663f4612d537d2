"""Games of tic-tac-toe: the match as plain data, its rewards, the tasks, and the duel of two policies.

The reward is the result, a small term for the form of answers, and a flat penalty for refused ones. Tasks are
stratified by difficulty for training, and fixed for evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any

from wanderlust.environment import Environment, Episode, Limits
from wanderlust.environments.tictactoe.prompts import (
    MoveEvent,
    ParsedMove,
    Refusal,
    parse_typed_move,
    read,
    wording_named,
)
from wanderlust.environments.tictactoe.rules import (
    EMPTY_BOARD,
    FIXED_OPPONENTS,
    Mark,
    free,
    game_outcome,
    other_mark,
    place_mark,
)
from wanderlust.errors import StopEpisode, UsageError
from wanderlust.rubrics.rubric import Reward, Rubric, metric
from wanderlust.types import Task


class TicTacToeMatch:
    """A match. Guarantees that `state` is right after every move, so that a game cut short is scored right too.

    Its keys: `start` and `board`; `moves` as `X4`, of which the first `given` were the task's; `winner` (X, O, draw, or
    None while undecided); `first` (X opened); X's `turns`, `invalid` (refused answers) and `malformed` messages;
    `opponent`. `last` is the event shown to the next player: the cell just taken, or how the game begins.
    """

    def __init__(self, episode: Episode, opponent: str):
        info = episode.task.info
        board = self.board = info.get("board", EMPTY_BOARD)
        lead = board.count("X") - board.count("O")
        if len(board) != 9 or set(board) - set("XO.") or lead not in (0, -1) or game_outcome(board):
            raise UsageError(f"X cannot be to move on the tic-tac-toe board {board!r}")
        first = info.get("first")
        if "board" in info:
            first = self.board.count("X") == self.board.count("O")
        elif moves := info.get("moves"):
            first = moves[0].startswith("X")
        elif first is None:
            first = episode.rng("first").random() < 0.5
        self.last: MoveEvent = info.get("last", "start" if self.board == EMPTY_BOARD else "turn")
        if isinstance(self.last, int) and self.last not in [cell for cell in range(9) if board[cell] == "O"]:
            raise UsageError(f"O has no mark on cell {self.last} of the tic-tac-toe board {self.board!r}")
        self.state: dict[str, Any] = episode.state
        self.state.update(
            start=self.board,
            board=self.board,
            moves=[],
            given=0,
            winner=None,
            first=bool(first),
            turns=0,
            invalid=0,
            malformed=0,
            opponent=opponent,
        )

    @property
    def over(self) -> bool:
        """Whether the game is decided."""
        return self.state["winner"] is not None

    @property
    def turn(self) -> Mark:
        """The mark to move."""
        return "X" if self.board.count("X") - self.board.count("O") == (0 if self.state["first"] else -1) else "O"

    def place(self, cell: int, mark: Mark) -> None:
        """Put a mark on a free cell."""
        self.board, self.last = place_mark(self.board, cell, mark), cell
        self.state["moves"].append(f"{mark}{cell}")
        self.state["board"], self.state["winner"] = self.board, game_outcome(self.board)

    def play_given(self, move: str) -> None:
        """Play a move that the task prescribes. UsageError when it cannot be played."""
        if self.over or move not in [f"{self.turn}{cell}" for cell in free(self.board)]:
            raise UsageError(f"the move {move!r} cannot be played on the tic-tac-toe board {self.board!r}")
        self.place(int(move[1]), self.turn)
        self.state["given"] += 1

    def play_answer(self, answer: ParsedMove, mark: Mark = "X") -> Refusal | None:
        """Play an answer, and count it if it is X's; returns why it was refused, if it was."""
        refused = move_refusal(answer, self.board)
        if mark == "X":
            self.state["turns"] += 1
            self.state["malformed"] += not answer.well_formed
            self.state["invalid"] += refused is not None
        if refused is None and answer.move is not None:
            self.place(answer.move, mark)
        return refused


def move_refusal(answer: ParsedMove, board: str) -> Refusal | None:
    """The reason why an answer cannot be played on `board`; None when it can."""
    if answer.move is None:
        return "malformed"
    return None if answer.move in free(board) else "illegal"


WIN_VALUE, DRAW_VALUE = 1.0, 0.5


def game_result(state: Mapping[str, Any], seat: str) -> float:
    """1 for a win of this seat, 0.5 for a draw, 0 for a loss or an unfinished game."""
    winner = state.get("winner")
    if winner == "draw":
        return DRAW_VALUE
    return WIN_VALUE if winner == ("O" if seat == "opponent" else "X") else 0.0


def answer_format(state: Mapping[str, Any]) -> float:
    """The share of X's messages that were well-formed."""
    turns = state.get("turns", 0)
    return 1 - state["malformed"] / turns if turns else 0.0


def invalid(state: Mapping[str, Any]) -> float:
    """1 if any of X's answers was refused. Flat, so that one long failure is not punished many times."""
    return float(state.get("invalid", 0) > 0)


def is_win(state: Mapping[str, Any], seat: str) -> float:
    """1 for a win of this seat."""
    return float(game_result(state, seat) == WIN_VALUE)


def is_draw(state: Mapping[str, Any]) -> float:
    """1 for a draw."""
    return float(state.get("winner") == "draw")


def is_loss(state: Mapping[str, Any], seat: str) -> float:
    """1 for a loss or an unfinished game."""
    return float(game_result(state, seat) == 0.0)


FORMAT_WEIGHT, INVALID_WEIGHT = 0.2, -0.1


def game_rubric() -> Rubric:
    """The training reward: result + 0.2 x format - 0.1 if any answer was refused. Won, drawn and lost are metrics."""
    counted = [metric(is_win, name="win"), metric(is_draw, name="draw"), metric(is_loss, name="loss")]
    return Rubric(
        Reward(game_result, name="result"),
        Reward(answer_format, FORMAT_WEIGHT, name="format"),
        Reward(invalid, INVALID_WEIGHT),
        *counted,
    )


EVAL_GAMES = 100
"""Games of the `eval` split against each fixed opponent."""


def stratified_tasks(seed: int, step: int, groups: int = 32, *, low: float = 0.0, high: float = 0.7) -> list[Task]:
    """The `groups` tasks of one step, so that every batch spans all difficulties.

    Task i meets a mixed opponent whose share of random moves is uniform in the i-th of `groups` equal slices of
    `low` to `high`. Equal arguments give equal tasks.
    """
    rng = Random(f"tictactoe/{seed}/{step}")
    width = (high - low) / groups
    return [
        Task(
            id=f"tictactoe-train-{seed}-{step}-{i}",
            info={"opponent": "mixed", "random": low + (i + rng.random()) * width},
        )
        for i in range(groups)
    ]


def train_tasks(seed: int, groups: int = 32, *, low: float = 0.0, high: float = 0.7) -> Iterator[Task]:
    """`stratified_tasks` of step 0, 1, 2 and so on, for ever."""
    for step in count():
        yield from stratified_tasks(seed, step, groups, low=low, high=high)


def eval_tasks(opponents: Sequence[str] = tuple(FIXED_OPPONENTS), games: int = EVAL_GAMES) -> list[Task]:
    """`games` games against each opponent; X opens every other one."""
    return [
        Task(id=f"tictactoe-eval-{name}-{n}", info={"opponent": name, "first": n % 2 == 0})
        for name in opponents
        for n in range(games)
    ]


def duel_tasks(split: str) -> Iterator[Task]:
    """Endless games that X and O open in turn."""
    return (Task(id=f"tictactoe-duel-{split}-{n}", info={"first": n % 2 == 0}) for n in count())


AGENT_TURNS = 7
"""Answers of X in one game."""
SEAT_BY_MARK: Mapping[Mark, str] = {"X": "agent", "O": "opponent"}
PARSER_BY_MARK: Mapping[Mark, Callable[[str], ParsedMove]] = {"X": read, "O": parse_typed_move}


class TicTacToeDuel(Environment):
    """X sits at `agent` and reads exactly what it reads in the one-seat game; O sits at `opponent`.

    O may answer with a bare digit and may be refused as often as the limits allow; X has 7 answers, as in the one-seat
    game. `info` takes `first`, `board` and `last`. The last board and the winner stand in the state.
    """

    seats = ("agent", "opponent")
    limits = Limits(max_turns=64)
    rubric = Rubric(Reward(game_result, name="result"))

    def __init__(self, *, wording: str = "compact"):
        self.wording = wording_named(wording)

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """Endless games, opened by X and by O in turn."""
        return duel_tasks(split)

    async def run(self, episode: Episode) -> None:
        """Play one game."""
        match = TicTacToeMatch(episode, "opponent")
        mark, event = match.turn, match.last
        while not match.over:
            agent = episode.agents[SEAT_BY_MARK[mark]]
            if mark == "X" and match.state["turns"] >= AGENT_TURNS:
                raise StopEpisode("max_turns")
            head = () if agent.trajectory.turns else (self.wording.role(mark),)
            answer = await agent.act(*head, self.wording.show(mark, event, match.board))
            refused = match.play_answer(PARSER_BY_MARK[mark](answer.content), mark)
            if refused is None:
                mark, event = other_mark(mark), match.last
            else:
                event = refused
