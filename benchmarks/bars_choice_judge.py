"""SmolLM2-135M-Instruct as a judge, by log-probabilities and by what it writes: agreement with labels beyond chance.

The labels follow from how each text was made, so nobody's opinion is in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.bar import Bar
from wanderlust.errors import RubricFailure
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.policies.local.smollm2 import fetch_smollm2
from wanderlust.rubrics.choice_judge import ChoiceJudge
from wanderlust.rubrics.judge import Judge, JudgeOptions

COUNT, CALIBRATION = 100, 20
"""Texts of each task, and further ones without labels that judges are calibrated on."""
PLACES = ("hotel", "restaurant", "film", "concert", "train ride", "shop", "museum", "course", "game", "book")
PRAISE = ("wonderful", "excellent", "delightful", "superb", "charming", "a joy", "brilliant", "perfect", "great fun")
BLAME = ("awful", "terrible", "boring", "disgusting", "a waste of money", "horrible", "dreadful", "broken", "a mess")
OPENINGS = ("The {} was {}.", "Honestly, the {} was {}.", "I thought that the {} was {}.", "For me the {} was {}!")
FOOD = ("soup", "bread", "an apple", "cheese", "rice with beans", "a pancake", "noodles", "roast chicken", "a salad")
OTHER = ("a hammer", "a bicycle", "a sofa", "the moon", "a car engine", "a raincoat", "a computer", "a river", "a lamp")
PEOPLE = ("Anna", "My uncle", "The child", "Our neighbour", "A tourist", "The teacher", "Somebody", "Paul", "The queen")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledTask:
    """Texts that a yes or no belongs to."""

    name: str
    question: str
    make: Callable[[Random, bool], str]
    words: tuple[str, str] = ("Yes", "No")

    @property
    def template(self) -> str:
        """The judge's prompt."""
        return f"Text: {{completion}}\n\n{self.question} Answer with {self.words[0]} or {self.words[1]}."

    def read(self, answer: str) -> float | None:
        """The verdict of an answer in words."""
        word = answer.strip().lower()
        said = [word.startswith(one.lower()) for one in self.words]
        return float(said[0]) if any(said) else None

    def texts(self) -> list[tuple[str, bool]]:
        """As many with each label, always the same; the last CALIBRATION of them are for calibration."""
        rng = Random(self.name)
        return [(self.make(rng, number % 2 == 0), number % 2 == 0) for number in range(COUNT + CALIBRATION)]


def opinion(rng: Random, label: bool) -> str:
    """Praise or blame."""
    return rng.choice(OPENINGS).format(rng.choice(PLACES), rng.choice(PRAISE if label else BLAME))


def thing(rng: Random, label: bool) -> str:
    """Something to eat, or not."""
    return f"{rng.choice(PEOPLE)} is thinking about {rng.choice(FOOD if label else OTHER)}."


def total(rng: Random, label: bool) -> str:
    """A sum, right or off by 1 to 9."""
    a, b = rng.randint(10, 99), rng.randint(10, 99)
    return f"{a} + {b} = {a + b if label else a + b + rng.randint(1, 9)}"


TASKS = (
    LabelledTask(
        name="praise or blame",
        question="Is this review positive or negative?",
        make=opinion,
        words=("Positive", "Negative"),
    ),
    LabelledTask(name="praise or not", question="Is this a positive review?", make=opinion),
    LabelledTask(name="food or not", question="Is this text about food?", make=thing),
    LabelledTask(name="right or wrong sum", question="Is this sum right?", make=total),
)


def kappa(found: Sequence[bool], labels: Sequence[bool]) -> float:
    """Cohen's kappa: agreement beyond that of two raters with these shares of yes."""
    agreed = sum(a == b for a, b in zip(found, labels, strict=True)) / len(labels)
    one, other = sum(found) / len(found), sum(labels) / len(labels)
    chance = one * other + (1 - one) * (1 - other)
    return (agreed - chance) / (1 - chance)


Ask = Callable[[str], Awaitable[float | None]]


async def verdicts(ask: Ask, texts: Sequence[str]) -> list[float | None]:
    """One after the other."""
    return [await ask(text) for text in texts]


def by(judge: Judge | ChoiceJudge) -> Ask:
    """What a judge says of a text; None where it gives no verdict."""

    async def ask(text: str) -> float | None:
        try:
            return (await judge(completion=text)).value
        except RubricFailure:
            return None

    return ask


def bars() -> Iterator[Bar]:
    """Each task, by log-probabilities calibrated and not, and by a written word."""
    model, tokenizer = load_pretrained(fetch_smollm2())
    policy = LocalPolicy.of(model, tokenizer, SamplingOptions(max_tokens=8, temperature=0), seed=0)
    for number, task in enumerate(TASKS):
        template, choices = task.template, {task.words[0]: 1.0, task.words[1]: 0.0}
        texts, labels = zip(*task.texts()[:COUNT], strict=True)
        without_labels = [{"completion": text} for text, _ in task.texts()[COUNT:]]
        judges: dict[str, Judge | ChoiceJudge] = {
            "calibrated": ChoiceJudge(policy, template, verdicts=choices, calibration=without_labels),
            "not calibrated": ChoiceJudge(policy, template, verdicts=choices),
            "written": Judge(policy, template, options=JudgeOptions(attempts=1, read=task.read)),
        }
        kappas, yes, unread = {}, {}, 0
        for name, judge in judges.items():
            told = asyncio.run(verdicts(by(judge), texts))
            unread = sum(one is None for one in told)
            found = [one is not None and one > 0.5 for one in told]
            kappas[name], yes[name] = kappa(found, labels), sum(found)
        note = (
            f"{COUNT} texts; not calibrated {kappas['not calibrated']:.2f}, written {kappas['written']:.2f} "
            f"({unread} unreadable); {task.words[0]} said {', '.join(map(str, yes.values()))} times"
        )
        promised = number == 0
        yield Bar(
            name=f"{task.name}: kappa by log-probabilities, calibrated",
            figure=kappas["calibrated"],
            bar=0.4 if promised else 0,
            aim=0.6 if promised else 0,
            better="higher",
            note=note if promised else f"no bar: for comparison; {note}",
            promised=promised,
        )
