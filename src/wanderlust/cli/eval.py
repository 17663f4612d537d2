"""`wander eval`: numbers with error bars for any policy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from wanderlust.cli.evaluation import AggregationOptions, Evaluation, PolicySpec, estimate_table
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
from wanderlust.errors import StoreError, UsageError, one_line
from wanderlust.evals.aggregation import EstimateReport
from wanderlust.evals.evaluate import EvaluationFolder, open_evaluation_folder
from wanderlust.evals.report import Report, task_table
from wanderlust.evals.statistics import Estimate
from wanderlust.policies.resolve import API_KEY_VARIABLE, ResolvedPolicy, resolve_policy
from wanderlust.runner.control import serve_control
from wanderlust.runner.progress import Progress
from wanderlust.store.run_folder import format_eval_command
from wanderlust.tasks.registry import ResolvedEnvironment, resolve_environment

MAX_BREAKDOWN_COLUMNS = 4
"""So many groups are shown side by side in the breakdown."""


(
    DEFAULT_ANSWER_OPTIONS,
    DEFAULT_TASK_OPTIONS,
    DEFAULT_WORKER_OPTIONS,
    DEFAULT_REPORT_OPTIONS,
    DEFAULT_AGGREGATION_OPTIONS,
) = AnswerOptions(), TaskOptions(), WorkerOptions(), ReportOptions(), AggregationOptions()


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
    settings = {"env": env, "policy": policy, **asdict(answer_options), **_task_settings(task_options)}
    resume_command = format_eval_command(settings, **aggregation_options.as_settings(task_options), out=out)
    with stoppable(
        lambda: f"stopped; finished work is saved; resume with: {resume_command}" if out else STOPPED_MESSAGE
    ) as progress:
        resolved = resolve_environment(env)
        if task_options.exact:
            refuse_existing(out)
            label, rows = _exact(
                resolved, resolve_policy(policy, resolved.env, answer_options.policy_options(greedy=True))
            )
        else:
            policy_options = replace(answer_options.policy_options(greedy=False), concurrency=task_options.concurrency)
            resolved_policy = resolve_policy(policy, resolved.env, policy_options)
            evaluation = Evaluation(
                environment=resolved,
                policy=resolved_policy,
                task_options=task_options,
                worker_options=worker_options,
                policy_spec=PolicySpec(policy=policy, options=policy_options),
                seed=answer_options.seed,
                group_by=report_options.group_by or resolved.env.group_by,
                tally=report_options.tally,
                self_consistency=aggregation_options.self_consistency(resolved, resolved_policy, answer_options),
            )
            with (
                _note_resume_command(progress, resume_command if out else None),
                open_evaluation_folder(out, settings) as folder,
            ):
                _run_evaluation(evaluation, folder, progress)
    if task_options.exact:
        return _print_exact(rows, label, json=json)
    return _print_and_exit_code(evaluation, answer_options, report_options=report_options, json=json)


def _print_and_exit_code(
    evaluation: Evaluation, answer_options: AnswerOptions, *, report_options: ReportOptions, json: bool
) -> int:
    """Tell it; the exit code."""
    together = None if evaluation.self_consistency is None else evaluation.self_consistency.estimates.report()
    _print_report(evaluation, together, report_options=report_options, json=json)
    _note_failures(evaluation, together, answer_options)
    return 1 if evaluation.report.failed or (together is not None and together.failed) else 0


STOPPED_MESSAGE = "stopped; nothing was saved (no --out)"


@contextmanager
def _note_resume_command(progress: Progress, resume_command: str | None) -> Iterator[None]:
    try:
        yield
    except StoreError:
        progress.close()
        if resume_command:
            print_note(f"finished rollouts are kept; after fixing the problem, resume with: {resume_command}")
        raise


def _exact(resolved: ResolvedEnvironment, resolved_policy: ResolvedPolicy) -> tuple[str, list[dict[str, Any]]]:
    """The policy's label, and its figures."""
    if not resolved.env.has_exact:
        raise UsageError(f"{resolved.name} cannot compute figures: leave --exact out")
    if resolved_policy.kind == "endpoint":
        raise UsageError(
            "--exact needs a checkpoint or a scripted player: an endpoint may answer differently each time"
        )

    async def compute() -> list[dict[str, Any]]:
        return await resolved.env.exact(resolved_policy.policy, name=resolved_policy.label) or []

    rows = asyncio.run(compute())
    return resolved_policy.label, rows


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


def _print_report(
    evaluation: Evaluation, estimates: EstimateReport | None, *, report_options: ReportOptions, json: bool
) -> None:
    """The report, broken down by a key of the tasks' info if there is one, and by task if that is wanted."""
    title, whole, by = (
        f"{evaluation.policy.label} in {evaluation.environment.name}",
        evaluation.report,
        evaluation.group_by,
    )
    parts = {value: tally.report(0.0) for value, tally in sorted(evaluation.parts.items())}
    rows = evaluation.total.rows()
    if json:
        broken = {by: {value: part.as_dict() for value, part in parts.items()}} if by else {}
        tasks = [asdict(row) for row in rows]
        body = {"policy": title, "report": whole.as_dict(), "by": broken, "tasks": tasks}
        print_json(body if estimates is None else {**body, "estimate": estimates.as_dict()})
        return
    print_result(whole.table(title))
    if estimates is not None:
        print_result(estimate_table(estimates))
    if len(parts) > 1:
        print_result(_breakdown(parts, by or ""))
    if report_options.per_task:
        print_result(task_table(rows))


def _task_settings(task_options: TaskOptions) -> dict[str, Any]:
    """As far as it says what is played, which cannot change while an evaluation goes on."""
    return {name: getattr(task_options, name) for name in ("tasks", "samples", "only")}


def _run_evaluation(evaluation: Evaluation, folder: EvaluationFolder | None, progress: Progress) -> None:
    """Play; what is kept can be paused and stopped from outside."""
    with serve_control(folder.store.path, progress.log_line) if folder else nullcontext():
        evaluation.run(folder, progress)


def _note_failures(evaluation: Evaluation, estimates: EstimateReport | None, answer_options: AnswerOptions) -> None:
    """One line on what failed, and one on the key that may be missing."""
    whole = evaluation.report
    if estimates is not None and estimates.failed:
        print_note(f"{estimates.failed} tasks have no estimate and are in no figure of it: {estimates.first}")
    if not whole.failed:
        return
    why = "; ".join(f"{name} x{errors.count}: {errors.first}" for name, errors in whole.errors.items())
    print_note(f"{whole.failed} of {whole.played} rollouts failed and are in no figure: {why}")
    refused = any(f"HTTP {code}" in why for code in (401, 403))
    if (
        evaluation.policy.kind == "endpoint"
        and refused
        and answer_options.api_key is None
        and not os.environ.get(API_KEY_VARIABLE)
    ):
        print_note(
            f"the endpoint wants a key and none was sent: set {API_KEY_VARIABLE}, or name its variable with --api-key"
        )


def _breakdown(parts: Mapping[str, Report], by: str) -> Table:
    """Values side by side with all figures; where they are many, one below the other with the reward alone."""
    many = len(parts) > MAX_BREAKDOWN_COLUMNS
    table = Table(title=f"by {by}" + (" (all figures with --json)" if many else ""), title_justify="left")
    table.add_column("")
    if many:
        for name in ("reward", "scored"):
            table.add_column(name)
        for value, part in parts.items():
            rewards = ", ".join(str(estimate) for estimate in part.rewards.values())
            table.add_row(Text(one_line(value, 40)), rewards, f"{part.scored} of {part.played}")
        return table
    for value in parts:
        table.add_column(Text(one_line(value, 20)))
    columns = [_estimates(part) for part in parts.values()]
    for name in dict.fromkeys(name for column in columns for name in column):
        table.add_row(Text(one_line(name)), *(str(column.get(name, "")) for column in columns))
    return table


def _estimates(part: Report) -> dict[str, Estimate]:
    rewards = {("reward" if len(part.rewards) == 1 else f"{seat}: reward"): e for seat, e in part.rewards.items()}
    return {**rewards, **part.passes, **part.parts, **part.metrics}
