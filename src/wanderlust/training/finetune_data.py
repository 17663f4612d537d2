"""Data of offline training: rows of a file, of a run or of this process, as examples with the held-out ones apart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from wanderlust.errors import UsageError
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.checkpoints import MAX_ONE_THREAD_PARAMETERS
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER, FRESH_POLICY
from wanderlust.tasks.datasets import Row
from wanderlust.training.checkpoint import START_CHECKPOINT
from wanderlust.training.config import usable_cores
from wanderlust.training.conversations import (
    Examples,
    data_rows,
    has_reasoning,
    is_held_out,
    parse_row,
    rows_digest,
    to_example,
)
from wanderlust.training.finetune_config import FinetuneConfig
from wanderlust.training.models import checkpoint_folder
from wanderlust.training.preferences import preference_pairs, why_no_preferences
from wanderlust.training.warmup import new_model


def store_rows(rows: Iterable[Row], folder: Path) -> Path:
    """Rows of this process in a file next to the run, so that it can be resumed."""
    lines = "".join(json.dumps(dict(row), default=str) + "\n" for row in rows)
    file = folder.with_name(f"{folder.name}-data.jsonl")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(lines)
    elif file.read_text() != lines:
        raise UsageError(f"{file} holds other rows: choose another folder, or remove it")
    return file


def stored_rows(config: FinetuneConfig, *, held_out: bool) -> Iterator[tuple[str, Row]]:
    """The rows to train on, or those that are held out, each with its place."""
    source = config.eval_data if held_out else config.data
    if source:
        yield from data_rows(source, min_reward=config.min_reward, stage=config.stage, method=config.method)


def digest_of(config: FinetuneConfig) -> str:
    """Digest of all rows that a configuration names."""
    return rows_digest([*stored_rows(config, held_out=False), *stored_rows(config, held_out=True)])


def read_examples(config: FinetuneConfig, folder: Path) -> tuple[Any, Any, Examples]:
    """The initial model, its tokenizer, and the data as ids. Raises UsageError for a wrong row, or for none."""
    rows, others = list(stored_rows(config, held_out=False)), list(stored_rows(config, held_out=True))
    if rows_digest([*rows, *others]) != config.data_digest:
        raise UsageError(f"{config.data} has changed since {folder} was begun: restore it, or begin another run")
    examples = Examples(with_reasoning=sum(has_reasoning(row) for _, row in (*rows, *others)))
    if config.method == "reward":
        parsed, apart = (preference_pairs(each, examples.not_preferred) for each in (rows, others))
    else:
        parsed, apart = ([parse_row(where, row, config.method) for where, row in each] for each in (rows, others))
    if not apart:
        apart = [row for row in parsed if is_held_out(row.key, config)]
        parsed = [row for row in parsed if not is_held_out(row.key, config)]
    if not parsed:
        why = why_no_preferences(len(rows), examples.not_preferred) if rows and not apart else ""
        raise UsageError(f"{config.data}: there is nothing to train on{' but held-out rows' if apart else ''}{why}")
    if config.policy == FRESH_POLICY:
        whole = [one for row in parsed for one in row.conversations]
        messages = (message for one in whole for message in one.messages)
        tools = (tool for one in whole for tool in one.tools)
        model, tokenizer = new_model(config.for_engine(updates=1), messages, tools)
    else:
        model, tokenizer = load_pretrained(checkpoint_folder(config.policy))
    one_thread()
    if config.threads or model.num_parameters() >= MAX_ONE_THREAD_PARAMETERS:
        torch.set_num_threads(config.threads or usable_cores())
    renderer = Renderer(tokenizer)
    longest = config.max_context or int(getattr(model.config, "max_position_embeddings", 0) or 2**31)
    for number, (row, into) in enumerate(
        [*((row, examples.train) for row in parsed), *((row, examples.held_out) for row in apart)]
    ):
        one = to_example(row, renderer, config, number=number)
        if any(len(sample.ids) > longest for sample in one.samples):
            examples.too_long += 1
        else:
            into.append(one)
    if not examples.train:
        raise UsageError(f"{config.data}: all {examples.too_long} rows are longer than {longest} tokens")
    return model, tokenizer, examples


def save_start(config: FinetuneConfig, folder: Path, *, model: Any, tokenizer: Any) -> Path:
    """The checkpoint that training starts from: the policy's own, or that of a fresh model, saved in the run."""
    if config.policy != FRESH_POLICY:
        return checkpoint_folder(config.policy)
    start = folder / CHECKPOINTS_FOLDER / START_CHECKPOINT
    if not start.exists():
        save_pretrained(start, model, tokenizer)
    return start
