"""What changed source may not newly do: reach for the interpreter, its frames, the runner of the tests, or files.

Tests of a repository run in one process with the code that they test, and code that reaches the runner's objects can
make it report anything. So a judgement reads the changed files first. Whatever the original of the same file does is
allowed; beyond that, imports outside of a list, names such as `exec`, attributes such as `__globals__`, methods such as
`__eq__`, and stores into imported objects are refused, each with one line.

Functions of the package that read or set attributes by computed names count as well, with all that call them: the
changed file may mention them as often as the original. Mining makes no tasks of files that run text as code.

Not covered: code that finds the runner by means that the original of the file has itself, at the very places where it
has them. An honest change that needs something listed here is refused, too.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from wanderlust.errors import one_line

SAFE_MODULES = frozenset(
    {"__future__", "abc", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions"}
    | {"functools", "heapq", "html", "itertools", "json", "keyword", "math", "numbers", "operator", "re", "statistics"}
    | {"string", "textwrap", "typing", "typing_extensions", "unicodedata", "base64", "hashlib", "binascii", "struct"}
    | {"colorsys", "difflib", "contextlib", "ipaddress", "time"}
)
"""Modules that a change may import although the original does not."""
RISKY_MODULES = frozenset(
    {"sys", "os", "gc", "inspect", "builtins", "importlib", "ctypes", "signal", "threading", "atexit", "subprocess"}
    | {"multiprocessing", "pytest", "_pytest", "unittest", "socket", "io", "pathlib", "shutil", "tempfile", "types"}
    | {"marshal", "pickle", "code", "codeop", "traceback", "linecache", "tokenize", "ast", "dis", "faulthandler"}
    | {"asyncio", "concurrent", "weakref", "logging", "warnings", "site", "pkgutil", "runpy", "zipimport", "imp"}
    | {"sysconfig", "platform", "resource", "fcntl", "mmap", "select", "selectors", "posix", "pdb", "bdb", "trace"}
    | {"tracemalloc", "symtable", "copyreg", "shelve", "dbm", "sqlite3", "glob", "fileinput", "nt", "pluggy"}
)
"""Modules that no attribute or name may newly lead to."""
SAFE_READS = frozenset({"sys.maxsize", "sys.version_info", "sys.platform"})
RISKY_NAMES = frozenset(
    {
        "exec",
        "eval",
        "compile",
        "__import__",
        "open",
        "input",
        "globals",
        "locals",
        "vars",
        "breakpoint",
        "exit",
        "quit",
    }
    | {"help", "license", "credits", "copyright", "SystemExit", "KeyboardInterrupt", "BaseException", "GeneratorExit"}
    | {"__builtins__", "__loader__", "__spec__", "__file__", "__cached__", "memoryview", "delattr", "setattr"}
    | {"BaseExceptionGroup"}
)
RISKY_ATTRIBUTES = frozenset(
    {"__globals__", "__builtins__", "__code__", "__closure__", "__subclasses__", "__bases__", "__base__", "__mro__"}
    | {"__dict__", "__getattribute__", "__loader__", "__spec__", "__self__", "__func__", "__wrapped__", "mro"}
    | {"__defaults__", "__kwdefaults__", "__reduce__", "__reduce_ex__", "__setattr__", "__delattr__", "__import__"}
    | {"__traceback__", "__context__", "__cause__", "__init_subclass__", "__set_name__", "__subclasshook__"}
    | {"f_back", "f_locals", "f_globals", "f_code", "f_builtins", "f_trace", "tb_frame", "tb_next", "gi_frame"}
    | {"gi_code", "gi_yieldfrom", "cr_frame", "cr_code", "ag_frame", "ag_code", "cr_await", "ag_await", "co_consts"}
    | {"get_type_hints", "ForwardRef", "Formatter", "get_field", "vformat", "singledispatch", "singledispatchmethod"}
    | {"make_dataclass", "update_wrapper", "redirect_stdout", "redirect_stderr", "register", "__setstate__", "urlopen"}
    | {"_getframe", "settrace", "setprofile", "modules", "meta_path", "path_hooks", "attrgetter", "methodcaller"}
    | {"with_traceback", "__annotations__", "__file__", "__path__", "__cached__", "import_module", "reload"}
)
RISKY_METHODS = frozenset(
    {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__hash__", "__instancecheck__"}
    | {"__subclasscheck__", "__subclasshook__", "__getattribute__", "__getattr__", "__del__", "__init_subclass__"}
    | {"__set_name__", "__class_getitem__", "__mro_entries__", "__prepare__", "__class__", "__contains__", "__rsub__"}
    | {
        "__reduce__",
        "__reduce_ex__",
        "__setattr__",
        "__delattr__",
        "__match_args__",
        "__format__",
        "__index__",
        "__ror__",
    }
)
"""Methods that let an object answer a test's comparisons, or act unseen."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DYNAMIC = frozenset({"getattr", "hasattr"})
MAX_SOURCE_BYTES = 1 << 20


class _Reader:
    """Counts what a module's code does, one key for each kind of act."""

    def __init__(self, tree: ast.Module, facts: PackageFacts):
        self.facts, self.acts, self.modules, self.imported = facts, Counter[str](), set[str](), set[str]()
        self.risky_names = {*RISKY_NAMES, *RISKY_MODULES, *facts.aliases}
        self.calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        self.docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        self.bases: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                self.bases.add(id(node.value))
        for node in ast.walk(tree):
            for act in self._acts(node):
                self.acts[act] += 1
        for name in _methods(tree):
            self.acts[f"a method {name}"] += 1

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            self.imported.add(bound)
            if isinstance(node, ast.Import):
                self.modules.add(bound)
                top, words = alias.name.partition(".")[0], f"import {alias.name}"
                safe = (top in SAFE_MODULES or top in self.facts.own) and not self.facts.running.intersection(
                    alias.name.split(".")
                )
            else:
                top, words = (node.module or "").partition(".")[0], f"from {node.module or '.'} import {alias.name}"
                safe = (bool(node.level) or top in SAFE_MODULES or top in self.facts.own) and alias.name != "*"
                parts = {alias.name, *(node.module or "").split(".")}
                plain = not parts & (self.risky_names | RISKY_ATTRIBUTES | self.facts.running)
                safe = safe and plain and (bool(node.level) or not alias.name.startswith("_"))
            if not safe or bound in RISKY_NAMES:
                self.acts[words] += 1

    def _acts(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Name):
            yield from self._name(node)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and id(node) not in self.docstrings:
                words = {*re.findall(r"\w+", node.value)} & (RISKY_ATTRIBUTES | RISKY_METHODS | {"_pytest"})
                yield from (f"the text {risky!r}" for risky in sorted(words))
        else:
            yield from _syntax_acts(node)

    def _name(self, node: ast.Name) -> Iterator[str]:
        if node.id in self.facts.dynamic:
            yield f"the function {node.id}, which computes names"
        if (node.id in self.risky_names and id(node) not in self.bases) or node.id in RISKY_NAMES:
            yield f"the name {node.id}"
        elif node.id in self.modules and id(node) not in self.bases:
            yield f"the module {node.id} as a value"
        elif node.id in _DYNAMIC and id(node) not in self.calls:
            yield f"the function {node.id} as a value"

    def _attribute(self, node: ast.Attribute) -> Iterator[str]:
        root: ast.AST = node
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        name = root.id if isinstance(root, ast.Name) else ""
        if node.attr in self.facts.dynamic:
            yield f"the method {node.attr}, which computes names"
        if not isinstance(node.ctx, ast.Load) and (name in self.imported or node.attr in RISKY_METHODS):
            yield f"a store into {ast.unparse(node)}"
        if name in self.risky_names:
            if (words := ast.unparse(node)) not in SAFE_READS:
                yield words
        elif node.attr in RISKY_ATTRIBUTES or node.attr in RISKY_MODULES:
            yield f"the attribute {ast.unparse(node) if name else node.attr}"
        elif name in self.modules and node.attr.startswith("_"):
            yield ast.unparse(node)


def _syntax_acts(node: ast.AST) -> Iterator[str]:
    """What calls, classes and patterns do."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if _computes_name(node) or (node.func.id == "type" and len(node.args) > 1):
            yield ast.unparse(node)
    elif isinstance(node, ast.ClassDef):
        yield from (f"class {node.name}({ast.unparse(keyword)})" for keyword in node.keywords)
    elif isinstance(node, ast.MatchClass):
        yield from (f"a pattern of {name}" for name in node.kwd_attrs if name in RISKY_ATTRIBUTES | RISKY_MODULES)
    elif isinstance(node, ast.keyword) and node.arg in ("assigned", "updated"):
        yield f"the argument {node.arg}"


def _computes_name(node: ast.Call) -> bool:
    """Whether a call reads an attribute whose name is not written there."""
    named = node.args[1] if len(node.args) > 1 else None
    written = isinstance(named, ast.Constant) and isinstance(named.value, str)
    return isinstance(node.func, ast.Name) and node.func.id in _DYNAMIC and not written


def _methods(tree: ast.AST) -> Iterator[str]:
    """Risky methods by class, defined or assigned in its body."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for one in ast.walk(node):
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name in RISKY_METHODS:
                yield f"{node.name}.{one.name}"
            elif isinstance(one, ast.Name) and one.id in RISKY_METHODS and isinstance(one.ctx, ast.Store):
                yield f"{node.name}.{one.id}"


def _aliases(tree: ast.Module) -> Iterator[str]:
    """Other names that a module gives to risky modules, or to parts of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.asname for a in node.names if a.asname and a.name.partition(".")[0] in RISKY_MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in RISKY_MODULES:
            yield from (a.asname for a in node.names if a.asname)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFacts:
    """What the guard has to know of a package's unchanged sources."""

    own: frozenset[str]
    """Names that the package is imported by."""
    aliases: frozenset[str] = frozenset()
    """Other names that its sources give to risky modules."""
    running: frozenset[str] = frozenset()
    """Modules that run text as code, by the last part of their names."""
    dynamic: frozenset[str] = frozenset()
    """Functions that read or set attributes by computed names, and functions that call such."""

    @classmethod
    def of(cls, sources: Mapping[str, bytes], own: Iterable[str]) -> PackageFacts:
        """Read the sources."""
        trees = {path: tree for path, text in sources.items() if (tree := _parse(text)) is not None}
        running = {path.rpartition("/")[2].removesuffix(".py") for path, text in sources.items() if runs_text(text)}
        return cls(
            own=frozenset(own),
            aliases=frozenset(alias for tree in trees.values() for alias in _aliases(tree)),
            running=frozenset(running - {"__init__"}),
            dynamic=_dynamic_functions(trees.values()),
        )


def _parse(text: bytes) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _dynamic_functions(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Names of functions that compute the names of attributes, and of those that mention one of these."""
    mentions: dict[str, set[str]] = {}
    found: set[str] = set()
    for function in (node for tree in trees for node in ast.walk(tree) if isinstance(node, FUNCTIONS[:2])):
        name = getattr(function, "name", "")
        parts = [*ast.walk(function)]
        calls = [part for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)]
        if any(_computes_name(call) or getattr(call.func, "id", "") in ("setattr", "delattr") for call in calls):
            found.add(name)
        used = {part.id for part in parts if isinstance(part, ast.Name)}
        mentions.setdefault(name, set()).update(used | {p.attr for p in parts if isinstance(p, ast.Attribute)})
    found -= COMMON_METHODS
    while more := {name for name, used in mentions.items() if used & found} - found - COMMON_METHODS:
        found |= more
    return frozenset(name for name in found if not (name.startswith("__") and name.endswith("__")))


COMMON_METHODS = frozenset(name for kind in (dict, list, set, str, bytes, int, object) for name in dir(kind))
"""Names that changed code may well mention without meaning a method of the package."""


def new_acts(changed: bytes, allowed: Iterable[bytes], facts: PackageFacts) -> list[str]:
    """What the changed source does and none of the `allowed` versions of its file does as often, in a line each."""
    if len(changed) > MAX_SOURCE_BYTES:
        return [f"more than {MAX_SOURCE_BYTES:,} bytes"]
    try:
        now = _Reader(ast.parse(changed), facts).acts
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [f"source that cannot be read: {one_line(str(error), 80)}"]
    before: Counter[str] = Counter()
    for text in allowed:
        before |= _Reader(ast.parse(text), facts).acts
    return [one_line(act, 120) for act in sorted(now) if now[act] > before[act]]


def runs_text(text: bytes) -> bool:
    """Whether a source runs text as code, or reaches for frames: then other text could be led there."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    dangerous = {"_getframe", "currentframe", "import_module", "f_globals", "f_back", "f_locals", "ctypes"}
    return bool(names & {"exec", "eval", "compile", "__import__", "ctypes"} or attributes & dangerous)


def guard_changes(
    changed: Mapping[str, bytes], versions: Mapping[str, Iterable[bytes]], facts: PackageFacts
) -> list[str]:
    """One line for each new act of the changed files; empty where there is none.

    `versions` are the allowed texts of a file; a file without any is new.
    """
    found = []
    for path, text in sorted(changed.items()):
        allowed = [*versions.get(path, ())]
        if any(map(runs_text, allowed)):
            found.append(f"{path}: the file runs text as code, and no change of it is judged")
        else:
            found += [f"{path}: {act}" for act in new_acts(text, allowed, facts)]
    return found
