"""`wander rescore`: what would another rubric have said?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from wanderlust.core.contracts import Rubric
from wanderlust.core.errors import UsageError
from wanderlust.core.types import Group, Status
from wanderlust.environments.named import named
from wanderlust.evals.comparison import compare
from wanderlust.evals.rescoring import rescored
from wanderlust.evals.tally import Tally
from wanderlust.rollout.reader import RunReader
from wanderlust.rollout.store import RunStore
from wanderlust.rubrics.rubric import Rubric as Weighted
from wanderlust.studio.arguments import Json, Run, fresh
from wanderlust.studio.kept import STAGE, evaluation, kept
from wanderlust.studio.output import note, result, result_json
from wanderlust.studio.session import stoppable


def rescore(run: Run, /, *, rubric: str, out: Path | None = None, json: Json = False) -> int:
    """Judge an evaluation's rollouts again with another rubric, without playing anything.

    The run itself is not changed. The exit code is 1 when a judgement failed.

    Parameters
    ----------
    rubric:
        A rubric, or a reward function, at package.module:Name or file.py:Name.
    out:
        New folder for the rollouts with their new scores, an evaluation like any other.
    """
    store, settings = evaluation(run)
    judge = find_rubric(rubric)
    fresh(out)
    before: dict[str, list[float]] = {}
    after: dict[str, list[float]] = {}
    tally = Tally()

    async def whole(reader: RunReader) -> None:
        with kept(out, {**settings, "rubric": rubric}) as folder:
            async for group in rescored(_noted(reader, before), judge):
                tally.add([group])
                _note(group, after)
                if folder is not None:
                    folder.store.add([group], stage=STAGE, step=0, env=str(settings.get("env", "")))
            if folder is not None:
                folder.end(tally.report(0.0))

    with stoppable(lambda: "stopped; the run is as it was"), RunStore.read(store) as reader:
        asyncio.run(whole(reader))
    report = tally.report(0.0)
    failed = report.played - report.scored
    found = compare(before, after) if before and after else None
    if json:
        body = {"run": str(run), "rubric": rubric, "out": None if out is None else str(out), "failed": failed}
        result_json({**body, "report": report.as_dict(), "comparison": None if found is None else asdict(found)})
        return 1 if failed else 0
    table = Table("", "reward", "rollouts")
    if found is not None:
        for name, estimate in (("before", found.first), ("now", found.second), ("difference", found.difference)):
            table.add_row(name, str(estimate), "" if name == "difference" else str(estimate.count))
    result(table, *([f"{out} holds them with their new scores"] if out is not None else []))
    for name, errors in report.errors.items():
        note(f"{errors.count} rollouts have no score: {name}: {errors.first}")
    return 1 if failed else 0


def find_rubric(target: str) -> Rubric:
    """A rubric, one that is made by calling it without arguments, or a reward function as a rubric of its own."""
    found = named(target)
    if hasattr(found, "score"):
        made: Rubric = found() if isinstance(found, type) else found
        return made
    if callable(found):
        return Weighted(found)
    raise UsageError(f"{target} is neither a rubric nor a reward function")


def _noted(reader: RunReader, rewards: dict[str, list[float]]) -> Iterator[Group]:
    """The run's groups; their rewards are noted before anything changes them."""
    for group in reader.each_group(STAGE, 0):
        _note(group, rewards)
        yield group


def _note(group: Group, rewards: dict[str, list[float]]) -> None:
    for rollout in group.rollouts:
        score = rollout.trajectories[0].score if rollout.trajectories else None
        if score is not None and rollout.status is not Status.ERROR:
            rewards.setdefault(rollout.task.id, []).append(score.reward)
