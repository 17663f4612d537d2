"""How an argument that an oracle wants is compared with the one that was given: declared on the action, by argument.

Actions with more arguments than a function should have: written with a record of them, called with each by name.
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


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Check:
    """One way of comparing. `normal` brings both values to one form; equal forms are the same."""

    name: str
    normal: Callable[[Any], Any] = _itself
    soft: bool = False
    """Different forms may still mean the same: a judge must say."""
    about: str = ""
    """For a soft check, what the judge is to look at."""
    optional: bool = False
    """Where nothing is wanted, anything will do."""
    people: bool = False
    """A list of people, in which the user may be named or not: see `without`."""

    def same(self, wanted: Any, given: Any) -> bool | None:
        """Whether `given` will do for `wanted`; None where only a judge can tell."""
        normal = self.normal(wanted)
        if (self.optional and not normal) or normal == self.normal(given):
            return True
        return None if self.soft else False

    def without(self, names: Iterable[str]) -> Check:
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


def _paths(value: Iterable[Any] | None) -> Any:
    return sorted(map(_path, value or ()))


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value or ""


def _moment(value: Any) -> Any:
    try:
        return datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
    except ValueError:
        return value


def _digits(value: Any) -> str:
    return re.sub(r"\D", "", str(value or ""))


EXACT = Check("exact")
"""Equal values. What an argument gets when its action declares nothing."""
FREE = Check("free", lambda value: None)
"""Any value will do."""
TEXT = Check("text", _text)
"""Equal but for case and white space; nothing given is an empty text."""
STRIPPED = Check("stripped", _stripped)
"""Equal but for white space around it; nothing given is an empty text."""
MOMENT = Check("moment", _moment)
"""The same time, however it is written."""
UNORDERED = Check("unordered", _unordered)
"""Equal sets of texts; nothing given is an empty one."""
ATTENDEES = Check("attendees", _unordered, optional=True, people=True)
"""The same people in any case and order, the user counted or not; where nobody is wanted, anybody will do."""
PATH, PATHS = Check("path", _path), Check("paths", _paths)
"""The same file, or the same files in any order; a leading `/` means nothing."""
PHONE = Check("phone", _digits)
"""The same digits."""


def unlike(wanted: object, given: object) -> float:
    """How little two values look alike: the share of their words that only one has. A guess at what was meant."""
    one, other = (set(re.findall(r"\w+", str(side).casefold())) for side in (wanted, given))
    return 1.0 - len(one & other) / max(len(one | other), 1)


def soft(about: str) -> Check:
    """Texts that may differ in words: equal ones (as by TEXT) are the same, others go to a judge of `about`."""
    return Check("soft", _text, soft=True, about=about)


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
