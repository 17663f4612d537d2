"""Sentinels: a task's failing tests, changed so that they must fail on right code.

Each comparison of a test is with a value that nothing equals, each other assertion is negated. A result that passes a
sentinel comes from objects that are equal to everything, or from a runner that reports success whatever happens.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Mapping

NEVER_EQUAL = "sentinel of the judgement"
_PAIRS = ("equal", "eq", "is", "is_", "same", "almost")


class _Spoil(ast.NodeTransformer):
    """Turn every assertion of one function around."""

    def __init__(self) -> None:
        self.count = 0

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.count += 1
        if isinstance(node.test, ast.Compare) and len(node.test.ops) == 1 and isinstance(node.test.ops[0], ast.Eq):
            node.test.comparators[0] = _never_equal(node.test.comparators[0])
        else:
            node.test = ast.UnaryOp(ast.Not(), node.test)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = getattr(node.func, "attr", getattr(node.func, "id", "")).lower()
        if not name.startswith("assert") or "raise" in name or "warn" in name or not node.args:
            return node
        self.count += 1
        rest = name.removeprefix("assert").strip("_")
        if len(node.args) >= 2 and rest.startswith("not"):
            node.args[1] = node.args[0]  # not equal to itself, not a member of itself
        elif len(node.args) >= 2:
            node.args[1] = _never_equal(node.args[1])
        elif rest in ("true", "false", ""):
            node.args[0] = ast.UnaryOp(ast.Not(), node.args[0])
        else:
            node.args[0] = _never_equal(node.args[0])
        return node


def _never_equal(value: ast.expr) -> ast.expr:
    return ast.Tuple([value, ast.Constant(NEVER_EQUAL)], ast.Load())


def spoil_tests(files: Mapping[str, bytes], ids: Collection[str]) -> dict[str, str]:
    """The test files of these tests, with the functions of the tests spoilt; files that cannot be read are left out."""
    wanted: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for one in ids:
        path, *names = one.split("[", 1)[0].split("::")
        wanted[path].add(tuple(names))
    texts: dict[str, str] = {}
    for path, functions in sorted(wanted.items()):
        try:
            tree = ast.parse(files.get(path, b""))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if _spoil_functions(tree, functions, ()):
            texts[path] = ast.unparse(ast.fix_missing_locations(tree))
    return texts


def _spoil_functions(parent: ast.AST, wanted: Collection[tuple[str, ...]], names: tuple[str, ...]) -> int:
    done = 0
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef):
            done += _spoil_functions(node, wanted, (*names, node.name))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inherited = any(one[-1:] == (node.name,) and len(one) > 1 for one in wanted)
            if (*names, node.name) in wanted or (names and inherited):
                spoil = _Spoil()
                node.body = [spoil.visit(statement) for statement in node.body]
                if not spoil.count:
                    node.body.append(ast.parse(f"raise AssertionError({NEVER_EQUAL!r})").body[0])
                done += 1
        elif isinstance(node, ast.If | ast.Try | ast.With):
            done += _spoil_functions(node, wanted, names)
    return done
