"""What one writes with `transformers` and PyTorch alone: games in lock step, and a training loop."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass
from types import coroutine
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from wanderlust.agent import Agent
from wanderlust.environment import Environment, Episode
from wanderlust.errors import StopEpisode
from wanderlust.training.batch.samples import Sample
from wanderlust.types import Completion, Message, Task, Tool, assistant


@coroutine
def asked(messages: Sequence[Message]) -> Generator[Sequence[Message], str, str]:
    """Hand a conversation to whoever drives the game; the answer comes back."""
    return (yield messages)


class Outside:
    """A policy that asks whoever drives the game."""

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        return Completion(message=assistant(await asked(messages)))


@dataclass(slots=True)
class Game:
    """One game of an environment, played by its own code; `messages` waits for an answer, None at the end."""

    playing: Coroutine[Sequence[Message], str | None, None]
    messages: Sequence[Message] | None = None
    turns: int = 0
    context: int = 0
    """Tokens of the whole conversation so far."""
    sampled: int = 0

    @classmethod
    def of(cls, env: Environment, task: Task, seed: int) -> Game:
        game = cls(env.run(Episode(task, {"agent": Agent(Outside(), limits=env.limits)}, seed)))
        game.answer(None)
        return game

    def answer(self, text: str | None) -> None:
        try:
            self.messages = self.playing.send(text)
        except (StopIteration, StopEpisode):
            self.messages = None


@torch.no_grad()
def play(games: Sequence[Game], model: Any, tokenizer: Any, *, max_tokens: int) -> None:
    """All games to their ends: each turn one `generate` for those still live, from their whole conversations."""
    tokenizer.padding_side = "left"
    while live := [game for game in games if game.messages is not None]:
        inputs = tokenizer.apply_chat_template(
            [[{"role": m.role, "content": m.content} for m in game.messages or ()] for game in live],
            add_generation_prompt=True,
            padding=True,
            return_dict=True,
            return_tensors="pt",
        )
        out = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            do_sample=True,
            temperature=1.0,
            top_k=0,
            max_new_tokens=max_tokens,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
        new = out[:, inputs["input_ids"].shape[1] :]
        texts = tokenizer.batch_decode(new, skip_special_tokens=True)
        read, said = inputs["attention_mask"].sum(1).tolist(), (new != tokenizer.pad_token_id).sum(1).tolist()
        for game, text, context, sampled in zip(live, texts, read, said, strict=True):
            game.turns, game.context, game.sampled = game.turns + 1, context + sampled, game.sampled + sampled
            game.answer(text)


def backward(model: Any, samples: Sequence[Sample], *, pad: int, size: int = 64, ratio_max: float = 5.0) -> None:
    """Gradients of the capped policy loss (CISPO) over all sampled tokens, in micro-batches in the order given."""
    trained = sum(sum(sample.mask[1:]) for sample in samples)
    for start in range(0, len(samples), size):
        part = samples[start : start + size]
        ids = padded([torch.tensor(s.ids) for s in part], pad)
        attention = padded([torch.ones(len(s.ids), dtype=torch.long) for s in part])
        mask = padded([torch.tensor(s.mask) for s in part])[:, 1:]
        old = padded([torch.tensor(s.logprobs) for s in part])[:, 1:]
        advantages = padded([torch.tensor(s.advantages) for s in part])[:, 1:]
        logits = model(input_ids=ids, attention_mask=attention, use_cache=False).logits[:, :-1]
        logprobs = torch.log_softmax(logits.float(), -1).gather(-1, ids[:, 1:, None])[..., 0]
        ratio = (logprobs - old).exp().clamp(max=ratio_max).detach()
        loss = -(ratio * advantages * logprobs * mask).sum() / trained
        loss.backward()


def update(model: Any, optimizer: torch.optim.Optimizer, samples: Sequence[Sample], *, pad: int) -> None:
    """One step of the plain loop: gradients, clipping, AdamW."""
    optimizer.zero_grad()
    backward(model, samples, pad=pad)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def padded(rows: Sequence[Tensor], value: int = 0) -> Tensor:
    return pad_sequence(list(rows), batch_first=True, padding_value=value)
