"""One strict tool call: the right one of one to three tools, with the right arguments.

An answer counts as strict when all of it, but for white space around it, is one JSON object with the keys `name` and
`arguments` and no other, the name is the right tool's, and the arguments are exactly the wanted ones: none is missing,
none is added, each has the right type (`7` is no text, `"7"` no number, `true` no 1; an integer may stand for a number
that equals it) and the right value, letter for letter. A duplicate key, NaN, Infinity, a code fence, a word of
explanation or a second call make it wrong.

Tools are those of a household's assistant. Values, and whole tools, are held out: none of them occurs in training.
`TOOL_CALL_PLAYERS` do not read the request: their reward is what shortcuts earn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import count
from random import Random
from typing import Any, TypeAlias
from zlib import crc32

from wanderlust.environment import Limits, SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.parsing import refuse_constant
from wanderlust.rubrics.rubric import Reward, Rubric
from wanderlust.types import Message, Policy, Task, assistant, system, user

Value: TypeAlias = str | int | float | bool

HELD_OUT_MODULUS = 4
"""One of this many values is held out."""
CITIES = """Lisbon Oslo Nairobi Lima Prague Kyoto Dublin Cairo Toronto Seoul Athens Quito Vienna Hanoi Bogota Tunis
Riga Dakar Delhi Havana Berlin Madrid Accra Turin Geneva Osaka Porto Denver Boston Austin Leeds Malmo Basel Split
Cork Tampere Bergen Krakow Seville Lyon"""
FIRST_NAMES = """Anna Omar Lucy Pedro Mei Ravi Julia Tom Elena Kofi Sara Ivan Nora Diego Aisha Ben Carla Hugo Priya
Leo Maya Felix Zoe Amir Ruth Oscar Tara Noel Greta Sam Hannah Yusuf Clara Viktor Ingrid Paulo Bella Martin Dana
Colin"""
HOUSEHOLD_GOODS = """apples bread milk rice candles soap lemons pasta cheese onions batteries tea honey carrots
paper eggs beans butter flour salt pears nails glue socks towels mugs ginger basil olives yogurt"""
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
"""The draw of a value, by its kind."""
JSON_TYPE_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def is_held_out_value(value: Value) -> bool:
    """Whether a value is for evaluation alone; truth values are for both."""
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
    """The names of a tool, its arguments, and requests for it."""

    names: str
    """The names that it may have, with spaces between them."""
    takes: str
    """`argument:kind` for each argument; an argument may have several names too, with a slash between them."""
    requests: tuple[str, ...]
    """The arguments stand in braces, by their first names."""

    @property
    def arguments(self) -> Mapping[str, tuple[tuple[str, ...], str]]:
        """Names and kind of each argument, by its first name."""
        pairs = re.findall(r"([\w/]+):(\w+)", self.takes)
        return {names.split("/")[0]: (tuple(names.split("/")), kind) for names, kind in pairs}


_TOOLS = json.loads((files(__package__ or "") / "tool_call_tools.json").read_text("utf-8"))
TRAIN_TOOLS, UNSEEN_TOOLS = (
    tuple(ToolTemplate(tool["names"], tool["takes"], tuple(tool["requests"])) for tool in _TOOLS[key])
    for key in ("train", "unseen")
)
"""Tools of training and of the evaluation in new values; tools of the evaluation in new tools."""


OFFER_PATTERN = re.compile(r"(\w+)\((.+)\)")


def echo_example(messages: Sequence[Message], _rng: Random) -> str:
    """Repeats the newest example."""
    return next((m.content for m in reversed(messages) if m.role == "assistant"), "")


def copy_first_tool(messages: Sequence[Message], _rng: Random) -> str:
    """Takes the first tool, with the types for values."""
    name, takes = _offered(messages)[0]
    return json.dumps({"name": name, "arguments": takes})


def guess_arguments(messages: Sequence[Message], rng: Random) -> str:
    """Takes any tool, and for each argument any word of the request that has its type."""
    name, takes = rng.choice(_offered(messages))
    words = [word.strip(".,:;?'") for word in messages[-1].content.splitlines()[-1].split()[1:]]
    numbers = [float(word) for word in words if re.fullmatch(r"\d+(\.\d+)?", word)]
    guesses: dict[str, Value] = {}
    for key, kind in takes.items():
        if kind == "boolean":
            guesses[key] = rng.random() < 0.5
        elif kind == "string" or not numbers:
            guesses[key] = rng.choice(words)
        else:
            number = rng.choice(numbers)
            guesses[key] = number if kind == "number" else int(number)
    return json.dumps({"name": name, "arguments": guesses})


def _offered(messages: Sequence[Message]) -> list[tuple[str, dict[str, str]]]:
    """Name and arguments with their types of each tool in the last message."""
    matches = OFFER_PATTERN.findall(messages[-1].content)
    return [(name, dict(one.split(": ") for one in takes.split(", "))) for name, takes in matches]


TOOL_CALL_PLAYERS: Mapping[str, Callable[[], Policy]] = {
    "echo": lambda: Scripted(echo_example),
    "parrot": lambda: Scripted(copy_first_tool),
    "guesser": lambda: Scripted(guess_arguments),
}


TOOL_CALL_RULES = (
    "Answer each request with one call of one of the tools: a JSON object with its name and its arguments, no more."
)
MAX_CALL_CHARS = 2000
"""Characters of an answer; a longer one is no call."""
EVAL_TASKS_PER_KIND = 100
"""Tasks of each kind in the `eval` split, unless something else is asked for."""
NAME_ONLY_CREDIT = 0.25
"""Credit for an argument of which only the name is right."""
MAX_OFFERED_TOOLS = 3
"""Most tools offered in one request."""


def render_tool_offer(name: str, arguments: Mapping[str, Value]) -> str:
    """A tool as it is offered: its name, and the type of each argument."""
    return f"{name}({', '.join(f'{key}: {JSON_TYPE_NAMES[type(one)]}' for key, one in arguments.items())})"


def request_message(schemas: Sequence[str], request: str) -> Message:
    """A user's message."""
    return user("\n".join(("Tools:", *schemas, f"Request: {request}")))


def render_call(name: str, arguments: Mapping[str, Value]) -> str:
    """The right answer, as short as JSON is usually written."""
    return json.dumps({"name": name, "arguments": dict(arguments)})


FISH: Mapping[str, Value] = {"grams": 2.5}
LAMP: Mapping[str, Value] = {"colour": "green", "seconds": 45}
POST: Mapping[str, Value] = {"parcel": "K7-310", "insured": True}
BELL: Mapping[str, Value] = {"times": 3}
EXAMPLE_OFFERS = tuple(
    render_tool_offer(*one)
    for one in (("feed_fish", FISH), ("blink_lamp", LAMP), ("ring_bell", BELL), ("post_parcel", POST))
)
TOOL_CALL_EXAMPLES: tuple[Message, ...] = (
    system(TOOL_CALL_RULES),
    request_message(EXAMPLE_OFFERS[:2], "Let the lamp blink green for 45 seconds."),
    assistant(render_call("blink_lamp", LAMP)),
    request_message((EXAMPLE_OFFERS[2], EXAMPLE_OFFERS[0], EXAMPLE_OFFERS[3]), "Post parcel K7-310 with insurance on."),
    assistant(render_call("post_parcel", POST)),
)
"""The tools of the examples are in no task, so that repeating them earns next to nothing. The first one is never the
right one, because small models choose it anyway.
"""


def parse_call(completion: str) -> dict[str, Any] | None:
    """The call that an answer is as a whole; None when it is anything else."""
    parsed, end = _parse_leading_call(completion)
    return None if completion[end:].strip() else parsed


def _parse_leading_call(completion: str) -> tuple[dict[str, Any] | None, int]:
    """The call that an answer begins with, and where it ends."""
    start = len(completion) - len(completion.lstrip())
    if len(completion) > MAX_CALL_CHARS or completion[start : start + 1] != "{":
        return None, 0
    try:
        parsed, end = STRICT_DECODER.raw_decode(completion, start)
    except (ValueError, RecursionError):
        return None, 0
    fits = parsed.keys() == {"name", "arguments"} and isinstance(parsed["arguments"], dict)
    return (parsed if fits else None), end


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("duplicate key")
    return values


STRICT_DECODER = json.JSONDecoder(object_pairs_hook=_reject_duplicate_keys, parse_constant=refuse_constant)


def same_value(value: Any, wanted: Value) -> bool:
    """Whether type and value are right."""
    kinds = (int, float) if isinstance(wanted, float) else (type(wanted),)
    return type(value) in kinds and bool(value == wanted)


def strict(completion: str, answer: Mapping[str, Any]) -> float:
    """1 for the one right call and nothing else; see above."""
    return float(parse_call(completion) is not None and arguments(completion, answer) == 1.0)


def is_call(completion: str) -> float:
    """1 for any one call and nothing else."""
    return float(parse_call(completion) is not None)


def right_tool(completion: str, answer: Mapping[str, Any]) -> float:
    """1 when the answer begins with a call of the right tool."""
    parsed, _ = _parse_leading_call(completion)
    return float(parsed is not None and parsed["name"] == answer["name"])


def arguments(completion: str, answer: Mapping[str, Any]) -> float:
    """Share of right arguments among the given and the wanted ones, in the call that the answer begins with.

    One that is wanted and has another value counts for KEY. 0 when it is a call of another tool.
    """
    parsed, _ = _parse_leading_call(completion)
    wanted = answer["arguments"]
    if parsed is None or parsed["name"] != answer["name"]:
        return 0.0
    values = parsed["arguments"]
    right = [
        1.0 if same_value(values[key], value) else NAME_ONLY_CREDIT for key, value in wanted.items() if key in values
    ]
    return sum(right) / len(values.keys() | wanted.keys())


class ToolCallEnvironment(SingleTurnEnvironment):
    """One strict tool call, after two examples.

    `train` is endless. `eval` has as many tasks of each kind, which `info` names: `values`, tools of training with
    values that training never has, and `tools`, tools that training never has, again with such values. What the reward
    has for parts of the way is less than half of what a strict call earns.
    """

    group_by = "kind"
    players: Mapping[str, Callable[[], Policy]] = TOOL_CALL_PLAYERS
    limits = Limits(max_turns=1)
    rubric = Rubric(
        strict, Reward(is_call, 0.1, name="form"), Reward(right_tool, 0.2, name="named"), Reward(arguments, 0.5)
    )

    def __init__(self, *, size: int = EVAL_TASKS_PER_KIND):
        """`size` is how many tasks of each kind `eval` has."""
        super().__init__()
        self.size = size

    def tasks(self, split: str = "train") -> Iterator[Task]:
        """Requests with two examples before them. UsageError when there is no such split."""
        if split not in ("train", "eval"):
            raise UsageError(f"there is no split {split!r}: one of train, eval")
        for n in count() if split == "train" else range(self.size):
            for kind in ("train",) if split == "train" else ("values", "tools"):
                yield _task(kind, n)

    def oracle(self, task: Task) -> Policy:
        """Makes the right call."""
        answer = render_call(**task.answer)
        return Scripted(lambda _messages, _rng: answer)


def _task(kind: str, number: int) -> Task:
    rng = Random(f"tool-call/{kind}/{number}")
    pool = UNSEEN_TOOLS if kind == "tools" else TRAIN_TOOLS
    offered = [
        _draw_tool(one, rng, held=kind != "train") for one in rng.sample(pool, rng.randint(1, MAX_OFFERED_TOOLS))
    ]
    name, wanted, request = offered[0]
    schemas = [render_tool_offer(one, values) for one, values, _ in offered]
    rng.shuffle(schemas)
    return Task(
        id=f"{kind}-{number}",
        prompt=(*TOOL_CALL_EXAMPLES, request_message(schemas, request)),
        answer={"name": name, "arguments": wanted},
        info={"kind": kind, "tools": len(offered)},
    )


def _draw_tool(tool: ToolTemplate, rng: Random, *, held: bool) -> tuple[str, dict[str, Value], str]:
    """A name, arguments and a request."""
    values: dict[str, Value] = {}
    texts: dict[str, str] = {}
    for first, (names, kind) in tool.arguments.items():
        value = draw_value(kind, rng, held_out=held)
        while not isinstance(value, bool) and value in values.values():
            value = draw_value(kind, rng, held_out=held)
        values[rng.choice(names)], texts[first] = value, value_text(value)
    return rng.choice(tool.names.split()), values, rng.choice(tool.requests).format(**texts)
