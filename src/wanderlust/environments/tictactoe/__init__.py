"""Tic-tac-toe: the game, its opponents and teacher, exact evaluation, opponent lint. Needs no torch."""

from wanderlust.environments.tictactoe.environment import TicTacToe
from wanderlust.environments.tictactoe.exact import OPENINGS, Figures, Tree, exact
from wanderlust.environments.tictactoe.game import TicTacToeDuel, eval_tasks, game_rubric, stratified_tasks, train_tasks
from wanderlust.environments.tictactoe.rules import OPPONENTS, greedy, mixed, opponent, optimal, uniform
from wanderlust.environments.tictactoe.solver import (
    best_response,
    boards_of,
    coverage,
    lint,
    minimax_player,
    random_player,
    reach,
    reachable,
    solve,
)
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
