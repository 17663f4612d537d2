"""Short texts about a subject: constraints that code checks, style by a judge, difference from the other samples.

Code counts sentences and words, so that part is exact. Nobody can compute style: it is asked of a judge or a reward
model, where one is named, and is worth what that one is worth. Measure it first (`wander judge calibrate`). A text is
paid for style as far as it keeps the constraints, so that a judge cannot be talked out of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import isawaitable, signature
from pathlib import Path
from random import Random
from typing import Any

from wanderlust.environment import SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.policies.base import SupportsChoices
from wanderlust.policies.resolve import PolicyOptions, resolve_judge_policy
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.choice_judge import ChoiceJudge
from wanderlust.rubrics.generated import CHOICE_CRITERION_TEMPLATE, Checklist, Criterion, Importance
from wanderlust.rubrics.reward_model import RewardModel, reward_model_folder
from wanderlust.rubrics.rubric import Reward, RewardResult, Rubric, reward_value
from wanderlust.types import Policy, Task, user

SUBJECTS = (
    *("rain", "tea", "trains", "salt", "owls", "bread", "bridges", "winter", "maps", "clocks", "gardens", "ships"),
    *("letters", "islands", "markets", "shadows", "kitchens", "horses", "lamps", "rivers", "stations", "snow"),
)
HELD_OUT_SUBJECTS = ("windows", "bees", "harbours", "coats", "ladders", "moonlight")
"""Subjects of the evaluation alone."""
WANTED = ("stone", "morning", "glass", "window", "road", "child", "paper", "hand", "wind", "table", "water", "door")
UNWANTED = ("very", "beautiful", "nice", "really", "amazing")
SENTENCES = (1, 2, 3)
SENTENCE_WORDS = (5, 20)
"""Fewest and most words of a sentence."""
MIN_DIFFERENT_WORDS = 0.6
"""Share of a text's words that differ from one another, at least."""
MAX_CHARS = 2000
"""Longer texts keep no constraint."""
DIFFERENT_WEIGHT = 0.25
STYLE: Sequence[tuple[str, Importance]] = (
    ("Is this text about {subject}?", "essential"),
    ("Is this text correct English?", "essential"),
    ("Does this text show something that can be seen, heard or touched?", "important"),
    ("Would a reader want to read on?", "optional"),
)
"""What a judge is asked, with its importance."""
STYLE_FIELDS = frozenset({"task", "completion", "prompt", "messages", "answer"})
"""What a reward function of style may ask for."""
CALIBRATION = ({"completion": "N/A"}, {"completion": "word word word word word."})
"""Texts that no criterion holds of: a judge by log-probabilities is calibrated by them for each criterion."""
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def lower_words(text: str) -> list[str]:
    """The words of a text in lower case."""
    return _WORD.findall(text.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class TextConstraints:
    """What code can check of a text."""

    sentences: int
    wanted: tuple[str, ...]
    unwanted: str

    def kept(self, text: str) -> dict[str, bool]:
        """Each constraint, and whether the text keeps it; none is kept by an empty text or one that is too long."""
        words, parts = lower_words(text), _SENTENCE_END.split(text.strip())
        shortest, longest = SENTENCE_WORDS
        found = {
            "sentences": len(parts) == self.sentences and all(part[-1:] in (".", "!", "?") for part in parts),
            "lengths": all(shortest <= len(lower_words(part)) <= longest for part in parts),
            "wanted": {*self.wanted} <= {*words},
            "unwanted": self.unwanted not in words,
            "different_words": len({*words}) >= MIN_DIFFERENT_WORDS * len(words),
        }
        return found if words and len(text) <= MAX_CHARS else dict.fromkeys(found, False)


def different(completions: Sequence[str]) -> list[float]:
    """For each sample of a task, the share of its runs of three words that no other sample has; 1 for one alone."""
    runs = [{*zip(words, words[1:], words[2:], strict=False)} for words in map(lower_words, completions)]
    shares = []
    for at, own in enumerate(runs):
        others = set[tuple[str, ...]]().union(*(one for number, one in enumerate(runs) if number != at))
        shares.append(len(own - others) / len(own) if own else 0.0)
    return shares


class Writing(SingleTurnEnvironment):
    """Write a few sentences about a subject, with words that must and must not be there.

    `Writing(style="runs/taste")` is judged by a reward model, `Writing(style="smollm2")` by the log-probabilities of a
    checkpoint, `Writing(style=Judge(...))` by any reward function. Without a style only the constraints and the
    difference from the task's other samples are paid.
    """

    def __init__(self, style: Any = None, *, size: int = 400, eval_size: int = 60):
        """`style` is a reward function, or the name of a reward model or judge; `size` counts tasks of training."""
        if size < 1 or eval_size < 1:
            raise UsageError(f"size and eval_size are at least 1, not {size} and {eval_size}")
        self.size, self.eval_size = size, eval_size
        self._style = style_reward(style) if isinstance(style, str) and style else style
        self._fields = [*signature(self._style).parameters] if self._style else []
        if unknown := {*self._fields} - STYLE_FIELDS:
            raise UsageError(f"a style is judged by {', '.join(sorted(STYLE_FIELDS))}, and not by {min(unknown)}")
        styles = [Reward(self.style)] if self._style else []
        super().__init__(rubric=Rubric(self.constraints, Reward(different, DIFFERENT_WEIGHT), *styles))

    def tasks(self, split: str = "train") -> list[Task]:
        """The tasks of `train` or `eval`, whose subjects differ. Raises UsageError for another split."""
        if split not in ("train", "eval"):
            raise UsageError(f"there is no split {split!r}: one of train, eval")
        return [self._task(split, number) for number in range(self.size if split == "train" else self.eval_size)]

    def oracle(self, task: Task) -> Policy:
        """Keeps every constraint, in plain prose."""
        subject, (one, other) = task.info["subject"], task.info["wanted"]
        text = [
            f"All that day we thought of {subject}, of a {one} and of some {other}.",
            "Nobody spoke until it was dark outside.",
            "Then they went home without another word.",
        ]
        return Scripted([" ".join(text[: task.info["sentences"]])])

    def constraints(self, task: Task, completion: str) -> RewardResult:
        """The share of the constraints that the text keeps."""
        kept = _constraints(task).kept(completion)
        metrics = {name: float(value) for name, value in kept.items()}
        broken = ", ".join(name for name, value in kept.items() if not value)
        return RewardResult(value=sum(kept.values()) / len(kept), metrics=metrics, note=f"broken: {broken or 'none'}")

    async def style(self, *, task: Task, completion: str, prompt: Any, messages: Any, answer: Any) -> RewardResult:
        """The style by the judge, times the share of the constraints that are kept."""
        fields = {"task": task, "completion": completion, "prompt": prompt, "messages": messages, "answer": answer}
        found = self._style(**{name: fields[name] for name in self._fields})
        found = await found if isawaitable(found) else found
        result = found if isinstance(found, RewardResult) else RewardResult(value=found)
        kept = _constraints(task).kept(completion).values()
        value = reward_value(result.value)
        return replace(result, value=value * sum(kept) / len(kept), metrics={**result.metrics, "alone": value})

    def _task(self, split: str, number: int) -> Task:
        rng = Random(f"writing/{split}/{number}")
        subject = rng.choice(SUBJECTS if split == "train" else HELD_OUT_SUBJECTS)
        one = TextConstraints(
            sentences=rng.choice(SENTENCES), wanted=tuple(rng.sample(WANTED, 2)), unwanted=rng.choice(UNWANTED)
        )
        shortest, longest = SENTENCE_WORDS
        text = (
            f"Write {one.sentences} sentence{'s' * (one.sentences > 1)} about {subject}. "
            f"Each has {shortest} to {longest} words. Use the words {' and '.join(one.wanted)}. "
            f"Do not use the word {one.unwanted}."
        )
        info = {"subject": subject, "sentences": one.sentences, "wanted": [*one.wanted], "unwanted": one.unwanted}
        return Task(id=f"{split}-{number}", prompt=(user(text),), info=info)


def _constraints(task: Task) -> TextConstraints:
    info: Mapping[str, Any] = task.info
    return TextConstraints(sentences=info["sentences"], wanted=tuple(info["wanted"]), unwanted=info["unwanted"])


class StyleChecklist:
    """A reward function: the criteria of `STYLE`, ticked by a judge."""

    def __init__(self, policy: Policy):
        """By log-probabilities where the policy tells them, else by verdicts in JSON."""
        judge: Policy | ChoiceJudge = policy
        if isinstance(policy, SupportsChoices):
            judge = ChoiceJudge(policy, CHOICE_CRITERION_TEMPLATE, calibration=CALIBRATION)
        self.checklist = Checklist(judge=judge)

    async def __call__(self, task: Task, completion: str) -> RewardResult:
        """The weighted share of the criteria that are met."""
        subject = task.info["subject"]
        criteria = [Criterion(text=text.format(subject=subject), importance=weight) for text, weight in STYLE]
        (result,) = await self.checklist.results(criteria, [completion])
        return result


def style_reward(name: str) -> RewardModel | StyleChecklist:
    """The reward model or judge of that name. Raises UsageError where there is none."""
    if reward_model_folder(Path(name)) is not None:
        return RewardModel(name)
    return StyleChecklist(resolve_judge_policy(name, PolicyOptions()).policy)
