"""Messages between the agent and its user (`UserInterface`), and the clock (`System`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, Self, TypedDict

import msgspec

from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.app import App, action
from wanderlust_worlds.engine.argument_checks import FREE_CHECK, judged_text
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord

MAX_NOTIFICATION_WAIT_SECONDS = 31_536_000
"""Longest wait of one call, in seconds of the world's clock (a year): waiting longer takes turns, which are counted."""


class TimeReading(TypedDict):
    """A moment, three times over."""

    current_timestamp: float
    current_datetime: str
    current_weekday: str


class System(App):
    """Time, and waiting for something to happen."""

    aliases = ("SystemApp",)

    @action("agent")
    def get_current_time(self) -> TimeReading:
        """Tell the time: a timestamp in seconds since 1970, date and time as YYYY-MM-DD HH:MM:SS (UTC), the weekday."""
        now = datetime.fromtimestamp(self.now, tz=UTC)
        return TimeReading(
            current_timestamp=self.now,
            current_datetime=now.strftime("%Y-%m-%d %H:%M:%S"),
            current_weekday=now.strftime("%A"),
        )

    @action("agent")
    def wait_for_notification(self, timeout: int = 0) -> None:
        """Wait until the next notification or message from the user. Only when there is nothing else to do.

        Args:
            timeout: How many seconds to wait at most.
        """
        if not 0 <= timeout <= MAX_NOTIFICATION_WAIT_SECONDS:
            raise ToolError(f"timeout must not be negative, nor more than {MAX_NOTIFICATION_WAIT_SECONDS}")
        self.world.rest(timeout)


class UserMessage(FrozenRecord):
    """A message between user and agent."""

    id: str
    sender: Literal["User", "Agent"]
    content: str
    timestamp: float
    """Seconds since 1970, UTC."""
    attachments: tuple[str, ...] = ()
    time_read: float | None = None


class UserInterface(App):
    """Messages between the user and the agent."""

    aliases = ("AgentUserInterface",)
    messages: CowDict[UserMessage] = CowDict()

    @action("agent", "data", writes=True, ends_turn=True, checks={"content": judged_text("answer to the user")})
    def send_message_to_user(self, content: str = "") -> None:
        """Send a message to the user. This ends your turn.

        Args:
            content: What to say.
        """
        self._say("Agent", content)

    @action(
        "user",
        writes=True,
        notify="low",
        says="{content}",
        checks={"attachments": FREE_CHECK, "base64_utf8_encoded_attachment_contents": FREE_CHECK},
    )
    def send_message_to_agent(
        self,
        content: str = "",
        attachments: list[str] | None = None,
        base64_utf8_encoded_attachment_contents: list[dict[str, Any]] | None = None,
    ) -> str:
        """Send a message to the agent.

        Args:
            content: What to say.
            attachments: Addresses of files that come with it.
            base64_utf8_encoded_attachment_contents: What is in those files; kept in the log alone.

        Returns:
            The id of the message.
        """
        return self._say("User", content, tuple(attachments or ()))

    @action("agent", "data")
    def get_last_message_from_user(self) -> UserMessage | None:
        """Read the user's last message again; null when there is none."""
        messages = [message for message in self.messages.values() if message.sender == "User"]
        return self._read(messages[-1:])[0] if messages else None

    @action("agent", "data")
    def get_last_message_from_agent(self) -> UserMessage | None:
        """Read your own last message to the user again; null when there is none."""
        messages = [message for message in self.messages.values() if message.sender == "Agent"]
        return messages[-1] if messages else None

    @action("agent", "data")
    def get_last_unread_messages(self) -> list[UserMessage]:
        """Read all messages from the user that were not read yet."""
        return self._read(s for s in self.messages.values() if s.sender == "User" and s.time_read is None)

    @action("agent", "data")
    def get_all_messages(self) -> list[UserMessage]:
        """Read the whole conversation, the newest message first."""
        return sorted(self._read(self.messages.values()), key=lambda said: said.timestamp, reverse=True)

    def _say(self, sender: Literal["User", "Agent"], content: str, attachments: tuple[str, ...] = ()) -> str:
        now, name = self.now, self.new_id()
        read = now if sender == "Agent" else None
        self.messages[name] = UserMessage(
            id=name, sender=sender, content=content, timestamp=now, attachments=attachments, time_read=read
        )
        return name

    def _read(self, messages: Iterable[UserMessage]) -> list[UserMessage]:
        read_messages = [
            s if s.time_read is not None else msgspec.structs.replace(s, time_read=self.now) for s in messages
        ]
        for message in read_messages:
            self.messages[message.id] = message
        return read_messages

    @classmethod
    def from_are(cls, name: str, state: Mapping[str, Any]) -> Self:
        """From ARE's state: a list of messages, some of which have no id."""
        rows = [
            {**message, "id": message.get("id") or f"{name}-{n}"} for n, message in enumerate(state.get("messages", ()))
        ]
        return cls.load(name, {"messages": {row["id"]: row for row in rows}})

    def to_are(self) -> dict[str, Any]:
        """A list of messages."""
        return {"messages": [*self.state()["messages"].values()]}
