"""Recognising, while a world lives, what of the oracle has been done, so that what waits for it can happen.

What the environment has answered cannot be taken back, so nothing is recognised before somebody waits for it, and then
only where the acts before it can be found among the earlier writes too (by the same exact matching that verification
uses): of two equal mails the first is not taken for the wrong one. Texts are taken on trust, the likest first, and
among acts that it may be, one that is due comes before one that is not, and one that asks for more before a vague one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from wanderlust.worlds.assign import solve
from wanderlust.worlds.checks import unlike
from wanderlust.worlds.evidence import Evidence
from wanderlust.worlds.log import Happened
from wanderlust.worlds.oracle import Expected, Oracle
from wanderlust.worlds.rules import OPEN, Rules
from wanderlust.worlds.world import World

Doubt: TypeAlias = tuple[bool, int, float, int]
"""Outside its window; soft arguments that differ, and by how much; the more it asks for, the less."""


def recognise(world: World, line: Happened, oracle: Oracle) -> None:
    """Fulfil the act that the last line of the log may be and that others' events wait for, and the acts before it."""
    waited = [
        (number, one)
        for number, one in enumerate(oracle.acts)
        if one.awaited and one.act.id not in world.done and (one.act.app, one.act.action) == (line.app, line.action)
    ]
    found = [done for number, one in waited if (done := _with_those_before(world, oracle, number)) is not None]
    if found:
        fulfil_all(world, min(found, key=lambda one: one[0])[1])


def fulfil_all(world: World, lines: Mapping[str, int]) -> None:
    """Fulfil acts in an order in which the world expects them; one act lets the next be expected."""
    left, moved = dict(lines), True
    while moved and not world.stopped:
        moved = False
        for act in world.expected:
            if act.id in left:
                world.fulfil(act.id, left.pop(act.id))
                moved = True


def _with_those_before(world: World, oracle: Oracle, number: int) -> tuple[Doubt, dict[str, int]] | None:
    """The lines that an act and those before it may be, the last one of the log its own; and how doubtful that is."""
    fixed = {
        one.act.id: world.done[one.act.id]
        for one in oracle.acts
        if one.act.id in world.done and (one.awaited or one.turn < oracle.acts[number].turn)
    }
    needed = sorted(_closure(oracle, number, fixed))
    case = Evidence(world.log, replace(oracle, acts=_reduced(oracle, needed, fixed)), {}, fixed=fixed)
    last = len(case.writes) - 1
    domains = [case.possible(act) for act in case.acts]
    domains[-1] &= 1 << last
    rules = Rules(case, OPEN, time=False)
    puzzle = rules.puzzle(domains) if all(domains) else None
    values = solve(puzzle).values if puzzle is not None else None
    if values is None or not rules.hold(found := dict(enumerate(values))):
        return None
    lines = {case.acts[n].act.id: case.writes[write] for n, write in found.items()}
    act = case.acts[-1]
    sure, off = case.in_time(act, last, found), (0, 0.0)
    if case.same(act, last, found) is None:
        question = case.question(act, last, found)
        off = len(question.about), unlike(list(question.wanted.values()), list(question.given.values()))
    return (not sure, *off, -len(act.arguments)), lines


def _closure(oracle: Oracle, number: int, fixed: Mapping[str, int]) -> set[int]:
    """An act and all agent's acts before it that are not settled."""
    found, look = {number}, [number]
    while look:
        new = {n for n in oracle.acts[look.pop()].parents if oracle.acts[n].act.id not in fixed} - found
        found |= new
        look += new
    return found


def _reduced(oracle: Oracle, needed: list[int], fixed: Mapping[str, int]) -> tuple[Expected, ...]:
    """These acts alone; the settled ones are events like others'."""
    numbers = {number: new for new, number in enumerate(needed)}
    return tuple(
        replace(
            one,
            parents=tuple(numbers[n] for n in one.parents if n in numbers),
            sources=tuple(numbers[n] for n in one.sources if n in numbers),
            waits=(*one.waits, *(i for n in one.parents if (i := oracle.acts[n].act.id) in fixed)),
        )
        for one in (oracle.acts[number] for number in needed)
    )
