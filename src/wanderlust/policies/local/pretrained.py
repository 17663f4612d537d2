"""A model and its tokenizer as a standard Hugging Face folder, which `transformers` loads without our code."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from wanderlust.errors import StoreError, UsageError, one_line, writing
from wanderlust.policies.local.device import available_memory
from wanderlust.store.run_folder import is_reward_model
from wanderlust.store.whole_files import replacing

disable_progress_bar()  # type: ignore[no-untyped-call]  # a checkpoint is read in a second; what takes longer has a line of ours

SCORE_HEAD = "score"
"""The head of a reward model, where others have an output embedding."""
MAX_HEADER_BYTES = 100_000_000
"""Of a safetensors file, by its format."""


def save_pretrained(path: Path, model: Any, tokenizer: Any) -> None:
    """A folder that `transformers` loads without our code: safetensors, tokenizer, chat template."""
    with writing(path), replacing(path) as draft:
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)


def load_pretrained(path: Path, *, scores: bool = False) -> tuple[Any, Any]:
    """Model (fp32, evaluation mode) and tokenizer of a checkpoint folder; StoreError when it is none.

    With `scores` a reward model, which any other call refuses. Nothing is fetched from anywhere and no code of the
    folder is run. UsageError for weights beyond the memory.
    """
    from_here = {"local_files_only": True, "trust_remote_code": False}
    if not (path / "config.json").is_file():
        raise StoreError(f"{path} is no checkpoint: it has no config.json")
    if is_reward_model(path) != scores:
        what = "no reward model: it writes texts" if scores else "a reward model, which scores texts and writes none"
        raise StoreError(f"{path} is {what}")
    parameters, available = sum(map(prod, weight_shapes(path).values())), available_memory("cpu")
    if 4 * parameters > available:
        raise UsageError(
            f"{path} has {parameters / 1e9:.2f}B parameters, which take {4 * parameters / 2**30:.1f} GiB in fp32, and "
            f"{available / 2**30:.1f} GiB are available: take a smaller model, or serve it elsewhere and name its URL"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **from_here)
        kind = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
        model = kind.from_pretrained(path, dtype=torch.float32, **from_here)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        why = one_line(str(error) or type(error).__name__)
        raise StoreError(f"cannot load the checkpoint {path}: {why}") from error
    check_tokenizer_fits(model, tokenizer, place=path)
    model.eval()
    return model, tokenizer


def weight_shapes(folder: Path) -> dict[str, list[int]]:
    """Shapes of a checkpoint's weights by name, from the headers of its safetensors files; without them none."""
    shapes: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with suppress(OSError, ValueError, KeyError, struct.error), path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header: dict[str, Any] = json.loads(file.read(min(length, MAX_HEADER_BYTES)))
            shapes |= {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    return shapes


def check_tokenizer_fits(model: Any, tokenizer: Any, *, place: Path) -> None:
    """Raises StoreError when the tokenizer writes ids that the model has no embedding for."""
    most, rows = max(tokenizer.get_vocab().values(), default=-1), model.get_input_embeddings().weight.shape[0]
    if most >= rows:
        raise StoreError(
            f"tokenizer and model of {place} do not belong together: ids go up to {most} and the model knows "
            f"{rows} of them; resize its embeddings or take the tokenizer it was trained with"
        )
