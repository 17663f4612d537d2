"""Conversations as token ids: what was read and said stays as it was, and only what is new is rendered.

The one way from messages to ids. A policy that samples goes it, and so does what is imitated: equal conversations are
equal ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from wanderlust.agent.conversation_graph import branch_key, seat_of_key
from wanderlust.declared_tools import declare_tools
from wanderlust.errors import PolicyFailure
from wanderlust.policies.chat_template import Renderer
from wanderlust.types import DeclaredTool, Message, Tokens, Tool, Trajectory


@dataclass(frozen=True, slots=True)
class _Answered:
    """A conversation as it stood after an answer."""

    messages: int
    ids: int
    """Ids of the messages, read and said."""
    closed: bool
    """Whether the end-of-turn id was said."""


@dataclass(slots=True)
class TokenConversation:
    """A conversation and its ids."""

    messages: list[Message] = field(default_factory=list)
    tools: tuple[DeclaredTool, ...] = ()
    """The tools in the context."""
    ids: list[int] = field(default_factory=list)
    answers: list[_Answered] = field(default_factory=list)
    busy: bool = False

    def append(self, read: Sequence[int], messages: Sequence[Message], said: Sequence[int], *, closed: bool) -> None:
        """Add what was read and an answer; `messages` is the whole conversation."""
        self.ids += (*read, *said)
        self.messages = [*messages]
        self.answers.append(_Answered(len(messages), len(self.ids), closed))

    def until(self, messages: Sequence[Message]) -> TokenConversation | None:
        """The conversation up to the last of its answers that `messages` goes on from; None where there is none."""
        for number in range(len(self.answers), 0, -1):
            end = self.answers[number - 1]
            if end.messages < len(messages) and list(messages[: end.messages]) == self.messages[: end.messages]:
                kept = self.messages[: end.messages], self.tools, self.ids[: end.ids], self.answers[:number]
                return TokenConversation(*kept)
        return None


@dataclass(frozen=True, slots=True)
class Opened:
    """A conversation that asks for an answer."""

    conversation: TokenConversation
    new: tuple[int, ...]
    """Ids that follow those of the conversation, up to the answer."""
    restarted: bool
    """Whether there was one under the key, which could not be extended."""


class TokenConversations:
    """The conversations of a policy, by key; those without one are not kept."""

    def __init__(self, renderer: Renderer):
        self.renderer = renderer
        self._conversations: dict[str, TokenConversation] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._conversations

    def __len__(self) -> int:
        return len(self._conversations)

    def drop(self, key: str) -> bool:
        """Forget the conversation; returns whether there was one."""
        return self._conversations.pop(key, None) is not None

    def open(self, messages: Sequence[Message], tools: Sequence[Tool], *, key: str) -> Opened:
        """Find the conversation under `key`, or start one, and render the ids that it reads next.

        It is extended where `messages` goes on from it and the tools are the same: else the whole context is rendered.
        Where no tools are offered, those that the conversation has stay in the context. A branch of another
        conversation of the seat begins with the ids of that one.
        """
        if any(message.images for message in messages):
            raise PolicyFailure("a message with an image, and this model reads text alone")
        own = self._conversations.get(key) if key else None
        if own is not None and own.busy:
            raise PolicyFailure(f"two answers at once are asked for under the key {key!r}")
        declared = declare_tools(tools) if tools else ()
        found, new = own if own is not None else self._parent(messages, key), None
        length = len(found.messages) if found is not None and found.answers else len(messages)
        if found is not None and length < len(messages) and list(messages[:length]) == found.messages:
            declared = declared or found.tools
            if declared == found.tools:
                new = self.renderer.extend(found.messages, messages[length:], closed=found.answers[-1].closed)
        restarted = own is not None and new is None
        if found is None or new is None:
            found, new = TokenConversation(tools=declared), self.renderer.start(messages, declared)
        elif own is None:  # a branch is a sequence of its own
            found.ids, new = [], (*found.ids, *new)
        if key:
            self._conversations[key] = found
        return Opened(found, new, restarted)

    def give(self, messages: Sequence[Message], answer: Message, tools: Sequence[Tool], *, key: str) -> Tokens:
        """Append an answer that was not sampled; its log-probabilities are 0, those of a certain one."""
        opened = self.open(messages, tools, key=key)
        talk, ids = opened.conversation, self.renderer.render_answer(answer, messages, tools)
        offset = len(talk.ids)
        talk.append(opened.new, [*messages, answer], ids, closed=True)
        return Tokens(prompt=opened.new, completion=ids, logprobs=(0.0,) * len(ids), offset=offset)

    def _parent(self, messages: Sequence[Message], key: str) -> TokenConversation | None:
        """The longest beginning of `messages` among the other conversations of the seat."""
        seat = seat_of_key(key)
        if seat == key:
            return None
        others = [talk for name, talk in self._conversations.items() if seat_of_key(name) == seat]
        found = [talk for other in others if (talk := other.until(messages)) is not None]
        return max(found, key=lambda talk: len(talk.messages), default=None)


def tokens_of(trajectory: Trajectory, renderer: Renderer) -> list[Tokens]:
    """Per turn, the ids that a policy with this renderer would have read and said, had it given these answers."""
    conversations, keys, continued = TokenConversations(renderer), list[str](), set[int | None]()
    tokens = []
    for number, turn in enumerate(trajectory.turns):
        parent = trajectory.parent(number)
        first = parent is not None and parent not in continued
        if parent is not None and first:
            keys.append(keys[parent])
        else:
            keys.append(branch_key(trajectory.seat, str(number)) if number else trajectory.seat)
        continued.add(parent)
        before = [] if parent is None else trajectory.conversation(parent)
        messages = [*before, *turn.observation]
        tokens.append(conversations.give(messages, turn.action, turn.tools, key=keys[-1]))
    return tokens
