"""`wander compare`: is one run better than another, and where?

`wander ctl`: pause, resume or stop a run that another process is at work on.

`wander runs` and `wander list`: what there is.

`wander show`: the rollouts of a run, and one of them to read.
"""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from textwrap import indent

from wanderlust.cli.options import JsonFlag, PositiveInt, RunPath
from wanderlust.cli.output import print_json, print_note, print_result, show_result
from wanderlust.errors import StoreError, UsageError, WanderlustError, one_line, printable
from wanderlust.evals.comparison import compare
from wanderlust.runner.control import ControlCommand, send_command
from wanderlust.runner.terminal import Table
from wanderlust.store.formats import rollout_to_json
from wanderlust.store.reader import RolloutRow, RunReader
from wanderlust.store.run_folder import RUNS_FOLDER, find_evaluation, replay_command, runs_in, shell_command
from wanderlust.store.store import RunStore
from wanderlust.tasks.registry import installed_environments, resolve_object
from wanderlust.types import Message, Rollout, Trajectory

MAX_FLIPS_PRINTED = 20
"""Flipped tasks that are listed for people."""


def compare_command(
    first: RunPath, second: RunPath, /, *, pass_threshold: float = 1.0, seat: str = "", json: JsonFlag = False
) -> None:
    """Compare two evaluations or training runs task by task: the difference with its interval, and what flipped.

    Parameters
    ----------
    first:
        Folder of an evaluation, or of a finished training run.
    second:
        Folder of another one, of the same tasks.
    pass_threshold:
        The reward from which on a rollout has passed.
    seat:
        The seat that is compared. Default: each one that learns in both.
    """
    comparison = compare(first, second, pass_threshold=pass_threshold, seat=seat)
    body = {"first": str(first), "second": str(second), "comparison": asdict(comparison)}
    if json:
        print_json(body)
    for one in (comparison, *comparison.others):
        lines = [one.verdict]
        for word, tasks in (("only the second passes", one.gained), ("only the first passes", one.lost)):
            lines += [f"{word}: {len(tasks)}", *(f"  {one_line(task)}" for task in tasks[:MAX_FLIPS_PRINTED])]
            if len(tasks) > MAX_FLIPS_PRINTED:
                lines.append(f"  and {len(tasks) - MAX_FLIPS_PRINTED} more")
        if not json:
            print_result(one.table(str(first), str(second)), *lines)
        if one.missing:
            print_note(f"{one.missing} tasks were scored in one run only and are in no figure")
    if comparison.note:
        print_note(comparison.note)


STATE_DESCRIPTIONS = {
    "running": "is running",
    "paused": "is paused; what was under way is finished first",
    "stopping": "stops; everything finished is kept",
}


def control_command(run: RunPath, action: ControlCommand, /, *, json: JsonFlag = False) -> None:
    """Pause, resume or stop an evaluation or a training run that is at work, or ask how it is.

    Parameters
    ----------
    action:
        pause, resume, stop or status. Stopping is one Ctrl-C: what is finished is kept, and the same command goes on.
    """
    folder: Path = run.parent if run.is_file() else run
    reached = send_command(folder, action, by="wander ctl")
    line = f"{folder} {STATE_DESCRIPTIONS[reached.state]} (process {reached.process})"
    show_result({"run": str(folder), **asdict(reached)}, line, json=json)


def runs_command(folder: Path = RUNS_FOLDER, /, *, json: JsonFlag = False) -> None:
    """List the runs in a folder: recipe, stage and step reached, finished or not.

    Parameters
    ----------
    folder:
        Where the runs lie.
    """
    if folder != RUNS_FOLDER and not folder.is_dir():
        raise UsageError(f"no folder {str(folder)!r}")
    records = [run.as_dict() for run in runs_in(folder)]
    table = Table("run", "recipe", "seed", "progress", "finished")
    for run in records:
        cells = (run["path"], run["recipe"], run["seed"], run["reached"], "yes" if run["finished"] else "no")
        table.add_row(*(one_line(str(cell)) for cell in cells))
    lines = [] if records else [f"No runs in {folder}. Start one with: wander demo"]
    show_result({"runs": records}, *lines, table=table if records else None, json=json)


def list_command(*, json: JsonFlag = False) -> None:
    """List the environments that are installed."""
    records = []
    for name, target in installed_environments().items():
        try:
            about = (resolve_object(target).__doc__ or "").strip().partition("\n")[0]
        except WanderlustError as error:  # a broken one is listed with what is wrong
            about = f"cannot be loaded: {error}"
        records.append({"name": name, "target": target, "about": about})
    table = Table("environment", "what it is", "where")
    for row in records:
        table.add_row(*(one_line(row[key]) for key in ("name", "about", "target")))
    line = "Any other: package.module:Name or file.py:Name. Settings follow: reasoning-gym,dataset=countdown"
    show_result({"environments": records}, line, table=table, json=json)


def show_command(
    run: RunPath, rollout: int | None = None, /, *, limit: PositiveInt = 20, json: JsonFlag = False
) -> None:
    """List the rollouts of a run, failed ones and low rewards first, or show one and the command that plays it again.

    Parameters
    ----------
    rollout:
        Number of a rollout, as the list names it.
    limit:
        How many are listed.
    """
    store, settings = find_evaluation(run)
    with RunStore.read(store) as reader:
        if rollout is None:
            rows = reader.rollouts(order="reward", limit=limit)  # what has no reward comes first
            counts = reader.counts()
            table = Table("rollout", "task", "sample", "reward", "ended", "turns")
            for row in rows:
                reward = "none" if row.reward is None else f"{row.reward:.3f}{_seat_of(reader, row)}"
                cells = (row.id, row.task, row.sample_index, reward, row.stop_reason, row.turns)
                table.add_row(*(one_line(str(cell), 40) for cell in cells))
            total = sum(sum(by.values()) for by in counts.values())
            line = f"{len(rows)} of {total}; read one with: {shell_command('show', run, 'ROLLOUT')}"
            show_result({"counts": counts, "rollouts": [asdict(row) for row in rows]}, line, table=table, json=json)
            return
        played = reader.get(rollout)
        (row,) = reader.rollouts({"id": rollout})
    once_more = replay_command(played, row, settings)
    body = rollout_to_json(played, id=rollout, env=row.env, stage=row.stage, step=row.step, again=once_more)
    show_result(body, *_render_rollout(played, row), *(["", f"Again: {once_more}"] if once_more else []), json=json)


def _seat_of(reader: RunReader, row: RolloutRow) -> str:
    """Whose reward a row has, as its end; empty where the episode has one seat, or cannot be read."""
    with suppress(StoreError):
        played = reader.get(row.id)
        if len(played.trajectories) > 1 and played.main_trajectory is not None:
            return f" ({played.main_trajectory.seat})"
    return ""


def _render_rollout(rollout: Rollout, row: RolloutRow) -> Iterator[str]:
    where = f"sample {row.sample_index}, seed {row.seed}, in {one_line(row.env)}"
    yield f"Rollout {row.id}: task {one_line(row.task)}, {where}"
    for trajectory in rollout.trajectories:
        yield from _render_seat(trajectory, several=len(rollout.trajectories) > 1)
    yield ""
    yield f"Ended: {one_line(rollout.stop_reason)}, after {rollout.seconds:.2f} s"
    if rollout.error is not None:
        yield f"Error: {one_line(rollout.error, 2000)}"
    if (failure := rollout.failure) is not None:
        written = (("At", failure.traceback), ("Its program wrote", failure.output), ("What to do", failure.advice))
        yield from (f"{name}:\n  {indent(text, '  ').lstrip()}" for name, text in written if text)
    for name, value in rollout.state.items():
        yield f"  {one_line(name)}: {one_line(json_format.dumps(value, default=str), 500)}"
    if rollout.task.answer is not None:
        yield f"Answer: {one_line(str(rollout.task.answer), 500)}"


def _render_seat(trajectory: Trajectory, *, several: bool) -> Iterator[str]:
    if several:
        yield from ("", f"=== {trajectory.seat} ===")
    for number, turn in enumerate(trajectory.turns, 1):
        yield ""
        if turn.resets_context:
            yield "(a context of its own)"
        elif turn.parent is not None:
            yield f"(continues turn {turn.parent + 1})"
        for message in turn.observation:
            yield from _render_message(message)
        yield from _render_message(
            turn.action, f" turn {number}" + ("" if turn.finish == "stop" else f", {turn.finish}")
        )
    score = trajectory.score
    if score is None:
        yield "Reward: none"
        return
    parts = ", ".join(f"{one_line(n)} {v:g}" for n, v in {**score.parts, **score.metrics}.items())
    yield f"\nReward: {score.reward:g}" + (f" ({parts})" if parts else "")


def _render_message(message: Message, mark: str = "") -> Iterator[str]:
    if message.reasoning:
        yield f"[{message.role}{mark}, reasoning] {printable(message.reasoning)}"
    if message.content or not message.tool_calls:
        yield f"[{message.role}{mark}] {printable(message.content)}"
    for call in message.tool_calls:
        yield f"[{message.role}{mark}] calls {one_line(call.name)}({one_line(call.arguments, 2000)})"
