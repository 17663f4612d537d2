"""Whether two questions are the same: what differs between them must be no value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from math import inf, log2
from typing import Literal, TypeAlias

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
"""Values count as the same question when a random row would have them with a probability of 2 to minus this, at most."""
BITS_WITHOUT_ANSWERS = 4.0
"""Further bits that are asked of values where no answer is known."""
INFORMATIVE_ANSWER_BITS = 6.0
"""An answer at least as rare as this tells questions apart."""
MAX_MISSING_SHARE = 0.34
"""Of the bits of shared values, those of words that may be values and that the other question lacks."""
MAX_TOKENS = 2000
"""Longer questions are compared by their beginning."""

_Opcode: TypeAlias = tuple[str, int, int, int, int]


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
        x, y = (self._table.row(row)[:MAX_TOKENS] for row in (one, other))
        if not x or not y:
            return None
        if self._differ_in_no_value(one, other, x, y, within=within):
            return "fuzzy"
        return "slots" if self._have_same_values(one, other, x, y) else None

    def _differ_in_no_value(self, one: int, other: int, x: list[int], y: list[int], *, within: bool) -> bool:
        opcodes = _differences(x, y)
        common = len(x) - sum(i2 - i1 for _, i1, i2, _, _ in opcodes)
        shorter = len(x) if within else min(len(x), len(y))
        if common < MIN_COMMON_SHARE * shorter:
            return False
        starts = self._table.starts
        in_x = self._slots.positions[starts[one] : starts[one] + len(x)].tolist()
        in_y = self._slots.positions[starts[other] : starts[other] + len(y)].tolist()
        moved = _moved(x, y, opcodes)
        unknown, edges = 0, [0, 0]
        for opcode in opcodes:
            _, i1, i2, j1, j2 = opcode
            if opcode in moved:
                continue
            at_edge = (i1 == i2 and (i1 == 0 or i2 == len(x))) or (j1 == j2 and (j1 == 0 or j2 == len(y)))
            if at_edge and ((within and i1 == i2) or self._is_only_words(x[i1:i2] + y[j1:j2])):
                edges[i1 == i2] += max(i2 - i1, j2 - j1)
                continue
            found = self._judge(self._placed(x, in_x, i1, i2), self._placed(y, in_y, j1, j2))
            if found is None:
                return False
            unknown += found
        return min(edges) <= MAX_EDGE_TOKENS and unknown <= max(1.0, MAX_UNKNOWN_SHARE * shorter)

    def _placed(self, row: list[int], places: list[int], start: int, end: int) -> list[tuple[int, int]]:
        """The tokens of a piece but quotation marks, and what the corpus says of each."""
        piece = zip(row[start:end], places[start:end], strict=True)
        return [(token, place) for token, place in piece if not self._quote[token]]

    def _judge(self, gone: list[tuple[int, int]], come: list[tuple[int, int]]) -> int | None:
        """The tokens of which nothing is known among those that differ; None when one of them is a value."""
        if len(gone) == len(come) == 1 and self._is_typo(gone[0][0], come[0][0]):
            return 0
        if not self._is_only_words([token for token, _ in (*gone, *come)]):
            return None
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

    def _have_same_values(self, one: int, other: int, x: list[int], y: list[int]) -> bool:
        """Whether the values agree, the answers do not differ, and chance explains neither."""
        answers = (self._answers[one], self._answers[other])
        known = None not in answers
        if known and answers[0] != answers[1]:
            return False
        values = [self._values(number, row) for number, row in ((one, x), (other, y))]
        numbers = [[token for token in row if self._number[token]] for row in values]
        words = [[token for token in row if self._is_only_words([token])] for row in values]
        if not self._same_numbers(*numbers, ignore=known):
            return False
        gaps = [self._missing(*pair) for pair in ((one, x, words[0], y), (other, y, words[1], x))]
        side = gaps.index(min(gaps))
        held = [token for token in words[side] if token in (y, x)[side]]
        rows = len(self._table)
        answer_bits = log2(rows / self._answer_counts[answers[0]]) if known and answers[0] is not None else 0.0
        in_order = numbers[0] == numbers[1] and _is_subsequence(held, (y, x)[side])
        symbols = [sorted(token for token in row if self._symbol[token]) for row in values]
        telling = answer_bits >= INFORMATIVE_ANSWER_BITS
        if not telling and not (in_order and symbols[0] == symbols[1]):
            return False
        value_bits = self._bits({*numbers[0], *held} & {*x} & {*y})
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

    def _missing(self, number: int, row: list[int], words: list[int], opposite: list[int]) -> float:
        """The bits of the value words that the other row lacks; infinite when one of them stands in a slot."""
        missing = {*words} - {*opposite}
        start = self._table.starts[number]
        places = self._slots.positions[start : start + len(row)].tolist()
        if any(token in missing and place == SLOT for token, place in zip(row, places, strict=True)):
            return inf
        return self._bits(missing)

    def _values(self, number: int, row: list[int]) -> list[int]:
        """The values and symbols among the tokens of a row, without the constants of its template."""
        start = self._table.starts[number]
        places = zip(row, self._slots.positions[start : start + len(row)].tolist(), strict=True)
        return [
            token
            for token, place in places
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
    gone = {one: tuple(x[one[1] : one[2]]) for one in opcodes if one[3] == one[4] and one[2] - one[1] >= MIN_MOVED_TOKENS}
    come = {one: tuple(y[one[3] : one[4]]) for one in opcodes if one[1] == one[2] and one[4] - one[3] >= MIN_MOVED_TOKENS}
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
