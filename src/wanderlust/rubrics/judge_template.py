"""Prompts of judges: templates whose fields are parameters of a reward function, filled with untrusted text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

import msgspec

from wanderlust.errors import UsageError
from wanderlust.rubrics.model_request import cut_middle
from wanderlust.types import Message

MAX_FIELD_CHARS = 50_000
"""Longest field in a judge's prompt; of longer ones the middle is left out, with a note."""
_FIELD = re.compile(r"\{([a-z_]+)\}")
_CLOSING = re.compile(r"</\w+>")


class JudgeTemplate:
    """A template with fields like `{completion}`. A field's text cannot close a tag of the template."""

    def __init__(self, text: str, *, name: str):
        """`name` is the judge's, for messages. Raises UsageError for a template without fields."""
        self.text = text
        self.fields = tuple(dict.fromkeys(_FIELD.findall(text)))
        if not self.fields:
            raise UsageError(f"the template of {name!r} shows the judge nothing, not even {{completion}}")
        self._closing = re.compile("|".join(map(re.escape, set(_CLOSING.findall(text)))) or r"(?!)")

    @property
    def signature(self) -> Signature:
        """That of a reward function which takes the fields."""
        return Signature([Parameter(field, Parameter.KEYWORD_ONLY) for field in self.fields])

    def fill(self, values: Mapping[str, Any]) -> str:
        """The prompt."""
        return _FIELD.sub(lambda field: self._render(values[field[1]]), self.text)

    def _render(self, value: Any) -> str:
        """A field's value as text that does not close the tag it stands in."""
        if isinstance(value, str):
            text = value
        elif value is None:
            text = "(none)"
        elif isinstance(value, Sequence) and value and all(isinstance(one, Message) for one in value):
            text = "\n".join(f"{one.role}: {one.content}" for one in value)
        else:
            text = msgspec.json.encode(value, enc_hook=str).decode()
        return self._closing.sub(lambda tag: tag[0].replace("</", "<\\/"), cut_middle(text, MAX_FIELD_CHARS))
