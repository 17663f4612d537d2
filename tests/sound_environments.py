"""Environments that the gate must pass: other forms of answers, oracles, rewards and tasks, and nothing broken."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable

from broken_environments import (
    STARTS,
    TASKS,
    Loop,
    Sums,
    is_right,
    last_number,
    sums,
    tagged,
    with_oracle,
    with_reward,
    with_tasks,
)
from wanderlust.environment import Environment, Episode, SingleTurnEnvironment
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Reward, Rubric, gate, held_out, metric
from wanderlust.types import Policy, Task, assistant, system, user


def forms(ask: str, write: str, read: Callable[[str], str]) -> Callable[[], Environment]:
    """The sums in another form."""

    def exact(completion: str, answer: str) -> float:
        return float(read(completion) == answer)

    class Formed(Sums):
        rubric = Rubric(exact)

        def tasks(self, split: str = "train") -> Iterable[Task]:
            return sums(split, ask=ask)

        def oracle(self, task: Task) -> Policy | None:
            return Scripted([write.format(task.answer)])

    return Formed


def between(before: str, after: str = "") -> Callable[[str], str]:
    def read(text: str) -> str:
        found = re.search(re.escape(before) + r"\s*(-?\d+)\s*" + re.escape(after), text[:2_000])
        return found[1] if found else ""

    return read


def labels(words: tuple[str, ...], sentence: str = "{}", share: int = 2) -> Callable[[], Environment]:
    """A classifier: a number falls into one of some classes."""

    def first_word(completion: str, answer: str) -> float:
        return float(re.split(r"\W+", completion.strip().lower())[0] == answer)

    class Labelled(SingleTurnEnvironment):
        rubric = Rubric(first_word)

        def tasks(self, split: str = "train") -> Iterable[Task]:
            for n in range(STARTS[split], STARTS[split] + 3 * TASKS):
                word = words[min(random.Random(n).randrange(share * (len(words) - 1)), len(words) - 1)]
                text = f"Item {n * 7919 % 1000}-{n}: {' or '.join(words)}?"
                yield Task(id=f"{split}-{n}", prompt=(user(text),), answer=word)

        def oracle(self, task: Task) -> Policy | None:
            return Scripted([sentence.format(task.answer)])

    return Labelled


class FewShot(Sums):
    """Examples in the prompt show the form, and nothing else does."""

    rubric = Rubric(is_right)

    def tasks(self, split: str = "train") -> Iterable[Task]:
        for task in sums(split, ask="{a} + {b}"):
            shown = (user("2 + 3"), assistant("<answer>5</answer>"), user("5 + 5"), assistant("<answer>10</answer>"))
            yield Task(id=task.id, prompt=(*shown, *task.prompt), answer=task.answer)

    def oracle(self, task: Task) -> Policy | None:
        return Scripted(lambda _messages, _rng: f"<answer>{task.answer}</answer>")


class Guessing(Environment):
    """Sound: higher or lower, the fewer guesses the better."""

    def tasks(self, split: str = "train") -> Iterable[Task]:
        return [
            Task(id=f"{split}-{n}", info={"n": (n * 37) % 1000 + 1})
            for n in range(STARTS[split], STARTS[split] + TASKS)
        ]

    def oracle(self, task: Task) -> Policy | None:
        return Scripted([str(task.info["n"])])

    async def run(self, episode: Episode) -> None:
        said = "Guess my number from 1 to 1000."
        for turn in range(6):
            found = re.findall(r"-?\d{1,6}", (await episode.agent.act(user(said))).content[:200])
            guess, wanted = int(found[-1]) if found else -1, episode.task.info["n"]
            if guess == wanted:
                episode.reward("found", 1.0 - turn / 10)
                return
            said = "Higher." if guess < wanted else "Lower."


SOUND: dict[str, Callable[[], Environment]] = {
    "sums": Sums,
    "loop": Loop,
    "guessing": Guessing,
    "few-shot": FewShot,
    "system prompt": with_tasks(
        lambda split: [Task(id=t.id, prompt=(system("Be brief."), *t.prompt), answer=t.answer) for t in sums(split)]
    ),
    "no oracle": type("NoOracle", (Sums,), {"oracle": Environment.oracle}),
    "no train": with_tasks(lambda split: sums(split) if split == "eval" else []),
    "an imperfect oracle, stated": with_oracle(
        lambda task: f"<answer>{int(task.answer) + (int(task.id.split('-')[1]) % 4 == 0)}</answer>", bar=0.6
    ),
    "a perfect oracle, stated": with_oracle(lambda task: f"<answer>{task.answer}</answer>", bar=1.0),
    "oracle that reasons": with_oracle(lambda task: f"<think>so</think>\n<answer>{task.answer}</answer>"),
    "boxed": forms("What is {a} + {b}? End with \\boxed{{}}.", "So \\boxed{{{}}}", between("\\boxed{", "}")),
    "marker": forms("What is {a} + {b}? End with `Answer: N`.", "Answer: {}", between("Answer:")),
    "hashes": forms("What is {a} + {b}? End with #### N.", "#### {}", between("####")),
    "json": forms('What is {a} + {b}? Reply as {{"sum": N}}.', '{{"sum": {}}}', between('"sum":')),
    "sentence": forms("What is {a} + {b}?", "The answer is {}.", between("The answer is")),
    "inside tags": forms(
        "What is {a} + {b}? Put it inside move tags.", "<move>{}</move>", between("<move>", "</move>")
    ),
    "bare": forms("What is {a} + {b}? The number alone.", "{}", str.strip),
    "last number": forms("{a} + {b} = ?", "{}", last_number),
    "prefix": forms("What is {a} + {b}? Say: sum N", "sum {}", between("sum")),
    "two labels": labels(("yes", "no")),
    "two labels, a sentence": labels(("yes", "no"), "{}, that follows from the item."),
    "two labels, one frequent": labels(("no", "yes"), share=4),
    "three labels": labels(("red", "green", "blue")),
    "four labels": labels(("north", "east", "south", "west")),
    "labels, capital": labels(("true", "false"), "{}."),
}


def small_bonus(completion: str) -> float:
    return float("<answer>" in completion)


def short(completion: str) -> float:
    return float(len(completion) < 200)


def partial(completion: str, answer: str) -> float:
    found = tagged(completion)
    return 1.0 if found == answer else 0.1 * (len(found) == len(answer))


def penalty(completion: str) -> float:
    return float("<answer>" not in completion)


def words(completion: str) -> float:
    return float(len(completion.split()))


for name, more in {
    "a form bonus": (Reward(small_bonus, 0.1),),
    "a shortness bonus": (Reward(short, 0.1),),
    "a penalty": (Reward(penalty, -0.2),),
    "a metric": (metric(words),),
    "a held-out part": (held_out(words),),
    "a gate": (gate(short),),
    "both bonuses": (Reward(small_bonus, 0.05), Reward(short, 0.05)),
    "weights": (Reward(partial, 0.5),),
}.items():
    SOUND[name] = with_reward(is_right, *more)
SOUND["partial credit"] = with_reward(partial)
for place, (sign, ask) in enumerate(
    (("-", "minus"), ("*", "times"), ("+", "plus"), ("%", "modulo"), ("//", "divided by")), 1
):

    def other(split: str, sign: str = sign, ask: str = ask, place: int = place) -> list[Task]:
        tasks = []
        for n in range(STARTS[split], STARTS[split] + TASKS):
            a, b = 1009 + 17 * n * place, 13 + n
            text = f"{a} {ask} {b}? Use <answer></answer>."
            answer = {"-": a - b, "*": a * b, "+": a + b, "%": a % b, "//": a // b}[sign]
            tasks.append(Task(id=f"{split}-{n}", prompt=(user(text),), answer=str(answer)))
        return tasks

    SOUND[f"arithmetic {ask}"] = with_tasks(other)


class Spelling(Sums):
    """Say the letters of a word; every task has other words."""

    def tasks(self, split: str = "train") -> Iterable[Task]:
        for n in range(STARTS[split], STARTS[split] + TASKS):
            word = "".join(random.Random(n).sample("abcdefghijklmnoprstuvw", 6))
            text = f"Write {word} backwards. Use <answer></answer>."
            yield Task(id=f"{split}-{n}", prompt=(user(text),), answer=word[::-1])


class Sorting(Sums):
    """Three numbers in order."""

    def tasks(self, split: str = "train") -> Iterable[Task]:
        for n in range(STARTS[split], STARTS[split] + TASKS):
            numbers = random.Random(n).sample(range(100, 999), 4)
            text = f"Sort {' '.join(map(str, numbers))} downwards. Use <answer></answer>."
            answer = " ".join(map(str, sorted(numbers, reverse=True)))
            yield Task(id=f"{split}-{n}", prompt=(user(text),), answer=answer)


SOUND["spelling"] = Spelling
SOUND["sorting"] = Sorting
