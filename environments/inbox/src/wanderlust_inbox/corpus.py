"""Generated inboxes: a year of mails around one owner, and a ledger of what they state.

People belong to circles (home, health, work, family, club), and some to two. An occasion is a topic that one of them
writes about in one month, in a thread of up to eight mails, under one of the topic's words: it states values, and some
are replaced later by the same person. Besides there are threads without any value, forwarded mails whose values have
been replaced since, and newsletters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from wanderlust.errors import UsageError
from wanderlust_inbox.language import (
    ATTRIBUTES,
    MONTHS,
    Attribute,
    Draws,
    Part,
    circles,
    phrases,
    word_list,
    word_pairs,
    wording,
)
from wanderlust_inbox.mail import InboxMail

YEAR = 2026
MAILS_PER_PERSON, MAX_PEOPLE = 60, 400
OCCASION_SHARE = 0.55
"""Share of mails that belong to occasions."""
SHARED_PEOPLE = 0.25
"""Share of people in two circles."""
MAX_DEPTH = 8
"""Mails of a thread at most."""
MAX_QUOTE_CHARS = 1200
"""Characters of quoted history at most."""
ORDINALS = ("first", "second", "third")
MIN_MAILS, MAX_MAILS = 200, 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Correspondent:
    """Somebody who writes to the owner; no two of an inbox have the same last name."""

    first: str
    last: str
    circles: tuple[str, ...]
    address: str

    @property
    def name(self) -> str:
        """The full name."""
        return f"{self.first} {self.last}"

    @property
    def topics(self) -> tuple[int, ...]:
        """Numbers of the topics that the person writes about."""
        return tuple(topic for circle in self.circles for topic in circles()[circle])


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedValue:
    """A value that a mail states: a line of the ledger."""

    person: str
    """Last name of who states it."""
    topic: int
    month: int
    word: str
    """The word that the mail has for the topic."""
    attribute: Attribute
    value: str
    mail: str
    date: str
    occasion: int
    part: int = 0
    """Number of an instalment, from 1; 0 for a whole amount."""
    moved: bool = False
    """Whether it replaces an earlier value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxPlan:
    """What an inbox is generated from; equal plans, equal inboxes."""

    seed: int = 0
    mails: int = 5000
    people: Part = "train"
    """Whether names of people and places are those of training or those held out."""
    wordings: Part = "train"
    """Whether sentences of mails and questions are those of training or those held out."""

    def __post_init__(self) -> None:
        if not MIN_MAILS <= self.mails <= MAX_MAILS:
            raise UsageError(f"an inbox has from {MIN_MAILS} to {MAX_MAILS} mails, not {self.mails}")

    @property
    def name(self) -> str:
        """A name that tells the plan."""
        return f"{self.people}-{self.wordings}-{self.mails}-{self.seed}"


@dataclass(slots=True, kw_only=True)
class Corpus:
    """A generated inbox."""

    owner: Correspondent
    people: tuple[Correspondent, ...]
    mails: list[InboxMail] = field(default_factory=list)
    ledger: list[StatedValue] = field(default_factory=list)
    firms: dict[str, str] = field(default_factory=dict)
    """Display names of firms by address."""

    @property
    def names(self) -> dict[str, str]:
        """Display names by address."""
        return {one.address: one.name for one in (self.owner, *self.people)} | self.firms


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What is to be stated."""

    attribute: Attribute
    value: str
    part: int = 0
    moved: bool = False
    """Whether it replaces another value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """A person, a topic and a month, with the facts of each mail that states some."""

    person: Correspondent
    topic: int
    month: int
    stages: tuple[tuple[Fact, ...], ...]
    decline: Attribute | None = None
    """Attribute of which a later mail names a value that is not taken."""


def generate(plan: InboxPlan) -> Corpus:
    """The inbox of a plan."""
    rng = Random(f"inbox/{plan.people}/{plan.wordings}/{plan.seed}")
    draws = Draws(rng, plan.people)
    owner, *people = _people(rng, draws, plan)
    corpus = Corpus(owner=owner, people=tuple(people))
    writer = _Writer(corpus, draws, plan.wordings)
    size = int(plan.mails * OCCASION_SHARE)
    for occasion in _occasions(people, draws):
        if len(corpus.mails) >= size:
            break
        writer.write_occasion(occasion)
    while len(corpus.mails) < plan.mails:
        kind = draws.random()
        if kind < 0.25:
            writer.write_newsletter()
        elif kind < 0.35:
            writer.write_forward()
        else:
            writer.write_chatter(draws.one(people))
    del corpus.mails[plan.mails :]
    return corpus


def _people(rng: Random, draws: Draws, plan: InboxPlan) -> Iterator[Correspondent]:
    """The owner, and everybody else."""
    count = max(12, min(plan.mails // MAILS_PER_PERSON, MAX_PEOPLE))
    names, groups = word_pairs(f"{plan.people}.surnames", "endings", ""), list(circles())
    for last in rng.sample(names, count + 1):
        first, circle = draws.one(draws.firsts), draws.one(groups)
        shared = (draws.one([one for one in groups if one != circle]),) if draws.random() < SHARED_PEOPLE else ()
        host = draws.one(("post", "mail", "letter"))
        address = f"{first}.{last}@{host}.example".lower()
        yield Correspondent(first=first, last=last, circles=(circle, *shared), address=address)


def _occasions(people: Sequence[Correspondent], draws: Draws) -> Iterator[Occasion]:
    """Endless occasions; those of two hops come in pairs."""
    while True:
        person = draws.one(people)
        topic, month, kind = draws.one(person.topics), 1 + draws.below(12), draws.random()
        if kind < 0.12:
            yield from _referral(person, topic, month, people=people, draws=draws)
        elif kind < 0.22:
            yield Occasion(person=person, topic=topic, month=month, stages=_instalments(draws))
        else:
            count = 1 + draws.below(3)
            chosen = sorted(ATTRIBUTES, key=lambda _: draws.random())[:count]
            yield _occasion(person, topic, month, attributes=chosen, people=people, draws=draws)


def _occasion(
    person: Correspondent,
    topic: int,
    month: int,
    *,
    attributes: Sequence[Attribute],
    people: Sequence[Correspondent],
    draws: Draws,
) -> Occasion:
    """An occasion that states these attributes in one or two mails, and may replace one later."""

    def fact(attribute: Attribute, *, moved: bool = False) -> Fact:
        value = draws.other(people, person).name if attribute == "who" else draws.value(attribute)
        return Fact(attribute=attribute, value=value, moved=moved)

    facts = [fact(one) for one in attributes]
    split = len(facts) > 1 and draws.random() < 0.4
    stages = [tuple(facts[:1]), tuple(facts[1:])] if split else [tuple(facts)]
    moved = None
    if draws.random() < 0.45:
        moved = draws.one(attributes)
        stages.append((fact(moved, moved=True),))
    decline = draws.one(attributes) if draws.random() < 0.3 else None
    return Occasion(person=person, topic=topic, month=month, stages=tuple(stages), decline=decline)


def _instalments(draws: Draws) -> tuple[tuple[Fact, ...], ...]:
    """Two instalments of round hundreds, in two mails; the second one may be corrected."""
    amounts = [f"{100 * (1 + draws.below(9))} EUR" for _ in range(3)]
    parts = [(Fact(attribute="amount", value=value, part=n),) for n, value in enumerate(amounts[:2], 1)]
    if draws.random() < 0.3:
        parts.append((Fact(attribute="amount", value=amounts[2], part=2, moved=True),))
    return tuple(parts)


def _referral(
    person: Correspondent, topic: int, month: int, *, people: Sequence[Correspondent], draws: Draws
) -> Iterator[Occasion]:
    """Somebody names another person for a topic, and that person states a value of it."""
    other = draws.other(people, person)
    who = Fact(attribute="who", value=other.name)
    yield Occasion(person=person, topic=topic, month=month, stages=((who,),))
    attribute = draws.one(ATTRIBUTES[:3])
    yield _occasion(other, topic, month, attributes=[attribute], people=people, draws=draws)


@dataclass(slots=True)
class _Writer:
    """Appends threads to a corpus."""

    corpus: Corpus
    draws: Draws
    wordings: Part
    forwardable: list[InboxMail] = field(default_factory=list)
    """Mails that state nothing, or nothing that still holds."""
    threads: int = 0
    occasions: int = 0

    def write_occasion(self, occasion: Occasion) -> None:
        """The threads of an occasion."""
        self.occasions += 1
        draws, person = self.draws, occasion.person
        word = draws.word(occasion.topic)
        thread = self.open_thread(self.subject(word), month=occasion.month, other=person)
        if draws.random() < 0.3:
            thread.write(self.corpus.owner, [draws.filler("query", w=word)])
        last = len(occasion.stages) - 1
        for number, facts in enumerate(occasion.stages):
            if facts[0].moved and draws.random() < 0.5:
                thread = self.open_thread(self.subject(word), after=thread, other=person)
            if thread.depth and draws.random() < 0.5:
                thread.write(self.corpus.owner, [draws.filler("reply")])
            hidden = word in thread.subject.lower() and draws.random() < 0.4
            mail = thread.write(person, [self.stated(one, word, hidden=hidden) for one in facts], about=word)
            self.corpus.ledger += [
                StatedValue(
                    person=person.last,
                    topic=occasion.topic,
                    month=occasion.month,
                    word=word,
                    attribute=one.attribute,
                    value=one.value,
                    mail=mail.id,
                    date=mail.date,
                    occasion=self.occasions,
                    part=one.part,
                    moved=one.moved,
                )
                for one in facts
            ]
            replaced = [one.attribute for one in occasion.stages[last] if one.moved]
            if number < last and all(one.attribute in replaced and not one.part for one in facts):
                self.forwardable.append(mail)
        if occasion.decline is not None:
            value = draws.value(occasion.decline) if occasion.decline != "who" else draws.one(self.corpus.people).name
            sentence = draws.one(phrases(f"train.{occasion.decline}.declined"))
            thread.write(person, [draws.fill(sentence, w=word, v=value)])
        while thread.depth < MAX_DEPTH and draws.random() < 0.35:
            thread.write(draws.one((self.corpus.owner, person)), [draws.filler("reply")])

    def stated(self, fact: Fact, word: str, *, hidden: bool) -> str:
        """A fact as a sentence; `hidden` leaves the topic's word to the subject."""
        key: str = "instalment" if fact.part else fact.attribute
        if fact.moved:
            key = f"{key}.moved"
        elif hidden and not fact.part:
            key = f"{key}.it"
        ordinal = ORDINALS[fact.part - 1] if fact.part else ""
        return self.draws.fill(self.draws.one(wording(key, self.wordings)), w=word, v=fact.value, n=ordinal)

    def subject(self, word: str) -> str:
        """A subject, most of the time with the topic's word."""
        if self.draws.random() < 0.2:
            return self.draws.filler("subject.plain")
        return self.draws.filler("subject", w=word, W=word.capitalize())

    def write_chatter(self, person: Correspondent) -> None:
        """A thread that states nothing; it may name topics."""
        draws = self.draws
        word = draws.word(draws.one(person.topics))
        subject = self.subject(word) if draws.random() < 0.3 else draws.filler("subject.plain")
        thread = self.open_thread(subject, month=1 + draws.below(12), other=person)
        for _ in range(draws.one((1, 2, 2, 3, 4, 6, MAX_DEPTH))):
            sender = person if thread.depth % 2 == 0 else self.corpus.owner
            mail = thread.write(sender, [draws.filler() for _ in range(1 + draws.below(3))])
            self.forwardable.append(mail)

    def write_forward(self) -> None:
        """Somebody sends on a mail that states nothing, or nothing that still holds."""
        if not self.forwardable:
            return
        draws, old = self.draws, self.draws.one(self.forwardable)
        by = draws.one([one for one in self.corpus.people if one.address != old.sender])
        name = self.corpus.owner.name if old.sender == self.corpus.owner.address else self._name_of(old.sender)
        thread = self.open_thread(f"Fwd: {old.subject}", month=int(old.date[5:7]), other=by)
        thread.moment = max(thread.moment, datetime.fromisoformat(old.date))
        header = f"---------- Forwarded message ----------\nFrom: {name}\nSubject: {old.subject}\n\n"
        thread.write(by, [draws.filler()], appendix=header + old.new_text)

    def write_newsletter(self) -> None:
        """A long mail of a firm."""
        draws = self.draws
        firm = f"{draws.one(word_list('train.firms'))} {draws.one(word_list('shop_endings'))}"
        month = 1 + draws.below(12)
        subject = draws.filler("news.subject", firm=firm, m=MONTHS[month - 1])
        address = f"news@{firm.lower().replace(' ', '-')}.example"
        sender = Correspondent(first=firm, last="", circles=(), address=address)
        self.corpus.firms[address] = firm
        thread = self.open_thread(subject, month=month, other=sender)
        sentences = [draws.filler("news") for _ in range(8 + draws.below(82))]
        thread.write(sender, sentences, attachments=("offers.pdf",) if draws.random() < 0.3 else ())

    def open_thread(
        self, subject: str, *, other: Correspondent, month: int = 0, after: _Thread | None = None
    ) -> _Thread:
        """A thread that begins in a month, or after another thread."""
        self.threads += 1
        draws = self.draws
        if after is not None:
            moment = after.moment + timedelta(minutes=30 + draws.below(1500))
        else:
            moment = datetime(YEAR, month, 1 + draws.below(14), 7 + draws.below(14), draws.below(60))
        return _Thread(self, f"t{self.threads}", subject, other=other, moment=moment)

    def _name_of(self, address: str) -> str:
        return next((one.name for one in self.corpus.people if one.address == address), address)


@dataclass(slots=True)
class _Thread:
    """A conversation that is being written."""

    writer: _Writer
    id: str
    subject: str
    other: Correspondent
    moment: datetime
    depth: int = 0
    last: InboxMail | None = None

    def write(
        self,
        sender: Correspondent,
        sentences: Sequence[str],
        *,
        about: str = "",
        appendix: str = "",
        attachments: tuple[str, ...] = (),
    ) -> InboxMail:
        """Append a mail with these sentences among others; `about` is a topic's word that an attachment may have."""
        draws, corpus = self.writer.draws, self.writer.corpus
        owner = corpus.owner
        number = len(corpus.mails)
        text = self.text(sender, sentences, long=draws.random() < 0.06)
        if self.last is not None:
            text = f"{text}\n\n{_quoted(self.last, self._writer_of(self.last).name)}"
        if about and draws.random() < 0.15:
            attachments = (f"{about}_{draws.one(('plan', 'list', 'copy', 'form'))}_{1 + draws.below(9)}.pdf",)
        to = self.other if sender is owner else owner
        cc = (draws.one(corpus.people).address,) if draws.random() < 0.12 and self.other.last else ()
        mail = InboxMail(
            id=f"{(number + 1) * 2654435761 % 2**32:08x}",
            thread=self.id,
            date=f"{self.moment:%Y-%m-%dT%H:%M:%S}",
            sender=sender.address,
            recipients=(to.address,),
            cc=cc,
            subject=self.subject if not self.depth else f"Re: {self.subject}",
            body=f"{text}\n\n{appendix}" if appendix else text,
            attachments=attachments,
            reply_to=self.last.id if self.last is not None else None,
        )
        corpus.mails.append(mail)
        self.last = mail
        self.depth += 1
        self.moment += timedelta(minutes=20 + draws.below(2000))
        return mail

    def text(self, sender: Correspondent, sentences: Sequence[str], *, long: bool) -> str:
        """The new text of a mail, its sentences in their order."""
        draws = self.writer.draws
        fillers = 12 + draws.below(30) if long else draws.one((0, 0, 1, 1, 2, 3))
        if not sender.last:
            return "\n".join(sentences)
        said = list(sentences)
        for _ in range(fillers):
            said.insert(draws.below(len(said) + 1), draws.filler())
        to = self.other.first if sender is self.writer.corpus.owner else self.writer.corpus.owner.first
        top = [draws.filler("greeting", o=to)] if draws.random() < 0.7 else []
        end = [draws.filler("closing", f=sender.first)] if draws.random() < 0.8 else []
        return "\n".join([*top, " ".join(said), *end])

    def _writer_of(self, mail: InboxMail) -> Correspondent:
        return self.other if mail.sender == self.other.address else self.writer.corpus.owner


def _quoted(mail: InboxMail, name: str) -> str:
    """The text of the mail that is answered, with what it quotes itself, as far as there is room."""
    lines = mail.body[:MAX_QUOTE_CHARS].splitlines()
    return "\n".join([f"On {mail.date[:10]} {name} wrote:", *(f"> {line}" for line in lines)])
