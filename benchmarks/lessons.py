"""Six small skills that a tiny model learns: some letters or digits are shown, and a few are to be answered in order.

The reward is the share of the words at their right place, and 0 where there are not as many words as asked for. The
teacher slips at each word with the same probability, so that there is something left to learn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random

from wanderlust.environment import SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Message, Policy, Task, user

LETTERS, DIGITS = "ABCDEFGHIJKLMNOP", "0123456789"
EVAL_TASKS = 200
"""Tasks of the `eval` split; the `train` split is endless and has none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """How a question is drawn, what answers it, and what a slip writes instead."""

    draw: Callable[[Random], str]
    solve: Callable[[str], Sequence[str]]
    slips: Sequence[str]


def draw_letters(rng: Random) -> str:
    """`D A K C`: four different letters."""
    return " ".join(rng.sample(LETTERS, 4))


def draw_sums(rng: Random) -> str:
    """`3+4 8+7 2+0`."""
    return " ".join(f"{rng.choice(DIGITS)}+{rng.choice(DIGITS)}" for _ in range(3))


def draw_pairs(rng: Random) -> str:
    """`37 61 55`: numbers of two digits."""
    return " ".join(rng.choice(DIGITS) + rng.choice(DIGITS) for _ in range(3))


def draw_table(rng: Random) -> str:
    """`A3 K7 C1 D9,K A`: a table of four, and two letters to look up."""
    keys = rng.sample(LETTERS, 4)
    return " ".join(key + rng.choice(DIGITS) for key in keys) + "," + " ".join(rng.sample(keys, 2))


def looked_up(question: str) -> list[str]:
    """The digits that stand behind the letters that are asked for."""
    table, _, asked = question.partition(",")
    digits = {entry[0]: entry[1] for entry in table.split()}
    return [digits[key] for key in asked.split()]


SKILLS: Mapping[str, Skill] = {
    "sort": Skill(draw=draw_letters, solve=lambda shown: sorted(shown.split()), slips=LETTERS),
    "mirror": Skill(draw=draw_letters, solve=lambda shown: shown.split()[::-1], slips=LETTERS),
    "next": Skill(
        draw=draw_letters,
        solve=lambda shown: [LETTERS[(LETTERS.index(one) + 1) % len(LETTERS)] for one in shown.split()],
        slips=LETTERS,
    ),
    "add": Skill(
        draw=draw_sums,
        solve=lambda shown: [str((int(one[0]) + int(one[2])) % 10) for one in shown.split()],
        slips=DIGITS,
    ),
    "larger": Skill(draw=draw_pairs, solve=lambda shown: [max(one) for one in shown.split()], slips=DIGITS),
    "table": Skill(draw=draw_table, solve=looked_up, slips=DIGITS),
}
"""The letters in alphabetical order, backwards, each one's next; the last digit of each sum, the larger digit of each
pair; what a table says."""


def in_place(completion: str, answer: Sequence[str]) -> float:
    """The share of the words that are right where they stand; 0 where there are not as many as asked for."""
    said = completion.split(" ")
    return sum(map(str.__eq__, said, answer)) / len(answer) if len(said) == len(answer) else 0.0


def slipping_teacher(skill: Skill, *, slip: float) -> Scripted:
    """Knows the skill, and writes anything else with probability `slip` at each word."""

    def answer(messages: Sequence[Message], rng: Random) -> str:
        words = skill.solve(messages[-1].content)
        return " ".join(rng.choice(skill.slips) if rng.random() < slip else word for word in words)

    return Scripted(answer)


class Lesson(SingleTurnEnvironment):
    """Questions of one of `SKILLS`."""

    def __init__(self, skill: str, *, slip: float = 0.4):
        """Raises UsageError when there is no such skill, or `slip` is no probability."""
        if skill not in SKILLS or not 0 <= slip <= 1:
            raise UsageError(f"skill is one of {', '.join(SKILLS)} and slip from 0 to 1, not {skill!r} and {slip}")
        super().__init__(rubric=Rubric(in_place))
        self.skill, self.name = SKILLS[skill], skill
        self.players: Mapping[str, Callable[[], Policy]] = {"teacher": partial(slipping_teacher, self.skill, slip=slip)}

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Tasks by number, each drawn by its own key."""
        if split == "eval":
            return (self._task("eval", number) for number in range(EVAL_TASKS))
        held_out = {self._task("eval", number).prompt for number in range(EVAL_TASKS)}
        return (task for number in count() if (task := self._task(split, number)).prompt not in held_out)

    def oracle(self, task: Task) -> Policy:
        """Answers rightly."""
        return Scripted([" ".join(task.answer)])

    def _task(self, split: str, number: int) -> Task:
        question = self.skill.draw(Random(f"{self.name}/{split}/{number}"))
        return Task(id=f"{split}-{number}", prompt=(user(question),), answer=[*self.skill.solve(question)])
