"""Mails and messages in other words: what must be kept, and scenarios and stories in the words of a book.

Not covered: a rewording that keeps all names, numbers, days and places can still turn a yes into a no. Subjects, files,
entries of the calendar and the user's request stay as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from wanderlust.errors import UsageError
from wanderlust_life.described import SLOT, Story
from wanderlust_worlds.apps.contacts import Contacts
from wanderlust_worlds.apps.mail import Mail
from wanderlust_worlds.apps.messages import Conversations
from wanderlust_worlds.engine.app import App
from wanderlust_worlds.engine.cow_dict import CowDict
from wanderlust_worlds.engine.events import Event, PlannedCall
from wanderlust_worlds.engine.scenario import Scenario
from wanderlust_worlds.verification.facts import Says
from wanderlust_worlds.verification.grading import facts_of
from wanderlust_worlds.verification.reading import MONTHS, WEEKDAYS, word_pattern

Book: TypeAlias = Mapping[str, str]
"""Texts, and what they became."""
BOOK_FILE = "book.json"
SAYING = "send_message_to_user"
"""The action by which an agent tells the user something."""
MAX_GROWTH = 3.0
"""How many times as long a rewording may be."""
FACT = re.compile(r"\S*\d[\S]*|\b[A-Z][\w'-]+|\{[a-z_]+(?:\.[a-z]+)?\}")
"""What must be kept: words with digits, words that begin with a capital letter, and slots of a story."""
ORDINARY = re.compile(r"(?:^|[.?!:\n]\s*)[A-Z][\w'-]+")
"""Capital letters that only begin a sentence."""
CALENDAR_WORDS = tuple(one.capitalize() for one in (*WEEKDAYS, *MONTHS))


def fault_of(text: str, reworded: str, *, names: Collection[str] = (), answers: Collection[str] = ()) -> str:
    """Why a rewording cannot take a text's place, as a kind and what it is about; empty where it can.

    The kinds are `empty`, `long`, `loses` (a name, number, day, place or slot), `adds` (a number, slot, day or known
    name) and `leaks` (one of the answers). `names` count as facts also where they begin a sentence.
    """
    if not reworded.strip():
        return "empty"
    if len(reworded) > MAX_GROWTH * len(text):
        return "long"
    facts, new = _facts(text, names), _facts(reworded, names)
    if lost := sorted(one for one in facts if one not in reworded):
        return f"loses {lost[0]}"
    known = {*names, *CALENDAR_WORDS}
    if added := sorted(one for one in new - facts if one in known or one.startswith("{") or _has_digit(one)):
        return f"adds {added[0]}"
    told = (way for way in answers if _states(reworded, way) and not _states(text, way))
    leaked = next(told, "")
    return f"leaks {leaked}" if leaked else ""


def _facts(text: str, names: Collection[str]) -> set[str]:
    opening = {found[0].lstrip(".?!: \n") for found in ORDINARY.finditer(text)}
    inside = [found[0].strip(".,;:!?()'\"") for found in FACT.finditer(text)]
    return {one for one in inside if _has_digit(one) or one not in opening} | {one for one in names if one in text}


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _states(text: str, way: str) -> bool:
    return word_pattern(way).search(text.casefold()) is not None


def texts_of(scenario: Scenario) -> list[str]:
    """The texts of mails and messages, of those that come later too; what stands in the apps last comes first."""
    found: list[str] = [event.args["content"] for event in _texts_to_come(scenario.events)]
    for app in scenario.apps:
        if isinstance(app, Mail):
            rows = [*app.sent.values(), *app.inbox.values()]
            found += [one.content for one in reversed(rows)]
        elif isinstance(app, Conversations):
            found += [one.content for talk in reversed([*app.conversations.values()]) for one in talk.messages]
    return [text for text in dict.fromkeys(found) if text]


def _texts_to_come(events: Sequence[Event]) -> Iterator[PlannedCall]:
    for event in events:
        if isinstance(event, PlannedCall) and event.by == "env" and isinstance(event.args.get("content"), str):
            yield event


def names_of(scenario: Scenario) -> set[str]:
    """First and last names of everybody in the contacts."""
    contacts = [one for app in scenario.apps if isinstance(app, Contacts) for one in app.contacts.values()]
    return {part for one in contacts for part in (one.first_name, one.last_name) if part}


def answers_of(scenario: Scenario) -> set[str]:
    """Wordings of what the agent is to tell the user, those apart that are ordinary single words."""
    reports = [act.id for act in scenario.oracle if act.action == SAYING]
    facts = [one for name in reports for told in facts_of(scenario).get(name, {}).values() for one in told.facts]
    return {way for one in facts if isinstance(one, Says) for way in one.ways if way != way.lower()}


def in_words(scenario: Scenario, book: Book) -> Scenario:
    """The scenario in the words of a book: no model is needed, and what is not in the book stays as it is."""
    later = {id(event) for event in _texts_to_come(scenario.events)}
    events = [
        replace(event, args={**event.args, "content": book.get(event.args["content"], event.args["content"])})
        if isinstance(event, PlannedCall) and id(event) in later
        else event
        for event in scenario.events
    ]
    return replace(scenario, apps=tuple(_app_in_words(app, book) for app in scenario.apps), events=tuple(events))


def _app_in_words(app: App, book: Book) -> App:
    def worded(row: Any) -> Any:
        return msgspec.structs.replace(row, content=book.get(row.content, row.content))

    def talk_worded(talk: Any) -> Any:
        return msgspec.structs.replace(talk, messages=tuple(map(worded, talk.messages)))

    tables: dict[str, Callable[[Any], Any]] = {}
    if isinstance(app, Mail):
        tables = {"inbox": worded, "sent": worded}
    elif isinstance(app, Conversations):
        tables = {"conversations": talk_worded}
    if not tables:
        return app
    fields = {key: getattr(app, key) for key in app.fields()}
    for name, change in tables.items():
        fields[name] = CowDict({key: change(row) for key, row in fields[name].items()})
    return type(app)(app.name, **fields)


def story_texts(story: Story) -> list[str]:
    """The texts of a story that others write: what stands in the apps before, decoys, and what they write later."""
    planted = [one.text for one in (*story.before, *story.decoys) if one.mail or one.chat or one.message]
    later = [one.args["content"] for one in story.then if one.by == "env" and isinstance(one.args.get("content"), str)]
    return [text for text in dict.fromkeys((*planted, *later)) if SLOT.sub("", text).strip()]


def story_answers(story: Story) -> set[str]:
    """Wordings of what the reports of a story must state; for a slot of drawn words, all words of its own list."""
    says = [step.says for step in story.then if step.report and isinstance(step.says, list)]
    ways = [way for facts in says for fact in facts for way in (fact if isinstance(fact, list) else fact.ways)]
    drawn = [story.words.get(match[1]) for way in ways if (match := SLOT.fullmatch(way)) is not None]
    listed = {word for words in drawn if isinstance(words, list) for word in words}
    return {way for way in ways if SLOT.sub("", way) == way} | listed


def story_in_words(story: Story, book: Book) -> Story:
    """The story in the words of a book."""
    changed = msgspec.structs.replace
    before, decoys = (
        [changed(one, text=book.get(one.text, one.text)) for one in some] for some in (story.before, story.decoys)
    )
    then = [
        changed(one, args={**one.args, "content": book.get(one.args["content"], one.args["content"])})
        if one.by == "env" and isinstance(one.args.get("content"), str)
        else one
        for one in story.then
    ]
    return changed(story, before=before, decoys=decoys, then=then)


def read_book(path: Path) -> dict[str, str]:
    """The book in a file, or in the folder that `wander world write --reword` made. UsageError for what is none."""
    place = path / BOOK_FILE if path.is_dir() else path
    try:
        body = json.loads(place.read_text("utf-8"))
        return msgspec.convert(body["texts"], dict[str, str])
    except (OSError, ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise UsageError(f"{place} is no book of other words: {error}") from error
