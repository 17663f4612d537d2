"""Messages and chats: conversations of two or more people, by phone number or by user id.

`Conversations` keeps the people and their conversations, `ReadMessages` adds the actions that search and read.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from posixpath import basename, join
from typing import Any, Literal, Self, TypedDict, TypeVar

from msgspec.structs import replace

from wanderlust.tools.function import ToolError
from wanderlust_worlds.apps._safe_regex import close_names, safe_regex_search
from wanderlust_worlds.apps.files import files_of
from wanderlust_worlds.engine.app import App, action, page_of, row_of, within
from wanderlust_worlds.engine.argument_checks import PATH_CHECK, UNORDERED_CHECK, judged_text
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord

T = TypeVar("T")


class ChatMessage(FrozenRecord):
    """One message of a conversation."""

    sender_id: str
    message_id: str
    timestamp: float
    """Seconds since 1970, UTC."""
    content: str = ""
    attachment: str | None = None
    """In base64. Never shown: `download_attachment` saves it."""
    attachment_name: str | None = None


class Conversation(FrozenRecord):
    """The people of a conversation and its messages, in the order in which they were sent."""

    conversation_id: str
    participant_ids: tuple[str, ...]
    title: str | None = None
    last_updated: float = 0.0
    messages: tuple[ChatMessage, ...] = ()


class Conversations(App):
    """People, their conversations, and what happens in these without the agent."""

    mode: Literal["NAME", "PHONE_NUMBER"] = "NAME"
    """By NAME, people have ids that are looked up; by PHONE_NUMBER, their number is their id, and any will do."""
    current_user_id: str = "me"
    current_user_name: str = "Me"
    names: CowDict[str] = CowDict()
    """Id to name."""
    conversations: CowDict[Conversation] = CowDict()
    conversation_view_limit: int = 5
    messages_view_limit: int = 10

    @action("env", writes=True, notify="medium", says="New message received in conversation ID: {conversation_id}")
    def create_and_add_message(self, conversation_id: str, sender_id: str, content: str) -> None:
        """Have somebody who is in a conversation say something there."""
        self._say(self._conversation(conversation_id), sender_id, content=content)

    # How it is done

    def _conversation(self, conversation_id: str) -> Conversation:
        return row_of(self.conversations, conversation_id, "conversation")

    def _say(self, talk: Conversation, sender: str, *, content: str, **attached: str) -> str:
        if sender not in talk.participant_ids:
            raise ToolError(f"{sender} is not in the conversation {talk.conversation_id}")
        message = ChatMessage(
            sender_id=sender, message_id=self.new_id(), timestamp=self.now, content=content, **attached
        )
        last = max(talk.last_updated, self.now)
        self.conversations[talk.conversation_id] = replace(talk, messages=(*talk.messages, message), last_updated=last)
        return talk.conversation_id

    def _read_attachment(self, path: str | None) -> dict[str, str]:
        if not path:
            return {}
        return {
            "attachment": base64.b64encode(files_of(self).read_bytes(path)).decode(),
            "attachment_name": basename(path),
        }

    def _check_users(self, user_ids: Iterable[str]) -> None:
        for user in user_ids:
            if self.mode == "NAME" and user not in self.names and user != self.current_user_id:
                raise ToolError(f"there is no user {user!r}: look the id up by lookup_user_id")
            if self.mode == "PHONE_NUMBER" and not any(map(str.isdigit, user)):
                raise ToolError(f"not a phone number: {user!r}")

    def _default_title(self, user_ids: Iterable[str]) -> str:
        others = set(user_ids) - {self.current_user_id}
        by_number = self.mode == "PHONE_NUMBER"
        return ", ".join(sorted(self.names.get(user, user) for user in others if by_number or user in self.names))

    def _start(self, user_ids: Iterable[str], title: str | None = None) -> Conversation:
        people = tuple(dict.fromkeys((self.current_user_id, *user_ids)))
        self._check_users(people)
        name = self.new_id()
        talk = Conversation(
            conversation_id=name,
            participant_ids=people,
            title=self._default_title(people) if title is None else title,
            last_updated=self.now,
        )
        self.conversations[name] = talk
        return talk

    def _among(self, user_ids: Iterable[str]) -> list[Conversation]:
        people = {*user_ids, self.current_user_id}
        return [talk for talk in self.conversations.values() if set(talk.participant_ids) == people]

    def _recent(self, talks: Iterable[Conversation]) -> list[Conversation]:
        return sorted(talks, key=lambda talk: talk.last_updated, reverse=True)

    def _cut(self, talks: Iterable[Conversation], offset: int, limit: int) -> list[Conversation]:
        """Conversations with a part of their messages each, the newest first."""
        check_limit("limit_recent_messages_per_conversation", limit, maximum=self.messages_view_limit)
        if offset < 0 or limit < 0:
            raise ToolError("offset and limit must not be negative")
        return [
            replace(talk, messages=without_attachments(newest_first(talk.messages)[offset : offset + limit]))
            for talk in talks
        ]

    def _search(self, fits: Callable[[str], bool], since: str | None, until: str | None) -> list[str]:
        def found(talk: Conversation) -> bool:
            texts = (*talk.participant_ids, talk.title or "")
            message_texts = (one.content for one in talk.messages if within(one.timestamp, since, until))
            return any(map(fits, texts)) or any(map(fits, message_texts))

        return [talk.conversation_id for talk in self.conversations.values() if found(talk)]

    def _with(self, talk: Conversation, people: tuple[str, ...]) -> str:
        """Other people in a conversation; its title follows if it was their names."""
        follows = talk.title == self._default_title(talk.participant_ids)
        title = self._default_title(people) if follows else talk.title
        self.conversations[talk.conversation_id] = replace(talk, participant_ids=people, title=title)
        return talk.conversation_id

    @classmethod
    def from_are(cls, name: str, state: Mapping[str, Any]) -> Self:
        """From ARE's state: names in both directions, and messages that may lack an id."""
        names = dict(state.get("id_to_name") or {}) or {i: n for n, i in (state.get("name_to_id") or {}).items()}
        known_names = {
            "mode": state.get("mode", cls.mode),
            "current_user_id": state.get("current_user_id") or cls.current_user_id,
            "current_user_name": state.get("current_user_name") or cls.current_user_name,
            "names": names,
            "conversations": {
                key: {
                    **talk,
                    "conversation_id": key,
                    "messages": [
                        {**message, "message_id": message.get("message_id") or f"{key}-{n}"}
                        for n, message in enumerate(talk.get("messages", ()))
                    ],
                }
                for key, talk in state["conversations"].items()
            },
        }
        limits = {key: state[key] for key in ("conversation_view_limit", "messages_view_limit") if key in state}
        return cls.load(name, known_names | limits)

    def to_are(self) -> dict[str, Any]:
        """Names in both directions; attachments only where there are some."""
        own = self.state()
        names = own.pop("names")
        for talk in own["conversations"].values():
            for message in talk["messages"]:
                if message["attachment"] is None:
                    del message["attachment"], message["attachment_name"]
        return {**own, "id_to_name": names, "name_to_id": {name: user for user, name in names.items()}}


def newest_first(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Messages, the newest first."""
    return sorted(messages, key=lambda said: said.timestamp, reverse=True)


def without_attachments(messages: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Messages as they are shown: attachments are named, and not in them."""
    return tuple(replace(message, attachment=None) if message.attachment else message for message in messages)


def slice_from(rows: Sequence[T], offset: int, limit: int) -> Sequence[T]:
    """A part of a list of conversations or messages, which begins within it."""
    if offset > len(rows):
        raise ToolError(f"offset must be at most {len(rows)}, which is how many there are")
    return page_of(rows, offset, limit)


def check_limit(what: str, limit: int, *, maximum: int) -> None:
    """Refuse a limit that is beyond the app's own."""
    if limit > maximum:
        raise ToolError(f"{what} must be at most {maximum}")


class Excerpt(TypedDict):
    """A part of a conversation."""

    messages: list[ChatMessage]
    metadata: dict[str, Any]


class ReadMessages(Conversations):
    """Actions that look up users, conversations and messages."""

    @action("agent")
    def get_user_id(self, user_name: str) -> str | None:
        """Find the id of a user by the exact name; null when nobody is called that.

        Args:
            user_name: The full name.
        """
        return next((user for user, name in self.names.items() if name == user_name), None)

    @action("agent")
    def get_user_name_from_id(self, user_id: str) -> str | None:
        """Find the name of a user by the exact id; null when there is no such user.

        Args:
            user_id: The id of the user.
        """
        return self.names.get(user_id)

    @action("agent")
    def lookup_user_id(self, user_name: str) -> dict[str, str]:
        """Find users with a name like this one: names to ids, the likeliest first. Empty when nobody's is close.

        Args:
            user_name: The name, or something like it.
        """
        users = {name: user for user, name in self.names.items()}
        if user_name in users:
            return {user_name: users[user_name]}
        return {name: users[name] for name in close_names(user_name, users)}

    @action("agent")
    def get_existing_conversation_ids(self, user_ids: list[str]) -> list[str]:
        """Find the conversations between the user and exactly these others.

        Args:
            user_ids: Ids of the others.
        """
        return [talk.conversation_id for talk in self._among(user_ids)]

    @action("agent")
    def list_recent_conversations(
        self,
        *,
        offset: int = 0,
        limit: int = 5,
        offset_recent_messages_per_conversation: int = 0,
        limit_recent_messages_per_conversation: int = 10,
    ) -> list[Conversation]:
        """List conversations with their newest messages, the one that changed last first.

        Args:
            offset: How many conversations to leave out.
            limit: How many conversations to list at most; there is an upper bound.
            offset_recent_messages_per_conversation: How many of the newest messages of each to leave out.
            limit_recent_messages_per_conversation: How many messages of each to list at most; there is an upper bound.
        """
        check_limit("limit", limit, maximum=self.conversation_view_limit)
        talks = slice_from(self._recent(self.conversations.values()), offset, limit)
        return self._cut(talks, offset_recent_messages_per_conversation, limit_recent_messages_per_conversation)

    @action("agent")
    def list_conversations_by_participant(
        self,
        user_id: str,
        *,
        offset: int = 0,
        limit: int = 5,
        offset_recent_messages_per_conversation: int = 0,
        limit_recent_messages_per_conversation: int = 5,
    ) -> list[Conversation]:
        """List the conversations that somebody is in, with their newest messages, the one that changed last first.

        Args:
            user_id: The id of the person.
            offset: How many conversations to leave out.
            limit: How many conversations to list at most; there is an upper bound.
            offset_recent_messages_per_conversation: How many of the newest messages of each to leave out.
            limit_recent_messages_per_conversation: How many messages of each to list at most; there is an upper bound.
        """
        check_limit("limit", limit, maximum=self.conversation_view_limit)
        theirs = [talk for talk in self.conversations.values() if user_id in talk.participant_ids]
        talks = slice_from(self._recent(theirs), offset, limit)
        return self._cut(talks, offset_recent_messages_per_conversation, limit_recent_messages_per_conversation)

    @action("agent")
    def read_conversation(
        self,
        conversation_id: str,
        *,
        offset: int = 0,
        limit: int = 10,
        min_date: str | None = None,
        max_date: str | None = None,
    ) -> Excerpt:
        """Read the messages of a conversation, the newest first.

        Args:
            conversation_id: The id of the conversation.
            offset: How many of the newest messages to leave out.
            limit: How many messages to read at most.
            min_date: The time of the first message to read, as YYYY-MM-DD HH:MM:SS; null for any.
            max_date: The time of the last message to read, as YYYY-MM-DD HH:MM:SS; null for any.
        """
        talk = self._conversation(conversation_id)
        messages = newest_first(message for message in talk.messages if within(message.timestamp, min_date, max_date))
        page = slice_from(messages, offset, limit)
        metadata = {
            "message_range": (offset, offset + len(page)),
            "conversation_length": len(messages),
            "conversation_id": conversation_id,
            "conversation_title": talk.title,
        }
        return Excerpt(messages=list(without_attachments(page)), metadata=metadata)

    @action("agent")
    def search(self, query: str, min_date: str | None = None, max_date: str | None = None) -> list[str]:
        """Find conversations with a text in participants' ids, title or messages, in any case. Gives their ids.

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


class Messages(ReadMessages):
    """The user's conversations. In the mode PHONE_NUMBER all ids of users are phone numbers.

    Attachments are named and not shown, where ARE shows them in base64. People come in the order in which they joined.
    As in ARE, a message to one person goes to the conversation with that person that has no title of its own.
    """

    aliases = ("MessagingAppV2", "Chats")

    @action("agent", writes=True, checks={"content": judged_text("message"), "attachment_path": PATH_CHECK})
    def send_message(self, user_id: str, content: str = "", attachment_path: str | None = None) -> str:
        """Send a message to one person. Starts a conversation where there is none with this person alone.

        Args:
            user_id: Whom to send it to.
            content: What to say.
            attachment_path: A file to attach.

        Returns:
            The id of the conversation.
        """
        attached, title = self._read_attachment(attachment_path), self._default_title([user_id])
        before = [talk for talk in self._among([user_id]) if talk.title == title]
        talk = before[0] if before else self._start([user_id])
        return self._say(talk, self.current_user_id, content=content, **attached)

    @action("agent", writes=True, checks={"content": judged_text("message"), "attachment_path": PATH_CHECK})
    def send_message_to_group_conversation(
        self, conversation_id: str, content: str = "", attachment_path: str | None = None
    ) -> str:
        """Send a message to a conversation of three or more.

        Args:
            conversation_id: The id of the conversation.
            content: What to say.
            attachment_path: A file to attach.

        Returns:
            The id of the conversation.
        """
        talk = self._conversation(conversation_id)
        if len(talk.participant_ids) < 3:
            raise ToolError(f"the conversation {conversation_id} is not one of a group: use send_message")
        return self._say(talk, self.current_user_id, content=content, **self._read_attachment(attachment_path))

    @action(
        "agent",
        "env",
        writes=True,
        checks={"user_ids": UNORDERED_CHECK, "title": judged_text("title of a conversation")},
    )
    def create_group_conversation(self, user_ids: list[str], title: str | None = None) -> str:
        """Start a conversation with at least two others.

        Args:
            user_ids: Ids of the others.
            title: What to call it; their names unless given.

        Returns:
            The id of the conversation.
        """
        if len(set(user_ids) - {self.current_user_id}) < 2:
            raise ToolError("a group needs at least two others")
        return self._start(user_ids, title).conversation_id

    @action("agent", "env", writes=True)
    def add_participant_to_conversation(self, conversation_id: str, user_id: str) -> str:
        """Add somebody to a conversation. A title that is a list of names follows.

        Args:
            conversation_id: The id of the conversation.
            user_id: Whom to add.

        Returns:
            The id of the conversation.
        """
        talk = self._conversation(conversation_id)
        if user_id in talk.participant_ids:
            raise ToolError(f"{user_id} is in the conversation {conversation_id} already")
        self._check_users([user_id])
        return self._with(talk, (*talk.participant_ids, user_id))

    @action("agent", "env", writes=True)
    def remove_participant_from_conversation(self, conversation_id: str, user_id: str) -> str:
        """Take somebody out of a conversation. A title that is a list of names follows.

        Args:
            conversation_id: The id of the conversation.
            user_id: Whom to take out.

        Returns:
            The id of the conversation.
        """
        talk = self._conversation(conversation_id)
        if user_id not in talk.participant_ids:
            raise ToolError(f"{user_id} is not in the conversation {conversation_id}")
        return self._with(talk, tuple(one for one in talk.participant_ids if one != user_id))

    @action("agent", "env", writes=True, checks={"title": judged_text("title of a conversation")})
    def change_conversation_title(self, conversation_id: str, title: str) -> str:
        """Give a conversation another title.

        Args:
            conversation_id: The id of the conversation.
            title: The new title.

        Returns:
            The id of the conversation.
        """
        self.conversations[conversation_id] = replace(self._conversation(conversation_id), title=title)
        return conversation_id

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
