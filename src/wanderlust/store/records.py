"""The stored form of a rollout: one compressed record, and its token arrays packed separately.

Tools stand in the record once, at the first of the turns that were offered them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

import msgspec
import zstandard

from wanderlust.errors import NotSerializable, StoreError
from wanderlust.types import DeclaredTool, Rollout, Tokens, Trajectory, Turn

DICTIONARY_BYTES = 16 * 1024
_LEVEL = 3
_HEAD = 7
"""Numbers per turn: trajectory, turn, offset, version, ids of the prompt, of the completion, log-probabilities."""


def _shallow_dict(kind: type, *without: str) -> Callable[[Any], dict[str, Any]]:
    """A fast shallow dict of a dataclass's fields but some."""
    names = [field.name for field in fields(kind) if field.name not in without]
    values = attrgetter(*names)
    return lambda value: dict(zip(names, values(value), strict=True))


_TURN = _shallow_dict(Turn, "tokens", "tools")
_TRAJECTORY = _shallow_dict(Trajectory, "turns")
_ROLLOUT = _shallow_dict(Rollout, "trajectories")
_BYTES = (bytes, bytearray, memoryview)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Rollout)
_OFFERED = "offered_tools"


class _ToolRecord(msgspec.Struct):
    """Tools that a seat was offered from one of its turns on."""

    trajectory: int
    turn: int
    tools: tuple[DeclaredTool, ...]


class _ToolRecords(msgspec.Struct):
    """The part of a record that `Rollout` has no field for."""

    offered_tools: list[_ToolRecord] = []


_tool_encoder = msgspec.msgpack.Encoder(enc_hook=str)
_tool_decoder = msgspec.msgpack.Decoder(_ToolRecords)


def pack(rollout: Rollout) -> bytes:
    """Encode the record as msgpack, without token arrays.

    Plain data in `Task.answer`, `Task.info` and `Rollout.state` is restored equal, with two exceptions: tuples and
    sets become lists, dataclasses become dicts. A lone surrogate, which no encoding has, is restored as its escape
    (`\\ud800`). Raises NotSerializable for other data.
    """
    trajectories = [
        _TRAJECTORY(trajectory) | {"turns": [_TURN(turn) for turn in trajectory.turns]}
        for trajectory in rollout.trajectories
    ]
    record = _ROLLOUT(rollout) | {"trajectories": trajectories}
    if offered := _offered_tools(rollout):
        record[_OFFERED] = msgspec.msgpack.decode(_tool_encoder.encode(offered))
    try:
        try:
            return _encoder.encode(record)
        except UnicodeEncodeError:
            return _encoder.encode(encodable(msgspec.to_builtins(record, builtin_types=_BYTES)))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise NotSerializable(f"the rollout of task {rollout.task.id!r} is not plain data: {error}") from error


def _offered_tools(rollout: Rollout) -> list[_ToolRecord]:
    """An entry for each turn that was offered other tools than the one before it."""
    records = []
    for i, trajectory in enumerate(rollout.trajectories):
        before: tuple[DeclaredTool, ...] = ()
        for j, turn in enumerate(trajectory.turns):
            if turn.tools is not before and turn.tools != before:
                records.append(_ToolRecord(trajectory=i, turn=j, tools=turn.tools))
            before = turn.tools
    return records


def encodable(data: Any) -> Any:
    """Plain data with every lone surrogate, which no encoding has, as its escape; tuples become lists."""
    if isinstance(data, str):
        return data.encode(errors="backslashreplace").decode()
    if isinstance(data, dict):
        return {encodable(name): encodable(value) for name, value in data.items()}
    return [encodable(value) for value in data] if isinstance(data, list | tuple) else data


def pack_tokens(rollout: Rollout) -> bytes | None:
    """Pack all token arrays of the rollout exactly: ids as int32, log-probabilities as float32 where that is exact.

    None when no turn has tokens. Layout, in little-endian int32: the number of turns with tokens, the bytes per
    log-probability, `_HEAD` numbers for each such turn, all ids; then all log-probabilities.
    """
    heads: list[int] = []
    ids: list[int] = []
    scores: list[float] = []
    for i, trajectory in enumerate(rollout.trajectories):
        for j, turn in enumerate(trajectory.turns):
            if (tokens := turn.tokens) is not None:
                prompt, completion, logprobs = tokens.prompt, tokens.completion, tokens.logprobs
                sizes = len(prompt), len(completion), len(logprobs)
                heads += i, j, tokens.offset, tokens.version, *sizes
                ids += prompt
                ids += completion
                scores += logprobs
    if not heads:
        return None
    kind = "f"
    try:
        if struct.unpack(f"<{len(scores)}f", struct.pack(f"<{len(scores)}f", *scores)) != tuple(scores):
            kind = "d"
    except OverflowError:
        kind = "d"
    numbers = [len(heads) // _HEAD, struct.calcsize(kind), *heads, *ids]
    try:
        return struct.pack(f"<{len(numbers)}i", *numbers) + struct.pack(f"<{len(scores)}{kind}", *scores)
    except struct.error as error:
        raise StoreError(f"task {rollout.task.id!r}: a token id beyond 32 bits cannot be stored") from error


def unpack(record: bytes, tokens: bytes | None) -> Rollout:
    """Restore the rollout of `pack` and `pack_tokens`. Raises StoreError when the bytes are damaged."""
    try:
        rollout = _decoder.decode(record)
        if _OFFERED.encode() in record:
            changes = {(one.trajectory, one.turn): one.tools for one in _tool_decoder.decode(record).offered_tools}
            for i in {trajectory for trajectory, _ in changes}:
                turns = rollout.trajectories[i].turns
                offered: tuple[DeclaredTool, ...] = ()
                for j, turn in enumerate(turns):
                    offered = changes.get((i, j), offered)
                    if offered:
                        turns[j] = replace(turn, tools=offered)
        if tokens is not None:
            _fill(rollout, tokens)
    except (msgspec.MsgspecError, struct.error, ValueError, IndexError) as error:
        raise StoreError(f"a record is damaged: {error}") from error
    return rollout


def count_tokens(turns: Sequence[Turn]) -> tuple[int, int]:
    """Tokens read and written, as the policy reported them, else as recorded."""
    read = written = 0
    for turn in turns:
        if turn.usage:
            read += turn.usage.get("prompt_tokens", 0)
            written += turn.usage.get("completion_tokens", 0)
        elif turn.tokens is not None:
            read += len(turn.tokens.prompt)
            written += len(turn.tokens.completion)
    return read, written


def sum_usage(turns: Sequence[Turn], name: str) -> int:
    """Sum of a count that only some policies report, such as `cached_tokens` and `reasoning_tokens`."""
    return sum(turn.usage.get(name, 0) for turn in turns)


def train_dictionary(records: Sequence[bytes]) -> bytes | None:
    """Train a compression dictionary for records like these; None when they have too little in common."""
    try:
        # d and k are fixed: searching for the best ones takes a hundred times longer and gains about a percent.
        return zstandard.train_dictionary(DICTIONARY_BYTES, list(records), d=8, k=256).as_bytes()
    except zstandard.ZstdError:
        return None


class Codec:
    """Compress and decompress records; `current` is the number of the newest dictionary, 0 without one."""

    def __init__(self) -> None:
        self.current = 0
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._decompressors = {0: zstandard.ZstdDecompressor()}

    def adopt(self, number: int, body: bytes) -> None:
        """Add the dictionary `number`, and compress with it from now on."""
        dictionary = zstandard.ZstdCompressionDict(body)
        self.current = number
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, dict_data=dictionary, write_checksum=True)
        self._decompressors[number] = zstandard.ZstdDecompressor(dict_data=dictionary)

    def knows(self, number: int) -> bool:
        """Whether the dictionary `number` has been added."""
        return number in self._decompressors

    def compress(self, record: bytes) -> bytes:
        """Compress a record with the `current` dictionary."""
        return self._compressor.compress(record)

    def decompress(self, payload: bytes, number: int) -> bytes:
        """Decompress a record of the dictionary `number`. Raises StoreError when damaged."""
        try:
            return self._decompressors[number].decompress(payload)
        except (KeyError, zstandard.ZstdError) as error:
            raise StoreError(f"a record is damaged: {error}") from error


def _fill(rollout: Rollout, body: bytes) -> None:
    count, width = struct.unpack_from("<2i", body)
    heads = struct.unpack_from(f"<{_HEAD * count}i", body, 8)
    rows = [heads[n : n + _HEAD] for n in range(0, len(heads), _HEAD)]
    recorded, scores = sum(row[4] + row[5] for row in rows), sum(row[6] for row in rows)
    layout = f"<{2 + len(heads) + recorded}i{scores}{'f' if width == 4 else 'd'}"
    values = struct.unpack(layout, body)[2 + len(heads) :]
    ids, logprobs = values[:recorded], values[recorded:]
    at = scored_at = 0
    for i, j, offset, version, prompt, completion, scored in rows:
        turns = rollout.trajectories[i].turns
        tokens = Tokens(
            prompt=ids[at : at + prompt],
            completion=ids[at + prompt : at + prompt + completion],
            logprobs=logprobs[scored_at : scored_at + scored],
            offset=offset,
            version=version,
        )
        turns[j] = replace(turns[j], tokens=tokens)
        at, scored_at = at + prompt + completion, scored_at + scored
