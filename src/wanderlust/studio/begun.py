"""The words that a run was begun by, so that it can be begun again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

BESIDE = ("log",)
"""What a run does not depend on."""


def begun(
    env: str | None, course: str | None, settings: Mapping[str, Any] | None, *asked: tuple[Any, Any]
) -> tuple[str, ...]:
    """The words behind `wander` of a training run: where it starts by its whole path, and what is not as by default.

    `asked` are options beside what they are by default. None without settings: the run was begun before.
    """
    if settings is None:
        return ()
    start = ["--course", course] if course else [str(env), "--policy", str(settings["policy"])]
    return ("train", *start, *(word for given, default in asked for word in _changed(asdict(given), asdict(default))))


def _changed(given: Mapping[str, Any], default: Mapping[str, Any]) -> Iterator[str]:
    for name, value in given.items():
        if isinstance(value, dict):
            yield from _changed(value, default[name])
        elif value != default[name] and name not in BESIDE:
            yield from (f"--{name.replace('_', '-')}", str(value))
