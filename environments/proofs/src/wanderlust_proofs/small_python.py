"""A small part of Python, run by an interpreter of our own: whole numbers, truth values, and lists of them.

A program is one function of assignments, `if`, `while`, `for`, `return`, and calls of itself and of a few functions of
Python's. It has no names from outside, no attributes and no imports, and ends after a number of steps: so it needs no
sandbox, and has the same result everywhere. Expressions alone are run the same way.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from wanderlust.errors import WanderlustError, one_line

Value: TypeAlias = Any
"""An int, a bool, or a list of such."""

MAX_STEPS = 20_000
MAX_SIZE = 10_000
"""Items of a list; and bits of a number."""
MAX_DEPTH = 60
"""Calls of itself that may wait."""
MAX_SOURCE = 20_000
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "all": all,
    "any": any,
    "len": len,
    "list": list,
    "max": max,
    "min": min,
    "range": lambda *bounds: list(_bounded_range(*bounds)),
    "reversed": lambda items: list(reversed(items)),
    "sorted": sorted,
    "sum": sum,
}


class ProgramError(WanderlustError):
    """A program or contract that is malformed, or fails, in one line."""


class _Return(Exception):
    def __init__(self, value: Value):
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


def _bounded_range(*bounds: int) -> range:
    made = range(*bounds)
    if len(made) > MAX_SIZE:
        raise ProgramError(f"a range of more than {MAX_SIZE:,} numbers")
    return made


@dataclass(frozen=True, slots=True)
class SmallProgram:
    """A parsed function."""

    node: ast.FunctionDef

    @property
    def name(self) -> str:
        """The function's name."""
        return self.node.name

    @property
    def parameters(self) -> list[str]:
        """Names of its arguments."""
        return [one.arg for one in self.node.args.args]

    def run(self, arguments: Sequence[Value]) -> Value:
        """The result. Raises ProgramError where it fails, or does not end in `MAX_STEPS`."""
        return _Run(self).call(arguments)


def parse_program(source: str) -> SmallProgram:
    """Parse one function. Raises ProgramError for anything beside it, and for what is not in this part of Python."""
    if len(source) > MAX_SOURCE:
        raise ProgramError(f"the program has more than {MAX_SOURCE:,} characters")
    try:
        tree = _parsed(source, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProgramError(f"this is no Python: {one_line(str(error))}") from error
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise ProgramError("a program is one function, and nothing beside it")
    node = tree.body[0]
    more = node.args.posonlyargs + node.args.kwonlyargs
    if more or node.args.vararg or node.args.kwarg or node.args.defaults or node.decorator_list:
        raise ProgramError("a function has plain arguments without defaults, and no decorator")
    return SmallProgram(node)


def _parsed(source: str, mode: str) -> Any:
    """Python's own reading, without its warnings about odd spellings such as `1if`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return ast.parse(source, mode=mode)


def parse_expression(text: str) -> ast.expr:
    """Parse an expression. Raises ProgramError."""
    try:
        return _parsed(text.strip(), "eval").body  # type: ignore[no-any-return]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProgramError(f"{one_line(text, 60)!r} is no expression: {one_line(str(error))}") from error


def is_function(name: str) -> bool:
    """Whether a name is one of the functions that a program may call beside itself."""
    return name in _FUNCTIONS


def evaluate_expression(expression: ast.expr, names: Mapping[str, Value]) -> Value:
    """The value of an expression. Raises ProgramError."""
    return _Run(None).guarded(lambda run: run.value(expression, dict(names)))


class _Run:
    """One run, with its steps."""

    def __init__(self, program: SmallProgram | None):
        self.program, self.steps, self.depth = program, 0, 0

    def guarded(self, work: Callable[[_Run], Value]) -> Value:
        """Python's own errors as ProgramError."""
        try:
            return work(self)
        except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError, MemoryError) as error:
            raise ProgramError(f"{type(error).__name__}: {one_line(str(error), 100)}") from error

    def call(self, arguments: Sequence[Value]) -> Value:
        """Run the function."""
        return self.guarded(lambda run: run._call(arguments))

    def _call(self, arguments: Sequence[Value]) -> Value:
        program = self.program
        if program is None or len(arguments) != len(program.parameters):
            raise ProgramError(f"the function takes {len(program.parameters) if program else 0} arguments")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ProgramError(f"the function calls itself more than {MAX_DEPTH} times")
        copies = [list(one) if isinstance(one, list) else one for one in arguments]
        try:
            self._block(program.node.body, dict(zip(program.parameters, copies, strict=True)))
        except _Return as result:
            return result.value
        except (_Break, _Continue) as error:
            raise ProgramError("break or continue outside of a loop") from error
        finally:
            self.depth -= 1
        raise ProgramError("the function ends without a return")

    def _step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise ProgramError(f"more than {MAX_STEPS:,} steps")

    def _block(self, body: Sequence[ast.stmt], names: dict[str, Value]) -> None:
        for statement in body:
            self._step()
            self._statement(statement, names)

    def _statement(self, node: ast.stmt, names: dict[str, Value]) -> None:
        run = _STATEMENTS.get(type(node))
        if run is None:
            raise ProgramError(f"line {node.lineno}: {type(node).__name__} is not in this part of Python")
        run(self, node, names)

    def _return(self, node: ast.Return, names: dict[str, Value]) -> None:
        if node.value is None:
            raise ProgramError("a return without a value")
        raise _Return(self.value(node.value, names))

    def _assignment(self, node: ast.Assign, names: dict[str, Value]) -> None:
        value = self.value(node.value, names)
        for target in node.targets:
            self._assign(target, value, names)

    def _augmented(self, node: ast.AugAssign, names: dict[str, Value]) -> None:
        if not isinstance(node.target, ast.Name):
            raise ProgramError("only names are changed in place")
        before = self._name(node.target.id, names)
        names[node.target.id] = self._binary(node.op, before, self.value(node.value, names))

    def _if(self, node: ast.If, names: dict[str, Value]) -> None:
        self._block(node.body if self.value(node.test, names) else node.orelse, names)

    def _while(self, node: ast.While, names: dict[str, Value]) -> None:
        self._loop(node, iter(lambda: bool(self.value(node.test, names)), False), names)

    def _for(self, node: ast.For, names: dict[str, Value]) -> None:
        self._loop(node, iter(list(self.value(node.iter, names))), names)

    def _break(self, node: ast.Break, names: dict[str, Value]) -> None:
        raise _Break

    def _continue(self, node: ast.Continue, names: dict[str, Value]) -> None:
        raise _Continue

    def _nothing(self, node: ast.stmt, names: dict[str, Value]) -> None:
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
            raise ProgramError(f"line {node.lineno}: an expression whose value goes nowhere")

    def _loop(self, node: ast.While | ast.For, rounds: Iterator[Value], names: dict[str, Value]) -> None:
        if node.orelse:
            raise ProgramError(f"line {node.lineno}: a loop with else")
        for item in rounds:
            self._step()
            if isinstance(node, ast.For):
                self._assign(node.target, item, names)
            try:
                self._block(node.body, names)
            except _Break:
                return
            except _Continue:
                continue

    def _assign(self, target: ast.expr, value: Value, names: dict[str, Value]) -> None:
        match target:
            case ast.Name(id=name):
                names[name] = value
            case ast.Tuple(elts=parts) if isinstance(value, list | tuple) and len(parts) == len(value):
                for part, one in zip(parts, value, strict=True):
                    self._assign(part, one, names)
            case ast.Subscript(value=ast.Name(id=name), slice=at):
                self._name(name, names)[self.value(at, names)] = value
            case _:
                raise ProgramError("only names, items of lists and tuples of names are assigned to")

    def _name(self, name: str, names: Mapping[str, Value]) -> Value:
        if name not in names:
            raise ProgramError(f"there is no {one_line(name, 40)}")
        return names[name]

    def value(self, node: ast.expr, names: dict[str, Value]) -> Value:
        """The value of an expression."""
        self._step()
        evaluate_node = _EXPRESSIONS.get(type(node))
        if evaluate_node is None:
            raise ProgramError(f"{type(node).__name__} is not in this part of Python")
        return evaluate_node(self, node, names)

    def _constant(self, node: ast.Constant, names: dict[str, Value]) -> Value:
        if not isinstance(node.value, int):
            raise ProgramError("numbers are whole, and there is no text")
        return node.value

    def _named(self, node: ast.Name, names: dict[str, Value]) -> Value:
        return self._name(node.id, names)

    def _operation(self, node: ast.BinOp, names: dict[str, Value]) -> Value:
        return self._binary(node.op, self.value(node.left, names), self.value(node.right, names))

    def _unary(self, node: ast.UnaryOp, names: dict[str, Value]) -> Value:
        value = self.value(node.operand, names)
        if isinstance(node.op, ast.Not):
            return not value
        if isinstance(node.op, ast.USub):
            return -value
        raise ProgramError(f"{type(node.op).__name__} is not in this part of Python")

    def _logic(self, node: ast.BoolOp, names: dict[str, Value]) -> Value:
        wants_all = isinstance(node.op, ast.And)
        value: Value = wants_all
        for one in node.values:
            value = self.value(one, names)
            if bool(value) != wants_all:
                return value
        return value

    def _choice(self, node: ast.IfExp, names: dict[str, Value]) -> Value:
        return self.value(node.body if self.value(node.test, names) else node.orelse, names)

    def _items(self, node: ast.List | ast.Tuple, names: dict[str, Value]) -> Value:
        return [self.value(one, names) for one in node.elts]

    def _item(self, node: ast.Subscript, names: dict[str, Value]) -> Value:
        if not isinstance(node.slice, ast.Slice):
            return self.value(node.value, names)[self.value(node.slice, names)]
        parts = (node.slice.lower, node.slice.upper, node.slice.step)
        bounds = [None if one is None else self.value(one, names) for one in parts]
        return self.value(node.value, names)[slice(*bounds)]

    def _called(self, node: ast.Call, names: dict[str, Value]) -> Value:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise ProgramError("functions are called by name, with plain arguments")
        return self._function(node.func.id, [self.value(one, names) for one in node.args])

    def _binary(self, op: ast.operator, left: Value, right: Value) -> Value:
        if type(op) not in _BINARY:
            raise ProgramError(f"{type(op).__name__} is not in this part of Python")
        if isinstance(op, ast.Mult) and (isinstance(left, list) or isinstance(right, list)):
            times = right if isinstance(left, list) else left
            if isinstance(times, int) and times > MAX_SIZE:
                raise ProgramError("a list is too long")
        result = _BINARY[type(op)](left, right)
        size = len(result) if isinstance(result, list) else result.bit_length()
        if size > MAX_SIZE:
            raise ProgramError("a list is too long, or a number too large")
        return result

    def _comparison(self, node: ast.Compare, names: dict[str, Value]) -> bool:
        left = self.value(node.left, names)
        for op, other in zip(node.ops, node.comparators, strict=True):
            if type(op) not in _COMPARE:
                raise ProgramError(f"{type(op).__name__} is not in this part of Python")
            right = self.value(other, names)
            if not _COMPARE[type(op)](left, right):
                return False
            left = right
        return True

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp, names: dict[str, Value]) -> list[Value]:
        found: list[Value] = []

        def descend(at: int, inner: dict[str, Value]) -> None:
            if at == len(node.generators):
                found.append(self.value(node.elt, inner))
                return
            part = node.generators[at]
            for item in list(self.value(part.iter, inner)):
                self._assign(part.target, item, inner)
                if all(self.value(one, inner) for one in part.ifs):
                    descend(at + 1, dict(inner))

        descend(0, dict(names))
        return found

    def _function(self, name: str, arguments: list[Value]) -> Value:
        if self.program is not None and name == self.program.name:
            return self._call(arguments)
        if name not in _FUNCTIONS:
            raise ProgramError(f"there is no function {one_line(name, 40)}")
        self.steps += sum(len(one) for one in arguments if isinstance(one, list))
        return _FUNCTIONS[name](*arguments)


_STATEMENTS: Mapping[type[ast.stmt], Callable[[_Run, Any, dict[str, Value]], None]] = {
    ast.Return: _Run._return,
    ast.Assign: _Run._assignment,
    ast.AugAssign: _Run._augmented,
    ast.If: _Run._if,
    ast.While: _Run._while,
    ast.For: _Run._for,
    ast.Break: _Run._break,
    ast.Continue: _Run._continue,
    ast.Pass: _Run._nothing,
    ast.Expr: _Run._nothing,
}
_EXPRESSIONS: Mapping[type[ast.expr], Callable[[_Run, Any, dict[str, Value]], Value]] = {
    ast.Constant: _Run._constant,
    ast.Name: _Run._named,
    ast.BinOp: _Run._operation,
    ast.UnaryOp: _Run._unary,
    ast.BoolOp: _Run._logic,
    ast.Compare: _Run._comparison,
    ast.IfExp: _Run._choice,
    ast.List: _Run._items,
    ast.Tuple: _Run._items,
    ast.Subscript: _Run._item,
    ast.ListComp: _Run._comprehension,
    ast.GeneratorExp: _Run._comprehension,
    ast.Call: _Run._called,
}
