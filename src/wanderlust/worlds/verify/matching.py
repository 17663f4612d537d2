"""What a log says about an oracle's acts: which writes there are, and which of them may be which act.

What must hold between the writes that an oracle's acts are: arguments, order and time, as a puzzle to be solved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, TypeAlias

from wanderlust.tools.function import WrongArguments
from wanderlust.worlds.engine.argument_checks import unlike
from wanderlust.worlds.engine.events import filled, part_of, ref, source
from wanderlust.worlds.engine.log import ENGINE, Happened
from wanderlust.worlds.verify.assignment import Puzzle, bits
from wanderlust.worlds.verify.oracle import Argument, Expected, Oracle, compared, plain
from wanderlust.worlds.verify.verdict import Question, Reason

NOTHING_FIXED: Mapping[str, int] = {}
NOWHERE: Mapping[int, int] = {}


class Evidence:
    """A log, read once for one oracle."""

    def __init__(
        self,
        log: Sequence[Happened],
        oracle: Oracle,
        answers: Mapping[str, bool],
        *,
        upto: int | None = None,
        fixed: Mapping[str, int] = NOTHING_FIXED,
    ):
        """`answers` are a judge's, by the questions' keys; only turns up to `upto` are expected.

        `fixed` are acts of which it is settled in which line they happened; they are treated like others' events.
        """
        self.oracle, self.answers, self.partly = oracle, answers, upto is not None
        self.lines: Sequence[Happened] = log if isinstance(log, list) else list(log)
        self.acts = [act for act in oracle.acts if upto is None or act.turn <= upto]
        self.writes: list[int] = []
        """The lines with the agent's writes that succeeded."""
        self.fired: dict[str, int] = dict(fixed)
        """The line in which each event of others happened."""
        self.marks: dict[str, bool] = {}
        self._by_action: dict[tuple[str, str], list[int]] = {}
        self._read(set(fixed.values()))
        self._filled: dict[tuple[int, ...], tuple[Argument, ...] | None] = {}
        self._same: dict[tuple[int, ...], bool | None] = {}

    def _read(self, settled: set[int]) -> None:
        events, fired = self.oracle.events, self.fired
        for number, line in enumerate(self.lines):
            if line.error is None and line.by == "agent" and line.writes:
                if number not in settled:
                    self._by_action.setdefault((line.app, line.action), []).append(len(self.writes))
                    self.writes.append(number)
            elif line.event is not None:
                if line.app == ENGINE and line.action in ("milestone", "minefield"):
                    self.marks[line.event] = line.error is None
                if line.error is None and line.event in events:
                    fired[line.event] = number

    def candidates(self, act: Expected) -> Sequence[int]:
        """The writes, by number, that use the act's action."""
        return self._by_action.get((act.act.app, act.act.action), ())

    def possible(self, act: Expected) -> int:
        """The writes that may be this act, whatever else happens, as a set of bits."""
        floor, mask = max((self.fired.get(name, len(self.lines)) for name in act.waits), default=-1), 0
        for write in self.candidates(act):
            if self.writes[write] > floor and (act.sources or self.same(act, write, NOWHERE) is not False):
                mask |= 1 << write
        return mask

    def line(self, write: int) -> Happened:
        """A write."""
        return self.lines[self.writes[write]]

    def same(self, act: Expected, write: int, at: Mapping[int, int]) -> bool | None:
        """Whether a write is this act, given the writes that the acts are which it takes results from.

        None where a judge would have to say.
        """
        key = (id(act), write, *(at.get(number, -1) for number in act.sources))
        if key not in self._same:
            self._same[key] = self._compared(act, write, at)
        return self._same[key]

    def _compared(self, act: Expected, write: int, at: Mapping[int, int]) -> bool | None:
        arguments = self.arguments(act, at)
        if arguments is None:
            return False
        given, unsure = self.line(write).args, False
        for name, check, wanted, normal, default in arguments:
            value = plain(given.get(name, default))
            if value == wanted or check.normal(value) == normal:
                continue
            if not check.soft:
                return False
            unsure = True
        return self.answers.get(self.question(act, write, at).key) if unsure else True

    def question(self, act: Expected, write: int, at: Mapping[int, int]) -> Question:
        """What a judge is to be asked about a write."""
        line = self.line(write)
        unsure = self.differing(act, write, at=at, soft=True)
        return Question(
            event=act.act.id,
            line=self.writes[write],
            app=line.app,
            action=line.action,
            about={one.name: one.check.about for one in unsure},
            wanted={one.name: one.wanted for one in unsure},
            given={one.name: plain(line.args.get(one.name, one.default)) for one in unsure},
        )

    def differing(self, act: Expected, write: int, *, at: Mapping[int, int], soft: bool = False) -> list[Argument]:
        """The arguments that differ for certain, or (`soft`) those that may."""
        line = self.line(write)
        return [
            one
            for one in self.arguments(act, at) or ()
            if one.check.same(one.wanted, plain(line.args.get(one.name, one.default))) is (None if soft else False)
        ]

    def arguments(self, act: Expected, at: Mapping[int, int]) -> tuple[Argument, ...] | None:
        """What is wanted, results filled in. None when there is no such result, or it does not fit."""
        if not act.refers:
            return act.arguments
        key = (id(act), *(at.get(number, -1) for number in act.sources))
        if key not in self._filled:
            self._filled[key] = self._fill(act, at)
        return self._filled[key]

    def _fill(self, act: Expected, at: Mapping[int, int]) -> tuple[Argument, ...] | None:
        where = {self.acts[number].act.id: self.writes[at[number]] for number in act.sources if number in at}

        def result(name: str) -> Any:
            origin = source(name, self.oracle.events)
            if origin is None:
                return ref(name)
            line = where.get(origin[0], self.fired.get(origin[0]))
            if line is None:
                raise LookupError(f"{origin[0]} did not happen")
            return plain(part_of(self.lines[line].result, origin[1]))

        try:
            return compared(act.act, act.action, act.action.tool.read(filled(act.act.args, result)))
        except (LookupError, ValueError, WrongArguments):
            return None

    # Time

    def due(self, act: Expected, at: Mapping[int, int]) -> float | None:
        """When an act is due after what it comes after has happened; None when that is not known."""
        times = [self.line(at[number]).time for number in act.parents if number in at]
        times += [self.lines[self.fired[name]].time for name in act.waits if name in self.fired]
        if len(times) < len(act.parents) + len(act.waits):
            return None
        due = max(times, default=self.oracle.start) + act.act.delay
        return due if act.act.at is None else max(due, act.act.at)

    def in_time(self, act: Expected, write: int, at: Mapping[int, int]) -> bool:
        """Whether a write is within the act's window; true where there is none, or nobody knows when it was due."""
        if act.early == act.late == inf:
            return True
        due, time = self.due(act, at), self.line(write).time
        return due is None or due - act.early <= time <= due + act.late

    def marked(self) -> Iterable[Reason]:
        """Milestones that were missed, and minefields that were stepped on. In mid-world what can yet come is not."""
        for name in self.oracle.marked:
            event = self.oracle.events[name]
            mine = type(event).__name__ == "Minefield"
            if not self.marks.get(name, mine or self.partly):
                fault, text = ("minefield", "was stepped on") if mine else ("milestone", "was missed")
                yield Reason(fault=fault, text=f"the {fault} {name} {text}", event=name)  # type: ignore[arg-type]


Fine: TypeAlias = tuple[bool | None, ...]
"""Which outcomes of a comparison will do."""
CERTAIN: Fine = (True,)
OPEN: Fine = (True, None)
"""What is certain, and what a judge may yet say."""
MOST_PAIRS = 2_000_000
"""Pairs of writes that may be looked at for one puzzle: a log is a model's work, and so is its size."""
Wide: TypeAlias = tuple[tuple[int, ...], Callable[[Mapping[int, int]], bool]]


class Rules:
    """The rules of one oracle for one log; `order` and `time` may be left out."""

    def __init__(self, case: Evidence, fine: Fine, *, order: bool = True, time: bool = True):
        self.case, self.fine, self.order, self.time = case, fine, order, time
        self._rows: dict[tuple[int, int], dict[int, int]] = {}
        self._wide: list[Wide] = []

    def hold(self, found: Mapping[int, int]) -> bool:
        """Whether this choice keeps all of them. Every accepted choice has come through here."""
        acts = self.case.acts
        return all(self._keeps(acts[number], write, found) for number, write in found.items())

    def _keeps(self, act: Expected, write: int, found: Mapping[int, int]) -> bool:
        if self.order and any(found[parent] > write for parent in act.parents):
            return False
        if self.time and not self.case.in_time(act, write, found):
            return False
        return self.case.same(act, write, found) in self.fine

    def puzzle(self, domains: Sequence[int]) -> Puzzle | None:
        """The puzzle whose solutions keep all rules, for acts that may be these writes. None when it is too large."""
        masks = self._ordered(domains) if self.order else list(domains)
        pairs = 0
        for number, act in enumerate(self.case.acts):
            if self.order:
                for parent in act.parents:
                    self._after(parent, number, masks)
            masks[number] = self._alone(act, masks[number])
            near = {*act.sources, *(act.parents if self.time and min(act.early, act.late) < inf else ())}
            pairs += sum(masks[other].bit_count() * masks[number].bit_count() for other in near)
            if pairs > MOST_PAIRS:
                return None
            self._with_sources(number, act, masks)
            if self.time:
                self._with_times(number, act, masks)
        for one, other in self._alike():
            self._after(one, other, masks)
        liked = self._liked(masks) if None in self.fine else {}
        return Puzzle(domains=masks, rows=self._rows, wide=self._wide, liked=liked)

    def _ordered(self, domains: Sequence[int]) -> list[int]:
        """The domains without what cannot be before or after all that must be after or before it."""
        masks, acts = list(domains), self.case.acts
        for number, act in enumerate(acts):
            for parent in act.parents:
                first = masks[parent] & -masks[parent]
                masks[number] &= -(first << 1)
        for number in reversed(range(len(acts))):
            for parent in acts[number].parents:
                if masks[number]:
                    masks[parent] &= (1 << (masks[number].bit_length() - 1)) - 1
        return masks

    def _after(self, first: int, then: int, masks: Sequence[int]) -> None:
        self._rule(first, then, {one: masks[then] & -(2 << one) for one in bits(masks[first])})

    def _rule(self, one: int, other: int, rows: dict[int, int]) -> None:
        """Add a rule between two acts, in both directions."""
        back: dict[int, int] = {}
        for value, mask in rows.items():
            for partner in bits(mask):
                back[partner] = back.get(partner, 0) | 1 << value
        for pair, new in ((one, other), rows), ((other, one), back):
            known = self._rows.get(pair)
            self._rows[pair] = new if known is None else {v: m & new.get(v, 0) for v, m in known.items()}

    def _relate(self, one: int, other: int, *, masks: Sequence[int], holds: Callable[[int, int], bool]) -> None:
        values = list(bits(masks[other]))
        self._rule(one, other, {a: sum(1 << b for b in values if holds(a, b)) for a in bits(masks[one])})

    def _alone(self, act: Expected, mask: int) -> int:
        if not self.time or act.parents:
            return mask
        return sum(1 << write for write in bits(mask) if self.case.in_time(act, write, {}))

    def _with_sources(self, number: int, act: Expected, masks: Sequence[int]) -> None:
        """What is an argument's source must have given what the argument says."""
        case, fine = self.case, self.fine
        if len(act.sources) == 1:
            (source,) = act.sources
            self._relate(source, number, masks=masks, holds=lambda a, b: case.same(act, b, {source: a}) in fine)
        elif act.sources:
            self._wide.append(((number, *act.sources), lambda at: case.same(act, at[number], at) in fine))

    def _with_times(self, number: int, act: Expected, masks: Sequence[int]) -> None:
        """With one parent the window is a rule between two; with more, only its early side is for each of them."""
        case = self.case
        if not act.parents or min(act.early, act.late) == inf:
            return
        if len(act.parents) == 1 and not act.waits:
            (parent,) = act.parents
            self._relate(parent, number, masks=masks, holds=lambda a, b: case.in_time(act, b, {parent: a}))
            return
        for parent in act.parents if act.early < inf else ():
            self._relate(parent, number, masks=masks, holds=lambda a, b: self._not_early(act, a, b))
        self._wide.append(((number, *act.parents), lambda at: case.in_time(act, at[number], at)))

    def _not_early(self, act: Expected, parent: int, write: int) -> bool:
        case = self.case
        return case.line(write).time >= case.line(parent).time + act.act.delay - act.early

    def _alike(self) -> list[tuple[int, int]]:
        """Neighbours among acts that can stand for each other: it is enough to look at one order of them."""
        acts = self.case.acts
        used = {source for act in acts for source in act.sources}
        children: dict[int, list[int]] = {}
        for number, act in enumerate(acts):
            for parent in act.parents:
                children.setdefault(parent, []).append(number)
        last: dict[str, int] = {}
        pairs = []
        for number, one in enumerate(acts):
            if one.refers or number in used:
                continue
            event, after = one.act, children.get(number, [])
            wanted = [(argument.name, argument.wanted) for argument in one.arguments]
            when = event.delay, event.at, event.timing, one.parents, one.waits, after
            key = repr((event.app, event.action, wanted, when))
            if key in last:
                pairs.append((last[key], number))
            last[key] = number
        return pairs

    def _liked(self, masks: Sequence[int]) -> dict[tuple[int, int], float]:
        """Certain writes first; of the others those whose words are most alike, so that a judge is asked little."""
        liked = {}
        for number, act in enumerate(self.case.acts):
            if not act.refers and masks[number].bit_count() > 1:
                for write in bits(masks[number]):
                    if self.case.same(act, write, {}) is None:
                        liked[number, write] = 1.0 + self._unlike(act, write)
        return liked

    def _unlike(self, act: Expected, write: int) -> float:
        question = self.case.question(act, write, {})
        return unlike(list(question.wanted.values()), list(question.given.values()))
