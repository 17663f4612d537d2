"""Grid games: steps with frames, levels with their shortest solutions, and what players of frames solve.

Steps are random actions; a session keeps the frames of states that it has met. Solutions are played again from the
first frame on; a second search, written here over `Rules.step` alone, says whether any is too long. Players play
held-out mechanics, where a level may take five times the actions of its shortest solution.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval
from wanderlust.data.ablation import difference_over_seeds
from wanderlust.environments.grids.board import Level, Outcome, Rules
from wanderlust.environments.grids.cells import CLICK, FRAME, RESET
from wanderlust.environments.grids.drawing import pixel_of
from wanderlust.environments.grids.environment import MAX_ACTIONS_FACTOR, MIN_LEVEL_ACTIONS
from wanderlust.environments.grids.game import GameState, GridAction, GridSession
from wanderlust.environments.grids.generation import LEVELS, GridGame, game_keys, make_game
from wanderlust.environments.grids.learner import Learner, Weights
from wanderlust.environments.grids.learner_training import LearnerConfig, train_learner
from wanderlust.environments.grids.players import PLAYERS, GraphExplorer, GridPlayer
from wanderlust.environments.grids.score import game_score

GAMES = 30
"""Of `train` and of `eval`, for steps and players."""
SEARCHED_AGAIN = 15
"""Games of each split whose levels the second search solves too."""
ALL_GAMES = {"train": 556, "eval": 556, "private": 555}
"""Games that are made: 10,002 levels."""
SECRET = "the secret of this measurement"
EXAM = range(200, 400)
"""Numbers of games of `eval` for the gain of `learner` over `explorer`: no tasks, and not seen before."""
STEPS = 2000
"""Random actions in each game."""
RECORDS = Path(__file__).parents[1] / "tests/recorded/arc_scores.json"


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


def played(game: GridGame, player: Callable[[Random], GridPlayer], seed: str) -> tuple[float, float]:
    """Share of the levels that a player solves, and its score."""
    session, chooses = GridSession(game, level_resets=True), player(Random(f"{seed}/{game.key}"))
    most = [max(MIN_LEVEL_ACTIONS, MAX_ACTIONS_FACTOR * least) for least in game.optimum]
    seen = session.begin()
    while len(session.level_actions) < LEVELS and session.open_actions < most[session.number]:
        seen = session.perform(chooses.choose(seen))
    return len(session.level_actions) / LEVELS, game_score(session.level_actions, game.optimum)


def wrong_scores() -> int:
    """Records whose score differs from that of the official calculator."""
    records = json.loads(RECORDS.read_text())
    return sum(abs(game_score(actions, least) - score) > 1e-9 for actions, least, score, _ in records)


def bars() -> Iterator[Bar]:
    """Score, solutions, speed, players."""
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
    scores = dict[str, list[float]]()
    players = (
        ("random", 5, "lower"),
        ("change-learner", 0, "higher"),
        ("explorer", 30, "higher"),
        ("learner", 0, "higher"),
    )
    for player, bar, better in players:
        runs = [[played(game, PLAYERS[player], f"{player}/{seed}") for game in games["eval"]] for seed in SEEDS]
        mean, half = interval([100 * fmean(levels for levels, _ in run) for run in runs])
        scores[player] = [fmean(score for _, score in run) for run in runs]
        score, doubt = interval(scores[player])
        note = (
            f"95% interval {mean - half:.1f} to {mean + half:.1f}; "
            f"score {score:.2f} ({score - doubt:.2f} to {score + doubt:.2f})"
        )
        yield Bar(
            name=f"grids: `{player}`, levels of held-out mechanics",
            figure=mean,
            bar=bar,
            aim=bar,
            unit="%",
            better="higher" if better == "higher" else "lower",
            note=note,
            promised=player in ("random", "explorer"),
        )
    yield _gain([train_learner(LearnerConfig(seed=seed)) for seed in SEEDS])


def _gain(trained: Sequence[Weights]) -> Bar:
    """How much more learners of three trainings score than as many plays of the explorer, on the same games."""
    games = [make_game(f"eval-{number}") for number in EXAM]
    scores: dict[str, list[dict[str, float]]] = {"learner": [], "explorer": []}
    levels: dict[str, list[float]] = {"learner": [], "explorer": []}
    for seed, weights in enumerate(trained):
        for name, player in (("learner", partial(Learner, weights=weights)), ("explorer", GraphExplorer)):
            found = {game.key: played(game, player, f"{name}/{seed}") for game in games}
            scores[name].append({key: score for key, (_, score) in found.items()})
            levels[name].append(fmean(share for share, _ in found.values()))
    gain = difference_over_seeds(scores["learner"], scores["explorer"], [game.key for game in games])
    means = {name: fmean(fmean(one.values()) for one in runs) for name, runs in scores.items()}
    words = [f"`{name}` {means[name]:.2f} and {100 * fmean(levels[name]):.1f}% of the levels" for name in means]
    return Bar(
        name="grids: least gain in score of `learner` over `explorer` on held-out mechanics, with 95% confidence",
        figure=gain.value if gain.low is None else gain.low,
        bar=0,
        aim=1,
        better="higher",
        note=f"{len(games)} games, three trainings: {gain}; {', '.join(words)}",
    )
