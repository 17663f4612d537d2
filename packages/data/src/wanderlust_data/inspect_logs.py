"""Logs of inspect_ai (`.eval`, `.json`) as evaluations: to look at in the studio, to compare, to export and to rescore.

Each sample becomes a rollout: its id the task's, its epoch the sample, its messages turns, each scorer's values parts.
The reward is the value of one scorer, by default of the log's headline. `C`, `P`, `I` and `N` are 1, 0.5, 0 and 0.
A sample with an error and no score is a failed rollout; one that met a limit is cut. Written for version 2 of the
format (inspect_ai 0.3.285).
"""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

from wanderlust.errors import UsageError, one_line
from wanderlust.evals.accumulator import VersionTally
from wanderlust.evals.evaluation_folder import open_evaluation_folder
from wanderlust.evals.report import Report
from wanderlust.store.run_folder import EVALUATION_STAGE
from wanderlust.types import Group, Message, Rollout, Score, Status, Task, ToolCall, Trajectory, Turn

MAX_SAMPLE_BYTES = 2**28
"""Longest sample, unpacked."""
_ZSTANDARD = 93
"""The number of this compression in archives; Python's `zipfile` knows it from 3.14 on."""
_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectLog:
    """What a log says of itself."""

    task: str
    model: str
    version: str
    """Of inspect_ai."""
    headline: str
    """The scorer whose value is the reward."""
    created: str


def import_log(log: str | Path, out: str | Path, *, scorer: str = "") -> Report:
    """Write the samples of a log into the new folder `out`, an evaluation like any other; returns its report.

    `scorer` names the one whose value is the reward; a value that is an object is named as SCORER/KEY. Raises
    UsageError for a file that is no log, and for a scorer that it does not have.
    """
    path, tally = Path(log), VersionTally()
    if Path(out).exists():
        raise UsageError(f"{out} exists already: choose another folder")
    with open_log(path) as (about, samples):
        settings = {
            "imported": f"inspect_ai {about.version}",
            "log": path.name,
            "task": about.task,
            "policy": about.model,
            "scorer": scorer or about.headline,
        }
        groups: dict[str, int] = {}
        with open_evaluation_folder(out, settings) as folder:
            assert folder is not None
            for sample in samples:
                rollout = sample_to_rollout(sample, scorer or about.headline)
                index = groups.setdefault(rollout.task.id, len(groups))
                group = Group(task=rollout.task, rollouts=[rollout], index=index)
                tally.add(group)
                folder.store.add([group], stage=EVALUATION_STAGE, step=0, env=about.task)
            report = tally.report(0.0)
            folder.write_report(report)
    return report


@contextmanager
def open_log(path: Path) -> Iterator[tuple[InspectLog, Iterator[Mapping[str, Any]]]]:
    """What the log says of itself, and its samples, one after the other. Raises UsageError for any other file."""
    try:
        if path.suffix == ".json":
            whole = json.loads(path.read_text(encoding="utf-8"))
            yield _about(whole, path), iter(whole.get("samples") or ())
            return
        with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
            header = _read(archive, raw, "header.json", path=path)
            names = sorted(name for name in archive.namelist() if name.startswith("samples/"))
            yield _about(header, path), (_read(archive, raw, name, path=path) for name in names)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, ValueError) as error:
        raise UsageError(f"{path} is no log of inspect_ai: {one_line(str(error))}") from error


def _about(header: Any, path: Path) -> InspectLog:
    spec = header.get("eval") if isinstance(header, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(spec.get("task"), str):
        raise UsageError(f"{path} is no log of inspect_ai: its header has no `eval`")
    results = header.get("results") or {}
    scores = [one.get("name", "") for one in results.get("scores") or ()]
    headline = (results.get("headline") or {}).get("score") or next(iter(scores), "")
    return InspectLog(
        task=spec["task"],
        model=str(spec.get("model", "")),
        version=str((spec.get("packages") or {}).get("inspect_ai", "")),
        headline=headline,
        created=str(spec.get("created", "")),
    )


def _read(archive: zipfile.ZipFile, raw: IO[bytes], name: str, *, path: Path) -> Any:
    """A file of the archive as JSON data."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise UsageError(f"{path} is no log of inspect_ai: it has no {name}; was the evaluation stopped?") from None
    if info.file_size > MAX_SAMPLE_BYTES:
        raise UsageError(f"{path}: {name} has {info.file_size:,} bytes, more than {MAX_SAMPLE_BYTES:,}")
    if info.compress_type != _ZSTANDARD:
        return json.loads(archive.read(info))
    raw.seek(info.header_offset + 26)
    lengths = struct.unpack("<HH", raw.read(4))
    raw.seek(sum(lengths), 1)
    try:
        body = zstandard.ZstdDecompressor().decompress(raw.read(info.compress_size), max_output_size=info.file_size)
    except zstandard.ZstdError as error:
        raise UsageError(f"{path}: {name} is damaged: {error}") from error
    return json.loads(body)


def sample_to_rollout(sample: Mapping[str, Any], scorer: str) -> Rollout:
    """One sample as a rollout, without token ids. Raises UsageError for a scorer that it does not have."""
    attachments = sample.get("attachments") or {}
    messages = [_message(one, attachments) for one in sample.get("messages") or ()]
    asked = sample.get("input")
    prompt = [Message("user", asked)] if isinstance(asked, str) else [_message(one, attachments) for one in asked or ()]
    task = Task(
        id=str(sample.get("id")),
        prompt=tuple(prompt),
        answer=sample.get("target"),
        info=dict(sample.get("metadata") or {}),
    )
    events = [one for one in sample.get("events") or () if one.get("event") == "model" and one.get("role") is None]
    usages = [_usage((call.get("output") or {}).get("usage") or {}) for call in events]
    if len(usages) != sum(message.role == "assistant" for message in messages):  # not one call of the model per answer
        usages = []
    trajectory = Trajectory(turns=_turns(messages, usages), trainable=True)
    epoch, error, limit = int(sample.get("epoch") or 1), sample.get("error"), sample.get("limit")
    rollout = Rollout(task=task, seed=0, sample_index=epoch - 1, trajectories=[trajectory])
    rollout.seconds = float(sample.get("total_time") or 0.0)
    scores = sample.get("scores") or {}
    if scores:
        trajectory.score = _score(scores, scorer)
    if error and not scores:
        rollout.status, rollout.stop_reason = Status.ERROR, "InspectError"
        rollout.error = one_line(str(error.get("message", error) if isinstance(error, Mapping) else error))
    elif limit:
        rollout.status, rollout.stop_reason = Status.TRUNCATED, f"{limit.get('type', 'unknown')}_limit"
    return rollout


def _turns(messages: Sequence[Message], usages: Sequence[Mapping[str, int]]) -> list[Turn]:
    turns, observation = list[Turn](), list[Message]()
    for message in messages:
        if message.role != "assistant":
            observation.append(message)
            continue
        usage = usages[len(turns)] if len(turns) < len(usages) else {}
        finish = "tool_calls" if message.tool_calls else "stop"
        turns.append(Turn(observation=tuple(observation), action=message, finish=finish, usage=usage))
        observation = []
    return turns


def _usage(usage: Mapping[str, Any]) -> dict[str, int]:
    cached, written = usage.get("input_tokens_cache_read") or 0, usage.get("input_tokens_cache_write") or 0
    counts = {
        "prompt_tokens": (usage.get("input_tokens") or 0) + cached + written,
        "completion_tokens": usage.get("output_tokens") or 0,
        "cached_tokens": cached,
        "reasoning_tokens": usage.get("reasoning_tokens") or 0,
    }
    return {name: count for name, count in counts.items() if count or not name.startswith(("cached", "reasoning"))}


def _score(scores: Mapping[str, Any], scorer: str) -> Score:
    parts, notes = dict[str, float](), dict[str, str]()
    for name, score in scores.items():
        value = score.get("value")
        values = {f"{name}/{key}": one for key, one in value.items()} if isinstance(value, Mapping) else {name: value}
        parts |= {key: number for key, one in values.items() if (number := _number(one)) is not None}
        if score.get("explanation"):
            notes[name] = str(score["explanation"])
    chosen = scorer if scorer in parts else next((name for name in parts if name.startswith(f"{scorer}/")), None)
    if chosen is None:
        raise UsageError(f"the log has no number of a scorer {scorer!r}; it has: {', '.join(parts) or 'none'}")
    return Score(reward=parts[chosen], parts=parts, notes=notes)


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            return _LETTERS[value] if value in _LETTERS else float(value)
        except ValueError:
            return None
    return float(value) if isinstance(value, int | float) else None


def _message(wire: Mapping[str, Any], attachments: Mapping[str, str]) -> Message:
    content, reasoning = wire.get("content"), list[str]()
    texts = [content] if isinstance(content, str) else []
    for part in content if isinstance(content, list) else ():
        if part.get("type") == "reasoning":
            reasoning.append(str(part.get("reasoning") or part.get("summary") or ""))
        elif part.get("type") == "text":
            texts.append(str(part.get("text", "")))
        else:
            texts.append(f"[{part.get('type', 'unknown')}]")
    calls = tuple(
        ToolCall(
            id=str(call.get("id")),
            name=str(call.get("function")),
            arguments=given if isinstance(given := call.get("arguments"), str) else json.dumps(given),
        )
        for call in wire.get("tool_calls") or ()
    )
    error = wire.get("error")
    if isinstance(error, Mapping) and error.get("message"):
        texts.append(f"error: {error['message']}")
    return Message(
        wire["role"] if wire.get("role") in ("system", "user", "assistant", "tool") else "user",
        "\n".join(attachments.get(text.removeprefix("attachment://"), text) for text in texts),
        calls,
        tool_call_id=wire.get("tool_call_id"),
        reasoning="\n".join(reasoning) or None,
    )
