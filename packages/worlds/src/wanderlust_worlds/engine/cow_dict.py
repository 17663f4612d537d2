"""State that many worlds share until one of them writes: frozen records in tables."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, ValuesView
from typing import Any, TypeVar, cast, dataclass_transform

import msgspec

V = TypeVar("V")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class FrozenRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row: typed, immutable, and plain data as JSON.

    A msgspec struct instead of a dataclass: made in a tenth of the time, and read from JSON with its types checked.
    Fields are scalars, tuples, records, and `Mapping`s that are never changed. Immutable values have no cycles, so the
    garbage collector need not look at them.
    """


class _Mark:
    """A value that no table can hold."""


_DELETED, _ABSENT = _Mark(), _Mark()
MIN_CHANGES_TO_FOLD = 64
"""Changes that are kept apart before they may be merged into a base of the table's own."""


class CowDict(MutableMapping[str, V]):
    """A dict from id to an immutable value, with a `branch` that costs nothing until it is written to.

    Guarantees the order and the errors of a dict. Behind it are a base, which is shared and never changed, and the
    changes since, which are copied at the first write after a branch. When there are half as many changes as rows
    they become a new base, so that a write stays O(1) on average.
    """

    __slots__ = ("_base", "_changes", "_length", "_private")

    def __init__(self, rows: MutableMapping[str, V] | None = None):
        self._base: dict[str, V] = dict(rows or {})
        self._changes: dict[str, Any] = {}
        self._length, self._private = len(self._base), True

    def branch(self) -> CowDict[V]:
        """A table that looks the same and whose writes this one does not see. This one must not be written again."""
        twin: CowDict[V] = CowDict.__new__(CowDict)
        twin._base, twin._changes, twin._length, twin._private = self._base, self._changes, self._length, False
        return twin

    def __getitem__(self, key: str) -> V:
        value = self._changes.get(key, _ABSENT)
        if value is _ABSENT:
            return self._base[key]
        if value is _DELETED:
            raise KeyError(key)
        return cast(V, value)

    def __contains__(self, key: object) -> bool:
        value = self._changes.get(cast(str, key), _ABSENT)
        return key in self._base if value is _ABSENT else value is not _DELETED

    def __setitem__(self, key: str, value: V) -> None:
        changes = self._writable()
        before = changes.get(key, _ABSENT)
        if before is _DELETED:  # as in a dict, what comes back comes last: its old place must go first
            changes = self._fold()
            before = _ABSENT
        if before is _ABSENT and key not in self._base:
            self._length += 1
        changes[key] = value
        if len(changes) > MIN_CHANGES_TO_FOLD and 2 * len(changes) > len(self._base):
            self._fold()

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        changes = self._writable()
        self._length -= 1
        if key in self._base:
            changes[key] = _DELETED
        else:
            del changes[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows())

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"Table({self.rows()!r})"

    def values(self) -> ValuesView[V]:
        """The rows in their order."""
        return self.rows().values()

    def rows(self) -> dict[str, V]:
        """The table as a dict, to read only: it may be the shared one."""
        if not self._changes:
            return self._base
        merged = self._base | self._changes
        if len(merged) != self._length:
            merged = {key: value for key, value in merged.items() if value is not _DELETED}
        return merged

    def _writable(self) -> dict[str, Any]:
        if not self._private:
            self._changes, self._private = dict(self._changes), True
        return self._changes

    def _fold(self) -> dict[str, Any]:
        self._base, self._changes, self._private = self.rows(), {}, True
        return self._changes
