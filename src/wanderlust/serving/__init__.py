"""OpenAI-compatible servers: in front of a model, and in front of the seats of an episode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderlust._lazy import lazy_names

if TYPE_CHECKING:
    from wanderlust.adapters.external_program import Program as Program
    from wanderlust.serving.agent_api import AgentAPI as AgentAPI
    from wanderlust.serving.http import AgentServer as AgentServer
    from wanderlust.serving.model_api import ModelAPI as ModelAPI
    from wanderlust.serving.model_api import ServedModel as ServedModel
    from wanderlust.serving.openai_client import Client as Client
    from wanderlust.tools.mcp_server import serve_http as serve_http
    from wanderlust.tools.mcp_server import serve_stdio as serve_stdio

_MODULES = {
    "serving.agent_api": "AgentAPI",
    "serving.http": "AgentServer",
    "tools.mcp_server": "serve_http serve_stdio",
    "serving.model_api": "ModelAPI ServedModel",
    "serving.openai_client": "Client",
    "adapters.external_program": "Program",
}
"""The names of each module that are public here."""

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
