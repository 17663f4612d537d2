"""What is there when a scenario starts, besides the universe: mails, messages, dates, orders, rides, files."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from wanderlust.worlds.apps.cabs import Ride
from wanderlust.worlds.apps.calendar import LONG, CalendarEvent
from wanderlust.worlds.apps.conversations import Conversation, Message
from wanderlust.worlds.apps.disk import FOLDER, Entry
from wanderlust.worlds.apps.mail import Email
from wanderlust.worlds.apps.messages import Messages
from wanderlust.worlds.apps.shopping import CartItem, Order, Product
from wanderlust.worlds.families.stage import Stage
from wanderlust.worlds.times import told_time
from wanderlust.worlds.universes.ledger import HOUR, ME
from wanderlust.worlds.universes.people import Person
from wanderlust.worlds.universes.wording import form


def mail(stage: Stage, sender: Person, *, subject: str, text: str, at: float) -> str:
    """A mail to the user; gives its id."""
    name = stage.new_id("e")
    known = {"to": stage.user.first, "me": sender.first if sender.last else sender.name}
    stage.mail.inbox[name] = Email(
        email_id=name,
        sender=sender.email,
        recipients=(stage.user.email,),
        subject=subject,
        content=form(stage.rng, f"<hello>~~{text}~~<bye>", known),
        timestamp=at,
        is_read=stage.rng.random() < 0.5,
    )
    return name


def message(stage: Stage, app: Messages, who: Person, *, text: str, at: float) -> str:
    """A message from somebody in the conversation with the user alone; gives the conversation's id."""
    mine, theirs = app.current_user_id, user_id(app, who)
    said = Message(sender_id=theirs, message_id=stage.new_id("m"), timestamp=at, content=text)
    talk = conversation(app, who)
    if talk is None:
        talk = Conversation(conversation_id=stage.new_id("c"), participant_ids=(mine, theirs), title=who.name)
    all_said = tuple(sorted((*talk.messages, said), key=lambda one: one.timestamp))
    talk = replace(talk, messages=all_said, last_updated=all_said[-1].timestamp)
    app.conversations[talk.conversation_id] = talk
    return talk.conversation_id


def conversation(app: Messages, who: Person) -> Conversation | None:
    """The conversation of the user with one person."""
    people = {app.current_user_id, user_id(app, who)}
    return next((talk for talk in app.conversations.values() if set(talk.participant_ids) == people), None)


def user_id(app: Messages, who: Person) -> str:
    """What somebody is called in an app for messages."""
    if app.mode == "PHONE_NUMBER":
        return who.phone
    return ME if who.tie == "user" else f"u{who.id}"


def date(
    stage: Stage, title: str, at: float, *, place: str, who: Sequence[Person] = (), tag: str = "private"
) -> CalendarEvent:
    """An entry of an hour in the calendar."""
    made = CalendarEvent(
        event_id=stage.new_id("v"),
        start_datetime=at,
        end_datetime=at + HOUR,
        title=title,
        tag=tag,
        location=place,
        attendees=tuple(one.name for one in who),
        start_strftime=told_time(at, LONG),
        end_strftime=told_time(at + HOUR, LONG),
    )
    stage.calendar.events[made.event_id] = made
    return made


def order(stage: Stage, product: Product, item: str, *, status: str, days: float) -> Order:
    """An order of one thing, some days ago."""
    one = product.variants[item]
    made = Order(
        order_id=f"W-{stage.new_id('')[:7]}",
        order_status=status,
        order_date=told_time(stage.ago(days, days + 0.2), "%Y-%m-%dT%H:%M:%S+00:00"),
        order_total=one.price,
        order_items={item: CartItem(item_id=item, quantity=1, price=one.price, options=one.options)},
    )
    stage.shop.orders[made.order_id] = made
    return made


def ride(stage: Stage, place: str, *, price: float, days: float, status: str = "COMPLETED") -> Ride:
    """A ride of the past, from home to a place."""
    made = Ride(
        ride_id=stage.new_id("r"),
        status=status,
        service_type="Default",
        start_location=stage.user.address,
        end_location=place,
        price=price,
        duration=round(price * 1.2, 1),
        time_stamp=stage.ago(days, days + 0.5),
        distance_km=price,
    )
    stage.cabs.ride_history[str(len(stage.cabs.ride_history))] = made
    return made


def file(stage: Stage, path: str, text: str) -> str:
    """A file, and the folders that it is in."""
    parts = path.split("/")
    for depth in range(1, len(parts)):
        stage.files.entries.setdefault("/".join(parts[:depth]), FOLDER)
    content = text.encode()
    stage.files.entries[path] = Entry(type="file", content=content, size=len(content))
    return path


def available(stage: Stage, product: str, item: str) -> None:
    """Have a variant in stock."""
    found = stage.shop.products[product]
    stocked = replace(found.variants[item], available=True)
    stage.shop.products[product] = replace(found, variants={**found.variants, item: stocked})
