"""Rows of text as one flat array of token ids, and which positions hold the values of a template.

A token is a word, a number or a symbol, without case. The punctuation of sentences, and a question's number before it,
are left out. A position is a *slot* when the same context is filled with different tokens elsewhere in the corpus: the
names and values of a template, which tell its questions apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Hashes: TypeAlias = npt.NDArray[np.uint64]
Flags: TypeAlias = npt.NDArray[np.bool_]

TOKEN_PATTERN = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?|[^\w\s.,!?;:'`\u2018\u2019\u2026]")
QUOTES = str.maketrans(dict.fromkeys("“”„«»", '"'))
NUMBERING_PATTERN = re.compile(
    r"\s*(?:(?:question|problem|exercise|task|q)\s*(?:no\.?\s*)?#?\d+\s*[.):]|\d+[.)])\s+", re.IGNORECASE
)
CONTEXT_TOKENS = 3
"""Tokens of a context on one side of a position."""
MIN_CONTEXT_COUNT = 4
"""Occurrences from which on a context says whether its position is a slot."""
MIN_SLOT_DIVERSITY = 0.3
"""Probability that two occurrences of a context are filled differently, from which on the position is a slot."""
MIN_SLOT_FILLERS = 3.0
"""The same times the occurrences of the context: one mistyped word makes no slot of it."""
MIN_KNOWN_SHARE = 0.1
"""Share of all occurrences of a token that must be in slots for that."""
MIN_SLOT_SHARE = 0.5
"""Share of a token's occurrences in slots from which on the token is a value wherever it stands."""
MIN_BUCKET_BITS, MAX_BUCKET_BITS = 12, 23
"""Counts are kept in 2 to the power of so many buckets, sixteen for each token where there is room."""
CHUNK_TOKENS = 1 << 21
"""Tokens that one pass over the corpus takes at a time."""
FUNCTION_WORDS = """
the an of in on at to for from with by as is are was were be been it its they them their this that these those there
which who whose what how do does did can could will would may might should then so just very also please you your we our
i me my he she his her has have had about into than
"""
"""English words that fill any context of prose: they are values only where both sides say so."""
UNKNOWN, FIXED, SLOT = 0, 1, 2
"""What a context says of a position."""


def words_of(text: str) -> list[str]:
    """The tokens of a text.

    Example:
        >>> words_of("Q3. What is 12.5 + 7?")
        ['what', 'is', '12.5', '+', '7']
    """
    numbering = NUMBERING_PATTERN.match(text)
    text = (text[numbering.end() :] if numbering else text).lower()
    found: list[str] = TOKEN_PATTERN.findall(text if text.isascii() else text.translate(QUOTES))
    return found


@dataclass(slots=True)
class TokenTable:
    """All rows, one behind the other."""

    ids: npt.NDArray[np.int32]
    starts: Ints
    """Where each row begins, and at last where the last one ends."""
    words: list[str]
    """The token of each id."""
    is_number: Flags
    """By id."""
    is_symbol: Flags
    is_quote: Flags
    """Quotation marks bound what they stand around, and are no difference by themselves."""
    count: Ints
    """Occurrences by id."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> TokenTable:
        """The table of some texts; ids are given in the order of first appearance."""
        vocabulary: dict[str, int] = {}
        pieces, lengths, waiting = list[npt.NDArray[np.int32]](), list[int](), list[int]()
        for text in texts:
            words = words_of(text)
            waiting += [vocabulary.setdefault(word, len(vocabulary)) for word in words]
            lengths.append(len(words))
            if len(waiting) >= CHUNK_TOKENS:
                pieces.append(np.array(waiting, np.int32))
                waiting.clear()
        pieces.append(np.array(waiting, np.int32))
        ids = np.concatenate(pieces)
        words = list(vocabulary)
        return cls(
            ids=ids,
            starts=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
            words=words,
            is_number=np.array([word[0].isdigit() for word in words], bool),
            is_symbol=np.array([not word[0].isalnum() and word != '"' for word in words], bool),
            is_quote=np.array([word == '"' for word in words], bool),
            count=np.bincount(ids, minlength=len(words)),
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def bucket_bits(self) -> int:
        """For counts of what the rows have."""
        return min(max((16 * len(self.ids)).bit_length(), MIN_BUCKET_BITS), MAX_BUCKET_BITS)

    def row(self, number: int) -> list[int]:
        """The ids of a row."""
        return list(self.ids[self.starts[number] : self.starts[number + 1]].tolist())

    def chunks(self) -> Iterable[tuple[int, int]]:
        """First row and end of pieces of whole rows of about CHUNK_TOKENS tokens."""
        first = 0
        while first < len(self):
            end = int(np.searchsorted(self.starts, self.starts[first] + CHUNK_TOKENS, "right")) - 1
            yield first, (end := min(max(end, first + 1), len(self)))
            first = end

    def row_numbers(self, first: int, end: int) -> Ints:
        """The row of each token of the rows from `first` to `end`."""
        return np.repeat(np.arange(first, end), np.diff(self.starts[first : end + 1]))

    def row_sums(self, values: Hashes, first: int, end: int) -> Hashes:
        """The sum of a value per token over each row of a chunk; 0 for an empty row."""
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
        bounds = self.starts[first : end + 1] - self.starts[first]
        return np.asarray(total[bounds[1:]] - total[bounds[:-1]])


def mixed(values: npt.NDArray[Any], salt: int = 0) -> Hashes:
    """A 64-bit hash of each value (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        x = values.astype(np.uint64) + np.uint64((0x9E3779B97F4A7C15 * (salt + 1)) % 2**64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)))


def n_grams(hashes: Hashes, rows: Ints, n: int) -> tuple[Hashes, Flags]:
    """The hash of the n tokens from each position on, and whether they lie in one row."""
    out, size = hashes.copy(), len(hashes)
    inside = np.zeros(size, bool)
    if size >= n:
        inside[: size - n + 1] = rows[: size - n + 1] == rows[n - 1 :]
        for step in range(1, n):
            out[: size - step] = mixed(out[: size - step], step) + hashes[step:]
    return out, inside


@dataclass(slots=True)
class Slots:
    """What the contexts of a corpus say of its positions."""

    positions: npt.NDArray[np.uint8]
    """UNKNOWN, FIXED or SLOT by position."""
    is_value: Flags
    """By id, whether the token is a value: a number, or mostly in slots."""
    is_constant: Flags
    """By id, whether it is a number that mostly belongs to a template."""

    @classmethod
    def of(cls, table: TokenTable) -> Slots:
        """Learn them: two passes over the corpus for each kind of context."""
        positions = np.zeros(len(table.ids), np.uint8)
        around = _diversity(table, _both_sides)
        left, right = _diversity(table, _left_side), _diversity(table, _right_side)
        known = around != UNKNOWN
        positions[known] = around[known]
        one_sided = np.maximum(left, right)
        function_words = {*FUNCTION_WORDS.split()}
        is_function_word = np.array([word in function_words for word in table.words], bool)
        one_sided[(one_sided == SLOT) & is_function_word[table.ids]] = UNKNOWN
        positions[~known] = one_sided[~known]
        in_slots = np.bincount(table.ids[positions == SLOT], minlength=len(table.words))
        seen = np.bincount(table.ids[positions != UNKNOWN], minlength=len(table.words))
        values = table.is_number | ((in_slots > MIN_SLOT_SHARE * seen) & (in_slots >= 0.1 * table.count))
        constants = table.is_number & (seen >= MIN_CONTEXT_COUNT) & (in_slots <= MIN_SLOT_SHARE * seen)
        return cls(positions=positions, is_value=values & ~table.is_symbol & ~table.is_quote, is_constant=constants)


def _left_side(hashes: Hashes, rows: Ints) -> tuple[Hashes, Flags]:
    """The hash of the tokens before each position, and whether there are as many in the row."""
    grams, inside = n_grams(hashes, rows, CONTEXT_TOKENS + 1)
    before, _ = n_grams(hashes, rows, CONTEXT_TOKENS)
    out, there = np.zeros_like(grams), np.zeros_like(inside)
    out[CONTEXT_TOKENS:], there[CONTEXT_TOKENS:] = before[:-CONTEXT_TOKENS], inside[:-CONTEXT_TOKENS]
    return out, there


def _right_side(hashes: Hashes, rows: Ints) -> tuple[Hashes, Flags]:
    _, inside = n_grams(hashes, rows, CONTEXT_TOKENS + 1)
    after, _ = n_grams(hashes, rows, CONTEXT_TOKENS)
    out = np.zeros_like(after)
    out[:-1] = after[1:]
    return out, inside


def _both_sides(hashes: Hashes, rows: Ints) -> tuple[Hashes, Flags]:
    """The two tokens before and the two after each position."""
    pairs, _ = n_grams(hashes, rows, 2)
    _, inside = n_grams(hashes, rows, 5)
    out, there = np.zeros_like(pairs), np.zeros_like(inside)
    out[2:-2] = mixed(pairs[:-4], 7) + pairs[3:-1]
    there[2:-2] = inside[:-4]
    return out, there


def _diversity(table: TokenTable, context: Any) -> npt.NDArray[np.uint8]:
    """What one kind of context says of each position."""
    size = 1 << table.bucket_bits
    counts, pairs = np.zeros(size, np.int32), np.zeros(size, np.int32)

    def parts(first: int, end: int) -> tuple[slice, Ints, Ints, Flags]:
        where = slice(int(table.starts[first]), int(table.starts[end]))
        hashes = mixed(table.ids[where])
        if len(hashes) <= 2 * CONTEXT_TOKENS:
            none = np.zeros(len(hashes), np.int64)
            return where, none, none, np.zeros(len(hashes), bool)
        found, there = context(hashes, table.row_numbers(first, end))
        shift = np.uint64(64 - table.bucket_bits)
        bucket = (mixed(found, 1) >> shift).astype(np.int64)
        pair = (mixed(found + hashes, 2) >> shift).astype(np.int64)
        return where, bucket, pair, there

    for chunk in table.chunks():
        _, bucket, pair, there = parts(*chunk)
        counts += np.bincount(bucket[there], minlength=size).astype(np.int32)
        pairs += np.bincount(pair[there], minlength=size).astype(np.int32)
    same = np.zeros(size, np.float32)
    for chunk in table.chunks():
        _, bucket, pair, there = parts(*chunk)
        n = counts[bucket[there]]
        share = np.minimum((pairs[pair[there]] - 1) / np.maximum(n - 1, 1), 1.0)
        same += np.bincount(bucket[there], weights=share / n, minlength=size).astype(np.float32)
    out = np.zeros(len(table.ids), np.uint8)
    for chunk in table.chunks():
        where, bucket, _, there = parts(*chunk)
        n, diversity = counts[bucket], 1 - same[bucket]
        varied, many = diversity >= MIN_SLOT_DIVERSITY, n * diversity >= MIN_SLOT_FILLERS
        known = there & (n >= MIN_CONTEXT_COUNT) & (many | ~varied)
        out[where] = np.where(known, np.where(varied, SLOT, FIXED), UNKNOWN)
    return out
