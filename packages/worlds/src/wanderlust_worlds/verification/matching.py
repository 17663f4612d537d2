"""Matching of an oracle's acts with the writes in a log: which write may be which act (`LogMatcher`), and the rules
between them as a problem for the solver (`Constraints`): arguments, order and time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, TypeAlias

from wanderlust.tools.function import WrongArguments
from wanderlust_worlds.engine.events import fill_placeholders, resolve_placeholder, result_part, result_ref
from wanderlust_worlds.engine.log import ENGINE, LogEntry
from wanderlust_worlds.verification.assignment import AssignmentProblem, set_bits
from wanderlust_worlds.verification.oracle import Argument, ExpectedCall, Oracle, compared_arguments, plain_value
from wanderlust_worlds.verification.verdict import JudgeQuestion, Reason

AnswerQuestion: TypeAlias = Callable[[JudgeQuestion], bool | None]
"""Answers a question at once; None where it cannot."""
NO_FIXED_LINES: Mapping[str, int] = {}
NO_ASSIGNMENT: Mapping[int, int] = {}


class LogMatcher:
    """A log, read once for one oracle."""

    def __init__(
        self,
        log: Sequence[LogEntry],
        oracle: Oracle,
        answers: Mapping[str, bool] | AnswerQuestion,
        *,
        upto: int | None = None,
        fixed: Mapping[str, int] = NO_FIXED_LINES,
    ):
        """`answers` are by the questions' keys, or a function of the question; only turns up to `upto` are expected.

        `fixed` are acts of which it is settled in which line they happened; they are treated like others' events.
        """
        self.oracle, self.answers, self.is_partial = oracle, answers, upto is not None
        self.lines: Sequence[LogEntry] = log if isinstance(log, list) else list(log)
        self.acts = [act for act in oracle.acts if upto is None or act.turn <= upto]
        self.writes: list[int] = []
        """The lines with the agent's writes that succeeded."""
        self.event_lines: dict[str, int] = dict(fixed)
        """The line in which each event of others happened."""
        self.marks: dict[str, bool] = {}
        self._by_action: dict[tuple[str, str], list[int]] = {}
        self._argument_cache: dict[tuple[int, ...], tuple[Argument, ...] | None] = {}
        self._match_cache: dict[tuple[int, ...], bool | None] = {}
        settled = set(fixed.values())
        for number, line in enumerate(self.lines):
            if line.error is None and line.by == "agent" and line.writes:
                if number not in settled:
                    self._by_action.setdefault((line.app, line.action), []).append(len(self.writes))
                    self.writes.append(number)
            elif line.event is not None:
                if line.app == ENGINE and line.action in ("milestone", "minefield"):
                    self.marks[line.event] = line.error is None
                if line.error is None and line.event in oracle.events:
                    self.event_lines[line.event] = number

    def candidates(self, act: ExpectedCall) -> Sequence[int]:
        """The writes, by number, that use the act's action."""
        return self._by_action.get((act.act.app, act.act.action), ())

    def possible(self, act: ExpectedCall) -> int:
        """The writes that may be this act, whatever else happens, as a set of bits."""
        floor, mask = max((self.event_lines.get(name, len(self.lines)) for name in act.waits), default=-1), 0
        for write in self.candidates(act):
            if self.writes[write] > floor and (act.sources or self.matches(act, write, NO_ASSIGNMENT) is not False):
                mask |= 1 << write
        return mask

    def line(self, write: int) -> LogEntry:
        """A write."""
        return self.lines[self.writes[write]]

    def matches(self, act: ExpectedCall, write: int, at: Mapping[int, int]) -> bool | None:
        """Whether a write is this act, given the writes that the acts are which it takes results from.

        None where a judge would have to say.
        """
        key = (id(act), write, *(at.get(number, -1) for number in act.sources))
        if key not in self._match_cache:
            self._match_cache[key] = self._compare(act, write, at)
        return self._match_cache[key]

    def _compare(self, act: ExpectedCall, write: int, at: Mapping[int, int]) -> bool | None:
        arguments = self.arguments(act, at)
        if arguments is None:
            return False
        given_arguments, unsure = self.line(write).args, False
        for name, check, wanted, normal, default in arguments:
            value = plain_value(given_arguments.get(name, default))
            if value == wanted or check.normal(value) == normal:
                continue
            if not check.soft:
                return False
            unsure = True
        if not unsure:
            return True
        question = self.question(act, write, at)
        return self.answers(question) if callable(self.answers) else self.answers.get(question.key)

    def question(self, act: ExpectedCall, write: int, at: Mapping[int, int]) -> JudgeQuestion:
        """The judge's question about a write."""
        line = self.line(write)
        unsure = self.differing(act, write, at=at, soft=True)
        return JudgeQuestion(
            event=act.act.id,
            line=self.writes[write],
            app=line.app,
            action=line.action,
            about={one.name: one.check.about for one in unsure},
            wanted={one.name: one.wanted for one in unsure},
            actual={one.name: plain_value(line.args.get(one.name, one.default)) for one in unsure},
        )

    def differing(self, act: ExpectedCall, write: int, *, at: Mapping[int, int], soft: bool = False) -> list[Argument]:
        """The arguments that differ for certain, or (`soft`) those that may."""
        line = self.line(write)
        return [
            one
            for one in self.arguments(act, at) or ()
            if one.check.same(one.wanted, plain_value(line.args.get(one.name, one.default)))
            is (None if soft else False)
        ]

    def arguments(self, act: ExpectedCall, at: Mapping[int, int]) -> tuple[Argument, ...] | None:
        """The wanted arguments, results filled in. None when there is no such result, or it does not fit."""
        if not act.refers:
            return act.arguments
        key = (id(act), *(at.get(number, -1) for number in act.sources))
        if key not in self._argument_cache:
            self._argument_cache[key] = self._fill(act, at)
        return self._argument_cache[key]

    def _fill(self, act: ExpectedCall, at: Mapping[int, int]) -> tuple[Argument, ...] | None:
        where = {self.acts[number].act.id: self.writes[at[number]] for number in act.sources if number in at}

        def result(name: str) -> Any:
            origin = resolve_placeholder(name, self.oracle.events)
            if origin is None:
                return result_ref(name)
            line = where.get(origin[0], self.event_lines.get(origin[0]))
            if line is None:
                raise LookupError(f"{origin[0]} did not happen")
            return plain_value(result_part(self.lines[line].result, origin[1]))

        try:
            args = act.action.tool.parse_arguments(fill_placeholders(act.act.args, result))
            return compared_arguments(act.act, act.action, args, users=self.oracle.user_names)
        except (LookupError, ValueError, WrongArguments):
            return None

    # Time

    def due(self, act: ExpectedCall, at: Mapping[int, int]) -> float | None:
        """The time at which an act is due, in seconds of the world's clock; None while what it waits for is unknown."""
        times = [self.line(at[number]).time for number in act.parents if number in at]
        times += [self.lines[self.event_lines[name]].time for name in act.waits if name in self.event_lines]
        if len(times) < len(act.parents) + len(act.waits):
            return None
        due = max(times, default=self.oracle.start) + act.act.delay
        return due if act.act.at is None else max(due, act.act.at)

    def in_time(self, act: ExpectedCall, write: int, at: Mapping[int, int]) -> bool:
        """Whether a write is within the act's window; true where it has none, or its due time is unknown."""
        if act.early == act.late == inf:
            return True
        due, time = self.due(act, at), self.line(write).time
        return due is None or due - act.early <= time <= due + act.late

    def mark_reasons(self) -> Iterable[Reason]:
        """Milestones that were missed, and minefields that were stepped on. In mid-world what can yet come is not."""
        for name in self.oracle.marked:
            event = self.oracle.events[name]
            mine = type(event).__name__ == "Minefield"
            if not self.marks.get(name, mine or self.is_partial):
                fault, text = ("minefield", "was stepped on") if mine else ("milestone", "was missed")
                yield Reason(fault=fault, text=f"the {fault} {name} {text}", event=name)  # type: ignore[arg-type]


AcceptedOutcomes: TypeAlias = tuple[bool | None, ...]
"""Outcomes of a comparison that count as a match."""
EXACT_ONLY: AcceptedOutcomes = (True,)
ALLOW_UNDECIDED: AcceptedOutcomes = (True, None)
"""Certain matches, and those that only a judge could decide."""
MAX_MATCH_PAIRS = 2_000_000
"""Pairs of writes that one problem may relate: a log has the size that a model gives it."""
GroupConstraint: TypeAlias = tuple[tuple[int, ...], Callable[[Mapping[int, int]], bool]]


class Constraints:
    """The rules of one oracle for one log; `order` and `time` switch two of them off."""

    def __init__(self, matcher: LogMatcher, accepted: AcceptedOutcomes, *, order: bool = True, time: bool = True):
        self.matcher, self.accepted, self.order, self.time = matcher, accepted, order, time
        self._rows: dict[tuple[int, int], dict[int, int]] = {}
        self._group_constraints: list[GroupConstraint] = []

    def hold_for(self, assignment: Mapping[int, int]) -> bool:
        """Whether this assignment keeps all rules. Every accepted assignment is checked here."""
        for number, write in assignment.items():
            act = self.matcher.acts[number]
            if self.order and any(assignment[parent] > write for parent in act.parents):
                return False
            if self.time and not self.matcher.in_time(act, write, assignment):
                return False
            if self.matcher.matches(act, write, assignment) not in self.accepted:
                return False
        return True

    def problem(self, domains: Sequence[int]) -> AssignmentProblem | None:
        """The problem whose solutions keep all rules, for acts that may be these writes. None when it is too large."""
        masks = self._ordered(domains) if self.order else list(domains)
        pairs = 0
        for number, act in enumerate(self.matcher.acts):
            if self.order:
                for parent in act.parents:
                    self._after(parent, number, masks)
            if self.time and not act.parents:
                on_time = (write for write in set_bits(masks[number]) if self.matcher.in_time(act, write, {}))
                masks[number] = sum(1 << write for write in on_time)
            near = {*act.sources, *(act.parents if self.time and min(act.early, act.late) < inf else ())}
            pairs += sum(masks[other].bit_count() * masks[number].bit_count() for other in near)
            if pairs > MAX_MATCH_PAIRS:
                return None
            self._with_sources(number, act, masks)
            if self.time:
                self._with_times(number, act, masks)
        for one, other in self._interchangeable_pairs():
            self._after(one, other, masks)
        liked = self._preferences(masks) if None in self.accepted else {}
        return AssignmentProblem(
            domains=masks, rows=self._rows, group_constraints=self._group_constraints, preferences=liked
        )

    def _ordered(self, domains: Sequence[int]) -> list[int]:
        """Narrow the domains to writes that can come after all parents and before all children."""
        masks, acts = list(domains), self.matcher.acts
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
        self._rule(first, then, {one: masks[then] & -(2 << one) for one in set_bits(masks[first])})

    def _rule(self, one: int, other: int, rows: dict[int, int]) -> None:
        """Add a rule between two acts, in both directions."""
        back: dict[int, int] = {}
        for value, mask in rows.items():
            for partner in set_bits(mask):
                back[partner] = back.get(partner, 0) | 1 << value
        for pair, new in ((one, other), rows), ((other, one), back):
            existing_rows = self._rows.get(pair)
            self._rows[pair] = (
                new if existing_rows is None else {v: m & new.get(v, 0) for v, m in existing_rows.items()}
            )

    def _relate(self, one: int, other: int, *, masks: Sequence[int], holds: Callable[[int, int], bool]) -> None:
        values = list(set_bits(masks[other]))
        self._rule(one, other, {a: sum(1 << b for b in values if holds(a, b)) for a in set_bits(masks[one])})

    def _with_sources(self, number: int, act: ExpectedCall, masks: Sequence[int]) -> None:
        """Add the rules that an act's arguments hold the results of its sources."""
        case, fine = self.matcher, self.accepted
        if len(act.sources) == 1:
            (source,) = act.sources
            self._relate(source, number, masks=masks, holds=lambda a, b: case.matches(act, b, {source: a}) in fine)
        elif act.sources:
            self._group_constraints.append(
                ((number, *act.sources), lambda at: case.matches(act, at[number], at) in fine)
            )

    def _with_times(self, number: int, act: ExpectedCall, masks: Sequence[int]) -> None:
        """Add the rules of time windows. With several parents only the early side is a rule for each pair."""
        case = self.matcher
        if not act.parents or min(act.early, act.late) == inf:
            return
        if len(act.parents) == 1 and not act.waits:
            (parent,) = act.parents
            self._relate(parent, number, masks=masks, holds=lambda a, b: case.in_time(act, b, {parent: a}))
            return
        early = act.act.delay - act.early
        for parent in act.parents if act.early < inf else ():
            self._relate(parent, number, masks=masks, holds=lambda a, b: case.line(b).time >= case.line(a).time + early)
        self._group_constraints.append(((number, *act.parents), lambda at: case.in_time(act, at[number], at)))

    def _interchangeable_pairs(self) -> list[tuple[int, int]]:
        """Pairs of interchangeable acts next to each other: one order of them is enough to search."""
        acts = self.matcher.acts
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

    def _preferences(self, masks: Sequence[int]) -> dict[tuple[int, int], float]:
        """Prefer certain writes, then those with the most alike words, so that a judge is asked little."""
        liked = {}
        for number, act in enumerate(self.matcher.acts):
            if not act.refers and masks[number].bit_count() > 1:
                for write in set_bits(masks[number]):
                    if self.matcher.matches(act, write, {}) is None:
                        liked[number, write] = 1.0 + self.matcher.question(act, write, {}).distance
        return liked
