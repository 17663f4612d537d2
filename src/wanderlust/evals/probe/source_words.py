"""The texts that an environment's own code holds: what its rewards, games and tools compare answers with.

A dictionary for the search, as fuzzers take it from the program under test. Read are string constants and patterns of
the functions of the environment, its rubric and its tools, and of what they call in the same package; documentation and
long texts are left out. Not covered: texts that are made at run time, and other languages than Python.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Set
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from wanderlust.environment import Environment
from wanderlust.rubrics.rubric import Rubric
from wanderlust.tools.tool_environment import ToolEnvironment

MAX_WORDS = 40
MAX_WORD_CHARS = 40
MAX_COLLECTED = 200
"""Entries of a constant list or table from which on it is data, and left out."""
_PIECE = re.compile(r"[A-Za-z][\w' -]*[A-Za-z]")
_SYNTAX = re.compile(r"\\[dwsbDWSB.+*()\[]|\(\?|\.[*+]|\[\^|\][+*?{]")
"""What only patterns have: of them the words are taken."""
_LIBRARY = ("wanderlust.",)
_OWN = "wanderlust.environments"


def source_words(env: Environment, *, answers: Collection[str] = ()) -> list[str]:
    """Different texts in the order in which they are met, at most MAX_WORDS.

    Those that hold one of `answers` are left out: small environments have their right answers in their code.
    """
    right = re.compile("|".join(rf"(?<!\w){re.escape(answer)}(?!\w)" for answer in answers if answer) or r"(?!)")
    words: dict[str, None] = {}
    waiting, seen = deque[Any](_roots(env)), set[int]()
    packages = {_package(one) for one in waiting} - {""}
    while waiting and len(words) < MAX_WORDS:
        one = waiting.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for found in _inside(one, packages):
            if isinstance(found, str):
                for text in _PIECE.findall(found) if _SYNTAX.search(found) else [found]:
                    if len(text) <= MAX_WORD_CHARS and re.search(r"\w", text) and not right.search(text):
                        words.setdefault(text)
            else:
                waiting.append(found)
    return list(words)[:MAX_WORDS]


def _roots(env: Environment) -> Iterator[Any]:
    for cls in type(env).__mro__:
        if _is_own(cls.__module__):
            yield from (value for value in vars(cls).values() if callable(value))
    if isinstance(env.rubric, Rubric):
        yield from (part.function for part in env.rubric.parts)
    if isinstance(env, ToolEnvironment):
        yield from env.tools


def _is_own(module: str) -> bool:
    return module.startswith(_OWN) or not (module.startswith(_LIBRARY) or module in ("builtins", "abc", "typing"))


def _package(one: Any) -> str:
    module = getattr(one, "__module__", None) or ""
    return module.partition(".")[0] if module and _is_own(module) else ""


def _inside(one: Any, packages: Set[str]) -> Iterator[Any]:
    """The texts in an object, and the objects behind it that are to be read as well."""
    if isinstance(one, MethodType):
        yield one.__func__
    elif isinstance(one, partial):
        yield from (one.func, *one.args, *one.keywords.values())
    elif isinstance(one, FunctionType):
        yield from _of_code(one.__code__, one.__doc__)
        yield from (cell.cell_contents for cell in one.__closure__ or () if _is_full(cell))
        named = (one.__globals__.get(name) for name in _names(one.__code__))
        texts = (str, re.Pattern, Mapping, list, tuple, set, frozenset)
        yield from (value for value in named if isinstance(value, texts) or _package(value) in packages)
    elif isinstance(one, re.Pattern):
        yield str(one.pattern)
    elif isinstance(one, Mapping | list | tuple | set | frozenset):
        entries = [*one, *one.values()] if isinstance(one, Mapping) else list(one)
        if len(entries) <= MAX_COLLECTED:
            yield from (entry for entry in entries if isinstance(entry, str | FunctionType))
    elif _package(one) not in packages:  # a tool or a reward that wraps a function
        held = vars(one).values() if hasattr(one, "__dict__") else ()
        held = [*held, getattr(one, "function", None), getattr(one, "__wrapped__", None)]
        yield from (value for value in held if isinstance(value, FunctionType | MethodType | partial))


def _is_full(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _of_code(code: CodeType, doc: str | None) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant, None)
        elif isinstance(constant, tuple | frozenset):
            yield from (entry for entry in constant if isinstance(entry, str))
        elif isinstance(constant, str) and constant != doc:
            yield constant


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
