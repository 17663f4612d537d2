"""Kuhn poker: the exact value of the game, by playing every deal and every line of play."""

import asyncio
from fractions import Fraction
from itertools import product

import pytest

from wanderlust.environments.kuhn import (
    CARDS,
    GAME_VALUE,
    KuhnPoker,
    by_card,
    choices,
    equilibrium_player,
    equilibrium_probability,
    exploitability,
    kuhn_teacher,
    parse_kuhn_move,
    payoff,
)
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import check_environment
from wanderlust.types import Status

ENV = KuhnPoker()
LINES = [("check", "check"), ("check", "bet", "fold"), ("check", "bet", "call"), ("bet", "fold"), ("bet", "call")]


def moves(line):
    """A policy for each seat that plays its part of a line."""
    say = [[f"<move>{move}</move>" for move in line[seat::2]] for seat in (0, 1)]
    return dict(zip(ENV.seats, map(Scripted, say), strict=True))


def play(task, policy, **options):
    return asyncio.run(rollout(ENV, task, policy, **options))


def rewards(played):
    return tuple(seat.score.reward for seat in played.trajectories)


def value(first, second):
    """Expected chips of the first seat by enumeration: every deal and line is really played, and weighted exactly."""
    total = Fraction(0)
    for task, line in product(ENV.tasks(), LINES):
        cards, weight = task.info["cards"], Fraction(1, 6)
        for n, move in enumerate(line):
            weight *= (first, second)[n % 2](cards[n % 2], line[:n], move)
        mine, others = rewards(play(task, moves(line)))
        assert mine == -others
        total += weight * Fraction(mine)
    return total


def always(*order):
    """A strategy that takes the first of `order` that is possible."""
    return lambda card, history, move: Fraction(move == next(m for m in order if m in choices(history)))


def test_equilibrium_against_itself_is_worth_the_value_of_the_game():
    assert value(equilibrium_probability, equilibrium_probability) == GAME_VALUE == Fraction(-1, 18)


@pytest.mark.parametrize("other", [always(*order) for order in product(("check", "bet"), ("call", "fold"))])
def test_equilibrium_cannot_be_beaten(other):
    assert value(equilibrium_probability, other) >= GAME_VALUE
    assert value(other, equilibrium_probability) <= GAME_VALUE


def test_lines_are_all_there_are():
    def ends(history=()):
        return [end for move in choices(history) for end in ends((*history, move))] or [history]

    assert sorted(ends()) == sorted(LINES)
    assert {payoff(cards, line) for cards in ("KJ", "JK") for line in LINES} == {-2, -1, 1, 2}


def test_the_scripted_player_plays_as_it_should():
    """Both seats draw; over the fixed seeds the mean is within four standard errors of the exact value."""
    games = [play(task, equilibrium_player(), seed=seed) for task in ENV.tasks() for seed in range(60)]
    won = [rewards(game)[0] for game in games]
    error = (sum(x * x for x in won) / len(won)) ** 0.5 / len(won) ** 0.5
    assert abs(sum(won) / len(won) - float(GAME_VALUE)) < 4 * error
    assert {tuple(game.state["history"]) for game in games} == set(LINES)


@pytest.mark.parametrize("said", ["", "<move>call</move>", "<move>raise</move>", "check", "<move>" * 999])
def test_no_move_forfeits(said):
    played = play(ENV.tasks()[0], Scripted([said]))
    assert (played.status, rewards(played)) == (Status.DONE, (-2.0, 2.0))
    assert played.state["forfeited"] == "first"


def test_nobody_sees_the_others_card():
    for task in ENV.tasks():
        played = play(task, moves(("check", "bet", "call")))
        for card, seat in zip(task.info["cards"], played.trajectories, strict=True):
            told = "".join(m.content for m in seat.messages if m.role == "user")
            assert [c for c in CARDS if f"card: {c}" in told] == [card]


def test_reading_takes_the_last_move():
    assert parse_kuhn_move("<move>bet</move> no, <move> Check </move>") == "check"


def test_it_keeps_its_promises():
    assert asyncio.run(check_environment(ENV)) == []
    assert asyncio.run(check_environment(ENV, equilibrium_player(), count=6)) == []


def test_an_equilibrium_cannot_be_exploited_and_everybody_else_can():
    assert exploitability(equilibrium_probability) == pytest.approx(0, abs=1e-12)
    assert exploitability(lambda card, history, move: 0.5) == pytest.approx(11 / 24)
    assert exploitability(by_card) == pytest.approx(1 / 6)
    assert exploitability(lambda card, history, move: 0.0) == pytest.approx(2)  # forfeits whenever it is to move


def test_exploitability_is_what_the_best_of_all_pure_opponents_really_wins():
    strategy = always("check", "fold")
    pure = [always(*order) for order in product(("check", "bet"), ("call", "fold"))]
    won = [max(-value(strategy, other) for other in pure), max(value(other, strategy) for other in pure)]
    assert exploitability(strategy) == pytest.approx(float(sum(won)) / 2)


def test_the_beginner_plays_by_its_card():
    games = [play(task, kuhn_teacher(), seed=seed) for task in ENV.tasks() for seed in range(40)]
    bets = {card: [g.state["history"][0] == "bet" for g in games if g.task.info["cards"][0] == card] for card in CARDS}
    shares = [sum(bets[card]) / len(bets[card]) for card in CARDS]
    assert shares[0] < shares[1] < shares[2]
