"""Grid games: the official score, levels with their shortest solutions, and steps with frames.

Steps are random actions; a session keeps the frames of states that it has met. Solutions are played again from the
first frame on; a second search, written here over `Rules.step` alone, says whether any is too long.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.bar import Bar

from wanderlust_grids.board import Level, Outcome, Rules
from wanderlust_grids.cells import CLICK, FRAME, RESET
from wanderlust_grids.drawing import pixel_of
from wanderlust_grids.game import GameState, GridAction, GridSession
from wanderlust_grids.generation import LEVELS, GridGame, game_keys, make_game
from wanderlust_grids.score import game_score

GAMES = 30
"""Of `train` and of `eval`, for steps."""
SEARCHED_AGAIN = 15
"""Games of each split whose levels the second search solves too."""
ALL_GAMES = {"train": 556, "eval": 556, "private": 555}
"""Games that are made: 10,002 levels."""
SECRET = "the secret of this measurement"
STEPS = 2000
"""Random actions in each game."""
RECORDS = Path(__file__).parents[1] / "environments/grids/tests/arc_scores.json"


def steps_per_second(games: list[GridGame]) -> float:
    """Random actions with their frames, per processor second."""
    seconds = 0.0
    for game in games:
        rng, session = Random(game.key), GridSession(game)
        drawn = rng.choices(game.actions, k=STEPS)
        actions = [GridAction(number=n, x=rng.randrange(FRAME), y=rng.randrange(FRAME)) for n in drawn]
        session.begin()
        began = time.process_time()
        for action in actions:
            if session.perform(action).state is not GameState.NOT_FINISHED:
                session.perform(GridAction(number=RESET))
        seconds += time.process_time() - began
    return STEPS * len(games) / seconds


def solved(game: GridGame) -> int:
    """Levels that their stored solutions solve, one after the other, in just so many actions."""
    session = GridSession(game)
    session.begin()
    for level, solution in zip(game.levels, game.solutions, strict=True):
        for action in solution.actions:
            x, y = pixel_of(level.size, action.cell) if action.number == CLICK else (0, 0)
            session.perform(GridAction(number=action.number, x=x, y=y))
    return sum(taken == least for taken, least in zip(session.level_actions, game.optimum, strict=False))


def shortest_length(rules: Rules, level: Level) -> int:
    """Actions of a shortest solution, by a search of its own."""
    first = rules.begin(level)
    layer, seen, length = {first}, {first}, 0
    while layer:
        length += 1
        results = [rules.step(level, state, action) for state in layer for action in rules.candidates(level)]
        if any(outcome is Outcome.SOLVED for _, outcome in results):
            return length
        layer = {state for state, outcome in results if outcome is Outcome.OPEN} - seen
        seen |= layer
    return 0


def every_level() -> tuple[int, int, int, float]:
    """Make all games: their levels, those that are solved as they should be, too long ones, seconds for each game."""
    made = right = too_long = 0
    seconds = 0.0
    for split, count in ALL_GAMES.items():
        for number, key in enumerate(game_keys(split, count, secret=SECRET)):
            began = time.process_time()
            game = make_game(key)
            seconds += time.process_time() - began
            made, right = made + LEVELS, right + solved(game)
            if number < SEARCHED_AGAIN:
                pairs = zip(game.levels, game.optimum, strict=True)
                too_long += sum(shortest_length(game.rules, level) != least for level, least in pairs)
    return made, right, too_long, seconds / sum(ALL_GAMES.values())


def wrong_scores() -> int:
    """Records whose score differs from that of the official calculator."""
    records = json.loads(RECORDS.read_text())
    return sum(abs(game_score(actions, least) - score) > 1e-9 for actions, least, score, _ in records)


def bars() -> Iterator[Bar]:
    """Score, solutions, speed."""
    yield Bar(name="grids: official records with another score", figure=wrong_scores(), bar=0, aim=0, note="of 300")
    made, right, too_long, seconds = every_level()
    note = f"{made:,} levels of train, eval and private games; {seconds:.2f} s of processor time to make a game"
    name = "grids: levels that their shortest solution solves"
    yield Bar(name=name, figure=100 * right / made, bar=100, aim=100, unit="%", better="higher", note=note)
    note = f"of {SEARCHED_AGAIN * len(ALL_GAMES) * LEVELS}, by a second search"
    yield Bar(name="grids: levels with a shorter solution", figure=too_long, bar=0, aim=0, note=note)
    games = {split: [make_game(f"{split}-{n}") for n in range(GAMES)] for split in ("train", "eval")}
    name = "grids: game steps with frames per processor second"
    figure = steps_per_second([*games["train"], *games["eval"]])
    yield Bar(name=name, figure=figure, bar=20_000, aim=60_000, better="higher")
