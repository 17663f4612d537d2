"""A live seat of an episode: a policy whose turns are recorded and bounded, and what an episode is busy with."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from wanderlust.agent.conversation_graph import ConversationGraph, Place
from wanderlust.agent.limits import Limits, Spending, cut_text
from wanderlust.agent.play import Play
from wanderlust.declared_tools import declare_tools
from wanderlust.errors import (
    PolicyFailure,
    StopEpisode,
    ToolsWarning,
    UsageError,
    WanderlustError,
    answer_blocked,
    boundary,
)
from wanderlust.types import (
    AnswerOptions,
    Completion,
    Message,
    OnText,
    Policy,
    SupportsOptions,
    SupportsStreaming,
    Tool,
    Trajectory,
    Turn,
)


@dataclass(slots=True, eq=False, kw_only=True)
class Activity:
    """One episode in progress."""

    task: str
    since: float
    """When it began, in seconds of the monotonic clock; for reports, never for logic."""
    steps: dict[int, str] = field(default_factory=dict)

    @property
    def current_step(self) -> str:
        """The innermost thing that is under way, of several at once the one begun last."""
        return next(reversed(self.steps.values()), "the environment")


current_activity: ContextVar[Activity | None] = ContextVar("activity", default=None)
"""The episode that the running code belongs to; tasks that it starts belong to it too."""


class track:
    """`with track("tool search"): ...` says what the episode is busy with; outside of an episode it does nothing."""

    __slots__ = ("_activity", "_what")

    def __init__(self, what: str):
        self._what = what

    def __enter__(self) -> None:
        self._activity = current_activity.get()
        if self._activity is not None:
            self._activity.steps[id(self)] = self._what

    def __exit__(self, *_: object) -> None:
        if self._activity is not None:
            self._activity.steps.pop(id(self), None)


class Agent:
    """A live seat: a policy whose every turn is recorded and bounded.

    A turn that did not happen (a failure, a limit, a cancellation) leaves the conversation as it was. Turns asked
    for at once by `act` are taken one after the other; those by `act_with_context` are taken at once.

    Example:
        >>> class Echo:
        ...     async def complete(self, messages, tools=(), *, key=""):
        ...         return Completion(message=Message("assistant", messages[-1].content))
        >>> asyncio.run(Agent(Echo()).act(user("Hello."))).content
        'Hello.'
    """

    def __init__(
        self,
        policy: Policy,
        *,
        key: str = "",
        seat: str = "agent",
        limits: Limits | None = None,
        trainable: bool = True,
        spending: Spending | None = None,
        play: Play | None = None,
    ):
        """`spending` and `play` are the episode's, shared by its seats."""
        self.policy, self.key, self.limits = policy, key, limits or Limits()
        self.spending, self.play = spending or Spending(), play or Play()
        self.trajectory = Trajectory(seat=seat, trainable=trainable)
        self.messages: list[Message] = []
        """The conversation as it stands after the latest turn."""
        self.interruption: WanderlustError | None = None
        """What kept the latest turn from happening; it ends the episode even where a program swallows it."""
        self._graph = ConversationGraph(self.trajectory, key)
        self._latest: int | None = None
        """The turn that `act` continues, where that is not the last one."""
        self._context_tokens: list[int] = []
        """Per turn, tokens of its conversation after it."""
        self._under_way = 0
        self._turn_lock = asyncio.Lock()
        self._activity_name = "the policy" if seat == "agent" else f"the policy of {seat}"

    async def act(self, *observation: Message, tools: Sequence[Tool] = ()) -> Message:
        """Show the policy what is new; return what it does. Raises StopEpisode at a limit or a full context."""
        async with self._turn_lock:
            new = self._cut(observation)
            place = self._graph.after(self.messages, new, turn=self._latest)
            return await self._turn(place, new, tools)

    def go_back(self, turn: int) -> None:
        """Let the next `act` go on from the conversation as it stood after this turn.

        The turns since then stay in the trajectory, as a branch of their own: what was sampled is trained on once, and
        nothing of it is in the new context. Raises UsageError where there is no such turn.
        """
        if not 0 <= turn < len(self.trajectory.turns):
            raise UsageError(f"there is no turn {turn} to go back to: the seat took {len(self.trajectory.turns)}")
        self.messages, self._latest = self.trajectory.conversation(turn), turn

    async def act_with_context(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        options: AnswerOptions | None = None,
        on_text: OnText | None = None,
    ) -> Message:
        """Like `act`, but the caller owns the whole context (black-box agents, compaction).

        The turn continues the recorded conversation that is the longest beginning of `messages`, or begins one. Answers
        that `messages` repeats with other space, reasoning or form of arguments are taken as they were recorded.

        `options` reach policies that are SupportsOptions, and nobody else: ask `unsupported_option` first. `on_text`
        reaches those and policies that are SupportsStreaming; others never call it.
        """
        place, new = self._graph.find(self._cut(messages))
        return await self._turn(place, new, tools, options=options, on_text=on_text)

    def _cut(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages, those of tools within their bound."""
        limit = self.limits.max_tool_chars
        if limit is None or not any(message.role == "tool" and len(message.content) > limit for message in messages):
            return tuple(messages)
        return tuple(
            replace(message, content=cut_text(message.content, limit)) if message.role == "tool" else message
            for message in messages
        )

    def _reached_limit(self, place: Place) -> str:
        """Name of the bound that leaves no further turn; empty when there is none."""
        if len(self.trajectory.turns) + self._under_way >= self.limits.max_turns:
            return "max_turns"
        most = self.limits.max_context_tokens
        if most is not None and place.parent >= 0 and self._context_tokens[place.parent] >= most:
            return "max_context_tokens"
        return self.spending.reached(self.limits)

    async def _turn(
        self,
        place: Place,
        observation: tuple[Message, ...],
        tools: Sequence[Tool],
        *,
        options: AnswerOptions | None = None,
        on_text: OnText | None = None,
    ) -> Message:
        context, before = [*place.messages, *observation], self.interruption
        try:
            limit = self._reached_limit(place)
            if stop := self.play.stop or (StopEpisode(limit) if limit else None):
                await asyncio.sleep(0)  # an environment that goes on asking must not keep everybody else waiting
                raise stop
            with self.play.turn():
                completion = await self._complete(place, context, tools, options=options, on_text=on_text)
        except WanderlustError as cut:
            self.interruption = cut
            raise
        if self.interruption is before:  # else another turn was cut meanwhile
            self.interruption = None
        self._latest = None
        self._context_tokens.append(self.spending.add(completion))
        self.messages = [*context, completion.message]
        turns, offered = self.trajectory.turns, declare_tools(tools) if tools else ()
        if turns and offered == turns[-1].tools:  # equal ones are kept once
            offered = turns[-1].tools
        turn = Turn(
            observation=observation,
            action=completion.message,
            resets_context=bool(turns) and place.parent < 0,
            parent=place.parent if 0 <= place.parent < len(turns) - 1 else None,
            tools=offered,
            finish=completion.finish,
            tokens=completion.tokens,
            usage=completion.usage,
            details=completion.details,
        )
        turns.append(turn)
        self._graph.record(place)
        if completion.finish == "refusal" and self.limits.refusals == "failure":
            raise answer_blocked("refusal", text=completion.message.content)
        return completion.message

    async def _complete(
        self,
        place: Place,
        context: Sequence[Message],
        tools: Sequence[Tool],
        *,
        options: AnswerOptions | None,
        on_text: OnText | None,
    ) -> Completion:
        """The policy's answer; the place is free again where there is none."""
        self._graph.begin(place)
        self._under_way += 1
        done = False
        try:
            with boundary(PolicyFailure), track(self._activity_name):
                if options is not None and isinstance(self.policy, SupportsOptions):
                    completion = await self.policy.complete_with_options(
                        options, context, tools, key=place.key, on_text=on_text
                    )
                elif on_text is not None and isinstance(self.policy, SupportsStreaming):
                    completion = await self.policy.complete_streaming(on_text, context, tools, key=place.key)
                else:
                    completion = await self.policy.complete(context, tools, key=place.key)
                if not isinstance(completion, Completion):
                    raise PolicyFailure(f"the policy gave a {type(completion).__name__}, and not a Completion")
            if tools and not completion.message.tool_calls:
                _warn_of_unread_call(completion.message.content)
            done = True
            return completion
        finally:
            self._under_way -= 1
            if not done:
                self._graph.drop(place)

    def release(self) -> None:
        """Tell the policy that the seat's conversations are over."""
        for key in self._graph.keys:
            release_conversation(self.policy, key)


_CALL_MARK = re.compile(
    r"<tool_call>|\[TOOL_CALLS\]|<\|tool_calls?_|<\uff5ctool\u2581call|<\|python_tag\|>|<start_function_call>|"
    r"\bto=functions\.|<function=|```tool_code"
)
"""Beginnings of tool calls in the forms of many models."""


def _warn_of_unread_call(text: str) -> None:
    """Say once that an answer looks like a call in a form that nobody read: it counts as an answer without calls."""
    mark = _CALL_MARK.search(text, text.rfind("</think>") + 1)
    if mark is not None:
        call = " ".join(text[mark.start() :][:60].split())
        warnings.warn(
            f"an answer looks like a tool call that was not read, and counts as an answer: {call!r}; set --tool-calls "
            "text, or start the server with the parser of this model's calls",
            ToolsWarning,
            stacklevel=2,
        )


def release_conversation(policy: object, key: str) -> None:
    """Let a policy forget what it keeps of a conversation, if it keeps anything (`SupportsRelease`)."""
    release = getattr(policy, "release", None)  # isinstance with a protocol takes longer than a whole turn
    if release is not None:
        release(key)
