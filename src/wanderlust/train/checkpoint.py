"""What is needed to go on: a state file for the trainer, a standard Hugging Face folder for everyone else."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from wanderlust.core.errors import StoreError

FORMAT = "wanderlust-state-1"

disable_progress_bar()  # type: ignore[no-untyped-call]  # a checkpoint is read in a second; what takes longer has a line of ours


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain data; the file is either the old one or the new one, whenever the power fails."""
    partial = path.with_suffix(path.suffix + ".partial")
    with partial.open("wb") as file:
        torch.save({"format": FORMAT, **state}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote, without running any code in it; StoreError when it is something else."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, LookupError, pickle.UnpicklingError) as error:
        raise StoreError(f"cannot read the state {path}: {_first_line(error)}; it was left as it is") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise StoreError(f"{path} is not a state of this library; it was left as it is")
    return state


def save_pretrained(path: Path, model: Any, tokenizer: Any) -> None:
    """A folder that `transformers` loads without our code: safetensors, tokenizer, chat template."""
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    if path.exists():
        shutil.rmtree(path)
    partial.replace(path)


def load_pretrained(path: Path) -> tuple[Any, Any]:
    """Model (fp32, evaluation mode) and tokenizer of a checkpoint folder; StoreError when it is none.

    Nothing is fetched from anywhere and no code of the folder is run.
    """
    from_here = {"local_files_only": True, "trust_remote_code": False}
    if not (path / "config.json").is_file():
        raise StoreError(f"{path} is no checkpoint: it has no config.json")
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **from_here)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **from_here)
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise StoreError(f"cannot load the checkpoint {path}: {_first_line(error)}") from error
    agree(model, tokenizer, place=path)
    model.eval()  # type: ignore[no-untyped-call]
    return model, tokenizer


def agree(model: Any, tokenizer: Any, *, place: Path) -> None:
    """Raises StoreError when the tokenizer writes ids that the model has no embedding for."""
    most, rows = max(tokenizer.get_vocab().values(), default=-1), model.get_input_embeddings().weight.shape[0]
    if most >= rows:
        raise StoreError(
            f"tokenizer and model of {place} do not belong together: ids go up to {most} and the model knows "
            f"{rows} of them; resize its embeddings or take the tokenizer it was trained with"
        )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
