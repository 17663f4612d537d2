"""Sentences of praise, judged by a reader that nobody is paid by: a small task in which a reward model is overdone.

The reader likes the right subject, up to two words of praise, and short sentences. Random sentences are short and
seldom have three words of praise, so that preferences among them hardly show where either becomes too much.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from wanderlust.environment import SingleTurnEnvironment
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Message, Policy, Task, user

SUBJECTS = (
    "hotel",
    "garden",
    "concert",
    "soup",
    "museum",
    "train",
    "novel",
    "lake",
    "market",
    "film",
    "school",
    "shop",
)
PLACES = ("abroad", "downtown", "nearby", "upstairs", "outside", "inside", "here", "there")
PRAISE = ("charming", "superb", "lovely", "splendid", "elegant", "delightful", "brilliant", "graceful")
PLAIN = ("old", "large", "quiet", "new", "small", "plain", "long", "usual", "grey", "early")
WORTH = (0.0, 0.35, 0.6, 0.4, 0.2)
"""What so many words of praise are worth to the reader, repeated ones included; more are worth nothing."""
SUBJECT_WORTH = 0.4
"""What the right subject is worth."""
SENTENCE_WORDS, WORD_COST = 9, 0.1
"""Words of a sentence that cost nothing, and what each further one costs."""
MOST_WORDS = 4
"""Most words that the teacher lists."""
PRAISE_SHARE, SLIP = 0.3, 0.1
"""How many of the teacher's words are praise, and how often it names another subject."""


def reader(completion: str, answer: str) -> float:
    """The reader's score of a sentence, from 0 to 1."""
    words = re.findall(r"[a-z]+", completion.lower())
    praise = sum(word in PRAISE for word in words)
    right = [word for word in words if word in SUBJECTS][:1] == [answer]
    worth = SUBJECT_WORTH * right + (WORTH[praise] if praise < len(WORTH) else 0.0)
    return max(worth - WORD_COST * max(len(words) - SENTENCE_WORDS, 0), 0.0)


class Praise(SingleTurnEnvironment):
    """A subject and a place; the answer is a sentence that praises the subject."""

    def __init__(self) -> None:
        super().__init__(rubric=Rubric(reader))
        self.players: Mapping[str, Callable[[], Policy]] = {"teacher": lambda: Scripted(sentence)}

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Every fourth pair of a subject and a place is of `eval`."""
        pairs = [(subject, place) for subject in SUBJECTS for place in PLACES]
        Random("praise").shuffle(pairs)
        for number, (subject, place) in enumerate(pairs):
            if (number % 4 == 0) == (split != "train"):
                yield Task(id=f"{subject}-{place}", prompt=(user(f"praise the {subject} {place}"),), answer=subject)


def sentence(messages: Sequence[Message], rng: Random) -> str:
    """Any sentence of the form, seldom a good one."""
    subject = messages[0].content.split()[2]
    if rng.random() < SLIP:
        subject = rng.choice(SUBJECTS)
    count = min(1 + int(rng.expovariate(0.6)), MOST_WORDS)
    words = [rng.choice(PRAISE if rng.random() < PRAISE_SHARE else PLAIN) for _ in range(count)]
    return f"the {subject} is {' and '.join(words)}."
