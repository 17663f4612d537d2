"""A reference model's log-probabilities of tokens that the policy sampled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import fsum
from typing import Any

from wanderlust.policies.chat_template import Renderer
from wanderlust.training import losses
from wanderlust.training.batch.samples import to_samples
from wanderlust.training.gradient import GradientComputer
from wanderlust.types import Message, Tokens, Trajectory, Turn, assistant


class Scorer:
    """A frozen model with the policy's tokenizer; it reads the very ids that were sampled."""

    def __init__(self, model: Any, *, temperature: float = 1.0, micro_batch: int = 64):
        self._reads = GradientComputer(
            model.eval(), loss=losses.IMITATION_LOSS, temperature=temperature, micro_batch=micro_batch
        )

    def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[list[float]]]:
        """Per trajectory and turn, the log-probability of every sampled token at the scorer's temperature."""
        rows = [to_samples(trajectory) for trajectory in trajectories]
        read = iter(self._reads.compute_logprobs([sample for row in rows for sample in row]))
        out: list[list[list[float]]] = []
        for trajectory, row in zip(trajectories, rows, strict=True):
            flat = [value for sample in row for value, on in zip(next(read), sample.mask, strict=True) if on]
            rest = iter(flat)
            turns = [turn.tokens.completion for turn in trajectory.turns if turn.tokens is not None]
            out.append([[next(rest) for _ in completion] for completion in turns])
        return out


def likelihood(model: Any, renderer: Renderer) -> Callable[[Sequence[Message], str], Awaitable[float]]:
    """Mean log-probability per token of a text as the answer to a conversation."""
    scorer = Scorer(model)

    async def of(talk: Sequence[Message], text: str) -> float:
        ids = renderer.render_answer(assistant(text))
        tokens = Tokens(prompt=renderer.start(talk), completion=ids, logprobs=(0.0,) * len(ids))
        turn = Turn(observation=tuple(talk), action=assistant(text), tokens=tokens)
        ((logprobs,),) = scorer.logprobs([Trajectory(turns=[turn])])
        return fsum(logprobs) / len(logprobs)

    return of
