"""Tic-tac-toe: the game, its opponents and teacher, exact evaluation, opponent lint. Needs no torch."""

from wanderlust.environments.tictactoe.exact import OPENINGS, ExactFigures, PolicyTree, build_policy_tree
from wanderlust.environments.tictactoe.game import TicTacToeDuel, eval_tasks, game_rubric, stratified_tasks, train_tasks
from wanderlust.environments.tictactoe.rules import (
    FIXED_OPPONENTS,
    greedy_opponent,
    mixed_opponent,
    opponent_named,
    optimal_opponent,
    uniform_opponent,
)
from wanderlust.environments.tictactoe.single_player import TicTacToe
from wanderlust.environments.tictactoe.solver import (
    best_response,
    boards_of,
    coverage,
    lint_opponent,
    minimax_player,
    opponent_reach,
    random_player,
    reachable_boards,
    solve_against,
)
from wanderlust.environments.tictactoe.teacher import move_reason, teacher_player, tictactoe_teacher, worth_learning

__all__ = [
    "FIXED_OPPONENTS",
    "OPENINGS",
    "ExactFigures",
    "PolicyTree",
    "TicTacToe",
    "TicTacToeDuel",
    "best_response",
    "boards_of",
    "build_policy_tree",
    "coverage",
    "eval_tasks",
    "game_rubric",
    "greedy_opponent",
    "lint_opponent",
    "minimax_player",
    "mixed_opponent",
    "move_reason",
    "opponent_named",
    "opponent_reach",
    "optimal_opponent",
    "random_player",
    "reachable_boards",
    "solve_against",
    "stratified_tasks",
    "teacher_player",
    "tictactoe_teacher",
    "train_tasks",
    "uniform_opponent",
    "worth_learning",
]
