"""Models and seats for other programs: OpenAI-compatible servers and clients, other trainers, tools in plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderlust._lazy import lazy_names

if TYPE_CHECKING:
    from wanderlust.adapters.external_program import Program as Program
    from wanderlust.adapters.trl import trl_environments as trl_environments
    from wanderlust.adapters.verl import play_episode as play_episode
    from wanderlust.serving.agent_api import AgentAPI as AgentAPI
    from wanderlust.serving.http import AgentServer as AgentServer
    from wanderlust.serving.model_api import ModelAPI as ModelAPI
    from wanderlust.serving.model_api import ServedModel as ServedModel
    from wanderlust.serving.openai_client import Client as Client
    from wanderlust.serving.openai_sdk import openai_client as openai_client
    from wanderlust.tools.mcp_server import serve_http as serve_http
    from wanderlust.tools.mcp_server import serve_stdio as serve_stdio
    from wanderlust.tools.sandbox.base import SandboxBounds as SandboxBounds
    from wanderlust.tools.sandbox.box import Box as Box
    from wanderlust.tools.text_protocol import TextProtocol as TextProtocol

_MODULES = {
    "serving.agent_api": "AgentAPI",
    "serving.http": "AgentServer",
    "tools.mcp_server": "serve_http serve_stdio",
    "serving.model_api": "ModelAPI ServedModel",
    "serving.openai_client": "Client",
    "serving.openai_sdk": "openai_client",
    "tools.text_protocol": "TextProtocol",
    "tools.sandbox.base": "SandboxBounds",
    "tools.sandbox.box": "Box",
    "adapters.trl": "trl_environments",
    "adapters.verl": "play_episode",
    "adapters.external_program": "Program",
}
"""The names of each module that are public here."""

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
