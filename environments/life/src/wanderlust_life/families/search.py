"""Search: an answer that lies in several places, among things that look like it."""

from __future__ import annotations

from wanderlust_life.families import builder
from wanderlust_life.families.builder import FamilyBuilder
from wanderlust_life.families.family import family
from wanderlust_life.universes.text_templates import format_day, format_price, format_time_of_day, shuffled
from wanderlust_worlds.apps.apartments import Apartment
from wanderlust_worlds.engine.app import format_time
from wanderlust_worlds.verification.facts import Amount, Says, wordings


@family(
    "search",
    asks="Who in the chats told the user to read a book, and in which town do they live?",
    hard="Others name the same book without recommending it; the town stands in the contacts.",
)
def who_said(s: FamilyBuilder) -> None:
    """The friend who recommended a book, and that friend's town."""
    book, (who, *others) = s.word("rare_works"), s.some("friend", count=s.decoys + 1)
    builder.plant_message(s, s.chats, who, text=f"You have to read {book}. I cried twice.", at=s.ago(2, 25))
    shrugs = (f"I have begun {book}, and I do not get on with it.", f"Somebody left {book} on the tram.")
    for other in others:
        builder.plant_message(s, s.chats, other, text=s.rng.choice(shrugs), at=s.ago(1, 25))
    request = s.asks(
        "[Somebody in my chats|One of my friends] [told me to read|said that I have to read] {book}. Who was it, and "
        "in which town do they live?",
        book=book,
    )
    towns = tuple({one.city for one in others} - {who.city, ""})
    s.reports(
        request,
        f"{who.name}, who lives in {who.city}.",
        s.is_who(who, others),
        Says(ways=(who.city,), rivals=towns),
        never=[f"to {who.name}", f"to {who.first}"],
    )


@family(
    "search",
    asks="What did all rides to one place cost together?",
    hard="Rides that were cancelled, and rides to places of nearly the same name, do not count.",
)
def spent_on_rides(s: FamilyBuilder) -> None:
    """A sum over the history of rides."""
    place, total, prices = s.place(), 0.0, []
    for _ in range(s.steps + 1):
        price = round(s.rng.uniform(4, 19), 2)
        builder.plant_ride(s, place, price=price, days=s.rng.uniform(1, 55))
        total += price
        prices.append(price)
    for n in range(s.decoys):
        price, days = round(s.rng.uniform(4, 19), 2), s.rng.uniform(1, 55)
        if n % 2:
            builder.plant_ride(s, f"{place} Garden", price=price, days=days)
        else:
            builder.plant_ride(s, place, price=price, days=days, status="CANCELLED")
    request = s.asks(
        "How much have I paid for rides to {place} [in all|altogether]? [Rides that were cancelled cost nothing.|A "
        "ride that was cancelled was free.]",
        place=place,
    )
    s.reports(
        request,
        f"{format_price(total)} in all.",
        Amount(value=round(total, 2), also=tuple(prices)),
        plain_words=CANCELLED_WORDINGS,
    )


@family(
    "search",
    asks="When and where does the user next meet whoever wrote about something?",
    hard="The writer is known by a mail alone; past meetings and later ones with the same person are in the calendar.",
)
def next_meeting_with(s: FamilyBuilder) -> None:
    """From a mail to a person to a date."""
    who, *others = s.some("friend", "neighbour", count=s.decoys + 1)
    subject = s.word("rare_works")
    builder.plant_mail(s, who, subject="My reading group", text=f"We now read {subject}. <aside>", at=s.ago(1, 20))
    for other in others:
        text = f"In our group it is {s.word('works.second').lower()} novels now. <aside>"
        builder.plant_mail(s, other, subject="Our reading group", text=text, at=s.ago(1, 20))
        builder.plant_event(s, f"Coffee with {other.first}", s.free(1, 5, hours=(12, 16)), place=s.place(), who=[other])
    for date in [one for one in s.calendar.events.values() if who.name in one.attendees]:
        del s.calendar.events[date.event_id]
    at, place = s.free(2, 7, hours=(10, 17)), s.place()
    builder.plant_event(s, f"Coffee with {who.first}", at, place=place, who=[who])
    builder.plant_event(s, f"Walk with {who.first}", s.free(9, 14, hours=(10, 17)), place=s.place(), who=[who])
    builder.plant_event(s, f"Lunch with {who.first}", s.free(-9, -2, hours=(10, 17)), place=s.place(), who=[who])
    request = s.asks(
        "[Somebody mailed me|I got a mail from somebody] whose reading group is reading {book}. When and where do I "
        "meet [them|this person] next?",
        book=subject,
    )
    text = f"On {format_day(at)} at {format_time_of_day(at)}: {place}, with {who.name}."
    s.reports(request, text, s.on_day(at), s.at_time(at), s.at_place(place), never=s.names_but(who))


@family(
    "search",
    asks="Who in a table of payments has paid least, and how much is it?",
    hard="Members pay in several rows, some rows are refunds, and the largest table has a hundred rows.",
)
def least_paid(s: FamilyBuilder) -> None:
    """Sums over a table."""
    hobby = s.word("hobbies")
    people = {one.name: one for one in s.some("friend", "neighbour", "colleague", count=3 + s.steps)}
    members = [*people]
    rows, paid = [], dict.fromkeys(members, 0)
    for n, member in enumerate(members * (1 + 2 * s.steps)):
        value = s.rng.randrange(5, 60) if n < len(members) or s.rng.random() < 0.8 else -s.rng.randrange(1, 5)
        rows.append((s.ago(1, 300), member, value))
        paid[member] += value
    least = min(paid, key=lambda name: (paid[name], name))
    paid[least] -= 1  # so that nobody else has paid as little
    rows.append((s.ago(1, 300), least, -1))
    table = "".join(f"{format_time(at, '%Y-%m-%d')},{name},{value}.00\n" for at, name, value in sorted(rows))
    builder.plant_file(s, f"Documents/Club/{hobby.replace(' ', '-')}-payments.csv", f"when,member,amount\n{table}")
    request = s.asks(
        "In my documents there is a table of what the members of the {hobby} club have paid; refunds are negative. "
        "Who has paid least [in all|altogether], and how much is that?",
        hobby=hobby,
    )
    s.reports(
        request,
        f"{least}, with {paid[least]} EUR.",
        s.is_who(people[least], [one for one in people.values() if one.name != least]),
        Amount(value=float(paid[least])),
        never=["most", "highest"],
        plain_words=("smallest",),
    )


@family(
    "search",
    asks="Which is the cheapest flat that meets several wishes, and how safe is it there?",
    hard="More wishes and more flats; crime rates stand with the city, by zip code.",
)
def cheapest_flat(s: FamilyBuilder) -> None:
    """Flats and the city."""
    homes = [*s.flats.apartments.values()]
    one = s.rng.choice([home for home in homes if home.zip_code in s.city.crime_data])
    wishes = [f"{one.bedrooms} bedroom{'s' if one.bedrooms > 1 else ''}", f"a lease of '{one.lease_term}'"]
    fitting = [home for home in homes if home.bedrooms == one.bedrooms and home.lease_term == one.lease_term]
    if s.steps > 1 and one.amenities:
        wish = shuffled(s.rng, one.amenities)[0]
        wishes.append(f"the amenity '{wish}'")
        fitting = [home for home in fitting if wish in (home.amenities or ())]
    best = min(fitting, key=lambda home: (home.price, home.apartment_id))
    if any(home.price <= best.price for home in fitting if home is not best):  # only one may be the cheapest
        fields = {name: getattr(best, name) for name in Apartment.__struct_fields__}
        best = Apartment(**{**fields, "price": best.price - 10})
        s.flats.apartments[best.apartment_id] = best
    rate = s.city.crime_data[best.zip_code].violent_crime
    request = s.asks(
        "[Which|What] is the cheapest flat on the market with {wishes}? Tell me its name, the rent, and the violent "
        "crime rate of its zip code.",
        wishes=" and ".join(wishes),
    )
    text = f"{best.name}, for {format_price(best.price)} a month. The violent crime rate there is {rate:g}."
    s.reports(
        request,
        text,
        Says(ways=(best.name,), rivals=tuple(home.name for home in fitting if home.name != best.name)),
        Amount(value=best.price, also=(rate,), apart=("crime",)),
        Amount(value=rate, near=("crime",), apart=("property",)),
        never=["dearest", "most expensive", "costliest", "second cheapest"],
    )


CANCELLED_WORDINGS = wordings("not in it", "not count", "cancelled")
