"""Recognition of the oracle's acts while a world runs, so that what waits for them can happen.

The environment's answers cannot be taken back. So an act is recognised only when an event of others waits for it, and
only where the acts before it can be found among the earlier writes too (by the exact matching that verification uses):
of two equal mails the first is not taken for the wrong one. Texts are taken on trust, the most alike first; among
possible acts, one that is due comes before one that is not, and one with more arguments before one with fewer.

`TurnGate` verifies each turn before the next one begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from wanderlust_worlds.engine.events import reachable
from wanderlust_worlds.engine.log import LogEntry
from wanderlust_worlds.engine.world import World
from wanderlust_worlds.verification.assignment import solve_assignment
from wanderlust_worlds.verification.matching import ALLOW_UNDECIDED, EXACT_ONLY, AnswerQuestion, Constraints, LogMatcher
from wanderlust_worlds.verification.oracle import Oracle
from wanderlust_worlds.verification.verdict import Compat, Verdict
from wanderlust_worlds.verification.verify import verify

MatchDoubt: TypeAlias = tuple[bool, int, float, int]
"""Outside its window; number of soft arguments that differ, and by how much; minus the number of arguments."""


def match_online(
    world: World,
    line: LogEntry,
    oracle: Oracle,
    *,
    log: Sequence[LogEntry] | None = None,
    answers: AnswerQuestion | None = None,
) -> None:
    """Fulfil the act that the last line of the log may be and that others' events wait for, and the acts before it.

    `log` is read instead of the world's own; with `answers` no text is taken on trust.
    """
    lines = world.log if log is None else log
    waited = [
        (number, one)
        for number, one in enumerate(oracle.acts)
        if one.awaited and one.act.id not in world.done and (one.act.app, one.act.action) == (line.app, line.action)
    ]
    matches = [
        done
        for number, one in waited
        if (done := _match_with_parents(world, oracle, number, log=lines, answers=answers)) is not None
    ]
    if matches:
        mark_all_done(world, min(matches, key=lambda one: one[0])[1])


def mark_all_done(world: World, lines: Mapping[str, int]) -> None:
    """Fulfil acts in an order in which the world expects them; one act lets the next be expected."""
    left, moved = dict(lines), True
    while moved and not world.stopped:
        moved = False
        for act in world.expected:
            if act.id in left:
                world.mark_done(act.id, left.pop(act.id))
                moved = True


def _match_with_parents(
    world: World, oracle: Oracle, number: int, *, log: Sequence[LogEntry], answers: AnswerQuestion | None
) -> tuple[MatchDoubt, dict[str, int]] | None:
    """The lines of an act (the last one of the log) and of the acts before it, and how doubtful the match is."""
    fixed = {
        one.act.id: world.done[one.act.id]
        for one in oracle.acts
        if one.act.id in world.done and (one.awaited or one.turn < oracle.acts[number].turn)
    }

    def unsettled(number: int) -> list[int]:
        return [n for n in oracle.acts[number].parents if oracle.acts[n].act.id not in fixed]

    needed = sorted(reachable([number], unsettled))
    numbers = {number: new for new, number in enumerate(needed)}
    acts = tuple(  # the needed acts alone; the settled ones are treated like events of others
        replace(
            one,
            parents=tuple(numbers[n] for n in one.parents if n in numbers),
            sources=tuple(numbers[n] for n in one.sources if n in numbers),
            waits=(*one.waits, *(i for n in one.parents if (i := oracle.acts[n].act.id) in fixed)),
        )
        for one in (oracle.acts[n] for n in needed)
    )
    case = LogMatcher(log, replace(oracle, acts=acts), answers or {}, fixed=fixed)
    last = len(case.writes) - 1
    domains = [case.possible(act) for act in case.acts]
    domains[-1] &= 1 << last
    rules = Constraints(case, ALLOW_UNDECIDED if answers is None else EXACT_ONLY, time=False)
    puzzle = rules.problem(domains) if all(domains) else None
    values = solve_assignment(puzzle).values if puzzle is not None else None
    if values is None or not rules.hold_for(assignment := dict(enumerate(values))):
        return None
    lines = {case.acts[n].act.id: case.writes[write] for n, write in assignment.items()}
    act = case.acts[-1]
    sure, off = case.in_time(act, last, assignment), (0, 0.0)
    if case.matches(act, last, assignment) is None:
        question = case.question(act, last, assignment)
        off = len(question.about), question.distance
    return (not sure, *off, -len(act.arguments)), lines


TURN_REJECTED = "rejected"
"""Prefix of the reason why a world stopped when a turn was rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnGate:
    """Lets a world go on to its next turn only when the finished one is not rejected; else the world stops.

    Within a turn, what waits for an act of the agent is let go as soon as the act is recognised (`match_online`). The
    act that ends the turn counts when the turn has been verified; what of the turn was not recognised before is then
    let go too. A turn that cannot be decided without a judge goes on.
    """

    oracle: Oracle
    compat: Compat = "strict"
    defer: bool = False
    """Leave the ends of turns to a caller of `apply_turn_verdict`."""
    stops: bool = True
    """Stop the world when a turn is rejected; else it goes on as well as it can, for a verdict on the whole."""

    def __call__(self, world: World, line: LogEntry) -> None:
        """The gate itself."""
        action = world.action(line)
        if action is None or not line.writes:
            return
        if not action.ends_turn:
            match_online(world, line, self.oracle)
        elif not self.defer:
            verdict = verify(world.log, self.oracle, compat=self.compat, upto=self.turn(world))
            apply_turn_verdict(world, verdict, stops=self.stops)

    def turn(self, world: World) -> int:
        """The turn that a world is in: the first whose end has not been let pass."""
        ends = (one.turn for one in self.oracle.acts if one.action.ends_turn and one.act.id not in world.done)
        return min(ends, default=self.oracle.turns - 1)


def apply_turn_verdict(world: World, verdict: Verdict, *, stops: bool = True) -> None:
    """Let a world go on after a verdict on its turn, or stop it when the turn was rejected."""
    if stops and verdict.decision == "reject":
        world.stop(f"{TURN_REJECTED}: {verdict.reasons[0].text}")
        return
    mark_all_done(world, verdict.matched)
