"""Offline training here and by TRL's SFTTrainer: the same model, conversations, loss, optimizer and precision.

TRL lives in an environment of its own, as in `trainer`, beside the PyTorch of this one. Each side is a process that
takes an update of about 4,096 tokens when it is asked to; the first two of each only warm up. Both ways that TRL reads
rows of unlike length are asked, packed and padded, and the cheaper one counts. Figures are processor time per token of
the data, on one core; padding counts for nobody.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.bar import Bar
from benchmarks.bars_peers import EngineFailure, asked
from benchmarks.bars_trainer import ENVIRONMENT
from benchmarks.peer import TRL, NotMeasured, python_of
from benchmarks.peers import sft_data, steps
from benchmarks.peers.steps import Gate
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.training import losses
from wanderlust.training.batch.samples import Sample
from wanderlust.training.config import OptimizerConfig
from wanderlust.training.conversations import epoch_batches
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.optimizer import TrainableWeights
from wanderlust.training.tiny_model import fresh_tokenizer

KINDS = {"rollouts": "rollouts with a common prompt", "unrelated": "unrelated conversations"}
WIDTH, LAYERS, HEADS = 256, 6, 8
PAIRS, WARM = 7, 2
TOKENS = sft_data.ROWS * sft_data.ROW_TOKENS


def model(folder: Path) -> Path:
    """What both sides start from: 9 million weights, half of them in the vocabulary."""
    tokenizer = fresh_tokenizer(["a b c"], size=sft_data.VOCABULARY)
    config = LlamaConfig(
        vocab_size=sft_data.VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=3 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=sft_data.ROW_TOKENS,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    save_pretrained(folder, LlamaForCausalLM(config), tokenizer)
    return folder


def compared(kind: str, python: Path, folder: Path) -> Bar:
    """The bar of one kind of data: TRL's cost of a token over ours."""
    words = (str(folder), str(WARM + PAIRS), "1")
    theirs = [python, "-m", "benchmarks.peers.trl_sft"]
    with (
        asked([sys.executable, "-m", "benchmarks.bars_sft", kind, *words], env=ENVIRONMENT) as ours,
        asked([*theirs, f"{kind}-packed", *words], env=ENVIRONMENT) as packed,
        asked([*theirs, f"{kind}-padded", *words], env=ENVIRONMENT) as padded,
    ):
        sides = {"ours": ours, "packed": packed, "padded": padded}
        turns = list[dict[str, float]]()
        for _ in range(WARM + PAIRS):
            try:
                told = {name: ask("update") for name, ask in sides.items()}
            except EngineFailure as error:
                raise NotMeasured(str(error)) from error
            turns.append({name: one["processor"] / one["sampled"] for name, one in told.items()})
    turns = turns[WARM:]
    costs = {name: 1e6 * median(turn[name] for turn in turns) for name in sides}
    way = min(("packed", "padded"), key=lambda name: costs[name])
    ratios = sorted(turn[way] / turn["ours"] for turn in turns)
    other = "padded" if way == "packed" else "packed"
    note = (
        f"{costs[way]:.0f} us of a core per token ({way}; {costs[other]:.0f} {other}) against our {costs['ours']:.0f}"
    )
    return replace(
        _bar(kind, f"{note}; {len(ratios)} pairs, {ratios[0]:.2f} to {ratios[-1]:.2f}"), figure=median(ratios)
    )


def _bar(kind: str, note: str) -> Bar:
    name = f"{TRL.name}, SFT, {KINDS[kind]}: times our cost of a token"
    return Bar(name=name, figure=None, bar=1.2, aim=2, unit="x", better="higher", note=note, promised=False)


def bars() -> Iterator[Bar]:
    """Both kinds of data."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = model(Path(scratch) / "model")
        for kind in KINDS:
            try:
                yield compared(kind, python_of(TRL), folder)
            except NotMeasured as why:
                yield _bar(kind, str(why))


def main() -> None:
    """Our side, as a process of its own: the updates of `wander sft`, an update at a time."""
    kind, folder, count, threads = steps.arguments()
    torch.set_num_threads(threads)
    gate = Gate()
    samples = [
        Sample(
            ids=row["input_ids"],
            mask=[bool(on) for on in row["completion_mask"]],
            logprobs=[0.0] * len(row["input_ids"]),
            advantages=[float(on) for on in row["completion_mask"]],
        )
        for row in sft_data.rows(kind)
    ]
    network, _ = load_pretrained(Path(folder))
    computer = GradientComputer(network, loss=losses.SFT_LOSS, micro_batch_tokens=TOKENS, fast=True)
    weights = TrainableWeights(network, OptimizerConfig(steps=count, lr=sft_data.LR, warmup=0, decay="constant"))
    batches = epoch_batches([len(sample.ids) for sample in samples], TOKENS, seed=0, epoch=0)
    for batch in batches[:count]:
        if not gate.open():
            return
        told = weights.add(combine([computer.gradient([samples[n] for n in batch])]))
        weights.step()
        gate.passed(reward=told["loss"], sampled=int(told["tokens"]))


if __name__ == "__main__":
    main()
