"""`wander rescore`: what would another rubric have said?"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import JsonFlag, RunPath, refuse_existing
from wanderlust.cli.output import print_note, show_result
from wanderlust.evals.accumulator import VersionTally
from wanderlust.evals.comparison import compare_rewards
from wanderlust.evals.evaluation import rescore_groups
from wanderlust.evals.evaluation_folder import open_evaluation_folder
from wanderlust.rubrics.reward_model import RewardModel, reward_model_folder
from wanderlust.rubrics.rubric import Rubric, resolve_rubric
from wanderlust.runner.terminal import Table
from wanderlust.store.provenance import rescored_digest
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import EVALUATION_STAGE, find_evaluation
from wanderlust.store.store import RunStore
from wanderlust.types import Group, Status

RewardsBySeat: TypeAlias = dict[str, dict[str, list[float]]]
"""By seat and task; the only seat of an episode has an empty name."""


def rescore_command(run: RunPath, /, *, rubric: str, out: Path | None = None, json: JsonFlag = False) -> int:
    """Judge an evaluation's rollouts again with another rubric, without playing anything.

    The run itself is not changed. The exit code is 1 when a judgement failed.

    Parameters
    ----------
    rubric:
        A rubric, or a reward function, at package.module:Name or file.py:Name; or the folder of a reward model.
    out:
        New folder for the rollouts with their new scores, an evaluation like any other.
    """
    store, settings = find_evaluation(run)
    judge = Rubric(RewardModel(rubric)) if reward_model_folder(Path(rubric)) else resolve_rubric(rubric)
    refuse_existing(out)
    before: RewardsBySeat = {}
    after: RewardsBySeat = {}
    tally = VersionTally()

    async def whole(reader: RunReader) -> None:
        with open_evaluation_folder(out, {**settings, "rubric": rubric}) as folder:
            groups = reader.iter_groups(EVALUATION_STAGE, 0)
            async for group in rescore_groups((_noted(group, before) for group in groups), judge):
                for rollout in group.rollouts:
                    rollout.provenance = rescored_digest(rollout.provenance, judge)
                tally.add(group)
                _noted(group, after)
                if folder is not None:
                    folder.store.add([group], stage=EVALUATION_STAGE, step=0, env=str(settings.get("env", "")))
            if folder is not None:
                folder.write_report(tally.report(0.0))

    with stoppable(lambda: "stopped; the run is as it was"), RunStore.read(store) as reader:
        asyncio.run(whole(reader))
    report = tally.report(0.0)
    failed = report.played - report.scored
    seats = [seat for seat in before if seat in after] if not report.by_code else []
    compared = {seat: compare_rewards(before[seat], after[seat]) for seat in seats}
    table = Table("", "reward", "rollouts") if not report.by_code else report.table("Code or tasks changed meanwhile")
    for seat, comparison in compared.items():
        for name, estimate in (
            ("before", comparison.first),
            ("now", comparison.second),
            ("difference", comparison.difference),
        ):
            label = f"{seat}: {name}" if seat else name
            table.add_row(label, str(estimate), "" if name == "difference" else str(estimate.count))
    made = {"run": str(run), "rubric": rubric, "out": None if out is None else str(out), "failed": failed}
    first = next(iter(compared.values()), None)
    body = {**made, "report": report.as_dict(), "comparison": None if first is None else asdict(first)}
    body |= {"seats": {seat: asdict(one) for seat, one in compared.items()}} if len(compared) > 1 else {}
    lines = [f"{out} holds them with their new scores"] if out is not None else []
    show_result(body, *lines, table=table, json=json)
    for name, errors in report.errors.items():
        print_note(f"{errors.count} rollouts have no score: {name}: {errors.first}")
    return 1 if failed else 0


def _noted(group: Group, rewards: RewardsBySeat) -> Group:
    """The group; the rewards of the seats that learn are noted as they are now."""
    for rollout in group.rollouts:
        several = len(rollout.trajectories) > 1
        for seat in [one for one in rollout.trajectories if one.trainable] or rollout.trajectories:
            if seat.score is not None and rollout.status is not Status.ERROR:
                by_task = rewards.setdefault(seat.seat if several else "", {})
                by_task.setdefault(rollout.task.id, []).append(seat.score.reward)
    return group
