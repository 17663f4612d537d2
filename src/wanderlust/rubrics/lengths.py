"""Lengths of a trajectory as reward functions: `Reward(completion_tokens, -0.001)` takes 1 per 1,000 tokens.

Each returns a count, so that a negative weight makes it a linear penalty, and the score shows the count as a part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from wanderlust.types import Message, Trajectory, Turn

TASK_REWARD = "task_reward"
"""Part of a score that is the task's own reward, where rewards of length are beside it."""
TEXT_PIECE = re.compile(r"</?[a-z_]+>| ?[a-z]+ ?|.", re.DOTALL)
"""Tags and lower-case words are one piece, every other character is one: what a fresh model's tokenizer makes of it."""


def count_pieces(text: str) -> int:
    """Pieces of a text, which stand for tokens where a policy reports none."""
    return sum(1 for _ in TEXT_PIECE.finditer(text))


def completion_tokens(trajectory: Trajectory) -> int:
    """Tokens that the seat wrote in all of its turns; pieces of its texts where the policy reports no tokens."""
    return sum(_written(turn) for turn in trajectory.turns)


def context_tokens(trajectory: Trajectory) -> int:
    """Tokens of the longest context after an answer, prompt and completion; pieces where none are reported."""
    longest = 0
    for number, turn in enumerate(trajectory.turns):
        if "prompt_tokens" in turn.usage:
            read = turn.usage["prompt_tokens"]
        elif turn.tokens is not None:
            read = turn.tokens.offset + len(turn.tokens.prompt)
        else:
            read = _pieces_of(trajectory.conversation(number)[:-1])
        longest = max(longest, read + _written(turn))
    return longest


def turns(trajectory: Trajectory) -> int:
    """Turns that the seat took."""
    return len(trajectory.turns)


def reports_tokens(trajectory: Trajectory) -> bool:
    """Whether the policy said how many tokens every turn took."""
    return all("completion_tokens" in turn.usage or turn.tokens is not None for turn in trajectory.turns)


def _written(turn: Turn) -> int:
    if "completion_tokens" in turn.usage:
        return turn.usage["completion_tokens"]
    return len(turn.tokens.completion) if turn.tokens is not None else _pieces_of([turn.action])


def _pieces_of(messages: Sequence[Message]) -> int:
    texts = [text for m in messages for text in (m.reasoning or "", m.content, *(c.arguments for c in m.tool_calls))]
    return sum(map(count_pieces, texts))
