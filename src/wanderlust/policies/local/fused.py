"""What a small Llama samples with: its weights laid out so that a layer takes thirty calls instead of a hundred.

The weights are copied: queries, keys and values side by side, gate and up side by side, norms and the attention's scale
multiplied in, adapters added, and the halves of each head in turns, so that a rotation is one product of complex
numbers. The copy is made anew whenever a weight has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from wanderlust.policies.local.llama import Attend

MOST = 2**28
"""Weights of a trunk, in numbers, that are worth a copy: in larger ones the products take all the time anyway."""


class _Layer(NamedTuple):
    attention: Tensor
    """[W, (heads + 2 groups) x D]"""
    out: Tensor
    gate_up: Tensor
    down: Tensor


class Fused:
    """As `Llama` for lines of tokens, and without gradients."""

    scale = 1.0
    """What scores are multiplied by; it is in the weights."""

    def __init__(self, model: Any):
        config = model.config
        self.trunk = model.base_model
        self.heads, self.groups = int(config.num_attention_heads), int(config.num_key_value_heads)
        self.size = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        self.width, self.inner = int(config.hidden_size), int(config.intermediate_size)
        self.epsilon = torch.tensor(float(self.trunk.norm.variance_epsilon), device=model.device)
        self._parameters = list(self.trunk.parameters())
        self._stamp = -1
        self._layers: list[_Layer] = []
        self._turns = torch.empty(0, self.size // 2, dtype=torch.complex64, device=model.device)

    @staticmethod
    def suits(model: Any) -> bool:
        """Whether the model has nothing that this one leaves out: biases, norms of heads, other precisions."""
        parameters = dict(model.base_model.named_parameters())
        norms = ("input_layernorm.weight", "post_attention_layernorm.weight", "norm.weight")
        matrices = all(p.dim() == 2 or name.endswith(norms) for name, p in parameters.items())
        plain = all(p.dtype == torch.float32 and not p.is_inference() for p in parameters.values())
        return matrices and plain and not any("_norm." in name for name in parameters) and _count(parameters) <= MOST

    @torch.no_grad()
    def _refresh(self) -> None:
        stamp = sum(p._version for p in self._parameters)
        if stamp == self._stamp:
            return
        self._stamp, self._layers = stamp, [self._laid_out(layer) for layer in self.trunk.layers]

    def _laid_out(self, layer: Any) -> _Layer:
        own, inner, half = layer.self_attn, layer.mlp, self.size // 2
        places = torch.arange(self.size, device=self.epsilon.device).view(2, half).T.flatten()

        def turned(weight: Tensor) -> Tensor:
            return weight.view(-1, self.size, weight.shape[1])[:, places].flatten(0, 1)

        before, after = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        queries = turned(_weight(own.q_proj)) * self.size**-0.5
        attention = torch.cat([queries, turned(_weight(own.k_proj)), _weight(own.v_proj)]) * before
        gate_up = torch.cat([_weight(inner.gate_proj), _weight(inner.up_proj)]) * after
        matrices = (attention, _weight(own.o_proj), gate_up, _weight(inner.down_proj))
        return _Layer(*(matrix.T.contiguous() for matrix in matrices))

    def states(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Last hidden states [N, W] of ids [N] at positions [N]."""
        self._refresh()
        hidden = self.trunk.embed_tokens(ids)
        count, half, turning = len(ids), self.size // 2, self.heads + self.groups
        turn = self._turns_at(positions, hidden)
        for number, layer in enumerate(self._layers):
            mixed = torch.mm(self._unit(hidden), layer.attention).view(count, -1, self.size)
            pairs = torch.view_as_complex(mixed[:, :turning].view(count, turning, half, 2))
            pairs.mul_(turn)
            found = attend(number, mixed.split_with_sizes((self.heads, self.groups, self.groups), 1))
            hidden = torch.addmm(hidden, found.reshape(count, -1), layer.out)
            both = torch.mm(self._unit(hidden), layer.gate_up)
            said = functional.silu(both[:, : self.inner]).mul_(both[:, self.inner :])
            hidden = torch.addmm(hidden, said, layer.down)
        last: Tensor = self._unit(hidden) * self.trunk.norm.weight
        return last

    def _turns_at(self, positions: Tensor, hidden: Tensor) -> Tensor:
        """What each pair of a head is multiplied by, [N, 1, D / 2]; from a table that grows with them."""
        far = int(positions.max())
        if far >= len(self._turns):
            places = torch.arange(max(far + 1, 2 * len(self._turns), 256), device=hidden.device)
            cos, sin = (x[0, :, : self.size // 2] for x in self.trunk.rotary_emb(hidden, places[None]))
            self._turns = torch.complex(cos, sin)
        return self._turns[positions][:, None]

    def _unit(self, x: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale: Tensor = torch.addcmul(self.epsilon, length, length, value=1 / self.width).rsqrt_()
        return x * scale


def _weight(projection: Any) -> Tensor:
    """The matrix of a linear layer, with what its adapters add."""
    if not hasattr(projection, "get_delta_weight"):
        weight: Tensor = projection.weight
        return weight
    whole: Tensor = projection.get_base_layer().weight
    names: Sequence[str] = projection.active_adapters
    for name in names:
        whole = whole + projection.get_delta_weight(name)
    return whole


def _count(parameters: dict[str, Tensor]) -> int:
    return sum(p.numel() for p in parameters.values())
