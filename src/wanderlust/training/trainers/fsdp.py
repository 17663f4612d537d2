"""A trainer in one process or in many: weights, gradients and optimizer cut up by PyTorch's fully_shard (FSDP2).

Every process runs the same program and calls the same verbs with the same samples; each computes its part of them, and
the figures that come back are the same everywhere. Start them with `torchrun`; without it there is one process, which
needs no process group and shards nothing. States are folders of tensors that any number of processes writes and any
number reads: PyTorch's distributed checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from wanderlust.errors import UsageError
from wanderlust.policies.base import Precision, SampledTokens, Sampler, SamplingOptions
from wanderlust.training.batch.collate import Batch, BatchTotals, collate, episode_units
from wanderlust.training.batch.packing import packed_input
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import OptimizerConfig
from wanderlust.training.gradient import SUMMED_FIELDS, GradientComputer, LossSums, transformer_layers
from wanderlust.training.losses import PolicyLoss
from wanderlust.training.optimizer import NOTHING_ADDED, Optimizer
from wanderlust.training.trainers.context_parallel import ContextGroup, join_context_group, use_context_parallel
from wanderlust.training.trainers.fsdp_state import MAX_FILE_BYTES, load_tensors, save_safetensors, save_tensors

T = TypeVar("T")
COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""Time that a process waits for the others before it fails."""


@contextmanager
def distributed() -> Iterator[None]:
    """Within the block this process is one of those that `torchrun` started; by itself it is the only one.

    By NCCL where there is a GPU for each, with gloo for what lies in memory; else by gloo.
    """
    if "WORLD_SIZE" not in os.environ:
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT)
    try:
        yield
    finally:
        dist.destroy_process_group()


def rank_and_world_size() -> tuple[int, int]:
    """This process's number, and how many there are."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def all_gather(mine: Sequence[T]) -> list[T]:
    """What all processes have, in their order: samples of rollouts that each played its part of."""
    if not dist.is_initialized():
        return list(mine)
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, list(mine))
    return [item for part in parts for item in part]


class WeightReceiver(Sampler, Protocol):
    """A sampler that weights can be published to."""

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Go on with these: the trainable parameters, whole, one after the other by name.

        Called in every process, and the iterator must be read to its end in each: the parts come together for it.
        """
        ...


@torch.no_grad()
def copy_weights(model: Any, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Into a whole model of the same kind, for instance one that is to be saved as a Hugging Face folder."""
    own = dict(model.named_parameters())
    for name, values in weights:
        own[name].copy_(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedConfig:
    """Options of the optimizer."""

    optimizer: OptimizerConfig
    """AdamW only."""
    temperature: float = 1.0
    """Sampling temperature of the rollouts."""
    micro_batch: int = 8
    """Samples that one process reads in one pass."""
    micro_batch_tokens: int = 0
    """Tokens that one process reads in one pass, packed where the model can; 0: as many as the samples have."""
    recompute: bool = False
    """Activation checkpointing: a layer's insides are computed again in the backward pass instead of being kept."""
    offload: bool = False
    """Weights, gradients and optimizer state lie in this machine's memory; a layer's weights are on the GPU while it
    computes."""
    precision: Precision = "fp32"
    """bf16: layers compute in bfloat16; embeddings, logits, weights, sums of gradients and optimizer stay in fp32."""
    context_parallel: int = 1
    """Processes that read a batch together, each a part of every sequence; their number is a multiple of it."""


class _FsdpModel(nn.Module):
    """The model as FSDP sees it: one call reads a batch, and inside it the root's weights are whole."""

    def __init__(self, model: nn.Module, read: Callable[[Batch], tuple[Tensor, Tensor]]):
        super().__init__()
        self.model, self.compute = model, read

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        logprobs, entropy = self.compute(batch)
        return logprobs.clone(), entropy.clone()  # views would lose FSDP's hooks if they were written to


class _ShardedGradientComputer(GradientComputer):
    """A differentiator that reads through the sharded model."""

    def __init__(self, model: Any, config: ShardedConfig):
        super().__init__(
            model,
            loss=PolicyLoss(),
            temperature=config.temperature,
            micro_batch=config.micro_batch,
            micro_batch_tokens=config.micro_batch_tokens,
        )
        self.data_rank, self.data_size = rank_and_world_size()
        self.context: ContextGroup | None = None
        if config.context_parallel > 1:
            self.context = join_context_group(config.context_parallel)
            use_context_parallel(model, self.context)
            self.data_rank, self.data_size = self.data_rank // self.context.size, self.data_size // self.context.size
            self.packs = self.trees = False
        self.reader = _FsdpModel(model, super().logprobs if self.context is None else self._logprobs_by_parts)

    def _logprobs_by_parts(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """As `logprobs`, with this process's part of every row read here; differentiable by that part alone."""
        context, reading = self.context, batch.model_input
        assert context is not None
        device = self.parameters[0].device
        ids = context.padded(reading.ids)
        places = context.places(ids.shape[1])
        part, depths = ids[:, places].to(device), places.to(device).expand(len(ids), -1)
        hidden = self.model.base_model(input_ids=part, position_ids=depths, use_cache=False).last_hidden_state
        column = torch.full((ids.shape[1],), -1).index_put((places,), torch.arange(len(places)))
        after = reading.positions if reading.position_of_token is None else reading.positions[reading.position_of_token]
        row, place = after // reading.ids.shape[1], column[after % reading.ids.shape[1]]
        own = (place >= 0).nonzero().squeeze(-1)
        states = hidden[row[own].to(device), place[own].to(device)]
        values = self.logprobs_of_states(states, batch.targets[own].to(device), None)
        logprobs, entropy = (context.join(one, own.to(device), len(after)) for one in values)
        return logprobs, entropy

    def logprobs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-probability of every trained token and entropy at its place, [N] each."""
        result: tuple[Tensor, Tensor] = self.reader(batch)
        return result

    def add(self, samples: Sequence[Sample], totals: BatchTotals) -> LossSums:
        """Add the gradient of the summed loss over this process's part of the samples."""
        rank, world = self.data_rank, self.data_size
        sums = LossSums(totals=BatchTotals.of(samples, self.loss))
        scales = max(totals.rl, 1.0) / max(totals.ce, 1.0), max(totals.rl, 1.0) / max(totals.tokens, 1.0)
        for piece in self._pieces(samples):
            mine = [sample for unit in piece[rank::world] for sample in unit]
            if mine:
                self._backward(self._collated(mine), sums, scales)
            else:  # all take part in every pass, or the others would wait for ever
                nothing = self.logprobs(self._collated(piece[0]))[0].sum() * 0.0
                nothing.backward()  # type: ignore[no-untyped-call]
        if self.context is not None and self.context.rank:  # the first of the group has counted all of it
            return LossSums(totals=sums.totals)
        return sums

    def _pieces(self, samples: Sequence[Sample]) -> Iterator[list[list[Sample]]]:
        """What all processes read in one pass."""
        size, tokens = self.micro_batch * self.data_size, self.line_tokens * rank_and_world_size()[1]
        return length_sorted_batches(samples, size, tokens=tokens)

    def _collated(self, samples: Sequence[Sample]) -> Batch:
        """One pass: a packed line where the model reads them, else rows; `_ordered` is the order of its samples."""
        line = self._ordered(samples)
        return collate(line, self.loss, packed_input(line, shares=False) if self.packs else None)

    def _ordered(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        return sorted(samples, key=lambda sample: sample.ids) if self.packs else samples

    @torch.no_grad()
    def compute_logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-probability of every trained token (else 0), per sample and token, in every process."""
        rank, world = self.data_rank, self.data_size
        rows: dict[int, list[float]] = {}
        numbers: dict[int, list[int]] = {}
        for n, sample in enumerate(samples):
            numbers.setdefault(id(sample), []).append(n)
        for piece in self._pieces(samples):
            mine = [s for unit in piece[rank::world] or piece[:1] for s in unit]  # all take part in every pass
            values = iter(self.logprobs(self._collated(mine))[0].tolist())
            for sample in self._ordered(mine):
                row = [0.0] * len(sample.ids)
                for i in sample.trained_positions:
                    row[i] = next(values)
                rows |= dict.fromkeys(numbers[id(sample)], row)
        for module in self.reader.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # without a backward pass the root's weights would stay whole, and be taken for others
        gathered = dict(all_gather(list(rows.items())))
        return [list(gathered.get(n, [0.0] * len(sample.ids))) for n, sample in enumerate(samples)]


def length_sorted_batches(samples: Sequence[Sample], size: int, *, tokens: int = 0) -> Iterator[list[list[Sample]]]:
    """Units of samples of alike length, shortest first; dealt out in turn each process gets about as much work.

    At most `size` units, and `tokens` tokens with padding where they are above 0.
    """
    piece: list[list[Sample]] = []
    for unit in sorted(episode_units(samples), key=lambda unit: max(len(s.ids) for s in unit)):
        rows = sum(map(len, piece)) + len(unit)
        if piece and (len(piece) == size or (tokens and rows * max(len(s.ids) for s in unit) > tokens)):
            yield piece
            piece = []
        piece.append(unit)
    if piece:
        yield piece


class ShardedTrainer:
    """A `Trainer`. Losses and weights are those of one process up to rounding, on any number of them."""

    def __init__(self, model: Any, config: ShardedConfig, *, sampler: WeightReceiver):
        """`model` is whole and the same in every process, and belongs to the trainer from here on.

        Its parameters with `requires_grad` are trained: all, or those of adapters (extra `lora`).
        """
        if config.optimizer.method != "adamw":
            raise UsageError(f"sharded weights are updated by adamw, not by {config.optimizer.method}")
        self.model, self.config, self.sampler, self.version = model, config, sampler, 0
        self._passing = _ShardedGradientComputer(model, config)
        _shard(self._passing.reader, config)
        self._passing.parameters = [p for p in model.parameters() if p.requires_grad]
        self.begin(config.optimizer)

    def begin(self, config: OptimizerConfig) -> None:
        """A fresh optimizer and schedule; the moving average of the weights begins here."""
        self.config = replace(self.config, optimizer=config)
        self.optimizer = Optimizer(self.model, config)
        self._averaged = {name: values.clone() for name, values in self._named()}
        self._denominator, self._finite, self._called = 0.0, True, False

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingOptions, *, key: int, session: str = ""
    ) -> SampledTokens:
        """Draw one answer with the weights that were published last."""
        return await self.sampler.sample(prompt, sampling, key=key, session=session)

    def release(self, session: str) -> None:
        """A conversation is over."""
        self.sampler.release(session)

    async def forward_backward(
        self, samples: Sequence[Sample], loss: PolicyLoss, *, totals: BatchTotals | None = None
    ) -> dict[str, float]:
        """Add the gradient of the summed loss over the samples, the same ones in every process."""
        self._passing.loss, self._called = loss, True
        own = BatchTotals.of(samples, loss)
        sums = self._passing.add(samples, totals or own)
        _all_reduce_sums(sums)
        self._denominator += own.rl
        self._finite = self._finite and isfinite(sums.loss + sums.ce + sums.kl)
        return {**sums.metrics(), "tokens": float(sums.tokens)}

    async def compute_logprobs(self, samples: Sequence[Sample], loss: PolicyLoss) -> list[list[float]]:
        """Log-probability of every trained token (else 0) under the newest weights; every process has all of them."""
        self._passing.loss = loss
        return self._passing.compute_logprobs(samples)

    async def optim_step(self) -> dict[str, float]:
        """Clip by the norm of all processes' gradients together and take a step, unless something is not finite."""
        if not self._called:
            raise UsageError(NOTHING_ADDED)
        self._called = False
        parameters, self._denominator, divisor = self._passing.parameters, 0.0, max(self._denominator, 1.0)
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad / divisor
        norm, lr = _norm(parameters), self.config.optimizer.lr_at(self.optimizer.taken)
        finite, self._finite = self._finite and isfinite(norm), True
        if finite:
            scale = min(1.0, self.config.optimizer.max_norm / norm) if norm else 1.0
            for parameter in parameters:
                parameter.grad = None if parameter.grad is None else parameter.grad * scale
            (method,) = self.optimizer.methods
            for group in method.param_groups:
                group["lr"] = lr
            method.step()
        self.optimizer.skip()  # counts it
        for parameter in parameters:
            parameter.grad = None
        return {"grad_norm": norm, "lr": lr} if finite else {"grad_norm": norm, "lr": lr, "skipped": 1.0}

    async def publish(self) -> int:
        """Gather the weights, parameter by parameter, and hand them to the sampler."""
        self.sampler.load_weights(self.weights())
        self.version += 1
        return self.version

    def weights(self, *, averaged: bool = False) -> Iterator[tuple[str, Tensor]]:
        """The trainable parameters, or their averages, whole, by name; all processes must go through them together."""
        for name, values in self._averaged.items() if averaged else self._named():
            yield name, values.full_tensor() if isinstance(values, DTensor) else values.detach()

    def export(self, folder: Path, *, averaged: bool = False, file_bytes: int = MAX_FILE_BYTES) -> None:
        """Write all weights of the model, or their averages, as `save_safetensors` does; UsageError beside adapters."""
        if not all(parameter.requires_grad for parameter in self.model.parameters()):
            raise UsageError("adapters are merged before they are exported: save whole_model")
        save_safetensors(folder, self._averaged if averaged else dict(self._named()), file_bytes=file_bytes)

    @torch.no_grad()
    def update_ema(self, decay: float) -> None:
        """Let the average follow the weights."""
        for name, values in self._named():
            self._averaged[name].lerp_(values, 1 - decay)

    @torch.no_grad()
    def adopt_ema(self) -> None:
        """The averaged weights take the place of the newest ones; nothing is published."""
        for name, values in self._named():
            values.copy_(self._averaged[name])

    async def save_state(self, path: Path) -> None:
        """Keep weights, optimizer and schedule in a folder, whole or not at all; any number of processes reads it."""
        save_tensors(path, self._state())

    async def load_state(self, path: Path) -> None:
        """Go on from a kept state, whatever number of processes kept it. StoreError when it is of another model."""
        state = self._state()
        load_tensors(path, state)
        self.optimizer.taken, self.version = int(state["taken"]), int(state["version"])
        for parameter in self._passing.parameters:
            parameter.grad = None
        self._denominator, self._finite, self._called = 0.0, True, False

    def _named(self) -> Iterator[tuple[str, Any]]:
        return ((name, p.detach()) for name, p in self.model.named_parameters() if p.requires_grad)

    def _state(self) -> dict[str, Tensor]:
        """Everything that is kept, by name; filled in place when it is loaded."""
        state: dict[str, Any] = {f"weights/{name}": values for name, values in self._named()}
        state |= {f"averaged/{name}": values for name, values in self._averaged.items()}
        (method,) = self.optimizer.methods
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                optimizer_state = method.state[parameter]
                if not optimizer_state:
                    optimizer_state["step"] = torch.tensor(
                        0.0, device=parameter.device if self.optimizer.config.fused else None
                    )
                    optimizer_state["exp_avg"], optimizer_state["exp_avg_sq"] = (
                        torch.zeros_like(parameter),
                        torch.zeros_like(parameter),
                    )
                state |= {f"optimizer/{key}/{name}": values for key, values in optimizer_state.items()}
        state |= {"taken": torch.tensor(self.optimizer.taken), "version": torch.tensor(self.version)}
        return state


def _shard(reader: _FsdpModel, config: ShardedConfig) -> None:
    """Layer by layer, and what is left as one piece; gradients are summed over the processes, not averaged."""
    layers = transformer_layers(reader.model)
    if config.recompute:
        for layer in layers:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    if not dist.is_initialized():
        if config.precision != "fp32":
            raise UsageError("sharded weights in bf16 need torchrun: one process will do, --nproc-per-node 1")
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    reader.to(device)
    mesh = init_device_mesh(device, (rank_and_world_size()[1],))
    half = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    offload = CPUOffloadPolicy(pin_memory=device == "cuda") if config.offload else OffloadPolicy()
    for layer in layers:
        precision = MixedPrecisionPolicy() if config.precision == "fp32" else half
        fully_shard(layer, mesh=mesh, mp_policy=precision, offload_policy=offload)
    # What is left is in fp32: embeddings and head, as in `policies/local/device.py`.
    fully_shard(reader, mesh=mesh, offload_policy=offload)
    for module in reader.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def _all_reduce_sums(sums: LossSums) -> None:
    """All processes' sums, in each of them; the totals are those of all samples already."""
    if not dist.is_initialized():
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    added = torch.tensor([float(getattr(sums, name)) for name in SUMMED_FIELDS], dtype=torch.float64, device=device)
    most = torch.tensor(sums.logprob_diff_max, dtype=torch.float64, device=device)
    dist.all_reduce(added)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    for name, value in zip(SUMMED_FIELDS, added.tolist(), strict=True):
        setattr(sums, name, type(getattr(sums, name))(value))
    sums.logprob_diff_max = float(most)


def _norm(parameters: Sequence[Tensor]) -> float:
    """Of all gradients of all processes."""
    grads = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in parameters]
    squares = torch.stack([g.double().square().sum() for g in grads if g is not None]).sum()
    if any(isinstance(p.grad, DTensor) for p in parameters):
        dist.all_reduce(squares)
    return float(squares.sqrt())
