"""Notices in free prose: a small environment without an answer to compare, and the duties of whoever teaches it.

A prompt names an event, a day and a place; the answer is a sentence, in any wording. A reader, whom nobody is paid by,
wants each of the three and no other of its kind. `NoticeDuties` has what Compute as Teacher asks of a model: such
sentences, one sentence out of eight, criteria out of one sentence, and ticks. Its reader is not asked for any of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from random import Random

from wanderlust.environment import SingleTurnEnvironment
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.generated import (
    CHOICE_CRITERION_TEMPLATE,
    FROM_REFERENCE,
    HELD_CRITERIA,
    MIN_CRITERIA,
    WRITER_INSTRUCTIONS,
)
from wanderlust.rubrics.label_free import SYNTHESIS_INSTRUCTIONS
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Message, Policy, Task, system, user

KINDS: tuple[tuple[str, ...], ...] = (
    ("concert", "lecture", "auction", "dance", "picnic", "rehearsal", "debate", "reading"),
    ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
    ("hall", "library", "garden", "school", "harbour", "museum", "station", "barn"),
)
"""Events, days and places."""
QUESTIONS = ("Is it about the {}?", "Does it say {}?", "Is the place the {}?")
ONE_DAY, BRIEF = "Is one day named and no other?", "Is it brief?"
WORDINGS = (
    "the {0} is on {1} in the {2}",
    "come to the {2} on {1} for the {0}",
    "on {1} there is a {0} in the {2}",
    "{0} in the {2} on {1}",
)
ADDITIONS = ("and please bring tea", "and the neighbours are told", "or else on {1}", "as it was every year before")
SLIP, ADDITION = 0.3, 0.3
"""How often each detail of the teacher's is another one, and how often something is added."""
BRIEF_WORDS = 9
SAMPLES = 8
HELD_OUT = 4
"""One of so many prompts is of `eval`."""
Details = tuple[str, ...]


def words_of(text: str) -> list[str]:
    """The words of a notice."""
    return "".join(one if one.isalpha() else " " for one in text.lower()).split()


def reader(completion: str, answer: Sequence[str]) -> float:
    """The share of details that are named and have no other of their kind beside them; a fifth less where not brief."""
    words = words_of(completion)
    right = [{*words} & {*kind} == {one} for kind, one in zip(KINDS, answer, strict=True)]
    return sum(right) / len(right) * (1.0 if len(words) <= BRIEF_WORDS else 0.8)


def prompt_of(details: Sequence[str]) -> str:
    """What the policy is asked."""
    return f"announce {' '.join(details)}"


def careless(details: Sequence[str], rng: Random) -> str:
    """A notice in some wording, each detail wrong with probability SLIP."""
    told = [rng.choice(kind) if rng.random() < SLIP else one for kind, one in zip(KINDS, details, strict=True)]
    text = rng.choice(WORDINGS).format(*told)
    if rng.random() < ADDITION:
        text += " " + rng.choice(ADDITIONS).format(*(rng.choice(kind) for kind in KINDS))
    return text + "."


def in_common(notices: Sequence[str]) -> Details:
    """Of each kind what most notices name; of equally frequent ones the first."""
    named = [Counter(word for text in notices for word in words_of(text) if word in kind) for kind in KINDS]
    return tuple(
        max(kind, key=lambda word: (one[word], -kind.index(word))) for kind, one in zip(KINDS, named, strict=True)
    )


def criteria_of(reference: str) -> list[dict[str, str]]:
    """Five criteria out of one notice."""
    details = in_common([reference])
    asked = [(question.format(one), "essential") for question, one in zip(QUESTIONS, details, strict=True)]
    return [{"criterion": text, "importance": one} for text, one in [*asked, (ONE_DAY, "pitfall"), (BRIEF, "optional")]]


def holds(criterion: str, notice: str) -> bool:
    """Whether a criterion of `criteria_of` is met."""
    words = words_of(notice)
    if criterion == BRIEF:
        return len(words) <= BRIEF_WORDS
    if criterion == ONE_DAY:
        return len({*words} & {*KINDS[1]}) == 1
    return {*words_of(criterion)} & {word for kind in KINDS for word in kind} <= {*words}


def details_of(rng: Random) -> Details:
    """Any details."""
    return tuple(map(rng.choice, KINDS))


def odd_notice(details: Sequence[str], rng: Random) -> str:
    """A notice, or what a policy may write to please whoever ticks: lists, repetitions, parts, nothing."""
    if rng.random() < 0.6:
        return careless(details, rng)
    every = [word for kind in KINDS for word in kind]
    words = rng.choices([*every, *details, *details, "the", "in", "on", "and"], k=rng.randint(1, 14))
    return " ".join(words) + rng.choice((".", ""))


class Notices(SingleTurnEnvironment):
    """A prompt names three details; any sentence that has them will do."""

    def __init__(self) -> None:
        super().__init__(rubric=Rubric(reader))

    def tasks(self, split: str = "train") -> list[Task]:
        """Every fourth combination of details is of `eval`."""
        every = list(product(*KINDS))
        Random("notices").shuffle(every)
        chosen = [one for at, one in enumerate(every) if (at % HELD_OUT == 0) == (split != "train")]
        return [Task(id="-".join(one), prompt=(user(prompt_of(one)),), answer=[*one]) for one in chosen]

    def oracle(self, task: Task) -> Policy:
        """The first wording."""
        return Scripted([WORDINGS[0].format(*task.answer) + "."])


def notice_duty(rng: Random) -> tuple[tuple[Message, ...], str]:
    """A prompt of the environment, answered by the teacher."""
    details = details_of(rng)
    return (user(prompt_of(details)),), careless(details, rng)


def synthesis_duty(rng: Random) -> tuple[tuple[Message, ...], str]:
    """Several notices about something; the answer has what most of them name."""
    details = details_of(rng)
    notices = [careless(details, rng) for _ in range(SAMPLES)]
    shown = "\n\n".join(f"Response {number}:\n{text}" for number, text in enumerate(notices, 1))
    answer = rng.choice(WORDINGS).format(*in_common(notices)) + "."
    return (system(SYNTHESIS_INSTRUCTIONS), user(shown)), answer


def rubric_duty(rng: Random) -> tuple[tuple[Message, ...], str]:
    """A notice; the answer is the JSON of its criteria."""
    reference = rng.choice(WORDINGS).format(*details_of(rng)) + "."
    instructions = WRITER_INSTRUCTIONS.replace("LEAST", str(MIN_CRITERIA)).replace("MOST", str(HELD_CRITERIA))
    prompt = system(instructions), user(FROM_REFERENCE.replace("{reference}", reference))
    return prompt, json.dumps({"criteria": criteria_of(reference)})


def tick_duty(rng: Random) -> tuple[tuple[Message, ...], str]:
    """A criterion of one notice and another notice; as often met as not, where that can be had."""
    wanted = rng.random() < 0.5
    while True:
        details = details_of(rng)
        criterion = rng.choice(criteria_of(WORDINGS[0].format(*details)))["criterion"]
        notice = odd_notice(details if rng.random() < 0.7 else details_of(rng), rng)
        if holds(criterion, notice) == wanted:
            text = CHOICE_CRITERION_TEMPLATE.format(criterion=criterion, completion=notice)
            return (user(text),), "Yes" if wanted else "No"


DUTIES = {"notice": notice_duty, "synthesis": synthesis_duty, "rubric": rubric_duty, "tick": tick_duty}
ROUND = ("tick", "notice", "tick", "synthesis", "tick", "tick", "notice", "tick", "rubric", "tick")
"""Duties in the order of tasks."""


def same(completion: str, answer: str) -> float:
    """1 for the very answer."""
    return float(completion.strip() == answer)


class NoticeDuties(SingleTurnEnvironment):
    """The duties, for SFT: the oracle's answers are imitated."""

    def __init__(self, only: str = "") -> None:
        """`only` this duty, or all of them by turns."""
        super().__init__(rubric=Rubric(same))
        self.round = (only,) if only else ROUND

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Tasks by number, each drawn by its own key."""
        return map(partial(self._task, split), range(20_000 if split == "train" else 200))

    def oracle(self, task: Task) -> Policy:
        """The task's answer."""
        return Scripted([task.answer])

    def _task(self, split: str, number: int) -> Task:
        duty = self.round[number % len(self.round)]
        prompt, answer = DUTIES[duty](Random(f"duties/{split}/{number}"))
        return Task(id=f"{split}-{number}", prompt=prompt, answer=answer, info={"duty": duty})
