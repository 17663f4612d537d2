"""TRL's SFTTrainer on the conversations of `sft_data`, an update at a time: `KIND MODEL UPDATES CORES`, see `steps`.

KIND is `rollouts` or `unrelated`, with `-packed` or `-padded` behind it: both ways that TRL reads rows of unlike
length. The order of the rows is that of the data; packing shuffles by itself.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import SFTConfig, SFTTrainer

from benchmarks.peers import sft_data, steps
from benchmarks.peers.steps import Gate


class Turns(TrainerCallback):
    """Opens the gate before an update and tells its cost after it."""

    def __init__(self, gate: Gate):
        self.gate, self.tokens, self.loss = gate, 0, 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if not self.gate.open():
            raise SystemExit

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.gate.passed(reward=self.loss, sampled=self.tokens)
        self.tokens = 0


class Counted(SFTTrainer):
    """Notes how many tokens that are no padding an update has, and its loss."""

    turns: Turns

    def compute_loss(self, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        mask = inputs.get("attention_mask")
        self.turns.tokens += int(inputs["input_ids"].numel() if mask is None else mask.sum())
        out = super().compute_loss(model, inputs, *given, **named)
        self.turns.loss = float((out[0] if isinstance(out, tuple) else out).detach())
        return out


def main() -> None:
    work, folder, count, threads = steps.arguments()
    kind, _, way = work.partition("-")
    torch.set_num_threads(threads)
    gate = Gate()
    turns = Turns(gate)
    packed = way == "packed"
    data = sft_data.rows(kind)
    mean = sum(len(row["input_ids"]) for row in data) / len(data)
    rows = sft_data.ROWS if packed else round(sft_data.ROWS * sft_data.ROW_TOKENS / mean)
    with tempfile.TemporaryDirectory() as scratch:
        config = SFTConfig(
            output_dir=scratch,
            per_device_train_batch_size=rows,
            max_steps=count,
            max_length=sft_data.ROW_TOKENS,
            packing=packed,
            train_sampling_strategy="random" if packed else "group_by_length",
            learning_rate=sft_data.LR,
            lr_scheduler_type="constant",
            adam_beta2=0.95,
            weight_decay=0.0,
            completion_only_loss=True,
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            disable_tqdm=True,
            seed=0,
        )
        trainer = Counted(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(folder),
            args=config,
            train_dataset=Dataset.from_list(data),
            callbacks=[turns],
        )
        trainer.turns = turns
        trainer.train()


if __name__ == "__main__":
    main()
