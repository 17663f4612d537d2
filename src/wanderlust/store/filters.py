"""Filter expressions over stored rollouts: `env == "wordle" and reward < 0.2 and stop in ("max_turns", "timeout")`.

    either  = both {"or" both}          both = one {"and" one}          one = "not" one | "(" either ")" | test
    test    = operand ("==" | "!=" | "<" | "<=" | ">" | ">=" | "contains") operand
            | operand ["not"] "in" "(" literal {"," literal} ")"
    operand = field | literal           literal = "text" | 'text' | number | null

Logic is two-valued: a comparison with a missing value is false, `!=` with a missing value is true; `x == null` asks
for it. `contains` distinguishes case. What is written never becomes SQL: fields are looked up, values are bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from wanderlust.errors import UsageError, one_line

LONGEST, DEEPEST = 2000, 40
"""Characters of an expression, and brackets within brackets."""
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
    |(?P<name>[^\W\d]\w*)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<sign>==|!=|<=|>=|<|>|\(|\)|,)
    |(?P<end>$))""",
    re.VERBOSE | re.DOTALL,
)
_SIGNS = {"==": "is", "!=": "is not", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_WORDS = ("and", "or", "not", "in", "contains", "null")


class FilterError(UsageError):
    """The expression means nothing: `at` is the character (from 0) where it is wrong, `fields` what can be named."""

    def __init__(self, why: str, at: int, fields: tuple[str, ...]):
        super().__init__(f"filter, column {at + 1}: {why}; fields: {', '.join(fields)}")
        self.at, self.fields = at, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What goes behind `where`, and the values for its question marks."""

    sql: str = "true"
    values: tuple[str | int | float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column that can be asked for."""

    column: str
    text: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    kind: str
    text: str
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operand:
    at: int
    kind: str
    """`text`, `number` or `null`."""
    field: str | None = None
    sql: str = "?"
    values: tuple[str | int | float, ...] = ()


def compiled(text: str, fields: Mapping[str, Field]) -> Condition:
    """The expression as a condition of SQL; an empty one holds for every row. Raises FilterError."""
    if len(text) > LONGEST:
        raise FilterError(f"longer than {LONGEST} characters", LONGEST, tuple(fields))
    if not text.strip():
        return Condition()
    parser = _Parser(text, fields)
    found = parser.either(0)
    if parser.now.kind != "end":
        parser.wrong(f"{one_line(parser.now.text, 40)!r} where and, or, or the end was expected")
    return found


def _tokens(text: str, fields: tuple[str, ...]) -> Iterator[_Token]:
    place = 0
    while True:
        found = _TOKEN.match(text, place)
        if found is None:
            at = len(text) - len(text[place:].lstrip())
            why = (
                "a text without its closing quote" if text[at] in "\"'" else f"{one_line(text[at], 9)!r} means nothing"
            )
            raise FilterError(f"{why}{' (equal is ==)' if text[at] == '=' else ''}", at, fields)
        kind = str(found.lastgroup)
        yield _Token(kind=kind, text=found[kind], at=found.start(kind))
        if kind == "end":
            return
        place = found.end()


class _Parser:
    """Recursive descent over the tokens; every method reads what it is named after and leaves the rest."""

    def __init__(self, text: str, fields: Mapping[str, Field]):
        self.fields = fields
        self.tokens = list(_tokens(text, tuple(fields)))
        self.place = 0

    @property
    def now(self) -> _Token:
        return self.tokens[self.place]

    def wrong(self, why: str, at: int | None = None) -> NoReturn:
        raise FilterError(why, self.now.at if at is None else at, tuple(self.fields))

    def took(self, *texts: str) -> str:
        """The token, if it is one of these words or signs, and then it is read; else nothing."""
        text = self.now.text
        if self.now.kind not in ("name", "sign") or text not in texts:
            return ""
        self.place += 1
        return text

    def either(self, depth: int) -> Condition:
        found = [self.both(depth)]
        while self.took("or"):
            found.append(self.both(depth))
        return _joined(found, "or")

    def both(self, depth: int) -> Condition:
        found = [self.one(depth)]
        while self.took("and"):
            found.append(self.one(depth))
        return _joined(found, "and")

    def one(self, depth: int) -> Condition:
        if depth > DEEPEST:
            self.wrong(f"more than {DEEPEST} brackets within brackets")
        if self.took("not"):
            return _denied(self.one(depth + 1))
        if not self.took("("):
            return self.test()
        found = self.either(depth + 1)
        if not self.took(")"):
            self.wrong("a closing bracket is missing")
        return found

    def test(self) -> Condition:
        left = self.operand()
        if self.took("not"):
            if not self.took("in"):
                self.wrong("in is missing behind not")
            return _denied(self.among(left))
        if self.took("in"):
            return self.among(left)
        sign = self.took(*_SIGNS, "contains")
        if not sign:
            self.wrong("a comparison is missing: == != < <= > >= in contains")
        right = self.operand()
        self.match(left, right, sign)
        values = left.values + right.values
        if sign == "contains":
            return Condition(sql=f"instr({left.sql}, {right.sql}) > 0", values=values)
        return Condition(sql=f"{left.sql} {_SIGNS[sign]} {right.sql}", values=values)

    def match(self, left: _Operand, right: _Operand, sign: str) -> None:
        """Raises FilterError where such two cannot be compared."""
        if left.field is None and right.field is None:
            self.wrong("two values are compared: one side must be a field", left.at)
        if sign == "contains" and (left.field is None or "number" in (left.kind, right.kind) or right.kind == "null"):
            self.wrong("contains needs a field of text before it and a text behind it", left.at)
        kinds = {left.kind, right.kind} - {"null"}
        if len(kinds) == 2:
            field, value = (left, right) if left.field else (right, left)
            self.wrong(f"{field.field} is a {field.kind} and cannot be compared with a {value.kind}", value.at)
        if "null" in (left.kind, right.kind) and sign not in ("==", "!="):
            self.wrong("null can only be compared with == and !=", right.at)

    def among(self, left: _Operand) -> Condition:
        if left.field is None:
            self.wrong("before in there must be a field", left.at)
        if not self.took("("):
            self.wrong("in needs brackets: in (1, 2)")
        found = [self.value(left)]
        while self.took(","):
            found.append(self.value(left))
        if not self.took(")"):
            self.wrong("a closing bracket is missing")
        return _joined([Condition(sql=f"{left.sql} is {v.sql}", values=left.values + v.values) for v in found], "or")

    def value(self, left: _Operand) -> _Operand:
        found = self.operand()
        if found.field is not None:
            self.wrong("in the brackets of in there must be values", found.at)
        self.match(left, found, "==")
        return found

    def operand(self) -> _Operand:
        token = self.now
        if token.kind in ("end", "sign") or (token.kind == "name" and token.text in _WORDS[:-1]):
            self.wrong("a field or a value is missing" + ("" if token.kind == "end" else f" before {token.text!r}"))
        self.place += 1
        if token.kind == "number":
            return _Operand(at=token.at, kind="number", values=(_number(token.text),))
        if token.kind == "text":
            return _Operand(at=token.at, kind="text", values=(re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.S),))
        if token.text == "null":
            return _Operand(at=token.at, kind="null", sql="null")
        field = self.fields.get(token.text)
        if field is None:
            self.wrong(f"no field {one_line(token.text, 40)!r} (a text needs quotes)", token.at)
        return _Operand(at=token.at, kind="text" if field.text else "number", field=token.text, sql=field.column)


def _number(text: str) -> int | float:
    """Whole numbers as such where the file can hold them."""
    if text.lstrip("-").isdecimal() and abs(int(text)) < 2**63:
        return int(text)
    return float(text)


def _joined(parts: list[Condition], word: str) -> Condition:
    if len(parts) == 1:
        return parts[0]
    values = tuple(value for part in parts for value in part.values)
    return Condition(sql=f"({f' {word} '.join(part.sql for part in parts)})", values=values)


def _denied(part: Condition) -> Condition:
    return Condition(sql=f"not coalesce({part.sql}, false)", values=part.values)
