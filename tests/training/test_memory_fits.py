"""A model that does not fit into memory, or wants more GPUs than there are, is refused before anything is loaded."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch

from toys import TOKENIZER, Twice, fresh
from wanderlust.errors import UsageError
from wanderlust.policies.local.device import available_memory, memory_of
from wanderlust.policies.local.lora import adapt
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.store.run_folder import SMOLLM2_POLICY
from wanderlust.training.config import TrainConfig
from wanderlust.training.memory import (
    SMOLLM2,
    MemoryWarning,
    ModelSize,
    check_gpus,
    check_memory,
    gpus_of_servers,
    needed_bytes,
)
from wanderlust.training.optimizer import OptimizerConfig, TrainableWeights
from wanderlust.training.train import train

WIDTH, INNER, LAYERS, WORDS = 8192, 28672, 80, 128_256
"""Of a Llama with 70 billion parameters."""
GIB = 2**30


def giant(folder: Path) -> Path:
    """A checkpoint's configuration and header without its weights."""
    config = {"model_type": "llama", "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "vocab_size": WORDS}
    (folder / "config.json").write_text(
        json.dumps({**config, "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": INNER})
    )
    layer = {"q": [WIDTH, WIDTH], "k": [1024, WIDTH], "v": [1024, WIDTH], "o": [WIDTH, WIDTH], "norm": [WIDTH]}
    layer |= {"gate": [INNER, WIDTH], "up": [INNER, WIDTH], "down": [WIDTH, INNER], "norm2": [WIDTH]}
    shapes = {f"model.layers.{n}.{name}.weight": shape for n in range(LAYERS) for name, shape in layer.items()}
    shapes |= {"model.embed_tokens.weight": [WORDS, WIDTH], "lm_head.weight": [WORDS, WIDTH]}
    header = json.dumps({"__metadata__": {}, **{name: {"shape": shape} for name, shape in shapes.items()}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return folder


def test_a_model_that_does_not_fit_is_refused_with_the_arithmetic(tmp_path: Path) -> None:
    folder = giant(tmp_path)
    size = ModelSize.of(folder)
    assert size is not None
    assert size.parameters == pytest.approx(70.55e9, rel=0.001)
    config = TrainConfig(env=Twice(), policy=str(folder))
    with pytest.raises(
        UsageError, match=r"^training [^\n]*70\.55B[^\n]* needs 2628\.3 GiB \(weights that learn 262\.8"
    ):
        train(Twice(), folder, config=config, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match=r"^\S* has 70\.55B parameters, which take 262\.8 GiB in fp32, and [^\n]*$"):
        load_pretrained(folder)


def test_the_sum_is_that_of_the_tensors_that_a_run_holds(tmp_path: Path) -> None:
    model = fresh(0)
    save_pretrained(tmp_path / "start", model, TOKENIZER)
    size = ModelSize.of(tmp_path / "start")
    assert size is not None
    assert size.parameters == sum(p.numel() for p in model.parameters())
    weights = TrainableWeights(model, OptimizerConfig(steps=1, lr=1e-3))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    weights.optimizer.methods[0].step()
    moments = [v for state in weights.optimizer.methods[0].state.values() for v in state.values() if v.dim()]
    certain, _ = needed_bytes(TrainConfig(policy="x"), size, workers=2)
    assert certain["weights that learn"] == sum(p.numel() * 4 for p in model.parameters())
    assert certain["optimizer"] == sum(v.numel() * 4 for v in moments)
    assert certain["average"] == weights.ema_weights.numel() * 4
    assert certain["copies that sample"] == 2 * certain["weights that learn"]


def test_adapters_count_their_own_parameters(tmp_path: Path) -> None:
    model = fresh(0)
    save_pretrained(tmp_path / "start", model, TOKENIZER)
    size = ModelSize.of(tmp_path / "start")
    assert size is not None
    adapt(model, rank=4, seed=0)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    certain, _ = needed_bytes(TrainConfig(policy="x", lora=4), size, workers=1)
    assert certain["average"] == 4 * trained


def test_more_processes_each_hold_less_on_gpus_and_more_copies_on_one_machine() -> None:
    def total(**changes: object) -> int:
        return sum(needed_bytes(TrainConfig(policy="x", **changes), SMOLLM2, workers=2)[0].values())  # type: ignore[arg-type]

    assert total(engine="vllm+fsdp", processes=4, device="cuda") < 0.3 * total(engine="vllm", device="cuda")
    assert total(engine="fsdp", processes=4) > total(engine="fsdp", processes=2)
    assert total(kl=0.1) > total()
    assert total(engine="vllm", servers=2) - total(engine="vllm") == 4 * SMOLLM2.parameters + GIB


def test_what_may_not_fit_is_warned_of() -> None:
    config = TrainConfig(policy=SMOLLM2_POLICY, lora=8, shards=1, max_tokens=4096)
    certain, likely = needed_bytes(config, SMOLLM2, workers=1)
    assert likely["activations"] > GIB
    with pytest.warns(MemoryWarning, match=r"^memory may run out: [^\n]*activations \d+\.\d[^\n]*micro_batch"):
        check_memory(config, workers=1, available=sum(certain.values()) + GIB)
    with pytest.raises(UsageError, match=r"^training smollm2 \(0\.13B parameters\) needs [^\n]*$"):
        check_memory(config, workers=1, available=sum(certain.values()) - 1)


def test_this_machine_has_memory() -> None:
    assert 0 < available_memory("cpu") <= memory_of("cpu")


def test_too_few_gpus_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^4 processes need a GPU each, and there are 2: set processes to 2$"):
        check_gpus(TrainConfig(engine="fsdp", processes=4, device="cuda"), there=2)
    wide = TrainConfig(engine="vllm", servers=2, device="cuda", server_options="--tensor-parallel-size=2 -pp 3")
    assert gpus_of_servers(wide) == 12
    with pytest.raises(UsageError, match=r"^2 servers need 12 GPUs, and there are 2: "):
        check_gpus(wide, there=2)
    check_gpus(wide.replace(server_options="", servers=2), there=2)
