"""The inbox in few words, for small models: short verbs for tools, numbers for ids, code words for names.

| action | meaning |
|---|---|
| `search boiler from alfa in mar .` | `search_emails`; `from` and `in` may be left out |
| `read 2 .` | `read_email` of the second mail of the newest list: its new text, a part of it at a time |
| `more .` | the next part of that mail, or where it has none, and after a search, the next hits |
| `answer friday 14:30 .` | `return_final_answer`, with the mails that were read as sources |
| `answer unknown .` | the same, with "I don't know" |

Replies are in lower case, and bounded. People of the inbox and places (`the` with two capitalised words) are called
alfa, bravo, charlie, ... in the order in which they are met in an episode; an action may use these words. So a model
chooses among names that it cannot spell. Inboxes, questions, rewards and the bound of ten turns are those of `Inbox`.
Anything else is answered by `?` and costs a turn.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

from wanderlust.environment import Episode
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.types import Message, Policy, Task, user
from wanderlust_inbox.corpus import ORDINALS, YEAR
from wanderlust_inbox.environment import UNKNOWN, Inbox, InboxSession
from wanderlust_inbox.language import MONTHS, topic_of_word, topics
from wanderlust_inbox.mail import QUOTE_HEADER
from wanderlust_inbox.players import asked_attribute
from wanderlust_inbox.questions import InboxQuestion
from wanderlust_inbox.store import Hit, InboxFile

SHORT_MONTHS = tuple(name[:3].lower() for name in MONTHS)
SEARCH = re.compile(r"search (?P<words>.+?)(?: from (?P<sender>.+?))?(?: in (?P<month>[a-z]{3}))?")
PLACE = re.compile(r"\b([Tt]he) ([A-Z][a-z]+ [A-Z][a-z]+)\b")
CODE_WORDS = tuple(
    re.findall(
        r"\w+",
        "alfa bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike oscar papa quebec romeo sierra "
        "tango uniform victor whiskey xray yankee zulu",
    )
)
QUOTED_BY = re.compile(r"(?:on [\d-]+ )?[a-z]+ wrote: ?")
"""What a snippet may have of the line before quoted history."""
LISTED = re.compile(r"^\d+ [a-z]{3} [a-z]+ :", re.MULTILINE)
DEFAULT_HITS = 4
BRIEF_UNKNOWN = "unknown"
NONE, REFUSED, MORE = "none", "?", "more"


def brief_text(text: str) -> str:
    """A text in lower case on one line, without quote marks, with spaces around punctuation."""
    plain = QUOTE_HEADER.sub(" ", text).replace(">", " ").replace("…", " ")
    return " ".join(re.sub(r"([.,?!;])(?=\s|$)", r" \1 ", plain.lower()).split())


class CodeWords:
    """The code words of one episode, for people of an inbox and for places."""

    def __init__(self, people: Mapping[str, str], pattern: re.Pattern[str]):
        self.people, self.pattern = people, pattern
        self.named: list[str] = []

    @classmethod
    def of(cls, inbox: InboxFile) -> CodeWords:
        """None was met yet."""
        people = {name.rpartition(" ")[2]: name for name in inbox.names.values()}
        return cls(people, _people_pattern(tuple(sorted(people))))

    def hide(self, text: str) -> str:
        """The text in few words, with code words for names."""

        def person(match: re.Match[str]) -> str:
            before, last = match[1] or "", match[2]
            known = self.people[last]
            return self.word(known) if before.strip() == known.partition(" ")[0] else before + self.word(known)

        text = self.pattern.sub(person, text)
        text = brief_text(PLACE.sub(lambda match: f"{match[1]} {self.word(match[2])}", text))
        return QUOTED_BY.sub("", text)

    def word(self, name: str) -> str:
        """The code word for a name."""
        if name not in self.named:
            self.named.append(name)
        number = self.named.index(name)
        return CODE_WORDS[number] if number < len(CODE_WORDS) else name

    def show(self, text: str) -> str:
        """A text with names for its code words."""
        meaning = dict(zip(CODE_WORDS, self.named, strict=False))
        return re.sub(r"[a-z]+", lambda match: meaning.get(match[0], match[0]), text)


@cache
def _people_pattern(last_names: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, last_names)) or "(?!)"
    return re.compile(rf"\b([A-Z][a-z]+ )?({names})\b")


@dataclass(slots=True)
class BriefSession:
    """What an episode has listed and read."""

    session: InboxSession
    words: CodeWords
    hits: int
    snippet_words: int
    read_words: int
    listed: list[Hit] = field(default_factory=list)
    """The hits that were shown."""
    behind: list[Hit] = field(default_factory=list)
    """The other hits of the newest search."""
    rest: list[str] = field(default_factory=list)
    """Words of the mail that was read last, which were not shown yet."""

    def reply(self, action: str) -> str:
        """What an action is answered with; the session is over after an answer."""
        line = " ".join(action.lower().split()).removesuffix(".").strip()
        verb, _, rest = line.partition(" ")
        if verb == "search" and (asked := SEARCH.fullmatch(line)):
            return self.search(asked)
        if verb == "read" and re.fullmatch(r"[1-9]|10", rest) and int(rest) <= len(self.listed):
            return self.read(self.listed[int(rest) - 1].id)
        if line == MORE and (self.rest or self.behind):
            return self.show() if self.rest else self.list_hits()
        if verb == "answer" and rest:
            sources = list(dict.fromkeys(self.session.state["read"]))
            self.session.answer(UNKNOWN if rest == BRIEF_UNKNOWN else self.words.show(rest), sources)
        return REFUSED

    def search(self, asked: re.Match[str]) -> str:
        """The hits, a line each: number, month, who wrote it, and the words around the keyword."""
        filters: dict[str, Any] = {"sender": self.words.show(asked["sender"] or "")}
        if asked["month"]:
            if asked["month"] not in SHORT_MONTHS:
                return REFUSED
            number = SHORT_MONTHS.index(asked["month"]) + 1
            filters["after"] = f"{YEAR}-{number:02}-01"
            filters["before"] = f"{YEAR}-{number + 1:02}-01" if number < 12 else f"{YEAR + 1}-01-01"
        words = asked["words"].split()
        self.listed, self.rest = [], []
        self.behind = self.session.inbox.search(words, snippet_words=self.snippet_words, **filters)
        return self.list_hits()

    def list_hits(self) -> str:
        """The next hits, numbered on."""
        first = len(self.listed) + 1
        self.listed += self.session.shown(self.behind[: self.hits])
        self.behind = self.behind[self.hits :]
        return "\n".join(f"{n} {self.line(hit)}" for n, hit in enumerate(self.listed[first - 1 :], first)) or NONE

    def line(self, hit: Hit) -> str:
        """A hit in few words."""
        who = self.words.word(self.session.inbox.name_of(hit.sender))
        return f"{SHORT_MONTHS[int(hit.date[5:7]) - 1]} {who.lower()} : {self.words.hide(hit.snippet)}"

    def read(self, mail_id: str) -> str:
        """The first words of a mail."""
        mail = self.session.read(mail_id)
        self.rest = self.words.hide(mail.new_text).split()
        return self.show()

    def show(self) -> str:
        """The next words of the mail, and whether there are more."""
        part, self.rest = self.rest[: self.read_words], self.rest[self.read_words :]
        return " ".join([*part, *([MORE] if self.rest else [])]) or NONE


class BriefInbox(Inbox):
    """`Inbox` in few words, for a model of a million weights; `hits`, `snippet_words`, `read_words` bound a reply."""

    def __init__(
        self,
        *,
        inboxes: int = 16,
        reward: str = "correct",
        turns: float = 0.1,
        hallucination: float = 0.3,
        hits: int = DEFAULT_HITS,
        snippet_words: int = 8,
        read_words: int = 40,
        balanced: bool = False,
        **options: Any,
    ):
        """`options` are those of `Inbox`.

        `balanced`: training has equally many questions of each kind. Rare kinds are learnt better so.
        """
        if not (1 <= hits <= 9 and 1 <= snippet_words <= 64 and read_words >= 1):
            raise UsageError("hits is from 1 to 9, snippet_words from 1 to 64, read_words at least 1")
        super().__init__(inboxes=inboxes, reward=reward, turns=turns, hallucination=hallucination, **options)
        self.hits, self.snippet_words, self.read_words, self.balanced = hits, snippet_words, read_words, balanced
        self.players = {"teacher": brief_teacher}

    def tasks(self, split: str = "train") -> list[Task]:
        """As of `Inbox`; with `balanced`, those of training are as many of each kind as of the rarest."""
        tasks = super().tasks(split)
        return equally_many(tasks) if self.balanced and split == "train" else tasks

    def question_prompt(self, inbox: InboxFile, question: InboxQuestion) -> tuple[Message, ...]:
        """Nothing: with code words for names, equal questions may be about different inboxes. `run` asks."""
        return ()

    def oracle(self, task: Task) -> Policy:
        """Knows the answer."""
        answer = next(iter(task.answer["answers"]), BRIEF_UNKNOWN)
        return Scripted([f"answer {brief_text(answer)} ."])

    async def run(self, episode: Episode) -> None:
        """One question."""
        session = InboxSession(self.inbox(episode.task.info["inbox"]), episode.task, episode)
        words = CodeWords.of(session.inbox)
        observation = user(words.hide(episode.task.info["question"]))
        brief = BriefSession(session, words, self.hits, self.snippet_words, self.read_words)
        try:
            while not session.over:
                action = await episode.agent.act(observation)
                observation = user(brief.reply(action.content))
        finally:
            session.record.turns = len(episode.agent.trajectory.turns) + (not session.over)
            session.note()


def equally_many(tasks: Sequence[Task]) -> list[Task]:
    """The first tasks of each kind, as many as the rarest kind has; the kinds take turns."""
    by_kind = defaultdict[str, list[Task]](list)
    for task in tasks:
        by_kind[task.info["kind"]].append(task)
    return [task for turn in zip(*by_kind.values(), strict=False) for task in turn]


_CODE = "|".join(CODE_WORDS)
BRIEF_VALUES: Mapping[str, re.Pattern[str]] = {
    "time": re.compile(r"\b((?:mon|tues|wednes|thurs|fri|satur|sun)day at \d\d:\d\d)\b"),
    "place": re.compile(rf"\bthe ({_CODE})\b"),
    "amount": re.compile(r"\b(\d+) eur\b"),
    "who": re.compile(rf"\bask ({_CODE})\b|\b({_CODE}) (?:now )?(?:looks|is in charge)"),
}

_ORDINAL = "|".join(ORDINALS)
INSTALMENT = re.compile(rf"(?:({_ORDINAL}) instalment[^.\n]* )?(\d+) eur(?: as the ({_ORDINAL}) instalment)?")
"""An amount with the ordinal of its instalment, before or after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherHabits:
    """How often the teacher does what is right."""

    synonym: float = 0.9
    """Searches for a word of the topic rather than for another one."""
    sender: float = 0.95
    """Names the person in the search."""
    newest: float = 0.55
    """Reads the newest mail that it has not read yet rather than any."""
    patience: float = 0.85
    """Goes on when a search finds nothing, or a mail has no value."""
    list_on: float = 0.6
    """Asks for more hits when those of the list were read."""
    hop: float = 0.9
    """Goes on to the person who was named."""
    add: float = 0.9
    """Adds amounts up rather than giving the first one."""


def brief_teacher(habits: TeacherHabits = TeacherHabits()) -> Scripted:
    """Knows the words for each topic and how one searches and reads, and is often careless."""
    return Scripted(lambda messages, rng: _Teaching(messages, rng, habits).next())


class _Teaching:
    """One turn of the teacher."""

    def __init__(self, messages: Sequence[Message], rng: Random, habits: TeacherHabits):
        self.rng, self.habits = rng, habits
        self.question = messages[0].content
        self.acts = [one.content for one in messages[1:] if one.role == "assistant"]
        self.replies = [one.content for one in messages[1:] if one.role == "user"]
        words = self.question.split()
        self.word = next((one for one in words if one in topic_of_word()), "")
        self.month = next((SHORT_MONTHS[n] for n, name in enumerate(MONTHS) if name.lower() in words), "")
        person = re.search(
            r"(?:with|did|to|does|whom|by) ([a-z]+)(?= set| name| named| want| in| \?| together| add| ,|$)",
            self.question,
        )
        self.person = person[1] if person else ""
        self.attribute = asked_attribute(self.question)
        self.hop = "whom" in words and "one" in words
        self.sum = "parts" in words

    def likely(self, share: float) -> bool:
        """True so often."""
        return self.rng.random() < share

    def next(self) -> str:
        """The next action."""
        if not self.acts:
            return self.search(self.person)
        last, reply = self.acts[-1], self.replies[-1]
        if last.startswith("search") or LISTED.match(reply):
            return self.after_search(reply)
        return self.after_read(reply)

    def search(self, person: str) -> str:
        """A search that was not made yet, for one of the topic's words."""
        words = list(topics()[topic_of_word()[self.word]]) if self.word else ["news"]
        by_topic = bool(self.month) and not self.person
        words = [self.word] if by_topic else [one for one in words if one != self.word] if self.likely(0.9) else words
        if not self.likely(self.habits.synonym) and not by_topic:
            words = [self.word]
        tried = {one for one in self.acts if one.startswith("search")}
        tails = f" from {person}" if person and self.likely(self.habits.sender) else ""
        tails += f" in {self.month}" if self.month and self.likely(self.habits.sender) else ""
        found = [f"search {one}{tails} ." for one in words]
        fresh = [one for one in found if one not in tried]
        if fresh:
            return self.rng.choice(fresh)
        return f"answer {BRIEF_UNKNOWN} ."

    def person_now(self) -> str:
        """Whom the last search was about."""
        return next((m[1] for one in reversed(self.acts) if (m := re.search(r" from (\S+)", one))), self.person)

    def after_search(self, reply: str) -> str:
        """Reads a hit, or searches again."""
        if reply in (NONE, REFUSED):
            return self.search(self.person_now()) if self.likely(self.habits.patience) else f"answer {BRIEF_UNKNOWN} ."
        return self.read_next()

    def read_next(self) -> str:
        """A mail of the list that was not read since."""
        start = max(n for n, act in enumerate(self.acts) if act.startswith("search"))
        since = self.acts[start:]
        count = sum(len(LISTED.findall(reply)) for reply in self.replies[start:])
        left = [n for n in range(1, count + 1) if f"read {n} ." not in since]
        if not left:
            full = count % DEFAULT_HITS == 0 and f"{MORE} ." not in since
            return f"{MORE} ." if full and self.likely(self.habits.list_on) else self.search(self.person_now())
        return f"read {left[0] if self.likely(self.habits.newest) else self.rng.choice(left)} ."

    def values(self, text: str, attribute: str) -> list[str]:
        """Values of a kind in a text."""
        found = BRIEF_VALUES[attribute].findall(text)
        return [one if isinstance(one, str) else next(filter(None, one)) for one in found]

    def parts(self) -> dict[str, int]:
        """Amounts of the instalments by their ordinals; the one that was read first, as lists begin with the newest."""
        found: dict[str, int] = {}
        for text in self.replies:
            for before, amount, after in INSTALMENT.findall(text):
                if ordinal := before or after:
                    found.setdefault(ordinal, int(amount))
        return found

    def after_read(self, reply: str) -> str:
        """Answers with a value, or goes on."""
        hopping = self.hop and self.person_now() == self.person
        found = self.values(reply, "who" if hopping else self.attribute)
        if found and hopping and self.likely(self.habits.hop):
            return self.search(found[0])
        if found and self.sum and self.likely(self.habits.add):
            parts = self.parts()
            if len(parts) >= 2:
                return f"answer {sum(parts.values())} ."
        elif found:
            return f"answer {found[0].replace(' at ', ' ')} ."
        if reply.endswith(f" {MORE}") and self.likely(self.habits.patience):
            return f"{MORE} ."
        return self.read_next() if self.likely(self.habits.patience) else f"answer {BRIEF_UNKNOWN} ."
