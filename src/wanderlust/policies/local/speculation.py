"""Guess the next tokens from those sampled before; a pass reads the guesses along and keeps the right ones.

Speculative decoding (arXiv 2211.17192) without a second model: the draws of a request are keyed, so every position has
one token that it draws, and a guess is right or wrong. Answers are the same with and without guessing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

NGRAM_TOKENS = 3
"""Ids that a guess looks back on."""
MAX_DRAFT_TOKENS = 5
"""Most tokens guessed at once."""
MIN_LEAD = 2
"""Votes by which an id must lead to be guessed."""
MAX_NGRAM_ENTRIES = 65_536
"""Entries held; when there are more, all are forgotten."""


@dataclass(slots=True)
class NGramSpeculator:
    """For every n-gram of ids, the id that mostly followed (Boyer & Moore's majority vote)."""

    votes: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    """The leading id and its lead."""

    def learn(self, ids: Sequence[int], new: int) -> None:
        """Count the last `new` ids."""
        if len(self.votes) >= MAX_NGRAM_ENTRIES:
            self.votes.clear()
        for end in range(max(len(ids) - new, NGRAM_TOKENS), len(ids)):
            before, came = tuple(ids[end - NGRAM_TOKENS : end]), ids[end]
            leading, lead = self.votes.get(before, (came, 0))
            if leading == came:
                self.votes[before] = (leading, min(lead + 1, 4 * MIN_LEAD))
            else:
                self.votes[before] = (leading, lead - 1) if lead > 1 else (came, 1)

    def propose(self, ids: Sequence[int], room: int) -> tuple[int, ...]:
        """Guess the ids that follow, at most `room`; none without a clear majority."""
        tail, out = tuple(ids[-NGRAM_TOKENS:]), list[int]()
        while len(out) < min(room, MAX_DRAFT_TOKENS):
            leading, lead = self.votes.get(tail, (0, 0))
            if lead < MIN_LEAD:
                break
            out.append(leading)
            tail = (*tail[1:], leading)
        return tuple(out)
