"""Grid games: what players of frames solve on held-out mechanics, and what the learner scores above two of them.

A level may take five times the actions of its shortest solution. The learner is trained here, once for each seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval

from learner_training import LearnerConfig, train_learner
from wanderlust.evals.statistics import difference_over_seeds
from wanderlust_grids.environment import MAX_ACTIONS_FACTOR, MIN_LEVEL_ACTIONS
from wanderlust_grids.game import GridSession
from wanderlust_grids.generation import LEVELS, GridGame, make_game
from wanderlust_grids.learner import Learner
from wanderlust_grids.players import PLAYERS, GridPlayer
from wanderlust_grids.score import game_score

EXAM = range(800, 1200)
"""Numbers of games of `eval` that all figures are measured on. They are no tasks, and were not looked at before."""


def played(game: GridGame, player: Callable[[Random], GridPlayer], seed: str) -> tuple[float, float]:
    """Share of the levels that a player solves, and its score."""
    session, chooses = GridSession(game, level_resets=True), player(Random(f"{seed}/{game.key}"))
    most = [max(MIN_LEVEL_ACTIONS, MAX_ACTIONS_FACTOR * least) for least in game.optimum]
    seen = session.begin()
    while len(session.level_actions) < LEVELS and session.open_actions < most[session.number]:
        seen = session.perform(chooses.choose(seen))
    return len(session.level_actions) / LEVELS, game_score(session.level_actions, game.optimum)


Found = Mapping[str, tuple[float, float]]
"""By game, what `played` returns."""


def bars() -> Iterator[Bar]:
    """Levels that each player solves, and the learner's gains, on the same games."""
    games = [make_game(f"eval-{number}") for number in EXAM]
    players = (
        ("random", 5, "lower"),
        ("change-learner", 0, "higher"),
        ("explorer", 30, "higher"),
        ("seeker", 0, "higher"),
    )
    runs: dict[str, list[Found]] = {}
    for player, bar, better in players:
        runs[player] = [_runs(games, PLAYERS[player], f"{player}/{seed}") for seed in SEEDS]
        mean, half = interval([100 * fmean(levels for levels, _ in run.values()) for run in runs[player]])
        score, doubt = interval([fmean(score for _, score in run.values()) for run in runs[player]])
        note = (
            f"{len(games)} games, 95% interval {mean - half:.1f} to {mean + half:.1f}; "
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
    weights = [train_learner(LearnerConfig(seed=seed)) for seed in SEEDS]
    trained = [
        _runs(games, partial(Learner, weights=one), f"learner/{seed}") for seed, one in zip(SEEDS, weights, strict=True)
    ]
    yield _gain(trained, "explorer", runs["explorer"], promised=True)
    yield _gain(trained, "seeker", runs["seeker"], promised=False)


def _runs(games: Sequence[GridGame], player: Callable[[Random], GridPlayer], seed: str) -> Found:
    return {game.key: played(game, player, seed) for game in games}


def _gain(learner: Sequence[Found], other: str, others: Sequence[Found], *, promised: bool) -> Bar:
    """How much more learners of three trainings score than as many plays of another player, on the same games."""
    scores = [[{key: score for key, (_, score) in run.items()} for run in runs] for runs in (learner, others)]
    gain = difference_over_seeds(scores[0], scores[1], [*learner[0]])
    words = [
        f"`{name}` {fmean(score for run in runs for _, score in run.values()):.2f} and "
        f"{100 * fmean(levels for run in runs for levels, _ in run.values()):.1f}% of the levels"
        for name, runs in (("learner", learner), (other, others))
    ]
    return Bar(
        name=f"grids: least gain in score of `learner` over `{other}` on held-out mechanics, with 95% confidence",
        figure=gain.value if gain.low is None else gain.low,
        bar=0,
        aim=1,
        better="higher",
        note=f"{len(learner[0])} games, three trainings: {gain}; {', '.join(words)}",
        promised=promised,
    )
