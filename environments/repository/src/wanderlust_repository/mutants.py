"""One-place changes of Python sources, written back to the text: the rest of the file stays byte for byte."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_FLIPPED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.In: ("in", "not in"),
    ast.Is: ("is", "is not"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
"""What stands between two operands, and what takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Bytes `start` to `end` of a file become `new`."""

    path: str
    start: int
    end: int
    old: str
    new: str
    kind: str
    """`compare`, `arithmetic`, `boolean`, `constant`, `condition`, `return`, `statement`, `argument` or `removed`."""
    line: int
    function: str
    """Qualified name of the function that it is in."""
    first_line: int
    """First line of that function, decorators included."""

    def apply(self, text: bytes) -> bytes:
        """The file with the change."""
        return text[: self.start] + self.new.encode() + text[self.end :]

    @property
    def removes_function(self) -> bool:
        """Whether a function's whole body is gone."""
        return self.kind == "removed"


class _Places:
    """Byte positions of syntax nodes; the parser counts columns in UTF-8 bytes."""

    def __init__(self, text: bytes):
        self.text = text
        self.starts = [0, *accumulate(len(line) for line in text.splitlines(keepends=True))]

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins and ends."""
        at = self.starts
        first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        return at[first - 1] + node.col_offset, at[last - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def code(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end].decode()

    def line(self, position: int) -> int:
        """The line of a position, counted from 1."""
        return bisect_right(self.starts, position)


_Change = tuple[int, int, str, str]
"""Start, end, new text, kind."""


def find_edits(path: str, text: bytes) -> list[Edit]:
    """All one-place changes of the functions of a file, in the order of the text, and its removable functions.

    Nothing for a file that is no Python of this interpreter, has form feeds, or is not UTF-8.
    """
    try:
        tree = ast.parse(text)
        text.decode()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    if any(mark in text for mark in (b"\x0c", b"\x0b", b"\x1c", b"\x1d", b"\x1e", b"\x85", b"\xe2\x80\xa8")):
        return []  # the parser and `splitlines` may count lines differently
    if text.startswith(b"\xef\xbb\xbf") or b"\r" in text:
        return []
    places = _Places(text)
    edits: dict[tuple[int, int, str], Edit] = {}
    for function, name in _functions(tree):
        first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
        for start, end, new, kind in [*_removals(function, places), *_changes(function, places)]:
            old = text[start:end].decode()
            edit = Edit(
                path=path,
                start=start,
                end=end,
                old=old,
                new=new,
                kind=kind,
                line=places.line(start),
                function=name,
                first_line=first,
            )
            if old != new:
                edits.setdefault((start, end, new), edit)
    return sorted(edits.values(), key=lambda edit: (edit.start, edit.end, edit.new))


def still_parses(edit: Edit, text: bytes) -> bool:
    """Whether the file with the change is Python."""
    try:
        ast.parse(edit.apply(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[FUNCTIONS, str]]:
    """Functions and methods with their qualified names; functions inside functions belong to the outer one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTIONS):
            yield node, f"{prefix}{node.name}"
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _functions(node, prefix)


def _body(function: FUNCTIONS) -> list[ast.stmt]:
    """The statements after the docstring."""
    return function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body


def _removals(function: FUNCTIONS, places: _Places) -> Iterator[_Change]:
    """The whole body, where it has at least three lines."""
    body = _body(function)
    if not body or (body[-1].end_lineno or 0) - body[0].lineno < 2 or function.name == "__init__":
        return
    first = min([body[0].lineno, *(one.lineno for one in getattr(body[0], "decorator_list", []))])
    start = places.starts[first - 1] + body[0].col_offset
    if places.text[places.starts[first - 1] : start].strip():
        return  # on one line with the signature
    yield start, places.span(body[-1])[1], "raise NotImplementedError", "removed"


def _changes(function: FUNCTIONS, places: _Places) -> Iterator[_Change]:
    hints = {id(part) for node in ast.walk(function) for hint in _annotations(node) for part in ast.walk(hint)}
    literal = {
        id(part) for node in ast.walk(function) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
    }  # positions inside f-strings are of the whole string before Python 3.12
    for node in (one for statement in _body(function) for one in ast.walk(statement)):
        if id(node) in hints or id(node) in literal:
            continue
        for kind, change in _OPERATORS.items():
            if isinstance(node, kind):
                yield from change(node, places)
    for default in [*function.args.defaults, *(d for d in function.args.kw_defaults if d is not None)]:
        if isinstance(default, ast.Constant):
            yield from _constant(default, places)


def _annotations(node: ast.AST) -> list[ast.AST]:
    return [hint for name in ("annotation", "returns") if isinstance(hint := getattr(node, name, None), ast.AST)]


def _between(places: _Places, left: ast.AST, right: ast.AST, *, operator: ast.AST) -> Iterator[_Change]:
    """Exchange the operator that stands between two operands."""
    if type(operator) not in _FLIPPED:
        return
    old, new = _FLIPPED[type(operator)]
    start, end = places.span(left)[1], places.span(right)[0]
    gap = places.text[start:end].decode()
    found = re.findall(rf"(?<![\w<>=!*/+-]){re.escape(old)}(?![\w<>=*/])", gap)
    if len(found) != 1 or "#" in gap or "\\" in gap:
        return
    at = start + len(gap[: gap.index(old)].encode())
    kind = "boolean" if isinstance(operator, ast.boolop) else "arithmetic"
    yield at, at + len(old), new, "compare" if isinstance(operator, ast.cmpop) else kind


def _compare(node: ast.Compare, places: _Places) -> Iterator[_Change]:
    left = node.left
    for operator, right in zip(node.ops, node.comparators, strict=True):
        yield from _between(places, left, right, operator=operator)
        left = right


def _binary(node: ast.BinOp, places: _Places) -> Iterator[_Change]:
    if not (isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant)):  # formats a text
        yield from _between(places, node.left, node.right, operator=node.op)


def _boolean(node: ast.BoolOp, places: _Places) -> Iterator[_Change]:
    for left, right in zip(node.values, node.values[1:], strict=False):
        if len(node.values) == 2:
            yield from _between(places, left, right, operator=node.op)
        else:  # leave one operand out
            yield places.span(left)[1], places.span(right)[1], "", "boolean"


def _not(node: ast.UnaryOp, places: _Places) -> Iterator[_Change]:
    start, end = places.span(node)
    if isinstance(node.op, ast.Not):
        yield start, end, f"({places.code(node.operand)})", "boolean"
    elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield start, end, f"({places.code(node.operand)})", "arithmetic"


def _constant(node: ast.Constant, places: _Places) -> Iterator[_Change]:
    start, end = places.span(node)
    value = node.value
    if isinstance(value, bool):
        yield start, end, str(not value), "constant"
    elif isinstance(value, int) and places.text[start:end].isdigit():
        yield start, end, str(value + 1), "constant"
        if value > 1:
            yield start, end, str(value - 1), "constant"


def _condition(node: ast.If | ast.While | ast.IfExp, places: _Places) -> Iterator[_Change]:
    start, end = places.span(node.test)
    if not isinstance(node.test, ast.UnaryOp | ast.Constant) and places.line(start) == places.line(end):
        yield start, end, f"not ({places.code(node.test)})", "condition"
        if isinstance(node, ast.If):
            yield start, end, "False", "condition"


def _return(node: ast.Return, places: _Places) -> Iterator[_Change]:
    if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        start, end = places.span(node.value)
        yield start, end, "None", "return"
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
            first, second = node.value.elts
            inner = f"{places.code(second)}, {places.code(first)}"
            parenthesised = places.text[start : start + 1] == b"("
            yield start, end, f"({inner})" if parenthesised else inner, "return"


def _statement(node: ast.stmt, places: _Places) -> Iterator[_Change]:
    """Leave a statement out, unless names would be missing without it."""
    start, end = places.span(node)
    if isinstance(node, ast.Assign) and not all(isinstance(t, ast.Attribute | ast.Subscript) for t in node.targets):
        return
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call | ast.Await):
        return
    yield start, end, "pass", "statement"


def _jump(node: ast.Break | ast.Continue, places: _Places) -> Iterator[_Change]:
    start, end = places.span(node)
    yield start, end, "continue" if isinstance(node, ast.Break) else "break", "statement"


def _call(node: ast.Call, places: _Places) -> Iterator[_Change]:
    """Exchange two neighbours among the arguments, or leave a keyword out."""
    for left, right in zip(node.args, node.args[1:], strict=False):
        if isinstance(left, ast.Starred) or isinstance(right, ast.Starred):
            continue
        (start, a), (b, end) = places.span(left), places.span(right)
        gap = places.text[a:b].decode()
        if gap.strip() == ",":
            yield start, end, f"{places.code(right)}{gap}{places.code(left)}", "argument"
    for before, keyword in zip(node.keywords, node.keywords[1:], strict=False):
        if keyword.arg is not None and before.arg is not None:
            yield places.span(before)[1], places.span(keyword)[1], "", "argument"


def _augmented(node: ast.AugAssign, places: _Places) -> Iterator[_Change]:
    old, new = _FLIPPED.get(type(node.op), ("", ""))
    start, end = places.span(node.target)[1], places.span(node.value)[0]
    gap = places.text[start:end].decode()
    if old and gap.strip() == f"{old}=":
        yield start, end, gap.replace(f"{old}=", f"{new}="), "arithmetic"
    yield from _statement(node, places)


_OPERATORS: dict[type[ast.AST], Callable[..., Iterator[_Change]]] = {
    ast.Compare: _compare,
    ast.BinOp: _binary,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _not,
    ast.Constant: _constant,
    ast.If: _condition,
    ast.While: _condition,
    ast.IfExp: _condition,
    ast.Return: _return,
    ast.Assign: _statement,
    ast.Expr: _statement,
    ast.Break: _jump,
    ast.Continue: _jump,
    ast.Call: _call,
    ast.AugAssign: _augmented,
}
