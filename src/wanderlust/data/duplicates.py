"""Duplicated and contaminated questions: equal, nearly equal, or with the same values in other words.

Questions of one template differ in a name or a number and in nothing else, so that overlap of words or n-grams takes
all of them for copies. Here two questions are the same when what differs between them is no value: no number, no
symbol, and nothing that stands in a slot (`Slots`). Candidates are found by rare n-grams under equal numbers, in sorted
arrays; the result depends on the rows alone. Needs numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from wanderlust.data.comparison import Kind, QuestionComparison
from wanderlust.data.tokens import FIXED, Flags, Hashes, Ints, Slots, TokenTable, mixed, n_grams

GRAM_SIZES = (1, 2, 4, 8)
GRAMS_PER_SIZE = 3
"""The rarest n-grams of each size by which a row is looked up."""
MAX_GROUP_ROWS = 32
"""A key of more rows is too common to say anything."""
MIN_SHARED_VALUES = 0.5
"""Of the values of the row that has fewer, estimated by 128 bits a row: less, and the two are not compared."""


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
        index = _Index(table)
        comparison = QuestionComparison(table, index.slots, answers)
        for one, other in sorted(index.pairs(alone), key=lambda pair: (pair[1], pair[0])):
            first = first_of.get(one, one)
            kind = None if other in first_of else comparison.compare(first, other)
            if kind is not None and kind in kinds:
                first_of[other], kind_of[other] = first, kind
        for row in copies if "exact" in kinds else ():
            first_of[row] = first_of.get(copies[row], copies[row])
    return [Match(row=row, of=first_of[row], kind=kind_of[row]) for row in sorted(first_of)]


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
    index = _Index(table)
    comparison = QuestionComparison(table, index.slots, both)
    alone = np.ones(len(table), bool)
    alone[list(found)] = False
    for row, other in sorted({*index.pairs(alone, split=size), *index.containing(alone, size)}):
        if row not in found and (kind := comparison.compare(other, row, within=True)):
            found[row] = Match(row=row, of=other - size, kind=kind)
    return [found[row] for row in sorted(found)]


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


_Keys: TypeAlias = tuple[Hashes, Ints]
"""Keys, and the row of each."""


class _Index:
    """What rows are looked up by."""

    def __init__(self, table: TokenTable):
        self.table, self.slots = table, Slots.of(table)
        self.numbers, self.bits = self._row_values()
        self.bit_counts = np.bitwise_count(self.bits).sum(axis=1, dtype=np.int64)

    def pairs(self, rows: Flags, *, split: int = 0) -> Iterator[tuple[int, int]]:
        """Pairs of rows, the smaller number first, that have a key in common and about the same values.

        With `split`, pairs of a row before it and one from it on.
        """
        parts = [self._grams(size, rows) for size in GRAM_SIZES] + [self._sequences(rows)]
        keys, owners = (np.concatenate([part[n] for part in parts]) for n in (0, 1))
        order = np.argsort(keys, kind="stable")
        keys, owners = keys[order], owners[order]
        bounds = np.concatenate([[0], np.nonzero(np.diff(keys))[0] + 1, [len(keys)]])
        fits = np.repeat(np.diff(bounds) <= MAX_GROUP_ROWS, np.diff(bounds))
        keys, owners = keys[fits], owners[fits]
        found = [np.zeros(0, np.int64)]
        for step in range(1, MAX_GROUP_ROWS):
            there = np.nonzero(keys[:-step] == keys[step:])[0]
            one, other = owners[there], owners[there + step]
            low, high = np.minimum(one, other), np.maximum(one, other)
            wanted = (low != high) & ((low < split) & (high >= split) if split else True) & self._alike(low, high)
            found.append(np.unique(low[wanted] * len(self.table) + high[wanted]))
            if not len(there):
                break
        for pair in np.unique(np.concatenate(found)).tolist():
            yield divmod(pair, len(self.table))

    def containing(self, rows: Flags, split: int) -> Iterator[tuple[int, int]]:
        """Pairs of a row before `split` and one from it on that share a rare n-gram, whatever their numbers."""
        for size in GRAM_SIZES[1:]:
            keys, owners = self._grams(size, rows, numbers=False, first=split)
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
        shared = np.bitwise_count(self.bits[one] & self.bits[other]).sum(axis=1, dtype=np.int64)
        fewer = np.minimum(self.bit_counts[one], self.bit_counts[other])
        return np.asarray(shared >= MIN_SHARED_VALUES * fewer)

    def _row_values(self) -> tuple[Hashes, Hashes]:
        """Per row, a hash of its numbers in any order, and 128 bits of its other values."""
        table = self.table
        numbers, bits = np.zeros(len(table), np.uint64), np.zeros((len(table), 2), np.uint64)
        for first, end in table.chunks():
            ids = table.ids[table.starts[first] : table.starts[end]]
            is_number = table.is_number[ids]
            numbers[first:end] = table.row_sums(np.where(is_number, mixed(ids, 4), np.uint64(0)), first, end)
            words = self.slots.is_value[ids] & ~is_number
            rows, place = table.row_numbers(first, end)[words], mixed(ids[words], 5) >> np.uint64(57)
            bit = np.uint64(1) << (place & np.uint64(63))
            np.bitwise_or.at(bits, (rows, (place >> np.uint64(6)).astype(np.int64)), bit)
        return numbers, bits

    def _chunk_grams(self, first: int, end: int, size: int) -> tuple[Hashes, Ints, Flags]:
        ids = self.table.ids[self.table.starts[first] : self.table.starts[end]]
        rows = self.table.row_numbers(first, end)
        grams, inside = n_grams(mixed(ids), rows, size)
        return grams, rows, inside

    def _grams(self, size: int, rows: Flags, *, numbers: bool = True, first: int = 0) -> _Keys:
        """The rarest n-grams of each row from `first` on that other rows have as well."""
        bits = self.table.bucket_bits
        buckets, shift = np.zeros(1 << bits, np.int32), np.uint64(64 - bits)
        keys, owners = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        for begin, end in self.table.chunks():
            grams, _, inside = self._chunk_grams(begin, end, size)
            place = (mixed(grams[inside], 6) >> shift).astype(np.int64)
            buckets += np.bincount(place, minlength=len(buckets)).astype(np.int32)
        for begin, end in self.table.chunks():
            if end <= first:
                continue
            grams, row_of, inside = self._chunk_grams(begin, end, size)
            count = buckets[(mixed(grams, 6) >> shift).astype(np.int64)]
            wanted = inside & rows[row_of] & (row_of >= first) & (count >= 2) & (count <= MAX_GROUP_ROWS)
            grams, row_of, count = grams[wanted], row_of[wanted], count[wanted]
            order = np.lexsort((grams, count, row_of))
            grams, row_of = grams[order], row_of[order]
            rank = np.arange(len(row_of)) - np.searchsorted(row_of, row_of, "left")
            few = rank < GRAMS_PER_SIZE
            keys.append(mixed(grams[few], size) + (self.numbers[row_of[few]] if numbers else np.uint64(0)))
            owners.append(row_of[few])
        return np.concatenate(keys), np.concatenate(owners)

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
