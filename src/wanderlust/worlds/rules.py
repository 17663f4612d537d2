"""What must hold between the writes that an oracle's acts are: arguments, order and time, as a puzzle to be solved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TypeAlias

from wanderlust.worlds.assign import Puzzle, bits
from wanderlust.worlds.checks import unlike
from wanderlust.worlds.evidence import Evidence
from wanderlust.worlds.oracle import Expected

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
