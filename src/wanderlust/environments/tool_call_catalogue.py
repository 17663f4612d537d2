"""Tools that a household's assistant may have, what people say to it, and the values in what they say.

Values, and whole tools, are held out: none of them is ever met in training.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TypeAlias
from zlib import crc32

Value: TypeAlias = str | int | float | bool

HELD_OUT_MODULUS = 4
"""One value of so many is held out."""
CITIES = """Lisbon Oslo Nairobi Lima Prague Kyoto Dublin Cairo Toronto Seoul Athens Quito Vienna Hanoi Bogota Tunis Riga
Dakar Delhi Havana Berlin Madrid Accra Turin Geneva Osaka Porto Denver Boston Austin Leeds Malmo Basel Split Cork
Tampere Bergen Krakow Seville Lyon"""
FIRST_NAMES = """Anna Omar Lucy Pedro Mei Ravi Julia Tom Elena Kofi Sara Ivan Nora Diego Aisha Ben Carla Hugo Priya Leo Maya
Felix Zoe Amir Ruth Oscar Tara Noel Greta Sam Hannah Yusuf Clara Viktor Ingrid Paulo Bella Martin Dana Colin"""
HOUSEHOLD_GOODS = """apples bread milk rice candles soap lemons pasta cheese onions batteries tea honey carrots paper eggs beans
butter flour salt pears nails glue socks towels mugs ginger basil olives yogurt"""
LANGUAGES = """French German Spanish Italian Polish Dutch Swedish Greek Turkish Hindi Korean Japanese Arabic Czech
Danish Finnish Hebrew Latin Welsh Thai"""
CURRENCIES = "USD EUR GBP JPY CHF SEK NOK DKK PLN CZK INR BRL MXN CAD AUD NZD KRW ZAR"
ROOMS = "kitchen bedroom hallway garage bathroom attic cellar office nursery studio lounge pantry porch library"
CHORES = "water clean check repair paint move wash order fetch sort pack return"
ADJECTIVES = "blue silent golden early broken distant little velvet winter hidden crystal paper"
NOUNS = "river garden mountain letter window summer shadow harbour forest lantern circle morning"
SUBJECTS = "budget travel project school rent holiday picnic concert garden insurance"
SUBJECT_EVENTS = "meeting plans review party report notes lunch questions"
HOSTS = "mail.com post.org home.net work.io"
ENDINGS = "txt pdf csv png doc"
SENTENCES = """good|morning good|night good|luck where|is|the|station how|much|is|this I|am|very|hungry see|you|tomorrow
thank|you|so|much we|need|more|time the|bus|is|late please|call|me|back I|love|this|place are|you|at|home
dinner|is|ready happy|birthday the|shop|is|closed have|a|nice|day I|lost|my|keys meet|me|outside it|is|cold|today
the|cat|is|asleep bring|an|umbrella"""
UNITS = "miles feet pounds ounces gallons inches yards meters liters grams"


def _one(words: str) -> Callable[[Random], Value]:
    listed = words.split()
    return lambda rng: rng.choice(listed)


def _joined(form: str, *words: str) -> Callable[[Random], Value]:
    listed = [one.split() for one in words]
    return lambda rng: form.format(*map(rng.choice, listed))


def _number(low: int, high: int) -> Callable[[Random], Value]:
    return lambda rng: rng.randint(low, high)


VALUE_DRAWERS: Mapping[str, Callable[[Random], Value]] = {
    "address": _joined("{}@{}", FIRST_NAMES.lower(), HOSTS),
    "amount": lambda rng: rng.randrange(105, 40_000, 25) / 100,
    "city": _one(CITIES),
    "clock": lambda rng: f"{rng.randrange(24):02}:{rng.randrange(0, 60, 5):02}",
    "currency": _one(CURRENCIES),
    "date": lambda rng: f"2027-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
    "deed": _joined("{} the {}", CHORES, f"{ROOMS} {HOUSEHOLD_GOODS}"),
    "few": _number(2, 24),
    "file": _joined("{}_{}.{}", ADJECTIVES, NOUNS, ENDINGS),
    "language": _one(LANGUAGES),
    "matter": _joined("{} {}", SUBJECTS, SUBJECT_EVENTS),
    "percent": _number(1, 100),
    "person": _one(FIRST_NAMES),
    "room": _one(ROOMS),
    "sentence": lambda rng: rng.choice(SENTENCES.split()).replace("|", " "),
    "switch": lambda rng: rng.random() < 0.5,
    "thing": _one(HOUSEHOLD_GOODS),
    "ticker": lambda rng: "".join(rng.choice("ABCDEFGHIKLMNOPRSTUVXZ") for _ in range(rng.choice((3, 4)))),
    "title": _joined("{} {}", ADJECTIVES.title(), NOUNS.title()),
    "unit": _one(UNITS),
    "whole": _number(2, 180),
}
"""What values there are, and how each is drawn."""
JSON_TYPE_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def is_held_out_value(value: Value) -> bool:
    """Whether a value is for examinations alone; truth values are for both."""
    return crc32(repr(value).encode()) % HELD_OUT_MODULUS == 0


def draw_value(kind: str, rng: Random, *, held_out: bool) -> Value:
    """A value of a kind that is, or is not, held out."""
    while True:
        value = VALUE_DRAWERS[kind](rng)
        if isinstance(value, bool) or is_held_out_value(value) is held_out:
            return value


def value_text(value: Value) -> str:
    """The value as people say it."""
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class ToolTemplate:
    """What a tool may be called, what it takes, and how people ask for it."""

    names: str
    takes: str
    """`argument:kind` for each; arguments have several names as well, with a stroke between them."""
    requests: tuple[str, ...]
    """The arguments stand in braces, by their first names."""

    @property
    def arguments(self) -> Mapping[str, tuple[tuple[str, ...], str]]:
        """Names and kind of each argument, by its first name."""
        pairs = re.findall(r"([\w/]+):(\w+)", self.takes)
        return {names.split("/")[0]: (tuple(names.split("/")), kind) for names, kind in pairs}


TRAIN_TOOLS = (
    ToolTemplate(
        "set_timer start_timer new_timer",
        "minutes/duration:whole label/title:thing",
        ("Set a timer of {minutes} minutes for the {label}.", "The {label} need {minutes} minutes, start a timer."),
    ),
    ToolTemplate(
        "set_alarm wake_up alarm_at",
        "time/at:clock",
        ("Wake me at {time}.", "I have to get up at {time}, set an alarm.", "Alarm for {time}, please."),
    ),
    ToolTemplate(
        "add_reminder remind new_reminder",
        "text/what:deed time/when:clock",
        ("Remind me to {text} at {time}.", "At {time} I must {text}, do not let me forget."),
    ),
    ToolTemplate(
        "get_weather weather_in forecast",
        "city/place:city days/ahead:few",
        ("What will the weather be in {city} in {days} days?", "Show me {days} days of weather for {city}."),
    ),
    ToolTemplate(
        "convert_currency exchange_money",
        "amount/sum:amount source/from_currency:currency target/to_currency:currency",
        ("Convert {amount} {source} to {target}.", "How many {target} do I get for {amount} {source}?"),
    ),
    ToolTemplate(
        "translate translate_text",
        "text/phrase:sentence language/into:language",
        ("Translate '{text}' into {language}.", "How do I say '{text}' in {language}?"),
    ),
    ToolTemplate(
        "send_email write_mail email",
        "to/recipient:address subject/about:matter",
        ("Send an email to {to} about {subject}.", "Write to {to}, the subject is {subject}."),
    ),
    ToolTemplate(
        "send_message text_contact message",
        "person/to:person text/message:sentence",
        ("Tell {person}: {text}", "Send {person} the message '{text}'."),
    ),
    ToolTemplate(
        "switch_light light",
        "room/where:room on/lit:switch",
        ("Turn the light in the {room} {on}.", "Light {on} in the {room}, please."),
    ),
    ToolTemplate(
        "dim_lights set_brightness",
        "room/zone:room percent/level:percent",
        ("Dim the {room} to {percent} percent.", "Set the brightness to {percent} percent in the {room}."),
    ),
    ToolTemplate(
        "get_stock_price stock_quote",
        "symbol/ticker:ticker",
        ("What is {symbol} trading at?", "Give me the stock price of {symbol}.", "How is {symbol} doing today?"),
    ),
    ToolTemplate(
        "buy_shares order_stock",
        "symbol/ticker:ticker shares/count:whole",
        ("Buy {shares} shares of {symbol}.", "I want {shares} of {symbol} in my portfolio."),
    ),
    ToolTemplate(
        "play_song play_music play",
        "title/song:title",
        ("Play {title}.", "I would like to hear {title}.", "Put on the song {title}."),
    ),
    ToolTemplate(
        "set_volume change_volume",
        "device/speaker:room level/volume:percent",
        ("Set the volume in the {device} to {level}.", "The {device} speaker should play at {level}."),
    ),
    ToolTemplate(
        "add_to_list add_groceries",
        "item/product:thing quantity/number:few",
        ("Put {quantity} {item} on the shopping list.", "We need {item}, {quantity} of them; add it to the list."),
    ),
    ToolTemplate(
        "book_table reserve_table",
        "restaurant/place:title guests/people:few time/at:clock",
        ("Book a table for {guests} at {restaurant} at {time}.", "Reserve {restaurant} at {time}, we are {guests}."),
    ),
    ToolTemplate(
        "create_event add_event schedule",
        "title/name:matter date/day:date time/starts:clock",
        ("Put {title} in my calendar on {date} at {time}.", "Schedule {title} for {time} on {date}."),
    ),
    ToolTemplate(
        "call_contact phone dial", "person/name:person", ("Call {person}.", "I want to talk to {person}, dial.")
    ),
    ToolTemplate(
        "delete_file remove_file",
        "file/path:file forever/permanent:switch",
        ("Delete {file} with permanent removal {forever}.", "Permanent removal {forever}: delete {file}."),
    ),
    ToolTemplate(
        "share_file send_file",
        "file/path:file person/with:person",
        ("Share {file} with {person}.", "Let {person} have {file}."),
    ),
    ToolTemplate(
        "order_taxi call_cab",
        "destination/to:city time/pickup:clock",
        ("I need a taxi to {destination} at {time}.", "Order a cab for {time}, it goes to {destination}."),
    ),
    ToolTemplate(
        "define_word dictionary",
        "word/term:thing language/in:language",
        ("What does {word} mean in {language}?", "Look up the word {word} in a {language} dictionary."),
    ),
    ToolTemplate(
        "set_thermostat heat",
        "room/zone:room degrees/temperature:few",
        ("Heat the {room} to {degrees} degrees.", "Make it {degrees} degrees in the {room}."),
    ),
    ToolTemplate(
        "transfer_money pay",
        "person/to:person amount/value:amount currency/unit:currency",
        ("Pay {person} {amount} {currency}.", "Transfer {amount} {currency} to {person}."),
    ),
)
"""Tools of training, and of the examination in new values."""
UNSEEN_TOOLS = (
    ToolTemplate(
        "book_flight find_flight",
        "origin/departure:city destination/arrival:city date/on:date",
        ("Book a flight from {origin} to {destination} on {date}.", "On {date} I fly to {destination} from {origin}."),
    ),
    ToolTemplate(
        "run_sprinkler irrigate",
        "area/section:room minutes/length:whole",
        ("Sprinkle the lawn by the {area} for {minutes} minutes.", "Irrigate for {minutes} minutes near the {area}."),
    ),
    ToolTemplate(
        "rate_movie review_film",
        "movie/film:title stars/rating:few",
        ("I give {movie} {stars} stars.", "Rate the film {movie}: {stars} points."),
    ),
    ToolTemplate(
        "convert_units measure",
        "quantity/value:amount unit/from_unit:unit into/to_unit:unit",
        ("How many {into} are {quantity} {unit}?", "Express {quantity} {unit} in {into}."),
    ),
    ToolTemplate(
        "rename_file move_document",
        "old/current_name:file new/new_name:file",
        ("Rename {old} to {new}.", "The document {old} should be called {new}."),
    ),
    ToolTemplate(
        "arm_security burglar_alarm",
        "door/entrance:room armed/active:switch",
        ("Switch the security of the {door} door {armed}.", "Security {armed} at the {door} door."),
    ),
    ToolTemplate(
        "log_run record_workout",
        "kilometers/distance:amount seconds/duration:whole",
        ("I ran {kilometers} kilometers in {seconds} seconds.", "Log {seconds} seconds for {kilometers} kilometers."),
    ),
    ToolTemplate(
        "find_recipe cook_with",
        "ingredient/main:thing servings/portions:few",
        ("What can I cook from {ingredient} for {servings}?", "A recipe with {ingredient}, {servings} servings."),
    ),
    ToolTemplate(
        "invite_guest add_attendee",
        "guest/attendee:person event/occasion:matter",
        ("Invite {guest} to the {event}.", "{guest} should come to the {event} too."),
    ),
    ToolTemplate(
        "learn_vocabulary start_lesson",
        "language/course:language words/size:few",
        ("Teach me {words} words of {language}.", "Start a {language} lesson with {words} words."),
    ),
)
"""Tools of the examination in new tools."""
