"""Any data set of reasoning-gym as a single-turn environment; the extra `reasoning` needs a C compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment, Episode, Limits
from wanderlust.environments.column_arithmetic import pupil
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.parsing import XmlFields
from wanderlust.types import Policy, Task, system, user

EVAL_SEED_OFFSET = 10_000_019
"""Distance of the seeds of two splits: a data set draws task n from seed + n, so near seeds share tasks."""
MAX_TAGGED_ANSWER_CHARS = 20_000
"""Characters of an answer; a longer one scores 0 unread."""
REASONING_RULES = "Think as long as you like. Then give the answer, and nothing else, between <answer> and </answer>."


ANSWER_FIELD = XmlFields("answer").field("answer")


def parse_tagged_answer(text: str) -> str | None:
    """The content of the last answer tags; None without one, or above MAX_TAGGED_ANSWER_CHARS."""
    answer = ANSWER_FIELD(text)
    return answer if answer is not None and len(answer) <= MAX_TAGGED_ANSWER_CHARS else None


class ReasoningGym(Environment):
    """Any data set of reasoning-gym, by its own scorer: `ReasoningGym("chain_sum", max_terms=3)`.

    `size` tasks for each split, of different seeds; other settings go to the data set. The reward `score` is what the
    data set's own scorer gives. The scorer sees what stands in the last <answer> tags.
    """

    limits = Limits(max_turns=1)

    def __init__(self, dataset: str = "chain_sum", *, size: int = 500, seed: int = 0, **settings: Any):
        """Raises UsageError when there is no such data set, or it does not take the settings."""
        self.dataset, self.size, self.seed = dataset, size, seed
        self.settings = tuple(sorted(settings.items()))
        sums = dataset == "chain_sum" and settings.get("max_terms") == 2
        self.players: Mapping[str, Callable[[], Policy]] = {"teacher": lambda: Scripted(pupil)} if sums else {}
        """For sums of two numbers, a pupil that forgets carries; otherwise empty."""

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """`size` tasks of `train` or `eval`."""
        data = self._data(split)
        for index in range(self.size):
            entry = data[index]
            yield Task(
                id=f"{self.dataset}-{split}-{self.seed}-{index}",
                prompt=(system(REASONING_RULES), user(entry["question"])),
                answer=None if entry["answer"] is None else str(entry["answer"]),
                info={"split": split, "index": index},
            )

    def oracle(self, task: Task) -> Policy:
        """Knows the answer."""
        return Scripted([f"<answer>{task.answer}</answer>"])

    async def run(self, episode: Episode) -> None:
        """One question, one answer, scored."""
        answer = (await episode.agent.act(*episode.task.prompt)).content
        info, data = episode.task.info, self._data(episode.task.info["split"])
        with needs_extra("reasoning"):
            from wanderlust.environments.reasoning_data import score_answer
        episode.reward("score", score_answer(self.dataset, data, parse_tagged_answer(answer), index=info["index"]))

    def _data(self, split: str) -> Any:
        if split not in ("train", "eval"):
            raise UsageError(f"reasoning-gym has no split {split!r}: one of train, eval")
        seed = EVAL_SEED_OFFSET * (2 * self.seed + (split == "eval"))
        with needs_extra("reasoning"):
            from wanderlust.environments.reasoning_data import make_dataset
        return make_dataset(self.dataset, size=self.size, seed=seed, config=self.settings)
