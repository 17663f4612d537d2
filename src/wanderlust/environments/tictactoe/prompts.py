"""The messages of the game, and the parsing of answers. Answers are hostile text: any string is accepted.

`view_trajectory` shows a finished game turned or mirrored, or joined later, to learn more from few games.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Literal, NamedTuple

from wanderlust.environments.tictactoe.rules import EMPTY_BOARD, Mark, free, other_mark, place_mark
from wanderlust.errors import UsageError
from wanderlust.types import Message, Rollout, Trajectory, Turn, assistant, system, user

MAX_MOVE_CHARS = 20_000
"""Characters of an answer; a longer one is not read."""

WELL_FORMED_PATTERN = re.compile(r"<think>(?:(?!</?(?:think|move)>).)*</think>\s*<move>([0-9])</move>", re.DOTALL)
MOVE_PATTERN = re.compile(r"<move>\s*([0-9])\s*</move>")
DIGIT_PATTERN = re.compile(r"\s*([0-9])\s*")
ROW_PATTERN = re.compile(r"^[ |]*([XO0-8])[ |]*([XO0-8])[ |]*([XO0-8])[ |]*$", re.MULTILINE)


Refusal = Literal["illegal", "malformed"]
MoveEvent = int | Literal["start", "turn"] | Refusal
"""The event before a player's turn: the other side's move, its own opening, a game under way, a refused answer."""


class ParsedMove(NamedTuple):
    """The parsed answer of a player."""

    move: int | None
    """The cell in the last move tag; None when there is none. Nothing says that it is legal."""
    well_formed: bool
    """Whether the whole message is one think block and one move, and nothing else."""


def read(text: str) -> ParsedMove:
    """The move in a message, and whether the message has the form that was asked for."""
    if len(text) > MAX_MOVE_CHARS:
        return ParsedMove(None, False)
    if exact := WELL_FORMED_PATTERN.fullmatch(text):
        return ParsedMove(int(exact[1]), True)
    moves = MOVE_PATTERN.findall(text)
    return ParsedMove(int(moves[-1]) if moves else None, False)


def parse_typed_move(text: str) -> ParsedMove:
    """Like `read`, for a person: a bare digit is well-formed as well."""
    digit = DIGIT_PATTERN.fullmatch(text[:MAX_MOVE_CHARS])
    return ParsedMove(int(digit[1]), True) if digit else read(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The sentences of the game; `{me}` and `{other}` are marks, `{cell}` a digit."""

    system: str
    start: str
    turn: str
    plays: str
    illegal: str
    malformed: str
    page: str
    """The message of a turn, from `{news}`, `{board}` and the free cells `{cells}`."""
    grid: Callable[[str], str]
    """Draws a board; an empty cell shows its digit."""

    def role(self, mark: Mark) -> Message:
        """The system message of the player of `mark`."""
        return system(self.system.format(me=mark, other=other_mark(mark)))

    def show(self, mark: Mark, event: MoveEvent, board: str) -> Message:
        """The message to the player of `mark` after `event`, before its next move on `board`."""
        return _page(self, mark, event, board=board)


@cache
def _page(wording: Wording, mark: Mark, event: MoveEvent, *, board: str) -> Message:
    sentence = wording.plays if isinstance(event, int) else getattr(wording, event)
    news = sentence.format(me=mark, other=other_mark(mark), cell=event)
    cells = ", ".join(map(str, free(board)))
    return user(wording.page.format(news=news, board=wording.grid(board), cells=cells))


def board_digits(board: str) -> str:
    """The board as nine characters with the digit of each empty cell."""
    return "".join(str(cell) if mark == "." else mark for cell, mark in enumerate(board))


def render_rows(board: str) -> str:
    """Three rows of three characters; an empty cell shows its digit."""
    cells = board_digits(board)
    return f"{cells[:3]}\n{cells[3:6]}\n{cells[6:]}"


def render_ruled(board: str) -> str:
    """Three rows between lines, as on paper; an empty cell shows its digit."""
    lines = (f" {' | '.join(row)} " for row in render_rows(board).split("\n"))
    return "\n---+---+---\n".join(lines)


def find_board(text: str) -> str | None:
    """The last board drawn in a message of either wording; None when there is none."""
    drawn = "".join("".join(row) for row in ROW_PATTERN.findall(text)[-3:])
    return re.sub(r"\d", ".", drawn) if len(drawn) == 9 else None


COMPACT_WORDING = Wording(
    system="You are {me}.",
    start="You start.",
    turn="Your turn.",
    plays="{other} plays {cell}.",
    illegal="Illegal move.",
    malformed="Use the move tags.",
    page="{news}\n{board}",
    grid=render_rows,
)
COURSE_WORDING = Wording(
    system=(
        "You are an expert at tic-tac-toe and play {me} against {other} on a board of three rows and three "
        "columns. Each cell is named by a digit from 0 (top left) to 8 (bottom right); an empty cell shows its "
        "digit. The first side with three marks in a row, in a column or on a diagonal wins.\n\n"
        "On every turn, first think about the position inside <think> and </think>, then name exactly one empty "
        "cell inside <move> and </move>, like this:\n<think>The centre is still free and touches four lines."
        "</think><move>4</move>\nWrite nothing after the closing move tag."
    ),
    start="A new game begins and you have the first move.",
    turn="The game is already under way.",
    plays="Your opponent put {other} on cell {cell}.",
    illegal="That cell cannot be played: choose a cell that is still empty.",
    malformed="No move could be read in your answer: name one cell inside <move> and </move>.",
    page="{news}\n\n{board}\n\nEmpty cells: {cells}\nIt is your turn.",
    grid=render_ruled,
)
WORDINGS: Mapping[str, Wording] = {"compact": COMPACT_WORDING, "course": COURSE_WORDING}


def wording_named(name: str) -> Wording:
    """The wording called `name`. Raises UsageError for an unknown name."""
    if name not in WORDINGS:
        raise UsageError(f"no tic-tac-toe wording {name!r}: one of {', '.join(WORDINGS)}")
    return WORDINGS[name]


_QUARTER = (2, 5, 8, 1, 4, 7, 0, 3, 6)
_MIRROR = (2, 1, 0, 5, 4, 3, 8, 7, 6)


_TURNED = list(accumulate(range(3), lambda view, _: tuple(_QUARTER[cell] for cell in view), initial=tuple(range(9))))
BOARD_VIEWS = (*_TURNED, *(tuple(_MIRROR[cell] for cell in view) for view in _TURNED))
"""The eight symmetries of the board: for each of its four turns and their mirror images, the new place of each cell."""


def view_trajectory(rollout: Rollout, view: tuple[int, ...], words: Wording, *, join: int = 0) -> Trajectory:
    """X's trajectory of a finished, legally played game as it would read on the board turned by `view`.

    `join` leaves out X's first turns: the conversation then begins with the position as it stood. Reasons are
    kept word for word, so they must not name cells.
    """
    board, turns = EMPTY_BOARD, list[Turn]()
    event: MoveEvent = "start" if rollout.state["first"] else 0
    answers = [turn.action for turn in rollout.trajectory.turns]
    for move in rollout.state["moves"]:
        cell = view[int(move[1])]
        if move[0] == "X":
            number = sum(mark == "X" for mark in board)
            if number >= join:
                head: tuple[Message, ...] = () if turns else (words.role("X"),)
                observation = words.show("X", event, board)
                action = assistant(MOVE_PATTERN.sub(f"<move>{cell}</move>", answers[number].content))
                turns.append(Turn(observation=(*head, observation), action=action))
        board = place_mark(board, cell, move[0])
        event = cell
    return Trajectory(turns=turns)
