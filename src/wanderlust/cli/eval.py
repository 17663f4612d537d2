"""`wander eval`: numbers with error bars for any policy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

from cyclopts import Parameter
from rich.table import Table

from wanderlust._lazy import import_object
from wanderlust.cli.options import (
    AnswerOptions,
    EnvironmentName,
    JsonFlag,
    PolicyName,
    ReportOptions,
    TaskOptions,
    WorkerOptions,
    refuse_existing,
)
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.cli.progress import stoppable
from wanderlust.errors import StoreError, UsageError
from wanderlust.evals.aggregation import EstimateAccumulator, SelfConsistency, estimate_table
from wanderlust.evals.evaluate import evaluate
from wanderlust.evals.report import Report, task_table
from wanderlust.policies.resolve import (
    API_KEY_VARIABLE,
    SCRIPT_PATTERN,
    PolicyOptions,
    ResolvedPolicy,
    make_policy,
    resolve_judge_policy,
    resolve_policy,
)
from wanderlust.rubrics.label_free import EstimatorName, answer_extractor, build_estimator, environment_check
from wanderlust.runner.blocking import run_blocking
from wanderlust.runner.progress import Progress
from wanderlust.store.run_folder import format_eval_command
from wanderlust.tasks.registry import ResolvedEnvironment, make_environment, resolve_environment


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationOptions:
    """Options of estimates over all samples of a task."""

    aggregate: EstimatorName | None = None
    """Distil one answer from each task's samples, and say what it earns beside them (docs/label-free-rl.md)."""
    synthesizer: str | None = None
    """Policy that writes the synthesis; as --policy, but not a scripted player. Default: the policy itself."""
    synthesizer_sees_question: bool = False
    """Show the synthesizer the question as well as the samples."""

    def as_settings(self, task_options: TaskOptions) -> dict[str, Any]:
        """The options by name. Raises UsageError where they do not go together."""
        if self.aggregate is None and (self.synthesizer is not None or self.synthesizer_sees_question):
            raise UsageError("--synthesizer and --synthesizer-sees-question need --aggregate synthesis")
        if self.aggregate is not None and (task_options.samples < 2 or task_options.exact):
            raise UsageError("--aggregate needs several samples of a task: add --samples 8")
        return asdict(self)

    def self_consistency(
        self, resolved: ResolvedEnvironment, resolved_policy: ResolvedPolicy, answer_options: AnswerOptions
    ) -> SelfConsistency | None:
        """The estimator, or None without `--aggregate`. Raises UsageError when it needs a model and has none."""
        if self.aggregate is None:
            return None
        anchor = resolved_policy.policy if resolved_policy.kind in ("local", "endpoint") else None
        if self.synthesizer is not None:
            anchor = resolve_judge_policy(self.synthesizer, answer_options.policy_options(greedy=False)).policy
        likelihood: Any = None
        if self.aggregate == "mutual" and resolved_policy.kind == "local":
            local: Any = resolved_policy.policy
            likelihood = import_object("wanderlust.training.reference_model:likelihood", extra="train")(
                local.engine.model, local.renderer
            )
        estimate = build_estimator(
            self.aggregate,
            synthesizer=anchor,
            likelihood=likelihood,
            extract=answer_extractor(resolved.env),
            synthesizer_sees_question=self.synthesizer_sees_question,
        )
        estimates = EstimateAccumulator(name=self.aggregate, estimator=estimate, check=environment_check(resolved.env))
        voices = [anchor] if anchor is not None and self.aggregate == "synthesis" else []
        return SelfConsistency(estimates=estimates, judges=voices)


(
    DEFAULT_ANSWER_OPTIONS,
    DEFAULT_TASK_OPTIONS,
    DEFAULT_WORKER_OPTIONS,
    DEFAULT_REPORT_OPTIONS,
    DEFAULT_AGGREGATION_OPTIONS,
) = AnswerOptions(), TaskOptions(), WorkerOptions(), ReportOptions(), AggregationOptions()
STOPPED_MESSAGE = "stopped; nothing was saved (no --out)"


def eval_command(
    env: EnvironmentName,
    /,
    *,
    policy: PolicyName,
    answer_options: AnswerOptions = DEFAULT_ANSWER_OPTIONS,
    task_options: TaskOptions = DEFAULT_TASK_OPTIONS,
    worker_options: WorkerOptions = DEFAULT_WORKER_OPTIONS,
    report_options: ReportOptions = DEFAULT_REPORT_OPTIONS,
    aggregation_options: AggregationOptions = DEFAULT_AGGREGATION_OPTIONS,
    out: Path | None = None,
    json: JsonFlag = False,
) -> int:
    """Play the `eval` split of an environment and report every figure with its 95% interval.

    Rollouts that fail are in no figure; the exit code is 1 then, and a line says how many failed and why. The same
    command with the same --out goes on where it was stopped and plays again what failed.

    Parameters
    ----------
    out:
        Folder that keeps every rollout.
    """
    recorded = {name: getattr(task_options, name) for name in ("num_tasks", "samples", "task")}
    settings = {"env": env, "policy": policy, **asdict(answer_options), **recorded}
    resume_command = format_eval_command(settings, **aggregation_options.as_settings(task_options), out=out)
    resume_message = f"stopped; finished work is saved; resume with: {resume_command}" if out else STOPPED_MESSAGE
    with stoppable(lambda: resume_message) as progress:
        resolved = resolve_environment(env)
        if task_options.exact:
            refuse_existing(out)
            exact_policy = resolve_policy(policy, resolved.env, answer_options.policy_options(greedy=True))
            rows = _exact(resolved, exact_policy)
        else:
            policy_options = replace(answer_options.policy_options(greedy=False), concurrency=task_options.concurrency)
            resolved_policy = resolve_policy(policy, resolved.env, policy_options)
            play = partial(evaluate, resolved.env, resolved_policy.policy)
            if worker_options.ray_workers is not None:
                play = partial(evaluate, *_remote(resolved, policy, policy_options, workers=worker_options.ray_workers))
            with _note_resume_command(progress, resume_command if out else None):
                report = run_blocking(
                    partial(
                        play,
                        n=task_options.num_tasks,
                        task=task_options.task,
                        samples=task_options.samples,
                        out=out,
                        concurrency=task_options.concurrency,
                        ray_workers=worker_options.ray_workers,
                        ray_address=worker_options.ray_address,
                        timeout=task_options.timeout,
                        seed=answer_options.seed,
                        group_by=report_options.group_by,
                        pass_threshold=report_options.pass_threshold,
                        prices=report_options.prices(),
                        aggregation=aggregation_options.self_consistency(resolved, resolved_policy, answer_options),
                        progress=progress,
                        settings=settings,
                        name=resolved.name,
                    )
                )
    if task_options.exact:
        return _print_exact(rows, exact_policy.label, json=json)
    _print_report(report, f"{resolved_policy.label} in {resolved.name}", per_task=report_options.per_task, json=json)
    key_missing = resolved_policy.kind == "endpoint" and answer_options.api_key is None
    _note_failures(report, suggest_key=key_missing and not os.environ.get(API_KEY_VARIABLE))
    return 1 if report.failed or (report.aggregate is not None and report.aggregate.failed) else 0


def _remote(resolved: ResolvedEnvironment, policy: str, options: PolicyOptions, *, workers: int) -> tuple[Any, Any]:
    """Environment and policy that are made in the workers, which share the calls that an endpoint gets at once."""
    remote = import_object("wanderlust.runner.ray:RemoteSpec", extra="ray")
    options = replace(options, concurrency=ceil(options.concurrency / workers))
    return (
        remote(make_environment, resolved.target),
        remote(make_policy, _absolute_policy(policy), resolved.target, options),
    )


def _absolute_policy(policy: str) -> str:
    """The same policy from any folder."""
    file, colon, member = policy.rpartition(":")
    if SCRIPT_PATTERN.fullmatch(policy) and file.endswith(".py"):
        return f"{Path(file).resolve()}{colon}{member}"
    return str(Path(policy).resolve()) if Path(policy).exists() else policy


@contextmanager
def _note_resume_command(progress: Progress, resume_command: str | None) -> Iterator[None]:
    try:
        yield
    except StoreError:
        progress.close()
        if resume_command:
            print_note(f"finished rollouts are kept; after fixing the problem, resume with: {resume_command}")
        raise


def _exact(resolved: ResolvedEnvironment, policy: ResolvedPolicy) -> list[dict[str, Any]]:
    """The rows of exact figures of a policy."""
    if not resolved.env.has_exact:
        raise UsageError(f"{resolved.name} cannot compute figures: leave --exact out")
    if policy.kind == "endpoint":
        raise UsageError(
            "--exact needs a checkpoint or a scripted player: an endpoint may answer differently each time"
        )
    return run_blocking(partial(resolved.env.exact, policy.policy, name=policy.label)) or []


def _print_exact(rows: Sequence[Mapping[str, Any]], title: str, *, json: bool) -> int:
    if json:
        print_json({"policy": title, "exact": rows})
        return 0
    names = [name for name in rows[0] if name not in ("policy", "exact")]
    table = Table(*names, title=f"{title}: exact shares in %", title_justify="left")
    for row in rows:
        table.add_row(*(f"{100 * row[n]:.2f}" if isinstance(row[n], float) else str(row[n]) for n in names))
    print_result(table)
    return 0


def _print_report(report: Report, title: str, *, per_task: bool, json: bool) -> None:
    """Print the report, its breakdown by a key of the tasks' info if there is one, and its tasks if that is wanted."""
    if json:
        parts = {value: part.as_dict() for value, part in report.breakdown.items()}
        body = {
            "policy": title,
            "report": report.as_dict(),
            "by": {report.group_by: parts} if report.group_by else {},
            "tasks": [asdict(row) for row in report.task_rows],
        }
        print_json(body if report.aggregate is None else {**body, "estimate": report.aggregate.as_dict()})
        return
    print_result(report.table(title))
    if report.aggregate is not None:
        print_result(estimate_table(report.aggregate))
    if len(report.breakdown) > 1:
        print_result(report.breakdown_table())
    if per_task:
        print_result(task_table(report.task_rows))


def _note_failures(report: Report, *, suggest_key: bool) -> None:
    """One line on what failed, and one on the key that may be missing."""
    if report.aggregate is not None and report.aggregate.failed:
        print_note(
            f"{report.aggregate.failed} tasks have no estimate and are in no figure of it: {report.aggregate.first}"
        )
    if not report.failed:
        return
    why = "; ".join(f"{name} x{errors.count}: {errors.first}" for name, errors in report.errors.items())
    print_note(f"{report.failed} of {report.played} rollouts failed and are in no figure: {why}")
    if suggest_key and any(f"HTTP {code}" in why for code in (401, 403)):
        print_note(
            f"the endpoint wants a key and none was sent: set {API_KEY_VARIABLE}, or name its variable with --api-key"
        )
