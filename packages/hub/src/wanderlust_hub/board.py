"""Leaderboards: what an entry has to play, the figures of its rollouts, and where it departs.

An entry of the main track has every task of `eval`, each with as many samples as `board_samples` says, the version's
own seed, and the environment's own limits. Any other complete run is in a track of its own, which names what differs.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from io import BytesIO
from math import ceil, isclose
from typing import Any

import msgspec
import zstandard

from wanderlust.agent.limits import Limits
from wanderlust.errors import one_line
from wanderlust.evals.gate import MAX_TASKS_COMPARED
from wanderlust.evals.statistics import Estimate, estimate
from wanderlust.tasks.selection import choose_tasks
from wanderlust.types import Rollout, Status, Task
from wanderlust_hub.entry import HubEntry, HubError, RankedRun, Ranking, Setting

SPLIT = "eval"
LEAST_ROLLOUTS, MOST_SAMPLES = 200, 10
MAX_ROLLOUT_BYTES = 2**30
"""Bytes of an entry's rollouts, decompressed."""
LIMITS = frozenset(field.name for field in fields(Limits))


def board_seed(entry: HubEntry) -> int:
    """The seed of a version's leaderboard, from its name, version and code: nobody chooses it for an entry."""
    text = f"{entry.name}\0{entry.version}\0{entry.code.digest}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) >> 1


def board_samples(tasks: int) -> int:
    """Samples of each task: so many that there are LEAST_ROLLOUTS, at most MOST_SAMPLES."""
    return max(1, min(MOST_SAMPLES, ceil(LEAST_ROLLOUTS / max(tasks, 1))))


def board_command(entry: HubEntry) -> str:
    """The evaluation that the main track asks for."""
    tasks = min(entry.tasks.get(SPLIT, 0), MAX_TASKS_COMPARED)
    some = f" -n {tasks}" if tasks == MAX_TASKS_COMPARED else ""
    return f"wander eval {entry.name}{some} --seed {board_seed(entry)} --samples {board_samples(tasks)} --out RUN"


def grid_of(
    rollouts: Sequence[Rollout], tasks: Sequence[Task], *, entry: HubEntry, limits: Mapping[str, Any]
) -> tuple[list[Rollout], dict[str, Setting]]:
    """The rollouts in the order of tasks and samples, and where they depart from the main track.

    `limits` are those under which the run was played and the environment would not be. Raises HubError where rows are
    missing, repeated, failed or of several seeds, and where somebody has chosen the tasks.
    """
    seed, samples, by_task = _complete(rollouts)
    chosen = [task.id for task in choose_tasks(tasks, len(by_task))]
    if {*chosen} != by_task.keys():
        raise HubError(f"its {len(by_task)} tasks are not those that -n {len(by_task)} plays")
    departs: dict[str, Setting] = dict(limits)
    if len(chosen) != len(tasks):
        departs["tasks"] = len(chosen)
    if samples != board_samples(len(tasks)):
        departs["samples"] = samples
    if seed != board_seed(entry):
        departs["seed"] = seed
    return [by_task[name][number] for name in chosen for number in range(samples)], departs


def _complete(rollouts: Sequence[Rollout]) -> tuple[int, int, dict[str, dict[int, Rollout]]]:
    """The seed, the samples of each task, and the rollouts by task and sample."""
    by_task = defaultdict[str, dict[int, Rollout]](dict)
    seeds, failed = sorted({one.seed for one in rollouts}), sum(one.status is Status.ERROR for one in rollouts)
    if failed:
        raise HubError(f"{failed} of {len(rollouts)} rollouts failed: the same `wander eval` plays them again")
    if len(seeds) > 1:
        raise HubError(f"it has rollouts of the seeds {seeds[0]} and {seeds[1]}")
    for one in rollouts:
        if by_task[one.task.id].setdefault(one.sample_index, one) is not one:
            raise HubError(f"it has sample {one.sample_index} of task {one_line(one.task.id, 60)!r} twice")
    samples = max(max(own) + 1 for own in by_task.values())
    for name, own in by_task.items():
        if {*own} != {*range(samples)}:
            raise HubError(f"it has {len(own)} of {samples} samples of task {one_line(name, 60)!r}")
    return seeds[0], samples, by_task


def track(run: RankedRun) -> str:
    """What differs from the main track; empty in it."""
    if not run.answers:
        return "played before there were tracks"
    return ", ".join(f"{name} {value}" for name, value in sorted(run.settings.items()))


def track_limits(run: RankedRun) -> dict[str, Any]:
    """The limits of a run that are not the environment's own."""
    return {name: value for name, value in run.settings.items() if name in LIMITS}


def board_order(ranking: Ranking) -> tuple[bool, str, int, float, int]:
    """The main track first, then the others by name; in each those of all tasks first, then by reward."""
    run = ranking.run
    return bool(track(run)), track(run), -run.tasks, -run.reward, ranking.number


def reward_figure(rollouts: Sequence[Rollout]) -> tuple[Estimate, int]:
    """Mean reward of the first seat over the scored rollouts, and the number of their tasks."""
    rewards = defaultdict[str, list[float]](list)
    for one in rollouts:
        seat = one.main_trajectory
        if one.status is not Status.ERROR and seat is not None and seat.score is not None:
            rewards[one.task.id].append(seat.score.reward)
    if not rewards:
        raise HubError("it has no scored rollout")
    return estimate(rewards.values()), len(rewards)


def answers_digest(rollouts: Sequence[Rollout]) -> str:
    """SHA-256 of what was answered to which tasks: equal for a run that is handed in again in another form."""
    digest = hashlib.sha256()
    for one in sorted(rollouts, key=lambda row: (row.task.id, row.seed, row.sample_index)):
        said = [[turn.action.content, turn.action.tool_calls] for seat in one.trajectories for turn in seat.turns]
        digest.update(msgspec.json.encode([one.task.id, said], order="sorted", enc_hook=repr))
    return digest.hexdigest()


def read_rollouts(body: bytes) -> list[Rollout]:
    """The rollouts of an entry. Raises HubError where they are damaged or too large."""
    found = list[Rollout]()
    try:
        with zstandard.ZstdDecompressor().stream_reader(BytesIO(body)) as reader:
            text = reader.read(MAX_ROLLOUT_BYTES + 1)
        if len(text) > MAX_ROLLOUT_BYTES:
            raise HubError(f"its rollouts have more than {MAX_ROLLOUT_BYTES:,} bytes")
        found += (msgspec.json.decode(line, type=Rollout) for line in text.splitlines())
    except (zstandard.ZstdError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HubError(f"its rollouts cannot be read: {one_line(str(error), 120)}") from None
    return found


def entry_problems(run: RankedRun, body: bytes) -> Iterator[str]:
    """Where the signed figures of an entry are not those of its rollouts, one line each."""
    what = f"the entry of {one_line(run.policy, 60)!r} in {run.name} {run.version}"
    try:
        rollouts = read_rollouts(body)
        figure, tasks = reward_figure(rollouts)
    except HubError as error:
        yield f"{what}: {error}"
        return
    counts = {"tasks": tasks, "rollouts": len(rollouts), "failed": sum(one.status is Status.ERROR for one in rollouts)}
    for name, value in counts.items():
        if getattr(run, name) != value:
            yield f"{what} says {name} {getattr(run, name)}, and its rollouts come to {value}"
    if not isclose(run.reward, figure.value, rel_tol=1e-9, abs_tol=1e-12):
        yield f"{what} says reward {run.reward:g}, and its rollouts come to {figure.value:g}"
    if run.answers and run.answers != answers_digest(rollouts):
        yield f"{what} names other answers than its rollouts have"
