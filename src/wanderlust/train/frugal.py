"""Gradients where memory is short: half the micro-batch, once, and then a line that says what to do."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Sequence

import torch

from wanderlust.core.errors import WanderlustError
from wanderlust.train.batch import Totals
from wanderlust.train.gradient import Differentiator, Gradient
from wanderlust.train.samples import Sample

SAID = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "cublas_status_alloc_failed",
)
"""What torch says on a GPU, on a CPU, and on other systems; and a GPU's products that find no room to work in."""


class OutOfMemory(WanderlustError):
    """A gradient does not fit into memory, not even in smaller pieces."""


class SmallerBatches(UserWarning):
    """Memory was short, so gradients are computed in smaller pieces from now on."""


def gradient(reader: Differentiator, samples: Sequence[Sample], totals: Totals | None = None) -> Gradient:
    """Like `reader.gradient`; when memory runs out, once more with half the micro-batch, which then stays halved.

    Sums are then made of other pieces, so the last bits of a run that came here depend on its memory; a warning says
    so. Raises OutOfMemory when that does not fit either, or when there was nothing to halve.
    """
    try:
        return reader.gradient(samples, totals)
    except (RuntimeError, MemoryError) as error:
        if not is_full(error):
            raise
        if reader.micro_batch == 1:
            raise OutOfMemory(_advice(reader, samples)) from error
    _forget(reader)
    reader.micro_batch = (reader.micro_batch + 1) // 2
    warnings.warn(
        f"memory ran out: gradients are computed over {reader.micro_batch} samples at a time from now on, which is "
        "slower and rounds differently",
        SmallerBatches,
        stacklevel=2,
    )
    try:
        return reader.gradient(samples, totals)
    except (RuntimeError, MemoryError) as error:
        if not is_full(error):
            raise
        _forget(reader)
        raise OutOfMemory(_advice(reader, samples)) from error


def is_full(error: BaseException) -> bool:
    """Whether an error says that there is no memory left."""
    said = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in said for words in SAID)


def _forget(reader: Differentiator) -> None:
    """Give back what a pass that failed half-way holds."""
    for parameter in reader.parameters:
        parameter.grad = None
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _advice(reader: Differentiator, samples: Sequence[Sample]) -> str:
    longest = max((len(sample.ids) for sample in samples), default=0)
    return (
        f"out of memory at {reader.micro_batch} samples at a time, the longest of {longest} tokens: take fewer with "
        "micro_batch, bound answers with max_tokens, or train adapters with lora"
    )
