"""ExIt's group-relative advantages (arXiv 2509.04575): of answers unlike the rest of their group, and of revisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum, sqrt
from operator import mul
from typing import TypeAlias
from zlib import crc32

from wanderlust.tasks.curriculum.exit import INFO_KEY, REVISED_KEY
from wanderlust.training import losses
from wanderlust.training.algorithms.base import scored_by_seat
from wanderlust.training.algorithms.grpo import MIN_REWARD_RANGE, GroupRelative
from wanderlust.training.losses import PolicyLoss
from wanderlust.types import Group, Trajectory

Embed: TypeAlias = Callable[[str], Sequence[float]]
"""A text as a vector; all vectors are of one length."""

EMBEDDING_SIZE = 256
MAX_EMBEDDED_CHARS = 20_000
"""Characters of a text that are embedded."""
MIN_EMBEDDING_RANGE = 1e-9
"""Rollouts of a group whose distances differ by less count as alike."""


@lru_cache(maxsize=1 << 14)
def hashed_embedding(text: str) -> tuple[float, ...]:
    """Counts of a text's words, and of its runs of three characters, hashed into 256 numbers of unit length.

    Nothing to download and the same on every machine; it sees wording, not meaning.
    """
    text = text.lower()[:MAX_EMBEDDED_CHARS]
    out = [0.0] * EMBEDDING_SIZE
    for piece in (*text.split(), *(text[at : at + 3] for at in range(len(text) - 2))):
        out[crc32(piece.encode("utf-8", "surrogatepass")) % EMBEDDING_SIZE] += 1.0
    length = sqrt(sum(value * value for value in out))
    return tuple(value / length for value in out) if length else tuple(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiversityBonus(GroupRelative):
    """Multiplies a sibling's advantage by how far it is from the group's mean in an embedding of what it said.

    The factor is |e - mean| / (max - min of that over the group), at most `max_factor`: where all siblings are about as
    far, the paper's factor has no bound. It is 1 where they are exactly as far, as in a group of two.

    The paper's product has no zero mean: one odd wrong answer among equal right ones is pushed down without the right
    ones being pushed up. So the baseline is the mean weighted by the factors, and the advantages of a group sum to 0.
    """

    loss: PolicyLoss = losses.GRPO_LOSS
    embed: Embed = hashed_embedding
    max_factor: float = 2.0

    async def assign_advantages(self, group: Group) -> None:
        """As without it; then the factors, seat by seat."""
        await GroupRelative.assign_advantages(self, group)
        for seat in scored_by_seat(group):
            factors = self.diversity_factors(
                ["\n".join(turn.action.content for turn in trajectory.turns) for trajectory, _ in seat]
            )
            advantages = [trajectory.advantage or 0.0 for trajectory, _ in seat]
            baseline = fsum(map(mul, factors, advantages)) / fsum(factors) if any(factors) else 0.0
            for (trajectory, _), factor, advantage in zip(seat, factors, advantages, strict=True):
                trajectory.advantage = factor * (advantage - baseline)

    def diversity_factors(self, texts: Sequence[str]) -> list[float]:
        """The factor of each advantage."""
        vectors = [self.embed(text) for text in texts]
        mean = [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]
        far = [sqrt(sum((a - b) ** 2 for a, b in zip(one, mean, strict=True))) for one in vectors]
        width = max(far, default=0.0) - min(far, default=0.0)
        return [min(one / width, self.max_factor) for one in far] if width > MIN_EMBEDDING_RANGE else [1.0] * len(far)


@dataclass(frozen=True, slots=True, kw_only=True)
class Improvement(GroupRelative):
    """Pays a revision for what it adds: max(0, (R - before) / (best - before)) (ExIt, arXiv 2509.04575, appendix A).

    `before` is the reward of the answer that is revised, `best` the highest reward of the run so far. Groups that
    revise nothing, or are asked for another answer rather than a better one, are paid R.
    """

    loss: PolicyLoss = losses.GRPO_LOSS

    def paid(self, group: Group, trajectory: Trajectory, reward: float) -> float:
        """The share of what there was to add."""
        reward = GroupRelative.paid(self, group, trajectory, reward)
        revised = group.task.info.get(INFO_KEY, {}).get(REVISED_KEY)
        if revised is None:
            return reward
        before, best = revised
        return max(0.0, reward - before) / (best - before) if best - before > MIN_REWARD_RANGE else 0.0
