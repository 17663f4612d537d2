"""The public names, each from the module that defines it: read when one is first used, and by type checkers."""

from wanderlust.adapters.external_program import Program as Program
from wanderlust.adapters.trl import trl_environments as trl_environments
from wanderlust.adapters.verl import play_episode as play_episode
from wanderlust.policies.base import ThinkingBudget as ThinkingBudget
from wanderlust.policies.chat_template import Renderer as Renderer
from wanderlust.policies.token_policy import TokenPolicy as TokenPolicy
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
