"""Trains the weights of `learner` on games whose mechanics are those of `train`, by policy gradient (REINFORCE).

`python -m wanderlust.environments.grids.learner_training --out weights.json` makes the weights that the package ships.
Equal seeds and settings give equal weights, to the digit. A solved level is worth half a point, and up to one more
by its score; rewards are discounted by the action. Williams (1992), doi:10.1007/BF00992696.
"""

from __future__ import annotations

import json
import math
import sys
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

from wanderlust.environments.grids.environment import MAX_ACTIONS_FACTOR, MIN_LEVEL_ACTIONS
from wanderlust.environments.grids.game import GridSession
from wanderlust.environments.grids.generation import LEVELS, GridGame, make_game
from wanderlust.environments.grids.learner import Decision, Learner, option_shares
from wanderlust.environments.grids.score import level_score

FIRST_GAME = 1000
"""Games before it are tasks of the split `train`, and stay for measuring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """Settings of a training: `LearnerConfig(steps=20)` for a quick look."""

    steps: int = 70
    games_per_step: int = 24
    games: int = 160
    """Different ones that are drawn from."""
    learning_rate: float = 0.05
    discount: float = 0.97
    """By the action."""
    entropy: float = 0.01
    seed: int = 0


OnStep = Callable[[int, float], None]
"""Called with a step's number, and the share of the levels that its games have solved."""


def train_learner(
    config: LearnerConfig | None = None, *, on_step: OnStep = lambda step, solved: None
) -> dict[str, float]:
    """Train weights from zero, and return them by the names of features."""
    config = LearnerConfig() if config is None else config
    games = [make_game(f"train-{FIRST_GAME + number}") for number in range(config.games)]
    weights, means, squares = (
        defaultdict[str, float](float),
        defaultdict[str, float](float),
        defaultdict[str, float](float),
    )
    for step in range(1, config.steps + 1):
        plays = [_play(games, weights, config, key=f"{config.seed}/{step}/{n}") for n in range(config.games_per_step)]
        slope = policy_gradient([one for play in plays for one in play.choices], weights, entropy=config.entropy)
        for name, value in slope.items():  # Adam, whose means of names that were not met stay as they are
            means[name] = 0.9 * means[name] + 0.1 * value
            squares[name] = 0.98 * squares[name] + 0.02 * value**2
            mean, square = means[name] / (1 - 0.9**step), squares[name] / (1 - 0.98**step)
            weights[name] += config.learning_rate * mean / (math.sqrt(square) + 1e-8)
        on_step(step, fmean(play.solved for play in plays))
    return {name: round(value, 4) for name, value in sorted(weights.items())}


@dataclass(frozen=True, slots=True)
class Play:
    """One play of a game: each choice with what came after it, and the share of the levels that were solved."""

    choices: Sequence[tuple[Decision, float]]
    solved: float


def _play(games: Sequence[GridGame], weights: Mapping[str, float], config: LearnerConfig, *, key: str) -> Play:
    """A game that is drawn, from its first level in a third of the plays, and else from a later one."""
    rng = Random(f"learner/{key}")
    game, first = rng.choice(games), rng.choice((0, 0, *range(LEVELS)))
    game = replace(game, levels=game.levels[first:], solutions=game.solutions[first:])
    session, decisions, rewards = GridSession(game, level_resets=True), list[Decision](), list[float]()
    player, seen = Learner(rng, weights, temperature=1.0, decisions=decisions), session.begin()
    while len(session.level_actions) < len(game.levels):
        solved, least = len(session.level_actions), game.optimum[session.number]
        if session.open_actions >= max(MIN_LEVEL_ACTIONS, MAX_ACTIONS_FACTOR * least):
            break
        seen = session.perform(player.choose(seen))
        done = len(session.level_actions) > solved
        rewards.append(0.5 + min(1.0, level_score(session.level_actions[-1], least) / 100) if done else 0.0)
    returns, following = list[float](), 0.0
    for reward in reversed(rewards):
        following = reward + config.discount * following
        returns.append(following)
    returns.reverse()
    return Play([(one, returns[one.action]) for one in decisions], len(session.level_actions) / len(game.levels))


def policy_gradient(
    choices: Sequence[tuple[Decision, float]], weights: Mapping[str, float], *, entropy: float
) -> dict[str, float]:
    """The gradient of the mean of log-probability times standardised return, and of the entropy of the choices."""
    returns = [value for _, value in choices]
    mean, spread = fmean(returns), pstdev(returns) + 1e-6
    slope = defaultdict[str, float](float)
    for decision, value in choices:
        shares, advantage = option_shares(decision.options, weights), (value - mean) / spread
        doubt = -sum(share * math.log(share) for share in shares if share > 0)
        for number, (features, share) in enumerate(zip(decision.options, shares, strict=True)):
            push = ((number == decision.chosen) - share) * advantage
            push -= entropy * share * (math.log(share) + doubt) if share > 0 else 0.0
            for name, amount in features.items():
                slope[name] += push * amount / len(choices)
    return slope


def main(words: list[str]) -> int:
    """Train and write the weights; progress goes to stderr."""
    default, parser = LearnerConfig(), ArgumentParser(prog="python -m wanderlust.environments.grids.learner_training")
    parser.add_argument("--out", type=Path, required=True, help="file of the weights")
    parser.add_argument("--steps", type=int, default=default.steps)
    parser.add_argument("--seed", type=int, default=default.seed)
    told = parser.parse_args(words)
    if told.steps < 1:
        parser.error("--steps is 1 or more")

    def report(step: int, solved: float) -> None:
        sys.stderr.write(f"step {step} of {told.steps}: {100 * solved:.0f}% of the levels solved\n")

    weights = train_learner(LearnerConfig(steps=told.steps, seed=told.seed), on_step=report)
    told.out.write_text(json.dumps(weights, indent=0) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
