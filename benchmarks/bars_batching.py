"""What batching brings: tokens per processor second with 32 conversations at once against one, by kind of model.

Random models of six layers, 128 wide; answers of 64 tokens; one thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import torch
import transformers

from benchmarks.bar import Bar
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.kv_cache import kv_cache_for
from wanderlust.training.tiny_model import fresh_tokenizer
from wanderlust.types import system, user

MANY, ROUNDS = 32, 3
TEXTS = ("You are X.", "You start.\n012\n345\n678", "O plays 4.\nX12\n3O5\n678")
SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
WINDOWS = [*["sliding_attention"] * 5, "full_attention"]
CONVOLUTIONS = ["conv", "conv", "full_attention"] * 2
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
STATES = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}
KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Llama": ("LlamaConfig", {}),
    "LFM2": ("Lfm2Config", {"layer_types": CONVOLUTIONS}),
    "Gemma 3": ("Gemma3TextConfig", {"head_dim": 32, "sliding_window": 64, "layer_types": WINDOWS}),
    "Qwen3-Next": (
        "Qwen3NextConfig",
        {"head_dim": 32, "shared_expert_intermediate_size": 64, **EXPERTS, **STATES},
    ),
    "Falcon-H1": (
        "FalconH1Config",
        {"mamba_d_ssm": 256, "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_state": 16, "head_dim": 32},
    ),
    "Mamba": ("MambaConfig", {"state_size": 16}),
    "Mamba 2": ("Mamba2Config", {"state_size": 16, "num_heads": 8, "head_dim": 32, "n_groups": 1}),
}


def rate(model: Any, tokenizer: Any, conversations: int) -> float:
    """Tokens sampled per second of processor time."""
    policy = LocalPolicy.of(model, tokenizer, SamplingOptions(max_tokens=64))

    async def all_answers() -> None:
        asked = [[system(TEXTS[0]), user(TEXTS[1 + number % 2] * (1 + number % 3))] for number in range(conversations)]
        await asyncio.gather(*(policy.complete(one, key=f"{number}") for number, one in enumerate(asked)))

    began = time.process_time()
    asyncio.run(all_answers())
    return policy.engine.counters.sampled / (time.process_time() - began)


def bars() -> Iterator[Bar]:
    """The gain of each kind of model."""
    tokenizer = fresh_tokenizer(TEXTS * 20)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for kind, (config, settings) in KINDS.items():
        torch.manual_seed(0)
        made = getattr(transformers, config)(**{**SHAPE, "vocab_size": len(tokenizer), **settings})
        model = transformers.AutoModelForCausalLM.from_config(made).eval()
        rate(model, tokenizer, MANY)  # the cache's trial and what is made once
        one, many = (median(rate(model, tokenizer, n) for _ in range(ROUNDS)) for n in (1, MANY))
        note = f"{one:,.0f} and {many:,.0f} tokens per processor second; {type(kv_cache_for(model)).__name__}"
        yield Bar(
            name=f"{kind}: tokens at {MANY} conversations against 1",
            figure=many / one,
            bar=8,
            aim=15,
            unit="x",
            better="higher",
            note=note,
        )
    torch.set_num_threads(threads)
