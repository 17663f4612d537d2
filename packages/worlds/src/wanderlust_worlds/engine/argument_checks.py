"""Comparison of an oracle's arguments with an agent's, declared on the action for each argument (`ArgumentCheck`).

`arguments_from` turns a method that takes a record into an action that takes the record's fields by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import wraps
from inspect import Parameter, Signature, signature
from posixpath import normpath
from typing import Any, TypeVar, get_type_hints

import msgspec


@dataclass(frozen=True, slots=True)
class ArgumentCheck:
    """One way of comparing. `normal` brings both values to one form; equal forms are the same."""

    name: str
    normal: Callable[[Any], Any] = lambda value: value
    soft: bool = False
    """Different forms may still mean the same: a judge must say."""
    about: str = ""
    """For a soft check, what the judge is to look at."""
    optional: bool = False
    """Any value is accepted where the oracle wants none."""
    people: bool = False
    """A list of people, in which the user may be named or not: see `without`."""

    def same(self, wanted: Any, actual: Any) -> bool | None:
        """Whether `actual` will do for `wanted`; None where only a judge can tell."""
        normal = self.normal(wanted)
        if (self.optional and not normal) or normal == self.normal(actual):
            return True
        return None if self.soft else False

    def without(self, names: Iterable[str]) -> ArgumentCheck:
        """For lists of people, the same check with these names left out on both sides; other checks as they are."""
        aside = set(map(_text, names))
        if not self.people or not aside:
            return self
        return replace(self, normal=lambda value: [name for name in self.normal(value) if name not in aside])


def _text(value: Any) -> Any:
    return " ".join(value.split()).casefold() if isinstance(value, str) else value or ""


def _unordered(value: Iterable[Any] | None) -> Any:
    return sorted({_text(item) for item in value or ()}, key=repr)


def _path(value: Any) -> Any:
    return normpath(str(value)).lstrip("/") if value else ""


def _parse_moment(value: Any) -> Any:
    try:
        return datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
    except ValueError:
        return value


EXACT_CHECK = ArgumentCheck("exact")
"""Equal values. What an argument gets when its action declares nothing."""
FREE_CHECK = ArgumentCheck("free", lambda value: None)
"""Any value will do."""
TEXT_CHECK = ArgumentCheck("text", _text)
"""Equal but for case and white space; nothing given is an empty text."""
STRIPPED_CHECK = ArgumentCheck("stripped", lambda value: value.strip() if isinstance(value, str) else value or "")
"""Equal but for white space around it; nothing given is an empty text."""
TIME_CHECK = ArgumentCheck("moment", _parse_moment)
"""The same time, however it is written."""
UNORDERED_CHECK = ArgumentCheck("unordered", _unordered)
"""Equal sets of texts; nothing given is an empty one."""
ATTENDEES_CHECK = ArgumentCheck("attendees", _unordered, optional=True, people=True)
"""The same people in any case and order, the user counted or not; anyone is accepted where none are wanted."""
PATH_CHECK = ArgumentCheck("path", _path)
PATHS_CHECK = ArgumentCheck("paths", lambda value: sorted(map(_path, value or ())))
"""The same file, or the same files in any order; a leading `/` means nothing."""
PHONE_CHECK = ArgumentCheck("phone", lambda value: re.sub(r"\D", "", str(value or "")))
"""The same digits."""


def text_distance(wanted: object, actual: object) -> float:
    """The share of the words of two values that only one of them has, from 0 (alike) to 1."""
    one, other = (set(re.findall(r"\w+", str(side).casefold())) for side in (wanted, actual))
    return 1.0 - len(one & other) / max(len(one | other), 1)


def judged_text(about: str) -> ArgumentCheck:
    """Texts that may differ in words: equal ones (as by TEXT) are the same, others go to a judge of `about`."""
    return ArgumentCheck("soft", _text, soft=True, about=about)


R = TypeVar("R", bound=msgspec.Struct)
T = TypeVar("T")


def arguments_from(record: type[R]) -> Callable[[Callable[[Any, R], T]], Callable[..., T]]:
    """Decorate a method that takes a record so that it takes the record's fields by name. To stand below `@action`.

    Signature, schema and strict checks are those of the fields; the method's docstring describes each.
    """

    def expand(function: Callable[[Any, R], T]) -> Callable[..., T]:
        @wraps(function)
        def call_with_record(self: Any, /, **arguments: Any) -> T:
            return function(self, record(**arguments))

        call: Any = call_with_record
        hints = {name: hint for name, hint in get_type_hints(record).items() if name in record.__struct_fields__}
        fields = msgspec.structs.fields(record)
        defaults = {one.name: one.default for one in fields if one.default is not msgspec.NODEFAULT}
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
        return call_with_record

    return expand
