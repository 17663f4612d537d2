"""The scripted, imperfect teacher (`tictactoe_teacher`), and games from positions that the policy could play better
(`StartPositions`).

The teacher reads the board from the message, and answers in the asked form. On each move it plays anywhere with
probability `ERROR_PROBABILITY`; else, with probability `BLOCK_PROBABILITY`, as perfect play would, and otherwise as is
best against a random opponent, which perfect play punishes. Exact shares as X, who opens half of the games, found by
dynamic programming, beside the published teacher's (100 games each):

| win / draw / loss in % | teacher             | published   |
|------------------------|---------------------|-------------|
| against random moves   | 89.45 / 7.51 / 3.04 | 90 / 9 / 1  |
| against perfect play   | 0 / 75.79 / 24.21   | 0 / 76 / 24 |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from random import Random
from statistics import fmean
from typing import Any

from wanderlust.environments.tictactoe.game import stratified_tasks
from wanderlust.environments.tictactoe.prompts import find_board
from wanderlust.environments.tictactoe.rules import board_after, draw_move, free, game_outcome, uniform_opponent, wins
from wanderlust.environments.tictactoe.solver import (
    MoveDistribution,
    best_response,
    boards_of,
    minimax_player,
    random_player,
)
from wanderlust.policies.base import NOT_SAMPLED
from wanderlust.policies.scripted import Script, Scripted
from wanderlust.tasks.curriculum import NamedCurriculum
from wanderlust.types import Group, Message, Rollout, Task


@dataclass(slots=True, kw_only=True)
class StartPosition:
    """The statistics of a board on which X is to move."""

    moves: Sequence[str]
    """The moves of the latest game that came there."""
    answers: Sequence[str]
    """The answers of X in it."""
    reach: float = 0.0
    """Number of games that came there; older games count less."""
    regret: float = 0.0
    """The best reward of a group less the policy's mean, averaged over the groups started here."""
    worth: float = 0.0
    """The policy's mean reward from here."""
    started: int = 0

    def learn(self, regret: float, worth: float) -> None:
        """Update with the result of one more group."""
        old = 0.5 if self.started else 0.0
        self.regret += (1 - old) * (regret - self.regret)
        self.worth += (1 - old) * (worth - self.worth)
        self.started += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWeights:
    """The terms of a position's weight."""

    unseen: float = 0.3
    """Weight of a position that no group has started from yet."""
    floor: float = 0.02
    """Least weight."""
    short: float = 0.1
    """Weight of a lost reward, beside 1 for regret."""
    keep: float = 0.9
    """Share of `reach` that is left after a step."""
    passed_through: float = 0.25
    """Weight in `reach` of a game that started from a position, beside 1 for a whole game."""

    def of(self, at: StartPosition, best: float) -> float:
        """The weight of one position, where `best` is the highest reward met anywhere."""
        room = max(at.regret + self.short * (best - at.worth), self.floor) if at.started else self.unseen
        return at.reach * room


@dataclass(slots=True, kw_only=True)
class StartPositions:
    """Some groups play whole games, the others start from positions that the policy reaches and can still learn from.

    They start with the conversation of a game that came there (as ExIt does, arXiv 2509.04575), or for the share `bare`
    with the board alone: a model may answer differently on the same board with and without the earlier conversation,
    and must learn both to answer by the board.

    A position's weight is the number of recent games that reached it, times the regret of the groups that started
    there: the group's best reward less the mean of the rollouts that the policy played alone (as MaxMC in robust
    prioritised level replay, arXiv 2110.02439). One that was only passed through counts as `unseen`; a settled one
    keeps `floor`, so that it is tried again.

    Opponents are stratified over 0 to `high` in both kinds of groups; those met half-way are stronger by the factor
    `late`. At first they all play perfectly, and grow weaker over `ramp` steps: against opponents that overlook threats
    it pays to overlook theirs, until the policy can go on from a block.
    """

    seed: int
    high: float = 1.0
    """Largest share of random moves."""
    late: float = 0.7
    """Factor on that share in games from a position."""
    ramp: int = 150
    """Steps until `high` is reached."""
    whole: float = 0.33
    """Share of the groups that play whole games."""
    bare: float = 0.5
    """Share of the late starts that are shown the board alone."""
    weights: StartWeights = field(default_factory=StartWeights)
    best: float = 0.0
    """Highest reward met."""
    positions: dict[str, StartPosition] = field(default_factory=dict)
    """By board."""
    boards: set[str] = field(default_factory=set)
    """All boards on which X was to move."""

    def next(self, step: int, count: int) -> list[Task]:
        """`count` tasks; before any position is known all of them are whole games."""
        rng = Random(f"starts/{self.seed}/{step}")
        tasks = stratified_tasks(self.seed, step, count, high=self.high * min(1.0, step / max(self.ramp, 1)))
        count_late = round(count * (1 - self.whole))
        places = rng.sample(range(count), count_late)
        # weighted draws without replacement (Efraimidis & Spirakis 2006)
        weights = {board: self.weights.of(at, self.best) for board, at in self.positions.items()}
        keys = {board: rng.random() ** (1 / weight) for board, weight in weights.items() if weight > 1e-6}
        boards = sorted(keys, key=lambda board: keys[board], reverse=True)[:count_late]
        for index, board in zip(places, boards, strict=False):
            task, at = tasks[index], self.positions[board]
            talk = {"moves": at.moves, "answers": at.answers}
            alone = {"board": board, "last": int(at.moves[-1][1])}
            start = alone if rng.random() < self.bare else talk
            tasks[index] = Task(id=task.id, info={**task.info, "random": self.late * task.info["random"], **start})
        for at in self.positions.values():
            at.reach *= self.weights.keep
        return tasks

    def observe(self, group: Group) -> None:
        """Record every position that the policy reached, and the group's result for the one it started from."""
        own = [
            rollout
            for rollout in group.rollouts
            if not any(one.turns and one.turns[0].finish == NOT_SAMPLED for one in rollout.trajectories)
        ] or group.rollouts
        info, start = group.task.info, None
        if "board" in info or "moves" in info:
            start = self.positions[info["board"] if "board" in info else board_after(info["moves"])]
        played = [rollout.state for rollout in group.rollouts if rollout.error is None]
        self.boards.update(board for state in played for board in boards_of(state["moves"], state["start"]))
        for rollout in own:
            self._enter(rollout, start, (self.weights.passed_through if start else 1.0) / len(own))
        rewards = [t.score.reward for r in own for t in r.trajectories if t.score is not None]
        self.best = max([self.best, *group.rewards])
        if start is not None and rewards:
            start.learn(max(group.rewards) - fmean(rewards), fmean(rewards))

    def _enter(self, rollout: Rollout, start: StartPosition | None, weight: float) -> None:
        """Record the positions of one game. Games with a refused answer are left out: they are no start for others."""
        state = rollout.state
        if state.get("invalid", 0):
            return
        before = list(start.moves) if start is not None else []
        answers = [*(start.answers if start is not None else ()), *(t.action.content for t in rollout.trajectory.turns)]
        moves = before + state.get("moves", [])[state["given"] :]
        for end in range(len(before) + 1, len(moves) + 1):
            board = board_after(moves[:end])
            if moves[end - 1][0] == "O" and game_outcome(board) is None:
                at = self.positions.setdefault(board, StartPosition(moves=(), answers=()))
                at.moves, at.answers, at.reach = moves[:end], answers[: board.count("X")], at.reach + weight

    def state(self) -> dict[str, Any]:
        """The statistics as plain data."""
        positions = {board: asdict(at) for board, at in self.positions.items()}
        return {"best": self.best, "positions": positions, "boards": sorted(self.boards)}

    def metrics(self) -> dict[str, float]:
        """Number of boards met."""
        return {"boards_seen": float(len(self.boards))}

    def restore(self, state: dict[str, Any]) -> None:
        """Load saved statistics."""
        self.best = state["best"]
        self.positions = {board: StartPosition(**at) for board, at in state["positions"].items()}
        self.boards = set(state["boards"])


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSettings:
    """Settings of `tictactoe-starts`: the fields of `StartPositions` of the same names."""

    high: float = 1.0
    ramp: int = 150
    whole: float = 0.33


START_POSITIONS = NamedCurriculum(
    make=lambda env, seed, settings: StartPositions(seed=seed, **asdict(settings)), settings=StartSettings
)
"""`--curriculum tictactoe-starts`, for games against opponents that grow weaker."""


ERROR_PROBABILITY = 0.08
"""Probability of a uniformly random legal move."""
BLOCK_PROBABILITY = 0.5
"""Probability of a minimax-best move, when there is no error."""

daring_player = best_response(uniform_opponent)
"""X as is best against random moves, which perfect play punishes."""

MOVE_REASONS = ("win", "block", "open")
"""Every word that `move_reason` can say."""


def teacher_player(error: float = ERROR_PROBABILITY, caution: float = BLOCK_PROBABILITY) -> MoveDistribution:
    """The teacher's distribution over moves."""
    parts = (
        (error, random_player),
        ((1 - error) * caution, minimax_player),
        ((1 - error) * (1 - caution), daring_player),
    )

    def moves(board: str) -> Mapping[int, float]:
        return {cell: sum(weight * part(board).get(cell, 0.0) for weight, part in parts) for cell in free(board)}

    return cache(moves)


class MovePolicy(Scripted):
    """A scripted policy whose distribution over moves is known, so that its figures can be computed."""

    def __init__(self, script: Script, moves: MoveDistribution):
        super().__init__(script)
        self.moves = moves


def tictactoe_teacher(error: float = ERROR_PROBABILITY, caution: float = BLOCK_PROBABILITY) -> MovePolicy:
    """The teacher as a policy that plays X; it fails when the last message shows no board."""
    moves = teacher_player(error, caution)

    def answer(messages: Sequence[Message], rng: Random) -> str:
        board = find_board(messages[-1].content)
        if board is None:
            raise ValueError("the teacher finds no board in the last message")
        move = draw_move(moves(board), rng)
        return f"<think>{move_reason(board, move)}</think><move>{move}</move>"

    return MovePolicy(answer, moves)


def move_reason(board: str, move: int) -> str:
    """The effect of X's `move` in one word: it wins, it blocks a line of O, or neither."""
    if move in wins(board, "X"):
        return "win"
    return "block" if move in wins(board, "O") else "open"


def worth_learning(rollout: Rollout) -> bool:
    """Whether a teacher's game is kept for warm-up: won or drawn, and every message well-formed."""
    return rollout.state.get("winner") in ("X", "draw") and rollout.state["malformed"] == 0


def suggest_move(messages: Sequence[Message], rng: Random, nth: int) -> str | None:
    """A legal move with its reason, for exploration; None when the last message shows no board.

    Equal draws give another move for every `nth`, until there is no other.
    """
    board = find_board(messages[-1].content)
    if board is None:
        return None
    cells = list(free(board))
    rng.shuffle(cells)
    move = cells[nth % len(cells)]
    return f"<think>{move_reason(board, move)}</think><move>{move}</move>"
