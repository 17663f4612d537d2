"""Why a log is rejected, in words that somebody can do something with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wanderlust.core.text import one_line
from wanderlust.worlds.evidence import Evidence
from wanderlust.worlds.oracle import Expected
from wanderlust.worlds.verdict import Fault, Reason

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
