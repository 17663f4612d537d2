"""Makes the model that both trainers start from: `python -m benchmarks.peers.student TASK FOLDER`.

For counting a fresh one; for guessing one that has imitated a player who does not listen, with the chat template that
the other side knows to parse (it ships in its package).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from benchmarks.peers import steps
from benchmarks.peers.our_trainer import Shown
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.training import losses
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import OptimizerConfig
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.optimizer import Optimizer
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.types import Message, assistant, user

SHAPE = ModelShape(width=128, layers=6, heads=4, inner=512, positions=1024)
SIZE = 512
"""Of the vocabulary."""
TEMPLATE = "chat_templates/qwen3_instruct_2507.jinja"
MARKS = (
    "<|endoftext|>",
    "<|im_end|>",
    "<|im_start|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
STEPS, BATCH = 120, 8


def counter() -> tuple[Any, Any]:
    """A fresh model."""
    texts = [steps.count_from(n) + " ".join(map(str, range(n, n + 30))) for n in range(256)]
    rng = Random(0)
    texts += ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=200)) for _ in range(300)]
    tokenizer = fresh_tokenizer(texts, size=SIZE)
    return fresh_model(tokenizer, SHAPE, seed=0), tokenizer


def guesser() -> tuple[Any, Any]:
    """One that has learnt how a guess is written, and nothing of how to guess."""
    rng = Random(0)
    games = [steps.careless(rng) for _ in range(STEPS * BATCH)]
    tokenizer = _tokenizer([f"{steps.ASK} {call} {said}" for game in games for call, said in game])
    model, renderer = fresh_model(tokenizer, SHAPE, seed=0), Renderer(tokenizer)
    samples = [_played(game, renderer) for game in games]
    imitate = GradientComputer(model, loss=losses.IMITATION_LOSS, fast=True)
    optimizer = Optimizer(model, OptimizerConfig(steps=STEPS, lr=3e-3, method="muon", warmup=10, betas=(0.9, 0.98)))
    for step in range(STEPS):
        gradient = combine([imitate.gradient(samples[step * BATCH : (step + 1) * BATCH])])
        optimizer.step(gradient)
    print(f"cross-entropy {gradient.sums.loss / gradient.sums.count:.2f}", file=sys.stderr)
    return model, tokenizer


def _tokenizer(texts: Sequence[str]) -> Any:
    package = find_spec("trl")
    if package is None or package.origin is None:
        raise SystemExit("the chat template comes with trl, which is not installed here")
    template = (Path(package.origin).parent / TEMPLATE).read_text()
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=[*MARKS], initial_alphabet=alphabet, show_progress=False
    )
    inner.train_from_iterator([*texts, template], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=MARKS[1], pad_token=MARKS[0], chat_template=template, padding_side="left"
    )


def _played(game: Sequence[tuple[str, str]], renderer: Renderer) -> Sample:
    """The game as the model would have sampled it."""
    sample, known = Sample(), [user(steps.ASK)]
    sample.append_context(renderer.start(known, [Shown.guess()]))
    for text, said in [*game, ("done", "")]:
        ids = renderer.render_answer(assistant(text))
        sample.append_completion(ids, [0.0] * len(ids), [1.0] * len(ids))
        known.append(assistant(text))
        if said:
            more = renderer.extend(known, [Message("tool", said)], closed=True)
            if more is None:
                raise SystemExit("the chat template rewrites earlier turns")
            sample.append_context(more)
            known.append(Message("tool", said))
    return sample


def main() -> None:
    torch.set_num_threads(1)
    task, folder = sys.argv[1:]
    save_pretrained(Path(folder), *(counter() if task == "count" else guesser()))


if __name__ == "__main__":
    main()
