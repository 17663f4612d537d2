"""TRL's GRPOTrainer on our two tasks, a step at a time: see `steps`."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from benchmarks.peers import steps
from benchmarks.peers.steps import ASK, GROUPS, GUESSES, HIGHEST, LR, SIBLINGS, TASKS, TOKENS, Gate


class Counter(TrainerCallback):
    """Opens the gate before a step and tells its cost after it."""

    def __init__(self, gate: Gate):
        self.gate, self.rewards = gate, list[float]()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if not self.gate.open():
            raise SystemExit

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.gate.passed(reward=steps.mean(self.rewards), sampled=sum(steps.SAMPLED))
        self.rewards.clear()
        steps.SAMPLED.clear()


def counting(counter: Counter) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Tasks and what the trainer needs to know of them."""

    def digits(completions: list[Any], **_: Any) -> list[float]:
        rewards = [steps.digits(one[0]["content"]) for one in completions]
        counter.rewards += rewards
        return rewards

    tasks = [{"prompt": [{"role": "user", "content": steps.count_from(n)}]} for n in range(TASKS)]
    return tasks, {"reward_funcs": digits}


def guessing(counter: Counter) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The same, for guesses: an environment with a tool."""

    class Guessing:
        def reset(self, secret: int = 0, **_: Any) -> None:
            self.secret, self.count, self.last = secret, 0, ""

        def guess(self, n: int):  # what it returns would be written into the prompt
            """
            Guess the number.

            Args:
                n: the guess
            """
            if self.last == "correct" or self.count >= GUESSES:
                return "game over"
            self.count, self.last = self.count + 1, steps.hint(self.secret, int(n))
            return self.last

        def get_reward(self) -> float:
            counter.rewards.append(steps.won(self.count, self.last))
            return counter.rewards[-1]

    prompt = [{"role": "user", "content": ASK}]
    return [{"prompt": prompt, "secret": 1 + n % HIGHEST} for n in range(TASKS)], {"environment_factory": Guessing}


def main() -> None:
    task, folder, count, threads = steps.arguments()
    torch.set_num_threads(threads)
    gate = Gate()
    counter = Counter(gate)
    rows, given = (counting if task == "count" else guessing)(counter)
    with tempfile.TemporaryDirectory() as scratch:
        config = GRPOConfig(
            output_dir=scratch,
            per_device_train_batch_size=GROUPS * SIBLINGS,
            num_generations=SIBLINGS,
            max_steps=count,
            max_completion_length=TOKENS[task],
            max_tool_calling_iterations=GUESSES,
            learning_rate=LR[task],
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
            args=config,
            train_dataset=Dataset.from_list(rows),
            callbacks=[counter],
            **given,
        )
        _count_samples(trainer)
        trainer.train()


def _count_samples(trainer: Any) -> None:
    """Note how many tokens each step samples."""
    generate = trainer._generate_single_turn

    def counted(*given: Any, **named: Any) -> Any:
        out = generate(*given, **named)
        steps.SAMPLED.append(sum(map(len, out[0])))
        return out

    trainer._generate_single_turn = counted


if __name__ == "__main__":
    main()
