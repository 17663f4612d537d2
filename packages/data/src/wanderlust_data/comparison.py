"""Whether two questions are the same: what differs between them must be no value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from math import lgamma, log, log2
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from wanderlust_data.tokens import FIXED, SLOT, Slots, TokenTable, answer_information

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
"""A passage with so many different tokens may stand elsewhere; a row of empty cells may not."""
MIN_TYPO_LETTERS = 4
MIN_USUAL_COUNT, MAX_TYPO_COUNT = 5, 2
"""Occurrences of a word and of its misspelling."""
MAX_CHANCE_BITS = 4.0
"""Values make the same question when a random row would have them with a probability of at most 2 to minus this."""
BITS_WITHOUT_ANSWERS = 4.0
"""Further bits that are asked of values where no answer is known."""
INFORMATIVE_ANSWER_BITS = 5.0
"""An answer at least as rare as this tells questions apart."""
MIN_TOKEN_BITS = 0.3
"""Tokens with fewer bits belong to a template."""
MIN_VALUE_BITS = 2.0
"""Fewer bits are no other value."""
MIN_REWORDED_TOKENS = 4
"""Tokens of its template that a question loses in other words: with fewer, the two have one template."""
MIN_OTHER_BITS = 0.9
"""From which on two questions of one template differ."""
MAX_KEPT_ORDER_BITS = 3.0
"""What the order of their values may cost them."""
MAX_MOVES = 3
"""Times that passages are looked for in another order."""
BITS_OF_NEXT = 1.0
"""What it costs that a passage follows the one before."""
MIN_ORDERED_SHARE = 0.75
"""Of the bits of shared tokens, those that are left when their order has its price, where the answer says little."""
MAX_LOST_NUMBER_BITS = 5.0
"""Of the numbers that one of two questions has alone, where it may: how many values there are, for example."""
MAX_LOST_SHARE, MAX_UNTOLD_SHARE, MAX_LOST_BITS = 0.34, 0.1, 20.0
"""Of the bits of shared tokens, those that the question of the better known template has alone."""
MAX_TOKENS = 2000
"""Longer questions are compared by their beginning."""

Change: TypeAlias = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
_Opcode: TypeAlias = tuple[str, int, int, int, int]


class _Row(NamedTuple):
    number: int
    ids: list[int]
    places: list[int]
    """What the corpus says of each position."""

    def piece(self, start: int, end: int) -> list[tuple[int, int]]:
        """Tokens, and what the corpus says of their positions."""
        return [*zip(self.ids[start:end], self.places[start:end], strict=True)]


class _Lost(NamedTuple):
    """Bits of the tokens that one of two questions has alone."""

    words: float
    numbers: float
    symbols: float
    template_tokens: float
    """How many have no bits."""


class QuestionComparison:
    """Compares rows of one table."""

    def __init__(
        self,
        table: TokenTable,
        slots: Slots,
        bits: npt.NDArray[np.float32],
        *,
        answers: Sequence[str | None],
    ):
        self._table, self._slots = table, slots
        self._bits = np.where(bits >= MIN_TOKEN_BITS, bits, np.float32(0))
        self._answers = [None if one is None else " ".join(one.lower().split()) for one in answers]
        self._answers = self._answers or [None] * len(table)
        self._answer_bits = answer_information(table, self._answers)
        self._value = [bool(one) for one in slots.is_value]
        self._number = [bool(one) for one in table.is_number]
        self._symbol = [bool(one) for one in table.is_symbol]
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
        shared, lost = self._information(x, y)
        answer_bits = min(float(self._answer_bits[row.number]) for row in (x, y)) if known else -BITS_WITHOUT_ANSWERS
        telling = answer_bits >= INFORMATIVE_ANSWER_BITS
        asked = log2(len(self._table)) + MAX_CHANCE_BITS - answer_bits
        most = min((MAX_LOST_SHARE if telling else MAX_UNTOLD_SHARE) * shared, MAX_LOST_BITS)
        numbers = [side.numbers for side in lost]
        words = [side.words + side.symbols for side in lost]
        symbols = [side.symbols for side in lost]
        if min(numbers) >= MIN_VALUE_BITS or max(numbers) > MAX_LOST_NUMBER_BITS:
            return False
        if min(words) + max(numbers) > most or shared < asked:
            return False
        if not telling and (min(symbols) >= MIN_VALUE_BITS or shared - max(symbols) < asked):
            return False
        agreed = self._agreement(x, y)
        if not telling and max(side.template_tokens for side in lost) < MIN_REWORDED_TOKENS:
            return min(words) + max(numbers) < MIN_OTHER_BITS and agreed >= max(asked, shared - MAX_KEPT_ORDER_BITS)
        if telling:
            agreed = max(agreed, shared - self._order_bits(x, y))
        return agreed >= (asked if telling else max(asked, MIN_ORDERED_SHARE * shared))

    def change(self, one: int, other: int) -> Change | None:
        """The tokens that either has alone; None where the answers differ, or one is not known."""
        return self.difference(one, other) if self.have_one_answer(one, other) else None

    def difference(self, one: int, other: int) -> Change:
        """The tokens that either has alone."""
        x, y = (Counter(self._row(number).ids) for number in (one, other))
        gone, come = sorted((tuple(sorted((x - y).items())), tuple(sorted((y - x).items()))))
        return gone, come

    def have_one_answer(self, one: int, other: int) -> bool | None:
        """Whether the answers are equal; None where one is not known."""
        answers = (self._answers[one], self._answers[other])
        return None if None in answers else answers[0] == answers[1]

    def _information(self, x: _Row, y: _Row) -> tuple[float, tuple[_Lost, _Lost]]:
        """The bits of the tokens that both have, and those of what each has alone: words, and other values."""
        bits = [self._bits_of(row) for row in (x, y)]
        shared, lost = 0.0, ([0.0] * 4, [0.0] * 4)
        for token in bits[0].keys() | bits[1].keys():
            one, other = (side.get(token, []) for side in bits)
            both = min(len(one), len(other))
            shared += sum(map(min, one[:both], other[:both]))
            kind = 1 if self._number[token] else 2 if self._symbol[token] else 0
            for side, rest in zip(lost, (one[both:], other[both:]), strict=True):
                side[kind] += sum(rest)
                side[3] += rest.count(0.0)
        return shared, (_Lost(*lost[0]), _Lost(*lost[1]))

    def _agreement(self, x: _Row, y: _Row) -> float:
        """The bits of the passages that both have, less those that say where each of them stands."""
        rows = [self._informative(row) for row in (x, y)]
        total, place = 0.0, log2(max(len(rows[0]), len(rows[1]), 2))
        for moved in range(MAX_MOVES):
            tokens = [[token for token, _ in row] for row in rows]
            blocks = SequenceMatcher(None, tokens[0], tokens[1], autojunk=False).get_matching_blocks()
            end = 0
            for i, j, size in blocks[:-1]:
                bits = sum(min(rows[0][i + n][1], rows[1][j + n][1]) for n in range(size))
                total += max(0.0, bits - (place if moved or i > end else BITS_OF_NEXT))
                end = i + size
            for row, starts in zip(rows, zip(*((i, j) for i, j, _ in blocks), strict=True), strict=True):
                taken = {start + n for start, (_, _, size) in zip(starts, blocks, strict=True) for n in range(size)}
                row[:] = [one for n, one in enumerate(row) if n not in taken]
            if len(blocks) == 1 or not all(rows):
                break
        return total

    def _order_bits(self, x: _Row, y: _Row) -> float:
        """The bits that say in which order the tokens stand that both have."""
        one, other = (Counter(token for token, _ in self._informative(row)) for row in (x, y))
        counts = (one & other).values()
        return (lgamma(sum(counts) + 1) - sum(lgamma(n + 1) for n in counts)) / log(2)

    def _tokens(self, row: _Row) -> list[tuple[int, float]]:
        """The tokens of a row without quotation marks, and their bits; 0 for those of a template."""
        start = self._table.starts[row.number]
        bits: list[float] = self._bits[start : start + len(row.ids)].tolist()
        return [(t, b) for t, b in zip(row.ids, bits, strict=True) if not self._quote[t]]

    def _informative(self, row: _Row) -> list[tuple[int, float]]:
        """Those that belong to no template."""
        return [one for one in self._tokens(row) if one[1] > 0]

    def _bits_of(self, row: _Row) -> dict[int, list[float]]:
        """The bits of each token of a row, in falling order."""
        out = dict[int, list[float]]()
        for token, bits in self._tokens(row):
            out.setdefault(token, []).append(bits)
        for every in out.values():
            every.sort(reverse=True)
        return out


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
    gone = {one: tuple(x[one[1] : one[2]]) for one in opcodes if one[3] == one[4]}
    come = {one: tuple(y[one[3] : one[4]]) for one in opcodes if one[1] == one[2]}
    both = {piece for piece in {*gone.values()} & {*come.values()} if len({*piece}) >= MIN_MOVED_TOKENS}
    return {one for one, piece in (*gone.items(), *come.items()) if piece in both}


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
