"""Verification: whether the agent did what the oracle does, in an allowed order, in time, and nothing else.

A log is accepted when every act of the oracle can be given a write of its own such that all arguments are the same (by
the checks that actions declare), children happened after their parents, timed acts are in their window, and no write
of the agent is left over. If such an assignment exists it is found: see `assignment.py` for how, and for the bound. A
rejected log is explained by the nearest assignment (`explain_mismatch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from wanderlust.errors import one_line
from wanderlust_worlds.engine.log import LogEntry
from wanderlust_worlds.verification.are_compat import verify_like_are
from wanderlust_worlds.verification.assignment import MAX_ASSIGNMENT_STEPS, maximum_matching, set_bits, solve_assignment
from wanderlust_worlds.verification.matching import (
    ALLOW_UNDECIDED,
    EXACT_ONLY,
    NO_ASSIGNMENT,
    AcceptedOutcomes,
    Constraints,
    LogMatcher,
)
from wanderlust_worlds.verification.oracle import ExpectedCall, Oracle
from wanderlust_worlds.verification.verdict import Compat, Decision, Fault, JudgeAnswer, Reason, Verdict, answers_by_key

MAX_VALUE_CHARS = 60
"""Characters of a value in the text of a reason."""


def explain_mismatch(case: LogMatcher, assignment: Mapping[int, int]) -> Iterator[Reason]:
    """Yield the faults of an assignment: acts left out, writes left over, wrong order, wrong time."""
    taken = set(assignment.values())
    for number, act in enumerate(case.acts):
        if number in assignment:
            yield from _misplacement_reasons(case, act, write=assignment[number], assignment=assignment)
        elif gone := [name for name in act.waits if name not in case.event_lines]:
            yield _reason("event", act, f"it comes after {gone[0]}, which never happened")
        else:
            yield _reason(
                "missing", act, f"nobody did it{_describe_nearest_write(case, act, taken=taken, assignment=assignment)}"
            )
    for number, line in enumerate(case.writes):
        if number not in taken:
            did = case.lines[line]
            arguments = ", ".join(f"{name}={_shorten_value(value)}" for name, value in did.args.items())
            call = f"{did.app}.{did.action}({one_line(arguments, 3 * MAX_VALUE_CHARS)})"
            yield Reason(fault="extra", text=f"line {line}: nobody asked for {call}", line=line)


def _misplacement_reasons(
    case: LogMatcher, act: ExpectedCall, *, write: int, assignment: Mapping[int, int]
) -> Iterator[Reason]:
    line = case.writes[write]
    for parent in act.parents:
        if parent in assignment and assignment[parent] > write:
            before = case.acts[parent].act.id
            yield _reason(
                "order", act, f"line {line} is before {before}, in line {case.writes[assignment[parent]]}", line=line
            )
    if not case.in_time(act, write, assignment):
        due = case.due(act, assignment) or 0.0
        late = case.line(write).time - due
        off = f"{abs(late):g} seconds {'after' if late > 0 else 'before'} it was due"
        yield _reason("time", act, f"line {line} is {off}", line=line)


def _describe_nearest_write(
    case: LogMatcher, act: ExpectedCall, *, taken: set[int], assignment: Mapping[int, int]
) -> str:
    """The write that is left and differs in the fewest arguments."""
    at = {number: assignment[number] for number in act.sources if number in assignment}
    left = [(case.differing(act, write, at=at), write) for write in case.candidates(act) if write not in taken]
    wrong = min((one for one in left if one[0]), key=lambda one: len(one[0]), default=None)
    if wrong is None:
        return ""
    args = case.line(wrong[1]).args
    differences = "; ".join(
        f"{a.name} is {_shorten_value(args.get(a.name, a.default))}, not {_shorten_value(a.wanted)}" for a in wrong[0]
    )
    return f"; nearest is line {case.writes[wrong[1]]}: {differences}"


def _reason(fault: Fault, act: ExpectedCall, text: str, *, line: int = -1) -> Reason:
    description = f"{act.act.id} ({act.act.app}.{act.act.action}): {text}"
    return Reason(fault=fault, text=description, event=act.act.id, line=line)


def _shorten_value(value: Any) -> str:
    return one_line(repr(value), MAX_VALUE_CHARS)


def verify(
    log: Sequence[LogEntry],
    oracle: Oracle,
    *,
    answers: Iterable[JudgeAnswer] = (),
    compat: Compat = "strict",
    upto: int | None = None,
    limit: int = MAX_ASSIGNMENT_STEPS,
) -> Verdict:
    """The verdict on a log. It depends on nothing but the log, the oracle and the answers.

    `undecided` where it depends on soft arguments that no judge has compared: the verdict's `questions` name them, and
    `answers` (from `verify_with_judge`, or from an earlier verdict) settle them. `upto` leaves out the oracle's later
    turns. Beyond `limit` tried choices the verdict is undecided for the fault `limit`.
    """
    known_answers = tuple(answers)
    case = LogMatcher(log, oracle, answers_by_key(known_answers), upto=upto)
    if compat != "strict":
        return verify_like_are(case, compat, known_answers)
    return _CallMatching(case, limit).verdict(known_answers)


class _CallMatching:
    """The search for an assignment: at first with all rules and then, to explain a rejection, with fewer."""

    def __init__(self, matcher: LogMatcher, limit: int):
        self.matcher, self.limit, self.step_limit_reached = matcher, limit, False
        self.count = len(matcher.acts)
        self._domains = [matcher.possible(act) for act in matcher.acts]

    def verdict(self, answers: tuple[JudgeAnswer, ...]) -> Verdict:
        """Accept what certainly fits; reject what cannot fit, whatever a judge might say."""
        marks = list(self.matcher.mark_reasons())
        assignment = None
        if len(self.matcher.writes) == self.count:
            assignment = self.assign(EXACT_ONLY) or self.assign(ALLOW_UNDECIDED)
        if assignment is None and self.step_limit_reached:
            what = f"no answer within {self.limit:,} tried choices: too many acts look alike"
            return self._make_verdict(self._partial(), [Reason(fault="limit", text=what), *marks], answers)
        if assignment is None:
            assignment = self._nearest()
            marks += explain_mismatch(self.matcher, assignment)
        return self._make_verdict(assignment, marks, answers)

    def _make_verdict(
        self, assignment: Mapping[int, int], reasons: list[Reason], answers: tuple[JudgeAnswer, ...]
    ) -> Verdict:
        case, taken = self.matcher, set(assignment.values())
        unsure = [n for n, write in sorted(assignment.items()) if case.matches(case.acts[n], write, assignment) is None]
        questions = tuple(case.question(case.acts[n], assignment[n], assignment) for n in unsure)
        decision: Decision = "reject" if any(r.fault != "limit" for r in reasons) else "accept"
        if decision == "accept" and (questions or reasons):
            decision = "undecided"
            reasons += [Reason(fault="judge", text=f"{q.event}: is it the same?", event=q.event) for q in questions]
        return Verdict(
            decision=decision,
            matched={case.acts[n].act.id: case.writes[write] for n, write in sorted(assignment.items())},
            missing=tuple(one.act.id for n, one in enumerate(case.acts) if n not in assignment),
            extra=tuple(line for number, line in enumerate(case.writes) if number not in taken),
            reasons=tuple(reasons),
            questions=questions,
            answers=answers,
            marks=case.marks,
        )

    def assign(self, accepted: AcceptedOutcomes, *, order: bool = True, time: bool = True) -> dict[int, int] | None:
        """A write for every act. `accepted` says which comparisons will do: certain ones, or open ones too."""
        self.step_limit_reached, acts = False, self.matcher.acts
        domains = [
            m if a.sources else self._possible_writes(a, m, accepted) for a, m in zip(acts, self._domains, strict=True)
        ]
        rules = Constraints(self.matcher, accepted, order=order, time=time)
        if all(mask and mask & (mask - 1) == 0 for mask in domains):
            only = {number: mask.bit_length() - 1 for number, mask in enumerate(domains)}
            return only if len(set(only.values())) == self.count and rules.hold_for(only) else None
        if not all(domains):
            return None
        puzzle = rules.problem(domains)
        if puzzle is None:
            self.step_limit_reached = True
            return None
        solution = solve_assignment(puzzle, self.limit)
        self.step_limit_reached = not solution.decided
        assignment = None if solution.values is None else dict(enumerate(solution.values))
        return assignment if assignment is None or rules.hold_for(assignment) else None

    def _possible_writes(self, act: ExpectedCall, mask: int, accepted: AcceptedOutcomes) -> int:
        return sum(
            1 << write for write in set_bits(mask) if self.matcher.matches(act, write, NO_ASSIGNMENT) in accepted
        )

    # Where there is no such choice

    def _nearest(self) -> dict[int, int]:
        """A choice that comes near: without regard to time, then to order, then of as many acts as there are."""
        if all(self._domains):
            for order, time in ((True, True), (True, False), (False, False)):
                for fine in EXACT_ONLY, ALLOW_UNDECIDED:
                    if (assignment := self.assign(fine, order=order, time=time)) is not None:
                        return assignment
        return self._partial()

    def _partial(self) -> dict[int, int]:
        """As many acts as possible with a write of their own, certain ones first; then without what does not fit."""
        case = self.matcher
        pairs = list(zip(case.acts, self._domains, strict=True))
        certain = maximum_matching(
            [0 if act.sources else self._possible_writes(act, mask, EXACT_ONLY) for act, mask in pairs]
        )
        assignment = maximum_matching(self._domains, certain)
        for number, act in enumerate(case.acts):
            if act.sources and number in assignment:
                at = {one: assignment[one] for one in act.sources if one in assignment}
                if len(at) < len(act.sources) or case.matches(act, assignment[number], at) is False:
                    del assignment[number]
        return assignment
