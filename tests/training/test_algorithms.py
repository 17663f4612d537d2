"""What each algorithm writes on a group, against numbers worked out by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, pstdev

import pytest
import torch

from toys import TOKENIZER, Lesson, Twice, fresh, teacher
from wanderlust.environment import Environment, Episode
from wanderlust.errors import UsageError
from wanderlust.policies.checkpoints import resolve_start
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.training import losses
from wanderlust.training.algorithms.base import Algorithm, SupportsBatchAdvantages, least_group_size
from wanderlust.training.algorithms.grpo import GroupRelative, OverlongPenalty
from wanderlust.training.algorithms.imitation import BestOfNImitation
from wanderlust.training.algorithms.per_turn import PerTurn, rewards_to_go, turn_rewards
from wanderlust.training.algorithms.ppo import PPO, gae
from wanderlust.training.algorithms.presets import ALGORITHMS, algorithm
from wanderlust.training.algorithms.reinforce_pp import BatchNormalised
from wanderlust.training.algorithms.self_play import SelfPlay
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample, build_samples, credited_samples, to_samples
from wanderlust.training.config import TrainConfig
from wanderlust.training.gradient import Gradient, combine
from wanderlust.training.group_source import assign_advantages, bind_algorithm, kl_to_reference
from wanderlust.training.losses import KL, token_losses
from wanderlust.training.models import Scorer, load_teacher, make_context
from wanderlust.training.setup import validate_config
from wanderlust.training.trainers.replica import Replica
from wanderlust.types import Group, Rollout, Score, Task, Tokens, Trajectory, Turn, assistant, user


def said(reward: float | None, *counts: int, paid: Sequence[float] = (), seat: str = "agent") -> Rollout:
    """A rollout whose turns read one token and say as many as told, each with log-probability -1."""
    turns, known = [], 0
    for count in counts or (1,):
        tokens = Tokens(prompt=(2,), completion=(6,) * count, logprobs=(-1.0,) * count, offset=known)
        turns.append(Turn(observation=(user("a"),), action=assistant("a" * count), tokens=tokens))
        known += 1 + count
    score = None if reward is None else Score(reward=reward)
    trajectory = Trajectory(seat=seat, turns=turns, score=score, rewards=list(paid))
    return Rollout(task=Task(id="t"), seed=0, trajectories=[trajectory])


def group(*rollouts: Rollout) -> Group:
    return Group(task=Task(id="t"), rollouts=list(rollouts))


def credited(method: Algorithm, *groups: Group) -> list[float | None]:
    async def go() -> None:
        await assign_advantages(method, groups)
        if isinstance(method, SupportsBatchAdvantages):
            await method.assign_batch_advantages(groups)

    asyncio.run(go())
    return [t.advantage for g in groups for r in g.rollouts for t in r.trajectories]


def test_reinforce_plus_plus_normalises_over_the_tokens_of_all_groups() -> None:
    groups = group(said(1, 3), said(0, 1)), group(said(2, 1), said(None), said(1, 1))
    flat = [1, 1, 1, 0, 2, 1]
    scale = [(r - fmean(flat)) / pstdev(flat) for r in (1, 0, 2, 1)]
    assert credited(BatchNormalised(), *groups) == pytest.approx([*scale[:3], None, scale[3]])
    alike = group(said(1), said(1)), group(said(1))
    assert credited(BatchNormalised(), *alike) == [0, 0, 0]


def test_gae() -> None:
    rewards, values = [0.0, 0.5, 1.0], [0.2, 0.4, 0.6]
    assert gae(rewards, values, discount=1, trace=1) == pytest.approx([1.5 - 0.2, 1.5 - 0.4, 1.0 - 0.6])
    assert gae(rewards, values, discount=1, trace=0) == pytest.approx([0.2, 0.7, 0.4])
    # by hand, 0.9 and 0.5: d = 0.16, 0.64, 0.4
    assert gae(rewards, values, discount=0.9, trace=0.5) == pytest.approx([0.16 + 0.45 * 0.82, 0.64 + 0.45 * 0.4, 0.4])


def test_the_critic_learns_what_is_to_come_and_ppo_whitens() -> None:
    one, other = (Replica(fresh(0), TOKENIZER, Twice(), config=Lesson.of(PPO(), seed=0).replica.config) for _ in "12")
    groups = one.play(Twice().tasks(), 0)
    assert isinstance(one.algorithm, PPO)
    assert isinstance(other.algorithm, PPO)
    samples = [s for g in groups for r in g.rollouts for s in to_samples(r.trajectory)]
    before = one.algorithm.critic().values(samples)
    assert all(value == 0 for row in before for value in row)
    for _ in range(30):
        asyncio.run(one.algorithm.assign_batch_advantages(groups))
    flat = [a for g in groups for r in g.rollouts for turn in r.trajectory.advantages or () for a in turn]
    assert fmean(flat) == pytest.approx(0, abs=1e-6)
    assert pstdev(flat) == pytest.approx(1, abs=1e-3)
    values = one.algorithm.critic().values(samples)
    to_go = [rewards_to_go(r.trajectory.rewards, 1.0)[0] for g in groups for r in g.rollouts]
    mean = fmean(to_go)
    first = [v[s.trained_positions[0]] for v, s in zip(values, samples, strict=True)]
    missed = fmean([(v - g) ** 2 for v, g in zip(first, to_go, strict=True)])
    assert missed < fmean([(mean - g) ** 2 for g in to_go]) + 1e-3
    other.algorithm.restore(one.algorithm.state())
    assert other.algorithm.critic().values(samples) == values


def test_turns_earn_what_was_paid_and_the_last_one_the_rest() -> None:
    assert turn_rewards(said(1.0, 1, 1, 1, paid=[0.25, 0.5]).trajectory, 1.0) == [0.25, 0.5, 0.25]
    assert turn_rewards(said(1.0, 1, 1).trajectory, 1.0) == [0, 1]
    assert rewards_to_go([1, 0, 2], 0.5) == [1.5, 1, 2]


def test_credit_per_turn_does_not_thank_later_turns() -> None:
    groups = group(said(1, 2, 1, paid=[1, 0]), said(1, 1, 3, paid=[0, 1]), said(0, 1, paid=[0]), said(None, 1))
    method = PerTurn(advantage=lambda rewards: [r - fmean(rewards) for r in rewards])
    credited(method, groups)
    first, second, third, failed = (r.trajectory.advantages for r in groups.rollouts)
    assert first == [pytest.approx([1 / 3, 1 / 3]), [-0.5]]
    assert second == [pytest.approx([1 / 3]), [0.5, 0.5, 0.5]]
    assert third == [pytest.approx([-2 / 3])]
    assert failed is None


class Pays(Environment):
    """Pays before, after and beside turns."""

    async def run(self, episode: Episode) -> None:
        episode.reward("start", 9)
        for value in (0, 1, 0, 2):
            await episode.agent.act(user("go"))
            if value:
                episode.reward("some", value)
                episode.reward("more", True)


def test_environments_say_per_turn_rewards_by_paying_after_the_turn() -> None:
    played = asyncio.run(rollout(Pays(), Task(id="t"), Scripted(["a"] * 4)))
    assert played.trajectory.rewards == [0, 2, 0, 3]
    assert played.trajectory.score is not None
    assert turn_rewards(played.trajectory, played.trajectory.score.reward) == [0, 2, 0, 12]


def test_self_play_judges_each_seat_by_what_it_usually_gets() -> None:
    def game(first: float, second: float) -> Group:
        one = said(first, seat="first")
        return group(replace(one, trajectories=[*one.trajectories, *said(second, seat="second").trajectories]))

    method = SelfPlay(decay=0.5)
    assert credited(method, game(1, -1), game(0, 0)) == [0.5, -0.5, -0.25, 0.25]
    again = SelfPlay(decay=0.5)
    again.restore(method.state())
    assert credited(again, game(1, -1)) == [1 - 0.625, -1 + 0.625]


def test_overlong_answers_cost_softly() -> None:
    soft = OverlongPenalty(max_tokens=10, margin=0.2)
    assert [soft.penalty(said(1, n).trajectory) for n in (1, 8, 9, 10, 12)] == pytest.approx([0, 0, -0.5, -1, -1])
    assert soft.penalty(said(1, 3, 9).trajectory) == pytest.approx(-0.5)
    plain = replace(GroupRelative(overlong=soft), advantage=list)
    assert credited(plain, group(said(1, 9), said(1, 1))) == pytest.approx([0.5, 1])


def test_lengths_follow_the_bound_of_an_answer() -> None:
    lent = make_context(TrainConfig(max_tokens=50), partial(fresh, 0), load_teacher=partial(fresh, 0))
    assert bind_algorithm(ALGORITHMS["dr-grpo"], lent).loss.constant == 50
    dapo = bind_algorithm(ALGORITHMS["dapo"], lent)
    assert isinstance(dapo, GroupRelative)
    assert dapo.overlong == OverlongPenalty(max_tokens=50)


def test_rejection_sampling_imitates_the_best_and_nobody_when_all_are_alike() -> None:
    groups = group(said(1), said(0), said(None), said(1)), group(said(1), said(1))
    credited(BestOfNImitation(), *groups)
    assert [r.trajectory.sft_weight for g in groups for r in g.rollouts] == [1, 0, 0, 1, 0, 0]
    samples = credited_samples(groups)
    assert [(s.mask, s.ce, s.copies) for s in samples] == [([False, False], [0.0, 1.0], 2)]


def really_played(method: Algorithm, seed: int = 0) -> tuple[Replica, list[Group]]:
    replica = Lesson.of(method, seed=seed).replica
    return replica, replica.play(Twice().tasks(), 0)


def learnt_from(replica: Replica, groups: list[Group]) -> tuple[list[Sample], Gradient]:
    loss = replica.algorithm.loss
    samples = build_samples(groups, loss)
    return samples, combine([replica.gradient(samples, loss, BatchTotals.of(samples, loss))])


def test_dpo_has_the_gradient_of_the_written_out_loss() -> None:
    replica, groups = really_played(algorithm("dpo"))
    with torch.no_grad():  # the policy has left its reference
        for parameter in replica.model.parameters():
            parameter.add_(0.05 * torch.sin(torch.arange(parameter.numel())).view_as(parameter))
    replica.policy.engine.publish()
    groups = replica.play(Twice().tasks() * 2, 1)
    ours = learnt_from(replica, groups)[1].values
    model, reference, total, pairs = replica.model, fresh(0), torch.zeros(()), 0

    def logp(of: torch.nn.Module, trajectory: Trajectory) -> torch.Tensor:
        (sample,) = to_samples(trajectory)
        ids = torch.tensor(sample.ids)
        every = of(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        return every[torch.tensor(sample.mask[1:])].sum()

    model.zero_grad()
    for one in groups:
        chosen = [r.trajectory for r in one.rollouts if r.trajectory.advantage]
        if chosen:
            won, lost = sorted(chosen, key=lambda t: -(t.advantage or 0))
            ratios = [logp(model, t) - logp(reference, t).detach() for t in (won, lost)]
            total, pairs = total - torch.nn.functional.logsigmoid(0.1 * (ratios[0] - ratios[1])), pairs + 1
    assert pairs > 3
    (total / pairs).backward()
    plain = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    assert float(plain.norm()) > 1e-3
    assert torch.allclose(ours, plain, atol=1e-6)


def test_distillation_scores_the_students_tokens_and_follows_the_reverse_divergence() -> None:
    replica, groups = really_played(algorithm("distill"))
    trajectory = groups[0].rollouts[0].trajectory
    (sample,) = to_samples(trajectory)
    logits = teacher()(torch.tensor([sample.ids])).logits[0, :-1].log_softmax(-1)
    for i, on in enumerate(sample.mask):
        if on:
            theirs = logits[i - 1, sample.ids[i]].item()
            assert sample.advantages[i] == pytest.approx(theirs - sample.logprobs[i], abs=1e-4)
    assert learnt_from(replica, groups)[0]
    student = torch.tensor([0.5, -1.0, 0.2], dtype=torch.float64, requires_grad=True)
    known = torch.log(torch.tensor([0.2, 0.7, 0.1], dtype=torch.float64))
    p = student.log_softmax(-1)
    (aim,) = torch.autograd.grad((p.exp() * (p - known)).sum(), student, retain_graph=True)
    token, _ = token_losses(p, p.detach(), known - p.detach(), loss=losses.IMPORTANCE_LOSS)
    (ours,) = torch.autograd.grad((p.exp().detach() * token).sum(), student)
    assert torch.allclose(ours, aim)


def test_a_scorer_that_is_the_policy_agrees_with_the_sampler() -> None:
    replica, groups = really_played(algorithm("cispo"))
    played = [r.trajectory for g in groups for r in g.rollouts]
    for trajectory, turns in zip(played, Scorer(replica.model).logprobs(played), strict=True):
        assert turns == [pytest.approx(t.tokens.logprobs, abs=1e-5) for t in trajectory.turns if t.tokens]


def test_teachers_play_for_those_who_imitate_them() -> None:
    replica, groups = really_played(algorithm("sft"))
    assert all(r.state["right"] == 1 for g in groups for r in g.rollouts)
    samples, gradient = learnt_from(replica, groups)
    assert not any(sum(s.mask) for s in samples)
    assert gradient.sums.logprob_diff_max == 0  # a teacher's tokens say nothing about our sampler
    assert gradient.sums.metrics()["ce"] > 0
    nobody = partial(load_teacher, TrainConfig(), TOKENIZER)
    lent = make_context(TrainConfig(), partial(fresh, 0), load_teacher=nobody)
    with pytest.raises(UsageError, match="set `teacher`"):
        bind_algorithm(algorithm("distill"), lent)


def test_a_leash_in_the_reward_is_taken_off_before_credit_and_the_score_stays() -> None:
    leash = KL(weight=0.5, estimator="k1", into="reward")
    method = GroupRelative(advantage=list, loss=replace(losses.CISPO_LOSS, kl=leash))
    near, far = said(1, 2), said(0, 1)
    near.trajectory.reference_logprobs, far.trajectory.reference_logprobs = [[-1.0, -1.5]], [[-3.0]]
    assert kl_to_reference(far.trajectory, leash) == 2
    assert credited(method, group(near, far)) == pytest.approx([1 - 0.5 * 0.5, 0 - 0.5 * 2])
    assert [r.trajectory.score for r in (near, far)] == [Score(reward=1), Score(reward=0)]


def test_a_leash_in_the_loss_reaches_groups_without_credit_and_is_not_stored() -> None:
    method = GroupRelative(loss=replace(losses.GRPO_LOSS, kl=KL(weight=0.1)))
    replica, groups = really_played(method)
    samples, gradient = learnt_from(replica, groups)
    assert all(t.reference_logprobs is None for g in groups for r in g.rollouts for t in r.trajectories)
    counted = sum(s.copies * len([w for w in s.kl if w]) for s in samples)
    assert counted == 2 * sum(len(g.rollouts) for g in groups)
    assert gradient.sums.metrics()["kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_failed_rollouts_get_no_credit(name: str) -> None:
    class Fails(Twice):
        async def run(self, episode: Episode) -> None:
            await super().run(episode)
            raise ZeroDivisionError("after both turns")

    replica = Lesson.of(ALGORITHMS[name], seed=0, env=Fails()).replica
    groups = replica.play(Fails().tasks(), 0)
    if isinstance(replica.algorithm, SupportsBatchAdvantages):
        asyncio.run(replica.algorithm.assign_batch_advantages(groups))
    samples, gradient = learnt_from(replica, groups)
    assert samples == []
    assert gradient.empty


def test_algorithms_that_compare_rollouts_want_groups_of_two() -> None:
    alone = {name for name, one in ALGORITHMS.items() if least_group_size(one) == 1}
    assert alone == {
        *("reinforce", "reinforce++", "ppo", "self-play"),
        *("best-of-n", "sft", "distill", "distill-off-policy"),
    }
    settings = TrainConfig(env="brief-wordle", policy="fresh", group_size=1, algorithm="grpo")
    with pytest.raises(UsageError, match=r"^the algorithm grpo compares the rollouts of a task: set group_size to 2"):
        validate_config(settings)
    validate_config(settings.replace(algorithm="reinforce"))
    with pytest.raises(UsageError, match=r"^the algorithm dpo credits pairs for one update: set updates_per_step to 1"):
        validate_config(settings.replace(algorithm="dpo", group_size=4, updates_per_step=2))


def test_fresh_and_smollm2_are_names_unless_a_run_or_checkpoint_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fresh").mkdir()
    assert resolve_start("fresh") == "fresh"
    (tmp_path / "fresh/config.json").write_text("{}")
    assert resolve_start("fresh") == str(tmp_path / "fresh")
