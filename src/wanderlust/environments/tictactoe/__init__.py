"""Tic-tac-toe: the game, its opponents and teacher, exact evaluation, opponent lint. Needs no torch."""

from wanderlust.environments.tictactoe.duel import TicTacToeDuel
from wanderlust.environments.tictactoe.environment import TicTacToe
from wanderlust.environments.tictactoe.exact import OPENINGS, Figures, Tree, exact
from wanderlust.environments.tictactoe.lint import boards_of, coverage, lint, reach
from wanderlust.environments.tictactoe.reward import game_rubric
from wanderlust.environments.tictactoe.rules import OPPONENTS, greedy, mixed, opponent, optimal, uniform
from wanderlust.environments.tictactoe.solution import (
    best_response,
    minimax_player,
    random_player,
    reachable,
    solve,
)
from wanderlust.environments.tictactoe.tasks import eval_tasks, stratified_tasks, train_tasks
from wanderlust.environments.tictactoe.teacher import reason, teacher, teacher_player, worth_learning

__all__ = [
    "OPENINGS",
    "OPPONENTS",
    "Figures",
    "TicTacToe",
    "TicTacToeDuel",
    "Tree",
    "best_response",
    "boards_of",
    "coverage",
    "eval_tasks",
    "exact",
    "game_rubric",
    "greedy",
    "lint",
    "minimax_player",
    "mixed",
    "opponent",
    "optimal",
    "random_player",
    "reach",
    "reachable",
    "reason",
    "solve",
    "stratified_tasks",
    "teacher",
    "teacher_player",
    "train_tasks",
    "uniform",
    "worth_learning",
]
