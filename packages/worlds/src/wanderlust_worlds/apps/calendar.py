"""A calendar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypedDict

import msgspec
from msgspec.structs import replace

from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.app import App, action, format_time, page_of, read_time, row_of
from wanderlust_worlds.engine.argument_checks import ATTENDEES_CHECK, FREE_CHECK, TIME_CHECK, judged_text
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord

HOUR_SECONDS, DAY_SECONDS = 3_600.0, 86_400.0
LONG_TIME_FORMAT = "%A, %Y-%m-%d %H:%M:%S"
EVENT_CHECKS = {
    "title": judged_text("event in a calendar"),
    "start_datetime": TIME_CHECK,
    "end_datetime": TIME_CHECK,
    "tag": FREE_CHECK,
    "description": judged_text("event in a calendar"),
    "location": judged_text("event in a calendar"),
    "attendees": ATTENDEES_CHECK,
}


class CalendarEvent(FrozenRecord):
    """An appointment."""

    event_id: str
    start_datetime: float
    """Seconds since 1970, UTC."""
    end_datetime: float
    title: str = "Event"
    tag: str | None = None
    description: str | None = None
    location: str | None = None
    attendees: tuple[str, ...] = ()
    start_strftime: str | None = None
    """The start, with its weekday, as text."""
    end_strftime: str | None = None


class EventPage(TypedDict):
    """A part of the events of some time."""

    events: list[CalendarEvent]
    range: tuple[int, int]
    total: int


class Appointments(App):
    """Events, and what others do to them."""

    events: CowDict[CalendarEvent] = CowDict()

    @action("env", "data", writes=True, notify="medium", says="New calendar event added by {who_add}")
    def add_calendar_event_by_attendee(
        self,
        who_add: str,
        *,
        title: str = "Event",
        start_datetime: str | None = None,
        end_datetime: str | None = None,
        tag: str | None = None,
        description: str | None = None,
        location: str | None = None,
        attendees: list[str] | None = None,
    ) -> str:
        """Have somebody put an event into the user's calendar, which says so in its title and description."""
        by = f"Event created by {who_add}"
        return self._put(
            start_datetime,
            end_datetime,
            title=f"{by}: {title}",
            description=f"{by}: {description}" if description else by,
            tag=tag,
            location=location,
            attendees=tuple(dict.fromkeys((*(attendees or ()), who_add))),
        )

    @action("env", writes=True, notify="medium", says="Calendar event deleted by {who_delete}")
    def delete_calendar_event_by_attendee(self, event_id: str, who_delete: str) -> str:
        """Have one of its attendees delete an event."""
        if who_delete not in row_of(self.events, event_id, "event").attendees:
            raise ToolError(f"{who_delete} is no attendee of the event {event_id}")
        del self.events[event_id]
        return f"Event {event_id} successfully deleted by {who_delete}."

    # How it is done

    def _put(self, start: str | None, end: str | None, **fields: Any) -> str:
        begins = self.now if start is None else read_time(start, "start_datetime")
        ends = self.now + HOUR_SECONDS if end is None else read_time(end, "end_datetime")
        event = _with_time_texts(
            CalendarEvent(event_id=self.new_id(), start_datetime=begins, end_datetime=ends, **fields)
        )
        self.events[event.event_id] = event
        return event.event_id

    def _overlapping(self, start: float, end: float) -> list[CalendarEvent]:
        if start > end:
            raise ToolError("the start is after the end")
        events = [one for one in self.events.values() if one.start_datetime < end and one.end_datetime > start]
        return sorted(events, key=lambda one: one.start_datetime)

    @classmethod
    def from_are(cls, name: str, state: Mapping[str, Any]) -> Self:
        """From ARE's state, which may lack the times as text."""
        rows = msgspec.convert(state.get("events", {}), dict[str, CalendarEvent], strict=False)
        return cls(name, events=CowDict({key: _with_time_texts(row) for key, row in rows.items()}))


class Calendar(Appointments):
    """The user's calendar. All times are UTC and written as YYYY-MM-DD HH:MM:SS; weeks begin on Monday.

    Lists come in the order of time, where ARE gives them in the order in which events were added.
    """

    aliases = ("CalendarApp",)

    @action("agent", "data", writes=True, checks=EVENT_CHECKS)
    def add_calendar_event(
        self,
        *,
        title: str = "Event",
        start_datetime: str | None = None,
        end_datetime: str | None = None,
        tag: str | None = None,
        description: str | None = None,
        location: str | None = None,
        attendees: list[str] | None = None,
    ) -> str:
        """Add an event. Weeks begin on Monday unless the task says otherwise.

        Args:
            title: What to call it.
            start_datetime: When it begins, as YYYY-MM-DD HH:MM:SS; null for now.
            end_datetime: When it ends, as YYYY-MM-DD HH:MM:SS; null for in an hour.
            tag: A word to find it by.
            description: What it is about.
            location: Where it is.
            attendees: Full names of those who come.

        Returns:
            The id of the event.
        """
        return self._put(
            start_datetime,
            end_datetime,
            title=title,
            tag=tag,
            description=description,
            location=location,
            attendees=tuple(attendees or ()),
        )

    @action("agent", "data", writes=True)
    def delete_calendar_event(self, event_id: str) -> str:
        """Delete an event.

        Args:
            event_id: The id of the event.
        """
        row_of(self.events, event_id, "event")
        del self.events[event_id]
        return f"Event {event_id} successfully deleted."

    @action("agent")
    def get_calendar_event(self, event_id: str) -> CalendarEvent:
        """Read an event.

        Args:
            event_id: The id of the event.
        """
        return row_of(self.events, event_id, "event")

    @action("agent")
    def get_calendar_events_from_to(
        self, start_datetime: str, end_datetime: str, *, offset: int = 0, limit: int = 10
    ) -> EventPage:
        """List the events that have any time in common with a time, in order. Weeks begin on Monday.

        Args:
            start_datetime: The beginning of the time, as YYYY-MM-DD HH:MM:SS.
            end_datetime: Its end, as YYYY-MM-DD HH:MM:SS.
            offset: How many of these events to leave out.
            limit: How many to list at most.
        """
        start, end = read_time(start_datetime, "start_datetime"), read_time(end_datetime, "end_datetime")
        events = self._overlapping(start, end)
        chosen = page_of(events, offset, limit)
        return EventPage(events=list(chosen), range=(offset, offset + len(chosen)), total=len(events))

    @action("agent")
    def read_today_calendar_events(self) -> list[CalendarEvent]:
        """List all events of today, in order."""
        midnight = self.now - self.now % DAY_SECONDS
        return self._overlapping(midnight, midnight + DAY_SECONDS)

    @action("agent")
    def get_all_tags(self) -> list[str]:
        """List all tags of events."""
        return sorted({event.tag for event in self.events.values() if event.tag})

    @action("agent")
    def get_calendar_events_by_tag(self, tag: str) -> list[CalendarEvent]:
        """List the events with a tag.

        Args:
            tag: The tag.
        """
        if not tag:
            raise ToolError("tag must not be empty")
        return [event for event in self.events.values() if event.tag == tag]

    @action("agent", "data")
    def search_events(self, query: str) -> list[CalendarEvent]:
        """Find events with a text in title, description, location or attendees, in any case.

        Args:
            query: The text.
        """
        sought = query.lower()
        fields = ((e, (e.title, e.description or "", e.location or "", *e.attendees)) for e in self.events.values())
        return [event for event, texts in fields if any(sought in text.lower() for text in texts)]


class CalendarV2(Calendar):
    """A calendar whose events can be changed."""

    @action("agent", "data", writes=True, checks=EVENT_CHECKS)
    def edit_calendar_event(
        self,
        event_id: str,
        *,
        title: str | None = None,
        start_datetime: str | None = None,
        end_datetime: str | None = None,
        tag: str | None = None,
        description: str | None = None,
        location: str | None = None,
        attendees: list[str] | None = None,
    ) -> str:
        """Change an event; what is null stays as it is.

        Args:
            event_id: The id of the event.
            title: What to call it.
            start_datetime: When it begins, as YYYY-MM-DD HH:MM:SS.
            end_datetime: When it ends, as YYYY-MM-DD HH:MM:SS.
            tag: A word to find it by.
            description: What it is about.
            location: Where it is.
            attendees: Full names of those who come.
        """
        new: dict[str, Any] = {"title": title, "tag": tag, "description": description, "location": location}
        new["attendees"] = tuple(attendees) if attendees else None
        new["start_datetime"] = read_time(start_datetime, "start_datetime") if start_datetime else None
        new["end_datetime"] = read_time(end_datetime, "end_datetime") if end_datetime else None
        changes = {key: value for key, value in new.items() if value}
        self.events[event_id] = _with_time_texts(replace(row_of(self.events, event_id, "event"), **changes))
        return f"Calendar event {event_id} successfully edited"


def _with_time_texts(event: CalendarEvent) -> CalendarEvent:
    """The event with its times as text. Raises ToolError when it ends before it begins."""
    if event.start_datetime > event.end_datetime:
        raise ToolError("the start is after the end")
    start, end = format_time(event.start_datetime, LONG_TIME_FORMAT), format_time(event.end_datetime, LONG_TIME_FORMAT)
    return replace(event, start_strftime=start, end_strftime=end)
