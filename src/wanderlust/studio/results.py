"""The result of a run as its folder and its store record it: figures by version of its code, duration, settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from wanderlust.errors import StoreError, UsageError
from wanderlust.evals.accumulator import VersionTally
from wanderlust.evals.evaluation_folder import stored_report
from wanderlust.store.provenance import Lock, changed_inputs, read_lock
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import EVALUATION_STAGE, PASS_THRESHOLD_KEY, PLAY_RECIPE, REPORT_FILE, SECONDS_KEY

MAX_COMPUTED_ROLLOUTS = 20_000
"""Most rollouts whose figures are computed while a page waits: two to five seconds."""
MAX_GROUP_VALUES = 200
"""Most values of a key by which figures are broken down."""
KEY_SAMPLE_ROLLOUTS = 50
"""Rollouts that are looked at for the keys of their tasks' info."""
TRAINING_STAGES = ("rl", "dpo", "sft", "reward")
"""Stages of a training run, the last one first."""
STEP_SECONDS = ("rollout_s", "update_s")
"""Metrics of a training step that together last as long as it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTime:
    """Seconds that a run recorded itself; file times do not count, since copies and touched files change them."""

    seconds: float | None
    """None where nothing was recorded."""
    source: str
    """`run` (all its parts, so far), `steps` (metrics so far), `rollouts` (one after the other), or empty."""


def recorded_time(report: Mapping[str, Any], reader: RunReader, recipe: str) -> RecordedTime:
    """How long a run took: by its report, else by its clock, else by its steps, else by rollouts played one by one."""
    usage = report.get("usage")
    reported = report.get("wall_s"), usage.get("seconds") if isinstance(usage, dict) else None
    for seconds in (*reported, reader.meta().get(SECONDS_KEY)):
        if isinstance(seconds, int | float):
            return RecordedTime(seconds=float(seconds), source="run")
    sql = "select sum(value) from metrics where stage in (?, ?, ?, ?) and name in (?, ?)"
    ((steps,),) = reader.select(sql, *TRAINING_STAGES, *STEP_SECONDS)
    if steps:
        return RecordedTime(seconds=float(steps), source="steps")
    if recipe == PLAY_RECIPE:
        ((played,),) = reader.select("select sum(seconds) from rollouts")
        return RecordedTime(seconds=played, source="rollouts")
    return RecordedTime(seconds=None, source="")


def read_report(folder: Path) -> dict[str, Any]:
    """The run's `report.json`; empty where there is none that can be read."""
    with suppress(OSError, ValueError):
        body = json.loads((folder / REPORT_FILE).read_text())
        if isinstance(body, dict):
            return body
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionReward:
    """The mean reward of what one version of the code made."""

    digest: str
    reward: float | None
    """None where nothing was scored, or the rollouts are too many to be looked through."""
    scored: int


class _MadeBy(msgspec.Struct):
    """The part of a stored rollout that says what made it."""

    provenance: str = ""


_decoder = msgspec.msgpack.Decoder(_MadeBy)


def rewards_by_version(folder: Path, reader: RunReader, report: Mapping[str, Any]) -> list[VersionReward]:
    """Mean rewards of an evaluation whose code changed meanwhile, by version; empty where one version made all.

    They come from the report where it covers every rollout, else from the rollouts. Raises StoreError.
    """
    lock = read_lock(folder)
    if lock is None or len(lock.made_by) < 2:
        return []
    codes = report.get("by_code", {}) if covers_all(report, reader) else None
    if codes is None or any(len(part.get("rewards") or {}) > 1 for part in codes.values()):  # which seat learns?
        codes = _versions_of_rollouts(reader)
    if codes is None:
        return [VersionReward(digest=entry["digest"], reward=None, scored=0) for entry in lock.made_by]
    order = {entry["digest"]: place for place, entry in enumerate(lock.made_by)}
    found = []
    for code, part in sorted(codes.items(), key=lambda item: order.get(item[0], -1)):
        rewards = part.get("rewards") or {}
        reward = next((float(one["value"]) for one in rewards.values()), None)
        found.append(VersionReward(digest=code, reward=reward, scored=part.get("scored", 0)))
    return found if len(found) > 1 else []


def covers_all(report: Mapping[str, Any], reader: RunReader) -> bool:
    """Whether a report was written after the newest rollout of an evaluation was stored."""
    ((stored,),) = reader.select("select count(*) from rollouts where stage = ?", EVALUATION_STAGE)
    return bool(report) and report.get("played") == stored


def _versions_of_rollouts(reader: RunReader) -> dict[str, dict[str, Any]] | None:
    """Mean reward and number of scored rollouts by digest; None for more than MAX_COMPUTED_ROLLOUTS."""
    sql = "select reward, dictionary, payload from rollouts where stage = ? limit ?"
    rewards: dict[str, list[float]] = {}
    seen = 0
    for some in reader.iter_select(sql, EVALUATION_STAGE, MAX_COMPUTED_ROLLOUTS + 1):
        seen += len(some)
        if seen > MAX_COMPUTED_ROLLOUTS:
            return None
        for reward, dictionary, payload in some:
            with suppress(StoreError, msgspec.MsgspecError, zstandard.ZstdError):  # opening it raises it again
                made = rewards.setdefault(_decoder.decode(reader.record(payload, dictionary)).provenance, [])
                if reward is not None:
                    made.append(reward)
    return {
        code: {"rewards": {"": {"value": sum(values) / len(values)}} if values else {}, "scored": len(values)}
        for code, values in rewards.items()
    }


def evaluation_result(folder: Path, reader: RunReader, *, group_by: str = "") -> dict[str, Any]:
    """The figures of an evaluation as `wander eval` prints them, with 95% intervals.

    They are those of `report.json` where it covers every rollout and no other breakdown is asked for, else they are
    computed from the rollouts. Rollouts of several versions of the code are in no common figure: `by_code` has theirs.
    Raises UsageError for more than MAX_COMPUTED_ROLLOUTS that would have to be looked through, and StoreError.
    """
    report = read_report(folder)
    keys = task_keys(reader)
    complete = covers_all(report, reader)
    if not complete or (group_by and group_by != _report_key(report)):
        seconds = report.get("usage", {}).get("seconds") if complete else None
        report = _computed_report(reader, group_by)
        report["usage"]["seconds"] = seconds
    try:
        lock = read_lock(folder)
    except StoreError:
        lock = None
    return {"report": report, "complete": complete, "keys": keys, "changes": version_changes(lock)}


RESULT_FIELDS = (
    *("metric", "tasks", "samples", "temperature", "rows"),
    *("difference", "matches", "truths", "warnings", "verdict", "sentence", "seconds"),
)
"""Fields of a training run's sampled evaluation that are shown."""


def training_result(folder: Path) -> dict[str, Any] | None:
    """What a finished training run came to, from its report: before and after on the same tasks, players, advice.

    `result` is None where nothing was evaluated by sampling. None for a run that has not finished, or of another kind.
    """
    report = read_report(folder)
    if not isinstance(report.get("advice"), list):
        return None
    result = report.get("result")
    if not isinstance(result, dict):
        result = None
    return {
        "result": None if result is None else {name: result.get(name) for name in RESULT_FIELDS},
        "policy_sentence": report.get("policy_sentence", ""),
        "advice": report["advice"],
    }


def _report_key(report: Mapping[str, Any]) -> str:
    parts = [report, *report.get("by_code", {}).values()]
    return next((part["group_by"] for part in parts if part.get("group_by")), "")


def _computed_report(reader: RunReader, group_by: str) -> dict[str, Any]:
    ((count,),) = reader.select("select count(*) from rollouts where stage = ?", EVALUATION_STAGE)
    if count > MAX_COMPUTED_ROLLOUTS:
        raise UsageError(
            f"{count} rollouts are too many to be looked through here: `wander eval` writes the figures, and "
            "--group-by breaks them down"
        )
    threshold = reader.meta().get(PASS_THRESHOLD_KEY)
    tally = VersionTally(pass_threshold=threshold if isinstance(threshold, int | float) else 1.0, group_by=group_by)
    for (step,) in reader.select("select distinct step from rollouts where stage = ?", EVALUATION_STAGE):
        for group in reader.iter_groups(EVALUATION_STAGE, step):
            tally.add(group)
    if len({value for _, value in tally.parts}) > MAX_GROUP_VALUES:
        raise UsageError(f"{group_by!r} has more than {MAX_GROUP_VALUES} values: choose another key")
    return stored_report(tally.report(0.0))


def task_keys(reader: RunReader) -> list[str]:
    """Keys of the tasks' info by which figures can be broken down: those with texts, whole numbers or truth values."""
    names: dict[str, set[str]] = {}
    rows = reader.select("select id from rollouts where stage = ? limit ?", EVALUATION_STAGE, KEY_SAMPLE_ROLLOUTS)
    for (id,) in rows:
        with suppress(StoreError):
            for name, value in reader.get(id).task.info.items():
                if isinstance(value, str | int):
                    names.setdefault(name, set()).add(str(value))
    return sorted(names)


def version_changes(lock: Lock | None) -> dict[str, list[str]]:
    """By digest, the names of the inputs that differ from those of the version before."""
    if lock is None:
        return {}
    pairs = zip((*lock.made_by[:1], *lock.made_by), lock.made_by, strict=False)
    return {now["digest"]: changed_inputs(before["inputs"], now["inputs"]) for before, now in pairs}


def lock_record(folder: Path) -> dict[str, Any] | None:
    """What `wander.lock` says made the run: versions, digests, the command; None where there is none.

    An unreadable one is a record with its `problem`.
    """
    try:
        lock = read_lock(folder)
    except StoreError as error:
        return {"problem": str(error)}
    if lock is None:
        return None
    changes = version_changes(lock)
    return {
        "python": lock.python,
        "platform": lock.platform,
        "command": None if lock.command is None else list(lock.command),
        "packages": dict(lock.packages),
        "made_by": [{**entry, "changed": changes[entry["digest"]]} for entry in lock.made_by],
        "sources": sorted(lock.sources),
    }
