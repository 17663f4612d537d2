"""Whether two questions are the same: what differs between them must be no value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from math import inf, log2
from typing import Literal, NamedTuple, TypeAlias

from wanderlust.data.tokens import FIXED, SLOT, UNKNOWN, Slots, TokenTable

Kind: TypeAlias = Literal["exact", "fuzzy", "slots"]

MIN_COMMON_SHARE = 0.5
"""Of the shorter question's tokens, those that the longer one has in the same order."""
MAX_EDGE_TOKENS = 1
"""When both questions have more words before or behind what they share, they are two passages that overlap."""
MAX_UNKNOWN_SHARE = 0.15
"""Of the shorter question's tokens, those that differ and of which the corpus does not say whether they are values."""
MAX_CHANGED_TOKENS = 3
"""More tokens in a row that differ are another passage."""
MIN_MOVED_TOKENS = 6
"""A passage from this length on may stand elsewhere."""
MIN_TYPO_LETTERS = 4
MIN_USUAL_COUNT, MAX_TYPO_COUNT = 5, 2
"""Occurrences of a word and of its misspelling."""
MAX_CHANCE_BITS = 4.0
"""Values make the same question when a random row would have them with a probability of at most 2 to minus this."""
BITS_WITHOUT_ANSWERS = 4.0
"""Further bits that are asked of values where no answer is known."""
INFORMATIVE_ANSWER_BITS = 6.0
"""An answer at least as rare as this tells questions apart."""
MAX_MISSING_SHARE = 0.34
"""Of the bits of shared values, those of words that may be values and that the other question lacks."""
MAX_TOKENS = 2000
"""Longer questions are compared by their beginning."""

_Opcode: TypeAlias = tuple[str, int, int, int, int]


class _Row(NamedTuple):
    number: int
    ids: list[int]
    places: list[int]
    """What the corpus says of each position."""

    def piece(self, start: int, end: int) -> list[tuple[int, int]]:
        """Tokens, and what the corpus says of their positions."""
        return [*zip(self.ids[start:end], self.places[start:end], strict=True)]


class QuestionComparison:
    """Compares rows of one table."""

    def __init__(self, table: TokenTable, slots: Slots, answers: Sequence[str | None]):
        self._table, self._slots = table, slots
        self._answers = [None if one is None else " ".join(one.lower().split()) for one in answers]
        self._answers = self._answers or [None] * len(table)
        self._answer_counts: dict[str, int] = {}
        for answer in self._answers:
            if answer is not None:
                self._answer_counts[answer] = self._answer_counts.get(answer, 0) + 1
        self._value = [bool(one) for one in slots.is_value]
        self._number = [bool(one) for one in table.is_number]
        self._symbol = [bool(one) for one in table.is_symbol]
        self._constant = [bool(one) for one in slots.is_constant]
        self._quote = [bool(one) for one in table.is_quote]
        self._count: list[int] = table.count.tolist()

    def compare(self, one: int, other: int, *, within: bool = False) -> Kind | None:
        """How the two are the same; None where they are not.

        With `within`, the second may be longer: a text that contains the first.
        """
        x, y = self._row(one), self._row(other)
        if not x.ids or not y.ids:
            return None
        if self._may_hold_numbers(x, y, within=within) and self._differ_in_no_value(x, y, within=within):
            return "fuzzy"
        return "slots" if self._have_same_values(x, y) else None

    def _row(self, number: int) -> _Row:
        ids = self._table.row(number)[:MAX_TOKENS]
        start = self._table.starts[number]
        return _Row(number, ids, self._slots.positions[start : start + len(ids)].tolist())

    def _may_hold_numbers(self, x: _Row, y: _Row, *, within: bool) -> bool:
        """Whether the second has all numbers and symbols of the first, and no others but for `within`: cheap, and
        necessary."""
        one, other = (Counter(t for t in row.ids if self._number[t] or self._symbol[t]) for row in (x, y))
        return one <= other if within else one == other

    def _differ_in_no_value(self, x: _Row, y: _Row, *, within: bool) -> bool:
        opcodes = _differences(x.ids, y.ids)
        common = len(x.ids) - sum(i2 - i1 for _, i1, i2, _, _ in opcodes)
        shorter = len(x.ids) if within else min(len(x.ids), len(y.ids))
        if common < MIN_COMMON_SHARE * shorter:
            return False
        moved = _moved(x.ids, y.ids, opcodes)
        unknown, edges = 0, [0, 0]
        for opcode in opcodes:
            _, i1, i2, j1, j2 = opcode
            if opcode in moved:
                continue
            at_edge = (i1 == i2 and i1 in (0, len(x.ids))) or (j1 == j2 and j1 in (0, len(y.ids)))
            around = within and i1 == i2 and not self._continues(x.ids, y.ids, opcode)
            if at_edge and (around or self._is_only_words(x.ids[i1:i2] + y.ids[j1:j2])):
                edges[i1 == i2] += max(i2 - i1, j2 - j1)
                continue
            found = self._judge(x.piece(i1, i2), y.piece(j1, j2))
            if found is None:
                return False
            unknown += found
        return min(edges) <= MAX_EDGE_TOKENS and unknown <= max(1.0, MAX_UNKNOWN_SHARE * shorter)

    def _continues(self, x: list[int], y: list[int], opcode: _Opcode) -> bool:
        """Whether the text around a question goes on with numbers where the question begins or ends with one."""
        _, start, _, first, last = opcode
        inside, outside = (x[0], y[last - 1]) if start == 0 else (x[-1], y[first])
        return all(self._number[token] or self._symbol[token] for token in (inside, outside))

    def _judge(self, gone: list[tuple[int, int]], come: list[tuple[int, int]]) -> int | None:
        """The tokens of which nothing is known among those that differ; None when one of them is a value."""
        gone, come = ([one for one in side if not self._quote[one[0]]] for side in (gone, come))
        if not self._is_only_words([token for token, _ in (*gone, *come)]):
            return None
        if len(gone) == len(come) == 1 and self._is_typo(gone[0][0], come[0][0]):
            return 0
        if max(len(gone), len(come)) > MAX_CHANGED_TOKENS:
            return None
        if any(side and all(place == FIXED for _, place in side) for side in (gone, come)):
            return 0
        different = [one for one in (*gone, *come) if one[1] != FIXED]
        if any(place == SLOT or self._value[token] for token, place in different):
            return None
        return len(different)

    def _is_only_words(self, tokens: list[int]) -> bool:
        """Whether there is no number, symbol or quotation mark among them."""
        return not any(self._number[token] or self._symbol[token] or self._quote[token] for token in tokens)

    def _is_typo(self, one: int, other: int) -> bool:
        rare, usual = sorted((one, other), key=lambda token: self._count[token])
        if self._count[rare] > MAX_TYPO_COUNT or self._count[usual] < MIN_USUAL_COUNT:
            return False
        return is_one_slip(self._table.words[rare], self._table.words[usual])

    def _have_same_values(self, x: _Row, y: _Row) -> bool:
        """Whether the values agree, the answers do not differ, and chance explains neither."""
        answers = (self._answers[x.number], self._answers[y.number])
        known = None not in answers
        if known and answers[0] != answers[1]:
            return False
        values = [self._values(row) for row in (x, y)]
        numbers = [[token for token in row if self._number[token]] for row in values]
        if not self._same_numbers(*numbers, ignore=known):
            return False
        words = [[token for token in row if self._is_only_words([token])] for row in values]
        rows = len(self._table)
        answer_bits = log2(rows / self._answer_counts[answers[0]]) if known and answers[0] is not None else 0.0
        telling = answer_bits >= INFORMATIVE_ANSWER_BITS
        gaps = [
            self._missing(x, words[0], y.ids, strict=not telling),
            self._missing(y, words[1], x.ids, strict=not telling),
        ]
        side = gaps.index(min(gaps))
        opposite = (y.ids, x.ids)[side]
        held = [token for token in words[side] if token in opposite]
        if not telling:
            symbols = [sorted(token for token in row if self._symbol[token]) for row in values]
            if numbers[0] != numbers[1] or symbols[0] != symbols[1] or not _is_subsequence(held, opposite):
                return False
        value_bits = self._bits({*numbers[0], *held} & {*x.ids} & {*y.ids})
        if (gaps[side] if telling else max(gaps)) > MAX_MISSING_SHARE * value_bits:
            return False
        return answer_bits + value_bits >= log2(rows) + MAX_CHANCE_BITS + (0.0 if known else BITS_WITHOUT_ANSWERS)

    def _same_numbers(self, one: list[int], other: list[int], *, ignore: bool) -> bool:
        """Whether they are the same in any order; with `ignore`, but for constants that one of the two has."""
        extra = [Counter(one) - Counter(other), Counter(other) - Counter(one)]
        if not any(extra):
            return True
        return ignore and not all(extra) and all(self._constant[token] for both in extra for token in both)

    def _bits(self, tokens: Iterable[int]) -> float:
        """How rare the tokens are, together."""
        return sum(max(0.0, log2(len(self._table) / self._count[token])) for token in tokens)

    def _missing(self, row: _Row, words: list[int], opposite: list[int], *, strict: bool) -> float:
        """The bits of the value words that the other row lacks; with `strict`, infinite when one stands in a slot."""
        missing = {*words} - {*opposite}
        if strict and any(token in missing and place == SLOT for token, place in zip(row.ids, row.places, strict=True)):
            return inf
        return self._bits(missing)

    def _values(self, row: _Row) -> list[int]:
        """The values and symbols among the tokens of a row, without the constants of its template."""
        return [
            token
            for token, place in zip(row.ids, row.places, strict=True)
            if place == SLOT or (place == UNKNOWN and (self._value[token] or self._symbol[token]))
        ]


def _differences(x: list[int], y: list[int]) -> list[_Opcode]:
    """What turns x into y, without what is equal."""
    start, end = 0, 0
    shorter = min(len(x), len(y))
    while start < shorter and x[start] == y[start]:
        start += 1
    while end < shorter - start and x[-1 - end] == y[-1 - end]:
        end += 1
    middle_x, middle_y = x[start : len(x) - end], y[start : len(y) - end]
    if not middle_x or not middle_y:
        return [("replace", start, start + len(middle_x), start, start + len(middle_y))] if middle_x or middle_y else []
    return [
        (tag, i1 + start, i2 + start, j1 + start, j2 + start)
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, middle_x, middle_y, autojunk=False).get_opcodes()
        if tag != "equal"
    ]


def _moved(x: list[int], y: list[int], opcodes: list[_Opcode]) -> set[_Opcode]:
    """The pieces that are long, gone at one place, and come at another."""
    gone = {
        one: tuple(x[one[1] : one[2]]) for one in opcodes if one[3] == one[4] and one[2] - one[1] >= MIN_MOVED_TOKENS
    }
    come = {
        one: tuple(y[one[3] : one[4]]) for one in opcodes if one[1] == one[2] and one[4] - one[3] >= MIN_MOVED_TOKENS
    }
    both = {*gone.values()} & {*come.values()}
    return {one for one, piece in (*gone.items(), *come.items()) if piece in both}


def _is_subsequence(wanted: Sequence[int], row: Sequence[int]) -> bool:
    rest = iter(row)
    return all(token in rest for token in wanted)


def is_one_slip(rare: str, usual: str) -> bool:
    """Whether one letter was left out, added, mistaken, or exchanged with the next one.

    Example:
        >>> is_one_slip("calcualte", "calculate"), is_one_slip("cat", "car")
        (True, False)
    """
    if min(len(rare), len(usual)) < MIN_TYPO_LETTERS or abs(len(rare) - len(usual)) > 1:
        return False
    start = next((n for n, (a, b) in enumerate(zip(rare, usual, strict=False)) if a != b), min(len(rare), len(usual)))
    a, b = rare[start:], usual[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[:2][::-1] and a[2:] == b[2:])
