"""One conversation's ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Context:
    """One conversation's ids as the model has read them."""

    ids: list[int] = field(default_factory=list)
    """Every id of the context, sampled ones included; grows by `append` only."""
    digest: int = 0
    """Stands for `ids`: two contexts of one digest and length hold the same ids."""
    seen: int = 0
    """How many of them are in the memory."""
    row: int = -1
    """Place in the memory; -1 when it has none."""
    draft: tuple[int, ...] = ()
    """Guesses of the ids that follow, to be read along by the next pass."""

    @property
    def end(self) -> int:
        """Where the next pass stops reading."""
        return len(self.ids) + len(self.draft)

    def append(self, ids: Sequence[int]) -> None:
        """Let the context grow."""
        for token in ids:
            self.digest = hash((self.digest, token))
        self.ids += ids
