"""A model and its tokenizer as a standard Hugging Face folder, which `transformers` loads without our code."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from wanderlust.errors import StoreError

disable_progress_bar()  # type: ignore[no-untyped-call]  # a checkpoint is read in a second; what takes longer has a line of ours


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
        why = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise StoreError(f"cannot load the checkpoint {path}: {why}") from error
    check_tokenizer_fits(model, tokenizer, place=path)
    model.eval()  # type: ignore[no-untyped-call]
    return model, tokenizer


def check_tokenizer_fits(model: Any, tokenizer: Any, *, place: Path) -> None:
    """Raises StoreError when the tokenizer writes ids that the model has no embedding for."""
    most, rows = max(tokenizer.get_vocab().values(), default=-1), model.get_input_embeddings().weight.shape[0]
    if most >= rows:
        raise StoreError(
            f"tokenizer and model of {place} do not belong together: ids go up to {most} and the model knows "
            f"{rows} of them; resize its embeddings or take the tokenizer it was trained with"
        )
