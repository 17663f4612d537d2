"""Assignment of different values to slots under constraints between pairs of slots: exact, in bounded steps.

Sets of values are bits of whole numbers. Domains are narrowed by the constraints until nothing changes (arc
consistency) and by the all-different rule (a bipartite matching must remain); what is still open is searched, each
independent part by itself, the slot with the fewest values first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

MAX_ASSIGNMENT_STEPS = 20_000
"""Choices that a search may try before it gives up without an answer."""
CompatibleValues: TypeAlias = Mapping[int, int]
"""For each value of one slot, the values of another that go with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentProblem:
    """Slots, and the values that each may have."""

    domains: Sequence[int]
    """For each slot, its possible values."""
    rows: Mapping[tuple[int, int], CompatibleValues]
    """Constraints between two slots, in both directions."""
    group_constraints: Sequence[tuple[tuple[int, ...], Callable[[Mapping[int, int]], bool]]] = ()
    """Constraints between more slots: looked at when all of them have their value."""
    preferences: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """Rank of a value for a slot: low ranks are tried first; 0 unless given."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The result of a search."""

    values: tuple[int, ...] | None
    """One value per slot, all different; None when there is no such choice, or none was found in time."""
    decided: bool = True
    """False when the search was given up: then None proves nothing."""


class _StepLimitReached(Exception):
    """The search has taken too many steps."""


def set_bits(mask: int) -> Iterator[int]:
    """The values in a set, the least first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def maximum_matching(domains: Sequence[int], before: Mapping[int, int] | None = None) -> dict[int, int]:
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
        for value in set_bits(domains[at]):
            if value in came:
                continue
            came[value] = at
            if value not in held:
                owned, free = {owner: own for own, owner in held.items()}, value
                while (owner := came[free]) != slot:  # each on the way there takes the next one's value
                    held[free] = owner
                    free = owned[owner]
                held[free] = slot
                return True
            look.append(held[value])
    return False


def solve_assignment(problem: AssignmentProblem, limit: int = MAX_ASSIGNMENT_STEPS) -> Assignment:
    """A value for each slot, all different and all constraints kept, if there is such a choice.

    Exact up to `limit` tried choices; beyond them `decided` is False.
    """
    domains = list(problem.domains)
    search = _Search(problem, limit)
    if not search.narrow(domains, range(len(domains))):
        return Assignment(None)
    try:
        for part in search.parts(domains):
            solved = search.descend(domains, part)
            if solved is None:
                return Assignment(None)
            domains = solved
    except _StepLimitReached:
        return Assignment(None, decided=False)
    return Assignment(tuple(mask.bit_length() - 1 for mask in domains))


class _Search:
    """The state of one search: the constraints by slot, and the remaining steps."""

    def __init__(self, puzzle: AssignmentProblem, limit: int):
        self.problem, self.left = puzzle, limit
        self.neighbours: dict[int, list[int]] = {}
        for a, b in puzzle.rows:
            self.neighbours.setdefault(a, []).append(b)

    def narrow(self, domains: list[int], changed: Sequence[int] | range) -> bool:
        """Remove impossible values in place; False when a slot has none left."""
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
        return len(maximum_matching(domains)) == len(domains) and self._wide(domains)

    def _effects(self, slot: int, mask: int, domains: Sequence[int]) -> Iterator[tuple[int, int]]:
        if mask & (mask - 1) == 0:
            yield from ((other, ~mask) for other in range(len(domains)) if other != slot and domains[other] & mask)
        for other in self.neighbours.get(slot, ()):
            rows, allowed = self.problem.rows[slot, other], 0
            for value in set_bits(mask):
                allowed |= rows.get(value, 0)
            yield other, allowed

    def _wide(self, domains: Sequence[int]) -> bool:
        for slots, holds in self.problem.group_constraints:
            if all(domains[slot] & (domains[slot] - 1) == 0 for slot in slots) and not holds(
                {slot: domains[slot].bit_length() - 1 for slot in slots}
            ):
                return False
        return True

    def parts(self, domains: Sequence[int]) -> list[list[int]]:
        """The open slots, those together that can disturb each other."""
        open_slots = {slot for slot, mask in enumerate(domains) if mask & (mask - 1)}
        groups: list[tuple[set[int], int]] = []
        wide = [set(slots) for slots, _ in self.problem.group_constraints]
        for slot in sorted(open_slots):
            touched, mask = {slot, *self.neighbours.get(slot, ())}, domains[slot]
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
        for value in sorted(set_bits(domains[slot]), key=lambda one: self.problem.preferences.get((slot, one), 0.0)):
            if not self.left:
                raise _StepLimitReached
            self.left -= 1
            tried = domains.copy()
            tried[slot] = 1 << value
            if self.narrow(tried, (slot,)):
                yield tried
