"""Where a model computes and how finely, as it is written down; `policies/local/placing.py` puts models there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Precision: TypeAlias = Literal["fp32", "bf16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Nothing but the device and the numbers' size; the defaults are what every figure of this project is made with."""

    device: str = "cpu"
    """Where models compute: cpu, cuda, cuda:N, or auto: a GPU where there is one."""
    precision: Precision = "fp32"
    """bf16: layers compute in bfloat16; logits, losses and what is learnt stay in fp32. For GPUs."""


PLAIN = Hardware()
