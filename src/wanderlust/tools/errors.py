"""What a tool may raise so that the model reads it; `ToolFailure` of core is for what the model is not to blame for."""

from __future__ import annotations

from wanderlust.core.errors import WanderlustError


class ToolError(WanderlustError):
    """The tool cannot do what was asked: the text goes to the model as it is, and the episode goes on."""


class WrongArguments(ToolError):
    """The arguments do not fit the schema; the text names the field."""
