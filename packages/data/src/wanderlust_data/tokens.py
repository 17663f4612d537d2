"""Rows of text as one flat array of token ids, and which positions hold the values of a template.

A token is a word, a number or a symbol, without case. The punctuation of sentences, and a question's number before it,
are left out. A position is a *slot* when the same context is filled with different tokens elsewhere in the corpus: the
names and values of a template, which tell its questions apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Hashes: TypeAlias = npt.NDArray[np.uint64]
Flags: TypeAlias = npt.NDArray[np.bool_]
_ContextHashes: TypeAlias = Callable[[Hashes, Ints], tuple[Hashes, Flags]]
"""Of hashes of tokens and their rows: a hash of each token's context, and whether it lies in the row."""

TOKEN_PATTERN = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)?|([^\w\s.,!?;:'`\u2018\u2019\u2026])\1*|(?<![^\W\d_])_(?![^\W\d_])")
DOT_PATTERN, WORD_PATTERN = re.compile(r"(?<![^\s|])\.(?![^\s|])"), re.compile(r"[^\W\d_]{2,}")
QUOTES = str.maketrans(dict.fromkeys("“”„«»", '"'))
NUMBERING_PATTERN = re.compile(
    r"\s*(?:(?:question|problem|exercise|task|q)\s*(?:no\.?\s*)?#?\d+\s*[.):]|\d+[.)])\s+", re.IGNORECASE
)
SLOT_CONTEXTS = ((2, 2), (3, 0), (0, 3))
"""Tokens before and behind a position that say whether it is a slot."""
CONTEXT_TOKENS = 3
"""The most tokens of a context on one side of a position."""
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
USUAL_COPIES = 5
"""Occurrences of an n-gram that say nothing: those of a question and of its copies."""
ANSWER_GRAM_TOKENS = 3
MIN_ANSWERS = 32
"""Occurrences of an n-gram from which on it says how probable an answer is."""
UNKNOWN, FIXED, SLOT = 0, 1, 2
"""What a context says of a position."""


def words_of(text: str) -> list[str]:
    """The tokens of a text: words, numbers, and symbols, of which equal ones in a row are one.

    A full stop counts where it stands for itself in a line without words, as in a picture of a board.

    Example:
        >>> words_of("Q3. What is 12.5 + 7?")
        ['what', 'is', '12.5', '+', '7']
        >>> words_of("| . | ## |")
        ['|', '·', '|', '##', '|']
    """
    numbering = NUMBERING_PATTERN.match(text)
    text = (text[numbering.end() :] if numbering else text).lower()
    text = text if text.isascii() else text.translate(QUOTES)
    if DOT_PATTERN.search(text):
        text = "\n".join(
            line if WORD_PATTERN.search(line) else DOT_PATTERN.sub("\u00b7", line) for line in text.split("\n")
        )
    return [found[0] for found in TOKEN_PATTERN.finditer(text)]


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
        around, left, right = (_diversity(table, partial(_around, before=b, after=a)) for b, a in SLOT_CONTEXTS)
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


def _around(hashes: Hashes, rows: Ints, *, before: int, after: int, gap: int = 0) -> tuple[Hashes, Flags]:
    """The hash of so many tokens before and behind each position, and whether the row has them.

    With a gap, the tokens next to the position are left out.
    """
    size = len(hashes)
    out, there = np.zeros(size, np.uint64), np.ones(size, bool)
    if before:
        grams, _ = n_grams(hashes, rows, before)
        _, inside = n_grams(hashes, rows, before + gap + 1)
        out[before + gap :] = mixed(grams[: size - before - gap], 7)
        there[: before + gap] = False
        there[before + gap :] &= inside[: size - before - gap]
    if after:
        grams, _ = n_grams(hashes, rows, after)
        _, inside = n_grams(hashes, rows, after + gap + 1)
        out[: size - 1 - gap] += grams[1 + gap :]
        there &= inside
    return out, there


CONTEXTS: tuple[tuple[partial[tuple[Hashes, Flags]], ...], ...] = (
    tuple(partial(_around, before=n, after=0) for n in (1, 2, 3)),
    tuple(partial(_around, before=0, after=n) for n in (1, 2, 3)),
    tuple(partial(_around, before=n, after=n) for n in (1, 2)),
    (partial(_around, before=2, after=0, gap=1),),
    (partial(_around, before=0, after=2, gap=1),),
)
"""Contexts that say how probable a token is, each series from the least telling to the most."""


class _Context:
    """Counts of one kind of context, and of what fills it, in buckets."""

    def __init__(self, table: TokenTable, context: _ContextHashes):
        self.table, self.context = table, context
        size = 1 << table.bucket_bits
        self.counts, self.fillings = np.zeros(size, np.int32), np.zeros(size, np.int32)
        for chunk in table.chunks():
            _, bucket, filling, there = self.parts(*chunk)
            self.counts += np.bincount(bucket[there], minlength=size).astype(np.int32)
            self.fillings += np.bincount(filling[there], minlength=size).astype(np.int32)

    def parts(self, first: int, end: int) -> tuple[slice, Ints, Ints, Flags]:
        """Of a chunk: its tokens, buckets of their contexts and of both, and where there is a context."""
        table = self.table
        where = slice(int(table.starts[first]), int(table.starts[end]))
        hashes = mixed(table.ids[where])
        if len(hashes) <= 2 * CONTEXT_TOKENS:
            none = np.zeros(len(hashes), np.int64)
            return where, none, none, np.zeros(len(hashes), bool)
        found, there = self.context(hashes, table.row_numbers(first, end))
        shift = np.uint64(64 - table.bucket_bits)
        bucket = (mixed(found, 1) >> shift).astype(np.int64)
        return where, bucket, (mixed(found + hashes, 2) >> shift).astype(np.int64), there

    def sums(self, weight: Callable[[Any, Any], Any]) -> npt.NDArray[np.float32]:
        """Per bucket, the sum over its positions of a weight of both counts, divided by the context's count."""
        out = np.zeros(len(self.counts), np.float32)
        for chunk in self.table.chunks():
            _, bucket, filling, there = self.parts(*chunk)
            n, c = self.counts[bucket[there]], self.fillings[filling[there]]
            out += np.bincount(bucket[there], weights=weight(n, c) / n, minlength=len(out)).astype(np.float32)
        return out


def _diversity(table: TokenTable, context: _ContextHashes) -> npt.NDArray[np.uint8]:
    """What one kind of context says of each position."""
    counted = _Context(table, context)
    same = counted.sums(lambda n, c: np.minimum((c - 1) / np.maximum(n - 1, 1), 1.0))
    out = np.zeros(len(table.ids), np.uint8)
    for chunk in table.chunks():
        where, bucket, _, there = counted.parts(*chunk)
        n, diversity = counted.counts[bucket], 1 - same[bucket]
        varied, many = diversity >= MIN_SLOT_DIVERSITY, n * diversity >= MIN_SLOT_FILLERS
        known = there & (n >= MIN_CONTEXT_COUNT) & (many | ~varied)
        out[where] = np.where(known, np.where(varied, SLOT, FIXED), UNKNOWN)
    return out


def information(table: TokenTable) -> npt.NDArray[np.float32]:
    """The bits of each token: how improbable its context makes it, of several contexts the one that says most.

    The words of a template have about none, its values those of a draw among all that may stand there. Probabilities
    are those of n-grams of the corpus with absolute discounting, where the discount leaves out a question's copies.
    """
    alone = (np.maximum(table.count - USUAL_COPIES, 0.5) / max(len(table.ids), 1)).astype(np.float32)
    most = np.zeros(len(table.ids), np.float32)
    for contexts in CONTEXTS:
        likely = alone[table.ids]
        for context in contexts:
            counted = _Context(table, context)
            seen = counted.sums(lambda n, c: np.maximum(c - USUAL_COPIES, 0) / np.maximum(c, 1))
            for chunk in table.chunks():
                where, bucket, filling, there = counted.parts(*chunk)
                usual = np.maximum(counted.fillings[filling] - USUAL_COPIES, 0) / np.maximum(counted.counts[bucket], 1)
                both = np.minimum(usual, 1.0) + np.maximum(1 - seen[bucket], 0.0) * likely[where]
                likely[where] = np.where(there, both, likely[where])
        np.maximum(most, likely, out=most)
    return np.asarray(np.maximum(-np.log2(most), 0.0), np.float32)


def answer_information(table: TokenTable, answers: Sequence[str | None]) -> npt.NDArray[np.float32]:
    """The bits of each row's answer: how improbable it is for questions that have an n-gram in common with the row.

    The n-gram is the one that makes it most probable: that one of two words is asked for, for example. A row without
    an answer has 0 bits.
    """
    numbers: dict[str, int] = {}
    found = [-1 if one is None else numbers.setdefault(one, len(numbers)) for one in answers]
    ids = np.array(found, np.int64)
    if len(ids) == 0:
        return np.zeros(len(table), np.float32)
    known, hashes = ids >= 0, mixed(ids, 10)
    counts = np.bincount(ids[known], minlength=len(numbers) + 1)
    likely = np.where(known, counts[ids] / len(table), 1.0).astype(np.float32)
    size, shift = 1 << table.bucket_bits, np.uint64(64 - table.bucket_bits)

    def buckets(first: int, end: int) -> tuple[Ints, list[Ints]]:
        """Rows, and the buckets of the n-gram, and of it with the answer by two hashes: a common bucket is rare."""
        rows = table.row_numbers(first, end)
        grams, inside = n_grams(mixed(table.ids[table.starts[first] : table.starts[end]]), rows, ANSWER_GRAM_TOKENS)
        inside &= known[rows]
        grams, rows = grams[inside], rows[inside]
        both = mixed(grams) + hashes[rows]
        keys = (mixed(grams, 6), mixed(both, 6), mixed(both, 7))
        return rows, [(key >> shift).astype(np.int64) for key in keys]

    seen = [np.zeros(size, np.int32) for _ in range(3)]
    for chunk in table.chunks():
        for key, places in enumerate(buckets(*chunk)[1]):
            seen[key] += np.bincount(places, minlength=size).astype(np.int32)
    for chunk in table.chunks():
        rows, keys = buckets(*chunk)
        n, one, other = (counted[place] for counted, place in zip(seen, keys, strict=True))
        often = np.maximum(np.minimum(one, other) - USUAL_COPIES, 0.5)
        np.maximum.at(likely, rows, np.where(n >= MIN_ANSWERS, often / np.maximum(n, 1), 0.0).astype(np.float32))
    return np.asarray(np.maximum(-np.log2(likely), 0.0), np.float32)
