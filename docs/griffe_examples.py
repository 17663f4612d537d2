"""Show the `Example:` sections of docstrings as code: the parser of the reference knows the plural alone."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

HEADING = re.compile(r"^(\s*)Example:$", re.MULTILINE)


class Examples(Extension):
    """Writes the heading in the plural."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Once for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = HEADING.sub(r"\1Examples:", obj.docstring.value)
