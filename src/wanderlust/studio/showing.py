"""`wander show`: the rollouts of a run, and one of them to read."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from wanderlust.core.messages import Message
from wanderlust.core.text import one_line, visible
from wanderlust.core.types import Rollout, Trajectory
from wanderlust.data.records import record
from wanderlust.rollout.reader import Row, RunReader
from wanderlust.rollout.store import RunStore
from wanderlust.studio.arguments import Json, Positive, Run
from wanderlust.studio.kept import again, evaluation
from wanderlust.studio.output import command, result, result_json
from wanderlust.studio.played import HAND, ONWARD


def show(run: Run, rollout: int | None = None, /, *, limit: Positive = 20, json: Json = False) -> None:
    """List the rollouts of a run, failed ones and low rewards first, or show one and the command that plays it again.

    Parameters
    ----------
    rollout:
        Number of a rollout, as the list names it.
    limit:
        How many are listed.
    """
    store, settings = evaluation(run)
    with RunStore.read(store) as reader:
        if rollout is None:
            _list(reader, run, limit=limit, json=json)
            return
        played = reader.get(rollout)
        (row,) = reader.rollouts({"id": rollout})
    once_more = repeat(played, row, settings)
    if json:
        result_json(record(played, id=rollout, env=row.env, stage=row.stage, step=row.step, again=once_more))
        return
    result(None, *_told(played, row))
    if once_more:
        result(None, "", f"Again: {once_more}")


def _list(reader: RunReader, run: Path, *, limit: int, json: bool) -> None:
    rows = reader.rollouts(order="reward", limit=limit)  # what has no reward comes first
    counts = reader.counts()
    if json:
        result_json({"counts": counts, "rollouts": [asdict(row) for row in rows]})
        return
    table = Table("rollout", "task", "sample", "reward", "ended", "turns")
    for row in rows:
        reward = "none" if row.reward is None else f"{row.reward:.3f}"
        cells = (row.id, row.task, row.sibling, reward, row.stop, row.turns)
        table.add_row(*(Text(one_line(str(cell), 40)) for cell in cells))
    total = sum(sum(by.values()) for by in counts.values())
    result(table, f"{len(rows)} of {total}; read one with: {command('show', run, 'ROLLOUT')}")


def repeat(played: Rollout, row: Row, settings: Mapping[str, Any]) -> str | None:
    """The command that plays a rollout again; None where the run does not say how, or a person played."""
    if "env" not in settings or settings.get("policy") == HAND or ONWARD in settings:
        return None
    only = f"{row.task}#{row.sibling}"
    return again({**settings, "tasks": None, "samples": None, "only": only, "seed": played.seed})


def _told(played: Rollout, row: Row) -> Iterator[str]:
    yield f"Rollout {row.id}: task {one_line(row.task)}, sample {row.sibling}, seed {row.seed}, in {one_line(row.env)}"
    for trajectory in played.trajectories:
        yield from _seat(trajectory, several=len(played.trajectories) > 1)
    yield ""
    yield f"Ended: {one_line(played.stop)}, after {played.seconds:.2f} s"
    if played.error is not None:
        yield f"Error: {one_line(played.error, 2000)}"
    for name, value in played.state.items():
        yield f"  {one_line(name)}: {one_line(json_format.dumps(value, default=str), 500)}"
    if played.task.answer is not None:
        yield f"Answer: {one_line(str(played.task.answer), 500)}"


def _seat(trajectory: Trajectory, *, several: bool) -> Iterator[str]:
    if several:
        yield from ("", f"=== {trajectory.seat} ===")
    for number, turn in enumerate(trajectory.turns, 1):
        yield ""
        if turn.replaces:
            yield "(the context was rewritten)"
        for message in turn.observation:
            yield from _message(message)
        yield from _message(turn.action, f" turn {number}" + ("" if turn.finish == "stop" else f", {turn.finish}"))
    score = trajectory.score
    if score is None:
        yield "Reward: none"
        return
    parts = ", ".join(f"{one_line(n)} {v:g}" for n, v in {**score.parts, **score.metrics}.items())
    yield f"\nReward: {score.reward:g}" + (f" ({parts})" if parts else "")


def _message(message: Message, mark: str = "") -> Iterator[str]:
    if message.reasoning:
        yield f"[{message.role}{mark}, reasoning] {visible(message.reasoning)}"
    if message.content or not message.tool_calls:
        yield f"[{message.role}{mark}] {visible(message.content)}"
    for call in message.tool_calls:
        yield f"[{message.role}{mark}] calls {one_line(call.name)}({one_line(call.arguments, 2000)})"
