"""The protocol between this process and that of an isolated environment: frames of JSON, each behind its length.

This process asks; the other answers, and asks for the turns of its episodes. Whatever comes from there is untrusted:
it is decoded into these types, and its size and number are bounded by who reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Literal, TypeVar

import msgspec

from wanderlust.agent.limits import Limits
from wanderlust.errors import (
    EnvironmentFailure,
    Failure,
    PolicyFailure,
    RubricFailure,
    SandboxFailure,
    StopEpisode,
    ToolFailure,
    UsageError,
    WanderlustError,
    WorkerFailure,
    one_line,
)
from wanderlust.runner.failures import failure_details
from wanderlust.types import AnswerDetails, Message, Rollout, Score, Task, Tokens

HEAD_BYTES, MAX_FRAME_BYTES = 4, 1 << 24
MAX_FAULT_CHARS = 2_000
FAILURES: Mapping[str, type[Failure]] = {
    kind.__name__: kind
    for kind in (EnvironmentFailure, PolicyFailure, ToolFailure, RubricFailure, SandboxFailure, WorkerFailure)
}

Number = float | int | Literal["nan", "inf", "-inf"]
"""JSON has no other spelling of numbers that are not finite."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An exception of the other side."""

    kind: str
    text: str
    transient: bool = False
    refusal: str = ""
    output: str = ""
    """Where it was raised, or what the program behind it wrote."""

    @classmethod
    def of(cls, error: WanderlustError) -> Fault:
        """Its class, text, marks and place."""
        text = error.reason if isinstance(error, StopEpisode) else str(error)
        kind = next((one.__name__ for one in type(error).__mro__ if one.__name__ in KINDS), "WanderlustError")
        details = failure_details(error, EnvironmentFailure)
        marks: dict[str, Any] = {"transient": error.transient, "refusal": error.refusal}
        return cls(kind=kind, text=_bounded(text), output=_bounded(details.output or details.traceback), **marks)

    def error(self) -> WanderlustError:
        """The same exception here; an unknown one is a failure of the environment."""
        if self.kind == "StopEpisode":
            return StopEpisode(one_line(self.text))
        if self.kind == "UsageError":
            return UsageError(self.text)
        kind = FAILURES.get(self.kind, EnvironmentFailure)
        return kind(self.text, transient=self.transient, refusal=self.refusal, output=self.output)


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_FAULT_CHARS else text[: MAX_FAULT_CHARS - 1] + "…"


KINDS = frozenset({*FAILURES, "StopEpisode", "UsageError"})


class ShownTool(msgspec.Struct, kw_only=True):
    """A tool as the policy sees it. It is called on the side of the environment alone."""

    name: str
    description: str
    schema: dict[str, Any]

    async def __call__(self, **arguments: Any) -> str:
        """Raises ToolFailure: policies ask for calls, and do not make them."""
        raise ToolFailure(f"{self.name} can be called by its environment alone")


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """What this process says; `number` names the conversation that it belongs to."""

    number: int


class ListTasks(Request, frozen=True, tag="tasks"):
    """The next tasks of a split; the first ones when `begin` is set. Answered by Tasks."""

    split: str = ""
    begin: bool = False
    count: int = 1


class Start(Request, frozen=True, tag="start"):
    """Play an episode. Answered by Acts, and in the end by Ended."""

    task: Task
    seed: int
    keys: dict[str, str]
    """Key of each seat."""
    limits: Limits


class Answer(Request, frozen=True, tag="answer"):
    """The turn that an Act asked for, or why there is none."""

    act: int
    message: Message | None = None
    finish: str = "stop"
    usage: dict[str, int] = msgspec.field(default_factory=dict)
    tokens: Tokens | None = None
    details: AnswerDetails | None = None
    fault: Fault | None = None


class Cancel(Request, frozen=True, tag="cancel"):
    """End the episode. Answered by Ended, unless that is under way."""

    limit: str = ""
    """The limit that ends the play, which the environment then closes as usual; empty to cancel it."""


class Judge(Request, frozen=True, tag="judge"):
    """Score seats of rollouts: one for `score`, siblings for `compare`. Answered by Scores."""

    seat: str
    episodes: list[int]
    """Number of each rollout's episode."""
    rollouts: list[Rollout]
    """The same; their turns and states are left out where the episodes are known on the other side."""
    compare: bool = False


class MakePolicy(Request, frozen=True, tag="policy"):
    """Make a policy: the oracle of a task, a player or a frozen seat by its name. Answered by Value."""

    what: Literal["oracle", "player", "frozen"]
    name: str = ""
    task: Task | None = None


class Complete(Request, frozen=True, tag="complete"):
    """Let such a policy answer. Answered by Value with a completion's message and finish."""

    policy: int
    messages: list[Message]
    tools: list[ShownTool]
    key: str = ""


class Release(Request, frozen=True, tag="release"):
    """A conversation of such a policy is over. Not answered."""

    policy: int
    key: str


class Extract(Request, frozen=True, tag="extract"):
    """The final answer in a text. Answered by Value."""

    text: str


AnyRequest = ListTasks | Start | Answer | Cancel | Judge | MakePolicy | Complete | Release | Extract


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """What the other process says."""

    number: int


class Declared(Reply, frozen=True, tag="declared"):
    """Attributes of the environment: the first frame of all, with the number 0."""

    seats: tuple[str, ...]
    limits: Limits
    rubric: bool
    compares: bool
    prefixes: bool
    oracle: bool
    extract: bool
    players: list[str]
    frozen_seats: list[str]
    oracle_bar: float | None
    chance_bar: float | None
    graded_arguments: list[str]
    choose_by: str | None
    group_by: str | None
    revision: tuple[str, str]


class Tasks(Reply, frozen=True, tag="listed"):
    """Tasks; `more` says whether others may follow."""

    tasks: list[Task]
    more: bool


class Act(Reply, frozen=True, tag="act"):
    """An episode asks for a turn of a seat."""

    act: int
    seat: str
    messages: list[Message]
    whole: bool = False
    """Whether `messages` is the whole context, and not what is new."""
    back: int | None = None
    """Turn from which the seat goes on."""
    tools: list[ShownTool] | None = None
    """None for those of the act before."""
    rewards: list[tuple[str, Number, str]] = msgspec.field(default_factory=list)
    """Name, value and seat of what was paid since the last frame."""


class Ended(Reply, frozen=True, tag="ended"):
    """An episode has ended."""

    state: dict[str, Any] = msgspec.field(default_factory=dict)
    rewards: list[tuple[str, Number, str]] = msgspec.field(default_factory=list)
    fault: Fault | None = None


class Scores(Reply, frozen=True, tag="scores"):
    """What a judgement came to."""

    scores: list[Score]


class Value(Reply, frozen=True, tag="value"):
    """An answer to one of the smaller questions."""

    handle: int | None = None
    text: str = ""
    message: Message | None = None
    finish: str = "stop"


class Failed(Reply, frozen=True, tag="failed"):
    """A question was not answered."""

    fault: Fault


AnyReply = Declared | Tasks | Act | Ended | Scores | Value | Failed

_REQUESTS, _REPLIES = msgspec.json.Decoder(AnyRequest), msgspec.json.Decoder(AnyReply)
_ENCODER = msgspec.json.Encoder(enc_hook=repr)
T = TypeVar("T")


def pack(frame: Request | Reply) -> bytes:
    """A frame with its length before it. Raises EnvironmentFailure for what is no plain data, or too large."""
    try:
        body = _ENCODER.encode(frame)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise EnvironmentFailure(f"it cannot be sent: {one_line(str(error))}") from error
    if len(body) > MAX_FRAME_BYTES:
        raise EnvironmentFailure(f"a message of {len(body):,} bytes: at most {MAX_FRAME_BYTES:,} are sent")
    return len(body).to_bytes(HEAD_BYTES, "big") + body


class FrameBuffer:
    """Bytes that came, and the whole frames in them."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def take(self, data: bytes) -> list[bytes]:
        """Add bytes; returns the bodies that are complete. Raises EnvironmentFailure for a length above the bound."""
        self._bytes += data
        bodies = list[bytes]()
        at = 0
        while len(self._bytes) - at >= HEAD_BYTES:
            size = int.from_bytes(self._bytes[at : at + HEAD_BYTES], "big")
            if size > MAX_FRAME_BYTES:
                raise EnvironmentFailure(f"its process announced {size:,} bytes at once; {MAX_FRAME_BYTES:,} are read")
            if len(self._bytes) - at - HEAD_BYTES < size:
                break
            bodies.append(bytes(self._bytes[at + HEAD_BYTES : at + HEAD_BYTES + size]))
            at += HEAD_BYTES + size
        del self._bytes[:at]
        return bodies


def read_request(body: bytes) -> AnyRequest:
    """Decode what this process said."""
    request: AnyRequest = _REQUESTS.decode(body)
    return request


def read_reply(body: bytes) -> AnyReply:
    """Decode what the other process said. Raises EnvironmentFailure for anything else."""
    try:
        reply: AnyReply = _REPLIES.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError, WanderlustError) as error:
        raise EnvironmentFailure(f"its process sent no message of the protocol: {one_line(str(error))}") from error
    return reply


def encodable(message: Message) -> Message:
    """The message with lone surrogates, which no encoding has, as their escapes."""
    calls = tuple(
        replace(one, name=_escaped(one.name), arguments=_escaped(one.arguments)) for one in message.tool_calls
    )
    reasoning = None if message.reasoning is None else _escaped(message.reasoning)
    return replace(message, content=_escaped(message.content), reasoning=reasoning, tool_calls=calls)


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def wire_number(value: Any) -> Number:
    """A number as it is sent."""
    number = value if type(value) in (int, float) else float(value)
    return number if isfinite(number) else str(float(number))  # type: ignore[return-value]


def same_names(values: Sequence[Any], names: Sequence[Any]) -> bool:
    """Whether two sequences hold the same objects."""
    return len(values) == len(names) and all(one is other for one, other in zip(values, names, strict=True))
