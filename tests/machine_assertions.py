"""Assertions whose outcome depends on the machine, found by reading code: clocks, processor time, memory in use.

A value is of the machine when it comes from a probe below, or is computed from such a value, also in another function.
An assertion about one is a fault, as `assert`, as `pytest.fail` behind a condition, or in a program kept in a string.
A loop that waits until a deadline is none. Not seen: values that travel through attributes, and what a call makes of
its arguments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import dedent

PROBES = {
    **dict.fromkeys(("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime"), "time"),
    **dict.fromkeys(("time_ns", "monotonic_ns", "perf_counter_ns", "process_time_ns", "thread_time_ns"), "time"),
    **dict.fromkeys(("getrusage",), "resource"),
    **dict.fromkeys(("get_traced_memory", "take_snapshot"), "tracemalloc"),
    **dict.fromkeys(("times", "getloadavg"), "os"),
    **dict.fromkeys(("timeit", "repeat", "default_timer"), "timeit"),
    **dict.fromkeys(("now", "utcnow", "today"), "datetime"),
    **dict.fromkeys(("memory_allocated", "max_memory_allocated", "max_memory_reserved"), "cuda"),
    **dict.fromkeys(("virtual_memory", "memory_info", "cpu_percent", "cpu_times"), "psutil"),
}
"""Functions, by name, and the module or class that they are called on."""
FILES = re.compile(r"/proc/\w+/(statm|smaps\w*|stat)\b|/proc/(meminfo|loadavg|uptime)\b|\bVm(RSS|HWM|Size|Peak)\b")
"""Files, and fields of files, that tell of memory and time."""
THROUGH = {"abs", "all", "any", "float", "fmean", "int", "max", "mean", "median", "min", "round", "sorted", "sum"}
"""Functions whose result is of the machine where an argument is."""
RECORDED = {"seconds", "latency"}
"""Attributes of results that hold a measured time."""
READS = {"open", "Path", "read_text", "read_bytes"}
"""Functions that read the files above."""
MENTIONS = re.compile(
    rf"\b({'|'.join(PROBES)})\b\s*\(|^\s*from ({'|'.join({*PROBES.values()})}) import"
    rf"|\.({'|'.join(RECORDED)})\b\s*<|{FILES.pattern}",
    re.MULTILINE,
)
"""What stands in every text that has a value of the machine, unless it has it from another module."""
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
Shared = Mapping[str, Mapping[str, tuple[bool, ...]]]
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Names:
    """What is of the machine in one scope: names of values, and functions that return such values."""

    probes: Mapping[str, str]
    """Names that were imported from a module of PROBES, and their names there."""
    values: set[str] = field(default_factory=set)
    functions: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)
    """For each part of a returned tuple, or for the one value that is returned, whether it is of the machine."""

    def is_probe(self, call: ast.Call) -> bool:
        """Whether a call asks a clock or a meter."""
        function = call.func
        if isinstance(function, ast.Name):
            return function.id in self.probes
        if not isinstance(function, ast.Attribute):
            return False
        home = PROBES.get(function.attr)
        if home is None:
            return False
        owner = ast.unparse(function.value).split(".")[-1].split("(")[0]
        return home in {owner, "psutil"} or (function.attr == "time" and owner.endswith("loop"))

    def parts(self, node: ast.expr) -> tuple[bool, ...]:
        """For each part of a tuple, or for the one value, whether it is of the machine."""
        if isinstance(node, ast.Tuple):
            return tuple(self.has(part) for part in node.elts)
        if isinstance(node, ast.Await):
            return self.parts(node.value)
        if isinstance(node, ast.Call) and runs_coroutine(node):
            return self.parts(node.args[0])
        if isinstance(node, ast.Call) and called(node) in self.functions:
            return self.functions[called(node)]
        return (self.has(node),)

    def has(self, node: ast.AST) -> bool:
        """Whether a value of the machine is in an expression."""
        if isinstance(node, ast.Name):
            return node.id in self.values
        if isinstance(node, ast.Constant):
            return isinstance(node.value, str) and bool(FILES.search(node.value))
        if isinstance(node, ast.Call):
            return self._is_of_call(node)
        return not isinstance(node, ast.Lambda) and any(map(self.has, ast.iter_child_nodes(node)))

    def _is_of_call(self, call: ast.Call) -> bool:
        """Whether a call gives a value of the machine."""
        if self.is_probe(call) or (runs_coroutine(call) and any(self.parts(call.args[0]))):
            return True
        if called(call) in self.functions:
            return any(self.functions[called(call)])
        if called(call) in THROUGH | READS:
            return any(map(self.has, ast.iter_child_nodes(call)))
        return isinstance(call.func, ast.Attribute) and self.has(call.func.value)


def called(call: ast.Call) -> str:
    """The name of the function that is called, whatever it is an attribute of; empty for none."""
    function = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def runs_coroutine(call: ast.Call) -> bool:
    """`asyncio.run(...)`, whose result is the coroutine's."""
    function = call.func
    is_run = isinstance(function, ast.Attribute) and function.attr == "run" and isinstance(function.value, ast.Name)
    return is_run and function.value.id == "asyncio" and bool(call.args)


def own_nodes(scope: Scope) -> Iterator[ast.AST]:
    """What belongs to a scope, in the order of the text; functions inside it are scopes of their own."""
    todo = list(reversed(scope.body))
    while todo:
        node: ast.AST = todo.pop()
        yield node
        if not isinstance(node, FUNCTIONS | ast.Lambda):
            todo += reversed(list(ast.iter_child_nodes(node)))


def bind(names: Names, target: ast.expr, parts: tuple[bool, ...]) -> None:
    """Note the names that take values of the machine."""
    if isinstance(target, ast.Tuple | ast.List):
        whole = parts if len(parts) == len(target.elts) else (any(parts),) * len(target.elts)
        for one, part in zip(target.elts, whole, strict=True):
            bind(names, one, (part,))
    elif isinstance(target, ast.Starred | ast.Subscript):
        bind(names, target.value, parts)
    elif isinstance(target, ast.Name) and any(parts):
        names.values.add(target.id)


def learn(names: Names, scope: Scope) -> None:
    """Note the names of a scope whose values are of the machine."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                bind(names, target, names.parts(node.value))
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            bind(names, node.target, names.parts(node.value))
        elif isinstance(node, ast.For | ast.comprehension):
            bind(names, node.target, (names.has(node.iter),))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            bind(names, node.optional_vars, (names.has(node.context_expr),))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if node.func.attr in {"append", "add", "extend", "insert"} and any(map(names.has, node.args)):
                bind(names, owner, (True,))


def returned(names: Names, scope: FUNCTIONS) -> tuple[bool, ...]:
    """What a function returns: for each part, whether it is of the machine."""
    found = [
        names.parts(node.value)
        for node in own_nodes(scope)
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None
    ]
    if len({len(one) for one in found}) > 1:
        return (any(any(one) for one in found),)
    return tuple(any(column) for column in zip(*found, strict=True))


def is_bound(node: ast.AST) -> bool:
    """Whether a recorded time must be less than a number: `played.seconds < 15`."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Attribute)
        and node.left.attr in RECORDED
        and isinstance(node.ops[0], ast.Lt | ast.LtE)
    )


def fails(node: ast.AST) -> bool:
    """`pytest.fail(...)` or `raise AssertionError`."""
    if isinstance(node, ast.Raise):
        return node.exc is not None and "AssertionError" in ast.unparse(node.exc)
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {"pytest.fail", "fail"}


def asserted(names: Names, scope: Scope) -> Iterator[int]:
    """Lines of a scope with an assertion about a value of the machine."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Assert) and (names.has(node.test) or any(map(is_bound, ast.walk(node.test)))):
            yield node.lineno
        elif isinstance(node, ast.If) and names.has(node.test):
            yield from (one.lineno for one in node.body if any(map(fails, ast.walk(one))))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "assert" in node.value:
            yield from (node.lineno for _ in machine_assertions(program(node.value)))


def program(text: str) -> ast.Module:
    """A string as a program, with names in place of what is filled in; an empty one where it is none."""
    try:
        return ast.parse(dedent(re.sub(r"\{+(\w+)\}+", r"\1", text)))
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def imports(tree: ast.Module) -> dict[str, str]:
    """Names in a module that are probes."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if PROBES.get(alias.name) == node.module
    }


def inner_functions(scope: Scope) -> list[FUNCTIONS]:
    """The functions that are defined in a scope, methods of its classes included."""
    return [node for node in own_nodes(scope) if isinstance(node, FUNCTIONS)]


def names_in(scope: Scope, outer: Names) -> Names:
    """What is of the machine in a scope, given what is where it stands."""
    given = (
        [] if isinstance(scope, ast.Module) else [one.arg for one in ast.walk(scope.args) if isinstance(one, ast.arg)]
    )
    functions, inner = dict(outer.functions), inner_functions(scope)
    for function in inner:
        functions.pop(function.name, None)
    names = Names(outer.probes, outer.values.difference(given), functions)
    for _ in range(2):  # a name may be used above the line that binds it
        for function in inner:
            if any(parts := returned(names_in(function, names), function)):
                functions[function.name] = parts
        learn(names, scope)
    return names


def faults(scope: Scope, outer: Names) -> Iterator[int]:
    """Lines of a scope, and of those in it, with an assertion about a value of the machine."""
    names = names_in(scope, outer)
    yield from asserted(names, scope)
    for function in inner_functions(scope):
        yield from faults(function, names)


def outside(tree: ast.Module, shared: Shared) -> Names:
    """What a module has from others."""
    functions = {
        alias.asname or alias.name: shared[home][alias.name]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (home := (node.module or "").rpartition(".")[2]) in shared
        for alias in node.names
        if alias.name in shared[home]
    }
    return Names(imports(tree), functions=functions)


def helpers(trees: Mapping[str, ast.Module]) -> Shared:
    """The functions of modules that return values of the machine, by module."""
    found: Shared = {}
    for _ in range(2):  # a helper may call one of another module
        found = {name: names_in(tree, outside(tree, found)).functions for name, tree in trees.items()}
    return {name: functions for name, functions in found.items() if functions}


def suspects(texts: Mapping[str, str]) -> dict[str, ast.Module]:
    """The modules, by name, that mention a clock or a meter, or import from one whose functions return its value."""
    found = {name: ast.parse(text) for name, text in texts.items() if MENTIONS.search(text)}
    while homes := helpers(found):
        imports_one = re.compile(rf"^\s*from (\w+\.)*({'|'.join(homes)}) import", re.MULTILINE)
        more = {name for name, text in texts.items() if name not in found and imports_one.search(text)}
        if not more:
            break
        found |= {name: ast.parse(texts[name]) for name in more}
    return found


def machine_assertions(tree: ast.Module, shared: Shared | None = None) -> list[int]:
    """Lines of a module with an assertion about a value of the machine; `shared`: what `helpers` found in others."""
    return sorted({*faults(tree, outside(tree, shared or {}))})
