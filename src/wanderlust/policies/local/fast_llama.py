"""Forward passes of the Llama family, written out to take fewer and cheaper operations than `transformers`.

`FastLlama` calls the model's own projections, so that adapters take part and gradients flow as in `transformers`; the
operations between them have gradients written by hand. Its logits are compared with the model's before it is used, and
equal them to rounding. `FusedLlama` samples from a copy of a small model's weights, in thirty calls a layer instead of
a hundred: queries, keys and values side by side, gate and up side by side, norms and the attention's scale multiplied
in, adapters added, and the halves of each head interleaved, so that a rotation is one complex product. The copy is
made anew whenever a weight has changed. `FastLlamaPass` reads the new ids of the conversations in the front rows of
the cache by one of these.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from wanderlust.policies.local.device import dtype_of
from wanderlust.policies.local.products import missing_rows, product, projected
from wanderlust.policies.local.rows import Context, RowPool


def rms_norm(x: Tensor, norm: Any) -> Tensor:
    """RMSNorm (arXiv 1910.07467) of the last dimension, by a module with `weight` and `variance_epsilon`."""
    if torch.is_grad_enabled():
        out: Tensor = _RmsNorm.apply(x, norm.weight, norm.variance_epsilon)  # type: ignore[no-untyped-call]
        return out
    out = (x.float() * _scale(x, norm.variance_epsilon)).to(x.dtype).mul_(norm.weight)
    return out


def _scale(x: Tensor, epsilon: float) -> Tensor:
    """One over the root of the mean square, float32 [..., 1]."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    scale: Tensor = length.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
    return scale


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        x, weight, epsilon = inputs
        scale = _scale(x, epsilon)
        ctx.save_for_backward(x, weight, scale)
        out: Tensor = (x.float() * scale).to(x.dtype).mul_(weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight, scale = ctx.saved_tensors
        unit, gradient, wide = x.float() * scale, gradient.float(), weight.float()
        shares = gradient * unit
        mean = torch.mv(shares.flatten(0, -2), wide).div_(x.shape[-1]).view_as(scale)
        whole = shares.flatten(0, -2).sum(0).to(weight.dtype) if ctx.needs_input_grad[1] else None
        out = torch.mul(gradient, wide, out=shares).addcmul_(unit, mean, value=-1).mul_(scale)
        return out.to(x.dtype), whole, None


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions (arXiv 2104.09864) on [..., heads, D], halves as pairs; `cos` and `sin` are [..., 1, D]."""
    if torch.is_grad_enabled():
        out: Tensor = _Rotary.apply(x, cos, sin)  # type: ignore[no-untyped-call]
        return out
    return _rotate(x, cos, sin, sign=1)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, *, sign: int) -> Tensor:
    half = x.shape[-1] // 2
    sin = sin[..., :half]
    out = x * cos
    out[..., :half].addcmul_(x[..., half:], sin, value=-sign)
    out[..., half:].addcmul_(x[..., :half], sin, value=sign)
    return out


class _Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        x, cos, sin = inputs
        ctx.save_for_backward(cos, sin)
        return _rotate(x, cos, sin, sign=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _rotate(gradient, *ctx.saved_tensors, sign=-1), None, None


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """SwiGLU's activation (arXiv 2002.05202). Without gradients it overwrites both arguments."""
    if torch.is_grad_enabled():
        out: Tensor = _SwiGlu.apply(gate, up)  # type: ignore[no-untyped-call]
        return out
    return functional.silu(gate, inplace=True).mul_(up)


class _SwiGlu(torch.autograd.Function):
    """Its backward pass writes over what was saved: new memory for tensors of this size costs as much as the sums."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        gate, up = inputs
        activated = functional.silu(gate)
        ctx.save_for_backward(gate, up, activated)
        return activated * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        gate, up, activated = ctx.saved_tensors
        torch.mul(gradient, up, out=up)
        torch.ops.aten.silu_backward.grad_input(up, gate, grad_input=gate)
        return gate, activated.mul_(gradient)


FAST_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
STATIC_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary positions that do not depend on the context's length."""
TRIAL_TOKENS = 24
"""Tokens of the row on which the logits are compared."""
MAX_LOGIT_DIFFERENCE = 1e-4
"""Largest difference of the logits, as a share of their size; at least four times the precision's rounding."""

Attend: TypeAlias = Callable[[int, Sequence[Tensor]], Tensor]
"""Attention of a layer by number: queries [..., heads, D], keys and values [..., groups, D]; the shape of queries."""


class FastLlamaMismatchWarning(UserWarning):
    """Our own pass over a model of a known kind gives other logits; `transformers` computes it then."""


class FastLlama:
    """Compute a model's trunk by our own pass."""

    def __init__(self, model: Any):
        config = model.config
        self.trunk = model.base_model
        self.size = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        self.scale = self.size**-0.5
        """Factor of the attention scores."""
        self.grouped = config.num_attention_heads != config.num_key_value_heads
        self.recompute = False
        """Whether a layer's activations are computed again in the backward pass instead of being kept."""

    def states(self, ids: Tensor, positions: Tensor, attend: Attend, *, keep: Tensor | None = None) -> Tensor:
        """Last hidden states [..., W] of ids [...] at positions [...]; with `keep` [U], those of these places, [U, W].

        Places that are not kept take no part in the last layer's feed-forward.
        """
        hidden = self.trunk.embed_tokens(ids)
        flat = positions if positions.dim() > 1 else positions[None]
        cos, sin = (x.view(*positions.shape, 1, -1) for x in self.trunk.rotary_emb(hidden, flat))
        last = len(self.trunk.layers) - 1
        rows = functional.pad(keep, (0, missing_rows(len(keep)))) if keep is not None else None
        for number in range(last + 1):
            own: dict[str, Any] = {"turns": (cos, sin), "attend": attend, "keep": rows if number == last else None}
            if self.recompute and torch.is_grad_enabled():
                hidden = checkpoint(self._layer, hidden, number, **own, use_reentrant=False)
            else:
                hidden = self._layer(hidden, number, **own)
        return rms_norm(hidden if keep is None else hidden[: len(keep)], self.trunk.norm)

    def _layer(
        self, hidden: Tensor, number: int, *, turns: tuple[Tensor, Tensor], attend: Attend, keep: Tensor | None
    ) -> Tensor:
        layer = self.trunk.layers[number]
        own, inner, (cos, sin) = layer.self_attn, layer.mlp, turns
        x = rms_norm(hidden, layer.input_layernorm)
        projections = (own.q_proj, own.k_proj, own.v_proj)
        q, k, v = (projected(one, x).view(*x.shape[:-1], -1, self.size) for one in projections)
        if hasattr(own, "q_norm"):
            q, k = rms_norm(q, own.q_norm), rms_norm(k, own.k_norm)
        attended = attend(number, (apply_rotary(q, cos, sin), apply_rotary(k, cos, sin), v)).flatten(-2)
        if keep is not None:
            hidden, attended = (x.flatten(0, -2).index_select(0, keep) for x in (hidden, attended))
        hidden = hidden + projected(own.o_proj, attended)
        x = rms_norm(hidden, layer.post_attention_layernorm)
        activated = swiglu(projected(inner.gate_proj, x), projected(inner.up_proj, x))
        return hidden + projected(inner.down_proj, activated)

    def forward_rows(
        self, ids: Tensor, *, positions: Tensor | None = None, mask: Tensor | None = None, keep: Tensor | None = None
    ) -> Tensor:
        """Last hidden states [B, T, W] of rows [B, T]; with `keep` [U], those of these places of [B x T], [U, W].

        Positions count up from 0 unless they are given; `mask` [B, 1, T, T] is added to the scores (None: causal).
        """
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)[None]

        def attend(_: int, projections: Sequence[Tensor]) -> Tensor:
            q, k, v = (x.transpose(1, 2) for x in projections)
            attended = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=self.grouped
            )
            return attended.transpose(1, 2)

        return self.states(ids, positions, attend, keep=keep)


def fast_llama_for(model: Any) -> FastLlama | None:
    """Make our own pass over the model where its kind is known; else None.

    Warns with FastLlamaMismatchWarning, and returns None, when its logits on a short row are not the model's.
    """
    if not _looks_known(model.config):
        return None
    own = FastLlama(model)
    with torch.no_grad():
        ids = (torch.arange(TRIAL_TOKENS, device=model.device) * 7 % model.config.vocab_size)[None]
        head = model.get_output_embeddings()
        if head is None:  # a reward model, which has no logits
            wanted, found = model.base_model(input_ids=ids, use_cache=False).last_hidden_state, own.forward_rows(ids)
        else:
            wanted, found = model(input_ids=ids, use_cache=False).logits, head(own.forward_rows(ids))
        apart = float((found - wanted).abs().max())
    near = max(MAX_LOGIT_DIFFERENCE, 4 * torch.finfo(dtype_of(model.base_model)).eps)
    allowed = near * max(float(wanted.abs().max()), 1.0)
    if apart <= allowed:
        return own
    kind = model.config.model_type
    warnings.warn(
        f"the {kind} model's logits are {apart:.1e} from those of our own pass over it, where {allowed:.1e} is "
        "rounding: transformers reads it, which is slower; see policies/local/fast_llama.py",
        FastLlamaMismatchWarning,
        stacklevel=2,
    )
    return None


def _looks_known(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type in FAST_MODEL_TYPES
        and getattr(config, "hidden_act", "") == "silu"
        and (kinds is not None or not getattr(config, "sliding_window", None))
        and all(kind == "full_attention" for kind in kinds or ())
        and rope.get("rope_type", "default") in STATIC_ROPE_TYPES
    )


MAX_FUSED_PARAMETERS = 2**28
"""Parameters of the largest trunk that is copied: in larger ones the matrix products take all the time anyway."""


class _Layer(NamedTuple):
    attention: Tensor
    """[(heads + 2 groups) x D, W]"""
    out: Tensor
    gate_up: Tensor
    down: Tensor


class FusedLlama:
    """As `FastLlama`, from a copy of the weights, for lines of tokens and without gradients."""

    scale = 1.0
    """Factor of the attention scores; the real one is multiplied into the weights."""

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
        """Whether the model is small and has nothing unsupported: biases, norms of heads, other precisions."""
        parameters = dict(model.base_model.named_parameters())
        norms = ("input_layernorm.weight", "post_attention_layernorm.weight", "norm.weight")
        matrices = all(p.dim() == 2 or name.endswith(norms) for name, p in parameters.items())
        plain = all(p.dtype == torch.float32 and not p.is_inference() for p in parameters.values())
        return (
            matrices
            and plain
            and not any("_norm." in name for name in parameters)
            and sum(p.numel() for p in parameters.values()) <= MAX_FUSED_PARAMETERS
        )

    @torch.no_grad()
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
        return _Layer(*(matrix.detach() for matrix in matrices))

    def states(self, ids: Tensor, positions: Tensor, attend: Attend, *, keep: Tensor | None = None) -> Tensor:
        """Last hidden states [N, W] of ids [N] at positions [N]; `keep` as in `FastLlama.states`."""
        stamp = sum(p._version for p in self._parameters)
        if stamp != self._stamp:
            self._stamp, self._layers = stamp, [self._laid_out(layer) for layer in self.trunk.layers]
        hidden = self.trunk.embed_tokens(ids)
        count, half, turning = len(ids), self.size // 2, self.heads + self.groups
        far = int(positions.max())
        if far >= len(self._turns):  # the table of rotations grows with the positions
            places = torch.arange(max(far + 1, 2 * len(self._turns), 256), device=hidden.device)
            cos, sin = (x[0, :, :half] for x in self.trunk.rotary_emb(hidden, places[None]))
            self._turns = torch.complex(cos, sin)
        turn = self._turns[positions][:, None]  # [N, 1, D / 2]
        for number, layer in enumerate(self._layers):
            mixed = product(self._unit(hidden), layer.attention).view(count, -1, self.size)
            pairs = torch.view_as_complex(mixed[:, :turning].view(count, turning, half, 2))
            pairs.mul_(turn)
            q, k, v = mixed.split_with_sizes((self.heads, self.groups, self.groups), 1)
            if keep is not None and number == len(self._layers) - 1:
                hidden, q = hidden.index_select(0, keep), q.index_select(0, keep)
            hidden = product(attend(number, (q, k, v)).reshape(len(q), -1), layer.out).add_(hidden)
            both = product(self._unit(hidden), layer.gate_up)
            activated = functional.silu(both[:, : self.inner]).mul_(both[:, self.inner :])
            hidden = product(activated, layer.down).add_(hidden)
        last: Tensor = self._unit(hidden) * self.trunk.norm.weight
        return last

    def _unit(self, x: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale: Tensor = torch.addcmul(self.epsilon, length, length, value=1 / self.width).rsqrt_()
        return x * scale


def _weight(projection: Any) -> Tensor:
    """The matrix of a linear layer, with its adapters added."""
    if not hasattr(projection, "get_delta_weight"):
        weight: Tensor = projection.weight
        return weight
    whole: Tensor = projection.get_base_layer().weight
    names: Sequence[str] = projection.active_adapters
    for name in names:
        whole = whole + projection.get_delta_weight(name)
    return whole


AttentionSearch: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Attention of queries [N, heads, D] over keys and values [rows x groups, upto, D]; the shape of queries."""
MAX_SCORES = 2**20
"""Attention scores that are made as plain products; more of them are made piecewise by PyTorch's attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """Tokens of some rows, one after the other."""

    rows: Tensor
    """[N]"""
    positions: Tensor
    """[N]"""
    counts: list[int]
    """Number of tokens of each row."""
    upto: int
    """Positions that any of them may look at."""

    @classmethod
    def of(cls, batch: Sequence[Context], starts: Sequence[int], device: Any) -> _Line:
        """Those of each context from a position on."""
        counts = [c.end - start for c, start in zip(batch, starts, strict=True)]
        rows = [row for row, n in enumerate(counts) for _ in range(n)]
        positions = [p for c, start in zip(batch, starts, strict=True) for p in range(start, c.end)]
        return cls(
            rows=torch.tensor(rows, device=device),
            positions=torch.tensor(positions, device=device),
            counts=counts,
            upto=max(c.end for c in batch),
        )


class FastLlamaPass:
    """Read by our own pass: new tokens stand in one line, padded only for the attention of several tokens a row."""

    def __init__(self, model: Any, llama: FastLlama):
        self.llama = FusedLlama(model) if FusedLlama.suits(model) else llama
        self.head = model.get_output_embeddings()
        self.groups = int(model.config.num_key_value_heads)
        self.shares = int(model.config.num_attention_heads) // self.groups
        """Heads of queries that share one of keys."""
        self.kind, self.device = dtype_of(model.base_model), model.device

    def read(self, parts: Sequence[tuple[RowPool, Sequence[Context]]]) -> Tensor:
        """As `rows.TransformersPass.read`, but one pass for all pools; attention alone goes pool by pool."""
        batch = [context for _, contexts in parts for context in contexts]
        ids = [token for c in batch for token in (*c.ids[c.cached_length :], *c.draft)]
        wanted = [
            end - 1 - n
            for c, end in zip(batch, accumulate(c.end - c.cached_length for c in batch), strict=True)
            for n in range(len(c.draft), -1, -1)
        ]
        keep = torch.tensor(wanted, device=self.device) if len(wanted) < len(ids) else None
        lines = [_Line.of(contexts, [c.cached_length for c in contexts], self.device) for _, contexts in parts]
        ends = lines
        if keep is not None:
            ends = [_Line.of(contexts, [len(c.ids) - 1 for c in contexts], self.device) for _, contexts in parts]
        attends = [self._attend(pool, *two) for (pool, _), *two in zip(parts, lines, ends, strict=True)]

        def attend(number: int, projections: Sequence[Tensor]) -> Tensor:
            if len(attends) == 1:
                return attends[0](number, projections)
            q, k, v = projections
            sizes = [len(line.rows) for line in lines]
            own = sizes if len(q) == len(k) else [len(line.rows) for line in ends]
            split = zip(*(x.split_with_sizes(n) for x, n in ((q, own), (k, sizes), (v, sizes))), strict=True)
            return torch.cat([attend(number, part) for attend, part in zip(attends, split, strict=True)])

        positions = lines[0].positions if len(lines) == 1 else torch.cat([line.positions for line in lines])
        hidden = self.llama.states(torch.tensor(ids, device=self.device), positions, attend, keep=keep)
        return projected(self.head, hidden)

    def _attend(self, pool: RowPool, line: _Line, ends: _Line) -> Attend:
        """Attention of the new tokens of one pool's rows, or of their ends alone; keys and values are written first."""
        whole = self._search(line)
        few = whole if ends is line else self._search(ends)
        many, upto, places = len(line.counts) * self.groups, line.upto, (line.rows, line.positions)

        def attend(number: int, projections: Sequence[Tensor]) -> Tensor:
            q, k, v = projections
            keys, values = pool.layers[number].write(k, v, places)
            return (whole if len(q) == len(k) else few)(q, keys[:many, :upto], values[:many, :upto])

        return attend

    def _search(self, line: _Line) -> AttentionSearch:
        """Attend with queries that are padded to the most of a row; the heads of a group are further queries.

        Plain products cost less than the set-up of `scaled_dot_product_attention`; in lower precision their scores
        would be rounded before the softmax.
        """
        many, width, upto, shares = len(line.counts), max(line.counts), line.upto, self.shares
        groups, size, scale = self.groups, self.llama.size, self.llama.scale
        rows, depths, single = line.rows, line.positions[:, None], width == 1
        if not single:
            columns = torch.tensor([column for n in line.counts for column in range(n)], device=self.device)
            depths = depths.new_zeros(many, width).index_put_((rows, columns), line.positions)
        ahead = torch.arange(upto, device=self.device) > depths[..., None]
        lowest = torch.finfo(self.kind).min  # added to the scores of positions after a token's own, [B, C, upto]
        blind = torch.zeros(ahead.shape, dtype=self.kind, device=self.device).masked_fill_(ahead, lowest)
        few = self.kind == torch.float32 and many * groups * shares * width * upto <= MAX_SCORES
        if few:
            blind = blind[:, None, None].expand(-1, groups, shares, -1, -1).reshape(many * groups, -1, upto)
        else:
            blind = blind[:, None].repeat(1, 1, shares, 1)

        def search(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            if single:
                queries = q.reshape(many * groups, shares, size)
            else:
                padded = q.new_zeros(many, width, groups, shares, size)
                padded[rows, columns] = q.reshape(len(q), groups, shares, size)
                queries = padded.permute(0, 2, 3, 1, 4).reshape(many * groups, shares * width, size)
            if few:
                scores = torch.baddbmm(blind, queries, keys.transpose(1, 2), alpha=scale)
                attended = torch.bmm(scores.softmax(-1), values)
            else:
                queries, keys, values = (x.view(many, groups, -1, size) for x in (queries, keys, values))
                attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=blind, scale=scale)
            if single:
                return attended.view(q.shape)
            out: Tensor = attended.view(many, groups, shares, width, size).permute(0, 3, 1, 2, 4)[rows, columns]
            return out.flatten(1, 2)

        return search
