"""Gradients against the papers' formulas written out: ragged, multi-turn, partly without credit, under any template."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

import pytest
import torch
from benchmarks.peer import TRL, made
from torch import Tensor

from project_files import ROOT
from toys import fresh
from wanderlust.training import losses
from wanderlust.training.algorithms.presets import ALGORITHMS, with_loss
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import build_samples, episodes_of
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.losses import KL, PolicyLoss
from wanderlust.training.trainers.process_pool import minibatches, shard_samples
from wanderlust.types import Group, Rollout, Score, Task, Tokens, Trajectory, Turn, assistant

VOCABULARY = 11
CONSTANT = 7
"""Tokens per sequence in Dr. GRPO's divisor."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """One rollout: the sequences that the model read, each as (ids, is it sampled), and its reward."""

    sequences: list[list[tuple[int, bool]]]
    reward: float
    old: list[list[float]]
    """The sampler's log-probability of each sampled id, by sequence."""


def play(model: Any, *, rewriting: float, seed: int = 0) -> list[list[Played]]:
    """Six groups of five rollouts, three of them without credit; the sampler is the model with noise on its logs.

    A share of `rewriting` of the rollouts had turns rendered afresh, so that an episode is several sequences. Two
    rollouts of a group are the very same.
    """
    rng = Random(seed)
    groups = []
    for number in range(6):
        rewards = [float(number % 2)] * 5 if number < 3 else [rng.choice([0.0, 0.3, 1.0]) for _ in range(5)]
        prompt, group = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 4))], list[Played]()
        for reward in rewards[:4]:
            sequences = [[(token, False) for token in prompt]]
            for turn in range(rng.randint(1, 4)):
                if turn and rng.random() < rewriting:
                    sequences.append([(token, False) for token in prompt])
                if turn:
                    sequences[-1] += [(rng.randrange(VOCABULARY), False) for _ in range(rng.randint(1, 2))]
                sequences[-1] += [(rng.randrange(VOCABULARY), True) for _ in range(rng.randint(1, 4))]
            sequences = [s for s in sequences if any(on for _, on in s)]
            old = [[float(p) + rng.gauss(0, 0.25) for p in logprobs(model, s)[0].detach()] for s in sequences]
            group.append(Played(sequences=sequences, reward=reward, old=old))
        groups.append([*group, group[-1]])
    assert any(len(p.sequences) > 1 for g in groups for p in g) == (rewriting > 0)
    return groups


def logprobs(model: Any, sequence: Sequence[tuple[int, bool]]) -> tuple[Tensor, Tensor]:
    """Log-probability of each sampled id of one sequence, and the entropy where it was drawn; read alone."""
    ids = torch.tensor([[token for token, _ in sequence]])
    logp = model(ids).logits[0, :-1].log_softmax(-1)
    places = torch.tensor([i for i, (_, on) in enumerate(sequence) if on])
    return logp[places - 1, ids[0, places]], -(logp.exp() * logp).sum(-1)[places - 1]


def as_groups(played: list[list[Played]], reference: Any = None) -> list[Group]:
    """The same as the runner would hand it over."""
    groups = []
    for index, group in enumerate(played):
        rollouts = []
        for number, one in enumerate(group):
            turns, held = list[Turn](), list[list[float]]()
            for sequence, old in zip(one.sequences, one.old, strict=True):
                known = logprobs(reference, sequence)[0].tolist() if reference is not None else [0.0] * len(old)
                place = said = 0
                while place < len(sequence):
                    start = place
                    while not sequence[place][1]:
                        place += 1
                    first = place
                    while place < len(sequence) and sequence[place][1]:
                        place += 1
                    prompt, answer = sequence[start:first], sequence[first:place]
                    count = len(answer)
                    tokens = Tokens(
                        prompt=tuple(t for t, _ in prompt),
                        completion=tuple(t for t, _ in answer),
                        logprobs=tuple(old[said : said + count]),
                        offset=start,
                    )
                    turns.append(Turn(observation=(), action=assistant("x"), tokens=tokens))
                    held.append(known[said : said + count])
                    said += count
            trajectory = Trajectory(turns=turns, score=Score(reward=one.reward))
            if reference is not None:
                trajectory.reference_logprobs = held
            rollouts.append(Rollout(task=Task(id=str(index)), seed=0, sample_index=number, trajectories=[trajectory]))
        groups.append(Group(task=Task(id=str(index)), rollouts=rollouts, index=index))
    return groups


def grpo(r: list[float]) -> list[float]:
    spread = stdev(r)
    return [0.0] * len(r) if max(r) == min(r) else [(x - fmean(r)) / (spread + 1e-4) for x in r]


def centred(r: list[float]) -> list[float]:
    return [x - fmean(r) for r_ in [r] for x in r_]


def others(r: list[float]) -> list[float]:
    return [x - (sum(r) - x) / (len(r) - 1) for x in r]


def clipped(low: float, high: float) -> Callable[[Tensor, Tensor, float], Tensor]:
    return lambda ratio, logp, a: torch.minimum(ratio * a, ratio.clamp(low, high) * a)


PAPERS: dict[str, tuple[Any, Any, str, bool]] = {
    "grpo": (grpo, clipped(0.8, 1.2), "sequences", False),
    "dr-grpo": (centred, clipped(0.8, 1.2), "constant", False),
    "dapo": (grpo, clipped(0.8, 1.28), "tokens", False),
    "cispo": (grpo, lambda ratio, logp, a: ratio.clamp(0, 5).detach() * a * logp, "tokens", False),
    "gspo": (grpo, clipped(1 - 3e-4, 1 + 4e-4), "sequences", True),
    "rloo": (others, lambda ratio, logp, a: ratio * a, "tokens", False),
    "reinforce": (list, lambda ratio, logp, a: a * logp, "tokens", False),
}
"""Advantages, surrogate of ratio, log-probability and advantage, divisor, and whether the ratio is the sequence's."""


def written_out(
    model: Any, played: list[list[Played]], name: str, reference: Any, *, kl: KL | None, entropy: float
) -> Tensor:
    """The gradient by the formulas; an episode is one sequence, and every sampled token and sequence counts."""
    advantages, surrogate, divisor, of_sequence = PAPERS[name]
    if name == "dapo":  # its groups without a signal are replaced before the update
        played = [group for group in played if len({one.reward for one in group}) > 1]
    losses_of, bonuses = list[Tensor](), list[Tensor]()
    for group in played:
        for one, a in zip(group, advantages([p.reward for p in group]), strict=True):
            read = [logprobs(model, sequence) for sequence in one.sequences]
            logp, old = torch.cat([p for p, _ in read]), torch.tensor([p for row in one.old for p in row])
            ratio = (logp - old).mean().exp().expand_as(logp) if of_sequence else (logp - old).exp()
            loss = -surrogate(ratio, logp, a)
            if kl is not None:
                x = logp - torch.cat([logprobs(reference, s)[0] for s in one.sequences]).detach()
                loss = loss + kl.weight * (x.square() / 2 if kl.estimator == "k2" else (-x).exp() - 1 + x)
            losses_of.append(loss)
            bonuses.append(torch.cat([e for _, e in read]))
    if divisor == "sequences":
        total = torch.stack([loss.mean() for loss in losses_of]).mean()
    elif divisor == "constant":
        total = torch.cat(losses_of).sum() / (len(losses_of) * CONSTANT)
    else:
        total = torch.cat(losses_of).mean()
    total = total - entropy * torch.cat(bonuses).mean()
    model.zero_grad()
    total.backward()  # type: ignore[no-untyped-call]
    out = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    model.zero_grad()
    return out


def ours(model: Any, groups: list[Group], name: str, *, kl: KL | None, entropy: float, fast: bool) -> Tensor:
    """The gradient as a step computes it: by shard, whose gradients are added."""
    method: Any = ALGORITHMS[name]
    changes: dict[str, Any] = {"kl": kl, "entropy": entropy}
    method = with_loss(method, replace(method.loss, constant=CONSTANT, **changes))
    if name == "dapo":
        method = replace(method, overlong=None)
    for group in groups:
        asyncio.run(method.assign_advantages(group))
    samples = build_samples(groups, method.loss)
    computer, totals = (
        GradientComputer(model, loss=method.loss, micro_batch=3, fast=fast),
        BatchTotals.of(samples, method.loss),
    )
    return combine([computer.gradient(shard, totals) for shard in shard_samples(samples, 2)], totals.rl).values


def apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    """A policy and its reference, in float64: what is left is not rounding."""
    policy = fresh(0).double()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return policy, fresh(3).double()


TERMS = {
    "plain": (None, 0.0),
    "k3": (KL(weight=0.3), 0.0),
    "k2": (KL(weight=0.3, estimator="k2"), 0.0),
    "entropy": (None, 0.2),
    "both": (KL(weight=0.1), 0.1),
}


@pytest.mark.parametrize("rewriting", [0.0, 0.6])
@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("name", PAPERS)
def test_the_gradient_is_the_papers(models: tuple[Any, Any], name: str, term: str, rewriting: float) -> None:
    policy, reference = models
    kl, entropy = TERMS[term]
    played = play(policy, rewriting=rewriting)
    wanted = written_out(policy, played, name, reference, kl=kl, entropy=entropy)
    groups = as_groups(played, reference if kl is not None else None)
    assert apart(ours(policy, groups, name, kl=kl, entropy=entropy, fast=False), wanted) < 1e-5


@pytest.mark.parametrize("name", ["grpo", "cispo", "gspo"])
def test_token_trees_give_the_same(name: str) -> None:
    policy = fresh(0)
    played = play(policy, rewriting=0.0)
    wanted = written_out(policy, played, name, None, kl=None, entropy=0.0)
    assert apart(ours(policy, as_groups(played), name, kl=None, entropy=0.0, fast=True), wanted) < 1e-5


def test_a_batch_without_any_credit_still_has_its_bonus_and_its_distance(models: tuple[Any, Any]) -> None:
    policy, reference = models
    played = [group for group in play(policy, rewriting=0.3) if len({one.reward for one in group}) == 1]
    assert len(played) == 3
    kl = KL(weight=0.3)
    wanted = written_out(policy, played, "grpo", reference, kl=kl, entropy=0.2)
    assert wanted.norm() > 0
    assert apart(ours(policy, as_groups(played, reference), "grpo", kl=kl, entropy=0.2, fast=False), wanted) < 1e-5


@pytest.mark.parametrize("name", ["grpo", "dr-grpo", "cispo", "gspo"])
@pytest.mark.parametrize(("parts", "shards"), [(3, 2), (5, 1), (6, 4)])
def test_parts_of_a_step_have_as_many_episodes_each_and_cut_none(
    models: tuple[Any, Any], name: str, parts: int, shards: int
) -> None:
    """Six groups of five: three without credit, of which only the counts are left, and in each of the others two that
    are the same; most episodes are several sequences."""
    policy, _ = models
    groups = as_groups(play(policy, rewriting=0.6))
    method: Any = ALGORITHMS[name]
    method = with_loss(method, replace(method.loss, constant=CONSTANT))
    for group in groups:
        asyncio.run(method.assign_advantages(group))
    samples, loss = build_samples(groups, method.loss), method.loss
    batches = minibatches(samples, parts=parts, shards=shards)
    read = [{id(sample) for sample in batch if sample.ids} for batch in batches]
    assert sum(map(len, read)) == len(set().union(*read)) == sum(bool(sample.ids) for sample in samples)
    for episode in episodes_of(samples):
        own = {id(sample) for sample in episode if sample.ids}
        assert sum(bool(own & batch) for batch in read) == bool(own)
    divisors = [BatchTotals.of(batch, loss) for batch in batches]
    whole = BatchTotals.of(samples, loss)
    assert sum(one.tokens for one in divisors) == whole.tokens
    if loss.normaliser == "sequences":
        assert [one.rl for one in divisors] == [30 / parts] * parts
    if loss.normaliser == "constant":
        assert [one.rl for one in divisors] == [30 / parts * CONSTANT] * parts
    computer = GradientComputer(policy, loss=loss, micro_batch=3)
    gradients = [
        combine([computer.gradient(batch)]).values * one.rl for batch, one in zip(batches, divisors, strict=True)
    ]
    assert apart(torch.stack(gradients).sum(0) / whole.rl, combine([computer.gradient(samples)]).values) < 1e-9


def test_sixteen_episodes_of_several_sequences_in_eight_parts_are_two_each(models: tuple[Any, Any]) -> None:
    policy, _ = models
    groups = as_groups([group[:4] for group in play(policy, rewriting=0.9, seed=1)[2:]])
    method = ALGORITHMS["grpo"]
    for group in groups:
        asyncio.run(method.assign_advantages(group))
    samples = build_samples(groups, method.loss)
    assert len(samples) > len(episodes_of(samples))
    batches = minibatches(samples, parts=8, shards=2)
    assert [BatchTotals.of(batch, method.loss).rl for batch in batches] == [2] * 8


TRL_LOSSES = {"grpo": "grpo", "dr-grpo": "dr_grpo", "dapo": "dapo", "cispo": "cispo", "gspo": "grpo"}


@pytest.mark.skipif(made(TRL) is None, reason="TRL is not installed: make peers")
@pytest.mark.parametrize("name", TRL_LOSSES)
@pytest.mark.parametrize(("beta", "entropy"), [(0.0, 0.0), (0.2, 0.1)])
def test_the_gradient_is_trls(models: tuple[Any, Any], name: str, beta: float, entropy: float, tmp_path: Path) -> None:
    """TRL's own `_compute_loss` over the same rows, in a process of its own; groups without credit included."""
    policy, reference = models
    played = play(policy, rewriting=0.0)
    if name == "dapo":
        played = [group for group in played if len({one.reward for one in group}) > 1]
    kl = KL(weight=beta) if beta else None
    wanted = torch.tensor(
        trl_gradient(policy, played, name, reference if beta else None, beta=beta, entropy=entropy, folder=tmp_path)
    )
    groups = as_groups(played, reference if beta else None)
    assert apart(ours(policy, groups, name, kl=kl, entropy=entropy, fast=False), wanted.double()) < 1e-5


def trl_gradient(
    model: Any, played: list[list[Played]], name: str, reference: Any, *, beta: float, entropy: float, folder: Path
) -> list[float]:
    """The gradient of TRL's loss, all parameters in the model's order."""
    rows = []
    for group in played:
        for one, a in zip(group, PAPERS[name][0]([p.reward for p in group]), strict=True):
            (sequence,), (old,) = one.sequences, one.old
            held = logprobs(reference, sequence)[0].tolist() if reference is not None else None
            rows.append({"sequence": sequence, "old": old, "reference": held, "advantage": a})
    model.save_pretrained(folder / "model")
    loss: PolicyLoss = ALGORITHMS[name].loss
    asked = {
        "model": str(folder / "model"),
        "rows": rows,
        "loss_type": TRL_LOSSES[name],
        "low": 1 - loss.ratio_min,
        "high": loss.ratio_max - 1 if name != "cispo" else loss.ratio_max,
        "level": "sequence" if name == "gspo" else "token",
        "beta": beta,
        "entropy": entropy,
        "constant": CONSTANT,
    }
    (folder / "asked.json").write_text(json.dumps(asked))
    python = made(TRL)
    assert python is not None
    script = ROOT / "tests" / "trl_loss.py"
    ran = subprocess.run([python, script, folder / "asked.json"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    out: list[float] = json.loads(ran.stdout.splitlines()[-1])
    return out


def test_losses_of_the_table_are_those_of_the_algorithms() -> None:
    assert ALGORITHMS["gspo"].loss == losses.GSPO_LOSS
    assert {name: ALGORITHMS[name].loss.normaliser for name in PAPERS} == {name: p[2] for name, p in PAPERS.items()}
