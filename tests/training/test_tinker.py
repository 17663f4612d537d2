"""Training by a Tinker service: the rows that are sent mean what a local trainer computes, and a real server learns."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from servers import skyrl_server
from toys import TOKENIZER, WORDS, fresh
from wanderlust.environment import Environment, Episode
from wanderlust.errors import ContextFull, PolicyFailure, UsageError
from wanderlust.policies.base import SamplingOptions, derive_key
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.runner.engine import rollouts
from wanderlust.training import losses
from wanderlust.training.algorithms.presets import ALGORITHMS
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import Sample, credited_samples
from wanderlust.training.config import OptimizerConfig
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.losses import KL, PolicyLoss
from wanderlust.types import Task, user

pytest.importorskip("tinker", reason="the client is not installed: pip install 'wanderlust[tinker]'")

import tinker

from wanderlust.training.trainers.tinker import TinkerService, TinkerTrainer, attribute_failures, connect_tinker
from wanderlust.training.trainers.tinker_rows import GradientCall, check_supported, gradient_calls, loss_metrics


def sample(ids: list[int], advantages: list[float], **more: Any) -> Sample:
    """Two tokens of context, the rest said."""
    made = Sample(copies=more.pop("copies", 1))
    made.append_context(ids[:2])
    made.append_completion(ids[2:], [-2.4, -2.2, -2.6, -2.3][: len(advantages)], advantages)
    if more:
        made.add_terms(**more, reference=[-2.0] * len(advantages))
    return made


SAMPLES = [
    sample([2, 6, 7, 8], [0.5, -1.0]),
    sample([2, 7, 5, 6, 8, 9], [1.0, 0.0, 0.3, -0.2], copies=3),
    sample([3, 8, 9], [-2.0]),
    sample([2, 9, 8, 7], [0.0, 0.0], ce=0.7),
]
LOSSES = {
    "reinforce": losses.REINFORCE_LOSS,
    "importance": losses.IMPORTANCE_LOSS,
    "ppo": losses.PPO_LOSS,
    "grpo": losses.GRPO_LOSS,
    "dr-grpo": replace(losses.DR_GRPO_LOSS, constant=7),
    "dapo": losses.DAPO_LOSS,
    "cispo": losses.CISPO_LOSS,
}


def served(model: Any, asked: list[GradientCall], *, averages: bool = False) -> list[torch.Tensor]:
    """What a service computes: its documented losses, summed; or averaged as SkyRL's JAX backend does, rows alone."""
    total = torch.zeros(())
    for term in asked:
        low, high = term.config.get("clip_low_threshold", 0.0), term.config.get("clip_high_threshold", 9e9)
        for datum in term.data:
            given = {name: torch.tensor(data.tolist()) for name, data in datum.loss_fn_inputs.items()}
            logits = model(input_ids=torch.tensor([datum.model_input.to_ints()])).logits[0]
            new = logits.log_softmax(-1).gather(1, given["target_tokens"][:, None])[:, 0]
            weights = given.get("weights", torch.ones_like(new))
            if term.name == "cross_entropy":
                each = new * weights
            else:
                ratio, a = (new - given["logprobs"]).exp(), given["advantages"]
                each = {
                    "importance_sampling": ratio * a,
                    "ppo": torch.minimum(ratio * a, ratio.clamp(low, high) * a),
                    "cispo": ratio.clamp(low, high).detach() * new * a,
                }[term.name]
            total = total - (each.sum() / weights.sum() if averages else each.sum())
    return list(torch.autograd.grad(total, list(model.parameters())))


@pytest.mark.parametrize("averages", [False, True])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_services_sum_is_the_gradient_of_a_local_trainer(loss: PolicyLoss, averages: bool) -> None:
    model = fresh(0)
    here = combine([GradientComputer(model, loss=loss).gradient(SAMPLES)]).values
    asked = gradient_calls(SAMPLES, loss, BatchTotals.of(SAMPLES, loss), averages=averages)
    there = torch.cat([g.reshape(-1) for g in served(model, asked, averages=averages)])
    assert here.norm() > 1e-3
    assert torch.allclose(here, there, atol=1e-6, rtol=1e-4)


def test_pieces_of_a_batch_add_up_to_it() -> None:
    model, whole = fresh(1), BatchTotals.of(SAMPLES, losses.GRPO_LOSS)
    pieces = [
        *gradient_calls(SAMPLES[:2], losses.GRPO_LOSS, whole),
        *gradient_calls(SAMPLES[2:], losses.GRPO_LOSS, whole),
    ]
    together = served(model, gradient_calls(SAMPLES, losses.GRPO_LOSS, whole))
    for one, other in zip(served(model, pieces), together, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_rows_are_shifted_by_one_and_what_is_not_trained_counts_nothing() -> None:
    (term,) = gradient_calls(SAMPLES[:1], losses.PPO_LOSS, BatchTotals(rl=2.0))
    (datum,) = term.data
    sent = {name: data.tolist() for name, data in datum.loss_fn_inputs.items()}
    assert datum.model_input.to_ints() == [2, 6, 7]
    assert sent["target_tokens"] == [6, 7, 8]
    assert sent["logprobs"] == pytest.approx([0.0, -2.4, -2.2])
    assert sent["advantages"] == pytest.approx([0.0, 0.25, -0.5])
    assert (term.name, term.config) == ("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2})


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_figures_are_those_of_a_local_trainer(loss: PolicyLoss) -> None:
    local = GradientComputer(fresh(0), loss=loss)
    looked = [row[1:] for row in local.compute_logprobs(SAMPLES)]
    expected = local.gradient(SAMPLES).sums.metrics()
    del expected["entropy"]
    assert loss_metrics(SAMPLES, loss, looked) == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("loss", "rows", "why"),
    [
        (losses.GSPO_LOSS, SAMPLES, "ratios of a whole sequence"),
        (losses.MASKED_LOSS, SAMPLES, "the clip 'masked'"),
        (replace(losses.PPO_LOSS, ratio_dual=3.0), SAMPLES, "a dual clip"),
        (replace(losses.GRPO_LOSS, correction=losses.TIS), SAMPLES, "a correction of the sampler"),
        (replace(losses.GRPO_LOSS, entropy=0.01), SAMPLES, "an entropy bonus"),
        (replace(losses.GRPO_LOSS, kl=KL(weight=0.1)), [sample([2, 6, 7], [1.0], kl=0.1)], "a distance to a reference"),
    ],
)
def test_what_no_service_can_compute_is_refused_in_a_line(loss: PolicyLoss, rows: list[Sample], why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        gradient_calls(rows, loss, BatchTotals.of(rows, loss))
    assert "\n" not in str(refused.value)


def test_nobody_at_the_url_is_a_line_at_once() -> None:
    service = TinkerService(model="m", url="http://127.0.0.1:1", key="tml-none")

    async def go() -> None:
        async with connect_tinker(service, TOKENIZER, OptimizerConfig(steps=1, lr=1e-3)):
            pass

    with pytest.raises(UsageError, match="no Tinker service answers at http://127"):
        asyncio.run(go())


def answered(kind: str, status: int, text: str) -> Exception:
    """What the client raises for such an answer."""
    response = httpx.Response(status, text=text, request=httpx.Request("POST", "http://service/api/v1/asample"))
    error: Exception = getattr(tinker, kind)(text, response=response, body=None)
    return error


def test_a_service_that_says_the_context_is_full_ends_the_episode() -> None:
    text = "Prompt length plus max_tokens exceeds the model's context window: 32000 + 1000 > 32768"
    with pytest.raises(ContextFull) as full, attribute_failures(PolicyFailure):
        raise answered("BadRequestError", 400, text)
    assert text in str(full.value)


@pytest.mark.parametrize(
    ("kind", "status", "refusal"),
    [("BadRequestError", 400, "HTTP 400"), ("AuthenticationError", 401, "HTTP 401"), ("RateLimitError", 429, "")],
)
def test_a_service_that_refuses_is_a_failure_that_says_so(kind: str, status: int, refusal: str) -> None:
    with pytest.raises(PolicyFailure) as failed, attribute_failures(PolicyFailure):
        raise answered(kind, status, "no")
    assert failed.value.refusal == refusal


SIBLINGS, STEPS = 8, 8
OPTIMIZER = OptimizerConfig(steps=STEPS, lr=1e-2, warmup=1, decay="constant")


class Letter(Environment):
    """Whatever is shown, say d: an adapter on frozen random weights can learn that in a few steps."""

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(user(episode.task.answer))
        episode.reward("right", float(said.content == "d"))

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"letter-{word}", answer=word) for word in WORDS]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerService]:
    """SkyRL's own server on this machine's CPU, in its own environment, with the toys' model as base."""
    folder = tmp_path_factory.mktemp("skyrl")
    save_pretrained(folder / "model", fresh(0), TOKENIZER)
    with skyrl_server(folder / "model", folder) as url:
        yield TinkerService(
            model=str(folder / "model"), url=url, key="tml-local", rank=8, averages_loss=True, samples_newest=True
        )


async def step(trainer: TinkerTrainer, number: int) -> tuple[float, dict[str, float]]:
    """Play, credit, update, publish: the recipe on the verbs; mean reward and figures."""
    env, algorithm = Letter(), ALGORITHMS["cispo"]
    policy = TokenPolicy(trainer, Renderer(TOKENIZER), SamplingOptions(max_tokens=1))
    async with rollouts(env, env.tasks(), policy, group_size=SIBLINGS, concurrency=12, seed=number) as groups:
        batch = [group async for group in groups]
    assert not [r.error for g in batch for r in g.rollouts if r.error]
    for group in batch:
        await algorithm.assign_advantages(group)
    told = await trainer.forward_backward(credited_samples(batch), algorithm.loss)
    told |= await trainer.optim_step()
    await trainer.publish()
    rewards = [reward for group in batch for reward in group.rewards]
    return sum(rewards) / len(rewards), told


# Tinker's own client leaves connections to the garbage collector, which is called so that no other test hears of it.
LEFT_OPEN = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@LEFT_OPEN
def test_a_recipe_learns_through_a_real_service(service: TinkerService, tmp_path: Path) -> None:
    async def go() -> None:
        async with connect_tinker(service, TOKENIZER, OPTIMIZER) as trainer:
            steps = [await step(trainer, n) for n in range(STEPS)]
            rewards, told = [reward for reward, _ in steps], [figures for _, figures in steps]
            print(json.dumps({"rewards": rewards, "gaps": [f["sampler_logprob_diff_max"] for f in told]}))
            assert trainer.version == STEPS
            assert max(f["sampler_logprob_diff_max"] for f in told) < 1e-3
            assert sum(rewards[-2:]) / 2 > rewards[0] + 0.3

            await trainer.save_state(tmp_path / "state")
            before = await drawn(trainer)
            await step(trainer, STEPS)
            await trainer.load_state(tmp_path / "state")
            assert (trainer.version, trainer.taken) == (STEPS, STEPS)
            assert await drawn(trainer) == before

    asyncio.run(go())
    gc.collect()


async def drawn(trainer: TinkerTrainer) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    """Some answers; equal weights and keys give equal ones."""
    asked = [trainer.sample([2, 6 + n % 4, 3], SamplingOptions(max_tokens=1), key=derive_key(n)) for n in range(8)]
    return [(s.ids, s.logprobs) for s in await asyncio.gather(*asked)]


def test_what_a_service_cannot_do_names_what_it_can():
    with pytest.raises(UsageError, match="has no loss with the clip 'masked'") as told:
        check_supported([], losses.MASKED_LOSS)
    clips = re.findall(r"clip is one of ([\w, ]+), token by token", str(told.value))
    for clip in clips[0].split(", "):
        check_supported([], PolicyLoss(clip=clip))
