"""Families that are made to be wrapped: by noise (tools fail and go by other names, events distract), and in teams."""

from __future__ import annotations

from wanderlust_life.families import builder
from wanderlust_life.families.builder import FamilyBuilder
from wanderlust_life.families.family import family
from wanderlust_life.universes.text_templates import format_day, format_time_of_day, join_names
from wanderlust_worlds.verification.facts import Count, Pairs, Says, wordings


@family(
    "noise",
    asks="Pass on what several people have mailed about something.",
    hard="Calls fail and must be tried again, tools and arguments go by other names, "
    "things happen in every app that mean nothing.",
)
def pass_on(s: FamilyBuilder) -> None:
    """A message for another person."""
    keeper, *senders = s.some("friend", "neighbour", "colleague", count=2 + s.steps)
    dish = {one.name: s.word("foods") for one in senders}
    for one in senders:
        builder.plant_mail(
            s, one, subject="Saturday", text="On Saturday I bring " + dish[one.name] + ".", at=s.ago(0.2, 3)
        )
    request = s.asks(
        "{people} [have mailed|mailed] me what they bring on Saturday (the subject is 'Saturday'). Mail {keeper} one "
        "mail that says who brings what.",
        people=join_names(one.name for one in senders),
        keeper=keeper.name,
    )
    lines = "\n".join(f"{one.name}: {dish[one.name]}" for one in senders)
    sent = s.agent(s.mail, after=request).send_email(recipients=[keeper.email], subject="Saturday", content=lines)
    s.expects(sent, "subject")
    firsts = [one.first for one in senders]
    ways = {one.name: (one.name, one.first) if firsts.count(one.first) == 1 else (one.name,) for one in senders}
    s.expects(
        sent, "content", Pairs(pairs=tuple((ways[name], (brought,)) for name, brought in dish.items())), plain=True
    )
    s.reports(sent, f"{keeper.first} knows who brings what.")


@family(
    "noise",
    asks="Save the cheapest flats of a town to the favourites.",
    hard="Calls fail, tools and arguments go by other names; a failed call is no answer.",
)
def keep_flats(s: FamilyBuilder) -> None:
    """Flats for later."""
    homes = [one for one in s.flats.apartments.values() if not one.saved]
    bedrooms = s.rng.choice(sorted({one.bedrooms for one in homes}))
    flats = sorted((one for one in homes if one.bedrooms == bedrooms), key=lambda one: (one.price, one.apartment_id))
    count = min(s.steps + 1, len(flats))
    while count < len(flats) and flats[count].price == flats[count - 1].price:
        count += 1
    limit = flats[count - 1].price
    request = s.asks(
        "[Save|Put] every flat with exactly {n} that costs at most {price} a month to my favourites. [How many "
        "are they?|Tell me how many they are.]",
        n=f"{bedrooms} bedroom{'s' if bedrooms > 1 else ''}",
        price=f"{limit:g} EUR",
    )
    saved = [s.agent(s.flats, after=request).save_apartment(one.apartment_id) for one in flats[:count]]
    s.reports(
        saved, f"Saved {count}.", Count(value=count, unlike=("bedroom", "bedrooms")), never=("removed", "deleted")
    )


@family(
    "agent2agent",
    asks="Find out from mails and calendar what is needed, and tell people in chats.",
    hard="Every app can be another agent's, which knows nothing of what the others know.",
)
def go_between(s: FamilyBuilder) -> None:
    """One person's date for others."""
    host, *guests = s.some("friend", count=1 + min(s.steps + 1, 3))
    at, place, dish = s.free(2, 9, hours=(17, 19)), s.place(), s.word("foods")
    for date in [one for one in s.calendar.events.values() if host.name in one.attendees]:
        del s.calendar.events[date.event_id]
    builder.plant_event(s, f"Party of {host.first}", at, place=place, who=[host])
    builder.plant_mail(
        s, host, subject="My party", text=f"I am so glad that you come! Please bring {dish}.", at=s.ago(0.3, 4)
    )
    request = s.asks(
        "Tell {people} in Chats when and where the party of {host} is (it is in my calendar), and what {host} asks me "
        "to bring (that is in a mail). [Write to each of them by themselves.|Each of them gets a message of "
        "their own.]",
        people=join_names(one.name for one in guests),
        host=host.name,
    )
    text = f"The party of {host.name} is on {format_day(at)} at {format_time_of_day(at)}, at {place}."
    text += f" I am to bring {dish}."
    done = []
    for one in guests:
        sent = s.agent(s.chats, after=request).send_message(user_id=builder.user_id_of(s.chats, one), content=text)
        facts = s.on_day(at), s.at_time(at), s.at_place(place), Says(ways=(dish,))
        done.append(
            s.expects(sent, "content", *facts, never=[*s.names_but(host, *guests), *YOURS_WORDINGS], plain=True)
        )
    s.reports(done, "They all know.")


@family(
    "agent2agent",
    asks="Thank everybody who wrote something, each by the way in which they wrote it.",
    hard="Some wrote mails and some wrote messages: two apps' agents must find out, and two must answer.",
)
def thank_them(s: FamilyBuilder) -> None:
    """Answers on two ways."""
    event, people = s.word("hobbies"), s.some("friend", "neighbour", count=2 + min(s.steps, 3))
    request = s.asks(
        "Some people have wished me luck for the {event} contest, by mail or in Messages (look for '{event} contest'). "
        "Thank each of them on the way they wrote: answer the mail, or send a message.",
        event=event,
    )
    done = []
    for n, one in enumerate(people):
        wish, thanks = f"Good luck for the {event} contest!", f"Thank you, {one.first}!"
        if n % 2:
            builder.plant_message(s, s.texts, one, text=wish, at=s.ago(0.1, 2))
            sent = s.agent(s.texts, after=request).send_message(user_id=one.phone, content=thanks)
        else:
            mail = builder.plant_mail(s, one, subject="Good luck", text=wish, at=s.ago(0.1, 2))
            sent = s.agent(s.mail, after=request).reply_to_email(email_id=mail, content=thanks)
        others = tuple(other.first for other in people if other.first != one.first)
        done.append(s.expects(sent, "content", Says(ways=THANKS_WORDINGS), never=others, plain=True))
    s.reports(done, "All are thanked.")


YOURS_WORDINGS = wordings("you should bring", "you are to bring", "you will bring", "you bring", "you have to bring")
THANKS_WORDINGS = wordings("thank", "thanks", "thanked", "thankful", "appreciate", "appreciated", "grateful", "cheers")
