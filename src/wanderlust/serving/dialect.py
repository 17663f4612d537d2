"""What the APIs of a recorded seat have in common: a request, and the protocol by which a dialect reads and answers it.

A dialect is one request form of one API: OpenAI's chat completions and responses, Anthropic's messages, Google's
`generateContent`. All of them ask for the same thing, a turn of a seat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import msgspec

from wanderlust.errors import UsageError, one_line
from wanderlust.types import AnswerOptions, DeclaredTool, Message, Policy, SupportsOptions, Turn, assistant

JsonObject = dict[str, Any]
OnPiece = Callable[[int, str], None]
"""Receives an answer's number, from 0, and a further piece of its text."""
NO_TURN = Turn(observation=(), action=assistant(""))
"""Stands for an answer of which nothing is known yet."""
MAX_ANSWERS = 64
"""Answers to one request of a seat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatRequest:
    """A request to a seat, whatever its dialect."""

    messages: list[Message]
    """The whole context."""
    tools: list[DeclaredTool]
    body: Mapping[str, Any]
    """The request as it came."""
    model: str = ""
    options: AnswerOptions = field(default_factory=AnswerOptions)
    wire_names: Mapping[str, str] = field(default_factory=dict)
    """What fields of `options` are called in the dialect, where that is another name."""
    demanded: frozenset[str] = frozenset()
    """Fields of `options` that the API demands of every request: dropped where the policy cannot honour them."""
    answers: int = 1
    """How many answers to the context are wanted; each is a turn."""
    stream: bool = False

    def fit(self, policy: Policy, ignored: Collection[str]) -> SeatRequest:
        """The request without the options that are ignored, by the field's name or the dialect's.

        Raises UsageError that names the first thing in it that the policy cannot do.
        """
        answers = 1 if {"n", self._name("answers")} & {*ignored} else self.answers
        if not 1 <= answers <= MAX_ANSWERS:
            raise UsageError(f"`{self._name('answers')}`: {answers} answers; a request may have 1 to {MAX_ANSWERS}")
        if any(message.images for message in self.messages) and not getattr(policy, "accepts_images", False):
            raise UsageError("an image: the policy of this seat reads text alone")
        options = self.options
        dropped = [name for name in options.changed if {name, self._name(name)} & {*ignored}]
        supports = policy if isinstance(policy, SupportsOptions) else None
        if answers > 1 and supports is None:
            raise UsageError(f"the policy of this seat gives one answer at a time: leave out `{self._name('answers')}`")
        while True:
            options = replace(options, **{name: getattr(_NO_OPTIONS, name) for name in dropped})
            asked = options.changed
            unknown = supports.unsupported_option(options) if supports is not None else next(iter(asked), "")
            if not unknown:
                return replace(self, options=options, answers=answers)
            if unknown not in self.demanded:
                allow = f"ignored_options={{{self._name(unknown)!r}}}"
                raise UsageError(
                    f"the policy of this seat cannot honour `{self._name(unknown)}`: leave it out, or let it be "
                    f"ignored with {allow}"
                )
            dropped = [unknown]

    def _name(self, field_name: str) -> str:
        return self.wire_names.get(field_name, "n" if field_name == "answers" else field_name)


_NO_OPTIONS = AnswerOptions()


Style = Literal["openai", "anthropic", "google"]
"""Whose forms of errors and lists an answer has."""


_ERROR_NAMES: Mapping[int, tuple[str, str]] = {
    400: ("invalid_request_error", "INVALID_ARGUMENT"),
    401: ("authentication_error", "UNAUTHENTICATED"),
    403: ("permission_error", "PERMISSION_DENIED"),
    404: ("not_found_error", "NOT_FOUND"),
    413: ("request_too_large", "INVALID_ARGUMENT"),
    429: ("rate_limit_error", "RESOURCE_EXHAUSTED"),
}
"""Anthropic's and Google's names of HTTP's errors."""


def error_data(status: int, message: str, *, code: str, style: Style = "openai") -> JsonObject:
    """An error as JSON data, in the form of that API; `code` is OpenAI's alone."""
    anthropic, google = _ERROR_NAMES.get(status, ("api_error", "INTERNAL"))
    if style == "anthropic":
        return {"type": "error", "error": {"type": anthropic, "message": message}}
    if style == "google":
        return {"error": {"code": status, "message": message, "status": google}}
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


def encode_data(event: Mapping[str, Any], name: str = "") -> bytes:
    """Encode a server-sent event, with its name where it has one."""
    head = b"event: %s\n" % name.encode() if name else b""
    return head + b"data: " + msgspec.json.encode(event) + b"\n\n"


KEEP_ALIVE_COMMENT = b": the policy is at work\n\n"


class Events(Protocol):
    """Renders one answer as the events of a stream."""

    style: Style = "openai"
    """The form of an error."""
    keep_alive: bytes = KEEP_ALIVE_COMMENT
    """Tells a waiting client that the connection lives."""
    ending: bytes = b""
    """Comes after the last event."""

    def opening(self) -> Iterator[JsonObject]:
        """Yield the events before any text."""
        ...

    def piece(self, index: int, text: str) -> Iterator[JsonObject]:
        """Yield the events of a further piece of the text of answer `index`."""
        ...

    def rest(self, turns: Sequence[Turn]) -> Iterator[JsonObject]:
        """Yield the events that complete the answers."""
        ...

    def failure(self, status: int, message: str, code: str) -> Iterator[JsonObject]:
        """Yield the event of an error, the last one."""
        yield error_data(status, message, code=code, style=self.style)

    def encode(self, event: Mapping[str, Any]) -> bytes:
        """Encode an event as a server-sent one, with its type as its name where it has one."""
        return encode_data(event, event.get("type", ""))


class Dialect(Protocol):
    """Reads requests of one form and renders their answers."""

    id_prefix: str
    """Begins the ids of answers."""

    def parse(self, body: Mapping[str, Any]) -> SeatRequest:
        """Read a request. Raises UsageError of one line for what cannot be done, and for any other body."""
        ...

    def whole(self, id: str, request: SeatRequest, turns: Sequence[Turn]) -> JsonObject:
        """Render the answer; `turns` are the request's, one for each answer."""
        ...

    def events(self, id: str, request: SeatRequest) -> Events:
        """Begin to render the answer as a stream."""
        ...


def unsent_text(whole: str, sent: str) -> str:
    """The rest of an answer's text, of which `sent` went out already."""
    sent = sent if whole.startswith(sent) else sent.rstrip()  # text before a call ends without space
    return whole[len(sent) :] if whole.startswith(sent) else ""


def count_turn_tokens(turns: Sequence[Turn]) -> tuple[int, int]:
    """Tokens read, those of the context once, and written; 0 where the policy did not report them."""
    read = max((turn.usage.get("prompt_tokens", 0) for turn in turns), default=0)
    return read, sum(turn.usage.get("completion_tokens", 0) for turn in turns)


def refuse_options(body: Mapping[str, Any], harmless: Mapping[str, tuple[Any, ...]], ignored: Collection[str]) -> None:
    """Raises UsageError that names the first option of a request that no seat can honour, unless it is `ignored`.

    `harmless` has the options by name, with the values of each that change nothing.
    """
    for name, values in harmless.items():
        value = body.get(name)
        if value is not None and value not in values and name not in ignored:
            allow = f"ignored_options={{{name!r}}}"
            raise UsageError(f"a recorded seat cannot honour `{name}`: leave it out, or let it be ignored with {allow}")


def finish_of(turn: Turn) -> str:
    """Why the answer ended, as chat endpoints name it, also where its tokens were not drawn freely."""
    return "length" if turn.details is not None and turn.details.cut else turn.finish


def requested_format(response_format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """`response_format`; None for plain text."""
    return None if not response_format or response_format.get("type") == "text" else response_format


def schema_format(schema: Mapping[str, Any], name: str = "answer") -> JsonObject:
    """The `response_format` of a JSON schema."""
    return {"type": "json_schema", "json_schema": {"name": name, "schema": dict(schema)}}


def read_stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """The stop texts of a request. Raises UsageError for empty ones, and for too many or too long ones."""
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MAX_STOP_TEXTS or not all(0 < len(text) <= MAX_STOP_CHARS for text in stops):
        raise UsageError(f"stop: at most {MAX_STOP_TEXTS} texts of 1 to {MAX_STOP_CHARS} characters")
    return stops


def read_limit(name: str, value: int | None) -> int | None:
    """The bound of an answer. Raises UsageError for one below 1."""
    if value is not None and value < 1:
        raise UsageError(f"`{name}`: {value} is not at least 1")
    return value


MAX_STOP_TEXTS, MAX_STOP_CHARS = 16, 1000


def render_model(name: str, known: Sequence[str], style: Style) -> JsonObject:
    """Render one model. Where there is only one, any name is its own; UsageError for an unknown one of several."""
    if name not in known and len(known) > 1:
        raise UsageError(f"there is no model {one_line(name)!r}; there are {', '.join(known)}")
    if style == "anthropic":
        return {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
    if style == "google":
        methods = ["generateContent", "countTokens"]
        return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}
    return {"id": name, "object": "model", "created": 0, "owned_by": "wanderlust"}


def render_models(known: Sequence[str], style: Style) -> JsonObject:
    """Render the list of all models."""
    models = [render_model(name, known, style) for name in known]
    if style == "google":
        return {"models": models}
    if style == "anthropic":
        return {"data": models, "has_more": False, "first_id": known[0], "last_id": known[-1]}
    return {"object": "list", "data": models}
