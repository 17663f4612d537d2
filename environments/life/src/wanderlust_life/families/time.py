"""Time: what must be done then, and neither before nor much later."""

from __future__ import annotations

from wanderlust_life.families import builder
from wanderlust_life.families.builder import EventReference, FamilyBuilder
from wanderlust_life.families.family import family
from wanderlust_life.universes.people import Person
from wanderlust_life.universes.text_templates import format_time_of_day
from wanderlust_worlds.verification.facts import Count, Quote, Says, wordings


@family(
    "time",
    asks="Message somebody; without an answer within some minutes, message somebody else.",
    hard="Waiting neither too short nor too long; sometimes an answer comes, and others write who do not count.",
)
def no_answer(s: FamilyBuilder) -> None:
    """A question that is not answered in time."""
    who, other, stranger = s.some("friend", count=3)
    thing, minutes = s.word("things"), s.rng.randint(3, 6)
    request = s.asks(
        "Ask {name} in Chats whether I can have the {thing} back today. If there is no answer within {n} minutes, ask "
        "{other} the same [right away|at once]. Tell me [when you have done that, or what {first} has answered|what "
        "{first} has answered, or that you have asked {other}].",
        name=who.name,
        first=who.first,
        other=other.name,
        thing=thing,
        n=str(minutes),
    )
    first = _ask_for(s, request, who, thing=thing)
    talk = builder.plant_message(s, s.chats, stranger, text="Hello!", at=s.ago(0.1, 1))
    for n in range(s.decoys):
        s.env(s.chats, after=request, delay=30 + 35 * n).create_and_add_message(
            conversation_id=talk,
            sender_id=builder.user_id_of(s.chats, stranger),
            content=("Are you there?", "I am bored.")[n % 2],
        )
    if s.rng.random() < 0.4:
        came = s.env(s.chats, after=first, delay=60 * minutes - s.rng.randrange(40, 100)).create_and_add_message(
            conversation_id=first, sender_id=builder.user_id_of(s.chats, who), content="Yes, come by at six."
        )
        s.reports(
            came,
            f"{who.first} says yes: come by at six.",
            Says(ways=YES_WORDINGS),
            never=[f"asked {other.first}", f"ask {other.first}", *SILENCE_WORDINGS],
            plain=False,
        )
        return
    second = _ask_for(s, first, other, thing=thing, delay=60.0 * minutes)
    s.reports(
        second,
        f"{who.first} has not answered, so I asked {other.name}.",
        s.is_who(other),
        Says(ways=ASKED_WORDINGS, cancels=False),
        plain=False,
        never=[
            f"{who.first} {said}" for said in ("says yes", "said yes", "answered yes", "has answered yes", "agreed")
        ],
    )


YES_WORDINGS = wordings(
    "yes", "six", "6", "6 pm", "18:00", "come by", "can have", "can get", "may have", "agrees", "agreed", "fine", "sure"
)
SILENCE_WORDINGS = wordings("not answered", "no answer", "not replied", "no reply", "hasn't answered", "didn't answer")
RETURN_WORDINGS = wordings(
    "back", "return", "returned", "returning", "give", "bring", "hand over", "pick up", "collect"
)
TODAY_WORDINGS = wordings("today", "this morning", "this afternoon", "this evening", "tonight")
LATER_DAY_WORDINGS = wordings("tomorrow", "next week", "another day", "some day")


def _ask_for(s: FamilyBuilder, after: EventReference, who: Person, *, thing: str, delay: float = 0.0) -> str:
    sent = s.agent(s.chats, after=after, delay=delay).send_message(
        user_id=builder.user_id_of(s.chats, who),
        content=f"Hi {who.first}, can {s.user.first} have the {thing} back today?",
    )
    return s.expects(
        sent,
        "content",
        Says(ways=(thing,)),
        Says(ways=RETURN_WORDINGS),
        Says(ways=TODAY_WORDINGS, rivals=LATER_DAY_WORDINGS),
        mode="asks",
    )


@family(
    "time",
    asks="Send something at a moment, not before.",
    hard="More people at more moments; mails arrive meanwhile that have nothing to do with it.",
)
def at_the_minute(s: FamilyBuilder) -> None:
    """Messages at their minute."""
    people = s.some("friend", "neighbour", "colleague", count=min(s.steps, 3))
    minute, plan, sent = 0, [], []
    for one in people:
        minute += s.rng.randint(4, 8)
        plan.append((one, minute, f"It is {format_time_of_day(s.now + 60 * minute)}, time for {s.word('hobbies')}!"))
    wishes = "; ".join(f"at {format_time_of_day(s.now + 60 * m)} to {one.name}: '{text}'" for one, m, text in plan)
    request = s.asks(
        "Send these messages (in Messages) [exactly then|each at its minute, not before]: {wishes}. Then report.",
        wishes=wishes,
    )
    for one, m, text in plan:
        message = s.story.agent(s.texts, after=request, at=s.now + 60 * m).send_message(user_id=one.phone, content=text)
        sent.append(s.expects(message, "content", Quote(text=text)))
    for n in range(s.decoys):
        s.env(s.mail, after=request, delay=70 + 95 * n).send_email_to_user_only(
            sender=s.one("shop").email if n == 0 else "news@letters.example",
            subject="News",
            content="Only until Sunday.",
        )
    s.reports(sent, "All sent.")
    s.duration = 60 * minute + 600


@family(
    "time",
    asks="Watch for a mail and forward it at once; if it has not come by then, ask for it.",
    hard="Mails of the same subject from others arrive first; sometimes the right one never comes.",
)
def watch_for(s: FamilyBuilder) -> None:
    """A mail that is waited for."""
    who, keeper, *others = s.some("colleague", count=2 + min(s.decoys, 3))
    topic, minutes, comes = s.word("topics"), s.rng.randint(5, 8), s.rng.random() < 0.6
    request = s.asks(
        "{name} is going to mail me the numbers on the {topic}. As soon as the mail is there, forward it to {keeper}. "
        "If it has not come within {n} minutes from now, mail {name} and ask for it. Tell me [which it was|what you "
        "did].",
        name=who.name,
        keeper=keeper.name,
        topic=topic,
        n=str(minutes),
    )
    for n, other in enumerate(others):
        s.env(s.mail, after=request, delay=40 + 50 * n).send_email_to_user_only(
            sender=other.email,
            subject=f"Numbers on the {topic}",
            content=f"Do you have the numbers on the {topic} yet?",
        )
    if not comes:
        sent = s.agent(s.mail, after=request, delay=60.0 * minutes).send_email(
            recipients=[who.email], subject=topic.capitalize(), content=f"Could you send me the numbers on the {topic}?"
        )
        s.expects(sent, "subject")
        s.expects(
            sent, "content", Says(ways=(topic,)), Says(ways=("numbers", "figures", "data", "number")), mode="asks"
        )
        s.reports(
            sent,
            f"Nothing came, so I have asked {who.name}.",
            Says(ways=ASKED_WORDINGS),
            never=FORWARDED_WORDINGS,
            plain=False,
        )
        return
    mail = s.env(s.mail, after=request, delay=60 * minutes - s.rng.randrange(60, 200)).send_email_to_user_only(
        sender=who.email, subject=f"Numbers on the {topic}", content=f"Here they are: {s.rng.randrange(100, 999)}."
    )
    sent = s.agent(s.mail, after=mail).forward_email(email_id=mail, recipients=[keeper.email])
    s.reports(
        sent,
        f"The mail came, and {keeper.name} has it.",
        Says(ways=FORWARDED_WORDINGS),
        never=[
            *("I asked", "I have asked", "asked for it", f"asked {who.first}", "reminded"),
            *(*NOT_COME_WORDINGS, *s.names_but(who, keeper)),
        ],
    )


ASKED_WORDINGS = wordings(
    "asked", "ask", "reminded", "requested", "wrote", "written", "messaged", "contacted", "turned to", "sent * request",
    "request", "asking", "mailed",
)  # fmt: skip
FORWARDED_WORDINGS = wordings(
    "forwarded", "forward", "has it", "have it", "has them", "have them", "passed * on", "passed on", "sent * on",
    "sent it on", "sent on", "sent it to", "went to", "got it", "received it", "has the mail",
    "have the mail", "now has",
)  # fmt: skip
NOT_COME_WORDINGS = wordings("no mail came", "nothing came", "not come", "did not arrive", "never came", "hasn't come")


@family(
    "time",
    asks="Say something to a group again and again, at equal times, some times over.",
    hard="Neither too often nor too seldom; people in the group write in between.",
)
def countdown(s: FamilyBuilder) -> None:
    """Every so many minutes."""
    group = max(s.chats.conversations.values(), key=lambda talk: (len(talk.participant_ids), talk.conversation_id))
    every, times = s.rng.randint(2, 4), s.steps + 1
    request = s.asks(
        "Write in the group chat '{title}' now: '{n} minutes left'. Then do so every {every} minutes with the minutes "
        "that are left, until it is 0. [Tell me when it is over|Then tell me].",
        title=str(group.title),
        n=str(every * times),
        every=str(every),
    )
    after = request
    for n in range(times + 1):
        left = every * (times - n)
        after = s.agent(s.chats, after=after, delay=60.0 * every if n else 0.0).send_message_to_group_conversation(
            conversation_id=group.conversation_id, content=f"{left} minutes left"
        )
        s.expects(after, "content", Count(value=left), Says(ways=MINUTES_WORDINGS), Says(ways=LEFT_WORDINGS))
    for n in range(min(s.decoys, every * times - 1)):
        s.env(s.chats, after=request, delay=45 + 60 * n).create_and_add_message(
            conversation_id=group.conversation_id, sender_id=group.participant_ids[1 + n % 2], content="Until what?"
        )
    s.reports(after, "It is over.")
    s.duration = 60 * every * times + 600


MINUTES_WORDINGS = wordings("minutes", "minute", "mins", "min")
LEFT_WORDINGS = wordings("left", "to go", "remaining", "remain")
