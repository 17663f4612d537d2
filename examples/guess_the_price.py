"""Prices to know and to guess: what one does not know one finds out by guessing again, being told high or low."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import ClassVar

from wanderlust.environment import Episode, Revision, SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.types import Message, Policy, Task, assistant, user

COLOURS = ("red", "blue", "green", "white", "black", "pink", "gold", "grey", "brown", "lilac")
THINGS = (
    *("cup", "hat", "lamp", "book", "chair", "spoon", "clock", "kite", "drum", "shoe"),
    *("bell", "ring", "vase", "coat", "bowl", "flute", "knife", "ball", "rug", "key"),
)
TOP = 9
MARKS = ("low", "right", "high")


def price(colour: str, thing: str) -> int:
    """0 to 9: that of the thing, that of the colour, and a whim."""
    parts = [Random(f"price/{name}").randrange(size) for name, size in ((thing, 6), (colour, 4))]
    return min(max(sum(parts) + Random(f"price/{colour}/{thing}").choice((-1, 0, 1)), 0), TOP)


PRICES: Mapping[str, int] = {f"{colour} {thing}": price(colour, thing) for colour in COLOURS for thing in THINGS}


def marked(text: str, prices: Sequence[int]) -> list[str]:
    """What is told of a guess."""
    words = text.split()
    if len(words) != len(prices) or not all(len(word) == 1 and word in "0123456789" for word in words):
        return ["form"]
    return [MARKS[1 + (int(word) > price) - (int(word) < price)] for word, price in zip(words, prices, strict=True)]


def told(text: str, marks: Sequence[str]) -> str:
    """The guess with its marks, in words."""
    return " ".join(marks) if marks == ["form"] else ", ".join(map(" ".join, zip(text.split(), marks, strict=True)))


def teacher(*, knows: float = 0.25, heeds: float = 0.5) -> Scripted:
    """Knows a price with probability `knows`, heeds what it was told of one with probability `heeds`, or guesses."""
    return Scripted(partial(_guess, knows=knows, heeds=heeds))


def _guess(messages: Sequence[Message], rng: Random, *, knows: float, heeds: float) -> Message:
    goods = messages[0].content.split(", ")
    guesses = [PRICES[good] if rng.random() < knows else rng.randint(0, TOP) for good in goods]
    heard = [part.split() for part in messages[-1].content.split("\n")[0].split(", ")] if len(messages) > 2 else []
    for at, said in enumerate(heard):
        if len(said) == 2 and rng.random() < heeds:
            guesses[at] = _moved(int(said[0]), said[1], rng)
    return assistant(" ".join(map(str, guesses)))


def _moved(guess: int, mark: str, rng: Random) -> int:
    if mark == "right":
        return guess
    return min(max(guess + rng.choice((1, 2)) * (1 if mark == "low" else -1), 0), TOP)


class Prices(SingleTurnEnvironment):
    """Some goods, a price for each: `red cup, gold key` is answered with `4 7`. The reward is the share that is right.

    The feedback has a word for each guess, as in `4 low, 7 right`; for anything else than so many digits it is `form`.
    Both splits are about the same goods, and no basket is in two tasks. With `rounds` an episode asks for revisions
    itself (one in four for another answer), which shows an imitator what that is like.
    """

    prefixes = True
    revision = Revision(improve="again", diverge="other")
    players: ClassVar[Mapping[str, Callable[[], Policy]]] = {"teacher": teacher}

    def __init__(self, *, goods: int = 4, count: int = 1000, rounds: int = 0):
        """`count` tasks of `goods` goods for training, and 200 for evaluation. Raises UsageError for too few."""
        if not (1 <= goods <= 8 and 1 <= count <= 20_000 and rounds >= 0):
            raise UsageError(f"1 to 8 goods, 1 to 20000 tasks, no fewer than 0 rounds: not {goods}, {count}, {rounds}")
        self.goods, self.count, self.rounds = goods, count, rounds
        super().__init__({split: self._baskets(split, n) for split, n in (("train", count), ("eval", 200))})

    def _baskets(self, split: str, count: int) -> list[Task]:
        out, rng, names = [], Random(f"baskets/{split}"), sorted(PRICES)
        for number in range(count):
            basket = rng.sample(names, self.goods)
            prices = [PRICES[good] for good in basket]
            out.append(Task(id=f"{split}-{number}", prompt=(user(", ".join(basket)),), answer=prices))
        return out

    async def run(self, episode: Episode) -> None:
        """A guess; with `rounds` so many more."""
        said: Sequence[Message] = episode.task.prompt
        for left in range(self.rounds, -1, -1):
            answer = await episode.agent.act(*said)
            marks = marked(answer.content, episode.task.answer)
            episode.state["feedback"] = told(answer.content, marks)
            if left:
                diverge = episode.rng(left).random() < 0.25
                said = (self.revision.request(episode.state["feedback"], diverge=diverge),)
        episode.reward("right", marks.count("right") / len(episode.task.answer))
