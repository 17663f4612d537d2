"""Tiny random models of the architectures of `transformers` that a user may bring: each a few thousand weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers as t

WIDTH, HEADS, POSITIONS = 32, 4, 256


def _settings(vocabulary: int, end: int | None) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": WIDTH,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 2,
        "max_position_embeddings": POSITIONS,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": end,
    }


MIXED = ["sliding_attention", "full_attention"]
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
GPT2 = {"n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "n_positions": POSITIONS}
STATE = {"state_size": 8, "conv_kernel": 4, "expand": 2}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "gpt2": ("GPT2", GPT2),
    "gptneox": ("GPTNeoX", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 8}),
    "qwen3moe": ("Qwen3Moe", {"head_dim": 8, **EXPERTS}),
    "gemma2": ("Gemma2", {"head_dim": 8, "sliding_window": 9, "layer_types": MIXED}),
    "gemma3": ("Gemma3", {"head_dim": 8, "sliding_window": 9, "layer_types": MIXED}),
    "mistral-window": ("Mistral", {"sliding_window": 9}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "phi3": ("Phi3", {}),
    "olmo2": ("Olmo2", {}),
    "smollm3": ("SmolLM3", {}),
    "lfm2": ("Lfm2", {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}),
    "lfm2moe": (
        "Lfm2Moe",
        {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1, **EXPERTS},
    ),
    "falcon-h1": ("FalconH1", {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8}),
    "qwen3next": (
        "Qwen3Next",
        {
            "head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "layer_types": ["linear_attention", "full_attention"],
            "shared_expert_intermediate_size": 16,
            **EXPERTS,
        },
    ),
    "gpt-oss": (
        "GptOss",
        {"head_dim": 8, "sliding_window": 9, "layer_types": MIXED, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "deepseek-v3": (
        "DeepseekV3",
        {
            "num_key_value_heads": HEADS,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "n_routed_experts": 4,
            "n_group": 1,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "first_k_dense_replace": 1,
        },
    ),
    "mamba": ("Mamba", STATE),
    "mamba2": ("Mamba2", {**STATE, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 8}),
    "rwkv": ("Rwkv", {"attention_hidden_size": WIDTH, "context_length": POSITIONS}),
    "bloom": ("Bloom", {"n_layer": 2, "n_head": HEADS}),
    "opt": ("OPT", {"ffn_dim": 64, "word_embed_proj_dim": WIDTH}),
    "granite": ("Granite", {}),
    "cohere": ("Cohere", {}),
}
"""Name: prefix of the classes of `transformers`, and settings beside the common ones."""


def tiny_model(kind: str, *, vocabulary: int, end: int | None) -> Any:
    """A random model in fp32 and evaluation mode; equal arguments give equal weights."""
    prefix, changes = KINDS[kind]
    names = {"GPT2": ("GPT2Config", "GPT2LMHeadModel"), "Gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM")}
    config_name, model_name = names.get(prefix, (f"{prefix}Config", f"{prefix}ForCausalLM"))
    torch.manual_seed(3)
    model = getattr(t, model_name)(getattr(t, config_name)(**{**_settings(vocabulary, end), **changes}))
    with torch.no_grad():  # weights of 0 or 1 alone would hide what a layer does with them
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.float().eval()
