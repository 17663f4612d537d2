"""Filter expressions over stored rollouts: `env == "wordle" and reward < 0.2 and stop in ("max_turns", "timeout")`.

    either  = both {"or" both}          both = one {"and" one}          one = "not" one | "(" either ")" | test
    test    = operand ("==" | "!=" | "<" | "<=" | ">" | ">=" | "contains") operand
            | operand ["not"] "in" "(" literal {"," literal} ")"
    operand = field | literal           literal = "text" | 'text' | number | null
    field   = name {"." (word | "text" | 'text')}      as reward, parts.format, metrics."any name"

Logic is two-valued: a comparison with a missing value is false, `!=` with a missing value is true; `x == null` tests
for it. `contains` distinguishes case. No text of an expression becomes SQL: fields are looked up, values are bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from wanderlust.errors import UsageError, one_line

MAX_FILTER_CHARS, MAX_FILTER_DEPTH = 2000, 40
"""Longest expression, and deepest nesting of brackets."""
MAX_NAMED_FIELDS = 60
"""Most fields that an error names."""
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
    |(?P<name>[^\W\d]\w*(?:\.(?:\w+|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))*)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<sign>==|!=|<=|>=|<|>|\(|\)|,)
    |(?P<end>$))""",
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(r"""\w+|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
_SIGNS = {"==": "is", "!=": "is not", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_WORDS = ("and", "or", "not", "in", "contains", "null")


class FilterError(UsageError):
    """The expression is invalid: `at` is the character (from 0) of the error, `fields` are the known fields."""

    def __init__(self, why: str, at: int, fields: tuple[str, ...]):
        more = f" and {len(fields) - MAX_NAMED_FIELDS} more" if len(fields) > MAX_NAMED_FIELDS else ""
        names = ", ".join(map(field_text, fields[:MAX_NAMED_FIELDS]))
        super().__init__(f"filter, column {at + 1}: {why}; fields: {names}{more}")
        self.at, self.fields = at, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlCondition:
    """The text after `where`, and the values for its question marks."""

    sql: str = "true"
    values: tuple[str | int | float, ...] = ()
    join: str = ""
    """The text behind the table in `from`, where a field lies in another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterField:
    """A column that filters may name."""

    column: str
    text: bool
    join: str = ""
    """What the table must be joined with for the column."""


def field_text(name: str) -> str:
    """A field's name as an expression names it: `parts.a b` is `parts."a b"`."""
    kind, dot, rest = name.partition(".")
    if not dot or re.fullmatch(r"\w+(\.\w+)*", rest):
        return name
    escaped = rest.replace("\\", "\\\\").replace('"', '\\"')
    return f'{kind}."{escaped}"'


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


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
    join: str = ""


def compile_filter(text: str, fields: Mapping[str, FilterField]) -> SqlCondition:
    """Compile an expression to a condition of SQL; an empty one holds for every row. Raises FilterError."""
    if len(text) > MAX_FILTER_CHARS:
        raise FilterError(f"longer than {MAX_FILTER_CHARS} characters", MAX_FILTER_CHARS, tuple(fields))
    if not text.strip():
        return SqlCondition()
    parser = _Parser(text, fields)
    condition = parser.either(0)
    if parser.current.kind != "end":
        parser.error(f"{one_line(parser.current.text, 40)!r} where and, or, or the end was expected")
    return condition


def _tokens(text: str, fields: tuple[str, ...]) -> Iterator[_Token]:
    place = 0
    while True:
        match = _TOKEN.match(text, place)
        if match is None:
            at = len(text) - len(text[place:].lstrip())
            why = (
                "a text without its closing quote" if text[at] in "\"'" else f"{one_line(text[at], 9)!r} means nothing"
            )
            raise FilterError(f"{why}{' (equal is ==)' if text[at] == '=' else ''}", at, fields)
        kind = str(match.lastgroup)
        yield _Token(kind=kind, text=match[kind], at=match.start(kind))
        if kind == "end":
            return
        place = match.end()


class _Parser:
    """Recursive descent over the tokens; every method parses the element of its name."""

    def __init__(self, text: str, fields: Mapping[str, FilterField]):
        self.fields = fields
        self.tokens = list(_tokens(text, tuple(fields)))
        self.place = 0

    @property
    def current(self) -> _Token:
        return self.tokens[self.place]

    def error(self, why: str, at: int | None = None) -> NoReturn:
        raise FilterError(why, self.current.at if at is None else at, tuple(self.fields))

    def take(self, *texts: str) -> str:
        """Take the current token if it is one of these words or signs; else return an empty text."""
        text = self.current.text
        if self.current.kind not in ("name", "sign") or text not in texts:
            return ""
        self.place += 1
        return text

    def either(self, depth: int) -> SqlCondition:
        conditions = [self.both(depth)]
        while self.take("or"):
            conditions.append(self.both(depth))
        return _joined(conditions, "or")

    def both(self, depth: int) -> SqlCondition:
        conditions = [self.one(depth)]
        while self.take("and"):
            conditions.append(self.one(depth))
        return _joined(conditions, "and")

    def one(self, depth: int) -> SqlCondition:
        if depth > MAX_FILTER_DEPTH:
            self.error(f"more than {MAX_FILTER_DEPTH} brackets within brackets")
        if self.take("not"):
            return _negate(self.one(depth + 1))
        if not self.take("("):
            return self.test()
        condition = self.either(depth + 1)
        if not self.take(")"):
            self.error("a closing bracket is missing")
        return condition

    def test(self) -> SqlCondition:
        left = self.operand()
        if self.take("not"):
            if not self.take("in"):
                self.error("in is missing behind not")
            return _negate(self.among(left))
        if self.take("in"):
            return self.among(left)
        sign = self.take(*_SIGNS, "contains")
        if not sign:
            self.error("a comparison is missing: == != < <= > >= in contains")
        right = self.operand()
        self.match(left, right, sign)
        values, join = left.values + right.values, left.join or right.join
        if sign == "contains":
            return SqlCondition(sql=f"instr({left.sql}, {right.sql}) > 0", values=values, join=join)
        return SqlCondition(sql=f"{left.sql} {_SIGNS[sign]} {right.sql}", values=values, join=join)

    def match(self, left: _Operand, right: _Operand, sign: str) -> None:
        """Raise FilterError where the two cannot be compared."""
        if left.field is None and right.field is None:
            self.error("two values are compared: one side must be a field", left.at)
        if sign == "contains" and (left.field is None or "number" in (left.kind, right.kind) or right.kind == "null"):
            self.error("contains needs a field of text before it and a text behind it", left.at)
        kinds = {left.kind, right.kind} - {"null"}
        if len(kinds) == 2:
            field, value = (left, right) if left.field else (right, left)
            self.error(f"{field.field} is a {field.kind} and cannot be compared with a {value.kind}", value.at)
        if "null" in (left.kind, right.kind) and sign not in ("==", "!="):
            self.error("null can only be compared with == and !=", right.at)

    def among(self, left: _Operand) -> SqlCondition:
        if left.field is None:
            self.error("before in there must be a field", left.at)
        if not self.take("("):
            self.error("in needs brackets: in (1, 2)")
        operands = [self.value(left)]
        while self.take(","):
            operands.append(self.value(left))
        if not self.take(")"):
            self.error("a closing bracket is missing")
        tests = [
            SqlCondition(sql=f"{left.sql} is {operand.sql}", values=left.values + operand.values, join=left.join)
            for operand in operands
        ]
        return _joined(tests, "or")

    def value(self, left: _Operand) -> _Operand:
        operand = self.operand()
        if operand.field is not None:
            self.error("in the brackets of in there must be values", operand.at)
        self.match(left, operand, "==")
        return operand

    def operand(self) -> _Operand:
        token = self.current
        if token.kind in ("end", "sign") or (token.kind == "name" and token.text in _WORDS[:-1]):
            self.error("a field or a value is missing" + ("" if token.kind == "end" else f" before {token.text!r}"))
        self.place += 1
        if token.kind == "number":
            whole = token.text.lstrip("-").isdecimal() and abs(int(token.text)) < 2**63  # what SQLite can hold
            return _Operand(at=token.at, kind="number", values=(int(token.text) if whole else float(token.text),))
        if token.kind == "text":
            return _Operand(at=token.at, kind="text", values=(_unquote(token.text),))
        if token.text == "null":
            return _Operand(at=token.at, kind="null", sql="null")
        words = [_unquote(word) if word[0] in "\"'" else word for word in _WORD.findall(token.text)]
        field = self.fields.get(".".join(words))
        if field is None:
            self.error(f"no field {one_line(token.text, 40)!r} (a text needs quotes)", token.at)
        kind = "text" if field.text else "number"
        return _Operand(at=token.at, kind=kind, field=token.text, sql=field.column, join=field.join)


def _joined(parts: list[SqlCondition], word: str) -> SqlCondition:
    if len(parts) == 1:
        return parts[0]
    values = tuple(value for part in parts for value in part.values)
    join = next((part.join for part in parts if part.join), "")
    return SqlCondition(sql=f"({f' {word} '.join(part.sql for part in parts)})", values=values, join=join)


def _negate(part: SqlCondition) -> SqlCondition:
    return replace(part, sql=f"not coalesce({part.sql}, false)")
