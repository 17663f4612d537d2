"""Giving each of some slots a value of its own, under constraints between pairs of slots: exact, and bounded.

Sets of values are whole numbers, bit by bit. Domains are narrowed by the constraints until nothing changes (arc
consistency) and by what all-different demands (a bipartite matching must remain); only what is then still open is
searched, part by part where parts do not touch, the tightest slot first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

MOST_STEPS = 20_000
"""Choices that a search may try before it gives up without an answer."""
Rows: TypeAlias = Mapping[int, int]
"""For each value of one slot, the values of another that go with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    """Slots, and what may stand in them."""

    domains: Sequence[int]
    """For each slot, its possible values."""
    rows: Mapping[tuple[int, int], Rows]
    """Constraints between two slots, in both directions."""
    wide: Sequence[tuple[tuple[int, ...], Callable[[Mapping[int, int]], bool]]] = ()
    """Constraints between more slots: looked at when all of them have their value."""
    liked: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """What to try first, by slot and value: the least first; nothing is 0."""


@dataclass(frozen=True, slots=True)
class Solution:
    """What came of it."""

    values: tuple[int, ...] | None
    """One value per slot, all different; None when there is no such choice, or none was found in time."""
    decided: bool = True
    """False when the search was given up: then None proves nothing."""


class _GivenUp(Exception):
    """The search has taken too many steps."""


def bits(mask: int) -> Iterator[int]:
    """The values in a set, the least first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def matching(domains: Sequence[int], before: Mapping[int, int] | None = None) -> dict[int, int]:
    """As many slots as possible with a value of their own (Kuhn 1955); those that have one in `before` keep one."""
    held = {value: slot for slot, value in (before or {}).items()}
    for slot in range(len(domains)):
        if slot not in (before or {}):
            _augment(slot, domains, held)
    return {slot: value for value, slot in held.items()}


def _augment(slot: int, domains: Sequence[int], held: dict[int, int]) -> bool:
    """Find a value for one more slot; others may have to change theirs. Breadth first, so that no depth is too much."""
    came: dict[int, int] = {}
    look = [slot]
    for at in look:
        for value in bits(domains[at]):
            if value in came:
                continue
            came[value] = at
            if value not in held:
                _shift(slot, value, came=came, held=held)
                return True
            look.append(held[value])
    return False


def _shift(slot: int, value: int, *, came: Mapping[int, int], held: dict[int, int]) -> None:
    owned = {owner: own for own, owner in held.items()}
    while True:
        owner = came[value]
        held[value] = owner
        if owner == slot:
            return
        value = owned[owner]


def solve(puzzle: Puzzle, limit: int = MOST_STEPS) -> Solution:
    """A value for each slot, all different and all constraints kept, if there is such a choice.

    Exact up to `limit` tried choices; beyond them `decided` is False.
    """
    domains = list(puzzle.domains)
    search = _Search(puzzle, limit)
    if not search.narrow(domains, range(len(domains))):
        return Solution(None)
    try:
        for part in search.parts(domains):
            solved = search.descend(domains, part)
            if solved is None:
                return Solution(None)
            domains = solved
    except _GivenUp:
        return Solution(None, decided=False)
    return Solution(tuple(mask.bit_length() - 1 for mask in domains))


class _Search:
    """One search: the constraints by slot, and the steps that are left."""

    def __init__(self, puzzle: Puzzle, limit: int):
        self.puzzle, self.left = puzzle, limit
        self.near: dict[int, list[int]] = {}
        for a, b in puzzle.rows:
            self.near.setdefault(a, []).append(b)

    def narrow(self, domains: list[int], changed: Sequence[int] | range) -> bool:
        """Take out what cannot be, in place; False when something is left without a value."""
        todo = dict.fromkeys(changed)
        while todo:
            slot = todo.popitem()[0]
            mask = domains[slot]
            if not mask:
                return False
            for other, allowed in self._effects(slot, mask, domains):
                if domains[other] & ~allowed:
                    domains[other] &= allowed
                    if not domains[other]:
                        return False
                    todo[other] = None
        if all(mask & (mask - 1) == 0 for mask in domains):
            return self._wide(domains)
        return len(matching(domains)) == len(domains) and self._wide(domains)

    def _effects(self, slot: int, mask: int, domains: Sequence[int]) -> Iterator[tuple[int, int]]:
        if mask & (mask - 1) == 0:
            yield from ((other, ~mask) for other in range(len(domains)) if other != slot and domains[other] & mask)
        for other in self.near.get(slot, ()):
            rows, allowed = self.puzzle.rows[slot, other], 0
            for value in bits(mask):
                allowed |= rows.get(value, 0)
            yield other, allowed

    def _wide(self, domains: Sequence[int]) -> bool:
        for slots, holds in self.puzzle.wide:
            if all(domains[slot] & (domains[slot] - 1) == 0 for slot in slots) and not holds(
                {slot: domains[slot].bit_length() - 1 for slot in slots}
            ):
                return False
        return True

    def parts(self, domains: Sequence[int]) -> list[list[int]]:
        """The open slots, those together that can disturb each other."""
        open_slots = {slot for slot, mask in enumerate(domains) if mask & (mask - 1)}
        groups: list[tuple[set[int], int]] = []
        wide = [set(slots) for slots, _ in self.puzzle.wide]
        for slot in sorted(open_slots):
            touched, mask = {slot, *self.near.get(slot, ())}, domains[slot]
            touched = touched.union(*(slots for slots in wide if slot in slots)) & open_slots
            mine, values, apart = {slot}, mask, []
            for group, taken in groups:
                if taken & mask or group & touched:
                    mine |= group
                    values |= taken
                else:
                    apart.append((group, taken))
            groups = [*apart, (mine, values)]
        return [sorted(group) for group, _ in groups]

    def descend(self, domains: list[int], part: Sequence[int]) -> list[int] | None:
        """The domains with one value for each slot of the part; None when that cannot be."""
        stack = [iter([domains])]
        while stack:
            now = next(stack[-1], None)
            if now is None:
                stack.pop()
            elif all(now[slot] & (now[slot] - 1) == 0 for slot in part):
                return now
            else:
                stack.append(self._choices(now, part))
        return None

    def _choices(self, domains: list[int], part: Sequence[int]) -> Iterator[list[int]]:
        """The domains after each value that the tightest slot could have."""
        slot = min((one for one in part if domains[one] & (domains[one] - 1)), key=lambda one: domains[one].bit_count())
        for value in sorted(bits(domains[slot]), key=lambda one: self.puzzle.liked.get((slot, one), 0.0)):
            if not self.left:
                raise _GivenUp
            self.left -= 1
            tried = domains.copy()
            tried[slot] = 1 << value
            if self.narrow(tried, (slot,)):
                yield tried
