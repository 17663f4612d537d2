"""The forward pass of the Llama family, written out: what small models spend on it beside matrix products, halved.

It calls the model's own projections, so weights are read where they are, adapters take part, and gradients go where
they go in `transformers`; what lies between them takes fewer and cheaper operations. Logits are those of the model to
rounding, which is tried before it is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from wanderlust.policies.local.formulas import gated, normed, rotated
from wanderlust.policies.local.placing import kind_of

KNOWN = ("llama", "mistral", "qwen2", "qwen3")
STATIC = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary positions that do not depend on how long the context is."""
TRIED = 24
"""Tokens of the trial."""
NEAR = 1e-4
"""How near the trial's logits must be, as a share of their size; four times as far in half precision as it rounds."""

Attend: TypeAlias = Callable[[int, Sequence[Tensor]], Tensor]
"""From a layer's number, queries [..., heads, D], keys and values [..., groups, D] to what was found, as queries."""


class OwnPassRefused(UserWarning):
    """A model of a known kind answers otherwise than it should; `transformers` reads it then."""


class Llama:
    """A model's trunk, read by our own pass."""

    def __init__(self, model: Any):
        config = model.config
        self.trunk = model.base_model
        self.size = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        self.scale = self.size**-0.5
        """What scores are multiplied by."""
        self.grouped = config.num_attention_heads != config.num_key_value_heads

    def states(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Last hidden states [..., W] of ids [...] at positions [...]."""
        hidden = self.trunk.embed_tokens(ids)
        flat = positions if positions.dim() > 1 else positions[None]
        cos, sin = (x.view(*positions.shape, 1, -1) for x in self.trunk.rotary_emb(hidden, flat))
        for number, layer in enumerate(self.trunk.layers):
            own, inner = layer.self_attn, layer.mlp
            x = normed(hidden, layer.input_layernorm)
            q, k, v = (project(x).unflatten(-1, (-1, self.size)) for project in (own.q_proj, own.k_proj, own.v_proj))
            if hasattr(own, "q_norm"):
                q, k = normed(q, own.q_norm), normed(k, own.k_norm)
            found = attend(number, (rotated(q, cos, sin), rotated(k, cos, sin), v))
            hidden = hidden + own.o_proj(found.flatten(-2))
            x = normed(hidden, layer.post_attention_layernorm)
            hidden = hidden + inner.down_proj(gated(inner.gate_proj(x), inner.up_proj(x)))
        return normed(hidden, self.trunk.norm)

    def read(self, ids: Tensor, *, positions: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Last hidden states [B, T, W] of rows [B, T].

        Positions count up from 0 unless they are given; `mask` [B, 1, T, T] is added to the scores (None: causal).
        """
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)[None]

        def attend(_: int, asked: Sequence[Tensor]) -> Tensor:
            q, k, v = (x.transpose(1, 2) for x in asked)
            found = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=self.grouped
            )
            return found.transpose(1, 2)

        return self.states(ids, positions, attend)


def own_pass(model: Any) -> Llama | None:
    """Our own pass over the model, where it is of a kind we know; else None.

    Warns with OwnPassRefused, and gives None, when it looks like one and answers otherwise.
    """
    if not _looks_known(model.config):
        return None
    own = Llama(model)
    apart, allowed = _trial(model, own)
    if apart <= allowed:
        return own
    kind = model.config.model_type
    warnings.warn(
        f"the {kind} model's logits are {apart:.1e} from those of our own pass over it, where {allowed:.1e} is "
        "rounding: transformers reads it, which is slower; see policies/local/llama.py",
        OwnPassRefused,
        stacklevel=2,
    )
    return None


def _looks_known(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type in KNOWN
        and getattr(config, "hidden_act", "") == "silu"
        and (kinds is not None or not getattr(config, "sliding_window", None))
        and all(kind == "full_attention" for kind in kinds or ())
        and rope.get("rope_type", "default") in STATIC
    )


@torch.no_grad()
def _trial(model: Any, own: Llama) -> tuple[float, float]:
    """How far the logits of a short row are apart, and how far they may be."""
    ids = (torch.arange(TRIED, device=model.device) * 7 % model.config.vocab_size)[None]
    wanted = model(input_ids=ids, use_cache=False).logits
    apart = (model.get_output_embeddings()(own.read(ids)) - wanted).abs().max()
    near = max(NEAR, 4 * torch.finfo(kind_of(model.base_model)).eps)
    return float(apart), near * max(float(wanted.abs().max()), 1.0)
