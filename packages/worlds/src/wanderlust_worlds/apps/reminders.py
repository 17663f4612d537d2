"""Reminders that notify the agent when they are due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self, TypeAlias

from msgspec.structs import replace

from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.app import App, action, format_time, read_time, row_of
from wanderlust_worlds.engine.argument_checks import TIME_CHECK, judged_text
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord

MAX_REPETITIONS = 100
HORIZON_SECONDS = 12 * 7 * 86_400.0
"""Seconds ahead in which repetitions are made."""
Unit: TypeAlias = Literal["second", "minute", "hour", "day", "week", "month"]


class Reminder(FrozenRecord):
    """A title and a description to be shown at a time, once or repeatedly."""

    reminder_id: str
    title: str
    due_datetime: str
    """YYYY-MM-DD HH:MM:SS, UTC."""
    description: str = ""
    repetition_unit: Unit | None = None
    repetition_value: int | None = 1
    time_notified: float | None = None


class Reminders(App):
    """Reminders and their repetitions, each a reminder of its own, for at most twelve weeks.

    Those that are there when the world starts are not told of by themselves: plan `remind` for them. In ARE,
    repetitions outlive the reminder that is deleted.
    """

    aliases = ("ReminderApp",)
    reminders: CowDict[Reminder] = CowDict()

    @action(
        "agent",
        writes=True,
        checks={"title": judged_text("reminder"), "due_datetime": TIME_CHECK, "description": judged_text("reminder")},
    )
    def add_reminder(
        self,
        title: str,
        due_datetime: str,
        description: str,
        *,
        repetition_unit: Unit | None = None,
        repetition_value: int | None = 1,
    ) -> str:
        """Have yourself reminded.

        Args:
            title: What to call it.
            due_datetime: When, as YYYY-MM-DD HH:MM:SS.
            description: What to be reminded of.
            repetition_unit: In what time to be reminded again, and again; null for once.
            repetition_value: After how many of these units.

        Returns:
            The id of the reminder.
        """
        due = read_time(due_datetime, "due_datetime")
        if repetition_unit and (repetition_value is None or repetition_value < 1):
            raise ToolError("repetition_value must be at least 1")
        name = self.new_id()
        times = [due]
        if repetition_unit and repetition_value:
            times += _repetition_times(due, repetition_unit, repetition_value, until=self.now + HORIZON_SECONDS)
        for number, time in enumerate(times):
            reminder = Reminder(
                reminder_id=f"{name}_rep_{number}" if number else name,
                title=title,
                due_datetime=format_time(time),
                description=description,
                repetition_unit=repetition_unit,
                repetition_value=repetition_value,
            )
            self.reminders[reminder.reminder_id] = reminder
            if time >= self.now:
                what = {"reminder_id": reminder.reminder_id, "title": title, "description": description}
                self.world.later(time - self.now, self.name, "remind", **what)
        return name

    @action("env", notify="low", says="Reminder: {title}. {description}")
    def remind(self, reminder_id: str, title: str = "", description: str = "") -> None:
        """Tell of a reminder, if it has not been deleted."""
        self.reminders[reminder_id] = replace(row_of(self.reminders, reminder_id, "reminder"), time_notified=self.now)

    @action("agent", writes=True)
    def delete_reminder(self, reminder_id: str) -> None:
        """Delete a reminder, and its repetitions.

        Args:
            reminder_id: The id of the reminder.
        """
        row_of(self.reminders, reminder_id, "reminder")
        for name in [one for one in self.reminders if one == reminder_id or one.startswith(f"{reminder_id}_rep_")]:
            del self.reminders[name]

    @action("agent", writes=True)
    def delete_all_reminders(self) -> None:
        """Delete all reminders."""
        self.reminders.clear()

    @action("agent")
    def get_due_reminders(self) -> list[Reminder]:
        """List the reminders whose time has come."""
        return [one for one in self.reminders.values() if read_time(one.due_datetime) <= self.now]

    @action("agent")
    def get_all_reminders(self) -> list[Reminder]:
        """List all reminders."""
        return list(self.reminders.values())

    @classmethod
    def from_are(cls, name: str, state: Mapping[str, Any]) -> Self:
        """From ARE's state, whose times may be written as in ISO 8601."""
        rows = {}
        for key, one in state.get("reminders", {}).items():
            due = datetime.fromisoformat(one["due_datetime"]).replace(tzinfo=UTC)
            rows[key] = {**one, "due_datetime": format_time(due.timestamp())}
        return cls.load(name, {"reminders": rows})


def _repetition_times(due: float, unit: Unit, value: int, *, until: float) -> Iterator[float]:
    """Yield the times after the first one. A month later is the same day, or the month's last."""
    first = datetime.fromtimestamp(due, tz=UTC)
    for number in range(1, MAX_REPETITIONS + 1):
        try:
            if unit == "month":
                year, month = divmod(first.year * 12 + first.month - 1 + number * value, 12)
                last = datetime(year + (month == 11), (month + 1) % 12 + 1, 1, tzinfo=UTC) - timedelta(days=1)
                time = first.replace(year=year, month=month + 1, day=min(first.day, last.day))
            else:
                time = first + timedelta(**{f"{unit}s": number * value})
        except (OverflowError, ValueError):  # after the last date that there is
            return
        if time.timestamp() >= until:
            return
        yield time.timestamp()
