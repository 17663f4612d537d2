"""Environments of verifiers' classic API (0.3.1): a package with a function `load_environment`.

Every call of its model is a recorded turn of the seat, made by OpenAI's SDK; its own rubric scores. Needs the packages
`verifiers`, which brings the SDK, and `httpx2`. Not covered: versions from 0.4 on, whose API is another one, and
environments that reach for a network of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from wanderlust.environment import Environment, Episode, Limits
from wanderlust.errors import EnvironmentFailure, UsageError
from wanderlust.serving.openai_sdk import openai_client
from wanderlust.types import Task

MODEL = "seat"


class VerifiersEnvironment(Environment):
    """What a module's `load_environment(**settings)` makes. The reward is its rubric's; metrics are in the state."""

    limits = Limits(max_turns=200)

    def __init__(self, module: str, *, folder: str = "", **settings: Any):
        """`folder` has the module, if it is not installed. Raises UsageError where it has no such function."""
        try:
            self._clients = import_module("verifiers.clients")
        except ModuleNotFoundError as error:
            raise UsageError(f"this needs the package {error.name!r}: pip install verifiers==0.3.1") from error
        if folder and folder not in sys.path:
            sys.path.insert(0, folder)
        load = getattr(import_module(module), "load_environment", None)
        if load is None:
            raise UsageError(f"{module} has no function load_environment")
        self.module, self._made = module, load(**settings)

    def tasks(self, split: str = "train") -> list[Task]:
        """A task for each row. Raises UsageError for `eval` where there is no data set for it."""
        made = self._made
        if split == "eval":
            made.build_eval_dataset()
            if made.eval_dataset is None:
                raise UsageError(f"{self.module} has no data set for {split}")
            rows = made.get_eval_dataset()
        else:
            made.build_dataset()
            if made.dataset is None:
                raise UsageError(f"{self.module} has no data set for {split}")
            rows = made.get_dataset()
        return [
            Task(id=f"{self.module}-{split}-{n}", answer=row.get("answer"), info={"row": dict(row)})
            for n, row in enumerate(rows)
        ]

    async def run(self, episode: Episode) -> None:
        """One rollout of theirs, with the seat as its model."""
        row: Mapping[str, Any] = episode.task.info["row"]
        client = self._clients.OpenAIChatCompletionsClient(openai_client(episode.agent))
        output = await self._made.run_rollout(dict(row), client=client, model=MODEL, sampling_args={})
        if output.get("error"):
            raise EnvironmentFailure(f"{self.module}: {output['error']}")
        episode.state["metrics"] = dict(output.get("metrics") or {})
        episode.reward("reward", float(output["reward"]))
