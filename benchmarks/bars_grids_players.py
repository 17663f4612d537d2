"""Grid games: what players of frames solve on held-out mechanics, and what the learner scores above the explorer.

A level may take five times the actions of its shortest solution. The learner is trained here, once for each seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval
from wanderlust.data.ablation import difference_over_seeds
from wanderlust.environments.grids.environment import MAX_ACTIONS_FACTOR, MIN_LEVEL_ACTIONS
from wanderlust.environments.grids.game import GridSession
from wanderlust.environments.grids.generation import LEVELS, GridGame, make_game
from wanderlust.environments.grids.learner import Learner, Weights
from wanderlust.environments.grids.learner_training import LearnerConfig, train_learner
from wanderlust.environments.grids.players import PLAYERS, GraphExplorer, GridPlayer
from wanderlust.environments.grids.score import game_score

GAMES = 30
"""Of `eval`, for the levels that players solve."""
EXAM = range(200, 400)
"""Numbers of games of `eval` for the gain of `learner` over `explorer`: no tasks, and not seen before."""


def played(game: GridGame, player: Callable[[Random], GridPlayer], seed: str) -> tuple[float, float]:
    """Share of the levels that a player solves, and its score."""
    session, chooses = GridSession(game, level_resets=True), player(Random(f"{seed}/{game.key}"))
    most = [max(MIN_LEVEL_ACTIONS, MAX_ACTIONS_FACTOR * least) for least in game.optimum]
    seen = session.begin()
    while len(session.level_actions) < LEVELS and session.open_actions < most[session.number]:
        seen = session.perform(chooses.choose(seen))
    return len(session.level_actions) / LEVELS, game_score(session.level_actions, game.optimum)


def bars() -> Iterator[Bar]:
    """Levels that each player solves, and the learner's gain."""
    games = [make_game(f"eval-{number}") for number in range(GAMES)]
    players = (
        ("random", 5, "lower"),
        ("change-learner", 0, "higher"),
        ("explorer", 30, "higher"),
        ("learner", 0, "higher"),
    )
    for player, bar, better in players:
        runs = [[played(game, PLAYERS[player], f"{player}/{seed}") for game in games] for seed in SEEDS]
        mean, half = interval([100 * fmean(levels for levels, _ in run) for run in runs])
        score, doubt = interval([fmean(score for _, score in run) for run in runs])
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
