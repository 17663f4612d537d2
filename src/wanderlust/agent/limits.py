"""Bounds of an episode, and what it has used of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol

from wanderlust.errors import UsageError
from wanderlust.types import Completion

MAX_NOTE_CHARS = 64
"""Bound of the note about a cut."""
MIN_TOOL_CHARS = 100
"""Smallest bound of a tool message: the note about the cut has to fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one episode; reaching one truncates the episode, which is scored, with the bound's name as stop reason.

    Bounds are looked at before each turn, so the turn that crosses one is the last. Tokens are those that the policy
    reports; a policy that reports none is bounded by turns and time alone.

    Example:
        >>> Limits(max_turns=8, timeout=60.0).max_turns
        8
    """

    max_turns: int = 32
    """Turns per seat."""
    timeout: float | None = None
    """Wall-clock seconds for the whole episode; None is no limit."""
    max_episode_tokens: int | None = None
    """Completion tokens of all seats together."""
    max_context_tokens: int | None = None
    """Tokens of a seat's conversation after a turn, prompt and completion."""
    max_tool_chars: int | None = None
    """Characters of one tool message; a longer one is cut, with a note for the model, and the episode goes on."""
    max_episode_cost: float | None = None
    """Dollars of all seats together, by the prices of the run."""
    refusals: Literal["answer", "failure"] = "answer"
    """What a turn is in which the model's API says that it refused: an answer like any other, or a PolicyFailure."""

    def __post_init__(self) -> None:
        """Raises UsageError for a bound below its least value."""
        for name, value in self.given().items():
            least = MIN_TOOL_CHARS if name == "max_tool_chars" else 1 if name.endswith(("turns", "tokens")) else 0
            if not value >= least:  # nan is no bound
                raise UsageError(f"the limit {name} is {value:g}: it must be at least {least}")

    def given(self) -> dict[str, float]:
        """The bounds that are set, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None and name != "refusals"}

    def tightened(self, other: Limits) -> Limits:
        """The tighter of each bound of both."""
        ours = self.given()
        tighter: dict[str, Any] = {name: min(value, ours.get(name, value)) for name, value in other.given().items()}
        stricter = other.refusals if self.refusals == "answer" else self.refusals
        return replace(self, **tighter, refusals=stricter)


class Prices(Protocol):
    """What tokens cost."""

    def cost_of(self, usage: Mapping[str, int]) -> float:
        """Dollars of one turn with this usage."""
        ...


@dataclass(slots=True, kw_only=True)
class Spending:
    """What an episode, or a whole run, has used so far."""

    prices: Prices | None = None
    run: Spending | None = None
    """Of the run that the episode belongs to."""
    completion_tokens: int = 0
    dollars: float = 0.0

    def add(self, completion: Completion) -> int:
        """Count one turn; returns the tokens of its conversation after it, 0 where the policy does not report them."""
        usage = completion.usage
        if not usage and (tokens := completion.tokens) is not None:
            read = tokens.offset + len(tokens.prompt)
            usage = {"prompt_tokens": read, "completion_tokens": len(tokens.completion)}
        written = usage.get("completion_tokens", 0)
        dollars = self.prices.cost_of(usage) if self.prices is not None else 0.0
        for one in (self, self.run):
            if one is not None:
                one.completion_tokens += written
                one.dollars += dollars
        return usage.get("prompt_tokens", 0) + written

    def reached(self, limits: Limits) -> str:
        """Name of the bound of the episode that has been reached; empty when there is none."""
        if limits.max_episode_tokens is not None and self.completion_tokens >= limits.max_episode_tokens:
            return "max_episode_tokens"
        if limits.max_episode_cost is not None and self.dollars >= limits.max_episode_cost:
            return "max_episode_cost"
        return ""


def cut_text(text: str, limit: int) -> str:
    """The start of a longer text and a note that says so, together at most `limit` characters (MIN_TOOL_CHARS or more).

    A text that was cut is not cut again.
    """
    if len(text) <= limit:
        return text
    room = limit - len(_note(limit, len(text)))
    return text[:room] + _note(room, len(text))


def _note(room: int, length: int) -> str:
    return f"\n[cut: the first {room} of {length} characters]"
