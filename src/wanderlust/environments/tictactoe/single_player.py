"""Tic-tac-toe for one seat, text in, text out: a whole game against a scripted opponent, and a single legal move."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import Any, ClassVar

from wanderlust.environment import Environment, Episode, Limits, SingleTurnEnvironment
from wanderlust.environments.tictactoe.exact import exact_rows
from wanderlust.environments.tictactoe.game import (
    AGENT_TURNS,
    TicTacToeDuel,
    TicTacToeMatch,
    eval_tasks,
    game_rubric,
    train_tasks,
)
from wanderlust.environments.tictactoe.prompts import BOARD_VIEWS, read, view_trajectory, wording_named
from wanderlust.environments.tictactoe.rules import (
    EMPTY_BOARD,
    draw_move,
    free,
    game_outcome,
    opponent_named,
    other_mark,
    place_mark,
)
from wanderlust.environments.tictactoe.teacher import suggest_move, tictactoe_teacher, worth_learning
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Reward, Rubric
from wanderlust.types import Message, Policy, Rollout, RubricLike, Task, Trajectory, assistant, system, user


class TicTacToe(Environment):
    """Tic-tac-toe against a scripted opponent.

    At most 7 answers; a refused answer is reported, counted, and the game goes on.

    A task's `info`: `opponent` (`mixed`, `random`, `optimal`, `greedy`), for `mixed` the share `random` of random
    moves, `first` (whether X opens; without it a coin of the episode); to start in the middle of a conversation, the
    `moves` so far (`X4`, `O0`, ...) and the answers that X `said` with each of its own; or to join a game half-way, its
    `board` (X to move) and `last`, the cell of O that is shown as its latest move there. The opponent's draws are keyed
    by task, seed and board: rollouts of a group get the same reply on the same board.

    The tasks of `train` are endless, in runs of `groups` with difficulty spread evenly over `low` to `high`; those of
    `eval` are 100 games against each fixed opponent, half of them opened by X. With `views` a warm-up imitates the
    teacher's good games alone, in all eight views of the board.
    """

    limits = Limits(max_turns=AGENT_TURNS)
    rubric: RubricLike | None = game_rubric()
    duel: ClassVar[type[Environment]] = TicTacToeDuel
    """The same game with a second seat, for a person or another policy."""
    players: Mapping[str, Callable[[], Policy]] = {
        "teacher": tictactoe_teacher,
        "random": partial(tictactoe_teacher, error=1.0),
        "optimal": partial(tictactoe_teacher, error=0.0, caution=1.0),
    }
    """Scripted policies that play X."""
    read = staticmethod(read)
    """The parser of an answer."""
    group_by = "opponent"
    """The key of `info` that an evaluation is broken down by."""

    def __init__(
        self,
        *,
        wording: str = "compact",
        groups: int = 32,
        low: float = 0.0,
        high: float = 0.7,
        seed: int = 0,
        views: bool = False,
    ):
        self.worded, self.wording, self.views = wording, wording_named(wording), views
        self.groups, self.low, self.high, self.seed = groups, low, high, seed

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """The tasks of `train` or `eval`."""
        if split == "train":
            return train_tasks(self.seed, self.groups, low=self.low, high=self.high)
        if split == "eval":
            return eval_tasks()
        raise UsageError(f"tic-tac-toe has no split {split!r}: one of train, eval")

    def oracle(self, task: Task) -> Policy:
        """Plays perfectly."""
        return tictactoe_teacher(error=0.0, caution=1.0)

    def demonstrations(self, rollouts: Sequence[Rollout]) -> list[Trajectory]:
        """The teacher's games; with `views` those worth learning, whole or joined half-way in every other view."""
        if not self.views:
            return super().demonstrations(rollouts)
        return [
            view_trajectory(game, view, self.wording, join=join)
            for n, game in enumerate(filter(worth_learning, rollouts))
            for i, view in enumerate(BOARD_VIEWS)
            if (join := 0 if (n + i) % 2 else 1 + (n + i // 2) % max(len(game.trajectory.turns) - 1, 1))
            < len(game.trajectory.turns)
        ]

    def first_move(self, messages: Sequence[Message], rng: Random, nth: int) -> str | None:
        """A legal move with its reason."""
        return suggest_move(messages, rng, nth)

    async def exact(self, policy: Policy, *, name: str) -> list[dict[str, Any]]:
        """Exact shares of a deterministic policy, or of one of `players`, against each fixed opponent."""
        return await exact_rows(policy, name=name, wording=self.worded)

    async def run(self, episode: Episode) -> None:
        """Play one game."""
        name, random = episode.task.info.get("opponent", "mixed"), episode.task.info.get("random", 0.5)
        reply, match = opponent_named(name, random), TicTacToeMatch(episode, name)
        match.state["random"] = random if name == "mixed" else None
        talk, answers = [self.wording.role("X")], iter(episode.task.info.get("answers", ()))
        for move in episode.task.info.get("moves", ()):
            if move.startswith("X"):
                talk += [self.wording.show("X", match.last, match.board), assistant(next(answers, ""))]
            match.play_given(move)
        head = tuple(talk)
        if match.turn == "O":
            match.place(draw_move(reply(match.board), episode.rng(match.board)), "O")
        event = match.last
        while True:
            answer = await episode.agent.act(*head, self.wording.show("X", event, match.board))
            head, refused = (), match.play_answer(self.read(answer.content))
            if refused is not None:
                event = refused
                continue
            if not match.over:
                match.place(draw_move(reply(match.board), episode.rng(match.board)), "O")
            if match.over:
                return
            event = match.last


LEGAL_MOVE_RULES = (
    "Tic-tac-toe. You are X. Take one of the numbered cells, which are free. Answer with its number inside move tags."
)
LEGAL_MOVE_PATTERN = re.compile(r"<move>([1-9])</move>")
LEGAL_MOVE_EXAMPLES: tuple[Message, ...] = (
    system(LEGAL_MOVE_RULES),
    *(user("X 2 O\n4 X 6\n7 8 O"), assistant("<move>6</move>")),
    *(user("1 2 3\nO X 6\n7 O X"), assistant("<move>1</move>")),
)
LEGAL_MOVE_EVAL_TASKS = 100
"""Boards of the `eval` split."""


def render_numbered_board(board: str) -> str:
    """The board in three lines; free cells are numbers from 1 to 9."""
    cells = [str(n + 1) if mark == "." else mark for n, mark in enumerate(board)]
    return "\n".join(" ".join(cells[row : row + 3]) for row in (0, 3, 6))


def draw_board(rng: Random) -> str:
    """A board that is not decided, with two to six marks on it, O to have moved last."""
    while True:
        board, mark = EMPTY_BOARD, "X" if rng.random() < 0.5 else "O"
        for _ in range(rng.choice((2, 4, 6)) if mark == "X" else rng.choice((3, 5))):
            board = place_mark(board, rng.choice(free(board)), mark)  # type: ignore[arg-type]
            mark = other_mark(mark)  # type: ignore[arg-type]
        if game_outcome(board) is None:
            return board


def legal(completion: str, task: Task) -> float:
    """1 when the whole answer is a free cell in its tags."""
    match = LEGAL_MOVE_PATTERN.fullmatch(completion.strip())
    return float(match is not None and int(match[1]) - 1 in free(task.info["board"]))


def move_format(completion: str) -> float:
    """0.2 for a digit in its tags, whatever stands around them."""
    return 0.2 * (LEGAL_MOVE_PATTERN.search(completion) is not None)


class LegalMove(SingleTurnEnvironment):
    """One legal move of tic-tac-toe, after two examples.

    Boards are drawn by number: `train` is endless, and has none of the boards of `eval`. It teaches the form alone: any
    free cell is right, and whoever copies a number from the board earns everything. `chance_bar` says so.
    """

    limits = Limits(max_turns=1)
    chance_bar = 1.2
    rubric = Rubric(legal, Reward(move_format, name="format"))

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Boards with two examples before them."""
        held_out = [draw_board(Random(f"legal/eval/{n}")) for n in range(LEGAL_MOVE_EVAL_TASKS)]
        for n in count() if split == "train" else range(LEGAL_MOVE_EVAL_TASKS):
            board = draw_board(Random(f"legal/{split}/{n}"))
            if split == "train" and board in held_out:
                continue
            yield Task(
                id=f"{split}-{n}",
                prompt=(*LEGAL_MOVE_EXAMPLES, user(render_numbered_board(board))),
                info={"board": board},
            )

    def oracle(self, task: Task) -> Policy:
        """Takes the first free cell."""
        answer = f"<move>{free(task.info['board'])[0] + 1}</move>"
        return Scripted([answer])
