"""What thinking costs in time of the world: always a number that somebody chose, and that the log keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from wanderlust.types import Turn
from wanderlust.worlds.engine.log import ENGINE, LogEntry

ThinkingTime: TypeAlias = Callable[[Sequence[Turn], float], float]
"""Seconds of the world's clock to charge for the last of the seat's turns, given the wall-clock seconds it took."""
THINKING_REASON = "thinking"
"""The reason that stands in the log."""


def no_thinking_time(turns: Sequence[Turn], measured: float) -> float:
    """Thinking takes no time."""
    return 0.0


def fixed_thinking_time(seconds: float) -> ThinkingTime:
    """Every turn takes as long."""
    return lambda turns, measured: seconds


def thinking_time_per_token(seconds: float, *, fallback: float = 0.25) -> ThinkingTime:
    """So many seconds for each token that was written.

    Tokens are those that were sampled, else those that the policy reported, else `fallback` of one per character.
    """

    def charge(turns: Sequence[Turn], measured: float) -> float:
        turn = turns[-1]
        if turn.tokens is not None:
            return seconds * len(turn.tokens.completion)
        if "completion_tokens" in turn.usage:
            return seconds * turn.usage["completion_tokens"]
        action = turn.action
        written = (
            len(action.content) + len(action.reasoning or "") + sum(len(call.arguments) for call in action.tool_calls)
        )
        return seconds * fallback * written

    return charge


def measured_thinking_time(turns: Sequence[Turn], measured: float) -> float:
    """As long as it really took. Only a recording can be replayed: use `recorded_thinking_time`."""
    return measured


def charged_seconds(log: Iterable[LogEntry], why: str = THINKING_REASON) -> list[float]:
    """What was charged for each turn of a log, in order, for this reason."""
    return [h.args["seconds"] for h in log if h.app == ENGINE and h.action == "advance" and h.args["why"] == why]


def decision_lines(log: Iterable[LogEntry], why: str = THINKING_REASON) -> list[int]:
    """The lines before which the agent decided what to do: those that charge it for that, in order."""
    return [n for n, h in enumerate(log) if h.app == ENGINE and h.action == "advance" and h.args["why"] == why]


def recorded_thinking_time(log: Iterable[LogEntry], why: str = THINKING_REASON) -> ThinkingTime:
    """What each turn was charged when this log was made, whatever it takes now. IndexError for a turn it has not."""
    seconds = charged_seconds(log, why)
    return lambda turns, measured: seconds[len(turns) - 1]
