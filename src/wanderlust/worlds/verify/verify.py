"""Why a log is rejected, in words that somebody can do something with.

Verification: did the agent do what the oracle does, in an allowed order, in time, and nothing else?

A log is accepted when every act of the oracle can be given a write of its own such that all arguments are the same (by
the checks that actions declare), what comes after something happened after it, timed acts are in their window, and no
write of the agent is left over. If such a choice exists it is found: see `assign.py` for how, and for the bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from wanderlust.errors import one_line
from wanderlust.worlds.engine.log import Happened
from wanderlust.worlds.verify.are_compat import verify_upstream
from wanderlust.worlds.verify.assignment import MOST_STEPS, bits, matching, solve
from wanderlust.worlds.verify.matching import CERTAIN, NOWHERE, OPEN, Evidence, Fine, Rules
from wanderlust.worlds.verify.oracle import Expected, Oracle
from wanderlust.worlds.verify.verdict import Answer, Compat, Decision, Fault, Reason, Verdict, known

LONGEST = 60
"""Characters of a value that are shown."""


def explained(case: Evidence, found: Mapping[int, int]) -> Iterator[Reason]:
    """What is wrong with a choice of writes for acts: acts left out, writes left over, wrong order, wrong time."""
    taken = set(found.values())
    for number, act in enumerate(case.acts):
        if number in found:
            yield from _misplaced(case, act, write=found[number], found=found)
        elif gone := [name for name in act.waits if name not in case.fired]:
            yield _reason("event", act, f"it comes after {gone[0]}, which never happened")
        else:
            yield _reason("missing", act, f"nobody did it{_nearest(case, act, taken=taken, found=found)}")
    for number, line in enumerate(case.writes):
        if number not in taken:
            did = case.lines[line]
            what = f"line {line}: nobody asked for {did.app}.{did.action}({_shown(did.args)})"
            yield Reason(fault="extra", text=what, line=line)


def _misplaced(case: Evidence, act: Expected, *, write: int, found: Mapping[int, int]) -> Iterator[Reason]:
    line = case.writes[write]
    for parent in act.parents:
        if parent in found and found[parent] > write:
            before = case.acts[parent].act.id
            yield _reason(
                "order", act, f"line {line} is before {before}, in line {case.writes[found[parent]]}", line=line
            )
    if not case.in_time(act, write, found):
        due = case.due(act, found) or 0.0
        late = case.line(write).time - due
        off = f"{abs(late):g} seconds {'after' if late > 0 else 'before'} it was due"
        yield _reason("time", act, f"line {line} is {off}", line=line)


def _nearest(case: Evidence, act: Expected, *, taken: set[int], found: Mapping[int, int]) -> str:
    """The write that is left and differs in the fewest arguments."""
    at = {number: found[number] for number in act.sources if number in found}
    left = [(case.differing(act, write, at=at), write) for write in case.candidates(act) if write not in taken]
    wrong = min((one for one in left if one[0]), key=lambda one: len(one[0]), default=None)
    if wrong is None:
        return ""
    args = case.line(wrong[1]).args
    told = "; ".join(f"{a.name} is {_short(args.get(a.name, a.default))}, not {_short(a.wanted)}" for a in wrong[0])
    return f"; nearest is line {case.writes[wrong[1]]}: {told}"


def _reason(fault: Fault, act: Expected, text: str, *, line: int = -1) -> Reason:
    told = f"{act.act.id} ({act.act.app}.{act.act.action}): {text}"
    return Reason(fault=fault, text=told, event=act.act.id, line=line)


def _shown(args: Mapping[str, Any]) -> str:
    return one_line(", ".join(f"{name}={_short(value)}" for name, value in args.items()), 3 * LONGEST)


def _short(value: Any) -> str:
    return one_line(repr(value), LONGEST)


def verify(
    log: Sequence[Happened],
    oracle: Oracle,
    *,
    answers: Iterable[Answer] = (),
    compat: Compat = "strict",
    upto: int | None = None,
    limit: int = MOST_STEPS,
) -> Verdict:
    """What is to be said of a log, from the log alone: no clock, no model, no chance.

    `undecided` where it turns on soft arguments that nobody has judged: the verdict's `questions` say which, and
    `answers` (as `judging.py` gets them, or an earlier verdict has them) settle them. `upto` leaves out the oracle's
    later turns. Beyond `limit` tried choices the verdict is undecided for the fault `limit`.
    """
    said = tuple(answers)
    case = Evidence(log, oracle, known(said), upto=upto)
    if compat != "strict":
        return verify_upstream(case, compat, said)
    return _Matching(case, limit).verdict(said)


class _Matching:
    """The search for acts in writes, at first with all that is wanted and then, to say what is wrong, with less."""

    def __init__(self, case: Evidence, limit: int):
        self.case, self.limit, self.gave_up = case, limit, False
        self.count = len(case.acts)
        self._domains = [case.possible(act) for act in case.acts]

    def verdict(self, answers: tuple[Answer, ...]) -> Verdict:
        """Accept what certainly fits; reject what cannot fit, whatever a judge might say."""
        marks = list(self.case.marked())
        found = None
        if len(self.case.writes) == self.count:
            found = self.assigned(CERTAIN) or self.assigned(OPEN)
        if found is None and self.gave_up:
            what = f"no answer within {self.limit:,} tried choices: too many acts look alike"
            return self._made(self._partial(), [Reason(fault="limit", text=what), *marks], answers)
        if found is None:
            found = self._nearest()
            marks += explained(self.case, found)
        return self._made(found, marks, answers)

    def _made(self, found: Mapping[int, int], reasons: list[Reason], answers: tuple[Answer, ...]) -> Verdict:
        case, taken = self.case, set(found.values())
        unsure = [n for n, write in sorted(found.items()) if case.same(case.acts[n], write, found) is None]
        questions = tuple(case.question(case.acts[n], found[n], found) for n in unsure)
        decision: Decision = "reject" if any(r.fault != "limit" for r in reasons) else "accept"
        if decision == "accept" and (questions or reasons):
            decision = "undecided"
            reasons += [Reason(fault="judge", text=f"{q.event}: is it the same?", event=q.event) for q in questions]
        return Verdict(
            decision=decision,
            matched={case.acts[n].act.id: case.writes[write] for n, write in sorted(found.items())},
            missing=tuple(one.act.id for n, one in enumerate(case.acts) if n not in found),
            extra=tuple(line for number, line in enumerate(case.writes) if number not in taken),
            reasons=tuple(reasons),
            questions=questions,
            answers=answers,
            marks=case.marks,
        )

    def assigned(self, fine: Fine, *, order: bool = True, time: bool = True) -> dict[int, int] | None:
        """A write for every act. `fine` says which comparisons will do: certain ones, or open ones too."""
        self.gave_up, acts = False, self.case.acts
        domains = [m if a.sources else self._kept(a, m, fine) for a, m in zip(acts, self._domains, strict=True)]
        rules = Rules(self.case, fine, order=order, time=time)
        if all(mask and mask & (mask - 1) == 0 for mask in domains):
            only = {number: mask.bit_length() - 1 for number, mask in enumerate(domains)}
            return only if len(set(only.values())) == self.count and rules.hold(only) else None
        if not all(domains):
            return None
        puzzle = rules.puzzle(domains)
        if puzzle is None:
            self.gave_up = True
            return None
        solution = solve(puzzle, self.limit)
        self.gave_up = not solution.decided
        found = None if solution.values is None else dict(enumerate(solution.values))
        return found if found is None or rules.hold(found) else None

    def _kept(self, act: Expected, mask: int, fine: Fine) -> int:
        return sum(1 << write for write in bits(mask) if self.case.same(act, write, NOWHERE) in fine)

    # Where there is no such choice

    def _nearest(self) -> dict[int, int]:
        """A choice that comes near: without regard to time, then to order, then of as many acts as there are."""
        if all(self._domains):
            for order, time in ((True, True), (True, False), (False, False)):
                for fine in CERTAIN, OPEN:
                    if (found := self.assigned(fine, order=order, time=time)) is not None:
                        return found
        return self._partial()

    def _partial(self) -> dict[int, int]:
        """As many acts as possible with a write of their own, certain ones first; then without what does not fit."""
        case = self.case
        pairs = list(zip(case.acts, self._domains, strict=True))
        certain = matching([0 if act.sources else self._kept(act, mask, CERTAIN) for act, mask in pairs])
        found = matching(self._domains, certain)
        for number, act in enumerate(case.acts):
            if act.sources and number in found:
                at = {one: found[one] for one in act.sources if one in found}
                if len(at) < len(act.sources) or case.same(act, found[number], at) is False:
                    del found[number]
        return found
