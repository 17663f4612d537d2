"""Wanderlust: reinforcement-learning environments of language-model agents.

Write an environment once, evaluate any model in it, look at every rollout, and train a model on it. Everything public
is importable from here or from `wanderlust.worlds`, `.algorithms`, `.testing`, `.errors` and `.serving`; all other
modules are private and may change in any release. Names are imported when they are first used, so that this import
takes milliseconds and only training and local models need PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderlust._lazy import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from wanderlust.agent import Agent as Agent
    from wanderlust.agent.limits import Limits as Limits
    from wanderlust.environment import Environment as Environment
    from wanderlust.environment import Episode as Episode
    from wanderlust.environment import MultiTurnEnvironment as MultiTurnEnvironment
    from wanderlust.environment import SingleTurnEnvironment as SingleTurnEnvironment
    from wanderlust.environment import StepEnvironment as StepEnvironment
    from wanderlust.evals.comparison import compare as compare
    from wanderlust.evals.evaluate import evaluate as evaluate
    from wanderlust.evals.evaluate import evaluate_sync as evaluate_sync
    from wanderlust.evals.gate import check as check
    from wanderlust.evals.gate import probe as probe
    from wanderlust.evals.report import Report as Report
    from wanderlust.policies.base import SamplingOptions as SamplingOptions
    from wanderlust.policies.endpoint import Endpoint as Endpoint
    from wanderlust.policies.local.policy import LocalPolicy as LocalPolicy
    from wanderlust.policies.scripted import Scripted as Scripted
    from wanderlust.policies.vllm import VLLM as VLLM
    from wanderlust.rubrics.judge import GroupJudge as GroupJudge
    from wanderlust.rubrics.judge import Judge as Judge
    from wanderlust.rubrics.parsing import JsonFields as JsonFields
    from wanderlust.rubrics.parsing import XmlFields as XmlFields
    from wanderlust.rubrics.rewards import exact as exact
    from wanderlust.rubrics.rewards import matches as matches
    from wanderlust.rubrics.rewards import numeric as numeric
    from wanderlust.rubrics.rewards import symbolic as symbolic
    from wanderlust.rubrics.rubric import Reward as Reward
    from wanderlust.rubrics.rubric import Rubric as Rubric
    from wanderlust.rubrics.rubric import gate as gate
    from wanderlust.rubrics.rubric import held_out as held_out
    from wanderlust.rubrics.rubric import metric as metric
    from wanderlust.runner.engine import rollout as rollout
    from wanderlust.runner.engine import rollouts as rollouts
    from wanderlust.runner.stepper import Stepper as Stepper
    from wanderlust.store.run import load_run as load_run
    from wanderlust.tasks.datasets import load_tasks as load_tasks
    from wanderlust.tasks.mixture import Mixture as Mixture
    from wanderlust.tasks.registry import load_environment as load_environment
    from wanderlust.tools.function import ToolError as ToolError
    from wanderlust.tools.function import tool as tool
    from wanderlust.tools.function import toolset as toolset
    from wanderlust.tools.mcp_toolset import McpServer as McpServer
    from wanderlust.tools.sandbox import open_sandbox as open_sandbox
    from wanderlust.tools.tool_environment import ToolEnvironment as ToolEnvironment
    from wanderlust.training.config import TrainConfig as TrainConfig
    from wanderlust.training.train import train as train
    from wanderlust.types import Completion as Completion
    from wanderlust.types import Group as Group
    from wanderlust.types import Message as Message
    from wanderlust.types import Policy as Policy
    from wanderlust.types import Rollout as Rollout
    from wanderlust.types import Score as Score
    from wanderlust.types import Task as Task
    from wanderlust.types import Tokens as Tokens
    from wanderlust.types import ToolCall as ToolCall
    from wanderlust.types import Trajectory as Trajectory
    from wanderlust.types import Turn as Turn
    from wanderlust.types import assistant as assistant
    from wanderlust.types import system as system
    from wanderlust.types import user as user

_MODULES = {
    "types": "Task Message ToolCall system user assistant Completion Tokens Turn Trajectory Score Rollout Group Policy",
    "agent.limits": "Limits",
    "agent": "Agent",
    "environment": "Environment Episode StepEnvironment SingleTurnEnvironment MultiTurnEnvironment",
    "tools.tool_environment": "ToolEnvironment",
    "tools.function": "tool toolset ToolError",
    "tools.mcp_toolset": "McpServer",
    "tools.sandbox": "open_sandbox",
    "tasks.mixture": "Mixture",
    "tasks.registry": "load_environment",
    "tasks.datasets": "load_tasks",
    "policies.base": "SamplingOptions",
    "policies.endpoint": "Endpoint",
    "policies.vllm": "VLLM",
    "policies.local.policy": "LocalPolicy",
    "policies.scripted": "Scripted",
    "rubrics.rubric": "Rubric Reward gate metric held_out",
    "rubrics.rewards": "exact numeric matches symbolic",
    "rubrics.parsing": "XmlFields JsonFields",
    "rubrics.judge": "Judge GroupJudge",
    "runner.engine": "rollout rollouts",
    "runner.stepper": "Stepper",
    "evals.evaluate": "evaluate evaluate_sync",
    "evals.report": "Report",
    "evals.comparison": "compare",
    "evals.gate": "check probe",
    "store.run": "load_run",
    "training.config": "TrainConfig",
    "training.train": "train",
}
"""The names of each module that are public here."""

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
