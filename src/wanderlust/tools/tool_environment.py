"""Multi-turn environments in which the model calls tools."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import ClassVar

from wanderlust.agent.limits import MAX_NOTE_CHARS
from wanderlust.environment import EnvironmentReply, Episode, Limits, MultiTurnEnvironment, TasksBySplit
from wanderlust.tools.function import ToolSource, open_toolsets
from wanderlust.tools.tool_calls import CallLimits, call_tools, count_outcomes
from wanderlust.types import Message, RubricLike, Tool


class ToolEnvironment(MultiTurnEnvironment):
    """Let the model call tools until it answers without a call.

    Every call is answered, wrong ones too; outcomes are counted in the state, under `tool_calls`.
    Calls in the last message of a prompt are made first; earlier ones were answered and are not made again.
    """

    tools: Sequence[ToolSource] = ()
    """Functions, tools, and toolsets (MCP servers, or what `@toolset` makes for each episode)."""
    prefixes = True
    call_limits: ClassVar[CallLimits] = CallLimits()

    def __init__(
        self,
        tasks: TasksBySplit = (),
        *,
        tools: Sequence[ToolSource] = (),
        rubric: RubricLike | None = None,
        limits: Limits | None = None,
    ):
        super().__init__(tasks, rubric=rubric, limits=limits)
        self.tools = tools or self.tools

    def respond(self, messages: Sequence[Message], episode: Episode) -> EnvironmentReply | Awaitable[EnvironmentReply]:
        """Reply to an answer without a call; by default None, which ends the episode."""
        return None

    async def run(self, episode: Episode) -> None:
        """Open the tools, and let the model work with them."""
        episode.state["tool_calls"] = {}
        async with open_toolsets(self.tools, episode) as tools:
            await self.converse(episode, tools)

    async def _reply(
        self, answer: Message, messages: Sequence[Message], *, episode: Episode, tools: Sequence[Tool]
    ) -> Sequence[Message] | None:
        if not answer.tool_calls:
            return await super()._reply(answer, messages, episode=episode, tools=tools)
        most, limits = episode.agent.limits.max_tool_chars, self.call_limits
        if most is not None:  # with the note about the cut
            limits = replace(limits, max_result_chars=min(limits.max_result_chars, most - MAX_NOTE_CHARS))
        called = await call_tools(answer.tool_calls, tools, limits)
        count_outcomes(called, episode.state["tool_calls"])
        return [one.message for one in called]
