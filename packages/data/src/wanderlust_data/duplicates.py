"""Duplicated and contaminated questions: equal, nearly equal, or with the same values in other words.

Questions of one template differ in a name or a number and in nothing else, so that overlap of words or n-grams takes
all of them for copies. Here two questions are the same when what differs between them is no value: no number, no
symbol, and nothing that stands in a slot (`Slots`). Candidates are found by rare n-grams under equal numbers, in sorted
arrays; the result depends on the rows alone. Needs numpy.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from wanderlust_data.comparison import MIN_TOKEN_BITS, Change, Kind, QuestionComparison
from wanderlust_data.tokens import FIXED, Flags, Hashes, Ints, Slots, TokenTable, information, mixed, n_grams

GRAM_SIZES = (1, 2, 4, 8)
ANSWER_GRAM_SIZES = (1, 2, 4, 8)
"""Those that rows with equal answers are looked up by."""
GRAMS_PER_SIZE = 3
"""The rarest n-grams of each size by which a row is looked up."""
MAX_GROUP_ROWS = 32
"""A key of more rows is too common to say anything."""
KEY_PARTS = 8
"""Parts in which keys are sorted, one after the other: what one takes in memory."""
PAIRS_AT_ONCE = 100_000
"""Pairs that are Python objects at one time."""
MIN_SHARED_VALUES = 0.5
"""Of the telling tokens of the row that has fewer, estimated by 128 bits a row: less, and the two are not compared."""
MIN_SURE_PAIRS = 2
"""That have a change between two wordings, for pairs with few values to be the same that have it."""
MIN_TELLING_BITS = 4.0
"""From which on a token tells a row from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A row that is a copy of another one."""

    row: int
    of: int
    """Of a duplicate, the first row of the same question; of a contaminated row, the number of the held-out one."""
    kind: Kind


def find_duplicates(
    texts: Sequence[str],
    answers: Sequence[str | None] = (),
    *,
    kinds: Collection[Kind] = ("exact", "fuzzy", "slots"),
) -> list[Match]:
    """The rows that repeat an earlier one, in order; `of` is never a row that repeats another.

    Args:
        texts: The questions.
        answers: Their answers, where they are known: questions in other words count as the same only with one answer.
        kinds: `exact`: equal but for case, spaces and punctuation. `fuzzy`: equal but for typing errors, words of the
            template, and what was put before or behind. `slots`: other words, but the same values and answer.

    Example:
        >>> [match.kind for match in find_duplicates(["What is 71 + 4?", "what is 71+4", "What is 71 + 5?"])]
        ['exact']
    """
    table = TokenTable.of(texts)
    copies = dict(_exact_copies(table, texts))
    first_of = dict(copies) if "exact" in kinds else {}
    kind_of: dict[int, Kind] = dict.fromkeys(first_of, "exact")
    if {"fuzzy", "slots"} & {*kinds}:
        alone = np.ones(len(table), bool)
        alone[list(copies)] = False
        alike = _find_alike(table, answers, kinds, rows=alone)
        first_of |= {row: first for row, (first, _) in alike.items()}
        kind_of |= {row: kind for row, (_, kind) in alike.items()}
        for row in copies if "exact" in kinds else ():
            first_of[row] = first_of.get(copies[row], copies[row])
    for row in sorted(first_of):
        first_of[row] = first_of.get(first_of[row], first_of[row])
    return [Match(row=row, of=first_of[row], kind=kind_of[row]) for row in sorted(first_of)]


def _find_alike(
    table: TokenTable, answers: Sequence[str | None], kinds: Collection[Kind], *, rows: Flags
) -> dict[int, tuple[int, Kind]]:
    """Of some rows, those that are nearly equal to an earlier one, or have its values in other words."""
    found: dict[int, tuple[int, Kind]] = {}
    index = _Index(table, answers)
    comparison = QuestionComparison(table, index.slots, index.bits, answers=answers)
    changes = _Changes(comparison)
    for one, other in index.pairs(rows, later_first=True):
        first = found[one][0] if one in found else one
        kind = None if other in found else comparison.compare(first, other)
        if kind is not None and kind in kinds:
            found[other] = (first, kind)
            if kind == "fuzzy":
                changes.watch(first, other)
        if other not in found or kind == "slots":
            changes.add(first, other, sure=kind == "slots")
    for _, other in changes.of_values():
        del found[other]
    for first, other in changes.known() if "slots" in kinds else ():
        if first != other and other not in found:
            found[other] = (first, "slots")
    return found


def find_contaminated(
    texts: Sequence[str],
    held_out: Sequence[str],
    *,
    answers: Sequence[str | None] = (),
    held_out_answers: Sequence[str | None] = (),
) -> list[Match]:
    """The rows that are, or contain, a held-out question, in order; `of` is the number of the held-out question.

    Equal and nearly equal questions, the same values in other words, and questions within a longer text all count.
    """
    table = TokenTable.of([*texts, *held_out])
    size = len(texts)
    both = [*(answers or [None] * size), *(held_out_answers or [None] * len(held_out))]
    hashes = _row_hashes(table)
    of_hash = {int(hashes[row]): row - size for row in range(len(table) - 1, size - 1, -1) if len(table.row(row))}
    found = {
        row: Match(row=row, of=of_hash[int(hashes[row])], kind="exact")
        for row in range(size)
        if int(hashes[row]) in of_hash and len(table.row(row))
    }
    index = _Index(table, both)
    comparison = QuestionComparison(table, index.slots, index.bits, answers=both)
    changes = _Changes(comparison)
    alone = np.ones(len(table), bool)
    alone[list(found)] = False
    for row, other in sorted({*index.pairs(alone, split=size), *index.containing(alone, size)}):
        if row not in found:
            if kind := comparison.compare(other, row, within=True):
                found[row] = Match(row=row, of=other - size, kind=kind)
            if kind == "fuzzy":
                changes.watch(other, row)
            else:
                changes.add(other, row, sure=kind == "slots")
    for _, row in changes.of_values():
        del found[row]
    for other, row in changes.known():
        if row not in found:
            found[row] = Match(row=row, of=other - size, kind="slots")
    return [found[row] for row in sorted(found)]


class _Changes:
    """What changes between two wordings, and whether it changes the answer."""

    def __init__(self, comparison: QuestionComparison):
        self.comparison, self.counts = comparison, Counter[int]()
        self.hashes, self.ones, self.others = (array("q") for _ in range(3))
        """Of the pairs that are kept: the hash of their change, and both rows. There may be millions."""
        self.watched, self.equal, self.other = list[tuple[Change, int, int]](), Counter[Change](), Counter[Change]()

    def watch(self, one: int, other: int) -> None:
        """Count whether the difference of a pair that is taken for the same goes with another answer."""
        change, same = self.comparison.difference(one, other), self.comparison.have_one_answer(one, other)
        if any(change) and same is not None:
            self.watched.append((change, one, other))
            (self.equal if same else self.other)[change] += 1

    def of_values(self) -> Iterator[tuple[int, int]]:
        """The watched pairs whose difference goes with another answer in most pairs that have it."""
        for change, one, other in self.watched:
            if self.other[change] >= max(MIN_SURE_PAIRS, self.equal[change] + 1):
                yield one, other

    def add(self, one: int, other: int, *, sure: bool) -> None:
        """Count the change between a pair, or keep it for later."""
        change = self.comparison.change(one, other)
        if change is not None and any(change):
            key = hash(change)  # of numbers alone: the same in every process
            if sure:
                self.counts[key] += 1
            else:
                self.hashes.append(key)
                self.ones.append(one)
                self.others.append(other)

    def known(self) -> Iterator[tuple[int, int]]:
        """The pairs of which nothing was sure, and that differ as sure ones do."""
        for key, one, other in zip(self.hashes, self.ones, self.others, strict=True):
            if self.counts[key] >= MIN_SURE_PAIRS:
                yield one, other


def _row_hashes(table: TokenTable) -> Hashes:
    out = np.zeros(len(table), np.uint64)
    for first, end in table.chunks():
        where = slice(int(table.starts[first]), int(table.starts[end]))
        counted = ~table.is_quote[table.ids[where]]
        place = _places(counted, table.row_numbers(first, end), table.starts - table.starts[first])
        hashes = np.where(counted, mixed(mixed(table.ids[where]) + place, 3), np.uint64(0))
        out[first:end] = table.row_sums(hashes, first, end)
    return out


def _places(chosen: Flags, rows: Ints, starts: Ints) -> Hashes:
    """How many chosen tokens of its row stand before each token of a chunk."""
    before: Ints = np.cumsum(chosen) - chosen
    return np.asarray((before - before[starts[rows]] if len(rows) else before).astype(np.uint64))


def _exact_copies(table: TokenTable, texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Each row that repeats another, and the first of its kind; rows without a token are compared as they are."""
    hashes = _row_hashes(table)
    _, firsts, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    lengths, bare = np.diff(table.starts), dict[str, int]()
    of = firsts[inverse]
    for row in np.nonzero((of != np.arange(len(table))) | (lengths == 0))[0].tolist():
        if lengths[row]:
            yield row, int(of[row])
        elif (first := bare.setdefault(texts[row], row)) != row:
            yield row, first


def _answer_hashes(answers: Sequence[str | None]) -> tuple[Flags, Hashes]:
    """Which rows have an answer, and a number for each different one."""
    numbers: dict[str, int] = {}
    found = [-1 if one is None else numbers.setdefault(" ".join(one.lower().split()), len(numbers)) for one in answers]
    ids = np.array(found, np.int64)
    return ids >= 0, mixed(ids, 10)


_Keys: TypeAlias = tuple[Hashes, Ints]
"""Keys, and the row of each."""


def _part_of(parts: Sequence[_Keys], number: int) -> _Keys:
    """One of KEY_PARTS equal parts of all keys, by their last bits."""
    chosen = [(keys & np.uint64(KEY_PARTS - 1)) == number for keys, _ in parts]
    keys, owners = ([part[n][which] for part, which in zip(parts, chosen, strict=True)] for n in (0, 1))
    return np.concatenate(keys), np.concatenate(owners).astype(np.int64)


class _Index:
    """What rows are looked up by."""

    def __init__(self, table: TokenTable, answers: Sequence[str | None] = ()):
        self.table, self.slots, self.bits = table, Slots.of(table), information(table)
        self.numbers, self.telling, self.sketches = self._row_values()
        self.telling_sizes = np.bitwise_count(self.telling).sum(axis=1, dtype=np.int64)
        self.answered, self.answers = _answer_hashes(answers)

    def pairs(self, rows: Flags, *, split: int = 0, later_first: bool = False) -> Iterator[tuple[int, int]]:
        """Pairs of rows, the smaller number first, that have a key in common and about the same values.

        With `split`, pairs of a row before it and one from it on. In the order of the smaller number, or with
        `later_first` of the larger one.
        """
        parts = [self._grams(size, rows, self.numbers) for size in GRAM_SIZES] + [self._sequences(rows)]
        if self.answered.any():
            answered = np.nonzero(rows & self.answered)[0]
            parts += [self._grams(size, rows & self.answered, self.answers) for size in ANSWER_GRAM_SIZES]
            parts.append((mixed(self.answers[answered], 12), answered))
        found = [np.zeros(0, np.int64)]
        for number in range(KEY_PARTS):  # equal keys are in one part, and one part at a time is sorted
            found += self._pairs_of(*_part_of(parts, number), split=split)
        low, high = np.divmod(np.unique(np.concatenate(found)), max(len(self.table), 1))
        order = np.lexsort((low, high)) if later_first else np.arange(len(low))
        for first in range(0, len(order), PAIRS_AT_ONCE):
            chosen = order[first : first + PAIRS_AT_ONCE]
            yield from zip(low[chosen].tolist(), high[chosen].tolist(), strict=True)

    def _pairs_of(self, keys: Hashes, owners: Ints, *, split: int) -> list[Ints]:
        """The numbers of the pairs of rows that have one of these keys in common."""
        order = np.argsort(keys, kind="stable")
        keys, owners = keys[order], owners[order]
        bounds = np.concatenate([[0], np.nonzero(np.diff(keys))[0] + 1, [len(keys)]])
        fits = np.repeat(np.diff(bounds) <= MAX_GROUP_ROWS, np.diff(bounds))
        keys, owners = keys[fits], owners[fits]
        found = []
        for step in range(1, MAX_GROUP_ROWS):
            there = np.nonzero(keys[:-step] == keys[step:])[0]
            one, other = owners[there], owners[there + step]
            low, high = np.minimum(one, other), np.maximum(one, other)
            wanted = (low != high) & ((low < split) & (high >= split) if split else True) & self._alike(low, high)
            found.append(np.unique(low[wanted] * len(self.table) + high[wanted]))
            if not len(there):
                break
        return found

    def containing(self, rows: Flags, split: int) -> Iterator[tuple[int, int]]:
        """Pairs of a row before `split` and one from it on that share a rare n-gram, whatever their numbers."""
        for size in GRAM_SIZES[1:]:
            keys, owners = self._grams(size, rows, first=split)
            order = np.argsort(keys, kind="stable")
            keys, owners = keys[order], owners[order]
            for first, end in self.table.chunks():
                if first >= split or not len(keys):
                    break
                grams, row_of, inside = self._chunk_grams(first, min(end, split), size)
                inside &= rows[row_of]
                grams, row_of = mixed(grams, size)[inside], row_of[inside]
                low, high = (np.searchsorted(keys, grams, side) for side in ("left", "right"))
                for place in np.nonzero(low < high)[0].tolist():
                    for other in owners[low[place] : high[place]].tolist():
                        yield int(row_of[place]), other

    def _alike(self, one: Ints, other: Ints) -> Flags:
        """Whether one of the two has enough of what tells the other from the rest of the corpus."""
        out = np.zeros(len(one), bool)
        for x, y in ((one, other), (other, one)):
            shared = np.bitwise_count(self.telling[x] & self.sketches[y]).sum(axis=1, dtype=np.int64)
            out |= shared >= MIN_SHARED_VALUES * self.telling_sizes[x]
        return out

    def _row_values(self) -> tuple[Hashes, Hashes, Hashes]:
        """Per row, a hash of its numbers in any order, and 128 bits of what tells it from others, and of its values."""
        table = self.table
        numbers, (telling, values) = np.zeros(len(table), np.uint64), np.zeros((2, len(table), 2), np.uint64)
        for first, end in table.chunks():
            where = slice(int(table.starts[first]), int(table.starts[end]))
            ids, rows = table.ids[where], table.row_numbers(first, end)
            numbers[first:end] = table.row_sums(np.where(table.is_number[ids], mixed(ids, 4), np.uint64(0)), first, end)
            for sketch, least in ((telling, MIN_TELLING_BITS), (values, MIN_TOKEN_BITS)):
                chosen = self.bits[where] >= least
                place = mixed(ids[chosen], 5) >> np.uint64(57)
                bit = np.uint64(1) << (place & np.uint64(63))
                np.bitwise_or.at(sketch, (rows[chosen], (place >> np.uint64(6)).astype(np.int64)), bit)
        return numbers, telling, values

    def _chunk_grams(self, first: int, end: int, size: int) -> tuple[Hashes, Ints, Flags]:
        ids = self.table.ids[self.table.starts[first] : self.table.starts[end]]
        rows = self.table.row_numbers(first, end)
        grams, inside = n_grams(mixed(ids), rows, size)
        return grams, rows, inside

    def _grams(self, size: int, rows: Flags, salts: Hashes | None = None, *, first: int = 0) -> _Keys:
        """The rarest n-grams of each row from `first` on that other rows have as well, with equal salts."""
        bits = self.table.bucket_bits
        buckets, shift = np.zeros(1 << bits, np.int32), np.uint64(64 - bits)
        keys, owners = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        for begin, end in self.table.chunks():
            grams, _ = self._chunk_keys(begin, end, size, rows=rows, salts=salts)
            place = (mixed(grams, 6) >> shift).astype(np.int64)
            buckets += np.bincount(place, minlength=len(buckets)).astype(np.int32)
        for begin, end in self.table.chunks():
            if end <= first:
                continue
            grams, row_of = self._chunk_keys(begin, end, size, rows=rows, salts=salts)
            count = buckets[(mixed(grams, 6) >> shift).astype(np.int64)]
            wanted = (row_of >= first) & (count >= 2) & (count <= MAX_GROUP_ROWS)
            grams, row_of, count = grams[wanted], row_of[wanted], count[wanted]
            order = np.lexsort((grams, count, row_of))
            grams, row_of = grams[order], row_of[order]
            rank = np.arange(len(row_of)) - np.searchsorted(row_of, row_of, "left")
            few = rank < GRAMS_PER_SIZE
            keys.append(mixed(grams[few], size))
            owners.append(row_of[few])
        return np.concatenate(keys), np.concatenate(owners)

    def _chunk_keys(self, first: int, end: int, size: int, *, rows: Flags, salts: Hashes | None) -> tuple[Hashes, Ints]:
        grams, row_of, inside = self._chunk_grams(first, end, size)
        inside &= rows[row_of]
        grams, row_of = grams[inside], row_of[inside]
        return (grams if salts is None else mixed(grams) + salts[row_of]), row_of

    def _sequences(self, rows: Flags) -> _Keys:
        """The values of a row, and its numbers alone, in their order and in any; without those of the template."""
        keys, owners, table = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)], self.table
        for first, end in table.chunks():
            where = slice(int(table.starts[first]), int(table.starts[end]))
            ids, row_of = table.ids[where], table.row_numbers(first, end)
            varies = self.slots.positions[where] != FIXED
            numbers = table.is_number[ids] & varies & ~self.slots.is_constant[ids]
            for salt, chosen in enumerate((self.slots.is_value[ids] & varies, numbers)):
                in_order = mixed(mixed(ids) + _places(chosen, row_of, table.starts - table.starts[first]), 8)
                for in_any_order, hashes in enumerate((in_order, mixed(ids))):
                    sums = table.row_sums(np.where(chosen, hashes, np.uint64(0)), first, end)
                    there = np.nonzero(rows[first:end] & (sums != 0))[0]
                    keys.append(mixed(sums[there], 9 + 2 * salt + in_any_order))
                    owners.append(there + first)
        return np.concatenate(keys), np.concatenate(owners)
