"""Weights & Biases. Needs the extra `wandb`."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import wandb

WANDB_PROJECT = "wanderlust"


class WandBLogger:
    """A run of the project PROJECT, or WANDB_PROJECT, that a resumed run goes on with.

    Without an account (WANDB_API_KEY or a login) or with WANDB_MODE=offline it is written to the run's folder, from
    where `wandb sync` uploads it; nobody is asked anything.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        place = folder.resolve()
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", WANDB_PROJECT),
            name=place.name,
            id=blake2b(str(place).encode(), digest_size=8).hexdigest(),
            resume="allow",
            dir=place,
            config=dict(config),
            mode="online" if _account() else "offline",
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._stages: set[str] = set()

    def log_step(self, stage: str, step: int, *, of: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one step, over an axis of the stage's own."""
        if stage not in self._stages:
            self._stages.add(stage)
            self._run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")
        self._run.log({f"{stage}/step": step, **{f"{stage}/{name}": value for name, value in metrics.items()}})

    def close(self) -> None:
        """Write what is left."""
        self._run.finish()


def _account() -> bool:
    """Whether somebody is logged in and wants to be on line."""
    mode = os.environ.get("WANDB_MODE")
    if mode is not None:
        return mode == "online"
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
