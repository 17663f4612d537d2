"""Wordle: six guesses at a five-letter word, rewarded as in classic `verifiers` (until 0.3.1).

That environment is TextArena's Wordle-v0 (0.7.4) with four rewards: a guess stands in <guess> tags, and in brackets
inside them to be counted as correct; an answer without the tags repeats the guess before it; two refused guesses in a
row end the game; partial credit is for the last guess whose marks were shown, so never for the sixth. A transcript
earns what it earns there, as far as both know the same words. Sentences are our own.

`BriefWordle` is the game in few tokens: a guess is a word and nothing else, and each mark a word of three letters.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from random import Random

from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Reward, Rubric
from wanderlust.types import Message, Task, Trajectory, system, user

MAX_GUESSES = 6
SECRET_WORDS, GUESS_WORDS = (
    [*part.split()] for part in (files(__package__ or "") / "wordle_words.txt").read_text("ascii").split("\n\n")
)
"""Secrets in alphabetical order, and words that may only be guessed; their licence is beside them."""
WORDLE_RULES = """\
Find a secret word of five letters in six guesses. Each letter of a guess is marked: G (right), Y (elsewhere
in the word) or X (not in it, or not again). Think first if you like, then end with a guess: <guess>[crane]</guess>"""
WORDLE_REPLY = "{}\n{}\nYou have {} guesses left."


def mark_guess_letters(guess: str, secret: str) -> str:
    """G, Y or X for each letter; a letter earns no more marks than the secret has of it, G before Y."""
    pairs = [*zip(guess, secret, strict=True)]
    missed, spare = ["" if g == s else g for g, s in pairs], [s for g, s in pairs if g != s]
    yellow = [g != s and missed[:n].count(g) < spare.count(g) for n, (g, s) in enumerate(pairs)]
    return "".join("G" if g == s else "XY"[y] for (g, s), y in zip(pairs, yellow, strict=True))


def parse_guesses(text: str) -> list[str]:
    """The content of all guess tags. Takes time linear in the text, whatever it is."""
    return [g.strip() for g in re.findall("<guess>(.*?)</guess>", text[: text.rfind("</guess>") + 8], re.DOTALL)]


def latest_guess(messages: Sequence[Message]) -> str:
    """The first guess of the last message that has one."""
    guesses = (parse_guesses(m.content) for m in reversed(messages) if m.role == "assistant")
    return next((answer[0] for answer in guesses if answer), "None")


def correct(trajectory: Trajectory, task: Task) -> float:
    """1 when the latest guess is the word, in brackets."""
    return float(latest_guess(trajectory.messages[len(task.prompt) :]) == f"[{task.answer}]")


def partial(state: Mapping[str, list[str]], trajectory: Trajectory, task: Task) -> float:
    """0.2 for each G and 0.1 for each Y that was told last, when the word was not found."""
    marks = [m for m in state["marks"][: MAX_GUESSES - 1] if m != "GGGGG" and not correct(trajectory, task)]
    return float(sum(0.2 * m.count("G") + 0.1 * m.count("Y") for m in marks[-1:]))


def brevity(trajectory: Trajectory, task: Task) -> float:
    """1 over the number of answers with a guess on one line, when the word was found."""
    count = sum(any(map(parse_guesses, turn.action.content.split("\n"))) for turn in trajectory.turns)
    return correct(trajectory, task) / (count or 1)


def guess_format(trajectory: Trajectory) -> float:
    """Mean over the answers: 0.4 for a guess, 0.2 for beginning with its tag, 0.2 for ending with it, 0.2 as a gift."""
    texts = [turn.action.content.strip() for turn in trajectory.turns]
    each = (
        0.2 + 0.4 * bool(parse_guesses(t)) + 0.2 * t.startswith("<guess>") + 0.2 * t.endswith("</guess>") for t in texts
    )
    return sum(each) / max(len(texts), 1)


class Wordle(Environment):
    """Wordle: a secret word of five letters, six guesses.

    The secret is the task's answer. The state has the `guesses` that were accepted, and their `mark_guess_letters`.
    """

    limits = Limits(max_turns=2 * MAX_GUESSES)
    rubric = Rubric(correct, partial, brevity, Reward(guess_format, 0.2, name="form"))

    def __init__(self, allowed_words: Sequence[str] = (*SECRET_WORDS, *GUESS_WORDS)):
        """`allowed_words` are the words that may be guessed."""
        self.allowed_words = frozenset(allowed_words)

    def tasks(self, split: str = "train") -> list[Task]:
        """Every secret once; every twentieth is for `eval`."""
        words = [(n, word) for n, word in enumerate(SECRET_WORDS) if (n % 20 == 0) == (split == "eval")]
        return [Task(id=f"wordle-{n}", prompt=(system(WORDLE_RULES), user("Begin.")), answer=word) for n, word in words]

    async def run(self, episode: Episode) -> None:
        """One game."""
        observation, fault, secret = episode.task.prompt, "", episode.task.answer
        guesses: list[str] = episode.state.setdefault("guesses", [])
        marks: list[str] = episode.state.setdefault("marks", [])
        while len(guesses) < MAX_GUESSES and secret not in guesses:
            await episode.agent.act(*observation)
            guess, refused = latest_guess(episode.agent.messages), fault
            bare = re.search(r"\[(\w+)\]", guess if "[" in guess or "]" in guess else f"[{guess}]")
            word = bare[1].lower() if bare else ""
            fault = (
                "was guessed before"
                if word in guesses
                else ""
                if word in self.allowed_words
                else "is no word of five letters"
            )
            if fault and refused:
                return
            observation = (user(f"'{word[:20]}' {fault}. Give another guess."),)
            if not fault:
                marks.append(mark_guess_letters(word, secret))
                guesses.append(word)
                observation = (
                    user(WORDLE_REPLY.format(" ".join(word.upper()), " ".join(marks[-1]), MAX_GUESSES - len(guesses))),
                )


PLACE_LETTERS = "abcde"
FAVOURITE_COUNT = 8
"""Words that come to the teacher's mind."""
TEACHER_CARE = 0.6
HEED_REWARD = 0.2
"""Reward of a guess that is in the list and agrees with all marks so far."""

cached_marks = lru_cache(maxsize=1 << 18)(mark_guess_letters)
"""Each pair of words once."""


class BriefWordle(Environment):
    """Wordle over a short list of words, read and written in few tokens, so that a tiny model can learn it.

    All words of the list may be guessed; every `held`-th is a secret of the `eval` split and never one of `train`. The
    reply to a guess has each letter, its place from a to e and its mark: `cag ray aax nag eex` after `crane`. The word
    earns 1, and every guess that agrees with all marks so far 0.2, at its turn. `hard`: any other guess loses.
    """

    limits = Limits(max_turns=MAX_GUESSES)

    def __init__(self, *, words: int = 400, held: int = 5, hard: bool = False):
        """`words` secrets of `Wordle`, spread over the alphabet. Raises UsageError when there are not as many."""
        if not (2 <= held <= words <= len(SECRET_WORDS)):
            raise UsageError(f"held is at least 2 and words from held to {len(SECRET_WORDS)}, not {held} and {words}")
        self.hard, self.held = hard, held
        self.words = [SECRET_WORDS[n * len(SECRET_WORDS) // words] for n in range(words)]
        self.allowed_words = frozenset(self.words)
        self.players = {"teacher": functools.partial(wordle_teacher, self.words)}

    def tasks(self, split: str = "train") -> list[Task]:
        """Every secret of the split once."""
        secrets = [(n, word) for n, word in enumerate(self.words) if (n % self.held == 0) == (split == "eval")]
        return [Task(id=f"wordle-{n}", prompt=(user("wordle"),), answer=word) for n, word in secrets]

    async def run(self, episode: Episode) -> None:
        """One game. The state has the `guesses` that are words, and their `mark_guess_letters`."""
        observation, secret = episode.task.prompt, str(episode.task.answer)
        guesses: list[str] = episode.state.setdefault("guesses", [])
        marks: list[str] = episode.state.setdefault("marks", [])
        for _ in range(MAX_GUESSES):
            word = (await episode.agent.act(*observation)).content.strip().lower()
            heeds = word in self.allowed_words and is_possible(word, guesses, marks)
            episode.reward("heed", HEED_REWARD * heeds)
            if self.hard and not heeds:
                break
            if word not in self.allowed_words:
                observation = (user("no word"),)
                continue
            guesses.append(word)
            marks.append(cached_marks(word, secret))
            observation = (user(render_marks(word, marks[-1])),)
            if word == secret:
                break
        episode.reward("found", float(secret in guesses))


def is_possible(word: str, guesses: Sequence[str], marks: Sequence[str]) -> bool:
    """Whether a word can be the secret, after these guesses and marks."""
    return all(cached_marks(past, word) == mark for past, mark in zip(guesses, marks, strict=True))


def render_marks(word: str, marks: str) -> str:
    """The marks of a guess as text."""
    return " ".join(map("".join, zip(word, PLACE_LETTERS, marks.lower(), strict=True)))


def wordle_teacher(words: Sequence[str], *, care: float = TEACHER_CARE) -> Scripted:
    """Knows what fits all that it was told and guesses it, unless one of its favourite words comes to its mind first.

    That happens with probability 1 - `care`, and at the first guess always.
    """
    favourites = words[:: max(len(words) // FAVOURITE_COUNT, 1)][:FAVOURITE_COUNT]

    @cache
    def possible(text: str) -> frozenset[str]:
        """The words that fit what was told of one guess."""
        read = text.split()
        past, mark = ("".join(fact[at] for fact in read) for at in (0, 2))
        return frozenset(word for word in words if cached_marks(past, word) == mark.upper())

    def guess(messages: Sequence[Message], rng: Random) -> str:
        read = [message.content for message in messages if message.role == "user"]
        replies = [text for text in read if len(text.split()) == len(PLACE_LETTERS)]
        if not replies or rng.random() >= care:
            return rng.choice(favourites)
        left = frozenset.intersection(*map(possible, replies))
        return rng.choice([word for word in words if word in left] or words)

    return Scripted(guess)
