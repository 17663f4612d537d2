"""Our own pass over the Llama family against `transformers`: the same logits and gradients, whatever the shape."""

import copy
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from wanderlust.policies.local.fast_llama import (
    FastLlama,
    FastLlamaMismatchWarning,
    FastLlamaPass,
    FusedLlama,
    fast_llama_for,
)
from wanderlust.policies.local.kv_cache import BatchedKVCache
from wanderlust.policies.local.lora import adapt
from wanderlust.policies.local.rows import Context, TransformersPass
from wanderlust.training import losses
from wanderlust.training.batch.samples import Sample
from wanderlust.training.gradient import GradientComputer
from wanderlust.training.losses import selected_logprobs_and_entropy

SMALL: dict[str, Any] = dict(
    vocab_size=97,
    hidden_size=32,
    intermediate_size=64,
    num_attention_heads=4,
    num_hidden_layers=2,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=None,
    eos_token_id=1,
)
KINDS = ["tied", "untied", "grouped", "biased", "qwen2", "qwen3", "mistral", "stretched"]


def model_of(kind: str) -> Any:
    torch.manual_seed(3)
    if kind == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**SMALL, num_key_value_heads=2)).eval()
    if kind == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=16)).eval()
    if kind == "mistral":
        return MistralForCausalLM(MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=None)).eval()
    more: dict[str, Any] = {
        "tied": {"tie_word_embeddings": True},
        "untied": {"tie_word_embeddings": False},
        "grouped": {"num_key_value_heads": 2, "tie_word_embeddings": True},
        "biased": {"attention_bias": True, "mlp_bias": True},
        "stretched": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
    }[kind]
    model = LlamaForCausalLM(LlamaConfig(**SMALL, **more)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms of ones and biases of zeros would hide mistakes
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def rows(count: int, length: int) -> torch.Tensor:
    return torch.randint(2, 97, (count, length), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("kind", KINDS)
def test_logits_of_rows_are_those_of_the_model(kind: str) -> None:
    model, ids = model_of(kind), rows(3, 41)
    own = fast_llama_for(model)
    assert own is not None
    with torch.no_grad():
        assert torch.allclose(model.lm_head(own.forward_rows(ids)), model(ids).logits, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_model(kind: str) -> None:
    model, ids = model_of(kind), rows(3, 19)
    samples = [Sample(ids=r, mask=[n > 4 for n in range(19)]) for r in ids.tolist()]
    for sample in samples:
        sample.logprobs, sample.advantages = [-4.0] * 19, [float(n % 3) - 1 for n in range(19)]
    plain, own = (
        GradientComputer(model, loss=losses.CISPO_LOSS, fast=fast).gradient(samples) for fast in (False, True)
    )
    assert isinstance(GradientComputer(model, loss=losses.CISPO_LOSS, fast=True).trunk, FastLlama)
    assert float((plain.values - own.values).norm()) < 1e-5 * float(plain.values.norm())
    assert own.sums.entropy == pytest.approx(plain.sums.entropy, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_remembered_is_read_as_the_model_reads_it(kind: str) -> None:
    model = model_of(kind)
    memories = [BatchedKVCache(model, fast=fast) for fast in (True, False)]
    assert isinstance(memories[0].pass_, FastLlamaPass)
    assert isinstance(memories[0].pass_.llama, FastLlama if kind in ("biased", "qwen2", "qwen3") else FusedLlama)
    ids = rows(4, 90).tolist()
    ends = [(10, 25, 3, 80), (11, 26, 4, 81), (20, 27, 5, 82), (21, 28, 6, 83)]  # ragged, single tokens, mixed, single
    with torch.inference_mode():
        said = [_read(memory, ids, ends) for memory in memories]
    for ours, theirs in zip(*said, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def _read(memory: BatchedKVCache, ids: list[list[int]], ends: list[tuple[int, ...]]) -> list[torch.Tensor]:
    contexts, out = [Context() for _ in ids], []
    for step in ends:
        for context, row, end in zip(contexts, ids, step, strict=True):
            context.append(row[len(context.ids) : end])
        if step == (20, 27, 5, 82):
            contexts[1].draft = tuple(ids[1][27:30])
        out.append(memory.forward(contexts))
        for context in contexts:
            context.draft = ()
    return out


def test_new_weights_are_read_without_being_told() -> None:
    model = model_of("grouped")
    memory, ids = BatchedKVCache(model), rows(1, 12).tolist()
    with torch.inference_mode():
        _read(memory, ids, [(12,)])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    with torch.inference_mode():
        (ours,) = _read(BatchedKVCache(model), ids, [(12,)])
        context = Context()
        context.append(ids[0])
        assert torch.allclose(memory.forward([context]), ours)
        assert torch.allclose(ours, model(torch.tensor(ids)).logits[:, -1], atol=1e-5)


def test_adapters_are_read_and_trained() -> None:
    model = model_of("grouped")
    adapt(model, rank=4, seed=0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    ids = rows(2, 30)
    with torch.inference_mode():
        contexts = [Context(), Context()]
        for context, row in zip(contexts, ids.tolist(), strict=True):
            context.append(row)
        memory = BatchedKVCache(model)
        assert isinstance(memory.pass_, FastLlamaPass)
        assert torch.allclose(memory.forward(contexts), model(ids).logits[:, -1], atol=1e-5)
    sample = Sample(ids=ids[0].tolist(), mask=[n > 4 for n in range(30)], logprobs=[-4.0] * 30, advantages=[1.0] * 30)
    plain, own = (
        GradientComputer(model, loss=losses.CISPO_LOSS, fast=fast).gradient([sample]) for fast in (False, True)
    )
    assert float((plain.values - own.values).norm()) < 1e-5 * float(plain.values.norm())


def test_half_precision_is_read_as_well() -> None:
    model = model_of("grouped").to(torch.bfloat16)
    memory, ids = BatchedKVCache(model), rows(2, 30)
    assert isinstance(memory.pass_, FastLlamaPass)
    assert isinstance(memory.pass_.llama, FastLlama)
    with torch.inference_mode():
        contexts = [Context(), Context()]
        for context, row in zip(contexts, ids.tolist(), strict=True):
            context.append(row)
        assert torch.allclose(memory.forward(contexts), model(ids).logits[:, -1], atol=0.05)


def test_a_model_that_answers_otherwise_is_left_to_transformers_and_that_is_said() -> None:
    model = model_of("tied")
    model.model.layers[1].mlp.act_fn = torch.nn.GELU()
    with pytest.warns(FastLlamaMismatchWarning, match="llama model's logits"):
        memory = BatchedKVCache(model)
    assert isinstance(memory.pass_, TransformersPass)


def test_other_models_are_left_to_transformers_silently() -> None:
    windowed = MistralForCausalLM(MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=9)).eval()
    dynamic = copy.deepcopy(model_of("tied"))
    dynamic.config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    phi = Phi3ForCausalLM(Phi3Config(**SMALL, num_key_value_heads=2)).eval()
    assert [fast_llama_for(model) for model in (windowed, dynamic, phi)] == [None, None, None]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_what_was_said_has_the_gradient_that_autograd_finds(shared: bool, temperature: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(5, 11, dtype=torch.float64, requires_grad=True)
    places = torch.tensor([0, 1, 1, 3, 4]) if shared else None
    targets, shares, spread = torch.tensor([3, 9, 9, 0, 10]), torch.randn(5), torch.randn(5)
    ours = selected_logprobs_and_entropy(logits, targets, places, temperature=temperature)
    logp = (logits.float() / temperature).log_softmax(-1)
    which = torch.arange(5) if places is None else places
    plain = logp[which, targets], -(logp.exp() * logp).sum(-1)
    found, wanted = (
        torch.autograd.grad((x[0] * shares).sum() + (x[1] * spread).sum(), logits, retain_graph=True)[0]
        for x in (ours, plain)
    )
    assert torch.allclose(ours[0], plain[0])
    assert torch.allclose(ours[1], plain[1])
    assert torch.allclose(found, wanted, atol=1e-6)
