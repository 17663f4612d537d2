"""Distillation: a teacher's answers, filtered, train a small student, by imitation first and then by its own reward.

1. The teacher answers questions of the split `train`; `build_data` keeps the right answers (rejection sampling).
2. SFT of the student on them, then RL in the environment itself, so that it may become better than its teacher.
3. The same held-out tasks are put to teacher and student: quality, latency, tokens, and what 1,000 tasks cost.

A teacher that is the student itself, with several samples, is best-of-k of itself: STaR (arXiv 2203.14465).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from wanderlust._lazy import needs_extra
from wanderlust.environment import Environment
from wanderlust.errors import UsageError, nearest_names
from wanderlust.evals.comparison import compare_rewards, rewards_by_task
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.evals.report import Report
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.resolve import PolicyOptions, ResolvedPolicy, resolve_policy
from wanderlust.runner.engine import suspended_loop
from wanderlust.runner.progress import Logger, ProgressLogger, open_progress
from wanderlust.store.run_folder import FRESH_POLICY, RUNS_FOLDER, begin_with_settings
from wanderlust.store.whole_files import write_whole
from wanderlust.tasks.registry import environment_name, resolve_environment
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.training.config import TrainConfig
from wanderlust.training.finetune_config import FinetuneConfig
from wanderlust.types import Group, Policy, Task
from wanderlust_data.build import build_data
from wanderlust_data.distillation_report import (
    AFTER_SFT,
    PAGE_FILE,
    PICTURE_FILE,
    REPORT_FILE,
    STUDENT,
    TEACHER,
    Distillation,
    Side,
)
from wanderlust_data.plan import AnswerFilters, DataPlan, HeldOut, Source, Teacher

SETTINGS_FILE, SPENDING_FILE = "distil.json", "spending.json"
FRESH_SETTINGS: Mapping[str, Mapping[str, Any]] = {"sft": {"epochs": 10}, "rl": {"lr": 5e-4}}
"""Of a fresh student, where nothing else is given: what the presets of `wander train` are near to."""
ALONE_TASKS = 16
"""Tasks of the exam that are played once more, one after the other, for the latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistilConfig:
    """How a student is made and examined."""

    questions: int = 500
    """Questions of the split `train` that the teacher answers, at most."""
    min_reward: float = 1.0
    """Least reward of an answer that the student imitates."""
    sft: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `wander sft`: epochs, lr, fresh_width, ..."""
    rl: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `wander train`: steps, lr, max_tokens, ... The exam takes its `max_tokens` for the student."""
    exam: int = 200
    """Held-out tasks of the split `eval`, at most."""
    exam_samples: int = 1
    """Answers to each."""
    exam_temperature: float | None = 0.0
    """Sampling temperature of teacher and student in the exam. None: 1 for checkpoints, an endpoint's own. A teacher
    that is an object is taken as it is, and for 0 its `greedy()`, where it has one."""
    prices: TokenPrices | None = None
    """Of the teacher's tokens. None: a teacher on this machine costs its processor time."""
    core_price: float = 0.04
    """Dollars per hour of a processor core, for everything that is computed on this machine."""
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.questions, self.exam, self.exam_samples) < 1:
            raise UsageError("questions, exam and exam_samples must be at least 1")
        if not self.core_price >= 0:
            raise UsageError(f"core_price is {self.core_price}, and must be from 0 on")
        for kind, given in ((FinetuneConfig, self.sft), (TrainConfig, self.rl)):
            known = [one.name for one in fields(kind)]
            for name in given.keys() - known:
                raise UsageError(f"there is no setting {name!r}; {nearest_names(name, known, kind='settings')}")
            kind(**given)


@suspended_loop()
def distil(
    env: Environment | str,
    teacher: Teacher | Policy | str,
    student: str | Path = FRESH_POLICY,
    *,
    config: DistilConfig | None = None,
    out: str | Path | None = None,
    concurrency: int = 64,
    workers: int | None = None,
    progress: Logger | bool = True,
) -> Distillation:
    """Make a student of a teacher, by SFT on its right answers and then RL, and compare the two.

    The same call goes on where an earlier one was stopped; each stage keeps what it made in `out`.

    Args:
        env: An environment with the splits `train` and `eval`, or its name.
        teacher: What `wander eval --policy` takes, an object, or a `Teacher` with its sampling; it answers each
            question 4 times where that does not say otherwise.
        student: `fresh` for a small new model, `smollm2`, or a run or checkpoint folder.
        config: Everything else that the figures depend on.
        out: Folder that is written. Default: `runs/distil-ENV-seedN`.
        concurrency: Answers at once, but for the latency.
        workers: Processes of the RL stage, as `train` takes them.
        progress: Whether to draw progress on stderr, or the logger that gets it.

    Returns:
        Both sides of the exam with intervals, latency, tokens and costs, and the break-even number of tasks.

    Raises:
        UsageError: when an argument is wrong, the teacher is never right, or `out` holds another distillation.

    Example:
        >>> distil("reasoning-gym,dataset=chain_sum,max_terms=2", "teacher").break_even
        2130.5
    """
    config = config or DistilConfig()
    given = teacher if isinstance(teacher, Teacher) else Teacher(policy=teacher, samples=4)
    resolved = resolve_environment(env).env if isinstance(env, str) else env
    folder = Path(out) if out is not None else default_folder(environment_name(env), config)
    if len(resolved.seats) != 1:
        raise UsageError("distil takes environments with one seat: the others have several policies to compare")
    tasks = choose_tasks(iter_tasks(resolved, "eval"), config.exam)
    if not tasks:
        raise UsageError("the environment has no split eval: there is nothing to examine the student on")
    settings = {name: value for name, value in asdict(config).items() if name not in ("prices", "core_price")}
    sampling = {name: getattr(given, name) for name in ("model", "temperature", "max_tokens", "samples")}
    body = {"env": environment_name(env), "teacher": given.label, **sampling, "student": str(student), **settings}
    begin_with_settings(folder / SETTINGS_FILE, body, what="distillation")
    with open_progress(progress) as logger:
        recipe = _Recipe(
            env=resolved,
            named=env if isinstance(env, str) else None,
            teacher=given,
            student=str(student),
            config=config,
            folder=folder,
            tasks=tasks,
            concurrency=concurrency,
            workers=workers,
            logger=logger,
            spending=_Spending(folder / SPENDING_FILE),
        )
        return recipe.run()


def default_folder(env: str, config: DistilConfig) -> Path:
    """Where a distillation in the environment of that name is kept."""
    return RUNS_FOLDER / f"distil-{env.partition(',')[0].rpartition(':')[2]}-seed{config.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """The stages, in order."""

    env: Environment
    named: str | None
    """The environment's name, where it was given by name: worker processes make it again by that."""
    teacher: Teacher
    student: str
    config: DistilConfig
    folder: Path
    tasks: list[Task]
    """Of the exam."""
    concurrency: int
    workers: int | None
    logger: Logger
    spending: _Spending

    def run(self) -> Distillation:
        """Every stage that is not finished, then the report."""
        with needs_extra("train"):
            from wanderlust.training.finetune import finetune
            from wanderlust.training.train import train
            from wanderlust_data.distillation_picture import draw_distillation
        config, fresh = self.config, self.student == FRESH_POLICY
        sft = {**(FRESH_SETTINGS["sft"] if fresh else {}), "seed": config.seed, **config.sft}
        defaults = {**(FRESH_SETTINGS["rl"] if fresh else {}), "seed": config.seed, "result_samples": 0}
        rl = TrainConfig(**{**defaults, **config.rl})
        with self._stage("answers"):
            card = build_data(self._plan(), self.folder / "data", concurrency=self.concurrency, progress=self.logger)
        sides = [self._exam(TEACHER, self._teacher())]
        with self._stage("sft"):
            rows = self.folder / "data/sft.jsonl"
            imitated = finetune(rows, self.student, out=self.folder / "sft", progress=self.logger, **sft)
        sides.append(self._exam(AFTER_SFT, self._checkpoint(imitated.policy_folder, rl.max_tokens), sides[0]))
        with self._stage("rl"):
            trained = train(
                self.named or self.env,
                imitated.policy_folder,
                config=rl,
                out=self.folder / "rl",
                workers=self.workers,
                progress=self.logger,
            )
        sides.append(self._exam(STUDENT, self._checkpoint(trained.policy_folder, rl.max_tokens), sides[0]))
        report = Distillation(
            path=self.folder,
            student=trained.path,
            tasks=len(self.tasks),
            rows=card.files["sft.jsonl"],
            sides=tuple(sides),
            making=self._making(sides[0].priced_by),
            at_least=any(not one["whole"] for name, one in self.spending.stages.items() if name in MAKING),
            core_price=config.core_price,
        )
        write_whole(self.folder / PAGE_FILE, report.page())
        draw_distillation(report, self.folder / PICTURE_FILE)
        write_whole(self.folder / REPORT_FILE, json.dumps(report.as_dict(), indent=1, ensure_ascii=False) + "\n")
        return report

    def _plan(self) -> DataPlan:
        env = self.named or self.env
        return DataPlan(
            name="distil",
            seed=self.config.seed,
            sources=(Source(env=env, count=self.config.questions),),
            duplicates=("exact",),
            held_out=(HeldOut(env=env, count=max(len(self.tasks), MAX_HELD_OUT)),),
            teachers=(self.teacher,),
            answers=AnswerFilters(min_reward=self.config.min_reward),
            formats=("sft",),
        )

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        if isinstance(self.logger, ProgressLogger):
            self.logger.log_line(f"stage: {name}")
        with self.spending.measured(name):
            yield

    def _teacher(self) -> ResolvedPolicy:
        """The teacher as it is examined."""
        given = self.teacher
        if not isinstance(given.policy, str):
            remote = hasattr(getattr(given.policy, "policy", given.policy), "url")
            greedy = getattr(given.policy, "greedy", None) if self.config.exam_temperature == 0 else None
            policy = given.policy if greedy is None else greedy()
            return ResolvedPolicy(policy=policy, label=given.label, kind="endpoint" if remote else "local")
        options = PolicyOptions(
            model=given.model,
            temperature=self.config.exam_temperature,
            max_tokens=given.max_tokens,
            seed=self.config.seed,
            api_key=given.api_key,
            concurrency=self.concurrency,
        )
        return resolve_policy(given.policy, self.env, options)

    def _checkpoint(self, folder: Path, max_tokens: int) -> ResolvedPolicy:
        options = PolicyOptions(temperature=self.config.exam_temperature, max_tokens=max_tokens, seed=self.config.seed)
        return resolve_policy(str(folder), self.env, options)

    def _exam(self, name: str, player: ResolvedPolicy, teacher: Side | None = None) -> Side:
        """Put the held-out tasks to a policy, all at once for the figures and some alone for the latency."""
        stage = f"exam-{name.replace(' ', '-')}"
        with self._stage(stage):
            report = self._play(stage, player, self.tasks, at_once=self.concurrency)
        alone = self._play(f"{stage}-alone", player, self.tasks[:ALONE_TASKS], at_once=1)
        spent = self.spending.stages[stage]
        seconds = spent["seconds"] / spent["rollouts"] if spent["rollouts"] else None
        prices = self.config.prices if teacher is None else None
        dollars, priced_by = None, ""
        if prices is not None:
            dollars, priced_by = prices.cost(report.usage.tokens_in, report.usage.tokens_out) / report.played, "tokens"
        elif player.kind != "endpoint" and seconds is not None:
            dollars, priced_by = seconds / 3600 * self.config.core_price, "processor time"
        exams = self.folder / "exams"
        return Side(
            name=name,
            policy=player.label,
            reward=report.reward if report.scored else None,
            over_teacher=_difference(exams / f"exam-{TEACHER}", exams / stage) if teacher is not None else None,
            failed=report.failed,
            latency=alone.usage.latency.get("p50"),
            tokens_in=report.usage.tokens_in / report.played,
            tokens_out=report.usage.tokens_out / report.played,
            processor_seconds=seconds,
            dollars=None if dollars is None else 1000 * dollars,
            priced_by=priced_by,
        )

    def _play(self, name: str, player: ResolvedPolicy, tasks: Sequence[Task], *, at_once: int) -> Report:
        return evaluate_sync(
            self.env,
            player.policy,
            tasks=tasks,
            samples=self.config.exam_samples,
            seed=self.config.seed,
            out=self.folder / "exams" / name,
            concurrency=at_once,
            observers=[self.spending.count],
            progress=self.logger,
        )

    def _making(self, priced_by: str) -> dict[str, float | None]:
        """Dollars of each stage of the student's making, by the teacher's tokens or by processor time."""
        hours = {name: self.spending.stages[name]["seconds"] / 3600 for name in MAKING}
        dollars: dict[str, float | None] = {name: own * self.config.core_price for name, own in hours.items()}
        if priced_by != "processor time":
            dollars["answers"] = self._answer_dollars()
        return dollars

    def _answer_dollars(self) -> float | None:
        if self.config.prices is None:
            return None
        reports = [json.loads(path.read_text()) for path in (self.folder / "data/samples").glob("*/report.json")]
        return sum(self.config.prices.cost(one["usage"]["tokens_in"], one["usage"]["tokens_out"]) for one in reports)


MAKING = ("answers", "sft", "rl")
"""Stages that make the student; exams are not among them."""
MAX_HELD_OUT = 2000
"""Questions of the split `eval` that no row may be about, at least as many as the exam has."""


class _Spending:
    """Processor seconds of each stage, over all calls; a stage that was interrupted counts from where it went on."""

    def __init__(self, path: Path):
        self.path = path
        self.stages: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else {}
        self._finished = 0

    def count(self, groups: Sequence[Group]) -> None:
        """Count rollouts that have finished."""
        self._finished += sum(len(group.rollouts) for group in groups)

    @contextmanager
    def measured(self, stage: str) -> Iterator[None]:
        """Note what the block takes, unless it was finished before."""
        before = self.stages.get(stage)
        if before is not None and before["finished"]:
            yield
            return
        entry = {"seconds": 0.0, "rollouts": 0, "whole": before is None, "finished": False}
        self._write(stage, entry)
        began, self._finished = _processor_seconds(), 0
        yield
        spent = _processor_seconds() - began
        self._write(stage, entry | {"seconds": spent, "rollouts": self._finished, "finished": True})

    def _write(self, stage: str, entry: dict[str, Any]) -> None:
        self.stages[stage] = entry
        write_whole(self.path, json.dumps(self.stages, indent=1) + "\n")


def _processor_seconds() -> float:
    """Of this process, all threads, and of worker processes that have ended."""
    return time.process_time() + sum(os.times()[2:4])


def _difference(teacher: Path, student: Path) -> Any:
    """The student's reward over the teacher's, paired by task; None where no task was scored by both."""
    try:
        return compare_rewards(rewards_by_task(teacher), rewards_by_task(student)).difference
    except UsageError:
        return None
