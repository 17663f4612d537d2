"""The public names, each from the module that defines it: read when one is first used, and by type checkers."""

from wanderlust_grids.environment import Grids as Grids
from wanderlust_grids.generation import make_game as make_game
from wanderlust_grids.official_folder import export_games as export_games
from wanderlust_grids.score import game_score as game_score
from wanderlust_grids.score import human_baseline as human_baseline
