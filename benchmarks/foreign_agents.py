"""Agents of other projects, unmodified, that play in boxes: what is installed for each, and how it is started.

Each lies in a folder of its own under that of the peers, which a sandbox shows to its program.
`python -m benchmarks.foreign_agents` installs them: 2 GB in three minutes. An agent finds the model by the variables
that `Program` sets, and by the file of settings that its command writes where it needs one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.peer import INSTALL_SECONDS, PLACE, NotMeasured, last_line
from wanderlust.adapters.external_program import Program
from wanderlust.tools.sandbox.box import Box
from wanderlust.tools.sandbox.bubblewrap import find_python
from wanderlust.types import Task

PROMPT = "Write the word hello into the file answer.txt."
SHELL_LINE = "printf hello > answer.txt"
IGNORED = frozenset(
    {
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "stop", "tool_choice", "parallel_tool_calls"),
        *("logprobs", "service_tier", "store"),
    }
)
"""Options that these agents send and do not depend on here."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForeignAgent:
    """An agent, its language, its packages, and the line of `sh` that starts it."""

    name: str
    language: str
    packages: Literal["npm", "pip"]
    pins: tuple[str, ...]
    line: str
    """`$1` is the agent's folder, `$2` the prompt."""
    variables: Mapping[str, str] = field(default_factory=dict)
    program: str = ""
    """A program over a framework; the file's path is `$3`. Empty for an agent that is a command."""

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return PLACE / "agents" / self.name

    @property
    def installed(self) -> bool:
        """Whether it has been installed with just these pins."""
        ready = self.folder / "ready"
        return ready.is_file() and ready.read_text() == "\n".join(self.pins)

    def command(self, task: Task) -> list[str]:
        """The command that plays a task."""
        prompt = task.prompt[-1].content
        return ["sh", "-c", f"{self.line} </dev/null", "sh", str(self.folder), prompt, str(self.folder / "program")]


def boxed(agent: ForeignAgent, kind: type[Program] = Program, *, seconds: float = 120.0) -> Program:
    """The agent as an environment, in a box. Raises NotMeasured where it is not installed."""
    if not agent.installed:
        raise NotMeasured(f"{agent.name} is not installed: make peers")
    box = Box(readable=(agent.folder,))
    variables = dict(agent.variables)
    return kind(agent.command, environment=variables, seconds=seconds, sandbox=box, ignored_options=IGNORED)


def install(agent: ForeignAgent) -> None:
    """Install it, where it is not. Raises NotMeasured."""
    if agent.installed:
        return
    folder = agent.folder
    print(f"installing {', '.join(agent.pins)} into {folder} ...", file=sys.stderr, flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    if agent.packages == "npm":
        command = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), *agent.pins]
    else:  # an interpreter that the sandbox shows, which this one need not be
        make = [str(find_python()), "-m", "venv", "--clear", "--without-pip", str(folder)]
        subprocess.run(make, check=True, capture_output=True)
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-qq", "--no-input"]
        command = [*pip, "--only-binary", ":all:", *agent.pins]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotMeasured(f"{agent.name}: {last_line(getattr(error, 'stderr', None) or str(error))}") from error
    if agent.program:
        (folder / "program").write_text(agent.program)
    (folder / "ready").write_text("\n".join(agent.pins))


def _provider(**settings: object) -> str:
    """Settings as JSON for printf, which puts the URL of the endpoint for @URL."""
    return json.dumps(settings).replace("@URL", "%s")


_PI_MODEL = {
    "id": "agent",
    "name": "agent",
    "reasoning": False,
    "input": ["text"],
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    "contextWindow": 32_000,
    "maxTokens": 1_000,
}
_PI = {"baseUrl": "@URL", "apiKey": "OPENAI_API_KEY", "api": "openai-completions", "models": [_PI_MODEL]}
_OPENCODE = {
    "npm": "@ai-sdk/openai-compatible",
    "name": "box",
    "options": {"baseURL": "@URL", "apiKey": "{env:OPENAI_API_KEY}"},
    "models": {"agent": {"name": "agent"}},
}
_CODEX = "".join(
    f"{line}\\n"
    for line in (
        'model_provider = "box"',
        'model = "agent"',
        "[model_providers.box]",
        'name = "box"',
        'base_url = "%s"',
        'env_key = "OPENAI_API_KEY"',
        'wire_api = "responses"',
    )
)
_CODEX_WITHOUT = ("multi_agent", "goals", "incremental_tools", "incremental_tools_legacy_gcp", "image_generation")
"""Features whose tools are no functions."""

_SMOLAGENTS = """
import os, subprocess, sys
from smolagents import OpenAIServerModel, ToolCallingAgent, tool

@tool
def bash(command: str) -> str:
    '''Run a shell command.

    Args:
        command: The command.
    '''
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout

model = OpenAIServerModel("agent", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
ToolCallingAgent(tools=[bash], model=model, max_steps=3).run(sys.argv[1])
"""
_OPENAI_AGENTS = """
import subprocess, sys
from agents import Agent, MaxTurnsExceeded, Runner, function_tool, set_tracing_disabled

@function_tool
def bash(command: str) -> str:
    '''Run a shell command.'''
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout

set_tracing_disabled(True)
try:
    print(Runner.run_sync(Agent(name="a", tools=[bash], model="agent"), sys.argv[1], max_turns=4).final_output)
except MaxTurnsExceeded:
    print("too many turns")
"""
_LANGGRAPH = """
import subprocess, sys
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

def bash(command: str) -> str:
    '''Run a shell command.'''
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout

agent = create_react_agent(ChatOpenAI(model="agent"), [bash])
print(agent.invoke({"messages": [("user", sys.argv[1])]})["messages"][-1].content)
"""
_AGENTS_JS = """
const { execSync } = require('node:child_process');
const { Agent, run, setTracingDisabled, tool } = require(process.argv[2] + '/node_modules/@openai/agents');
const { z } = require(process.argv[2] + '/node_modules/zod');
setTracingDisabled(true);
const bash = tool({
  name: 'bash', description: 'Run a shell command.', parameters: z.object({ command: z.string() }),
  execute: async ({ command }) => execSync(command).toString(),
});
run(new Agent({ name: 'a', tools: [bash], model: 'agent' }), process.argv[3], { maxTurns: 4 })
  .then(result => console.log(result.finalOutput));
"""

AGENTS = (
    ForeignAgent(
        name="mini-swe-agent",
        language="Python",
        packages="pip",
        pins=("mini-swe-agent==2.4.6", "mcp==2.3.0"),
        line='exec "$1/bin/mini" -t "$2" -y -m openai/agent --exit-immediately -c mini.yaml -c agent.step_limit=4',
        variables={
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    ),
    ForeignAgent(
        name="aider",
        language="Python",
        packages="pip",
        pins=("aider-chat==0.86.2",),
        line='export OPENAI_API_BASE=$OPENAI_BASE_URL; exec "$1/bin/aider" --model openai/agent --no-git --yes-always'
        " --no-check-update --no-show-model-warnings --no-analytics --edit-format whole --no-stream --map-tokens 0"
        ' --no-show-release-notes --message "$2" answer.txt',
        variables={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    ),
    ForeignAgent(
        name="codex",
        language="Rust",
        packages="npm",
        pins=("@openai/codex@0.169.0",),
        line=f"mkdir .codex && printf '{_CODEX}' \"$OPENAI_BASE_URL\" > .codex/config.toml;"
        ' exec "$1/node_modules/.bin/codex" -c web_search=disabled '
        + " ".join(f"--disable {feature}" for feature in _CODEX_WITHOUT)
        + ' exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox "$2"',
    ),
    ForeignAgent(
        name="pi",
        language="TypeScript",
        packages="npm",
        pins=("@mariozechner/pi-coding-agent@0.73.1",),
        line=f"mkdir -p .pi/agent && printf '{_provider(providers={'box': _PI})}' \"$OPENAI_BASE_URL\""
        ' > .pi/agent/models.json; exec "$1/node_modules/.bin/pi" -p --provider box --model agent "$2"',
        variables={"PI_OFFLINE": "1"},
    ),
    ForeignAgent(
        name="opencode",
        language="TypeScript",
        packages="npm",
        pins=("opencode-ai@1.18.33",),
        line="mkdir -p .config/opencode && printf "
        f"'{_provider(provider={'box': _OPENCODE}, permission='allow', autoupdate=False)}' \"$OPENAI_BASE_URL\""
        ' > .config/opencode/opencode.json; exec "$1/node_modules/.bin/opencode" run -m box/agent "$2"',
        variables={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    ),
    ForeignAgent(
        name="qwen-code",
        language="JavaScript",
        packages="npm",
        pins=("@qwen-code/qwen-code@0.15.10",),
        line='exec "$1/node_modules/.bin/qwen" --auth-type openai -y -p "$2"',
        variables={"OPENAI_MODEL": "agent", "NO_UPDATE_NOTIFIER": "1"},
    ),
    ForeignAgent(
        name="claude-code",
        language="TypeScript",
        packages="npm",
        pins=("@anthropic-ai/claude-code@2.1.197",),
        line='exec "$1/node_modules/.bin/claude" -p "$2" --model agent --dangerously-skip-permissions',
        variables={
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4096",
        },
    ),
    ForeignAgent(
        name="gemini-cli",
        language="JavaScript",
        packages="npm",
        pins=("@google/gemini-cli@0.61.0",),
        line="mkdir -p .gemini && "
        """printf '{"security":{"auth":{"selectedType":"gemini-api-key"}}}' > .gemini/settings.json; """
        'exec "$1/node_modules/.bin/gemini" --skip-trust -y -m agent -p "$2"',
    ),
    ForeignAgent(
        name="smolagents",
        language="Python",
        packages="pip",
        pins=("smolagents[openai]==1.26.0",),
        line='exec "$1/bin/python" "$3" "$2"',
        program=_SMOLAGENTS,
    ),
    ForeignAgent(
        name="openai-agents",
        language="Python",
        packages="pip",
        pins=("openai-agents==0.24.0",),
        line='exec "$1/bin/python" "$3" "$2"',
        program=_OPENAI_AGENTS,
    ),
    ForeignAgent(
        name="langgraph",
        language="Python",
        packages="pip",
        pins=("langgraph==1.2.22", "langchain-openai==1.7.3"),
        line='exec "$1/bin/python" "$3" "$2"',
        program=_LANGGRAPH,
    ),
    ForeignAgent(
        name="agents-js",
        language="JavaScript",
        packages="npm",
        pins=("@openai/agents@0.20.0", "zod@4.6.7"),
        line='exec node "$3" "$1" "$2"',
        program=_AGENTS_JS,
    ),
)

COMMANDS = frozenset(agent.name for agent in AGENTS if not agent.program)
"""Agents that are commands for coding; the others are programs over a framework."""


if __name__ == "__main__":
    failures = 0
    for wanted in AGENTS:
        try:
            install(wanted)
        except NotMeasured as why:
            print(why, file=sys.stderr)
            failures += 1
    sys.exit(1 if failures else 0)
