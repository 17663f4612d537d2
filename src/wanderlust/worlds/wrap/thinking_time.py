"""What thinking costs in time of the world: always a number that somebody chose, and that the log keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from wanderlust.types import Turn
from wanderlust.worlds.engine.log import ENGINE, Happened

Thinking: TypeAlias = Callable[[Sequence[Turn], float], float]
"""Seconds of the world's clock to charge for the last of the seat's turns, given the wall-clock seconds it took."""
WHY = "thinking"
"""The reason that stands in the log."""


def nothing(turns: Sequence[Turn], measured: float) -> float:
    """Thinking takes no time."""
    return 0.0


def fixed(seconds: float) -> Thinking:
    """Every turn takes as long."""
    return lambda turns, measured: seconds


def per_token(seconds: float, *, fallback: float = 0.25) -> Thinking:
    """So many seconds for each token that was written.

    Tokens are those that were sampled, else those that the policy reported, else `fallback` of one per character.
    """

    def charge(turns: Sequence[Turn], measured: float) -> float:
        turn = turns[-1]
        if turn.tokens is not None:
            return seconds * len(turn.tokens.completion)
        if "completion_tokens" in turn.usage:
            return seconds * turn.usage["completion_tokens"]
        said = turn.action
        written = len(said.content) + len(said.reasoning or "") + sum(len(call.arguments) for call in said.tool_calls)
        return seconds * fallback * written

    return charge


def measured(turns: Sequence[Turn], measured: float) -> float:
    """As long as it really took. Only a recording can be replayed: use `recorded`."""
    return measured


def charges(log: Iterable[Happened], why: str = WHY) -> list[float]:
    """What was charged for each turn of a log, in order, for this reason."""
    return [h.args["seconds"] for h in log if h.app == ENGINE and h.action == "advance" and h.args["why"] == why]


def decisions(log: Iterable[Happened], why: str = WHY) -> list[int]:
    """The lines before which the agent decided what to do: those that charge it for that, in order."""
    return [n for n, h in enumerate(log) if h.app == ENGINE and h.action == "advance" and h.args["why"] == why]


def recorded(log: Iterable[Happened], why: str = WHY) -> Thinking:
    """What each turn was charged when this log was made, whatever it takes now. IndexError for a turn it has not."""
    known = charges(log, why)
    return lambda turns, measured: known[len(turns) - 1]
