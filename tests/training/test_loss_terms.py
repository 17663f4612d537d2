"""Ratio, clip, correction, leash and the three terms of the loss, against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from toys import TOKENIZER, fresh
from wanderlust.errors import UsageError
from wanderlust.training import losses
from wanderlust.training.algorithms.presets import ALGORITHMS
from wanderlust.training.batch.collate import BatchTotals, collate
from wanderlust.training.batch.samples import Sample
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.losses import KL, Correction, PolicyLoss, kl_estimate, token_losses


def logs(*probabilities: float) -> Tensor:
    return torch.log(torch.tensor(probabilities, dtype=torch.float64))


def weights(new: Tensor, old: Tensor, a: Tensor, loss: PolicyLoss, **more: Tensor) -> list[float]:
    """w in grad L = -w grad log p, per token."""
    new = new.clone().requires_grad_()
    token_losses(new, old, a, loss=loss, **more)[0].sum().backward()
    assert new.grad is not None
    return (-new.grad).tolist()


def test_dual_clip_bounds_what_counts_against_a_token() -> None:
    dual = replace(losses.PPO_LOSS, ratio_dual=3.0)
    old, new = logs(0.001, 0.5, 0.001, 0.5), logs(0.02, 0.8, 0.02, 0.4)
    a = torch.tensor([-1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    assert weights(new, old, a, losses.PPO_LOSS) == pytest.approx([-20, -1.6, 0, -0.8])
    assert weights(new, old, a, dual) == pytest.approx([0, -1.6, 0, -0.8])


def test_gspo_moves_a_sequence_as_a_whole() -> None:
    # two sequences of two tokens: ratios 1.21 and 1 (geometric mean 1.1), 0.5 and 2 (mean 1)
    old, new = logs(0.5, 0.4, 0.4, 0.2), logs(0.605, 0.4, 0.2, 0.4)
    rows, a = torch.tensor([0, 0, 1, 1]), torch.tensor([1.0, 1.0, -2.0, -2.0], dtype=torch.float64)
    wide = replace(losses.GSPO_LOSS, ratio_min=0.8, ratio_max=1.2)
    assert weights(new, old, a, wide, rows=rows) == pytest.approx([1.1, 1.1, -2, -2])
    assert weights(new, old, a, losses.GSPO_LOSS, rows=rows) == pytest.approx([0, 0, -2, -2])
    product = PolicyLoss(clip="unclipped", level="sequence")
    assert weights(new, old, a, product, rows=rows) == pytest.approx([2 * 1.21, 2 * 1.21, -4, -4])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (losses.TIS, (2, 1.5, 0.1, 2)),  # sampler -> trainer: 4, 1.5, 0.1, 18
        (losses.MIS, (4, 1.5, 0, 0)),
        (Correction(kind="truncated", ratio_max=8, level="sequence"), (6, 6, 1.8, 1.8)),
        (Correction(kind="masked", ratio_max=3, level="mean"), (6**0.5, 6**0.5, 1.8**0.5, 1.8**0.5)),
        (Correction(kind="masked", ratio_max=1.9, level="sequence"), (0, 0, 1.8, 1.8)),
    ],
)
def test_corrections_weigh_what_another_policy_sampled(how: Correction, expected: tuple[float, ...]) -> None:
    sampler, update = logs(0.1, 0.2, 0.5, 0.05), logs(0.4, 0.3, 0.05, 0.9)
    rows, ones = torch.tensor([0, 0, 1, 1]), torch.ones(4, dtype=torch.float64)
    loss = replace(losses.PPO_LOSS, correction=how)
    # in the first update nothing has moved yet, so the clip sees ratios of 1
    assert weights(update, sampler, ones, loss, rows=rows) == pytest.approx(expected)
    moved = update + math.log(1.1)
    found = weights(moved, sampler, ones, loss, rows=rows, proximal_logprobs=update)
    assert found == pytest.approx([1.1 * w for w in expected])


SETTINGS = {
    **{name: method.loss for name, method in ALGORITHMS.items()},
    "dual": replace(losses.PPO_LOSS, ratio_dual=3.0),
    "product": PolicyLoss(clip="unclipped", level="sequence"),
    "sequence correction": replace(losses.DAPO_LOSS, correction=Correction(level="sequence")),
}


@pytest.mark.parametrize("loss", SETTINGS.values(), ids=SETTINGS)
def test_gradients_are_those_of_finite_differences(loss: PolicyLoss) -> None:
    old, at = logs(0.5, 0.3, 0.2, 0.6, 0.01), logs(0.55, 0.31, 0.15, 0.61, 0.2)
    a = torch.tensor([1.0, -1.0, 0.5, -2.0, -1.0], dtype=torch.float64)
    rows = torch.tensor([0, 0, 0, 1, 1])
    frozen = (at - old).exp().clamp(loss.ratio_min, loss.ratio_max)  # CISPO's weight, which has no gradient of its own

    def value(x: Tensor) -> Tensor:
        if loss.clip == "cispo":
            return -frozen * a * x
        return token_losses(x, old, a, loss=loss, rows=rows, proximal_logprobs=at)[0]

    x = at.clone().requires_grad_()
    token_losses(x, old, a, loss=loss, rows=rows, proximal_logprobs=at)[0].sum().backward()
    step = 1e-6
    numeric = [
        float((value(at + step * unit).sum() - value(at - step * unit).sum()) / (2 * step))
        for unit in torch.eye(5, dtype=torch.float64)
    ]
    assert x.grad is not None
    if loss.correction is not None:  # at the very point where the ratio is 1 everything is smooth
        assert x.grad.abs().sum() > 0
    assert x.grad.tolist() == pytest.approx(numeric, abs=1e-6)


def test_leashes_estimate_the_divergence_and_pull_along_its_gradient() -> None:
    logits = torch.tensor([0.3, -0.2, 1.0, 0.1], dtype=torch.float64, requires_grad=True)
    reference = logs(0.4, 0.3, 0.1, 0.2)
    p = logits.log_softmax(-1)
    divergence = (p.exp() * (p - reference)).sum()
    (true,) = torch.autograd.grad(divergence, logits, retain_graph=True)
    for estimator in ("k1", "k3"):
        expected = (p.exp() * kl_estimate(p, reference, estimator)).sum()
        assert expected.item() == pytest.approx(divergence.item())
    (pull,) = torch.autograd.grad((p.exp().detach() * kl_estimate(p, reference, "k2")).sum(), logits, retain_graph=True)
    assert torch.allclose(pull, true)
    x = math.log(0.2) - math.log(0.4)
    assert kl_estimate(logs(0.2), logs(0.4), "k2").item() == pytest.approx(x * x / 2)
    assert kl_estimate(logs(0.2), logs(0.4), "k3").item() == pytest.approx(2 - 1 + x)
    with pytest.raises(UsageError, match="k1 as a loss has no gradient"):
        KL(weight=0.1, estimator="k1")


def rows_of_all_kinds() -> list[Sample]:
    """A credited sample, one to imitate, one that is leashed as well, and one with nothing but the leash."""

    def sample(ids: list[int], advantage: float, **terms: float) -> Sample:
        made = Sample()
        made.append_context(ids[:2])
        made.append_completion(ids[2:], [-1.5] * len(ids[2:]), [advantage] * len(ids[2:]))
        made.sampled_tokens = made.episode_tokens = len(ids) - 2
        if terms:
            made.add_terms(**terms, reference=[-2.0] * len(ids[2:]))
        if not advantage:
            made.drop_uncredited()
        return made

    credited, shown = sample([2, 6, 7, 8], 0.5), sample([2, 7, 5, 6, 8], 0.0, ce=0.7)
    leashed, held = sample([2, 8, 5, 6], -1.0, kl=0.2), sample([3, 8, 9], 0.0, kl=0.2)
    leashed.copies = 3
    return [credited, shown, leashed, held]


@pytest.mark.parametrize("normaliser", ["tokens", "sequences", "constant"])
def test_the_policy_loss_and_its_distance_share_a_divisor_and_cross_entropy_has_its_own(
    normaliser: losses.Normaliser,
) -> None:
    model = fresh(0).double()
    loss = PolicyLoss(clip="unclipped", normaliser=normaliser, constant=7, kl=KL(weight=0.2))
    samples = rows_of_all_kinds()
    assert BatchTotals.of(samples, loss) == BatchTotals(
        rl={"tokens": 2.0 + 3 + 6 + 1, "sequences": 6.0, "constant": 42.0}[normaliser], ce=3.0, tokens=12.0
    )
    ours = combine([GradientComputer(model, loss=loss).gradient(samples)])
    assert ours.sums.metrics()["kl"] > 0
    model.zero_grad()

    def logp(ids: list[int]) -> Tensor:
        out = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        return out.gather(1, torch.tensor(ids[1:])[:, None])[1:, 0]

    first, shown, leashed, held = (logp(s.ids) for s in samples)
    policy = [-(0.5 * (first + 1.5).exp()), 3 * (leashed + 1.5).exp()]
    shares = {"tokens": 1 / 12, "sequences": 1 / 2 / 6, "constant": 1 / 42}[normaliser]
    rl = sum(x.sum() for x in policy) * shares
    k3 = [copies * (math.e ** -(x + 2) - 1 + (x + 2)).sum() for x, copies in ((leashed, 3), (held, 1))]
    one_token = {"tokens": 1 / 12, "sequences": 1 / 6, "constant": 1 / 42}[normaliser]
    distance = 0.2 * (k3[0] * shares + k3[1] * one_token)
    (rl - 0.7 * shown.sum() / 3 + distance).backward()
    plain = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    assert torch.allclose(ours.values, plain, atol=1e-6)


def test_shards_with_unequal_terms_add_up() -> None:
    model, samples = fresh(1), rows_of_all_kinds()
    differentiator = GradientComputer(model, loss=PolicyLoss(clip="unclipped", kl=KL(weight=0.2)))
    whole = combine([differentiator.gradient(samples)])
    shards, totals = (samples[:1], samples[1:2], samples[2:]), BatchTotals()
    for shard in shards:
        totals.add(BatchTotals.of(shard, differentiator.loss))
    parts = combine([differentiator.gradient(shard, totals) for shard in shards])
    assert torch.allclose(whole.values, parts.values, atol=1e-6)


def test_the_trainer_looks_before_it_updates_when_a_correction_asks() -> None:
    model = fresh(2)
    samples = rows_of_all_kinds()
    differentiator = GradientComputer(model, loss=replace(losses.GRPO_LOSS, correction=losses.TIS))
    looked = differentiator.compute_logprobs(samples)
    for sample, row in zip(samples, looked, strict=True):
        assert [i for i, value in enumerate(row) if value] == sample.trained_positions
        sample.proximal_logprobs = row
    batch = collate(samples, differentiator.loss)
    logprobs, _ = differentiator.logprobs(batch)
    assert batch.proximal_logprobs is not None
    assert torch.allclose(logprobs, batch.proximal_logprobs, atol=1e-5)
    assert len(TOKENIZER) == 11
