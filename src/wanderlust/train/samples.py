"""Trajectory to training samples: turns that extend one token sequence become one sample."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from wanderlust.core.errors import UsageError
from wanderlust.core.types import Group, Tokens, Trajectory


@dataclass(slots=True, kw_only=True)
class Sample:
    """One trainable token sequence; the four lists have one entry per token."""

    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    """True exactly where the token was sampled (or, for imitation, is to be imitated)."""
    logprobs: list[float] = field(default_factory=list)
    """The sampler's log-probability where the mask is True, else 0."""
    advantages: list[float] = field(default_factory=list)

    def extend(
        self, ids: Sequence[int], *, trained: bool, logprobs: Sequence[float] = (), advantage: float = 0.0
    ) -> None:
        """Append ids; untrained ones carry no log-probability and no advantage."""
        self.ids += ids
        self.mask += [trained] * len(ids)
        self.logprobs += logprobs if trained else [0.0] * len(ids)
        self.advantages += [advantage if trained else 0.0] * len(ids)


def to_samples(trajectory: Trajectory) -> list[Sample]:
    """One sample per unbroken sequence; the mask covers exactly the sampled tokens.

    Raises UsageError when the trajectory holds no tokens, or when a turn claims to extend a sequence that is not
    there: such a trajectory must not be trained on.
    """
    samples: list[Sample] = []
    for number, turn in enumerate(trajectory.turns):
        tokens = _tokens(turn.tokens)
        if tokens.offset == 0:
            samples.append(Sample())
        elif not samples or tokens.offset != len(samples[-1].ids):
            have = len(samples[-1].ids) if samples else 0
            raise UsageError(f"turn {number} extends a sequence of {tokens.offset} tokens, but {have} came before")
        samples[-1].extend(tokens.prompt, trained=False)
        samples[-1].extend(
            tokens.completion, trained=True, logprobs=tokens.logprobs, advantage=trajectory.advantage or 0.0
        )
    return samples


def live_samples(groups: Iterable[Group]) -> list[Sample]:
    """Samples of every trainable trajectory whose advantage is not zero: the others have no gradient."""
    return [
        sample
        for group in groups
        for rollout in group.rollouts
        for trajectory in rollout.trajectories
        if trajectory.trainable and trajectory.advantage
        for sample in to_samples(trajectory)
    ]


def _tokens(tokens: Tokens | None) -> Tokens:
    if tokens is None:
        raise UsageError("the trajectory holds no tokens: it was played by a policy that does not return them")
    return tokens
