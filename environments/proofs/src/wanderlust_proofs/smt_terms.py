"""Terms of SMT-LIB 2: their reader, and the values of those without quantifiers.

Values are truth values, whole numbers, fractions and bit-vectors; functions over them are evaluated by their
definitions. Division by zero has no value: the standard leaves it open. Not covered: quantifiers, arrays, strings,
floating point, datatypes. Source: Barrett, Fontaine, Tinelli, *The SMT-LIB Standard*, 2.6, and its theories.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from itertools import combinations, pairwise
from operator import ge, gt, le, lt
from typing import TypeAlias

from wanderlust.errors import WanderlustError, one_line

Term: TypeAlias = "str | tuple[Term, ...]"

MAX_DEPTH = 150
"""Parentheses within each other."""
MAX_STEPS = 200_000
"""Terms that one evaluation may look at."""
MAX_BITS = 4096
"""Digits of a number in base two, and the width of a bit-vector."""
_TOKEN = re.compile(r'\s+|;[^\n]*|(\|[^|\\]*\||"(?:[^"]|"")*"|[()]|[^\s()|";]+)')
_QUOTED = re.compile(r"\|([A-Za-z~!@$%^&*_+=<>.?/-][\w~!@$%^&*+=<>.?/-]*)\|")
_NUMERAL, _DECIMAL = re.compile(r"0|[1-9]\d*", re.ASCII), re.compile(r"(?:0|[1-9]\d*)\.\d+", re.ASCII)
_BINARY = re.compile(r"#(?:b[01]+|x[0-9a-fA-F]+)")


class SmtError(WanderlustError):
    """A problem, model or core that is wrong or cannot be checked, in one line."""


@dataclass(frozen=True, slots=True)
class Bits:
    """A bit-vector, read as a number from 0 to 2**width - 1."""

    width: int
    number: int

    @property
    def signed(self) -> int:
        """The number in two's complement."""
        return self.number - (self.number >> (self.width - 1) << self.width)


Value: TypeAlias = "bool | int | Fraction | Bits"


@dataclass(frozen=True, slots=True)
class Function:
    """A definition: parameters with their sorts, the sort of the result, the body."""

    parameters: tuple[tuple[str, Term], ...]
    sort: Term
    body: Term


def read_terms(text: str) -> list[Term]:
    """The expressions of a text. Raises SmtError."""
    stack: list[list[Term]] = [[]]
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise SmtError(f"{one_line(text[at : at + 20])!r} is no symbol, and begins no text that ends")
        at, token = found.end(), found[1]
        if token == "(":
            stack.append([])
            if len(stack) > MAX_DEPTH:
                raise SmtError(f"more than {MAX_DEPTH} parentheses are open")
        elif token == ")":
            if len(stack) == 1:
                raise SmtError("a parenthesis is closed that was not opened")
            inner = tuple(stack.pop())
            stack[-1].append(inner)
        elif token:
            quoted = _QUOTED.fullmatch(token)
            stack[-1].append(quoted[1] if quoted else token)
    if len(stack) > 1:
        raise SmtError("a parenthesis is not closed")
    return stack[0]


def term_text(term: Term) -> str:
    """A term as SMT-LIB has it."""
    return term if isinstance(term, str) else f"({' '.join(map(term_text, term))})"


def _short(term: Term) -> str:
    return one_line(term_text(term), 60)


def _whole(term: Term) -> int:
    if not (isinstance(term, str) and _NUMERAL.fullmatch(term) and len(term) < 1200):
        raise SmtError(f"{_short(term)} is no numeral")
    return int(term)


def literal(term: Term) -> Value | None:
    """The value of a constant; None for any other term. Raises SmtError for one that is too long."""
    if isinstance(term, tuple):
        return _numbered_bits(term)
    if term in ("true", "false"):
        return term == "true"
    if _NUMERAL.fullmatch(term):
        return _bounded(_whole(term))
    if _DECIMAL.fullmatch(term) and len(term) < 1200:
        return _bounded(Fraction(term))
    if _BINARY.fullmatch(term):
        base = 4 if term[1] == "x" else 1
        return _bits(base * len(term[2:]), int(term[2:], 2**base))
    return None


def _numbered_bits(term: tuple[Term, ...]) -> Bits | None:
    match term:
        case ("_", str(number), width) if re.fullmatch(r"bv\d+", number, re.ASCII):
            return _bits(_whole(width), _whole(number[2:]))
    return None


def value_term(value: Value) -> Term:
    """A term with that value; fractions are written with a decimal point."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Bits):
        return f"#b{value.number:0{value.width}b}"
    if value < 0:
        return ("-", value_term(-value))
    if isinstance(value, Fraction):
        return ("/", f"{value.numerator}.0", f"{value.denominator}.0")
    return str(value)


def _bits(width: int, number: int) -> Bits:
    if not 0 < width <= MAX_BITS:
        raise SmtError(f"bit-vectors have 1 to {MAX_BITS} bits, not {width}")
    return Bits(width, number & ((1 << width) - 1))


def _bounded(value: int | Fraction) -> int | Fraction:
    parts = (value,) if isinstance(value, int) else (value.numerator, value.denominator)
    if any(one.bit_length() > MAX_BITS for one in parts):
        raise SmtError(f"a number has more than {MAX_BITS} bits")
    return value


def sort_of(value: Value) -> Term:
    """The sort of a value."""
    if isinstance(value, Bits):
        return ("_", "BitVec", str(value.width))
    return "Bool" if isinstance(value, bool) else "Int" if isinstance(value, int) else "Real"


def is_evaluated(sort: Term) -> bool:
    """Whether values of a sort are covered here."""
    return sort in ("Bool", "Int", "Real") or (isinstance(sort, tuple) and sort[:2] == ("_", "BitVec"))


def of_sort(value: Value, sort: Term, name: str) -> Value:
    """The value as one of that sort: whole numbers are fractions too. Raises SmtError for another sort."""
    if sort == "Real" and sort_of(value) == "Int" and not isinstance(value, Bits):
        return Fraction(value)
    if sort_of(value) != sort:
        raise SmtError(f"{one_line(name, 60)} is {_short(value_term(value))}, which is no {_short(sort)}")
    return value


def _numbers(values: Sequence[Value], name: str) -> list[int | Fraction]:
    if any(isinstance(one, bool | Bits) for one in values) or not values:
        raise SmtError(f"{name} takes numbers")
    return [one for one in values if not isinstance(one, bool | Bits)]


def _integers(values: Sequence[Value], name: str, count: int) -> list[int]:
    found = [one for one in values if isinstance(one, int) and not isinstance(one, bool)]
    if len(found) != len(values) or len(values) != count:
        raise SmtError(f"{name} takes {count} whole numbers")
    return found


def _truths(values: Sequence[Value], name: str) -> list[bool]:
    if not all(isinstance(one, bool) for one in values) or not values:
        raise SmtError(f"{name} takes truth values")
    return [bool(one) for one in values]


def _vectors(values: Sequence[Value], name: str) -> list[Bits]:
    found = [one for one in values if isinstance(one, Bits)]
    if not found or len(found) != len(values) or (name != "concat" and len({one.width for one in found}) != 1):
        raise SmtError(f"{name} takes bit-vectors of one width")
    return found


def _product(a: int | Fraction, b: int | Fraction) -> int | Fraction:
    return _bounded(a * b)  # both are bounded, so this is at most twice as long


def _quotient(a: int | Fraction, b: int | Fraction) -> Fraction:
    if b == 0:
        raise SmtError("it divides by zero, which has no value")
    return Fraction(_bounded(Fraction(a) / Fraction(b)))


def _div(a: int, b: int) -> int:
    if b == 0:
        raise SmtError("it divides by zero, which has no value")
    return a // b if b > 0 else -(a // -b)


def _same(values: Sequence[Value], name: str) -> Sequence[Value]:
    kinds = {"number" if sort_of(one) in ("Int", "Real") else sort_of(one) for one in values}
    if len(kinds) != 1 or len(values) < 2:
        raise SmtError(f"{name} compares values of one sort")
    return values


def _arithmetic(name: str, values: Sequence[Value]) -> Value:
    if name in ("div", "mod"):
        a, b = _integers(values, name, 2)
        return _bounded(_div(a, b) if name == "div" else a - b * _div(a, b))
    if name == "abs":
        return abs(_integers(values, name, 1)[0])
    numbers = _numbers(values, name)
    if name == "-" and len(numbers) == 1:
        return -numbers[0]
    if name in ("to_real", "to_int", "is_int"):
        if len(numbers) != 1:
            raise SmtError(f"{name} takes one number")
        whole = numbers[0].numerator // numbers[0].denominator
        return whole if name == "to_int" else whole == numbers[0] if name == "is_int" else Fraction(numbers[0])
    if len(numbers) < 2:
        raise SmtError(f"{name} takes at least two numbers")
    if name in _COMPARED:
        return all(_COMPARED[name](a, b) for a, b in pairwise(numbers))
    return reduce(_FOLDED[name], numbers)


_COMPARED: Mapping[str, Callable[[int | Fraction, int | Fraction], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_FOLDED: Mapping[str, Callable[[int | Fraction, int | Fraction], int | Fraction]] = {
    "+": lambda a, b: _bounded(a + b),
    "-": lambda a, b: _bounded(a - b),
    "*": _product,
    "/": _quotient,
}
_ARITHMETIC = frozenset({*_COMPARED, *_FOLDED, "div", "mod", "abs", "to_real", "to_int", "is_int"})


def _divided(a: int, b: int) -> tuple[int, int]:
    """Quotient and remainder, both rounded towards 0."""
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - b * quotient


_FOLDED_BITS: Mapping[str, Callable[[Bits, Bits], int]] = {
    "bvand": lambda a, b: a.number & b.number,
    "bvor": lambda a, b: a.number | b.number,
    "bvxor": lambda a, b: a.number ^ b.number,
    "bvadd": lambda a, b: a.number + b.number,
    "bvmul": lambda a, b: a.number * b.number,
}
_PAIRED_BITS: Mapping[str, Callable[[Bits, Bits], int]] = {
    "bvsub": lambda a, b: a.number - b.number,
    "bvnand": lambda a, b: ~(a.number & b.number),
    "bvnor": lambda a, b: ~(a.number | b.number),
    "bvxnor": lambda a, b: ~(a.number ^ b.number),
    "bvudiv": lambda a, b: a.number // b.number if b.number else -1,
    "bvurem": lambda a, b: a.number % b.number if b.number else a.number,
    "bvsdiv": lambda a, b: _divided(a.signed, b.signed)[0] if b.number else 1 if a.signed < 0 else -1,
    "bvsrem": lambda a, b: _divided(a.signed, b.signed)[1] if b.number else a.number,
    "bvsmod": lambda a, b: a.signed % b.signed if b.number else a.number,
    "bvshl": lambda a, b: a.number << b.number if b.number < a.width else 0,
    "bvlshr": lambda a, b: a.number >> b.number if b.number < a.width else 0,
    "bvashr": lambda a, b: a.signed >> min(b.number, a.width),
}
_COMPARED_BITS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_BITS = frozenset(
    {
        *_FOLDED_BITS,
        *_PAIRED_BITS,
        *(f"bv{sign}{one}" for sign in "us" for one in _COMPARED_BITS),
        "bvnot",
        "bvneg",
        "bvcomp",
        "concat",
    }
)
_INDEXED = {"extract": 2, "zero_extend": 1, "sign_extend": 1, "repeat": 1, "rotate_left": 1, "rotate_right": 1}
_LAZY = frozenset({"and", "or", "=>", "ite", "let", "!"})
_BUILT_IN = frozenset({*_ARITHMETIC, *_BITS, *_INDEXED, *_LAZY, "_", "not", "xor", "=", "distinct", "true", "false"})


def is_name(symbol: str) -> bool:
    """Whether a symbol may be declared or bound: neither a constant nor a name of the theories."""
    return symbol not in _BUILT_IN and literal(symbol) is None and symbol[0] not in ':"'


def _bitwise(name: str, values: Sequence[Value]) -> Value:
    given = _vectors(values, name)
    width = given[0].width
    if name == "concat":
        return reduce(lambda a, b: _bits(a.width + b.width, a.number << b.width | b.number), given)
    if name in ("bvnot", "bvneg") and len(given) == 1:
        return _bits(width, ~given[0].number if name == "bvnot" else -given[0].number)
    if name in _FOLDED_BITS and len(given) > 1:
        return reduce(lambda a, b: _bits(width, _FOLDED_BITS[name](a, b)), given)
    if len(given) != 2 or name in ("bvnot", "bvneg"):
        raise SmtError(f"{name} does not take {len(given)} bit-vectors")
    if name[3:] in _COMPARED_BITS and name[2] in "us":
        a, b = (one.signed if name[2] == "s" else one.number for one in given)
        return _COMPARED[_COMPARED_BITS[name[3:]]](a, b)
    return _bits(1, given[0] == given[1]) if name == "bvcomp" else _bits(width, _PAIRED_BITS[name](*given))


def _indexed(head: tuple[Term, ...], values: Sequence[Value]) -> Value:
    name = head[1] if len(head) > 1 else ""
    if not isinstance(name, str) or head[0] != "_" or len(head) - 2 != _INDEXED.get(name) or len(values) != 1:
        raise SmtError(f"{_short(head)} is nothing that is evaluated here")
    (given,), numbers = _vectors(values, name), [_whole(one) for one in head[2:]]
    width, by = given.width, numbers[0]
    if name == "extract":
        if not width > numbers[0] >= numbers[1]:
            raise SmtError(f"{_short(head)} is outside of {width} bits")
        return _bits(numbers[0] - numbers[1] + 1, given.number >> numbers[1])
    if name == "repeat":
        if not 0 < by <= MAX_BITS:
            raise SmtError(f"{_short(head)} is too long")
        return _bitwise("concat", [given] * by)
    if name.startswith("rotate"):
        by = by % width if name == "rotate_left" else -by % width
        return _bits(width, given.number << by | given.number >> (width - by))
    return _bits(width + by, given.number if name == "zero_extend" else given.signed)


@dataclass(slots=True)
class Evaluation:
    """Evaluates terms under values of constants and definitions of functions; its steps are bounded in all."""

    functions: Mapping[str, Function] = field(default_factory=dict)
    steps: int = 0
    depth: int = 0

    def value(self, term: Term, names: Mapping[str, Value]) -> Value:
        """The value of a term. Raises SmtError where it has none, or is not covered."""
        self.steps += 1
        self.depth += 1
        if self.steps > MAX_STEPS or self.depth > MAX_DEPTH + 50:
            raise SmtError(f"the evaluation takes more than {MAX_STEPS:,} steps, or {MAX_DEPTH + 50} within each other")
        value = self._value(term, names)
        self.depth -= 1
        return value

    def _value(self, term: Term, names: Mapping[str, Value]) -> Value:
        if isinstance(term, str) and term in names:
            return names[term]
        constant = literal(term)
        if constant is not None:
            return constant
        if isinstance(term, str):
            return self._call(term, ())
        if not term:
            raise SmtError("() is no term")
        head, arguments = term[0], term[1:]
        if isinstance(head, str) and head in _LAZY:
            return self._lazy(head, arguments, names)
        values = [self.value(one, names) for one in arguments]
        return _indexed(head, values) if isinstance(head, tuple) else self._apply(head, values)

    def _apply(self, name: str, values: Sequence[Value]) -> Value:
        if name in ("=", "distinct"):
            given = _same(values, name)
            return (
                all(a == b for a, b in pairwise(given))
                if name == "="
                else all(a != b for a, b in combinations(given, 2))
            )
        if name == "not" and len(values) == 1:
            return not _truths(values, name)[0]
        if name == "xor" and len(values) > 1:
            return sum(_truths(values, name)) % 2 == 1
        if name in _ARITHMETIC:
            return _arithmetic(name, values)
        return _bitwise(name, values) if name in _BITS else self._call(name, values)

    def _call(self, name: str, values: Sequence[Value]) -> Value:
        function = self.functions.get(name)
        if function is None or len(function.parameters) != len(values):
            raise SmtError(f"{one_line(name, 60)} with {len(values)} arguments is nothing that is evaluated here")
        pairs = zip(function.parameters, values, strict=True)
        given = {parameter: of_sort(value, sort, parameter) for (parameter, sort), value in pairs}
        return of_sort(self.value(function.body, given), function.sort, name)

    def _lazy(self, name: str, arguments: Sequence[Term], names: Mapping[str, Value]) -> Value:
        if name == "!" and arguments:
            return self.value(arguments[0], names)
        if name == "let" and len(arguments) == 2:
            return self.value(arguments[1], {**names, **self._bound(arguments[0], names)})
        if name == "ite" and len(arguments) == 3:
            chosen = _truths([self.value(arguments[0], names)], name)[0]
            return self.value(arguments[1 if chosen else 2], names)
        if name not in ("and", "or", "=>") or not arguments or (name == "=>" and len(arguments) < 2):
            raise SmtError(f"{name} does not take {len(arguments)} terms")
        # Right-associative: an implication holds where a premise is false or its end is true.
        for one in arguments[:-1]:
            if _truths([self.value(one, names)], name)[0] is (name == "or"):
                return name != "and"
        return _truths([self.value(arguments[-1], names)], name)[0]

    def _bound(self, bindings: Term, names: Mapping[str, Value]) -> dict[str, Value]:
        bound: dict[str, Value] = {}
        for one in bindings:
            if (
                not (isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) and is_name(one[0]))
                or one[0] in bound
            ):
                raise SmtError(f"{_short(one)} binds no name")
            bound[one[0]] = self.value(one[1], names)
        return bound
