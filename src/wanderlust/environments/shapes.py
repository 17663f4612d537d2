"""The shapes that most environments have: one turn, several turns by `respond`, and tools.

Each starts from the task's prompt, which may be any prefix of a conversation. When it ends with the model's own words,
the environment has the next word: it answers them before the model is asked.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import ClassVar, TypeAlias

from wanderlust.core.contracts import Environment, Episode, Limits, Rubric, Tool
from wanderlust.core.errors import UsageError
from wanderlust.core.messages import Message, user
from wanderlust.core.types import Task
from wanderlust.tools.calling import CallLimits, call_tools, count
from wanderlust.tools.toolset import Source, opened

Reply: TypeAlias = Message | str | Sequence[Message] | None
"""What an environment answers: messages, or the text of a user's; nothing ends the episode."""
Tasks: TypeAlias = Sequence[Task] | Mapping[str, Sequence[Task]]
"""Tasks for every split, or for each by name."""


class SingleTurnEnvironment(Environment):
    """Shows the prompt, takes one answer. Give tasks and a rubric, or write a subclass that has them."""

    prefixes = True

    def __init_subclass__(cls) -> None:
        """A loop of one's own is not known to begin anywhere, unless it says so."""
        super().__init_subclass__()
        if "run" in vars(cls) and "prefixes" not in vars(cls):
            cls.prefixes = False

    def __init__(self, tasks: Tasks = (), *, rubric: Rubric | None = None, limits: Limits | None = None):
        self._tasks = tasks if isinstance(tasks, Mapping) else {"train": tasks, "eval": tasks}
        self.rubric = rubric or self.rubric
        self.limits = limits or self.limits

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """The tasks of a split. Raises UsageError when there is no such split."""
        if split not in self._tasks:
            raise UsageError(f"there is no split {split!r}: one of {', '.join(self._tasks)}")
        return self._tasks[split]

    async def run(self, episode: Episode) -> None:
        """One question, one answer."""
        await episode.agent.act(*episode.task.prompt)


class MultiTurnEnvironment(SingleTurnEnvironment):
    """Answers the model until it has nothing more to say."""

    prefixes = True

    @abstractmethod
    def respond(self, messages: Sequence[Message], episode: Episode) -> Reply | Awaitable[Reply]:
        """What the environment says to the last of `messages`; None ends the episode. May be asynchronous.

        What must be remembered stands in `episode.state`: one environment serves every episode at once.
        """

    async def run(self, episode: Episode) -> None:
        """Answer for answer, until `respond` ends it."""
        await self.converse(episode, ())

    async def converse(self, episode: Episode, tools: Sequence[Tool]) -> None:
        """The loop itself, with tools for the model to call."""
        said = list(episode.task.prompt)
        new: Sequence[Message] | None = said
        if said and said[-1].role == "assistant":
            new = await self._reply(said[-1], said, episode=episode, tools=tools)
            new = None if new is None else [*said, *new]
        while new is not None:
            answer = await episode.agent.act(*new, tools=tools)
            new = await self._reply(answer, episode.agent.messages, episode=episode, tools=tools)

    async def _reply(
        self, answer: Message, messages: Sequence[Message], *, episode: Episode, tools: Sequence[Tool]
    ) -> Sequence[Message] | None:
        reply = self.respond(messages, episode)
        told = await reply if inspect.isawaitable(reply) else reply
        if isinstance(told, str):
            return [user(told)]
        return [told] if isinstance(told, Message) else told or None


class ToolEnvironment(MultiTurnEnvironment):
    """Lets the model call tools until it answers without a call.

    Every call is answered, the wrong ones too; how many ended how is counted in the state, under `tool_calls`.
    Calls in the last message of a prompt are made first; earlier ones were answered and are not made again.
    """

    tools: Sequence[Source] = ()
    """Functions, tools, and toolsets (MCP servers, or what `@toolset` makes for each episode)."""
    prefixes = True
    call_limits: ClassVar[CallLimits] = CallLimits()

    def __init__(
        self,
        tasks: Tasks = (),
        *,
        tools: Sequence[Source] = (),
        rubric: Rubric | None = None,
        limits: Limits | None = None,
    ):
        super().__init__(tasks, rubric=rubric, limits=limits)
        self.tools = tools or self.tools

    def respond(self, messages: Sequence[Message], episode: Episode) -> Reply | Awaitable[Reply]:
        """What is said to an answer without a call; by default nothing, which ends the episode."""
        return None

    async def run(self, episode: Episode) -> None:
        """Open the tools, and let the model work with them."""
        episode.state["tool_calls"] = {}
        async with opened(self.tools, episode) as tools:
            await self.converse(episode, tools)

    async def _reply(
        self, answer: Message, messages: Sequence[Message], *, episode: Episode, tools: Sequence[Tool]
    ) -> Sequence[Message] | None:
        if not answer.tool_calls:
            return await super()._reply(answer, messages, episode=episode, tools=tools)
        called = await call_tools(answer.tool_calls, tools, self.call_limits)
        count(called, episode.state["tool_calls"])
        return [one.message for one in called]
