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

from wanderlust.cli.evaluation import Course, Estimating, Named, estimate_table
from wanderlust.cli.options import Answers, Environments, Hands, Json, Policies, Questions, Telling, fresh
from wanderlust.cli.output import note, result, result_json
from wanderlust.cli.progress import Progress, stoppable
from wanderlust.errors import StoreError, UsageError, one_line
from wanderlust.evals.aggregation import EstimateReport
from wanderlust.evals.evaluate import Kept, kept
from wanderlust.evals.report import Report, task_table
from wanderlust.evals.statistics import Estimate
from wanderlust.policies.resolve import API_KEY, Answering, find_policy
from wanderlust.runner.control import controlled
from wanderlust.store.run_folder import again
from wanderlust.tasks.registry import Found, find_environment

COLUMNS = 4
"""So many groups are shown side by side in the breakdown."""


ANSWERS, QUESTIONS, HANDS, TELLING, ESTIMATING = Answers(), Questions(), Hands(), Telling(), Estimating()


def evaluate_policy(
    env: Environments,
    /,
    *,
    policy: Policies,
    answers: Answers = ANSWERS,
    questions: Questions = QUESTIONS,
    hands: Hands = HANDS,
    telling: Telling = TELLING,
    estimating: Estimating = ESTIMATING,
    out: Path | None = None,
    json: Json = False,
) -> int:
    """Play the `eval` split of an environment and report every figure with its 95% interval.

    Rollouts that fail are in no figure; the exit code is 1 then, and a line says how many failed and why. The same
    command with the same --out goes on where it was stopped and plays again what failed.

    Parameters
    ----------
    out:
        Folder that keeps every rollout.
    """
    settings = {"env": env, "policy": policy, **asdict(answers), **_which(questions)}
    goon = again(settings, **estimating.checked(questions), out=out)
    with stoppable(lambda: f"stopped; everything finished is kept; go on with: {goon}" if out else STOPPED) as progress:
        found = find_environment(env)
        if questions.exact:
            fresh(out)
            label, rows = _exact(found, find_policy(policy, found.env, answers.voice(greedy=True)))
        else:
            voice = replace(answers.voice(greedy=False), concurrency=questions.concurrency)
            asked = find_policy(policy, found.env, voice)
            course = Course(
                found=found,
                asked=asked,
                questions=questions,
                hands=hands,
                named=Named(policy=policy, voice=voice),
                seed=answers.seed,
                by=telling.by or getattr(found.env, "by", None),
                tally=telling.tally,
                together=estimating.together(found, asked, answers),
            )
            with _told_how_to_go_on(progress, goon if out else None), kept(out, settings) as folder:
                _run(course, folder, progress)
    if questions.exact:
        return _tell_exact(rows, label, json=json)
    return _report(course, answers, telling=telling, json=json)


def _report(course: Course, answers: Answers, *, telling: Telling, json: bool) -> int:
    """Tell it; the exit code."""
    together = None if course.together is None else course.together.estimates.report()
    _tell(course, together, telling=telling, json=json)
    _complain(course, together, answers)
    return 1 if course.whole.failed or (together is not None and together.failed) else 0


STOPPED = "stopped; nothing is kept without --out"


@contextmanager
def _told_how_to_go_on(progress: Progress, goon: str | None) -> Iterator[None]:
    try:
        yield
    except StoreError:
        progress.close()
        if goon:
            note(f"everything kept so far stays; when that is mended, go on with: {goon}")
        raise


def _exact(found: Found, asked: Answering) -> tuple[str, list[dict[str, Any]]]:
    """The policy's label, and its figures."""
    compute = getattr(found.env, "exact", None)
    if compute is None:
        raise UsageError(f"{found.name} cannot compute figures: leave --exact out")
    if asked.kind == "endpoint":
        raise UsageError(
            "--exact needs a checkpoint or a scripted player: an endpoint may answer differently each time"
        )
    rows: list[dict[str, Any]] = asyncio.run(compute(asked.policy, name=asked.label))
    return asked.label, rows


def _tell_exact(rows: Sequence[Mapping[str, Any]], title: str, *, json: bool) -> int:
    if json:
        result_json({"policy": title, "exact": rows})
        return 0
    names = [name for name in rows[0] if name not in ("policy", "exact")]
    table = Table(*names, title=f"{title}: exact shares in %", title_justify="left")
    for row in rows:
        table.add_row(*(f"{100 * row[n]:.2f}" if isinstance(row[n], float) else str(row[n]) for n in names))
    result(table)
    return 0


def _tell(course: Course, together: EstimateReport | None, *, telling: Telling, json: bool) -> None:
    """The report, broken down by a key of the tasks' info if there is one, and by task if that is wanted."""
    title, whole, by = f"{course.asked.label} in {course.found.name}", course.whole, course.by
    parts = {value: tally.report(0.0) for value, tally in sorted(course.parts.items())}
    rows = course.total.rows()
    if json:
        broken = {by: {value: part.as_dict() for value, part in parts.items()}} if by else {}
        tasks = [asdict(row) for row in rows]
        body = {"policy": title, "report": whole.as_dict(), "by": broken, "tasks": tasks}
        result_json(body if together is None else {**body, "estimate": together.as_dict()})
        return
    result(whole.table(title))
    if together is not None:
        result(estimate_table(together))
    if len(parts) > 1:
        result(_breakdown(parts, by or ""))
    if telling.per_task:
        result(task_table(rows))


def _which(questions: Questions) -> dict[str, Any]:
    """As far as it says what is played, which cannot change while an evaluation goes on."""
    return {name: getattr(questions, name) for name in ("tasks", "samples", "only")}


def _run(course: Course, folder: Kept | None, progress: Progress) -> None:
    """Play; what is kept can be paused and stopped from outside."""
    with controlled(folder.store.path, progress.tell) if folder else nullcontext():
        course.run(folder, progress)


def _complain(course: Course, together: EstimateReport | None, answers: Answers) -> None:
    """One line on what failed, and one on the key that may be missing."""
    whole = course.whole
    if together is not None and together.failed:
        note(f"{together.failed} tasks have no estimate and are in no figure of it: {together.first}")
    if not whole.failed:
        return
    why = "; ".join(f"{name} x{errors.count}: {errors.first}" for name, errors in whole.errors.items())
    note(f"{whole.failed} of {whole.played} rollouts failed and are in no figure: {why}")
    refused = any(f"HTTP {code}" in why for code in (401, 403))
    if course.asked.kind == "endpoint" and refused and answers.api_key is None and not os.environ.get(API_KEY):
        note(f"the endpoint wants a key and none was sent: set {API_KEY}, or name its variable with --api-key")


def _breakdown(parts: Mapping[str, Report], by: str) -> Table:
    """Values side by side with all figures; where they are many, one below the other with the reward alone."""
    many = len(parts) > COLUMNS
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
