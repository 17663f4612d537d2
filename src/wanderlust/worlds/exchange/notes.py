"""What an importer did not understand and left: told once each, with where it was first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

EMPTY: tuple[Any, ...] = (None, "", False, 0, [], {})


class Notes:
    """Warnings in the making."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._more: dict[str, int] = {}

    def add(self, what: str, where: str) -> None:
        """Note something; the same thing elsewhere is only counted."""
        if self._first.setdefault(what, where) != where:
            self._more[what] = self._more.get(what, 0) + 1

    def fields(self, given: Mapping[str, Any], known: Collection[str], *, where: str) -> None:
        """Note the fields that nobody knows."""
        for key in given:
            if key not in known:
                self.add(f"the field {key!r} is not known and left out", where)

    def state(self, given: Any, kept: Any, *, app: str) -> None:
        """Note what is in an app's state and was not kept."""
        for path in _lost(given, kept):
            self.add(f"{path[-1]!r} is not known and left out", f"{app}, {'.'.join(path)}")

    def lines(self) -> tuple[str, ...]:
        """The warnings, one line each."""
        more = {what: f" (and {count:,} more)" for what, count in self._more.items()}
        return tuple(f"{where}{more.get(what, '')}: {what}" for what, where in self._first.items())


def _lost(given: Any, kept: Any) -> Iterator[tuple[str, ...]]:
    """Paths of what is in the one and not in the other; what says nothing does not count."""
    stack: list[tuple[Any, Any, tuple[str, ...]]] = [(given, kept, ())]
    while stack:
        one, other, path = stack.pop()
        if type(one) is dict and type(other) is dict:
            for key, value in one.items():
                if key not in other:
                    if value not in EMPTY:
                        yield (*path, str(key))
                elif type(value) in (dict, list):
                    stack.append((value, other[key], (*path, str(key))))
        elif type(one) is list and isinstance(other, list | tuple):
            stack += [(a, b, (*path, str(n))) for n, (a, b) in enumerate(zip(one, other, strict=False))]
