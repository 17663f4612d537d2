"""Messages as older files of ARE have them: conversations among people who are known by their full names alone."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from posixpath import basename, join
from typing import Any, Self, TypedDict

from msgspec.structs import replace

from wanderlust.tools.function import ToolError
from wanderlust_worlds.apps._safe_regex import safe_regex_search
from wanderlust_worlds.apps.files import files_of
from wanderlust_worlds.apps.messages import check_limit, slice_from
from wanderlust_worlds.engine.app import App, action, row_of, within
from wanderlust_worlds.engine.argument_checks import FREE_CHECK, PATH_CHECK, UNORDERED_CHECK, judged_text
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord

USER = "Me"
"""The name of the user in every conversation."""


class NamedMessage(FrozenRecord):
    """One message of a conversation."""

    sender: str
    message_id: str
    timestamp: float
    """Seconds since 1970, UTC."""
    content: str = ""
    attachment: str | None = None
    """In base64. Never shown: `download_attachment` saves it."""
    attachment_name: str | None = None


class NamedConversation(FrozenRecord):
    """The people of a conversation, in the order in which they joined, and its messages, in the order of sending."""

    conversation_id: str
    participants: tuple[str, ...]
    title: str | None = None
    last_updated: float = 0.0
    messages: tuple[NamedMessage, ...] = ()


class NamedExcerpt(TypedDict):
    """A part of a conversation."""

    messages: list[NamedMessage]
    metadata: dict[str, Any]


class MessagesV1(App):
    """The user's conversations, in which people are their names and the user is `Me`.

    Attachments are messages of their own. They are named and not shown, where ARE shows them in base64. `search` gives
    ids, where ARE gives whole conversations.
    """

    aliases = ("MessagingApp",)

    conversations: CowDict[NamedConversation] = CowDict()
    conversation_view_limit: int = 5
    messages_view_limit: int = 10

    @action("agent", "data", "env", writes=True, checks={"participants": UNORDERED_CHECK, "title": FREE_CHECK})
    def create_conversation(self, participants: list[str], title: str | None = None) -> str:
        """Start a conversation.

        Args:
            participants: Full names of the others.
            title: What to call it; the names unless given.

        Returns:
            The id of the conversation.
        """
        if not participants:
            raise ToolError("a conversation needs at least one other person")
        people = tuple(dict.fromkeys((*participants, USER)))
        name = self.new_id()
        self.conversations[name] = NamedConversation(
            conversation_id=name, participants=people, title=title or ", ".join(people), last_updated=self.now
        )
        return name

    @action("agent")
    def list_recent_conversations(
        self,
        *,
        offset: int = 0,
        limit: int = 5,
        offset_recent_messages_per_conversation: int = 0,
        limit_recent_messages_per_conversation: int = 5,
    ) -> list[NamedConversation]:
        """List conversations with their newest messages, the one that changed last first.

        Args:
            offset: How many conversations to leave out.
            limit: How many conversations to list at most; there is an upper bound.
            offset_recent_messages_per_conversation: How many of the newest messages of each to leave out.
            limit_recent_messages_per_conversation: How many messages of each to list at most; there is an upper bound.
        """
        recent = sorted(self.conversations.values(), key=lambda talk: talk.last_updated, reverse=True)
        first, most = offset_recent_messages_per_conversation, limit_recent_messages_per_conversation
        return self._cut(recent, offset, limit, messages=(first, most))

    @action("agent", "data")
    def list_conversations_by_participant(
        self,
        participant: str,
        *,
        offset: int = 0,
        limit: int = 5,
        offset_recent_messages_per_conversation: int = 0,
        limit_recent_messages_per_conversation: int = 5,
    ) -> list[NamedConversation]:
        """List the conversations with somebody, with their newest messages.

        Args:
            participant: The name, or a part of it.
            offset: How many conversations to leave out.
            limit: How many conversations to list at most; there is an upper bound.
            offset_recent_messages_per_conversation: How many of the newest messages of each to leave out.
            limit_recent_messages_per_conversation: How many messages of each to list at most; there is an upper bound.
        """
        theirs = [
            talk for talk in self.conversations.values() if any(participant in name for name in talk.participants)
        ]
        first, most = offset_recent_messages_per_conversation, limit_recent_messages_per_conversation
        return self._cut(theirs, offset, limit, messages=(first, most))

    @action("agent", writes=True, checks={"content": judged_text("message")})
    def send_message(self, conversation_id: str, content: str = "") -> str:
        """Send a message to a conversation.

        Args:
            conversation_id: The id of the conversation.
            content: What to say.

        Returns:
            The id of the message.
        """
        return self._say(self._conversation(conversation_id), USER, content=content)

    @action("agent", writes=True, checks={"filepath": PATH_CHECK})
    def send_attachment(self, conversation_id: str, filepath: str) -> str:
        """Send a file to a conversation.

        Args:
            conversation_id: The id of the conversation.
            filepath: The file.

        Returns:
            The id of the message.
        """
        talk = self._conversation(conversation_id)
        content = base64.b64encode(files_of(self).read_bytes(filepath)).decode()
        return self._say(talk, USER, attachment=content, attachment_name=basename(filepath))

    @action("agent", writes=True, checks={"download_path": PATH_CHECK})
    def download_attachment(self, conversation_id: str, message_id: str, download_path: str = "Downloads/") -> str:
        """Save the attachment of a message as a file.

        Args:
            conversation_id: The id of the conversation.
            message_id: The id of the message.
            download_path: The folder for the file.

        Returns:
            The path of the file.
        """
        matches = [one for one in self._conversation(conversation_id).messages if one.message_id == message_id]
        if not matches or matches[0].attachment is None or not matches[0].attachment_name:
            raise ToolError(f"the message {message_id!r} has no attachment")
        path = join(download_path, matches[0].attachment_name)
        files_of(self).write_bytes(path, base64.b64decode(matches[0].attachment))
        return path

    @action(
        "data", "env", writes=True, notify="medium", says="New message received in conversation ID: {conversation_id}"
    )
    def create_and_add_message(self, conversation_id: str, sender: str, content: str) -> str:
        """Have somebody who is in a conversation say something there. Gives the id of the conversation."""
        talk = self._conversation(conversation_id)
        if sender not in talk.participants:
            raise ToolError(f"{sender} is not in the conversation {conversation_id}")
        self._say(talk, sender, content=content)
        return conversation_id

    @action("agent", "data")
    def read_conversation(self, conversation_id: str, *, offset: int = 0, limit: int = 10) -> NamedExcerpt:
        """Read the messages of a conversation, the newest first.

        Args:
            conversation_id: The id of the conversation.
            offset: How many of the newest messages to leave out.
            limit: How many messages to read at most.
        """
        talk = self._conversation(conversation_id)
        page = slice_from(_shown(talk.messages), offset, limit)
        metadata = {
            "message_range": (offset, offset + len(page)),
            "conversation_length": len(talk.messages),
            "conversation_id": conversation_id,
            "conversation_title": talk.title,
        }
        return NamedExcerpt(messages=list(page), metadata=metadata)

    @action("agent", "data", "env", writes=True)
    def add_participant_to_conversation(self, conversation_id: str, participant: str) -> str:
        """Add somebody to a conversation.

        Args:
            conversation_id: The id of the conversation.
            participant: The full name of the person.

        Returns:
            The id of the conversation.
        """
        talk = self._conversation(conversation_id)
        if participant in talk.participants:
            raise ToolError(f"{participant} is in the conversation {conversation_id} already")
        self.conversations[conversation_id] = replace(talk, participants=(*talk.participants, participant))
        return conversation_id

    @action("agent", "data", "env", writes=True)
    def remove_participant_from_conversation(self, conversation_id: str, participant: str) -> str:
        """Take somebody out of a conversation.

        Args:
            conversation_id: The id of the conversation.
            participant: The full name of the person.

        Returns:
            The id of the conversation.
        """
        talk = self._conversation(conversation_id)
        if participant not in talk.participants:
            raise ToolError(f"{participant} is not in the conversation {conversation_id}")
        rest = tuple(name for name in talk.participants if name != participant)
        self.conversations[conversation_id] = replace(talk, participants=rest)
        return conversation_id

    @action("agent", "data")
    def search(self, query: str, min_date: str | None = None, max_date: str | None = None) -> list[str]:
        """Find conversations with a text in participants, title or messages, in any case. Gives their ids.

        Args:
            query: The text.
            min_date: The time of the first message to look at, as YYYY-MM-DD HH:MM:SS; null for any.
            max_date: The time of the last message to look at, as YYYY-MM-DD HH:MM:SS; null for any.
        """
        sought = query.lower()
        return self._search(lambda text: sought in text.lower(), min_date, max_date)

    @action("agent")
    def regex_search(self, query: str, min_date: str | None = None, max_date: str | None = None) -> list[str]:
        """Find conversations with a regular expression, in any case. Gives their ids. No group may be repeated.

        Args:
            query: The regular expression.
            min_date: The time of the first message to look at, as YYYY-MM-DD HH:MM:SS; null for any.
            max_date: The time of the last message to look at, as YYYY-MM-DD HH:MM:SS; null for any.
        """
        return self._search(safe_regex_search(query), min_date, max_date)

    # How it is done

    def _conversation(self, conversation_id: str) -> NamedConversation:
        return row_of(self.conversations, conversation_id, "conversation")

    def _say(self, talk: NamedConversation, sender: str, **parts: Any) -> str:
        message = NamedMessage(sender=sender, message_id=self.new_id(), timestamp=self.now, **parts)
        last = max(talk.last_updated, self.now)
        self.conversations[talk.conversation_id] = replace(talk, messages=(*talk.messages, message), last_updated=last)
        return message.message_id

    def _cut(
        self, talks: Sequence[NamedConversation], offset: int, limit: int, *, messages: tuple[int, int]
    ) -> list[NamedConversation]:
        """A part of the conversations with a part of their messages each, the newest first."""
        first, most = messages
        check_limit("limit", limit, maximum=self.conversation_view_limit)
        check_limit("limit_recent_messages_per_conversation", most, maximum=self.messages_view_limit)
        if first < 0 or most < 0:
            raise ToolError("offset and limit must not be negative")
        return [
            replace(talk, messages=tuple(_shown(talk.messages)[first : first + most]))
            for talk in slice_from(talks, offset, limit)
        ]

    def _search(self, fits: Callable[[str], bool], since: str | None, until: str | None) -> list[str]:
        def found(talk: NamedConversation) -> bool:
            texts = (*talk.participants, talk.title or "")
            messages = (one.content for one in talk.messages if within(one.timestamp, since, until))
            return any(map(fits, texts)) or any(map(fits, messages))

        return [talk.conversation_id for talk in self.conversations.values() if found(talk)]

    @classmethod
    def from_are(cls, name: str, state: Mapping[str, Any]) -> Self:
        """From ARE's state, in which messages may lack an id."""
        conversations = {
            key: {
                **talk,
                "conversation_id": key,
                "messages": [
                    {**message, "message_id": message.get("message_id") or f"{key}-{number}"}
                    for number, message in enumerate(talk.get("messages", ()))
                ],
            }
            for key, talk in state["conversations"].items()
        }
        limits = {key: state[key] for key in ("conversation_view_limit", "messages_view_limit") if key in state}
        return cls.load(name, {"conversations": conversations, **limits})

    def to_are(self) -> dict[str, Any]:
        """As ARE has it: attachments only where there are some."""
        own = self.state()
        for talk in own["conversations"].values():
            for message in talk["messages"]:
                if message["attachment"] is None:
                    del message["attachment"], message["attachment_name"]
        return own


def _shown(messages: Iterable[NamedMessage]) -> list[NamedMessage]:
    """Messages as they are shown, the newest first: attachments are named, and not in them."""
    newest = sorted(messages, key=lambda one: one.timestamp, reverse=True)
    return [replace(one, attachment=None) if one.attachment else one for one in newest]
