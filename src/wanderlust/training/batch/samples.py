"""Trajectory to training samples: turns whose contexts extend one another, token by token, become one sample.

Conversations to imitate, as the same samples that reinforcement learning uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from wanderlust.errors import UsageError
from wanderlust.policies.base import NOT_SAMPLED
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.token_conversations import tokens_of
from wanderlust.training.losses import PolicyLoss
from wanderlust.types import Group, Tokens, Trajectory

LOGPROB_TOLERANCE = 1e-3
"""Log-probabilities that are nearer than this are the same but for rounding."""


@dataclass(slots=True, kw_only=True)
class Sample:
    """One trainable token sequence; the lists have one entry per token, `ce`, `kl` and `reference` may be empty.

    The loss is the sum of three terms, each over its own count of tokens: the policy loss where the mask is True,
    cross-entropy weighted by `ce`, and the distance to the reference weighted by `kl`.
    """

    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    """True exactly where the token was sampled (or, for imitation, is to be imitated)."""
    logprobs: list[float] = field(default_factory=list)
    """The sampler's log-probability where the mask is True, else 0."""
    advantages: list[float] = field(default_factory=list)
    ce: list[float] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)
    """The reference's log-probability where `kl` is not 0, else 0."""
    proximal_logprobs: list[float] = field(default_factory=list)
    """The trainer's log-probabilities before the update, once it has looked (only a correction asks for them)."""
    copies: int = 1
    """Number of equal samples that this one replaces."""
    off_policy_until: int = 0
    """Up to here the trained tokens were not sampled by the policy, so they say nothing about the sampler."""
    group: int = -1
    """Number of its group in the step; -1 is of none. What is of one group stays together when work is dealt out."""
    version: int = 0
    """Of the weights that sampled it, the oldest."""
    sampled_tokens: int = -1
    """Tokens that were sampled here, with credit or without; -1: as many as the mask has."""
    episode_tokens: int = -1
    """The same of the whole episode, which several samples share where the chat template rewrites earlier turns."""
    first_of_episode: bool = True
    """False for the second and further samples of an episode: it counts as one sequence."""
    episode: int = -1
    """Number of its episode where several samples share one and their ratios are taken together; -1 is no such."""
    turns: dict[int, tuple[int, int]] = field(default_factory=dict)
    """First place and end of each turn's sampled tokens, by its number in the trajectory; `to_samples` fills it in."""

    @property
    def counted_tokens(self) -> int:
        """Sampled tokens that divisors count; the first token of a sequence has no prediction."""
        return sum(self.mask[1:]) if self.sampled_tokens < 0 else self.sampled_tokens

    @property
    def sequence_tokens(self) -> int:
        """Sampled tokens of its episode, over which a sequence's mean is taken."""
        return self.counted_tokens if self.episode_tokens < 0 else self.episode_tokens

    def append_context(self, ids: Sequence[int]) -> None:
        """Append context that is not trained on."""
        self.ids += ids
        self.mask += [False] * len(ids)
        self.logprobs += [0.0] * len(ids)
        self.advantages += [0.0] * len(ids)

    def append_completion(self, ids: Sequence[int], logprobs: Sequence[float], advantages: Sequence[float]) -> None:
        """Append what is trained on; all three have one entry per token."""
        self.ids += ids
        self.mask += [True] * len(ids)
        self.logprobs += logprobs
        self.advantages += advantages

    def add_terms(self, *, ce: float = 0.0, kl: float = 0.0, reference: Sequence[float] = ()) -> None:
        """Add the other two terms for the tokens that were said last; `reference` has one entry for each of them."""
        weights = [0.0] * (len(self.ids) - len(reference))
        if ce:
            self.ce += [*weights[len(self.ce) :], *[ce] * len(reference)]
        if kl:
            self.kl += [*weights[len(self.kl) :], *[kl] * len(reference)]
            self.reference += [*weights[len(self.reference) :], *reference]

    @property
    def trained_positions(self) -> list[int]:
        """Tokens with a weight in some term; the first token has no prediction."""
        if not self.ce and not self.kl:
            return [i for i, on in enumerate(self.mask) if on and i]
        rest = [*self.ce, *[0.0] * (len(self.ids) - len(self.ce))]
        return [
            i
            for i, (on, ce) in enumerate(zip(self.mask, rest, strict=True))
            if i and (on or ce or (i < len(self.kl) and self.kl[i]))
        ]

    def drop_uncredited(self) -> None:
        """Take tokens without credit out of the mask and cut off what follows the last one that counts."""
        self.mask = [on and credit != 0 for on, credit in zip(self.mask, self.advantages, strict=True)]
        end = max((i + 1 for i, on in enumerate(self.mask) if on), default=0)
        if self.ce or self.kl:
            end = max([end, *(i + 1 for i in self.trained_positions[-1:])])
        for values in (self.ids, self.mask, self.logprobs, self.advantages, self.ce, self.kl, self.reference):
            del values[end:]


def to_samples(trajectory: Trajectory, *, kl: float = 0.0) -> list[Sample]:
    """One sample per conversation, and no more than there are: the mask covers each sampled token in one of them.

    A turn extends the sample whose ids are the longest beginning of its context. Where another turn has extended that
    one already, a new sample begins, in which the ids of the turns before are context. `kl` weighs the distance to the
    trajectory's reference. Raises UsageError when the trajectory holds no tokens, or when a turn claims to extend a
    sequence that is not there: such a trajectory must not be trained on.
    """
    sequences = _Sequences(trajectory)
    for number, turn in enumerate(trajectory.turns):
        if turn.tokens is None:
            raise UsageError("the trajectory holds no tokens: it was played by a policy that does not return them")
        tokens = turn.tokens
        sample = sequences.add_context(number, tokens)
        credit: Sequence[float] = [trajectory.advantage or 0.0] * len(tokens.completion)
        if trajectory.advantages is not None:
            credit = trajectory.advantages[number]
        sample.append_completion(tokens.completion, tokens.logprobs, credit)
        sample.turns[number] = len(sample.ids) - len(tokens.completion), len(sample.ids)
        if trajectory.sft_weight or (kl and trajectory.reference_logprobs is not None):
            reference_logprobs = (
                trajectory.reference_logprobs[number]
                if trajectory.reference_logprobs is not None
                else [0.0] * len(tokens.completion)
            )
            weight = kl if trajectory.reference_logprobs is not None else 0.0
            sample.add_terms(ce=trajectory.sft_weight, kl=weight, reference=reference_logprobs)
        if turn.finish == NOT_SAMPLED:
            sample.off_policy_until = len(sample.ids)
        sequences.ends.append((sample, len(sample.ids)))
    samples = sequences.samples
    for number, sample in enumerate(samples):
        sample.sampled_tokens, sample.first_of_episode = sum(sample.mask[1:]), number == 0
    for sample in samples:
        sample.episode_tokens = sum(s.sampled_tokens for s in samples)
    return samples


def values_by_turn(samples: Sequence[Sample], values: Sequence[Sequence[float]]) -> list[list[float]]:
    """Per turn of a trajectory, the values of its sampled tokens.

    `samples` are all that `to_samples` made of it, `values` has one number per token of each. Samples are in the order
    of conversations, which is not that of the turns: a per-token number goes from one to the other by its turn only.
    """
    of_turn = {
        turn: list(row[first:end])
        for sample, row in zip(samples, values, strict=True)
        for turn, (first, end) in sample.turns.items()
    }
    return [of_turn[turn] for turn in sorted(of_turn)]


def values_by_sample(samples: Sequence[Sample], turns: Sequence[Sequence[float]]) -> list[list[float]]:
    """Per sample, one number per token: that of its turn where it was sampled, else 0. Undoes `values_by_turn`."""
    rows = [[0.0] * len(sample.ids) for sample in samples]
    for sample, row in zip(samples, rows, strict=True):
        for turn, (first, end) in sample.turns.items():
            row[first:end] = turns[turn]
    return rows


@dataclass(slots=True)
class _Sequences:
    """The samples of one trajectory as its turns are added, and where each turn ended."""

    trajectory: Trajectory
    samples: list[Sample] = field(default_factory=list)
    ends: list[tuple[Sample, int]] = field(default_factory=list)

    def add_context(self, number: int, tokens: Tokens) -> Sample:
        """The sample that this turn's completion goes to, after all that was read before it."""
        parent, before, length = self.trajectory.parent(number), Sample(), 0
        if tokens.offset and parent is not None:
            before, length = self.ends[parent]
        if tokens.offset != length:
            raise UsageError(f"turn {number} extends a sequence of {tokens.offset} tokens, but {length} came before")
        new: Sequence[int] = tokens.prompt
        if not length or length < len(before.ids):
            context = [*before.ids[:length], *tokens.prompt]
            found = [sample for sample in self.samples if sample.ids == context[: len(sample.ids)]]
            before = max(found, key=lambda sample: len(sample.ids), default=before)
            if not found:
                self.samples.append(before := Sample())
            new = context[len(before.ids) :]
        before.version = min(before.version, tokens.version) if before.ids else tokens.version
        before.append_context(new)
        return before


def credited_samples(
    groups: Iterable[Group], *, every_token: bool = False, kl: float = 0.0, whole_episodes: bool = False
) -> list[Sample]:
    """Samples of every trainable trajectory that has an advantage, 0 included, or another term.

    Divisors count all of their tokens and sequences. What has no gradient is left out of the mask, and ids after the
    last token with one are cut off: of an episode without credit only the counts remain. With `every_token` (the loss
    has an entropy bonus) nothing is left out. Episodes of a group that did the very same thing with the very same
    probability become one, whose samples have `copies`; the gradient is the same. With `whole_episodes` (ratios of
    sequences) samples that share an episode are numbered by it, and neither cut nor merged.
    """
    merged: dict[tuple[object, ...], list[Sample]] = {}
    episodes = 0
    for group in groups:
        for trajectory in (t for rollout in group.rollouts for t in rollout.trajectories if t.trainable):
            if trajectory.advantage is None and trajectory.advantages is None and not trajectory.sft_weight:
                continue
            samples, episodes = to_samples(trajectory, kl=kl), episodes + 1
            together = whole_episodes and len(samples) > 1
            key: tuple[object, ...] = (group.index,)
            for sample in samples:
                sample.group = group.index
                if not every_token and not (whole_episodes and any(sample.advantages)):
                    sample.drop_uncredited()
                if together and sample.ids:
                    sample.episode = episodes
                key += (
                    *sample.ids,
                    *sample.mask,
                    *sample.advantages,
                    *sample.ce,
                    sample.sampled_tokens,
                    sample.episode,
                )
            while (twins := merged.setdefault(key, samples)) is not samples and not _alike(twins, samples):
                key = (*key, twins[0].version)
            for twin in twins if twins is not samples else ():
                twin.copies += 1
    return [*chain.from_iterable(merged.values())]


def episodes_of(samples: Iterable[Sample]) -> list[list[Sample]]:
    """The samples of each episode (of a pair of answers, of both), which follow one another."""
    out: list[list[Sample]] = []
    for sample in samples:
        if sample.first_of_episode or not out:
            out.append([])
        out[-1].append(sample)
    return out


def build_samples(groups: Sequence[Group], loss: PolicyLoss) -> list[Sample]:
    """What this loss has something to say of; what the reference said is not kept any longer."""
    weight = loss.kl.weight if loss.kl is not None and loss.kl.into == "loss" else 0.0
    correction = loss.correction.level if loss.correction is not None else "token"
    whole = (loss.level, correction) != ("token", "token")
    samples = credited_samples(groups, every_token=loss.entropy > 0, kl=weight, whole_episodes=whole)
    for trajectory in (t for group in groups for rollout in group.rollouts for t in rollout.trajectories):
        trajectory.reference_logprobs = None
    return samples


def _alike(one: Sequence[Sample], other: Sequence[Sample]) -> bool:
    """Whether two episodes of equal tokens were as likely: siblings may have been sampled by different weights."""
    return all(
        a.version == b.version
        and all(abs(x - y) < LOGPROB_TOLERANCE for x, y in zip(a.logprobs, b.logprobs, strict=True))
        for a, b in zip(one, other, strict=True)
    )


def imitation_samples(
    trajectory: Trajectory, renderer: Renderer, *, context: float = 0.0, first: int = 0
) -> list[Sample]:
    """Samples of answers that somebody else gave, with the ids that the model would have read and said there.

    The mask covers the answers of the turns from number `first` on, and their end-of-turn tokens, with advantage 1.
    With `context` above 0 it covers everything, what was read with that advantage: it teaches a fresh model to read.
    There is one sample per conversation, and one per turn where the template rewrites earlier ones. PolicyFailure
    where the template cannot write an answer.
    """
    tokens = tokens_of(trajectory, renderer)
    turns = [replace(turn, tokens=own) for turn, own in zip(trajectory.turns, tokens, strict=True)]
    samples = to_samples(replace(trajectory, turns=turns, advantage=1.0, advantages=None, sft_weight=0.0))
    for sample in samples:
        for turn, (begin, end) in sample.turns.items():
            if turn < first:
                sample.mask[begin:end] = [False] * (end - begin)
        if context:
            sample.advantages = [1.0 if on else context for on in sample.mask]
            sample.mask = [True] * len(sample.ids)
        else:
            sample.advantages = [float(on) for on in sample.mask]
        sample.sampled_tokens = sample.episode_tokens = -1
    return samples


def trajectories_of(groups: Sequence[Group]) -> list[Trajectory]:
    """All trajectories, in order."""
    return [t for group in groups for rollout in group.rollouts for t in rollout.trajectories]
