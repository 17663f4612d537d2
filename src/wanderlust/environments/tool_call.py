"""Players that have not understood the task: what they earn is what shortcuts are worth.

One strict tool call: which of one to three tools is meant, and with which arguments.

An answer counts as strict when all of it, but for white space around it, is one JSON object with the keys `name` and
`arguments` and no other, the name is the right tool's, and the arguments are exactly the wanted ones: none is missing,
none is added, each has the right type (`7` is no text, `"7"` no number, `true` no 1; an integer may stand for a number
that equals it) and the right value, letter for letter. A key that stands twice, NaN, Infinity, a code fence, a word of
explanation or a second call make it wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any, ClassVar

from wanderlust.environment import Limits, SingleTurnEnvironment
from wanderlust.environments.tool_call_catalogue import TRAIN, TYPES, UNSEEN, Tool, Value, drawn, shown
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Part, Rubric
from wanderlust.types import Message, Policy, Task, assistant, system, user

OFFER = re.compile(r"(\w+)\((.+)\)")


def echo(messages: Sequence[Message], _rng: Random) -> str:
    """Repeats the newest example."""
    return next((m.content for m in reversed(messages) if m.role == "assistant"), "")


def parrot(messages: Sequence[Message], _rng: Random) -> str:
    """Takes the first tool, with the types for values."""
    name, takes = _offered(messages)[0]
    return json.dumps({"name": name, "arguments": takes})


def guesser(messages: Sequence[Message], rng: Random) -> str:
    """Takes any tool, and for each argument any word of the request that has its type."""
    name, takes = rng.choice(_offered(messages))
    words = [word.strip(".,:;?'") for word in messages[-1].content.splitlines()[-1].split()[1:]]
    return json.dumps({"name": name, "arguments": {key: _guess(kind, words, rng) for key, kind in takes.items()}})


def _offered(messages: Sequence[Message]) -> list[tuple[str, dict[str, str]]]:
    """Name and arguments with their types of each tool in the last message."""
    found = OFFER.findall(messages[-1].content)
    return [(name, dict(one.split(": ") for one in takes.split(", "))) for name, takes in found]


def _guess(kind: str, words: Sequence[str], rng: Random) -> str | float | bool:
    numbers = [float(word) for word in words if re.fullmatch(r"\d+(\.\d+)?", word)]
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "string" or not numbers:
        return rng.choice(words)
    return rng.choice(numbers) if kind == "number" else int(rng.choice(numbers))


PLAYERS: Mapping[str, Callable[[], Policy]] = {
    "echo": lambda: Scripted(echo),
    "parrot": lambda: Scripted(parrot),
    "guesser": lambda: Scripted(guesser),
}


RULES = "Answer each request with one call of one of the tools: a JSON object with its name and its arguments, no more."
LONGEST = 2000
"""Characters of an answer; a longer one is no call."""
EVAL = 100
"""Tasks of each kind in the `eval` split, unless something else is asked for."""
KEY = 0.25
"""What an argument is worth whose name alone is right."""
OFFERED = 3
"""At most so many tools are offered."""


def schema(name: str, arguments: Mapping[str, Value]) -> str:
    """A tool as it is offered: its name, and the type of each argument."""
    return f"{name}({', '.join(f'{key}: {TYPES[type(one)]}' for key, one in arguments.items())})"


def asked(schemas: Sequence[str], request: str) -> Message:
    """A user's message."""
    return user("\n".join(("Tools:", *schemas, f"Request: {request}")))


def call(name: str, arguments: Mapping[str, Value]) -> str:
    """The right answer, as short as JSON is usually written."""
    return json.dumps({"name": name, "arguments": dict(arguments)})


FISH: Mapping[str, Value] = {"grams": 2.5}
LAMP: Mapping[str, Value] = {"colour": "green", "seconds": 45}
POST: Mapping[str, Value] = {"parcel": "K7-310", "insured": True}
BELL: Mapping[str, Value] = {"times": 3}
OFFERS = tuple(
    schema(*one) for one in (("feed_fish", FISH), ("blink_lamp", LAMP), ("ring_bell", BELL), ("post_parcel", POST))
)
EXAMPLES: tuple[Message, ...] = (
    system(RULES),
    asked(OFFERS[:2], "Let the lamp blink green for 45 seconds."),
    assistant(call("blink_lamp", LAMP)),
    asked((OFFERS[2], OFFERS[0], OFFERS[3]), "Post parcel K7-310 with insurance on."),
    assistant(call("post_parcel", POST)),
)
"""Their tools are in no task, so that repeating them earns next to nothing; the first one is never the right one, as
small models take it anyway."""


def read(completion: str) -> dict[str, Any] | None:
    """The call that an answer is as a whole; None when it is anything else."""
    found, end = _begun(completion)
    return None if completion[end:].strip() else found


def _begun(completion: str) -> tuple[dict[str, Any] | None, int]:
    """The call that an answer begins with, and where it ends."""
    start = len(completion) - len(completion.lstrip())
    if len(completion) > LONGEST or completion[start : start + 1] != "{":
        return None, 0
    try:
        found, end = DECODER.raw_decode(completion, start)
    except (ValueError, RecursionError):
        return None, 0
    fits = found.keys() == {"name", "arguments"} and isinstance(found["arguments"], dict)
    return (found if fits else None), end


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_refused)


def same(given: Any, wanted: Value) -> bool:
    """Whether type and value are right."""
    kinds = (int, float) if isinstance(wanted, float) else (type(wanted),)
    return type(given) in kinds and bool(given == wanted)


def strict(completion: str, answer: Mapping[str, Any]) -> float:
    """1 for the one right call and nothing else; see above."""
    return float(read(completion) is not None and arguments(completion, answer) == 1.0)


def form(completion: str) -> float:
    """1 for any one call and nothing else."""
    return float(read(completion) is not None)


def named(completion: str, answer: Mapping[str, Any]) -> float:
    """1 when the answer begins with a call of the right tool."""
    found, _ = _begun(completion)
    return float(found is not None and found["name"] == answer["name"])


def arguments(completion: str, answer: Mapping[str, Any]) -> float:
    """Share of right arguments among the given and the wanted ones, in the call that the answer begins with.

    One that is wanted and has another value counts for KEY. 0 when it is a call of another tool.
    """
    found, _ = _begun(completion)
    wanted = answer["arguments"]
    if found is None or found["name"] != answer["name"]:
        return 0.0
    given = found["arguments"]
    right = [1.0 if same(given[key], value) else KEY for key, value in wanted.items() if key in given]
    return sum(right) / len(given.keys() | wanted.keys())


class ToolCall(SingleTurnEnvironment):
    """One strict tool call, after two examples.

    `train` is endless. `eval` has as many tasks of each kind, which `info` names: `values`, tools of training with
    values that training never has, and `tools`, tools that training never has, again with such values. What the reward
    has for parts of the way is less than half of what a strict call earns.
    """

    by = "kind"
    players: ClassVar[Mapping[str, Callable[[], Policy]]] = PLAYERS
    limits = Limits(max_turns=1)
    rubric = Rubric(strict, Part(form, 0.1), Part(named, 0.2), Part(arguments, 0.5))

    def __init__(self, *, size: int = EVAL):
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
        answer = call(**task.answer)
        return Scripted(lambda _messages, _rng: answer)


def _task(kind: str, number: int) -> Task:
    rng = Random(f"tool-call/{kind}/{number}")
    pool = UNSEEN if kind == "tools" else TRAIN
    offered = [_tool(one, rng, held=kind != "train") for one in rng.sample(pool, rng.randint(1, OFFERED))]
    name, wanted, request = offered[0]
    schemas = [schema(one, values) for one, values, _ in offered]
    rng.shuffle(schemas)
    return Task(
        id=f"{kind}-{number}",
        prompt=(*EXAMPLES, asked(schemas, request)),
        answer={"name": name, "arguments": wanted},
        info={"kind": kind, "tools": len(offered)},
    )


def _tool(tool: Tool, rng: Random, *, held: bool) -> tuple[str, dict[str, Value], str]:
    """A name, arguments and a request."""
    values: dict[str, Value] = {}
    said: dict[str, str] = {}
    for first, (names, kind) in tool.arguments.items():
        value = drawn(kind, rng, held=held)
        while not isinstance(value, bool) and value in values.values():
            value = drawn(kind, rng, held=held)
        values[rng.choice(names)], said[first] = value, shown(value)
    return rng.choice(tool.names.split()), values, rng.choice(tool.requests).format(**said)
