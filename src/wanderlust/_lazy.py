"""Parts that are found by name: heavy extras and third-party environments."""

from __future__ import annotations

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
