"""The questions that a plan kept, as an environment to train and evaluate in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from wanderlust.environment import Environment, SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.tasks.datasets import numbered_rows
from wanderlust.tasks.mixture import ENVIRONMENT_KEY, Mixture
from wanderlust.tasks.registry import resolve_environment
from wanderlust.types import Task
from wanderlust_data.plan import Verifier
from wanderlust_data.questions import answer_rubric

RL_FILE = "rl.jsonl"


class BuiltTasks(Mixture):
    """`BuiltTasks("data/sums")`: the questions of `rl.jsonl`, each played and scored as in its source.

    The split `train` has those questions, in their order. The split `eval` has that of the sources' environments.
    """

    def __init__(self, folder: str, *, low: float = 0.0, high: float = 1.0):
        """With `low` and `high`, only questions of a pass rate between them, where difficulty was measured.

        Raises UsageError when the folder holds no tasks.
        """
        path = Path(folder) / RL_FILE
        rows = [row for _, row in numbered_rows(path)]
        if not rows:
            raise UsageError(f"{path} has no tasks")
        specs: dict[str, tuple[str, Verifier]] = {row["source"]: (row["env"], row["verifier"]) for row in rows}
        super().__init__({_environment(*spec): 1.0 for spec in specs.values()}, names=[*specs])
        self._rows = [row for row in rows if row["pass_rate"] is None or low <= row["pass_rate"] <= high]

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """The tasks of a split."""
        if split == "train":
            for row in self._rows:
                task = msgspec.convert(row["task"], Task)
                yield replace(task, id=row["id"], info={**task.info, ENVIRONMENT_KEY: row["source"]})
            return
        for name, env in self.parts.items():
            for task in env.tasks(split):
                yield replace(task, id=f"{name}/{task.id}", info={**task.info, ENVIRONMENT_KEY: name})


def _environment(name: str, verifier: Verifier) -> Environment:
    """The environment of a source: by name, or one that asks and checks by the answers of the tasks themselves."""
    if name.startswith("written:") or name.endswith((".jsonl", ".csv", ".parquet")):
        return SingleTurnEnvironment(rubric=answer_rubric(verifier))
    return resolve_environment(name).env
