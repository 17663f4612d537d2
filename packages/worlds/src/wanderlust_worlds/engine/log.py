"""The log of a world: one line per change, appended and never altered. Verification reads nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, Literal, TypeAlias, overload

import msgspec

from wanderlust.errors import UsageError

Actor: TypeAlias = Literal["agent", "user", "env", "data", "world"]
"""The source of a line. `data` prepares a world before it starts; `world` is the engine: time, delivery, conditions."""
NotificationLevel: TypeAlias = Literal["low", "medium", "high", "none"]
"""The verbosity from which on the agent is notified: `low` always, `none` never."""
ENGINE = "world"
"""The app's name in lines about the engine itself."""


class LogEntry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One line of the log."""

    time: float
    """Seconds of the world's clock."""
    by: Actor
    app: str
    """The app's name in its world; `world` for what the engine did itself."""
    action: str
    args: Mapping[str, Any]
    result: Any = None
    error: str | None = None
    """The error as the agent read it; None when the action succeeded."""
    event: str | None = None
    """The id of the event that called for it; None for what came from outside the schedule."""
    writes: bool = False


_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(LogEntry)


def line_bytes(line: LogEntry) -> bytes:
    """The canonical JSON of a line: keys sorted, defaults left out. Raises UsageError when it is not plain data."""
    try:
        try:
            return _encoder.encode(line)
        except TypeError:  # sorting wants keys that are texts, and a result may be numbered
            return _encoder.encode(msgspec.to_builtins(line, str_keys=True))
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(
            f"{line.app}.{line.action} left something in the log that is not plain data: {error}"
        ) from error


def log_bytes(lines: Iterable[LogEntry]) -> bytes:
    """The canonical text of a log, one line of JSON each: equal logs give equal bytes, in any process."""
    return b"".join(line_bytes(line) + b"\n" for line in lines)


def read_log(text: str | bytes) -> list[LogEntry]:
    """The lines of what `log_bytes` made. Results are plain data then. Raises UsageError when it is not such a text."""
    try:
        return _decoder.decode_lines(text)
    except msgspec.MsgspecError as error:
        raise UsageError(f"this is no log of a world: {error}") from error


def digest(lines: Iterable[LogEntry]) -> str:
    """The hash of `log_bytes`, 32 hexadecimal digits."""
    return blake2b(log_bytes(lines), digest_size=16).hexdigest()


class Log(Sequence[LogEntry]):
    """The lines of a world. `branch` shares all lines so far: neither side sees what the other appends."""

    __slots__ = ("_before", "_own", "_parts", "append")

    def __init__(self, lines: Iterable[LogEntry] = ()):
        self._parts: tuple[list[LogEntry], ...] = ()
        self._own = list(lines)
        self._before = 0
        """Lines in `_parts`."""
        self.append: Callable[[LogEntry], None] = self._own.append
        """Add a line. The list's own method, because every event comes through here."""

    def branch(self) -> Log:
        """A log with the same lines; both go on by themselves."""
        if self._own:  # small parts are merged, so that there are never more than log2(lines)
            self._before += len(self._own)
            parts, last = list(self._parts), self._own
            while parts and len(parts[-1]) <= 2 * len(last):
                last = parts.pop() + last
            self._parts, self._own = (*parts, last), []
            self.append = self._own.append
        twin = Log()
        twin._parts, twin._before = self._parts, self._before
        return twin

    def __len__(self) -> int:
        return self._before + len(self._own)

    def __iter__(self) -> Iterator[LogEntry]:
        return chain(*self._parts, self._own)

    @overload
    def __getitem__(self, at: int) -> LogEntry: ...
    @overload
    def __getitem__(self, at: slice) -> list[LogEntry]: ...
    def __getitem__(self, at: int | slice) -> LogEntry | list[LogEntry]:
        if isinstance(at, slice):
            return list(self)[at]
        at = at + len(self) if at < 0 else at
        if at >= self._before:
            return self._own[at - self._before]
        for part in self._parts:
            if 0 <= at < len(part):
                return part[at]
            at -= len(part)
        raise IndexError("the log has no such line")
