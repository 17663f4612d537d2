"""A life while it happens: what is said and written, in whose voice, and which records state which fact."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from msgspec.structs import replace

from wanderlust_life.lived.facts_ledger import ATTRIBUTE_TYPES, AnsweredQuestion, Happening, LedgerFact, Value
from wanderlust_life.lived.slots import WordSource
from wanderlust_life.universes.ledger import DAY_SECONDS, HOUR_SECONDS, AppRows, daytime
from wanderlust_life.universes.people import Person
from wanderlust_life.universes.text_templates import format_day, format_price, format_time_of_day
from wanderlust_worlds.apps.mail import Email

HISTORY_DAYS, PLAN_DAYS = 150, 18
"""Days before and after the present in which things happen."""
VOICES: Mapping[str, tuple[str, ...]] = {
    "partner": ("warm", "chatty", "dry"),
    "friend": ("chatty", "dry", "warm", "brisk"),
    "colleague": ("brisk", "formal", "dry"),
    "neighbour": ("chatty", "brisk", "formal"),
    "shop": ("formal",),
    "cab": ("formal",),
    "agency": ("formal", "brisk"),
    "club": ("chatty", "formal"),
    **dict.fromkeys(("mother", "father", "aunt", "uncle", "sister", "brother"), ("warm", "chatty", "dry")),
}
"""The voices of each relation; people who serve the user have those of a service."""
SERVICE_VOICES = ("formal", "brisk")
CLOSE_TIES = ("friend", "partner", "mother", "father", "aunt", "uncle", "sister", "brother")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Something that was said or written."""

    record: str
    sender: Person
    text: str
    at: float
    words: Mapping[str, str] = field(default_factory=dict)
    """The words of the text's slots."""

    @property
    def id(self) -> str:
        """The id of the mail or the message in its app."""
        return self.record.rpartition("/")[2]


@dataclass(slots=True, kw_only=True)
class Chronicle:
    """Writes a life to the rows of apps and to the ledger of facts."""

    rows: AppRows
    words: WordSource
    people: Mapping[str, Person]
    ties: Mapping[str, tuple[Person, ...]]
    circles: tuple[tuple[Person, ...], ...]
    """People who know each other, and see the user privately."""
    places: tuple[str, ...]
    """Where the user meets people: the first four are habits."""
    voices: Mapping[str, str]
    happenings: dict[str, Happening] = field(default_factory=dict)
    turns: list[AnsweredQuestion] = field(default_factory=list)
    knows: set[tuple[str, str]] = field(default_factory=set)

    @property
    def rng(self) -> Random:
        """The life's draws."""
        return self.rows.rng

    @property
    def user(self) -> Person:
        """The person whose life it is."""
        return self.rows.user

    # Facts

    def begin(self, kind: str, name: str = "") -> Happening:
        """A new happening."""
        made = Happening(id=name or f"h{len(self.happenings):04d}", kind=kind)
        self.happenings[made.id] = made
        return made

    def fact(self, about: Happening, attribute: str, value: Value, *records: str) -> None:
        """Enter a fact, or further records of one."""
        for n, one in enumerate(about.facts):
            if (one.attribute, one.value) == (attribute, value):
                about.facts[n] = replace(one, records=tuple(dict.fromkeys((*one.records, *records))))
                return
        if records:
            about.facts.append(LedgerFact(about=about.id, attribute=attribute, value=value, records=records))

    def stated(self, about: Happening, lines: Iterable[Line], **values: Value) -> None:
        """Enter facts with those of the lines as their records in which the value stands."""
        for attribute, value in values.items():
            way = self.written(attribute, value).casefold()
            self.fact(about, attribute, value, *(line.record for line in lines if way in line.text.casefold()))

    def written(self, attribute: str, value: Value) -> str:
        """A value as the life's texts write it."""
        return written_value(attribute, value, self.people)

    # Times

    def before(self, when: float, most: float = 6 * DAY_SECONDS) -> float:
        """A time before something, in the past, when people are awake."""
        latest = min(when - 5 * HOUR_SECONDS, self.rows.start - 3 * HOUR_SECONDS)
        return daytime(self.rng, latest - self.rng.uniform(0, most))

    def between(self, first: float, last: float) -> float | None:
        """A time between two, in the past; None where there is none."""
        last = min(last, self.rows.start - 2 * HOUR_SECONDS)
        if last - first < 2 * HOUR_SECONDS:
            return None
        at = first + HOUR_SECONDS + self.rng.random() * (last - first - 1.5 * HOUR_SECONDS)
        return at if at % DAY_SECONDS > 6.5 * HOUR_SECONDS else None

    def free(self, *hours: tuple[int, int], length: float = 2 * HOUR_SECONDS, weekend: bool = True) -> float | None:
        """A time of the user's that is free."""
        return self.rows.free((-HISTORY_DAYS, PLAN_DAYS), self.rng.choice(hours), length=length, weekend=weekend)

    def busy(self, when: float, length: float) -> bool:
        """Whether something else is in the calendar then."""
        return any(one.start_datetime < when + length and one.end_datetime > when for one in self.rows.events.values())

    # What is said

    def talk(
        self,
        app: str,
        people: Sequence[Person],
        rule: str,
        *,
        facts: Mapping[str, str],
        at: float,
        title: str | None = None,
    ) -> list[Line]:
        """A dialogue in the conversation with these people: the first is `a` of the rule, the second `b`."""
        text, words = self.words.text(rule, facts)
        speakers = {"a": people[0], "me": self.user, **({"b": people[1]} if len(people) > 1 else {})}
        lines: list[Line] = []
        for part in text.split(" // "):
            who, _, said = part.partition(": ")
            if who not in speakers:
                continue
            sender = speakers[who]
            said = self.spoken(sender, said)
            talk = self.rows.say(app, people, sender=sender, text=said, at=at, title=title)
            record = f"{app}/{talk}/{self.rows.last_message(talk)}"
            lines.append(Line(record=record, sender=sender, text=said, at=at, words=words))
            at += self.rng.uniform(20, 900)
        self.note_turns(lines)
        return lines

    def note_turns(self, lines: Sequence[Line]) -> None:
        """Enter the questions of a dialogue and their answers.

        Raises ValueError for a rule whose answer names nothing of its question.
        """
        for asked, answer in pairwise(lines):
            if not asked.text.rstrip().endswith("?") or asked.sender is answer.sender:
                continue
            texts = asked.text.casefold(), answer.text.casefold()
            about = next((w for w in asked.words.values() if len(w) > 2 and all(w.casefold() in t for t in texts)), "")
            if not about:
                raise ValueError(f"{answer.text!r} names nothing of {asked.text!r}")
            self.turns.append(AnsweredQuestion(question=asked.record, answer=answer.record, about=about))

    def spoken(self, sender: Person, text: str) -> str:
        """A message in the voice of its sender."""
        voice = self.voices.get(sender.id, "brisk")
        if voice == "chatty" and self.rng.random() < 0.3:
            return f"{self.rng.choice(('Oh', 'Well', 'Listen', 'Ha', 'So', 'Right'))}, {text}"
        if voice == "dry" and self.rng.random() < 0.4:
            return text.replace("!", ".")
        return text

    def mail(
        self,
        sender: Person,
        to: Person,
        *,
        rule: str,
        facts: Mapping[str, str],
        subject: str,
        at: float,
        parent: Line | None = None,
        cc: Sequence[Person] = (),
        files: Mapping[str, str] | None = None,
    ) -> Line:
        """A mail in the voice of its sender; `files` are names and texts of attachments."""
        text, words = self.words.text(rule, facts)
        return self.post(
            Line(record="", sender=sender, text=self.letter(sender, to, text), at=at, words=words),
            to,
            subject=subject,
            parent=parent,
            cc=cc,
            files=files,
        )

    def post(
        self,
        line: Line,
        to: Person,
        *,
        subject: str,
        parent: Line | None = None,
        cc: Sequence[Person] = (),
        files: Mapping[str, str] | None = None,
    ) -> Line:
        """Put a mail into the folder that it belongs to."""
        rows, mine = self.rows, line.sender is self.user
        name = rows.new_id("e")
        (rows.sent if mine else rows.inbox)[name] = Email(
            email_id=name,
            sender=line.sender.email,
            recipients=(to.email,),
            cc=tuple(one.email for one in cc),
            subject=subject,
            content=line.text,
            parent_id=parent.id if parent is not None else None,
            attachments={key: base64.b64encode(text.encode()).decode() for key, text in (files or {}).items()},
            timestamp=line.at,
            is_read=mine or line.at < rows.start - DAY_SECONDS or self.rng.random() < 0.5,
        )
        return Line(record=f"Emails/{name}", sender=line.sender, text=line.text, at=line.at, words=line.words)

    def letter(self, sender: Person, to: Person, text: str) -> str:
        """A text with an opening and an end in the voice of its sender."""
        voice = self.voices.get(sender.id, "formal")
        if sender is self.user:
            voice = self.voices.get(to.id, "brisk")
        names = {"to": to.first, "me": sender.first if to.last and sender.last else sender.name}
        opening, _ = self.words.text(f"open.{voice}", names)
        ending, _ = self.words.text(f"close.{voice}", names)
        pad = self.words.text(f"pad.{voice}", names)[0] + " " if self.rng.random() < 0.3 else ""
        return f"{opening}\n\n{pad}{text}\n\n{ending}"

    def entry(
        self, about: Happening, title: str, when: float, *, hours: float, place: str, who: Sequence[Person]
    ) -> None:
        """An entry in the calendar, which states day, time, place and people."""
        name = self.rows.event(title, when, when + hours * HOUR_SECONDS, place=place, who=who, tag=about.kind)
        about.records["entry"] = record = f"Calendar/{name}"
        self.fact(about, "day", midnight(when), record)
        self.fact(about, "time", when % DAY_SECONDS, record)
        if place:
            self.fact(about, "place", place, record)


def replace_text(line: Line, text: str) -> Line:
    """A line with another text."""
    return Line(record=line.record, sender=line.sender, text=text, at=line.at, words=line.words)


def midnight(when: float) -> float:
    """The first second of a day."""
    return when - when % DAY_SECONDS


def written_value(attribute: str, value: Value, people: Mapping[str, Person]) -> str:
    """A value as texts write it: a person's full name, `Friday, 3 May`, `19:30`, `12.50 EUR`."""
    kind = ATTRIBUTE_TYPES[attribute]
    if isinstance(value, str):
        return people[value].name if kind == "person" else value
    ways = {"day": format_day, "time": format_time_of_day, "amount": format_price}
    return ways[kind](value) if kind in ways else f"{value:g}"


def moment_words(when: float) -> dict[str, str]:
    """The words for a day and a time."""
    return {"day": format_day(when), "time": format_time_of_day(when)}
