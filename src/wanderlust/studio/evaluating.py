"""`wander eval`: numbers with error bars for any policy."""

from __future__ import annotations

import asyncio
import json as json_format
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.table import Table
from rich.text import Text

from wanderlust.core.contracts import Environment, Policy
from wanderlust.core.errors import UsageError
from wanderlust.core.text import one_line
from wanderlust.core.types import Group, Task
from wanderlust.evals.evaluate import Observer, evaluate, report
from wanderlust.evals.report import Report
from wanderlust.evals.split import choose
from wanderlust.evals.statistics import Estimate
from wanderlust.recipes.folder import CONFIG, REPORT, STORE
from wanderlust.rollout.store import RunStore
from wanderlust.studio.output import note, result, result_json
from wanderlust.studio.progress import Progress
from wanderlust.studio.resolve import Answering, Found, Voice, find_environment, find_policy
from wanderlust.studio.session import stoppable

Positive = Annotated[int, Parameter(validator=Number(gte=1))]
COLUMNS = 6
"""Groups shown side by side in the breakdown."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """How the policy answers."""

    model: str | None = None
    """Name of the model, where the policy is a URL."""
    temperature: Annotated[float | None, Parameter(validator=Number(gte=0))] = None
    """Of the draws; 0 is greedy. Default: 1 for checkpoints, the server's own for endpoints."""
    greedy: bool = False
    """Always take the likeliest answer: the same as --temperature 0."""
    max_tokens: Positive | None = None
    """Bound of one answer. Default: 256 for checkpoints, the server's own for endpoints."""
    seed: int = 0
    """Of everything random."""

    def voice(self, *, greedy: bool) -> Voice:
        """As the policies take it."""
        if self.greedy and self.temperature:
            raise UsageError("--greedy and --temperature exclude each other")
        temperature = 0.0 if greedy or self.greedy else self.temperature
        return Voice(model=self.model, temperature=temperature, max_tokens=self.max_tokens, seed=self.seed)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """What is played."""

    tasks: Positive | None = None
    """How many tasks of the `eval` split, spread evenly over it. Default: all."""
    samples: Positive = 1
    """Rollouts per task."""
    concurrency: Positive = 128
    """Rollouts at once."""
    by: str | None = None
    """Break the figures down by this key of the tasks' info."""
    exact: bool = False
    """Compute the figures instead of sampling them; needs a checkpoint, which then is greedy, or a scripted player."""


ANSWERS, QUESTIONS = Answers(), Questions()


def evaluate_policy(
    env: str,
    /,
    *,
    policy: str,
    answers: Answers = ANSWERS,
    questions: Questions = QUESTIONS,
    out: Path | None = None,
    json: bool = False,
) -> int:
    """Play the `eval` split of an environment and report every figure with its 95% interval.

    Rollouts that fail are in no figure; the exit code is 1 then, and a line says how many failed and why.

    Parameters
    ----------
    env:
        Name of an environment, or package.module:Name.
    policy:
        A run or checkpoint folder, an endpoint's URL, or a scripted player of the environment.
    out:
        New folder that keeps every rollout.
    json:
        Print the result as one JSON object.
    """
    kept = f"what was played is kept in {out}" if out else "nothing is kept without --out"
    with stoppable(lambda: f"stopped; {kept}") as progress:
        found = find_environment(env)
        if out is not None and out.exists():
            raise UsageError(f"{out} exists already: name another folder with --out")
        asked = find_policy(policy, found.env, answers.voice(greedy=questions.exact))
        if questions.exact:
            rows = _exact(found, asked)
        else:
            settings = {"env": found.target, "policy": policy, **asdict(answers), **asdict(questions)}
            groups, whole = _sampled(found, asked, questions, seed=answers.seed, keep=_Keep(out, settings), to=progress)
    if questions.exact:
        _tell_exact(rows, asked.label, json=json)
        return 0
    by = questions.by or getattr(found.env, "by", None)
    _tell(groups, whole, title=f"{asked.label} in {found.name}", by=by, json=json)
    return 1 if whole.failed else 0


@dataclass(frozen=True, slots=True)
class _Keep:
    """Where an evaluation is kept, if anywhere."""

    out: Path | None
    settings: Mapping[str, Any]

    def begin(self) -> RunStore | None:
        if self.out is None:
            return None
        self.out.mkdir(parents=True)
        body = {"recipe": "Evaluation", "config": self.settings}
        (self.out / CONFIG).write_text(json_format.dumps(body, indent=2) + "\n")
        return RunStore.create(self.out / STORE)

    def end(self, whole: Report) -> None:
        if self.out is not None:
            (self.out / REPORT).write_text(json_format.dumps(whole.as_dict(), indent=2) + "\n")


def _sampled(
    found: Found, asked: Answering, questions: Questions, *, seed: int, keep: _Keep, to: Progress
) -> tuple[list[Group], Report]:
    """The groups and the report of all of them."""
    tasks = choose(found.env.tasks("eval"), questions.tasks)
    if not tasks:
        raise UsageError(f"{found.name} has no tasks in its eval split")
    groups: list[Group] = []

    def seen(group: Group) -> None:
        groups.append(group)
        to.show("evaluate", len(groups), of=len(tasks), figures={})

    observers: list[Observer] = [seen]
    with ExitStack() as stack:
        store = keep.begin()
        if store is not None:
            stack.enter_context(store)
            observers.append(store.sink(stage="evaluate", step=0, env=found.name))
        whole = asyncio.run(_ask(found.env, asked.policy, tasks, questions=questions, seed=seed, observers=observers))
    keep.end(whole)
    return sorted(groups, key=lambda group: group.index), whole


async def _ask(
    env: Environment,
    policy: Policy,
    tasks: Sequence[Task],
    *,
    questions: Questions,
    seed: int,
    observers: Sequence[Observer],
) -> Report:
    async with AsyncExitStack() as stack:
        if isinstance(policy, AbstractAsyncContextManager):
            await stack.enter_async_context(policy)
        return await evaluate(
            env,
            policy,
            tasks=tasks,
            samples=questions.samples,
            observers=observers,
            concurrency=questions.concurrency,
            seed=seed,
        )


def _exact(found: Found, asked: Answering) -> list[dict[str, Any]]:
    compute = getattr(found.env, "exact", None)
    if compute is None:
        raise UsageError(f"{found.name} cannot compute figures: leave --exact out")
    if asked.kind == "endpoint":
        raise UsageError(
            "--exact needs a checkpoint or a scripted player: an endpoint may answer differently each time"
        )
    rows: list[dict[str, Any]] = asyncio.run(compute(asked.policy, name=asked.label))
    return rows


def _tell_exact(rows: Sequence[Mapping[str, Any]], title: str, *, json: bool) -> None:
    if json:
        result_json({"policy": title, "exact": rows})
        return
    names = [name for name in rows[0] if name not in ("policy", "exact")]
    table = Table(*names, title=f"{title}: exact shares in %", title_justify="left")
    for row in rows:
        table.add_row(*(f"{100 * row[n]:.2f}" if isinstance(row[n], float) else str(row[n]) for n in names))
    result(table)


def _tell(groups: Sequence[Group], whole: Report, *, title: str, by: str | None, json: bool) -> None:
    """The report, broken down by a key of the tasks' info if there is one; and what failed."""
    values = sorted({str(g.task.info[by]) for g in groups if by in g.task.info}) if by else []
    parts = {value: report(g for g in groups if str(g.task.info.get(by or "")) == value) for value in values}
    if json:
        broken = {value: part.as_dict() for value, part in parts.items()}
        result_json({"policy": title, "report": whole.as_dict(), "by": {by: broken} if by else {}})
    else:
        result(whole.table(title))
        if len(parts) > 1:
            result(_breakdown(parts, by or ""))
    if whole.failed:
        why = "; ".join(f"{name} x{errors.count}: {errors.first}" for name, errors in whole.errors.items())
        note(f"{whole.failed} of {whole.played} rollouts failed and are in no figure: {why}")


def _breakdown(parts: Mapping[str, Report], by: str) -> Table:
    shown = dict(list(parts.items())[:COLUMNS])
    left = len(parts) - len(shown)
    table = Table(title=f"by {by}" + (f" ({left} more with --json)" if left else ""), title_justify="left")
    table.add_column("")
    for value in shown:
        table.add_column(Text(one_line(value, 20)))
    columns = [_estimates(part) for part in shown.values()]
    for name in dict.fromkeys(name for column in columns for name in column):
        table.add_row(Text(one_line(name)), *(str(column.get(name, "")) for column in columns))
    return table


def _estimates(part: Report) -> dict[str, Estimate]:
    rewards = {("reward" if len(part.rewards) == 1 else f"{seat}: reward"): e for seat, e in part.rewards.items()}
    return {**rewards, **part.parts, **part.metrics}
