"""What apps for messages have in common: people, their conversations, and how these change."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from posixpath import basename
from typing import Any, Literal, Self, TypeVar

from msgspec.structs import replace

from wanderlust.tools.errors import ToolError
from wanderlust.worlds.app import App, action
from wanderlust.worlds.apps.keeping import Keeping
from wanderlust.worlds.pages import part
from wanderlust.worlds.table import Record, Table
from wanderlust.worlds.times import within

T = TypeVar("T")


class Message(Record):
    """What somebody said."""

    sender_id: str
    message_id: str
    timestamp: float
    """Seconds since 1970, UTC."""
    content: str = ""
    attachment: str | None = None
    """In base64. Never shown: `download_attachment` saves it."""
    attachment_name: str | None = None


class Conversation(Record):
    """People, and what they said, in the order in which it was said."""

    conversation_id: str
    participant_ids: tuple[str, ...]
    title: str | None = None
    last_updated: float = 0.0
    messages: tuple[Message, ...] = ()


class Conversations(App):
    """People, their conversations, and what happens in these without the agent."""

    mode: Literal["NAME", "PHONE_NUMBER"] = "NAME"
    """By NAME, people have ids that are looked up; by PHONE_NUMBER, their number is their id, and any will do."""
    current_user_id: str = "me"
    current_user_name: str = "Me"
    names: Table[str] = Table()
    """Id to name."""
    conversations: Table[Conversation] = Table()
    conversation_view_limit: int = 5
    messages_view_limit: int = 10

    @action("env", writes=True, notify="medium", says="New message received in conversation ID: {conversation_id}")
    def create_and_add_message(self, conversation_id: str, sender_id: str, content: str) -> None:
        """Have somebody who is in a conversation say something there."""
        self._say(self._conversation(conversation_id), sender_id, content=content)

    # How it is done

    def _conversation(self, conversation_id: str) -> Conversation:
        found = self.conversations.get(conversation_id)
        if found is None:
            raise ToolError(f"there is no conversation {conversation_id!r}")
        return found

    def _say(self, talk: Conversation, sender: str, *, content: str, **attached: str) -> str:
        if sender not in talk.participant_ids:
            raise ToolError(f"{sender} is not in the conversation {talk.conversation_id}")
        message = Message(sender_id=sender, message_id=self.new_id(), timestamp=self.now, content=content, **attached)
        last = max(talk.last_updated, self.now)
        self.conversations[talk.conversation_id] = replace(talk, messages=(*talk.messages, message), last_updated=last)
        return talk.conversation_id

    def _files(self) -> Keeping:
        files = self.world.find(Keeping)
        if files is None:
            raise ToolError("there is no app for files")
        return files

    def _attached(self, path: str | None) -> dict[str, str]:
        if not path:
            return {}
        return {
            "attachment": base64.b64encode(self._files().read_bytes(path)).decode(),
            "attachment_name": basename(path),
        }

    def _known(self, user_ids: Iterable[str]) -> None:
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
        self._known(people)
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
        at_most("limit_recent_messages_per_conversation", limit, most=self.messages_view_limit)
        if offset < 0 or limit < 0:
            raise ToolError("offset and limit must not be negative")
        return [replace(talk, messages=shown(newest(talk.messages)[offset : offset + limit])) for talk in talks]

    def _searched(self, fits: Callable[[str], bool], since: str | None, until: str | None) -> list[str]:
        def found(talk: Conversation) -> bool:
            texts = (*talk.participant_ids, talk.title or "")
            said = (one.content for one in talk.messages if within(one.timestamp, since, until))
            return any(map(fits, texts)) or any(map(fits, said))

        return [talk.conversation_id for talk in self.conversations.values() if found(talk)]

    def _with(self, talk: Conversation, people: tuple[str, ...]) -> str:
        """Other people in a conversation; its title follows if it was their names."""
        follows = talk.title == self._default_title(talk.participant_ids)
        title = self._default_title(people) if follows else talk.title
        self.conversations[talk.conversation_id] = replace(talk, participant_ids=people, title=title)
        return talk.conversation_id

    @classmethod
    def adopt(cls, name: str, state: Mapping[str, Any]) -> Self:
        """From ARE's state: names in both directions, and messages that may lack an id."""
        names = dict(state.get("id_to_name") or {}) or {i: n for n, i in (state.get("name_to_id") or {}).items()}
        known = {
            "mode": state.get("mode", cls.mode),
            "current_user_id": state.get("current_user_id") or cls.current_user_id,
            "current_user_name": state.get("current_user_name") or cls.current_user_name,
            "names": names,
            "conversations": {
                key: {**talk, "conversation_id": key, "messages": _mended(key, talk.get("messages", ()))}
                for key, talk in state["conversations"].items()
            },
        }
        limits = {key: state[key] for key in ("conversation_view_limit", "messages_view_limit") if key in state}
        return cls.load(name, known | limits)

    def offer(self) -> dict[str, Any]:
        """Names in both directions; attachments only where there are some."""
        own = self.state()
        names = own.pop("names")
        for talk in own["conversations"].values():
            for said in talk["messages"]:
                if said["attachment"] is None:
                    del said["attachment"], said["attachment_name"]
        return {**own, "id_to_name": names, "name_to_id": {name: user for user, name in names.items()}}


def newest(messages: Iterable[Message]) -> list[Message]:
    """Messages, the newest first."""
    return sorted(messages, key=lambda said: said.timestamp, reverse=True)


def shown(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Messages as they are shown: attachments are named, and not in them."""
    return tuple(replace(said, attachment=None) if said.attachment else said for said in messages)


def chosen(rows: Sequence[T], offset: int, limit: int) -> Sequence[T]:
    """A part of a list of conversations or messages, which begins within it."""
    if offset > len(rows):
        raise ToolError(f"offset must be at most {len(rows)}, which is how many there are")
    return part(rows, offset, limit)


def at_most(what: str, limit: int, *, most: int) -> None:
    """Refuse a limit that is beyond the app's own."""
    if limit > most:
        raise ToolError(f"{what} must be at most {most}")


def _mended(talk: str, messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**said, "message_id": said.get("message_id") or f"{talk}-{n}"} for n, said in enumerate(messages)]
