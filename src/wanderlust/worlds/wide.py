"""Actions with more arguments than a function should have: written with a record of them, called with each by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, get_type_hints

import msgspec

R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")


def wide(record: type[R]) -> Callable[[Callable[[Any, R], T]], Callable[..., T]]:
    """Makes a method that takes a record one that takes its fields by name: stands below `@action`.

    Signature, schema and strict checks are those of the fields; the method's docstring says what each is.
    """

    def spread(function: Callable[[Any, R], T]) -> Callable[..., T]:
        @wraps(function)
        def spread_out(self: Any, /, **given: Any) -> T:
            return function(self, record(**given))

        call: Any = spread_out
        hints = {name: hint for name, hint in get_type_hints(record).items() if name in record.__struct_fields__}
        told = msgspec.structs.fields(record)
        defaults = {one.name: one.default for one in told if one.default is not msgspec.NODEFAULT}
        answer = signature(function).return_annotation
        call.__kwdefaults__ = defaults  # what was left out is looked up here, as for any other action
        call.__annotations__ = {**hints, "return": answer}
        call.__signature__ = Signature(
            [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
            + [
                Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=defaults.get(name, Parameter.empty))
                for name, hint in hints.items()
            ],
            return_annotation=answer,
        )
        return spread_out

    return spread
