"""Families of scenarios as data: a story in JSON instead of a function; a model can write it, and people edit it.

A story has roles, words and days that every scenario draws anew; what stands in the apps before; the request; and what
happens then, by the agent, by others and by the user. In texts, `{who.first}` stands for what was drawn, and an
argument that is `{sent}` alone for the result of the step `sent`. Nothing in a story is executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from wanderlust.errors import UsageError, one_line, quoted
from wanderlust_life.families import builder
from wanderlust_life.families.builder import FamilyBuilder
from wanderlust_life.families.family import LEVELS, Capability, Family
from wanderlust_life.universes.people import Person
from wanderlust_life.universes.text_templates import Split, format_day, format_time_of_day
from wanderlust_worlds.engine.app import format_time
from wanderlust_worlds.engine.events import ScenarioError
from wanderlust_worlds.engine.scenario import play_oracle
from wanderlust_worlds.verification.facts import Says, TextFact
from wanderlust_worlds.verification.grading import FactGrader, missing_facts

MAX_STORY_BYTES = 64 << 10
"""Bytes of a story; a longer one is refused unread."""
MAX_STEPS = 40
STORY_NAME = re.compile(r"[a-z][a-z0-9-]{1,40}")
SLOT = re.compile(r"\{([a-z][a-z0-9_]*)(?:\.([a-z]+))?\}")
SPLITS: tuple[Split, ...] = ("train", "held")
CHECK_SEEDS = 3
"""Scenarios of each level and split that a check plays."""
Ways = list[str]


class FactOf(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A fact that a text must state; one of the fields."""

    ways: Ways = []
    """Wordings, any of which states it."""
    not_: Ways = msgspec.field(default=[], name="not")
    """Wordings of other answers, which must not be stated."""
    day: str = ""
    """The day of this name."""
    time: str = ""
    """The time of the day of this name."""
    person: str = ""
    """The person in this role, and nobody of the other roles."""


class Before(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Something that stands in an app before the story begins; one of mail, chat, message, event, file."""

    mail: str = ""
    """The role of the sender of a mail with `subject` and `text`."""
    chat: str = ""
    """The role of the writer of `text` in Chats."""
    message: str = ""
    """The role of the writer of `text` in Messages."""
    event: str = ""
    """The title of an hour in the calendar, on the day named by `at`, `with` people, at a `place`."""
    file: str = ""
    """The path of a file with `text`."""
    subject: str = ""
    text: str = ""
    days_ago: float = 1.0
    at: str = ""
    place: str = ""
    with_: list[str] = msgspec.field(default=[], name="with")


class StoryStep(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Something that happens: an act, or a report of the agent, or words of the user."""

    id: str = ""
    by: Literal["agent", "env", "user"] = "agent"
    app: str = ""
    action: str = ""
    args: dict[str, Any] = {}
    report: str = ""
    """What the agent tells the user, which ends its turn."""
    asks: bool = False
    """Whether the report, or the texts of an act, are a question: a question affirms nothing."""
    says: dict[str, list[list[str] | FactOf]] | list[list[str] | FactOf] = []
    """Facts that a text must state, by argument; of a report, its own."""
    never: Ways = []
    """Wordings that a report must not have."""
    text: str = ""
    """What the user says."""
    after: list[str] = []
    """Steps that come before; empty: the one before it in the list."""
    delay: float = 0.0
    """Seconds after them. Above one second, an act of the agent has to be done about then."""


class Story(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A family of scenarios as data."""

    name: str
    capability: Capability
    asks: str
    """The task, in one sentence."""
    hard: str
    """The reason why it is hard, in one sentence."""
    people: dict[str, str] = {}
    """Roles and ties: friend, colleague, neighbour, partner, ..."""
    words: dict[str, list[str] | str] = {}
    """Words that are drawn: from a list, or from the project's list of this name (things, topics, foods, hobbies)."""
    numbers: dict[str, tuple[int, int]] = {}
    """Numbers that are drawn, from least to most."""
    days: dict[str, tuple[int, int]] = {}
    """Free hours in the calendar, between so many days from now."""
    before: list[Before] = []
    decoys: list[Before] = []
    """What looks like the right thing, as many as the level asks for; `other` is somebody new in each."""
    request: str
    then: list[StoryStep]


class StoryError(UsageError):
    """A story that cannot be told; the message says where and why."""


def read_story(text: str | bytes) -> Story:
    """The story in a JSON object. Raises StoryError, which names the field."""
    raw = text.encode() if isinstance(text, str) else text
    if len(raw) > MAX_STORY_BYTES:
        raise StoryError(f"the story has {len(raw):,} bytes, more than {MAX_STORY_BYTES:,}")
    try:
        story = msgspec.json.decode(raw, type=Story)
    except msgspec.DecodeError as error:
        raise StoryError(str(error)) from error
    if not STORY_NAME.fullmatch(story.name):
        raise StoryError(f"the name {quoted(story.name)} is not of small letters, digits and hyphens")
    if not story.then or len(story.then) > MAX_STEPS:
        raise StoryError(f"the story has {len(story.then)} steps, expected 1 to {MAX_STEPS}")
    return story


def story_family(story: Story) -> Family:
    """The family of a story, played like any other. Its scenarios raise StoryError for what cannot be told."""
    return Family(
        name=story.name,
        capability=story.capability,
        asks=story.asks,
        hard=story.hard,
        build=lambda stage: Telling(story, stage).tell(),
    )


def read_family(path: Path) -> Family:
    """The family of a story in a file. Raises StoryError."""
    try:
        return story_family(read_story(path.read_bytes()))
    except OSError as error:
        raise StoryError(f"{path}: {error.strerror}") from error
    except StoryError as error:
        raise StoryError(f"{path}: {error}") from error


class Telling:
    """A story on a stage: what was drawn, and what has happened."""

    def __init__(self, story: Story, stage: FamilyBuilder):
        self.story, self.stage = story, stage
        self.people: dict[str, Person] = {}
        self.values: dict[str, str] = {}
        self.times: dict[str, float] = {}
        self.events: dict[str, Any] = {}

    def tell(self) -> None:
        """Draw, plant, and let it happen."""
        story, stage = self.story, self.stage
        self.draw()
        for number, one in enumerate(story.before):
            self.plant(one, f"before[{number}]")
        for number in range(stage.decoys if story.decoys else 0):
            others = stage.some("friend", "colleague", "neighbour")
            if others:
                self.people["other"] = others[0]
                self.plant(story.decoys[number % len(story.decoys)], "decoys")
        self.events["request"] = stage.story.user(stage.ui).send_message_to_agent(self.fill(story.request, "request"))
        last = "request"
        for number, step in enumerate(story.then):
            last = self.happen(step, step.id or f"step{number}", last)
        stage.duration = 1_200.0 + sum(step.delay for step in story.then)

    def draw(self) -> None:
        """Who and what this scenario is about."""
        story, stage = self.story, self.stage
        for role, tie in story.people.items():
            found = stage.some(tie)
            if not found:
                raise StoryError(f"people.{role}: nobody is a {tie!r}")
            self.people[role] = found[0]
        for name, words in story.words.items():
            try:
                self.values[name] = stage.rng.choice(words) if isinstance(words, list) else stage.word(words)
            except (KeyError, IndexError, OSError) as error:
                raise StoryError(f"words.{name}: there is no word list {words!r}") from error
        for name, (least, most) in story.numbers.items():
            self.values[name] = str(stage.rng.randint(least, max(least, most)))
        for name, (soonest, latest) in story.days.items():
            self.times[name] = stage.free(soonest, max(soonest, latest))

    def fill(self, text: str, where: str) -> str:
        """A text with what was drawn. Raises StoryError for a slot that stands for nothing."""

        def value(match: re.Match[str]) -> str:
            name, part = match[1], match[2]
            if name in self.people and (found := self.part_of_person(self.people[name], part)) is not None:
                return found
            if name in self.times and (found := self.part_of_time(self.times[name], part)) is not None:
                return found
            if name in self.values and part is None:
                return self.values[name]
            raise StoryError(f"{where}: nothing is called {match[0]}")

        return SLOT.sub(value, text)

    def part_of_person(self, who: Person, part: str | None) -> str | None:
        """A person's name, or another text about them; None where there is none of that name."""
        parts: Mapping[str | None, Callable[[], str]] = {
            None: lambda: who.name,
            "name": lambda: who.name,
            "first": lambda: who.first,
            "last": lambda: who.last,
            "email": lambda: who.email,
            "phone": lambda: who.phone,
            "chat": lambda: builder.user_id_of(self.stage.chats, who),
            "contact": lambda: who.id,
        }
        return parts[part]() if part in parts else None

    def part_of_time(self, at: float, part: str | None) -> str | None:
        """A day, a time of day, or a moment as tools take it; None where there is none of that name."""
        parts: Mapping[str | None, str] = {
            "day": format_day(at),
            "time": format_time_of_day(at),
            "start": format_time(at),
            "end": format_time(at + 3_600),
        }
        return parts.get(part)

    def role(self, name: str, where: str) -> Person:
        """The person in a role. Raises StoryError."""
        if name not in self.people:
            raise StoryError(f"{where}: no role is called {name!r}; there are {', '.join(self.people) or 'none'}")
        return self.people[name]

    def day(self, name: str, where: str) -> float:
        """The moment of a name. Raises StoryError."""
        if name not in self.times:
            raise StoryError(f"{where}: no day is called {name!r}; there are {', '.join(self.times) or 'none'}")
        return self.times[name]

    def plant(self, one: Before, where: str) -> None:
        """Put something into an app. Raises StoryError where it is not exactly one kind of thing."""
        kinds = [kind for kind in ("mail", "chat", "message", "event", "file") if getattr(one, kind)]
        if len(kinds) != 1:
            raise StoryError(f"{where}: give one of mail, chat, message, event, file")
        stage, text = self.stage, self.fill(one.text, f"{where}.text")
        at = stage.ago(max(one.days_ago, 0.1), max(one.days_ago, 0.1) + 0.5)
        match kinds[0]:
            case "mail":
                subject = self.fill(one.subject, f"{where}.subject")
                builder.plant_mail(stage, self.role(one.mail, f"{where}.mail"), subject=subject, text=text, at=at)
            case "chat":
                builder.plant_message(stage, stage.chats, self.role(one.chat, f"{where}.chat"), text=text, at=at)
            case "message":
                builder.plant_message(stage, stage.texts, self.role(one.message, f"{where}.message"), text=text, at=at)
            case "event":
                title, place = self.fill(one.event, f"{where}.event"), self.fill(one.place, f"{where}.place")
                people = [self.role(name, f"{where}.with") for name in one.with_]
                builder.plant_event(stage, title, self.day(one.at, f"{where}.at"), place=place, who=people)
            case "file":
                builder.plant_file(stage, self.fill(one.file, f"{where}.file"), text)

    def happen(self, step: StoryStep, name: str, last: str) -> str:
        """Add a step to the story; gives its name."""
        where, stage = f"then.{name}", self.stage
        before = step.after or [last]
        if unknown := [one for one in before if one not in self.events]:
            raise StoryError(f"{where}.after: no earlier step is called {unknown[0]!r}")
        after = [self.events[one] for one in before]
        if name in self.events:
            raise StoryError(f"{where}: two steps have this id")
        if step.text or step.by == "user":
            user = stage.story.user(stage.ui, after=after, delay=step.delay or 20)
            self.events[name] = user.send_message_to_agent(self.fill(step.text, f"{where}.text"))
        elif step.report:
            says = step.says if isinstance(step.says, list) else step.says.get("report", [])
            facts = [self.fact(one, f"{where}.says") for one in says]
            never = [self.fill(one, f"{where}.never") for one in step.never]
            text = self.fill(step.report, f"{where}.report")
            mode: Literal["asks", "reports"] = "asks" if step.asks else "reports"
            self.events[name] = stage.reports(
                after, text, *facts, never=never, quiet=step.delay, mode=mode, plain=not facts
            )
        else:
            self.events[name] = self.act(step, after, where)
        return name

    def act(self, step: StoryStep, after: Sequence[Any], where: str) -> Any:
        """An act of the agent or of others."""
        stage = self.stage
        app = stage.apps.get(step.app)
        if app is None:
            raise StoryError(f"{where}.app: there is no app {step.app!r}; there are {', '.join(stage.apps)}")
        if step.action not in app.actions:
            raise StoryError(f"{where}.action: {step.app} has no {step.action!r}; it has {', '.join(app.actions)}")
        if step.by not in app.actions[step.action].scopes:
            raise StoryError(f"{where}: {step.app}.{step.action} is nothing that {step.by} does")
        teller = stage.agent if step.by == "agent" else stage.env
        made = getattr(teller(app, after=after, delay=step.delay), step.action)(
            **{key: self.argument(value, f"{where}.args.{key}") for key, value in step.args.items()}
        )
        if isinstance(step.says, list):
            if step.says:
                raise StoryError(f"{where}.says: name the argument that says it, as in {{'content': [['yes']]}}")
            return made
        for argument, given in step.says.items():
            facts = [self.fact(one, f"{where}.says.{argument}") for one in given]
            stage.expects(made, argument, *facts, mode="asks" if step.asks and facts else "any")
        return made

    def argument(self, value: Any, where: str) -> Any:
        """An argument of a call: what was drawn is filled in, a step's name alone is its result."""
        if isinstance(value, str):
            whole = SLOT.fullmatch(value)
            if whole and whole[2] is None and whole[1] in self.events:
                return self.events[whole[1]]
            return self.fill(value, where)
        if isinstance(value, list):
            return [self.argument(one, where) for one in value]
        if isinstance(value, dict):
            return {key: self.argument(one, where) for key, one in value.items()}
        return value

    def fact(self, one: list[str] | FactOf, where: str) -> TextFact:
        """A fact of a text."""
        given = FactOf(ways=one) if isinstance(one, list) else one
        if given.day:
            return self.stage.on_day(self.day(given.day, where))
        if given.time:
            return self.stage.at_time(self.day(given.time, where))
        if given.person:
            others = [who for role, who in self.people.items() if role != given.person]
            return self.stage.is_who(self.role(given.person, where), others)
        if not given.ways:
            raise StoryError(f"{where}: a fact needs wordings, or a day, a time or a person")
        ways, rivals = ([self.fill(way, where) for way in some] for some in (given.ways, given.not_))
        return Says(ways=tuple(ways), rivals=tuple(rivals))


def check_story(story: Story, *, seeds: int = CHECK_SEEDS) -> None:
    """Raises StoryError unless the story keeps what every family does, in `seeds` scenarios of each level and split.

    The oracle is accepted. Doing nothing is not, and leaving out any act of the agent is not. Every text has its facts.
    """
    one = story_family(story)
    for level, difficulty in LEVELS.items():
        for split in SPLITS:
            for seed in range(seeds):
                where = f"level {level}, {split}, seed {seed}"
                try:
                    scenario = one.scenario(seed, difficulty, split=split)
                    log = play_oracle(scenario, seed).log
                except (ScenarioError, TypeError) as error:
                    raise StoryError(f"{where}: {one_line(str(error))}") from error
                if missing := missing_facts(scenario):
                    raise StoryError(f"{where}: {one_line(missing[0], 400)}")
                grader = FactGrader(scenario)
                verdict = grader.verdict(log)
                if not verdict.accepted:
                    raise StoryError(f"{where}: what the story plans is not accepted: {one_line(str(verdict), 300)}")
                for act in scenario.oracle:
                    if grader.verdict([line for line in log if line.event != act.id]).accepted:
                        raise StoryError(f"{where}: without {act.app}.{act.action} it is accepted as well")
                if grader.verdict([line for line in log if line.by != "agent"]).accepted:
                    raise StoryError(f"{where}: doing nothing is accepted")
