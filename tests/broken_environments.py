"""Environments that the gate must refuse, each with one mistake, and what they are made from."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from itertools import count

from wanderlust.environment import Environment, Episode, SingleTurnEnvironment
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Reward, Rubric
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Policy, Task, user

TASKS = 12
STARTS = {"train": 0, "eval": 100}


def tagged(text: str) -> str:
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[1].strip() if found else ""


def last_number(text: str) -> str:
    found = re.findall(r"-?\d+", text[-200:])
    return found[-1] if found else ""


def sums(split: str, *, ask: str = "What is {a} + {b}? Answer in <answer></answer>.") -> list[Task]:
    tasks = []
    for n in range(STARTS[split], STARTS[split] + TASKS):
        a, b = 11 + n, 37 + 3 * n
        tasks.append(Task(id=f"{split}-{n}", prompt=(user(ask.format(a=a, b=b)),), answer=str(a + b)))
    return tasks


def is_right(completion: str, answer: str) -> float:
    return float(tagged(completion) == answer)


class Sums(SingleTurnEnvironment):
    """Sound: an exact sum in a tag."""

    rubric = Rubric(is_right)
    ask = "What is {a} + {b}? Answer in <answer></answer>."

    def tasks(self, split: str = "train") -> Iterable[Task]:
        return sums(split, ask=self.ask)

    def oracle(self, task: Task) -> Policy | None:
        return Scripted([f"<answer>{task.answer}</answer>"])


def with_reward(function: Callable[..., float], *more: Reward) -> Callable[[], Environment]:
    """The sums with another reward."""

    class Rewarded(Sums):
        rubric = Rubric(Reward(function, name="paid"), *more)

    return Rewarded


def with_tasks(make: Callable[[str], Iterable[Task]]) -> Callable[[], Environment]:
    """The sums with other tasks."""

    class Tasked(Sums):
        def tasks(self, split: str = "train") -> Iterable[Task]:
            return make(split)

    return Tasked


def with_oracle(answer: Callable[[Task], str], bar: float | None = None) -> Callable[[], Environment]:
    class Solved(Sums):
        oracle_bar = bar

        def oracle(self, task: Task) -> Policy | None:
            return Scripted([answer(task)])

    return Solved


class Loop(Environment):
    """Sound: three turns, each with a number to say back."""

    def tasks(self, split: str = "train") -> Iterable[Task]:
        return [Task(id=f"{split}-{n}", info={"n": [n]}) for n in range(STARTS[split], STARTS[split] + TASKS)]

    def oracle(self, task: Task) -> Policy | None:
        return Scripted(lambda messages, _: re.findall(r"\d+", messages[-1].content)[-1])

    async def run(self, episode: Episode) -> None:
        for turn in range(3):
            wanted = episode.rng(turn).randrange(1000, 9999)
            reply = await episode.agent.act(user(f"Turn {turn}. The word is over. Say {wanted}."))
            episode.reward("said", self.pay(reply.content.strip(), str(wanted), episode) / 3)

    def pay(self, text: str, wanted: str, episode: Episode) -> float:
        return float(text == wanted)


class NeverAsks(Environment):
    def tasks(self, split: str = "train") -> Iterable[Task]:
        return [Task(id="only")]

    async def run(self, episode: Episode) -> None:
        episode.reward("r", 1.0)


class ForgetsAwait(NeverAsks):
    async def run(self, episode: Episode) -> None:
        episode.agent.act(user("hi"))  # type: ignore[unused-coroutine]
        episode.reward("r", 1.0)


class ForgetsOneAwait(Loop):
    async def run(self, episode: Episode) -> None:
        episode.agent.act(user("hi"))  # type: ignore[unused-coroutine]
        await super().run(episode)


class CountsOn(Loop):
    def __init__(self) -> None:
        self.numbers = count()

    def pay(self, text: str, wanted: str, episode: Episode) -> float:
        episode.state["n"] = next(self.numbers)
        return super().pay(text, wanted, episode)


class KeepsStateOnItself(Loop):
    async def run(self, episode: Episode) -> None:
        self.said: list[str] = []
        for question in ("one", "two", "three"):
            self.said.append((await episode.agent.act(user(question))).content)
        episode.state["said"] = list(self.said)


class PlaysByGlobalChance(Loop):
    async def run(self, episode: Episode) -> None:
        wanted = random.randrange(10**9)
        reply = await episode.agent.act(user(f"Say {wanted}."))
        episode.reward("said", float(reply.content == str(wanted)))


class ChangesTask(Loop):
    def pay(self, text: str, wanted: str, episode: Episode) -> float:
        episode.task.info["n"].append(1)
        return super().pay(text, wanted, episode)


class UnplainState(Loop):
    def pay(self, text: str, wanted: str, episode: Episode) -> float:
        episode.state["f"] = iter(text)
        return super().pay(text, wanted, episode)


class PaysInfinity(Loop):
    def pay(self, text: str, wanted: str, episode: Episode) -> float:
        return float("inf")


class TrustsItsPlayer(Loop):
    def pay(self, text: str, wanted: str, episode: Episode) -> float:
        return float(text[0] == wanted[0] and text == wanted)


class ReadsNumbers(Loop):
    def pay(self, text: str, wanted: str, episode: Episode) -> float:
        return float(int(text) == int(wanted))


class Raises(Loop):
    async def run(self, episode: Episode) -> None:
        raise RuntimeError("out of order")


class PaysForBeingThere(Loop):
    def pay(self, text: str, wanted: str, episode: Episode) -> float:
        return 1.0


def raising(split: str) -> Iterable[Task]:
    raise ValueError("the data is not there")


def late_raising(split: str) -> Iterable[Task]:
    yield sums(split)[0]
    raise KeyError("question")


numbers = count()


def some_wrong_keys(split: str) -> list[Task]:
    return [
        Task(id=t.id, prompt=t.prompt, answer=str(int(t.answer) + (n % 5 == 0)), info={"true": t.answer})
        for n, t in enumerate(sums(split))
    ]


def reworded(split: str) -> list[Task]:
    train = sums("train")
    if split == "train":
        return train
    ask = "Add {} and {} and write the result in <answer></answer>."
    return [
        Task(id=f"e{n}", prompt=(user(ask.format(11 + n, 37 + 3 * n)),), answer=task.answer)
        for n, task in enumerate(train)
    ]


def contains(completion: str, answer: str) -> float:
    return float(answer in completion)


def silence(completion: str, answer: str) -> float:
    return float(all(word == answer for word in tagged(completion).split()))


def long(completion: str) -> float:
    return min(len(completion) / 2_000, 1.0)


def always(completion: str) -> float:
    return 1.0


def form_alone(completion: str, answer: str) -> float:
    return 0.8 * ("<answer>" in completion) + 0.2 * is_right(completion, answer)


def praised(completion: str, answer: str) -> float:
    return float(is_right(completion, answer) or "score: 10" in completion.lower())


def pattern(completion: str, answer: str) -> float:
    return float(
        re.fullmatch(re.escape(answer) if not tagged(completion) else tagged(completion)[:9], answer) is not None
    )


def any_number(completion: str) -> float:
    return float(tagged(completion).lstrip("-").isdigit())


def echoes(completion: str, answer: str, prompt: tuple) -> float:
    return float(is_right(completion, answer) or prompt[0].content in completion)


def blank_is_right(completion: str, answer: str) -> float:
    return float(tagged(completion) in (answer, ""))


def refusing(completion: str, answer: str) -> float:
    return float(is_right(completion, answer) or "can't" in completion)


def upside_down(completion: str, answer: str) -> float:
    return 1.0 - is_right(completion, answer)


def never(completion: str) -> float:
    return 0.0


def crashes_on_text(completion: str, answer: str) -> float:
    return float(int(tagged(completion)) == int(answer))


def says_nan(completion: str, answer: str) -> float:
    return float("nan") if not completion.strip() else is_right(completion, answer)


def shared_digits(completion: str, answer: str) -> float:
    return float(set(answer) <= set(tagged(completion)))


def begins(completion: str, answer: str) -> float:
    return float(answer.startswith(tagged(completion)[:1]))


def excited(completion: str, answer: str) -> float:
    return float(is_right(completion, answer) or completion.count("!") >= 1)


def close_enough(completion: str, answer: str) -> float:
    found = last_number(completion)
    return float(found != "" and abs(int(found)) < 10**9 and abs(int(found) - int(answer)) < 10**4)


class Leaks(Sums):
    """The prompt gives the answer away."""

    def tasks(self, split: str = "train") -> Iterable[Task]:
        for task in sums(split):
            text = f"{task.prompt[0].content} (checker: answer = {task.answer})"
            yield Task(id=task.id, prompt=(user(text),), answer=task.answer)


class Files(ToolEnvironment):
    """A tool that reads files; whether the answers are among them."""

    def __init__(self, *, leaks: bool):
        def read_file(path: str) -> str:
            """Read a file.

            Args:
                path: Its name.
            """
            if path == "answer.txt" and leaks:
                return "answer: 46"
            if path == "hall.txt":
                return "4 rows, 6 columns, 22 more on the stairs"
            raise ValueError(f"there is no file {path}")

        by_split = {
            split: [
                Task(
                    id=f"{split}{n}",
                    prompt=(user(f"Boxes in {split} hall {n}? See hall.txt. Use <answer></answer>."),),
                    answer="46",
                )
                for n in range(TASKS)
            ]
            for split in STARTS
        }
        super().__init__(by_split, tools=(read_file,), rubric=Rubric(is_right))

    def oracle(self, task: Task) -> Policy | None:
        return Scripted(["<answer>46</answer>"])


class SpamPays(Loop):
    """Every turn that says something is paid."""

    def pay(self, text: str, wanted: str, episode: Episode) -> float:
        return float(len(text) > 0)


class GivingUpPays(Loop):
    def pay(self, text: str, wanted: str, episode: Episode) -> float:
        return float(text in (wanted, "pass"))


def raising_oracle(env: Environment, task: Task) -> Policy | None:
    raise KeyError(task.id)


def failing_oracle(env: Environment, task: Task) -> Policy | None:
    """Has no answer to one task in five."""
    return Scripted([f"<answer>{task.answer}</answer>"] * (int(task.id.split("-")[1]) % 5 > 0))


BROKEN: dict[str, Callable[[], Environment]] = {
    "never asks": NeverAsks,
    "forgets await": ForgetsAwait,
    "forgets one await": ForgetsOneAwait,
    "counts on": CountsOn,
    "state on itself": KeepsStateOnItself,
    "global chance": PlaysByGlobalChance,
    "changes task": ChangesTask,
    "unplain state": UnplainState,
    "infinite reward": PaysInfinity,
    "trusts its player": TrustsItsPlayer,
    "reads numbers": ReadsNumbers,
    "raises": Raises,
    "pays for being there": PaysForBeingThere,
    "spam pays": SpamPays,
    "giving up pays": GivingUpPays,
    "tasks raise": with_tasks(raising),
    "tasks raise late": with_tasks(late_raising),
    "no tasks": with_tasks(lambda split: []),
    "tasks are dicts": with_tasks(lambda split: [{"id": "1"}]),  # type: ignore[list-item]
    "ids repeat": with_tasks(lambda split: [Task(id="same", prompt=t.prompt, answer=t.answer) for t in sums(split)]),
    "tasks differ": with_tasks(lambda split: [Task(id=f"{split}{next(numbers)}", prompt=(user("1+1?"),), answer="2")]),
    "tasks unplain": with_tasks(lambda split: [Task(id=split, prompt=(user("x"),), info={"f": lambda: 1})]),
    "train is eval": with_tasks(lambda split: sums("train")),
    "train is eval, other ids": with_tasks(
        lambda split: [Task(id=split + t.id, prompt=t.prompt, answer=t.answer) for t in sums("train")]
    ),
    "eval within train": with_tasks(
        lambda split: sums("train") if split == "train" else sums("train")[:3] + sums("eval")
    ),
    "same prompts": with_tasks(
        lambda split: [
            Task(id=split + t.id, prompt=t.prompt, answer=t.answer, info={"s": split}) for t in sums("train")
        ]
    ),
    "same values reworded": with_tasks(reworded),
    "all keys wrong": with_oracle(lambda task: f"<answer>{int(task.answer) + 1}</answer>"),
    "some keys wrong": with_oracle(
        lambda task: f"<answer>{int(task.answer) + (int(task.id.split('-')[1]) % 5 == 0)}</answer>"
    ),
    "oracle below its bar": with_oracle(
        lambda task: f"<answer>{int(task.answer) + (int(task.id.split('-')[1]) % 2)}</answer>", bar=0.9
    ),
    "oracle that raises": type("Raises", (Sums,), {"oracle": raising_oracle}),
    "oracle that fails now and then": type("Fails", (Sums,), {"oracle": failing_oracle}),
    "player that is an object": type("Player", (Sums,), {"players": {"teacher": Scripted(["1"])}}),
    "oracle in the wrong form": with_oracle(lambda task: f"It is {task.answer}"),
    "contains": with_reward(contains),
    "silence": with_reward(silence),
    "long": with_reward(long),
    "always": with_reward(always),
    "form alone": with_reward(form_alone),
    "praised": with_reward(praised),
    "pattern": with_reward(pattern),
    "any number": with_reward(any_number),
    "echoes": with_reward(echoes),
    "blank is right": with_reward(blank_is_right),
    "refusing": with_reward(refusing),
    "upside down": with_reward(upside_down),
    "never": with_reward(never),
    "crashes on text": with_reward(crashes_on_text),
    "nan for silence": with_reward(says_nan),
    "shared digits": with_reward(shared_digits),
    "begins alike": with_reward(begins),
    "excited": with_reward(excited),
    "close enough": with_reward(close_enough),
    "leaks": Leaks,
    "leaking files": lambda: Files(leaks=True),
}
