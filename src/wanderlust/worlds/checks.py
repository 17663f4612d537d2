"""How an argument that an oracle wants is compared with the one that was given: declared on the action, by argument."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from posixpath import normpath
from typing import Any


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

    def same(self, wanted: Any, given: Any) -> bool | None:
        """Whether `given` will do for `wanted`; None where only a judge can tell."""
        if self.normal(wanted) == self.normal(given):
            return True
        return None if self.soft else False


def _text(value: Any) -> Any:
    return " ".join(value.split()).casefold() if isinstance(value, str) else value or ""


def _unordered(value: Iterable[Any] | None) -> Any:
    return sorted({_text(item) for item in value or ()}, key=repr)


def _path(value: Any) -> Any:
    return normpath(str(value)).lstrip("/") if value else ""


def _paths(value: Iterable[Any] | None) -> Any:
    return sorted(map(_path, value or ()))


def _digits(value: Any) -> str:
    return re.sub(r"\D", "", str(value or ""))


EXACT = Check("exact")
"""Equal values. What an argument gets when its action declares nothing."""
FREE = Check("free", lambda value: None)
"""Any value will do."""
TEXT = Check("text", _text)
"""Equal but for case and white space; nothing given is an empty text."""
UNORDERED = Check("unordered", _unordered)
"""Equal sets of texts; nothing given is an empty one."""
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
