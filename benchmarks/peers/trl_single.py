"""TRL's GRPOTrainer on the counting task: prints the processor and wall seconds of each step as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.peers.counting import ASKED, GROUPS, LR, SIBLINGS, TOKENS, prompt, share


class Clock(TrainerCallback):
    """Looks at the clocks when a step ends."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seen.append((time.process_time(), time.perf_counter()))


def digits(completions: list[Any], **_: Any) -> list[float]:
    """The reward of each answer."""
    return [share(one[0]["content"]) for one in completions]


def main(folder: str, steps: int) -> None:
    torch.set_num_threads(1)
    tasks = Dataset.from_list([{"prompt": [{"role": "user", "content": prompt(n)}]} for n in range(ASKED)])
    clock = Clock()
    with tempfile.TemporaryDirectory() as scratch:
        config = GRPOConfig(
            output_dir=scratch,
            per_device_train_batch_size=GROUPS * SIBLINGS,
            num_generations=SIBLINGS,
            max_steps=steps,
            max_completion_length=TOKENS,
            learning_rate=LR,
            lr_scheduler_type="constant",
            temperature=1.0,
            beta=0.0,
            loss_type="grpo",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            save_strategy="no",
            disable_tqdm=True,
            seed=0,
        )
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(folder),
            reward_funcs=digits,
            args=config,
            train_dataset=tasks,
            callbacks=[clock],
        )
        trainer.train()
    rewards = [line["reward"] for line in trainer.state.log_history if "reward" in line]
    print(json.dumps({"seen": clock.seen, "rewards": rewards}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
