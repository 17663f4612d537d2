"""Parts that are imported late: heavy extras, the public names, and what a user names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from wanderlust.errors import UsageError


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """For imports in the block: a missing package that the extra brings is a UsageError in one line that names it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("wanderlust"):
            raise
        raise UsageError(
            f"this needs the package {error.name!r}: install it with pip install 'wanderlust[{extra}]'"
        ) from error


def import_object(target: str) -> Any:
    """The object behind `package.module:Name`, which somebody named.

    Raises UsageError in one line when the module or the name does not exist.
    """
    module, _, name = target.partition(":")
    try:
        loaded_module = import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(f"cannot import {module!r}: {error}") from error
    try:
        return getattr(loaded_module, name)
    except AttributeError as error:
        raise UsageError(f"{module!r} has no {name!r}") from error


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a module whose names are imported when they are first used.

    `modules` has the names, separated by spaces, by the module below `wanderlust` that defines them.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"wanderlust.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(module_of), get, lambda: sorted({*module_of, *vars(sys.modules[package])})
