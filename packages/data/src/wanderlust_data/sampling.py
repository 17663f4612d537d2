"""Answers of policies, each kind in an evaluation of its own: resumed by the same call, opened by the studio."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.policies.scripted import PerRolloutPolicy, RolloutKey
from wanderlust.runner.progress import Logger, NullLogger, ProgressLogger
from wanderlust.store.run import load_run
from wanderlust.store.run_folder import EVALUATION_STAGE
from wanderlust.types import Policy, Rollout, Status, Task
from wanderlust_data.plan import PolicySettings, Writing

SAMPLES_FOLDER = "samples"
MAX_PASSES = 3
"""Times that a rollout is played which a failure of policy, environment or rubric left without a score."""


@dataclass(slots=True, kw_only=True)
class SampleStore:
    """The evaluations of a folder."""

    out: Path
    seed: int
    concurrency: int = 64
    logger: Logger = field(default_factory=NullLogger)
    shared: bool = False
    """Whether several recipes ask for different tasks under one name; the folder then has a digest of them."""
    failed: dict[str, int] = field(default_factory=dict)
    """By evaluation, rollouts that failed to the end."""

    def note(self, line: str) -> None:
        """A line for whoever watches."""
        if isinstance(self.logger, ProgressLogger):
            self.logger.log_line(line)

    def play(
        self, name: str, env: Environment, tasks: Sequence[Task], *, policy: PolicySettings | Writing, samples: int
    ) -> dict[str, list[Rollout]]:
        """The scored rollouts of each task, by its id. What failed is played again, then counted, never scored.

        Raises UsageError when every rollout fails.
        """
        folder = self.folder(name, tasks, samples)
        player = self.policy_of(policy, env, tasks)
        for _ in range(MAX_PASSES):
            report = evaluate_sync(
                env,
                player,
                tasks=tasks,
                samples=samples,
                seed=self.seed,
                out=folder,
                concurrency=self.concurrency,
                progress=self.logger,
            )
            if not report.failed:
                break
        self.failed[folder.name] = report.failed
        if report.failed == report.played:
            why = next(iter(report.errors.values())).first if report.errors else "no reason was given"
            raise UsageError(f"{folder}: all {report.played} rollouts failed ({why})")
        scored: dict[str, list[Rollout]] = {task.id: [] for task in tasks}
        with load_run(folder) as run:
            for group in run.groups(EVALUATION_STAGE, 0):
                kept = [one for one in group.rollouts if one.status is not Status.ERROR and one.main_trajectory]
                scored[group.task.id] = sorted(kept, key=lambda one: one.sample_index)
        return scored

    def folder(self, name: str, tasks: Sequence[Task], samples: int) -> Path:
        """Where an evaluation of that name is kept."""
        plain = re.sub(r"[^\w.=-]+", "-", name).strip("-") or "samples"
        if self.shared or plain != name:
            of = json.dumps([name, samples, [task.id for task in tasks]] if self.shared else name)
            plain = f"{plain[:60]}-{sha256(of.encode()).hexdigest()[:8]}"
        return self.out / SAMPLES_FOLDER / plain

    def policy_of(self, settings: PolicySettings | Writing, env: Environment, tasks: Sequence[Task]) -> Policy:
        """The policy; the oracle knows the tasks of any split."""
        named = settings.policy
        if not isinstance(named, str):
            return named
        if named == "oracle" and named not in env.players and env.has_oracle:
            return PerRolloutPolicy(_Oracle(env, {task.id: task for task in tasks}))
        options = PolicyOptions(
            model=settings.model,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            seed=self.seed,
            api_key=settings.api_key,
            concurrency=self.concurrency,
        )
        return resolve_policy(named, env, options).policy


@dataclass(frozen=True, slots=True)
class _Oracle:
    env: Environment
    tasks: dict[str, Task]

    def __call__(self, place: RolloutKey) -> Policy:
        policy = self.env.oracle(self.tasks[place.task])
        if policy is None:
            raise UsageError(f"the environment has no oracle for the task {place.task!r}")
        return policy
