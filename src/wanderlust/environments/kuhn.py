"""Kuhn poker between two policies: three cards, one bet, and an exact value to measure self-play against.

Source: H. W. Kuhn, "A simplified two-person poker" (1950). Perfect play loses 1/18 chip a deal at the first seat.
`strategy` computes the exact probability of every move of a model from its logits.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import permutations, product
from math import exp, fsum
from random import Random
from typing import Any, TypeAlias

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment, Episode, Limits
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.parsing import XmlFields
from wanderlust.runner.engine import rollout
from wanderlust.types import Message, Policy, Task, Trajectory, system, user

Strategy: TypeAlias = Callable[[str, Sequence[str], str], float | Fraction]
"""The probability of a move, by the own card and the moves so far."""
CARDS = "JQK"
KUHN_MOVE_FIELD = XmlFields("move").field("move")
GAME_VALUE = Fraction(-1, 18)
"""Chips per deal that the first seat wins when both play perfectly and all six deals are equally likely."""
FORFEIT_CHIPS = 2
"""Chips that an impossible move costs: as much as the worst game."""
KUHN_RULES = (
    "You play poker with three cards: J, Q and K, the highest. Each player has put one chip into the pot "
    "and holds one card. The first player checks or bets one chip; so may the second after a check. Who faces a bet "
    "calls it with a chip, or folds and loses. Else the higher card takes the pot. Think if you like, then end with "
    "your move inside move tags, like this: <move>check</move>"
)


def choices(history: Sequence[str]) -> tuple[str, ...]:
    """The possible moves after `history`; none when the game is over."""
    if tuple(history) in {(), ("check",)}:
        return ("check", "bet")
    return ("call", "fold") if history[-1] == "bet" else ()


def payoff(cards: str, history: Sequence[str]) -> int:
    """Chips that the first seat wins in a game that is over. Zero-sum."""
    if history[-1] == "fold":
        return 1 if len(history) == 2 else -1
    stake = 2 if history[-1] == "call" else 1
    return stake if CARDS.index(cards[0]) > CARDS.index(cards[1]) else -stake


def equilibrium_probability(card: str, history: Sequence[str], move: str) -> Fraction:
    """The probability of `move` in an equilibrium: the one that bluffs a third of the time."""
    third, one = Fraction(1, 3), Fraction(1)
    if "bet" in history:
        calls = {"J": 0 * one, "Q": third if len(history) == 1 else 2 * third, "K": one}[card]
        return calls if move == "call" else 1 - calls
    bets = {"J": third, "Q": 0 * one, "K": one}[card]
    return bets if move == "bet" else 1 - bets


def parse_kuhn_move(text: str) -> str:
    """The last move in a message; empty when there is none."""
    return (KUHN_MOVE_FIELD(text) or "").lower()


def render_card(card: str, history: Sequence[str]) -> Message:
    """The message to a player: its own card and the moves so far, never the other's card."""
    moves = ", ".join(history) or "none"
    return user(f"Your card: {card}. Moves so far: {moves}. Choose: {' or '.join(choices(history))}.")


def strategy_player(strategy: Strategy) -> Scripted:
    """A player of either seat that draws its moves as the strategy says."""

    def play(messages: Sequence[Message], rng: Random) -> str:
        card, moves = re.findall(r"Your card: (.)\. Moves so far: ([a-z, ]+)\.", messages[-1].content)[-1]
        history = [] if moves == "none" else moves.split(", ")
        weights = {move: float(strategy(card, history, move)) for move in choices(history)}
        return f"<move>{rng.choices([*weights], [*weights.values()])[0]}</move>"

    return Scripted(play)


def equilibrium_player() -> Scripted:
    """A player of either seat that cannot be beaten."""
    return strategy_player(equilibrium_probability)


def by_card(card: str, history: Sequence[str], move: str) -> float:
    """A beginner: bets and calls a fourth of the time with J, half of it with Q, three fourths with K."""
    dares = (1 + CARDS.index(card)) / 4
    return dares if move in ("bet", "call") else 1 - dares


def kuhn_teacher() -> Scripted:
    """A beginner in either seat."""
    return strategy_player(by_card)


def exploitability(strategy: Strategy) -> float:
    """Chips a deal that a perfect opponent wins from the strategy, mean of both seats: 0 in an equilibrium, else above.

    Exact: the opponent's best of its 64 pure strategies, on all deals and lines. What the strategy does not give to any
    move forfeits. It is half of what is called NashConv, and 11/24 for the uniform player.
    """
    lost = 0.0
    for seat in (0, 1):
        games = [(strategy, other) if seat == 0 else (other, strategy) for other in _pure(1 - seat)]
        chips = (sum(_expected_chips(a + b, (), players) for a, b in permutations(CARDS, 2)) for players in games)
        lost += max(total / 6 * (-1 if seat == 0 else 1) for total in chips)
    return lost / 2


def _pure(seat: int) -> Iterator[Strategy]:
    """All pure strategies of a seat: what each card does in each of the two places where the seat moves."""
    places = [((), ("check", "bet")), (("check",), ("bet",))][seat]
    facing = list(product(CARDS, places))
    for picks in product((0, 1), repeat=len(facing)):
        yield _certain({(*at, choices(at[1])[pick]) for at, pick in zip(facing, picks, strict=True)})


def _certain(chosen: Collection[tuple[str, tuple[str, ...], str]]) -> Strategy:
    return lambda card, history, move: float((card, tuple(history), move) in chosen)


def _expected_chips(cards: str, history: tuple[str, ...], players: Sequence[Strategy]) -> float:
    """Chips that the first seat wins from here on, on average."""
    if not choices(history):
        return payoff(cards, history)
    seat = len(history) % 2
    odds = {move: float(players[seat](cards[seat], history, move)) for move in choices(history)}
    lost = (1 - sum(odds.values())) * (FORFEIT_CHIPS if seat else -FORFEIT_CHIPS)
    return lost + sum(p * _expected_chips(cards, (*history, move), players) for move, p in odds.items() if p)


class KuhnPoker(Environment):
    """Kuhn poker between two policies, with its exact value.

    A deal per task; each seat's reward is the chips it wins, from -2 to 2, and their sum is 0.

    An answer that is no possible move ends the game and costs its seat 2 chips. The state has the `history` of moves,
    and the seat that `forfeited`, if one did.
    """

    seats = ("first", "second")
    limits = Limits(max_turns=4)
    players: Mapping[str, Callable[[], Policy]] = {"equilibrium": equilibrium_player, "teacher": kuhn_teacher}

    def tasks(self, split: str = "train") -> list[Task]:
        """The six deals, in every split: there are no others."""
        return [Task(id=f"kuhn-{a}{b}", info={"cards": a + b}) for a, b in permutations(CARDS, 2)]

    async def run(self, episode: Episode) -> None:
        """One game."""
        cards, history = episode.task.info["cards"], episode.state.setdefault("history", [])
        while choices(history):
            seat = len(history) % 2
            agent = episode.agents[self.seats[seat]]
            head = () if agent.trajectory.turns else (system(KUHN_RULES),)
            move = parse_kuhn_move((await agent.act(*head, render_card(cards[seat], history))).content)
            if move not in choices(history):
                episode.state["forfeited"] = self.seats[seat]
                return self._pay(episode, FORFEIT_CHIPS if seat else -FORFEIT_CHIPS)
            history.append(move)
        return self._pay(episode, payoff(cards, history))

    def _pay(self, episode: Episode, chips: int) -> None:
        episode.reward("chips", chips, "first")
        episode.reward("chips", -chips, "second")


def strategy(model: Any, tokenizer: Any) -> Strategy:
    """The model's strategy in both seats at temperature 1.

    Every deal and line is played, and its log-probabilities computed. A move's probability is that of its usual tokens
    with nothing else around them, so the rest to 1 is at most the probability of an answer without a move.
    """
    with needs_extra("train"):
        from wanderlust.policies.chat_template import Renderer
        from wanderlust.training import losses
        from wanderlust.training.batch.samples import imitation_samples, values_by_turn
        from wanderlust.training.gradient import GradientComputer
    renderer, reader = Renderer(tokenizer), GradientComputer(model, loss=losses.IMITATION_LOSS)
    played = asyncio.run(_games())
    samples = [sample for trajectory, _ in played for sample in imitation_samples(trajectory, renderer)]
    table: dict[tuple[str, tuple[str, ...], str], float] = {}
    for (_, places), sample, logprobs in zip(played, samples, reader.compute_logprobs(samples), strict=True):
        turns = values_by_turn([sample], [logprobs])
        table.update(zip(places, [exp(fsum(turn)) for turn in turns], strict=True))
    return lambda card, history, move: table[card, tuple(history), move]


async def _games() -> list[tuple[Trajectory, list[tuple[str, tuple[str, ...], str]]]]:
    """Every deal and line in each seat: the trajectory, and the card, the moves before and the move of each turn."""
    env, played = KuhnPoker(), []
    for task, line in product(env.tasks(), _lines()):
        answers = [f"<move>{move}</move>" for move in line]
        game = await rollout(env, task, {name: Scripted(answers[seat::2]) for seat, name in enumerate(env.seats)})
        for seat, trajectory in enumerate(game.trajectories):
            card = task.info["cards"][seat]
            places = [(card, tuple(line[:n]), line[n]) for n in range(seat, len(line), 2)]
            played.append((trajectory, places))
    return played


def _lines(history: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield all complete sequences of moves."""
    if not choices(history):
        yield history
    for move in choices(history):
        yield from _lines((*history, move))
