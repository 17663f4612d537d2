"""Context parallelism: the processes of a group read one batch together, each a part of every sequence.

A process holds two blocks of a sequence, one from its beginning and one from its end, so that all have about as much
attention to compute. In each layer keys and values of all parts are gathered, and queries look at those before them
(as in Llama 3, arXiv 2407.21783, 3.3.2). A process computes the log-probabilities of its own tokens. The loss is
that of all tokens, and each process differentiates it by its own, so that gradients add up over the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface

from wanderlust.errors import UsageError

ATTENTION = "wander_context_parallel"
"""Name of the attention below in `transformers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextGroup:
    """The processes that read a batch together."""

    group: Any
    """A process group of `size`."""
    rank: int
    size: int

    def places(self, length: int, rank: int | None = None) -> Tensor:
        """Positions in a sequence of `length`, a multiple of twice the group's size, that a process holds."""
        block, own = length // (2 * self.size), self.rank if rank is None else rank
        return torch.cat([torch.arange(n * block, (n + 1) * block) for n in (own, 2 * self.size - 1 - own)])

    def padded(self, ids: Tensor) -> Tensor:
        """[B, T] with zeros on the right, so that every process has two whole blocks."""
        return pad(ids, (0, -ids.shape[1] % (2 * self.size)))

    def join(self, own: Tensor, at: Tensor, count: int) -> Tensor:
        """[count] of which this process has those `at`: all values, differentiable by the own ones."""
        spread = own.new_zeros(count).index_put((at,), own)
        whole = spread.detach().clone()
        dist.all_reduce(whole, group=self.group)
        return whole + (spread - spread.detach())


class _Gather(torch.autograd.Function):
    """All parts along a dimension, in the order of the processes; the gradient of a part is summed over them."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, context: ContextGroup) -> Tensor:
        ctx.context = context
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(context.size)]
        dist.all_gather(parts, part.contiguous(), group=context.group)
        return torch.cat(parts, dim=2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        context: ContextGroup = ctx.context
        whole = gradients[0].contiguous()
        dist.all_reduce(whole, group=context.group)
        return whole.chunk(context.size, dim=2)[context.rank].contiguous(), None


def _attention(module: nn.Module, *tensors: Tensor | None, **options: Any) -> tuple[Tensor, None]:
    """Attention of this process's queries to the keys and values of all; what `transformers` calls.

    `tensors` are queries, keys and values, [B, H, L, D] each, and a mask that is not needed.
    """
    query, key, value = (tensor for tensor in tensors[:3] if tensor is not None)
    context: ContextGroup = module.context_group  # type: ignore[assignment]
    both: Tensor = _Gather.apply(torch.cat([key, value], dim=-1), context)  # type: ignore[no-untyped-call]
    keys, values = both[..., : key.shape[-1]], both[..., key.shape[-1] :]
    length = keys.shape[2]
    own = context.places(length).to(query.device)
    others = torch.cat([context.places(length, rank) for rank in range(context.size)]).to(query.device)
    out = scaled_dot_product_attention(
        query,
        keys,
        values,
        attn_mask=own[:, None] >= others,
        scale=options.get("scaling"),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, _attention)


def join_context_group(size: int) -> ContextGroup:
    """The group of this process: `size` neighbours by rank. UsageError where the processes are no multiple of it."""
    world = dist.get_world_size() if dist.is_initialized() else 1
    if world % size:
        raise UsageError(f"context_parallel is {size}, and {world} processes are no multiple of it")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(device, (world // size, size), mesh_dim_names=("data", "context"))
    return ContextGroup(group=mesh.get_group("context"), rank=mesh.get_local_rank("context"), size=size)


def use_context_parallel(model: Any, context: ContextGroup) -> None:
    """Let the model's attention go over the group from now on. UsageError as `check_full_attention` says."""
    check_full_attention(model.config)
    model.config._attn_implementation = ATTENTION
    for module in model.modules():
        module.context_group = context


def check_full_attention(config: Any) -> None:
    """Raises UsageError for a model whose layers do not all look at everything before."""
    kinds = getattr(config, "layer_types", None)
    full = kinds is None or set(kinds) == {"full_attention"}
    if (
        not full
        or not hasattr(config, "num_key_value_heads")
        or (kinds is None and getattr(config, "sliding_window", None))
    ):
        raise UsageError(
            "context_parallel needs full attention in every layer, and the model has windows, convolutions or states "
            f"({config.model_type}): leave it at 1"
        )
