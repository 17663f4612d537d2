"""The scripted, imperfect teacher: reads the board from the text it is shown, answers in the asked form.

On each move it plays anywhere with probability `ERROR_PROBABILITY`; else, with probability `BLOCK_PROBABILITY`, as perfect play would,
and otherwise as pays best against a random opponent, which perfect play punishes. Exact shares as X, who opens half
of the games, found by dynamic programming, beside the published teacher's (100 games each):

| win / draw / loss in % | teacher             | published   |
|------------------------|---------------------|-------------|
| against random moves   | 89.45 / 7.51 / 3.04 | 90 / 9 / 1  |
| against perfect play   | 0 / 75.79 / 24.21   | 0 / 76 / 24 |

Games from the start, and games from positions that the policy runs into and could play better.
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
from wanderlust.environments.tictactoe.solver import MoveDistribution, best_response, minimax_player, random_player
from wanderlust.policies.local import NOT_SAMPLED
from wanderlust.policies.scripted import Script, Scripted
from wanderlust.types import Group, Message, Rollout, Task


@dataclass(slots=True, kw_only=True)
class StartPosition:
    """What is known of a board on which X is to move."""

    moves: Sequence[str]
    """How the latest game came there."""
    answers: Sequence[str]
    """What X said in it."""
    reach: float = 0.0
    """How many games ran into it lately."""
    regret: float = 0.0
    """By how much the best sibling did better than the policy's mean, averaged over the groups started here."""
    worth: float = 0.0
    """The policy's mean reward from here."""
    started: int = 0

    def learn(self, regret: float, worth: float) -> None:
        """Take in what one more group came to."""
        old = 0.5 if self.started else 0.0
        self.regret += (1 - old) * (regret - self.regret)
        self.worth += (1 - old) * (worth - self.worth)
        self.started += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWeights:
    """How positions are weighed against each other."""

    unseen: float = 0.3
    """Of one that was not started from yet."""
    floor: float = 0.02
    """Least one."""
    short: float = 0.1
    """What a reward lost counts, beside 1 for regret."""
    keep: float = 0.9
    """Share of `reach` that is left after a step."""
    passed_through: float = 0.25
    """What a game from a position counts in `reach`, beside 1 for a whole game."""

    def of(self, at: StartPosition, best: float) -> float:
        """The weight of one position, where `best` is the highest reward met anywhere."""
        room = max(at.regret + self.short * (best - at.worth), self.floor) if at.started else self.unseen
        return at.reach * room


@dataclass(slots=True, kw_only=True)
class StartPositions:
    """Some groups play whole games, the others start where the policy comes by and has something to learn.

    They start with the conversation of a game that came there (as ExIt does, arXiv 2509.04575), or for the share
    `bare` with the board alone: a model that reads the same board with and without what was said before may answer
    otherwise, and must learn both to answer by the board.

    A position's weight is how often recent games ran into it, times the regret of the groups that started there:
    the best sibling's reward less the mean of those that the policy played alone (as MaxMC in robust prioritised
    level replay, arXiv 2110.02439). One that was only passed through counts as `unseen`, a settled one keeps
    `floor`, so that it is looked at again.

    Opponents are stratified over 0 to `high` in both kinds of groups, those met half-way being stronger by the factor
    `late`. At first they all play perfectly, and grow weaker over `ramp` steps: against opponents that overlook
    threats it pays to overlook theirs, until one knows how to go on from a block.
    """

    seed: int
    high: float = 1.0
    """Largest share of random moves."""
    late: float = 0.7
    """What that share is multiplied by in games from a position."""
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

    def next(self, step: int, count: int) -> list[Task]:
        """`count` tasks; before any position is known all of them are whole games."""
        rng = Random(f"starts/{self.seed}/{step}")
        tasks = stratified_tasks(self.seed, step, count, high=self.high * min(1.0, step / max(self.ramp, 1)))
        count_late = round(count * (1 - self.whole))
        for index, board in zip(rng.sample(range(count), count_late), self._choose(rng, count_late), strict=False):
            task, at = tasks[index], self.positions[board]
            talk = {"moves": at.moves, "answers": at.answers}
            alone = {"board": board, "last": int(at.moves[-1][1])}
            start = alone if rng.random() < self.bare else talk
            tasks[index] = Task(id=task.id, info={**task.info, "random": self.late * task.info["random"], **start})
        for at in self.positions.values():
            at.reach *= self.weights.keep
        return tasks

    def _choose(self, rng: Random, count: int) -> list[str]:
        """Weighted draws without replacement (Efraimidis & Spirakis 2006)."""
        weights = {board: self.weights.of(at, self.best) for board, at in self.positions.items()}
        keys = {board: rng.random() ** (1 / weight) for board, weight in weights.items() if weight > 1e-6}
        return sorted(keys, key=lambda board: keys[board], reverse=True)[:count]

    def observe(self, group: Group) -> None:
        """Enter every position the policy ran into, and what the group says of the one it started from."""
        own = [rollout for rollout in group.rollouts if not self._has_unsampled_start(rollout)] or group.rollouts
        info = group.task.info
        start = (
            self.positions[info["board"] if "board" in info else board_after(info["moves"])]
            if _starts_late(group)
            else None
        )
        for rollout in own:
            self._enter(rollout, start, (self.weights.passed_through if start else 1.0) / len(own))
        rewards = [t.score.reward for r in own for t in r.trajectories if t.score is not None]
        self.best = max([self.best, *group.rewards])
        if start is not None and rewards:
            start.learn(max(group.rewards) - fmean(rewards), fmean(rewards))

    def _has_unsampled_start(self, rollout: Rollout) -> bool:
        """Whether the first answer was not the policy's own."""
        return any(t.turns and t.turns[0].finish == NOT_SAMPLED for t in rollout.trajectories)

    def _enter(self, rollout: Rollout, start: StartPosition | None, weight: float) -> None:
        """Games with a refused answer are left out: what was said in them is not to be gone on with."""
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
        """What is known of the positions."""
        return {"best": self.best, "positions": {board: asdict(at) for board, at in self.positions.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from saved knowledge."""
        self.best = state["best"]
        self.positions = {board: StartPosition(**at) for board, at in state["positions"].items()}


def _starts_late(group: Group) -> bool:
    return bool({"board", "moves"} & set(group.task.info))


ERROR_PROBABILITY = 0.08
"""Probability of a uniformly random legal move."""
BLOCK_PROBABILITY = 0.5
"""Probability of a minimax-best move, when there is no error."""

MOVE_REASONS = ("win", "block", "open")
"""Every word that `move_reason` can say."""


def teacher_player(error: float = ERROR_PROBABILITY, caution: float = BLOCK_PROBABILITY) -> MoveDistribution:
    """The teacher's distribution over moves."""
    parts = (
        (error, random_player),
        ((1 - error) * caution, minimax_player),
        ((1 - error) * (1 - caution), _daring()),
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
    """One word that says what X's `move` does: it wins, it blocks a line of O, or neither."""
    if move in wins(board, "X"):
        return "win"
    return "block" if move in wins(board, "O") else "open"


def worth_learning(rollout: Rollout) -> bool:
    """Whether a teacher's game is kept for warm-up: won or drawn, and every message well-formed."""
    return rollout.state.get("winner") in ("X", "draw") and rollout.state["malformed"] == 0


@cache
def _daring() -> MoveDistribution:
    return best_response(uniform_opponent)


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
