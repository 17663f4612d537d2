"""`wander eval`: numbers with error bars for any policy."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from wanderlust.cli.eval_options import (
    AggregationOptions,
    FolderOptions,
    ReportOptions,
    TaskOptions,
    WorkerOptions,
    remote_specs,
    resolve_roles,
)
from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import (
    ANSWER_DEFAULTS,
    KEY_SUGGESTION,
    EnvironmentName,
    JsonFlag,
    ModelOptions,
    PolicyName,
    refuse_existing,
)
from wanderlust.cli.output import print_json, print_note, print_result, show_result
from wanderlust.errors import StoreError, UsageError
from wanderlust.evals.evaluate import evaluate_sync
from wanderlust.evals.report import Report, task_table
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.runner.engine import run_blocking
from wanderlust.runner.terminal import Table
from wanderlust.store.run_folder import format_eval_command
from wanderlust.tasks.registry import environment_name, resolve_environment

DEFAULT_TASK_OPTIONS, DEFAULT_WORKER_OPTIONS, DEFAULT_REPORT_OPTIONS = TaskOptions(), WorkerOptions(), ReportOptions()
DEFAULT_AGGREGATION_OPTIONS, DEFAULT_FOLDER_OPTIONS = AggregationOptions(), FolderOptions()
STOPPED_MESSAGE = "stopped; nothing was saved (no --out)"


def eval_command(
    env: EnvironmentName,
    /,
    *,
    policy: PolicyName,
    answer_options: ModelOptions = ANSWER_DEFAULTS,
    task_options: TaskOptions = DEFAULT_TASK_OPTIONS,
    worker_options: WorkerOptions = DEFAULT_WORKER_OPTIONS,
    report_options: ReportOptions = DEFAULT_REPORT_OPTIONS,
    aggregation_options: AggregationOptions = DEFAULT_AGGREGATION_OPTIONS,
    folder_options: FolderOptions = DEFAULT_FOLDER_OPTIONS,
    json: JsonFlag = False,
) -> int:
    """Play a split of an environment, by default `eval`, and report every figure with its 95% interval.

    Rollouts that fail are in no figure; the exit code is 1 then, and a line says how many failed and why. The same
    command with the same --out goes on where it was stopped and plays again what failed.
    """
    out, env = folder_options.out, report_options.environment(env)
    settings = {"env": env, "policy": policy, **answer_options.recorded(), **task_options.recorded(report_options, env)}
    unrecorded = {**report_options.unrecorded(), **task_options.unrecorded()}
    unrecorded |= {**aggregation_options.as_settings(task_options), "extra_headers": answer_options.extra_headers}
    if task_options.exact:
        refuse_existing(out)
        return _eval_exact(env, policy, answer_options.policy_options(greedy=True), json=json)
    resume_command = format_eval_command({**unrecorded, **settings}, out=out)
    resume_message = f"stopped; finished work is saved; resume with: {resume_command}" if out else STOPPED_MESSAGE
    with stoppable(lambda: resume_message) as progress:
        resolved = resolve_environment(env)
        policy_options = task_options.with_calls(answer_options.policy_options(greedy=False))
        resolved_policy = resolve_policy(policy, resolved.env, policy_options)
        player: tuple[Any, Any] = resolved.env, resolved_policy.policy
        if (workers := worker_options.ray_workers) is not None:
            player = remote_specs(resolved, policy, policy_options, here=player[1], workers=workers)
        roles = resolve_roles(resolved, task_options, report_options, options=policy_options, workers=workers)
        together = aggregation_options.arguments(resolved, resolved_policy, answer_options, policy=policy)
        try:
            report = evaluate_sync(
                *player,
                **task_options.arguments(resolved.env) | roles | asdict(folder_options) | together,
                ray_workers=workers,
                ray_address=worker_options.ray_address,
                seed=answer_options.seed,
                group_by=report_options.group_by,
                pass_threshold=report_options.pass_threshold,
                prices=report_options.prices(),
                progress=progress,
                settings=settings,
                name=environment_name(resolved.target),
            )
        except StoreError:
            progress.close()
            if out:
                print_note(f"finished rollouts are kept; after fixing the problem, resume with: {resume_command}")
            raise
    _print_report(report, f"{resolved_policy.label} in {resolved.name}", per_task=report_options.per_task, json=json)
    needs_key = (
        "://" in policy and answer_options.api_key is None and not policy_options.key()
    )  # providers say so first
    if report_options.group_by is not None and not report.breakdown and not report.by_code:
        print_note(f"there is no breakdown: no task has {report_options.group_by!r} in its info")
    _note_failures(report, suggest_key=needs_key)
    return 1 if report.incomplete else 0


def _eval_exact(env: str, name: str, options: PolicyOptions, *, json: bool) -> int:
    """Print the figures that the environment computes of a policy, without playing."""
    with stoppable(lambda: STOPPED_MESSAGE):
        resolved = resolve_environment(env)
        policy = resolve_policy(name, resolved.env, options)
        if not resolved.env.has_exact:
            raise UsageError(f"{resolved.name} cannot compute figures: leave --exact out")
        if policy.kind == "endpoint":
            raise UsageError(
                "--exact needs a checkpoint or a scripted player: an endpoint may answer differently each time"
            )
        rows = run_blocking(partial(resolved.env.exact, policy.policy, name=policy.label)) or []
    names = [name for name in rows[0] if name not in ("policy", "exact", "reward")]
    table = Table(*names, title=f"{policy.label}: exact shares in %")
    for row in rows:
        table.add_row(*(f"{100 * row[n]:.2f}" if isinstance(row[n], float) else str(row[n]) for n in names))
    show_result({"policy": policy.label, "exact": rows}, table=table, json=json)
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
        together = {"estimate": report.aggregate, "traits": report.traits}
        print_json({**body, **{name: asdict(part) for name, part in together.items() if part is not None}})
        return
    print_result(report.table(title))
    if report.aggregate is not None:
        print_result(report.aggregate.table())
    if report.traits is not None:
        print_result(report.traits.table())
    if len(report.breakdown) > 1 and report.scored:
        print_result(report.breakdown_table())
    if per_task:
        print_result(task_table(report.task_rows))


def _note_failures(report: Report, *, suggest_key: bool) -> None:
    """One line each on what was not started, not decided or failed, and on the key that may be missing."""
    undecided = report.metrics.get("undecided")
    if undecided is not None and undecided.value:
        number = round(undecided.value * undecided.count)
        print_note(
            f"{number} of {undecided.count} verdicts are undecided and count as not accepted: only a judge can tell "
            "(--judge)"
        )
    if report.not_started:
        print_note(f"{report.stopped}; {report.not_started} rollouts were not started")
    if report.aggregate is not None and report.aggregate.failed:
        print_note(
            f"{report.aggregate.failed} tasks have no estimate and are in no figure of it: {report.aggregate.first}"
        )
    if not report.failed:
        return
    why = "; ".join(f"{name} x{errors.count}: {errors.first}" for name, errors in report.errors.items())
    print_note(f"{report.failed} of {report.played} rollouts failed and are in no figure: {why}")
    if suggest_key and any(f"HTTP {code}" in why for code in (401, 403)):
        print_note(KEY_SUGGESTION)
