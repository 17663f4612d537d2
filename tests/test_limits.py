"""The house's limits, held by reading the code: each failure says which name is over, and by how much.

They only tighten. Whoever needs more room splits what has grown; the lists of exceptions below are closed.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from project_files import ROOT, module_name, python_files

FILE_LINES, CLASS_LINES, FUNCTION_LINES, SHORT_LINES = 500, 300, 60, 30
SHORT_SHARE = 0.9
LARGEST = 300_000
"""Bytes of a file that is kept: pictures and lock files are the largest; what is computed is not kept."""
PARAMETERS, POSITIONAL, OWN_IMPORTS = 9, 3, 12

BROAD_EXCEPTS = {
    ("src/wanderlust/errors.py", "boundary"): "attributes every failure to the wall it crossed",
    (
        "environments/proofs/src/wanderlust_proofs/function_call_worker.py",
        "_call",
    ): "an untrusted function's failure is its result",
    ("src/wanderlust/tools/tool_calls.py", "make"): "the tool call: what a tool raises is text for the model",
    (
        "src/wanderlust/tools/sandbox/python_session_child.py",
        "execute_cell",
    ): "what a cell raises is its output",
    (
        "packages/worlds/src/wanderlust_worlds/engine/world.py",
        "_use",
    ): "what an app raises is a line of the log",
}
"""Functions that may catch everything."""

LATE_IMPORTS = {
    ("src/wanderlust/policies/resolve.py", "_endpoint"): "aiohttp takes a fifth of a second, and few commands need it",
}
"""Functions that may import our own modules without naming an extra."""

WHOLE_COMMANDS = {
    ("src/wanderlust/evals/evaluate.py", "evaluate"): "all of `wander eval` in one call",
    ("src/wanderlust/training/train.py", "train"): "all of `wander train` in one call",
    ("src/wanderlust/evals/scaling.py", "scale"): "all of `wander scale` in one call",
}
"""Public functions that take as many arguments as their command has options."""

CORE_MODULES = (
    *("types", "declared_tools", "environment", "errors", "_lazy"),
    *(f"agent/{name}" for name in ("__init__", "agent", "conversation_graph", "limits", "play")),
)
CORE = {f"src/wanderlust/{name}.py" for name in CORE_MODULES}
"""The nouns and the contracts: they need the standard library alone."""
CORE_NAMES = {
    path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in CORE
}

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One file of the project, parsed."""

    path: str
    text: str
    tree: ast.Module

    def over(self, node: ast.AST, what: str, figure: int, limit: int) -> str:
        """The line that a failing test shows."""
        line, name = getattr(node, "lineno", 1), getattr(node, "name", "")
        return f"{self.path}:{line} {name}: {figure} {what}, {figure - limit} over {limit}".replace(" : ", ": ")


def parse(path: Path, root: Path = ROOT) -> Module:
    text = path.read_text(encoding="utf-8")
    return Module(path=path.relative_to(root).as_posix(), text=text, tree=ast.parse(text, filename=str(path)))


@cache
def modules(*parts: str) -> list[Module]:
    return [parse(path) for part in parts for path in python_files(part)]


def source() -> list[Module]:
    return modules("src")


def everything() -> list[Module]:
    return source() + modules("tests", "bars", "benchmarks", "examples")


def hold(faults: Iterable[str]) -> None:
    """Fail with every fault on a line of its own."""
    found = list(faults)
    assert not found, "over the limit:\n" + "\n".join(found)


def lines(node: ast.stmt) -> int:
    """Lines of a definition; a function's docstring is not counted."""
    count = (node.end_lineno or node.lineno) - node.lineno + 1
    if isinstance(node, FUNCTIONS) and ast.get_docstring(node, clean=False):
        first = node.body[0]
        count -= (first.end_lineno or first.lineno) - first.lineno + 1
    return count


def too_long(module: Module) -> Iterator[str]:
    """Files, classes and functions with too many lines."""
    if (count := len(module.text.splitlines())) > FILE_LINES:
        yield module.over(module.tree, "lines", count, FILE_LINES)
    for node in ast.walk(module.tree):
        limit = CLASS_LINES if isinstance(node, ast.ClassDef) else FUNCTION_LINES
        if isinstance(node, ast.ClassDef | FUNCTIONS) and lines(node) > limit:
            yield module.over(node, "lines", lines(node), limit)


def methods(tree: ast.Module) -> set[ast.AST]:
    """The functions whose first parameter is the instance or the class."""
    owned = [child for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for child in node.body]
    return {f for f in owned if isinstance(f, FUNCTIONS) and "staticmethod" not in map(ast.unparse, f.decorator_list)}


def too_many_parameters(module: Module) -> Iterator[str]:
    """Functions that ask for too much, or for too much by position (not in tests: pytest passes by name)."""
    bound = methods(module.tree)
    for node in ast.walk(module.tree):
        if not isinstance(node, FUNCTIONS):
            continue
        positional = len(node.args.posonlyargs) + len(node.args.args) - (node in bound)
        count = positional + len(node.args.kwonlyargs)
        if count > PARAMETERS and (module.path, node.name) not in WHOLE_COMMANDS:
            yield module.over(node, "parameters", count, PARAMETERS)
        if positional > POSITIONAL and "tests" not in Path(module.path).parts:
            yield module.over(node, "positional parameters", positional, POSITIONAL)


def imported(node: ast.AST) -> list[str]:
    """The modules that an import statement names; relative ones start with a dot."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    return []


def local_imports(module: Module) -> Iterator[str]:
    """Our own modules imported inside a function, and not as those of an extra: a cycle in hiding."""
    extras = {
        inner
        for block in ast.walk(module.tree)
        if isinstance(block, ast.With) and any("needs_extra(" in ast.unparse(item) for item in block.items)
        for inner in ast.walk(block)
    }
    for function in ast.walk(module.tree):
        if not isinstance(function, FUNCTIONS) or (module.path, function.name) in LATE_IMPORTS:
            continue
        for node in {*ast.walk(function)} - extras:
            ours = [name for name in imported(node) if name.split(".")[0] in {"wanderlust", ""}]
            if ours:
                yield f"{module.path}:{node.lineno} {function.name}: imports {ours[0]} inside a function"


def catches_all(node: ast.AST) -> bool:
    """`except:`, `except Exception`, a tuple with it, or `suppress(Exception)`."""
    if isinstance(node, ast.ExceptHandler):
        caught = [node.type] if node.type else []
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        caught = list(node.args)
    else:
        return False
    names = {name.id for item in caught for name in ast.walk(item) if isinstance(name, ast.Name)}
    return not caught or bool(names & {"Exception", "BaseException"})


def broad_excepts(module: Module) -> Iterator[str]:
    """Handlers that swallow what they do not know, outside the functions that may."""
    allowed = {
        inner
        for node in ast.walk(module.tree)
        if isinstance(node, FUNCTIONS) and (module.path, node.name) in BROAD_EXCEPTS
        for inner in ast.walk(node)
    }
    for node in ast.walk(module.tree):
        if node not in allowed and catches_all(node):
            yield f"{module.path}:{node.lineno}: catches everything; name the errors, or use errors.boundary"


def not_standard(module: Module) -> Iterator[str]:
    """What `core` imports besides itself and the standard library."""
    for node in ast.walk(module.tree):
        for name in imported(node):
            if name.split(".")[0] not in sys.stdlib_module_names and name not in CORE_NAMES:
                yield f"{module.path}:{node.lineno}: core imports {name}"


RULES = [too_long, too_many_parameters, local_imports, broad_excepts]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_whole_project_holds(rule):
    hold(fault for module in everything() for fault in rule(module))


def test_the_page_is_in_short_files():
    files = [p for p in (ROOT / "web/src").rglob("*") if p.suffix in (".ts", ".tsx")]
    counts = {p.relative_to(ROOT).as_posix(): len(p.read_text(encoding="utf-8").splitlines()) for p in files}
    hold(f"{name}: {n} lines, {n - FILE_LINES} over {FILE_LINES}" for name, n in counts.items() if n > FILE_LINES)
    assert counts


def test_nothing_large_is_kept():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout.split(b"\0")
    kept = [path for name in listed if name and (path := ROOT / name.decode()).is_file()]
    assert {path.relative_to(ROOT): size for path in kept if (size := path.stat().st_size) > LARGEST} == {}


def test_core_needs_only_the_standard_library():
    core = [module for module in source() if module.path in CORE]
    hold(fault for module in core for fault in not_standard(module))
    assert len(core) == len(CORE), "core was not found: has it moved?"


def test_most_functions_are_short():
    functions = [(m, node) for m in source() for node in ast.walk(m.tree) if isinstance(node, FUNCTIONS)]
    long = [m.over(node, "lines", lines(node), SHORT_LINES) for m, node in functions if lines(node) > SHORT_LINES]
    share = 1 - len(long) / len(functions)
    assert share >= SHORT_SHARE, f"only {share:.1%} have at most {SHORT_LINES} lines:\n" + "\n".join(long)


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """The modules that each module of ours imports, late and for types alone included."""
    packages = {module_name(ROOT / module.path).partition(".")[0] for module in source()}
    graph = grimp.build_graph(*packages, cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def test_the_import_guard_sees_every_file(imports):
    """A folder without `__init__.py` is a hole in the layers of `pyproject.toml`."""
    hold({module_name(ROOT / module.path) for module in source()} - imports.keys())


def test_no_imports_form_a_circle(imports):
    TopologicalSorter(imports).prepare()


def test_a_circle_of_imports_is_found():
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"c"}, "c": {"a"}}).prepare()


def test_every_package_says_what_it_has():
    packages = [module for module in source() if module.path.endswith("/__init__.py")]
    docs = {module.path: ast.get_docstring(module.tree) or "" for module in packages}
    hold(f"{path}: {text!r} is no sentence" for path, text in docs.items() if len(text.split()) < 5 or "." not in text)


def test_files_that_are_named_exist():
    """In docstrings and comments: `name.py`, with or without its folders; a `file.py` is the user's."""
    paths = [f"/{module.path}" for module in everything()] + ["/conftest.py"]
    for module in source():
        named = {name for name in re.findall(r"`([\w/]+\.py)[`:]", module.text) if not name.endswith("file.py")}
        hold(f"{module.path}: there is no {name}" for name in named if not any(p.endswith(f"/{name}") for p in paths))


def test_nothing_is_called_utils():
    hold(f"{m.path}: call it after what it knows" for m in everything() if "util" in m.path.lower())


def test_exceptions_still_exist():
    paths = {module.path for module in source()}
    assert {path for path, _ in [*BROAD_EXCEPTS, *LATE_IMPORTS]} <= paths


VIOLATIONS = {
    too_long: "def f():\n" + "    x = 1\n" * FUNCTION_LINES,
    too_many_parameters: "class C:\n    def f(self, a, b, c, d): ...\n",
    local_imports: "async def f():\n    from wanderlust import types\n",
    broad_excepts: "try:\n    f()\nexcept (ValueError, Exception):\n    pass\n",
    not_standard: "import torch\n",
}


@pytest.mark.parametrize("rule", VIOLATIONS, ids=lambda rule: rule.__name__)
def test_each_rule_finds_its_violation(rule, tmp_path):
    file = tmp_path / "module.py"
    file.write_text(VIOLATIONS[rule])
    assert len(list(rule(parse(file, tmp_path)))) == 1


def test_failure_says_which_name_and_how_much(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("def f(a, b, c, d): ...\n")
    assert list(too_many_parameters(parse(file, tmp_path))) == [
        "module.py:1 f: 4 positional parameters, 1 over 3",
    ]
