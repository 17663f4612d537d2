"""Parts that are found by name: heavy extras and third-party environments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from wanderlust.errors import UsageError


def import_object(target: str, *, extra: str = "") -> Any:
    """The object behind `package.module:Name`.

    Raises UsageError in one line when the module or the name does not exist, or when a package that the
    extra would bring is missing; then the line names the extra.
    """
    module, _, name = target.partition(":")
    try:
        loaded_module = import_module(module)
    except ModuleNotFoundError as error:
        if extra and not (error.name or "").startswith("wanderlust"):
            raise UsageError(
                f"this needs the package {error.name!r}: install it with pip install 'wanderlust[{extra}]'"
            ) from error
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
