"""What fills a life's mails and chats beside what happens: dialogues, letters and their answers, round letters."""

from __future__ import annotations

from wanderlust_life.lived.chronicle import CLOSE_TIES, HISTORY_DAYS, Chronicle, Line
from wanderlust_life.universes.ledger import DAY_SECONDS, HOUR_SECONDS, daytime
from wanderlust_life.universes.people import Person

SUBJECTS = (
    "News",
    "Hello",
    "A sign of life",
    "From us",
    "Long time",
    "A rainy Sunday",
    "Odds and ends",
    "Before I forget",
)


def dialogue(life: Chronicle) -> None:
    """A few messages with one person or a circle."""
    rng, at = life.rng, _past(life)
    fate = rng.random()
    circles = [one for one in life.circles if len(one) > 2]
    if fate < 0.2 and circles:
        circle = rng.choice(circles)
        people = rng.sample(circle, 2)
        rest = [one for one in circle if one not in people]
        life.talk("Chats", [*people, *rest], "c.group", facts={}, at=at, title=f"{circle[0].first} and all")
    elif fate < 0.4:
        life.talk("Messages", [rng.choice(life.ties["colleague"])], "c.work", facts={}, at=at)
    elif fate < 0.5:
        life.talk("Messages", [rng.choice(life.ties["neighbour"])], "c.talk", facts={}, at=at)
    else:
        who = rng.choice([one for tie in CLOSE_TIES for one in life.ties.get(tie, ())])
        life.talk("Chats", [who], "c.talk", facts={}, at=at)


def letters(life: Chronicle) -> None:
    """A letter, and at times answers to and fro."""
    rng, at = life.rng, _past(life)
    writers = [one for tie in (*CLOSE_TIES, "neighbour", "colleague") for one in life.ties.get(tie, ())]
    who, subject = rng.choice(writers), rng.choice(SUBJECTS)
    sides: tuple[Person, Person] = (who, life.user)
    line: Line | None = None
    for number in range(rng.choice((1, 1, 2, 2, 3, 4))):
        if at > life.rows.start - HOUR_SECONDS:
            return
        sender, to = sides[number % 2], sides[1 - number % 2]
        text = life.letter(sender, to, news(life, at_work=who.tie == "colleague" and rng.random() < 0.7))
        line = life.post(
            Line(record="", sender=sender, text=text, at=at),
            to,
            subject=f"Re: {subject}" if number else subject,
            parent=line,
        )
        at = daytime(rng, at + rng.uniform(9, 60) * HOUR_SECONDS)
        at = max(at, line.at + HOUR_SECONDS)


def news(life: Chronicle, *, at_work: bool) -> str:
    """Some sentences, each about somebody and something else, in one paragraph or two."""
    rules = ("w.report", "w.report", "work.more") if at_work else ("l.one", "l.one", "l.two")
    parts = [life.words.text(life.rng.choice(rules), {})[0] for _ in range(life.rng.choice((3, 4, 4, 6, 7)))]
    middle = len(parts) // 2 if len(parts) > 4 else 0
    return "\n\n".join(" ".join(some) for some in (parts[:middle], parts[middle:]) if some)


def round_letter(life: Chronicle) -> None:
    """A club or a shop writes to many people."""
    rng = life.rng
    club = rng.choice(life.ties["club"])
    parts = [
        life.words.text("n.head", {})[0],
        *(life.words.text("n.results", {})[0] for _ in range(rng.randint(6, 11))),
    ]
    text = "\n\n".join([*parts, life.words.text("l.two", {})[0]])
    line = Line(record="", sender=club, text=life.letter(club, life.user, text), at=_past(life))
    life.post(line, life.user, subject=f"{club.name}: {rng.choice(('round letter', 'news', 'notices', 'bulletin'))}")


def _past(life: Chronicle) -> float:
    return daytime(life.rng, life.rows.start - life.rng.uniform(0.05, HISTORY_DAYS) * DAY_SECONDS - HOUR_SECONDS)
