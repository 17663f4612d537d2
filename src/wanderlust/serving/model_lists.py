"""Lists of models in the forms of OpenAI, Anthropic and Google."""

from __future__ import annotations

from collections.abc import Sequence

from wanderlust.errors import UsageError, one_line
from wanderlust.serving.dialect import JsonObject, Style


def render_model(name: str, known: Sequence[str], style: Style) -> JsonObject:
    """Render one model. Where there is only one, any name is its own; UsageError for an unknown one of several."""
    if name not in known and len(known) > 1:
        raise UsageError(f"there is no model {one_line(name)!r}; there are {', '.join(known)}")
    if style == "anthropic":
        return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    if style == "google":
        methods = ["generateContent", "countTokens"]
        return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}
    return {"id": name, "object": "model", "created": 0, "owned_by": "wanderlust"}


def render_models(known: Sequence[str], style: Style) -> JsonObject:
    """Render the list of all models."""
    models = [render_model(name, known, style) for name in known]
    if style == "google":
        return {"models": models}
    if style == "anthropic":
        return {"data": models, "has_more": False, "first_id": known[0], "last_id": known[-1]}
    return {"object": "list", "data": models}
