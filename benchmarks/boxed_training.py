"""Training of a small model whose agent is a foreign program in a box, and what each of its tokens was.

The model has learnt before to give short answers, so that it ends them; it calls no tools. Agents whose answers are cut
count that as a fault, and end.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.foreign_agents import PROMPT, SHELL_LINE, ForeignAgent, boxed
from wanderlust.adapters.external_program import Program, ProgramExit
from wanderlust.environment import Episode
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import STORE_FILE
from wanderlust.training.batch.samples import LOGPROB_TOLERANCE, to_samples
from wanderlust.training.config import TrainConfig
from wanderlust.training.tiny_model import END_TOKEN, ModelShape, fresh_model, fresh_tokenizer
from wanderlust.training.train import train
from wanderlust.types import Completion, Message, Task, Tool, ToolCall, Trajectory, assistant, user

START_STEPS, STEPS = 84, 2
CONTEXT_CHARACTERS = (100, 2_000, 500, 8_000, 30_000, 1_000, 45_000)
ANSWERS = ("Done.", "The file is written.", "I have written it.")
SHAPE = ModelShape(width=32, layers=1, heads=2, inner=64, positions=1 << 17)
"""Prompts of coding agents have up to 60,000 tokens of this small vocabulary."""
CHAT_TEMPLATE = (
    "{% if tools %}<|system|>{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_SHELLS: dict[str, dict[str, Any]] = {
    "bash": {"command": SHELL_LINE, "description": "write"},
    "Bash": {"command": SHELL_LINE, "description": "write"},
    "exec_command": {"cmd": SHELL_LINE},
    "run_shell_command": {"command": SHELL_LINE, "is_background": False},
}
"""Names of the agents' tools for shell commands, with arguments of which each takes those that it knows."""


class Writer:
    """A policy that writes the file by whichever shell the agent offers, or as aider wants it, and says so."""

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """One call, then one line."""
        schemas = {tool.name: tool.schema for tool in tools}
        shell = next((name for name in _SHELLS if name in schemas), None)
        if "final_answer" in schemas and any(message.role == "tool" for message in messages):
            done = ToolCall(id="c2", name="final_answer", arguments='{"answer": "done"}')
            return Completion(message=assistant("", done))
        if any(message.role == "tool" for message in messages):
            return Completion(message=assistant("Done."))
        if shell is None:
            return Completion(message=assistant("answer.txt\n```\nhello\n```\n"))
        known = schemas[shell].get("properties", {})
        arguments = json.dumps({name: value for name, value in _SHELLS[shell].items() if name in known})
        return Completion(message=assistant("", ToolCall(id="c1", name=shell, arguments=arguments)))


class WritesFile(Program):
    """Reward 1 for the file, and a little for a short last answer, so that siblings of a small model differ."""

    def tasks(self, split: str = "train") -> list[Task]:
        """The same two tasks in every split."""
        return [Task(id=f"hello-{number}", prompt=(user(PROMPT),)) for number in range(2)]

    async def judge(self, episode: Episode, ended: ProgramExit, folder: str) -> None:
        """Look at the file."""
        place = Path(folder, "answer.txt")
        text = await asyncio.to_thread(lambda: place.read_text() if place.is_file() else "")
        episode.reward("written", float(text.strip() == "hello"))
        episode.reward("brief", -len(episode.agent.trajectory.turns[-1].action.content) / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What the training steps with an agent were."""

    losses: tuple[float, ...]
    gap: float
    """Greatest difference of a token's log-probability between the sampler and the trainer, in any step."""
    turns: int
    sampled: int
    """Tokens that were sampled for the steps."""
    exact: bool
    """Whether the tokens that were trained on are the sampled ones, each and in order."""

    @property
    def met(self) -> bool:
        """Whether all steps had finite losses, and exact tokens with the sampler's own probabilities."""
        finite = len(self.losses) == STEPS and all(map(math.isfinite, self.losses))
        return finite and self.exact and self.sampled > 0 and self.gap <= LOGPROB_TOLERANCE


def start_model(folder: Path) -> None:
    """A fresh small model that has learnt to give a short answer and to end it, whatever and however much is before."""
    source = Path(__file__).read_text()
    tokenizer = fresh_tokenizer([PROMPT, CHAT_TEMPLATE, source], size=1024)
    tokenizer.chat_template = CHAT_TEMPLATE
    model = fresh_model(tokenizer, SHAPE, seed=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(START_STEPS):
        length = CONTEXT_CHARACTERS[step % len(CONTEXT_CHARACTERS)]
        asked = {"role": "user", "content": (source[37 * step :] + 9 * source)[:length]}
        before = tokenizer.apply_chat_template([asked], tokenize=False, add_generation_prompt=True)
        context, answer = (
            tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
            for text in (before, ANSWERS[step % len(ANSWERS)] + END_TOKEN)
        )
        labels = torch.cat([torch.full_like(context, -100), answer], dim=1)
        optimizer.zero_grad()
        model(input_ids=torch.cat([context, answer], dim=1), labels=labels).loss.backward()
        optimizer.step()
    save_pretrained(folder, model, tokenizer)


def train_in_box(agent: ForeignAgent, folder: Path, *, start: Path) -> Trained:
    """Train the model of the folder `start` with the agent in boxes. Raises NotMeasured, or what training raises."""
    config = TrainConfig(
        env=boxed(agent, WritesFile),
        policy=str(start),
        steps=STEPS,
        tasks_per_step=1,
        group_size=2,
        max_tokens=256,
        concurrency=4,
        eval_every=STEPS,
        eval_tasks=2,
        result_samples=0,
        seed=3,
    )
    train(config.env, str(start), config=config, out=folder / "run", workers=1, progress=False)
    with RunReader(folder / "run" / STORE_FILE) as store:
        groups = [group for step in range(STEPS) for group in store.groups("rl", step)]
        losses = tuple(value for _, value in store.metrics("rl", "loss"))
        gap = max(value for _, value in store.metrics("rl", "sampler_logprob_diff_max"))
    played = [trajectory for group in groups for rollout in group.rollouts for trajectory in rollout.trajectories]
    sampled = [_sampled(trajectory) for trajectory in played]
    return Trained(
        losses=losses,
        gap=gap,
        turns=sum(len(trajectory.turns) for trajectory in played),
        sampled=sum(map(len, sampled)),
        exact=[_trained(trajectory) for trajectory in played] == sampled,
    )


def _sampled(trajectory: Trajectory) -> list[int]:
    """The tokens of all turns."""
    return [token for turn in trajectory.turns if turn.tokens for token in turn.tokens.completion]


def _trained(trajectory: Trajectory) -> list[int]:
    """The tokens that the loss counts."""
    samples = to_samples(trajectory)
    return [token for sample in samples for token, on in zip(sample.ids, sample.mask, strict=True) if on]
