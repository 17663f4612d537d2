"""Wordle in few words: a guess is a word and nothing else, and what is told of a letter is a word of three letters."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import cache, lru_cache
from random import Random

from wanderlust.core.contracts import Environment, Episode, Limits
from wanderlust.core.errors import UsageError
from wanderlust.core.messages import Message, user
from wanderlust.core.types import Task
from wanderlust.environments.wordle import ANSWERS, GUESSES
from wanderlust.environments.wordle import marks as compared
from wanderlust.policies.scripted import Scripted

PLACES = "abcde"
FAVOURITES = 8
"""Words that come to the teacher's mind."""
CARE = 0.6
HEED = 0.2
"""What a guess earns that is a word of the list and can be the secret after all that was told."""

marks = lru_cache(maxsize=1 << 18)(compared)
"""Each pair of words once."""


class BriefWordle(Environment):
    """Wordle over a short list of words, read and written in few words, so that a tiny model can learn it.

    All words of the list may be guessed; every `held`-th is a secret of the `eval` split and never one of `train`. Of
    each letter of a guess is told the letter, its place from a to e and its mark: `cag ray aax nag eex` after `crane`.
    The word earns 1, and every guess that heeds what was told 0.2, at its turn. `hard`: one that does not loses.
    """

    limits = Limits(max_turns=GUESSES)

    def __init__(self, *, words: int = 400, held: int = 5, hard: bool = False):
        """`words` secrets of `Wordle`, spread over the alphabet. Raises UsageError when there are not as many."""
        if not (2 <= held <= words <= len(ANSWERS)):
            raise UsageError(f"held is at least 2 and words from held to {len(ANSWERS)}, not {held} and {words}")
        self.hard, self.held, self.words = hard, held, [ANSWERS[n * len(ANSWERS) // words] for n in range(words)]
        self.known = frozenset(self.words)
        self.players = {"teacher": functools.partial(teacher, self.words)}

    def tasks(self, split: str = "train") -> list[Task]:
        """Every secret of the split once."""
        secrets = [(n, word) for n, word in enumerate(self.words) if (n % self.held == 0) == (split == "eval")]
        return [Task(id=f"wordle-{n}", prompt=(user("wordle"),), answer=word) for n, word in secrets]

    async def run(self, episode: Episode) -> None:
        """One game. The state has the `guesses` that are words, and their `marks`."""
        said, secret = episode.task.prompt, str(episode.task.answer)
        seen: list[str] = episode.state.setdefault("guesses", [])
        told: list[str] = episode.state.setdefault("marks", [])
        for _ in range(GUESSES):
            word = (await episode.agent.act(*said)).content.strip().lower()
            heeds = word in self.known and fits(word, seen, told)
            episode.reward("heed", HEED * heeds)
            if self.hard and not heeds:
                break
            if word not in self.known:
                said = (user("no word"),)
                continue
            seen.append(word)
            told.append(marks(word, secret))
            said = (user(facts(word, told[-1])),)
            if word == secret:
                break
        episode.reward("found", float(secret in seen))


def fits(word: str, seen: Sequence[str], told: Sequence[str]) -> bool:
    """Whether a word can be the secret, after these guesses and marks."""
    return all(marks(past, word) == mark for past, mark in zip(seen, told, strict=True))


def facts(word: str, told: str) -> str:
    """What is told of a guess."""
    return " ".join(map("".join, zip(word, PLACES, told.lower(), strict=True)))


def teacher(words: Sequence[str], *, care: float = CARE) -> Scripted:
    """Knows what fits all that it was told and guesses it, unless one of its favourite words comes to its mind first.

    That happens with probability 1 - `care`, and at the first guess always.
    """
    favourites = words[:: max(len(words) // FAVOURITES, 1)][:FAVOURITES]

    @cache
    def possible(told: str) -> frozenset[str]:
        """The words that fit what was told of one guess."""
        read = told.split()
        past, mark = ("".join(fact[at] for fact in read) for at in (0, 2))
        return frozenset(word for word in words if marks(past, word) == mark.upper())

    def guess(messages: Sequence[Message], rng: Random) -> str:
        read = [message.content for message in messages if message.role == "user"]
        told = [text for text in read if len(text.split()) == len(PLACES)]
        if not told or rng.random() >= care:
            return rng.choice(favourites)
        left = frozenset.intersection(*map(possible, told))
        return rng.choice([word for word in words if word in left] or words)

    return Scripted(guess)
