"""The clock on the wall, and waiting."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypedDict

from wanderlust.tools.errors import ToolError
from wanderlust.worlds.app import App, action

LONGEST = 31_536_000
"""Seconds of one wait, a year: whoever waits for ever must do so in steps, and turns are counted."""


class Time(TypedDict):
    """A moment, three times over."""

    current_timestamp: float
    current_datetime: str
    current_weekday: str


class System(App):
    """Time, and waiting for something to happen."""

    aliases = ("SystemApp",)

    @action("agent")
    def get_current_time(self) -> Time:
        """Tell the time: a timestamp in seconds since 1970, date and time as YYYY-MM-DD HH:MM:SS (UTC), the weekday."""
        now = datetime.fromtimestamp(self.now, tz=UTC)
        return Time(
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
        if not 0 <= timeout <= LONGEST:
            raise ToolError(f"timeout must not be negative, nor more than {LONGEST}")
        self.world.rest(timeout)
