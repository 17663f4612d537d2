"""Whoever looks on while a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


class Watch(Protocol):
    """Whoever shows progress."""

    def show(self, stage: str, step: int, *, of: int, figures: Mapping[str, float]) -> None:
        """`step` of the steps `of` a stage are done; `figures` are the newest ones, by name."""
        ...


class Silent:
    """Shows nothing."""

    def show(self, stage: str, step: int, *, of: int, figures: Mapping[str, float]) -> None:
        """Nothing."""


@runtime_checkable
class Telling(Protocol):
    """A watch that can say a line, too."""

    def tell(self, line: str) -> None:
        """Say something that stays to be read."""
        ...
