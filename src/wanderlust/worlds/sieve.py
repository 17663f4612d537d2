"""Logs of which it is known whether they are right, made from an oracle's own: to try a verifier on any scenario.

Lines are left out and doubled in the log itself, and nothing is played again; `confusion.py` plays its perturbations,
in scenarios that are made for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from wanderlust.worlds.log import Happened
from wanderlust.worlds.scenario import Scenario
from wanderlust.worlds.verdict import Compat, Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A log, and what is to be said of it."""

    kind: str
    right: Decision
    log: Sequence[Happened]
    event: str = ""
    """The oracle's act that is not as it should be."""


def trials(log: Sequence[Happened], scenario: Scenario, *, compat: Compat = "strict") -> Iterator[Trial]:
    """The oracle's log, the same without each of its writes, with each twice, and without all of them.

    Upstream's judges allow a message to the user too many, so for them those are not doubled.
    """
    yield Trial(kind="as the oracle does", right="accept", log=log)
    apps = {app.name: app for app in scenario.apps}
    acts = {act.id: apps[act.app].actions[act.action] for act in scenario.oracle}
    writes = [n for n, line in enumerate(log) if line.event in acts and line.by == "agent" and line.writes]
    for at in writes:
        event = log[at].event or ""
        yield Trial(kind="an act left out", right="reject", log=_without(log, {at}), event=event)
        if compat == "strict" or not acts[event].ends_turn:
            twice = [*log[: at + 1], replace(log[at], event=None), *log[at + 1 :]]
            yield Trial(kind="an act done twice", right="reject", log=twice, event=event)
    if writes:
        yield Trial(kind="nothing done", right="reject", log=_without(log, set(writes)))


def _without(log: Sequence[Happened], lines: set[int]) -> list[Happened]:
    return [line for number, line in enumerate(log) if number not in lines]
