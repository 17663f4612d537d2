"""Trains the weights of `learner` on games whose mechanics are those of `train`, by policy gradient.

`python environments/grids/tools/learner_training.py --out weights.json` makes the weights that the package ships.
Equal seeds and settings give equal weights, to the digit. What is made small is the regret of a level: the actions
beyond its shortest solution. How much of it an option brings at once is known by the true rules, for every option
(`Regrets`; AggreVaTe, arXiv 1406.5979). What comes later is known for the option that was chosen, discounted by the
action, and stands against other plays of the same level (REINFORCE, doi:10.1007/BF00992696).
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

from regret import Regrets
from wanderlust_grids.environment import MAX_ACTIONS_FACTOR, MIN_LEVEL_ACTIONS
from wanderlust_grids.game import GridSession
from wanderlust_grids.generation import LEVELS, GridGame, make_game
from wanderlust_grids.learner import Decision, Learner, option_shares
from wanderlust_grids.learner_options import Features

SHORT_ACTIONS = 10
"""Regrets of a level whose solution has as many count half."""
MAX_CHANGE = 0.2
"""Of an option's share, as far as plays with the old share count."""
FIRST_WEIGHTS: Mapping[str, float] = {
    "frontier": 8.0,
    "walk/used": 10.0,
    "walk/solved": 8.0,
    "walk/new": 5.0,
    "walk/effect": 5.0,
    "walk/solved-again": 4.0,
    "walk/again": -2.0,
    "distance": -8.0,
}
"""Training begins with these, about the seeker's order of aims, and is drawn back to them."""
FIRST_GAME = 1000
"""Games before it are tasks of the split `train`, and stay for measuring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerConfig:
    """Settings of a training: `LearnerConfig(steps=5)` for a quick look."""

    trainings: int = 3
    """From zero, with other games and draws; the weights are their mean."""
    steps: int = 30
    """Of each training."""
    games_per_step: int = 5
    plays_per_game: int = 4
    epochs: int = 3
    """Steps of the optimiser on the same plays."""
    games: int = 100
    """Different ones that are drawn from."""
    learning_rate: float = 0.1
    pull: float = 0.03
    """Part of their way back to `FIRST_WEIGHTS` that weights go after each step of the optimiser."""
    discount: float = 0.97
    """By the action."""
    failure: float = 20.0
    """Regret of a level that was not solved."""
    entropy: float = 0.01
    seed: int = 0


OnStep = Callable[[int, float], None]
"""Called with a step's number, over all trainings, and the share of the levels that its plays have solved."""


def train_learner(
    config: LearnerConfig | None = None,
    *,
    games: Sequence[GridGame] = (),
    on_step: OnStep = lambda step, solved: None,
) -> dict[str, float]:
    """Train weights, and return them by the names of features.

    Args:
        config: Settings.
        games: What is played; games of `train` that are no tasks where there are none.
        on_step: Called after each step.
    """
    config = LearnerConfig() if config is None else config
    course = _Course(
        config, games or [make_game(f"train-{FIRST_GAME + number}") for number in range(config.games)], Regrets()
    )
    total = defaultdict[str, float](float)
    for number in range(config.trainings):
        for name, value in course.train(number, on_step).items():
            total[name] += value / config.trainings
    return {name: round(value, 4) for name, value in sorted(total.items())}


@dataclass(frozen=True, slots=True)
class _Course:
    """What all trainings of a seed have in common."""

    config: LearnerConfig
    games: Sequence[GridGame]
    regrets: Regrets

    def train(self, number: int, on_step: OnStep) -> dict[str, float]:
        """One training: the mean of the weights over the second half of its steps."""
        config, adam = self.config, Adam(self.config.learning_rate)
        weights, total = defaultdict[str, float](float, FIRST_WEIGHTS), defaultdict[str, float](float)
        for step in range(1, config.steps + 1):
            plays = [
                one
                for drawn in range(config.games_per_step)
                for one in self._plays(weights, key=f"learner/{config.seed}/{number}/{step}/{drawn}")
            ]
            choices = compared([play.choices for play in plays])
            for _ in range(config.epochs):
                adam.climb(weights, policy_gradient(choices, weights, entropy=config.entropy))
                for name in weights:
                    weights[name] += config.pull * (FIRST_WEIGHTS.get(name, 0.0) - weights[name])
            if 2 * step > config.steps:
                for name, value in weights.items():
                    total[name] += value / (config.steps - config.steps // 2)
            on_step(number * config.steps + step, fmean(play.solved for play in plays))
        return total

    def _plays(self, weights: Mapping[str, float], *, key: str) -> list[Play]:
        """Plays of a game that is drawn, from its first level in a third of the cases, and else from a later one."""
        rng = Random(key)
        game, first = rng.choice(self.games), rng.choice((0, 0, *range(LEVELS)))
        players = [Random(f"{key}/{again}") for again in range(self.config.plays_per_game)]
        return [_play(game, first, weights, config=self.config, regrets=self.regrets, rng=one) for one in players]


class Adam:
    """Steps along gradients (arXiv 1412.6980); the means of names that a gradient lacks stay as they are."""

    def __init__(self, learning_rate: float):
        self._rate, self._steps = learning_rate, 0
        self._means, self._squares = defaultdict[str, float](float), defaultdict[str, float](float)

    def climb(self, weights: dict[str, float], slope: Mapping[str, float]) -> None:
        """Change the weights."""
        self._steps += 1
        for name, value in slope.items():
            self._means[name] = 0.9 * self._means[name] + 0.1 * value
            self._squares[name] = 0.98 * self._squares[name] + 0.02 * value**2
            mean = self._means[name] / (1 - 0.9**self._steps)
            square = self._squares[name] / (1 - 0.98**self._steps)
            weights[name] += self._rate * mean / (math.sqrt(square) + 1e-8)


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision with what its options cost."""

    features: Sequence[Features]
    chosen: int
    regrets: Sequence[float]
    """Of each option, by the true rules."""
    later: float = 0.0
    """Discounted regrets of the later choices in the level; then its difference to their mean."""
    share: float = 1.0
    """With which the option was drawn."""


@dataclass(frozen=True, slots=True)
class Play:
    """One play of a game: its choices, and the share of the levels that were solved."""

    choices: Mapping[tuple[str, int], Sequence[Choice]]
    """By game and level."""
    solved: float


def _play(
    game: GridGame, first: int, weights: Mapping[str, float], *, config: LearnerConfig, regrets: Regrets, rng: Random
) -> Play:
    """A play from a level on."""
    session, decisions = GridSession(game, level_resets=True), list[Decision]()
    player, seen = Learner(rng, weights, decisions=decisions), session.begin(first)
    choices, level = dict[tuple[str, int], list[Choice]](), list[tuple[int, Choice]]()
    while (solved := len(session.level_actions)) < LEVELS - first:
        number, least, known = session.number, game.optimum[session.number], len(decisions)
        failed = session.open_actions >= max(MIN_LEVEL_ACTIONS, MAX_ACTIONS_FACTOR * least)
        if not failed:
            action = player.choose(seen)
            if len(decisions) > known:
                costs = regrets.of(session, decisions[-1])
                level.append((session.open_actions, _choice(decisions[-1], costs, least)))
            seen = session.perform(action)
        if failed or len(session.level_actions) > solved:
            end = config.failure if failed else 0.0
            choices[game.key, number] = _with_later(level, discount=config.discount, end=end)
            level.clear()
        if failed:
            break
    return Play(choices, len(session.level_actions) / (LEVELS - first))


def _choice(decision: Decision, costs: Sequence[float], least: int) -> Choice:
    scale = SHORT_ACTIONS / (SHORT_ACTIONS + least)
    features = [{name: value for name, value in one.features.items() if value} for one in decision.options]
    return Choice(features, decision.chosen, [scale * one for one in costs], share=decision.share)


def _with_later(level: Sequence[tuple[int, Choice]], *, discount: float, end: float) -> list[Choice]:
    """The choices of a level, from the last to the first, with the regrets that came after each."""
    found, later, next_at = list[Choice](), end, level[-1][0] + 1 if level else 0
    for at, choice in reversed(level):
        later *= discount ** (next_at - at)
        found.append(replace(choice, later=later))
        later, next_at = later + choice.regrets[choice.chosen], at
    return found


def compared(plays: Sequence[Mapping[tuple[str, int], Sequence[Choice]]]) -> list[Choice]:
    """The choices of several plays, whose later regrets stand against the mean of all plays of the same level."""
    levels = defaultdict[tuple[str, int], list[Choice]](list)
    for play in plays:
        for level, choices in play.items():
            levels[level] += choices
    found = list[Choice]()
    for choices in levels.values():
        mean = fmean(one.later for one in choices) if choices else 0.0
        found += [replace(one, later=one.later - mean) for one in choices]
    return found


def policy_gradient(choices: Sequence[Choice], weights: Mapping[str, float], *, entropy: float) -> dict[str, float]:
    """The gradient of what is expected: fewer regrets, and the entropy of the choices.

    Regrets of a choice itself are known for every option, so that their expectation is exact. What comes later is known
    for the option that was chosen; it is left out where the option's share has moved too far (PPO, arXiv 1707.06347).
    """
    spread = pstdev([one.later for one in choices]) + 1.0
    slope = defaultdict[str, float](float)
    for one in choices:
        shares = option_shares(one.features, weights)
        ratio, later = shares[one.chosen] / one.share, one.later / spread
        if (ratio < 1 - MAX_CHANGE and later > 0) or (ratio > 1 + MAX_CHANGE and later < 0):
            ratio = 0.0
        expected = sum(share * cost for share, cost in zip(shares, one.regrets, strict=True))
        doubt = -sum(share * math.log(share) for share in shares if share > 0)
        for number, (features, share) in enumerate(zip(one.features, shares, strict=True)):
            push = share * (expected - one.regrets[number]) / spread
            push -= ((number == one.chosen) - share) * later * ratio
            push -= entropy * share * (math.log(share) + doubt) if share > 0 else 0.0
            push /= len(choices)
            for name, amount in features.items():
                slope[name] += push * amount
    return slope


def main(words: list[str]) -> int:
    """Train and write the weights; progress goes to stderr."""
    default, parser = LearnerConfig(), ArgumentParser(prog="learner_training.py")
    parser.add_argument("--out", type=Path, required=True, help="file of the weights")
    parser.add_argument("--steps", type=int, default=default.steps, help="of each training")
    parser.add_argument("--seed", type=int, default=default.seed)
    told = parser.parse_args(words)
    if told.steps < 1:
        parser.error("--steps is 1 or more")

    def report(step: int, solved: float) -> None:
        sys.stderr.write(f"step {step} of {default.trainings * told.steps}: {100 * solved:.0f}% of the levels solved\n")

    weights = train_learner(LearnerConfig(steps=told.steps, seed=told.seed), on_step=report)
    told.out.write_text(json.dumps(weights, indent=0) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
