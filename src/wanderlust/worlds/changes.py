"""What is different between two moments of a world, piece by piece: for readers, and for states sent as changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from wanderlust.worlds.app import App
from wanderlust.worlds.table import Record, Table

Path: TypeAlias = tuple[str | int, ...]


class Change(Record):
    """One piece of an app's state that was added, removed or changed."""

    app: str
    path: Path
    """Keys and positions, from the app's state down."""
    kind: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


def changes(before: Mapping[str, App], after: Mapping[str, App]) -> list[Change]:
    """All changes from one moment's apps to another's, in the order of apps and their state.

    Applied in this order to what `App.state` gave before, they give what it gives after, the order of keys apart. Rows
    that both moments share are not looked into, so that it costs what has changed, and not what there is.
    """
    return [
        Change(app=name, path=path, kind=kind, before=was, after=now)
        for name, app in after.items()
        if app is not before[name]
        for path, kind, was, now in _parts(before[name], app)
    ]


_Piece: TypeAlias = tuple[Path, Literal["added", "removed", "changed"], Any, Any]


def _parts(before: App, after: App) -> Iterator[_Piece]:
    for part in after.fields():
        was, now = getattr(before, part), getattr(after, part)
        if isinstance(was, Table):
            yield from _keyed((part,), was.rows(), now.rows())
        elif was is not now:
            yield from _different((part,), _plain(was), _plain(now))


def _keyed(path: Path, was: Mapping[Any, Any], now: Mapping[Any, Any]) -> Iterator[_Piece]:
    """What differs between two mappings, whose values may be records."""
    if was is now:
        return
    for key, value in was.items():
        if key not in now:
            yield (*path, key), "removed", _plain(value), None
    for key, value in now.items():
        if key not in was:
            yield (*path, key), "added", None, _plain(value)
        elif was[key] is not value:
            yield from _different((*path, key), _plain(was[key]), _plain(value))


def _different(path: Path, was: Any, now: Any) -> Iterator[_Piece]:
    """What differs between two values that are plain data."""
    if type(was) is type(now) and was == now:
        return
    if isinstance(was, dict) and isinstance(now, dict):
        yield from _keyed(path, was, now)
    elif isinstance(was, list) and isinstance(now, list) and len(was) <= len(now):
        for place, (old, new) in enumerate(zip(was, now, strict=False)):
            yield from _different((*path, place), old, new)
        for place in range(len(was), len(now)):
            yield (*path, place), "added", None, now[place]
    else:
        yield path, "changed", was, now


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)
