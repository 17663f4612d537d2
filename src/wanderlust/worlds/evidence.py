"""What a log says about an oracle's acts: which writes there are, and which of them may be which act."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from wanderlust.tools.errors import WrongArguments
from wanderlust.worlds.events import filled, part_of, ref, source
from wanderlust.worlds.log import ENGINE, Happened
from wanderlust.worlds.oracle import Argument, Expected, Oracle, compared, plain
from wanderlust.worlds.verdict import Question, Reason

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
