"""The world's time that thinking costs: a number that the caller chose, recorded in the log."""

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
    """The seconds charged for each turn of a log, in order, for this reason."""
    return [h.args["seconds"] for h in log if h.app == ENGINE and h.action == "advance" and h.args["why"] == why]


def decision_lines(log: Iterable[LogEntry], why: str = THINKING_REASON) -> list[int]:
    """The line of each decision of the agent, in order: the one that charges its thinking time."""
    return [n for n, h in enumerate(log) if h.app == ENGINE and h.action == "advance" and h.args["why"] == why]


def recorded_thinking_time(log: Iterable[LogEntry], why: str = THINKING_REASON) -> ThinkingTime:
    """The seconds that each turn was charged in this log. IndexError for a turn beyond it."""
    seconds = charged_seconds(log, why)
    return lambda turns, measured: seconds[len(turns) - 1]
