"""Models in bf16, and where they compute: what is rounded and what is not, what is said, and that they learn."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sharded_run import model_of, samples_of
from tiers import proof_except
from toys import TOKENIZER, Twice, fresh, played, success
from wanderlust.errors import StoreError, UsageError
from wanderlust.policies.base import DEFAULT_HARDWARE, Hardware
from wanderlust.policies.local import SamplingOptions
from wanderlust.policies.local.device import (
    SlowPrecision,
    _has_gpu,
    dtype_of,
    one_thread,
    resolve_device,
    to_device,
    to_device_fp32,
    warn_slow_precision,
)
from wanderlust.policies.local.fast_llama import FastLlama
from wanderlust.policies.local.inference_engine import Engine
from wanderlust.policies.local.policy import LocalSampler
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.policies.resolve import PolicyOptions, resolve_policy
from wanderlust.serving.local_models import make_served_model
from wanderlust.training import losses
from wanderlust.training.algorithms.ppo import Critic
from wanderlust.training.algorithms.presets import ALGORITHMS, configured_algorithm
from wanderlust.training.batch.samples import Sample
from wanderlust.training.batch.samples import build_samples as samples_from
from wanderlust.training.checkpoint import load_state, save_state
from wanderlust.training.config import OptimizerConfig, TrainConfig
from wanderlust.training.gradient import GradientComputer, combine, is_out_of_memory
from wanderlust.training.optimizer import Optimizer, TrainableWeights, weights_of
from wanderlust.training.trainers.in_process import InProcessTrainer
from wanderlust.training.trainers.process_pool import ProcessPoolTrainer
from wanderlust.training.trainers.replica import Replica

BF16 = Hardware(precision="bf16")
NEAR = 0.1
"""How far log-probabilities of small models are apart at most; seen: a quarter of it."""

ROUNDING = 1e-5
"""How far log-probabilities in fp32 are apart by the order of their sums."""

pytestmark = pytest.mark.filterwarnings("ignore::wanderlust.policies.local.device.SlowPrecision")


def rounded(kind: str = "full") -> Any:
    return to_device(model_of(kind), BF16)


def drawn(model: Any, *, fast: bool = True, count: int = 12) -> list[Sample]:
    """What the engine samples, some siblings of each of a few prompts."""
    engine = Engine(model, end_ids=frozenset(), decode=TOKENIZER.decode, fast=fast)
    assert engine.kv_cache.pass_.__class__.__name__ == ("FastLlamaPass" if fast else "TransformersPass")
    prompts = [[(7 * n + i) % 11 for i in range(18)] for n in (0, 0, 0, 0, 1, 2, 2, 2, 3, 4, 4, 4)][:count]

    async def answers() -> list[Any]:
        sampler = LocalSampler(engine)
        asked = [sampler.sample(prompt, SamplingOptions(max_tokens=10), key=key) for key, prompt in enumerate(prompts)]
        return await asyncio.gather(*asked)

    out = []
    for prompt, answer in zip(prompts, asyncio.run(answers()), strict=True):
        out.append(Sample())
        out[-1].append_context(prompt)
        out[-1].append_completion(answer.ids, answer.logprobs, [1.0 - 2.0 * (len(out) % 2)] * len(answer.ids))
    assert next(iter(engine.kv_cache.pools.values())).layers[0].keys.dtype == dtype_of(model.base_model)
    return out


def test_layers_are_rounded_and_what_is_learnt_or_told_is_not() -> None:
    whole, model = model_of("full"), rounded()
    inside = model.base_model.layers[1].mlp.down_proj.weight
    assert inside.dtype == dtype_of(model.base_model) == torch.bfloat16
    assert torch.equal(inside.float(), whole.base_model.layers[1].mlp.down_proj.weight.bfloat16().float())
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    assert torch.equal(embedding, whole.get_input_embeddings().weight)
    assert (head is embedding) == (whole.get_output_embeddings().weight is whole.get_input_embeddings().weight)
    ids = torch.arange(8)[None]
    told, exact = model(input_ids=ids).logits, whole(input_ids=ids).logits
    assert told.dtype == torch.float32
    assert 0 < (told - exact).abs().max() < NEAR
    assert to_device(whole, DEFAULT_HARDWARE) is whole is to_device_fp32(whole, DEFAULT_HARDWARE)
    assert dtype_of(whole.base_model) == torch.float32


def test_copies_stand_alone_and_can_be_widened_again() -> None:
    model = rounded()
    copied = copy.deepcopy(model)
    critic = Critic(copied.float(), lr=1e-2)
    assert {p.dtype for p in critic._parameters()} == {torch.float32}
    before = critic.values(samples_of(0))
    critic.fit(samples_of(0), [[1.0] * len(row) for row in before], before)
    assert critic.values(samples_of(0)) != before
    assert dtype_of(model.base_model) == torch.bfloat16
    assert model(input_ids=torch.arange(4)[None]).logits.dtype == torch.float32


@pytest.mark.parametrize("fast", [True, False])
def test_sampler_and_trainer_are_as_near_as_their_numbers(fast: bool) -> None:
    gaps = []
    for model, near in ((model_of("full"), 1e-4), (rounded(), NEAR)):
        samples = drawn(model, fast=fast)
        reader = GradientComputer(model, loss=losses.CISPO_LOSS, fast=fast, micro_batch=5)
        assert (reader.packs, isinstance(reader.trunk, FastLlama)) == (fast, fast)
        found = reader.gradient(samples).sums.metrics()
        assert found["sampler_logprob_diff_max"] < near
        assert abs(found["sampler_kl_k1"]) <= found["sampler_logprob_diff_max"]
        assert found["sampler_kl_k3"] + 1e-6 >= 0
        gaps.append(found["sampler_logprob_diff_max"])
    # Some processors round both passes alike, and the gap in bf16 is 0: fp32 may then be as far apart as fp32 ever is.
    assert gaps[0] <= max(gaps[1], ROUNDING)


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("fast", [True, False])
def test_the_gradient_is_that_of_whole_numbers_to_rounding(kind: str, fast: bool) -> None:
    loss = replace(losses.CISPO_LOSS, entropy=0.01, kl=losses.KL(weight=0.1))

    def gradient(model: Any, micro_batch: int) -> Tensor:
        return GradientComputer(model, loss=loss, micro_batch=micro_batch, fast=fast).gradient(samples_of(0)).values

    exact, told, pieces = gradient(model_of(kind), 4), gradient(rounded(kind), 4), gradient(rounded(kind), 1)
    assert told.dtype == pieces.dtype == torch.float32
    for one in (told, pieces):
        assert torch.nn.functional.cosine_similarity(one, exact, dim=0) > 0.999
        assert float(one.norm() / exact.norm()) == pytest.approx(1, abs=0.02)


def test_many_small_gradients_are_added_in_whole_numbers() -> None:
    sample = samples_of(0)[1]
    reader = GradientComputer(rounded(), loss=losses.CISPO_LOSS, micro_batch=1)
    one, many = (reader.gradient([sample] * count).values for count in (1, 300))
    assert torch.allclose(many, 300 * one, rtol=1e-4, atol=1e-6)


def test_steps_too_small_for_bf16_are_taken_in_fp32() -> None:
    config = OptimizerConfig(steps=20, lr=1e-6, warmup=1, decay="constant", fused=True)
    model = model_of("full")
    with InProcessTrainer(model, TOKENIZER, config, hardware=BF16) as trainer:
        before = weights_of(model)

        async def learn() -> None:
            for _ in range(3):
                await trainer.forward_backward(samples_of(0), losses.CISPO_LOSS)
                await trainer.optim_step()
            await trainer.publish()

        asyncio.run(learn())
        moved_by = (weights_of(model) - before).abs()
        assert 1e-6 < moved_by.max() < 1e-5
        assert (moved_by > 0).float().mean() > 0.9
        assert dtype_of(trainer.published.engine.model.base_model) == torch.bfloat16
    assert trainer.weights.optimizer.methods[0].param_groups[0]["fused"]


def learnt(seed: int) -> tuple[float, float]:
    """Success before and after some updates of the two-turn toy, read and played in bf16, by a loss that corrects."""
    one_thread()
    method = replace(ALGORITHMS["grpo"], loss=losses.with_importance_correction(losses.GRPO_LOSS))
    config = TrainConfig(algorithm=method, max_tokens=1, seed=seed)
    make = partial(Replica, to_device(fresh(seed), BF16), TOKENIZER, Twice(), config=config)
    optimizer = OptimizerConfig(steps=26, lr=2e-2, method="muon", warmup=1, decay="constant")
    with ProcessPoolTrainer(make, fresh(seed), optimizer, count=1) as trainer:
        replica: Replica = trainer.workers.local
        tasks = list(Twice().tasks()) * 4

        async def learn() -> None:
            for step in range(26):
                samples = samples_from(await trainer.play(tasks, seed=step), method.loss)
                await trainer.forward_backward(samples, method.loss)
                await trainer.optim_step()
                await trainer.publish()

        before = success(played(replica))
        asyncio.run(learn())
        return before, success(played(replica))


@pytest.mark.parametrize("seed", proof_except([0], [0, 1, 2], group="seeds"))
def test_it_learns(seed: int) -> None:
    before, after = learnt(seed)
    assert before < 0.4
    assert after > 0.8


def test_the_pools_own_sampler_is_rounded_like_its_replicas() -> None:
    config = TrainConfig(algorithm=ALGORITHMS["grpo"], max_tokens=1, implementation="transformers")
    make = partial(Replica, to_device(fresh(0), BF16), TOKENIZER, Twice(), config=config)
    with ProcessPoolTrainer(make, fresh(0), OptimizerConfig(steps=1, lr=1e-3), count=1) as trainer:
        answer = asyncio.run(trainer.sample([5, 6, 7], SamplingOptions(max_tokens=4), key=1))
        again = asyncio.run(trainer.sample([5, 6, 7], SamplingOptions(max_tokens=4), key=1))
        assert trainer._sampler is not None
        assert dtype_of(trainer._sampler.engine.model.base_model) == torch.bfloat16
        assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
    assert answer == again


def test_tis_stands_beside_a_clip_that_rounding_would_trip_and_nowhere_else() -> None:
    def loss(name: str, hardware: Hardware = BF16) -> losses.PolicyLoss:
        config = TrainConfig(
            env="x:Y", policy="z", algorithm=name, device=hardware.device, precision=hardware.precision
        )
        return configured_algorithm(config).loss

    for name in ("grpo", "dr-grpo", "dapo", "gspo", "ppo", "reinforce++"):
        assert loss(name).correction == losses.TIS
        assert loss(name, DEFAULT_HARDWARE).correction is None
    for name in ("cispo", "masked", "rloo", "reinforce", "sft", "dpo", "best-of-n"):
        assert loss(name) == loss(name, DEFAULT_HARDWARE)
    assert loss("grpo-mis").correction == losses.MIS
    sampler, trainer = torch.tensor([-1.0, -1.0]), torch.tensor([-0.7, -2.0])
    value, ratio = losses.token_losses(
        trainer, sampler, torch.ones(2), loss=losses.with_importance_correction(losses.GRPO_LOSS)
    )
    assert ratio.tolist() == [1, 1]  # the clip sees no step
    assert value.tolist() == pytest.approx([-float(x) for x in (trainer - sampler).exp()])


def test_what_cannot_be_is_one_line() -> None:
    for hardware, reason in [
        (Hardware(device="tpu"), "device 'tpu': there are auto, cpu, cuda and cuda:N"),
        (Hardware(device="cuda:-1"), "device 'cuda:-1'"),
        (Hardware(device="cpu:0"), "device 'cpu:0'"),
        (Hardware(precision="fp8"), "precision 'fp8': there are fp32 and bf16"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(UsageError, match=reason):
            resolve_device(hardware)
    with pytest.raises(UsageError, match="cuda:2: there are 2 GPUs here, the last is cuda:1"):
        _has_gpu("cuda:2", 2, there=2, precision="fp32")
    with pytest.raises(UsageError, match="not: call its float"):
        TrainableWeights(rounded(), OptimizerConfig(steps=1, lr=1e-3))
    with pytest.raises(UsageError, match="does not say which its embeddings are"):
        to_device(model_of("full").base_model, BF16)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is missing where there is no GPU")
def test_without_a_gpu() -> None:
    assert resolve_device(Hardware(device="auto")) == DEFAULT_HARDWARE
    for name in ("cuda", "cuda:1"):
        with pytest.raises(UsageError, match=f"device {name}: there is no CUDA here"):
            resolve_device(Hardware(device=name))


def test_a_slow_processor_is_told_of() -> None:
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        warn_slow_precision(BF16)
        return
    with pytest.warns(SlowPrecision, match="no instructions for bf16"):
        warn_slow_precision(BF16)


def test_a_checkpoint_in_bf16_learns_in_fp32_from_the_same_numbers(tmp_path: Path) -> None:
    model = model_of("full").to(torch.bfloat16)
    save_pretrained(tmp_path / "half", model, TOKENIZER)
    loaded, _ = load_pretrained(tmp_path / "half")
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    assert torch.equal(weights_of(loaded), weights_of(model).float())
    owner = TrainableWeights(loaded, OptimizerConfig(steps=1, lr=1e-3))
    owner.save(tmp_path / "state")
    state = load_state(tmp_path / "state")
    save_state(tmp_path / "state", {**state, "weights": state["weights"].bfloat16()})
    with pytest.raises(StoreError, match="learn in fp32"):
        owner.load(tmp_path / "state")


def test_policies_and_servers_are_told_by_settings(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "model", fresh(0), TOKENIZER)
    policy: Any = resolve_policy(f"{tmp_path / 'model'},precision=bf16", Twice(), PolicyOptions()).policy
    assert dtype_of(policy.engine.model.base_model) == torch.bfloat16
    plain: Any = resolve_policy(str(tmp_path / "model"), Twice(), PolicyOptions()).policy
    assert dtype_of(plain.engine.model.base_model) == torch.float32
    with pytest.raises(UsageError, match="there is no setting 'dtype'; there are device, precision"):
        resolve_policy(f"{tmp_path / 'model'},dtype=half", Twice(), PolicyOptions())
    model = make_served_model("tiny", policy.engine.model, TOKENIZER)
    answer = asyncio.run(model.sampler.sample([5, 6, 7], SamplingOptions(max_tokens=4), key=1))
    assert len(answer.ids) >= 1


def test_fused_adamw_goes_where_the_loop_goes() -> None:
    ends = []
    for fused in (False, True):
        model = model_of("full")
        optimizer = Optimizer(model, OptimizerConfig(steps=5, lr=1e-3, weight_decay=0.1, fused=fused))
        reader = GradientComputer(model, loss=losses.CISPO_LOSS)
        for step in range(5):
            optimizer.step(combine([reader.gradient(samples_of(step))]))
        ends.append(weights_of(model))
    assert (ends[0] - ends[1]).abs().max() < 1e-5
    assert (ends[0] - weights_of(model_of("full"))).abs().max() > 1e-4


def test_a_full_gpu_is_known_from_other_errors() -> None:
    assert is_out_of_memory(torch.cuda.OutOfMemoryError("Tried to allocate 2 GiB"))
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert not is_out_of_memory(RuntimeError("CUDA error: device-side assert triggered"))
