"""Where `--policy fresh` starts: a small model from nothing that was shown how somebody plays the environment."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from wanderlust.core.contracts import Environment
from wanderlust.core.errors import UsageError
from wanderlust.environments.named import settings_like
from wanderlust.policies.render import Renderer
from wanderlust.recipes.warmup import episodes_of, imitate
from wanderlust.recipes.watch import Watch
from wanderlust.train import losses
from wanderlust.train.fresh import Shape, fresh_model, fresh_tokenizer
from wanderlust.train.gradient import Differentiator
from wanderlust.train.imitation import to_imitate
from wanderlust.train.optimizer import OptimizerConfig
from wanderlust.train.replica import one_thread

VOCABULARY = 2048
"""Tokens at most; a few hundred bytes and special ones are among them."""
HEAD = 16
"""Width of an attention head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """A model of some hundred thousand weights, and its warm-up: `fresh`, or `fresh,width=96,episodes=2000`."""

    teacher: str = ""
    """Player of the environment that is imitated; empty is its `teacher`, or else its oracle."""
    episodes: int = 400
    """Of the teacher, on tasks of the `train` split; all are imitated, the failed ones as well."""
    steps: int = 400
    batch: int = 16
    """Episodes a step; of several seats, seats."""
    lr: float = 5e-3
    read: float = 0.3
    """Weight of what is read, beside 1 for what is to be written: it teaches a fresh model to read."""
    width: int = 64
    layers: int = 2
    positions: int = 1024
    """Longest context in tokens."""

    @classmethod
    def of(cls, text: str) -> Self:
        """What `text` says. Raises UsageError when it has a setting that there is not, or of another kind."""
        made = cls(**settings_like(text, asdict(cls())))
        wrong = [f.name for f in fields(cls) if f.name not in ("teacher", "read") and not getattr(made, f.name) > 0]
        if wrong or made.width % HEAD or made.read < 0:
            raise UsageError(f"{text}: numbers are above 0, and width is a multiple of {HEAD}")
        return made

    @property
    def shape(self) -> Shape:
        """Of the model; small contexts suit slow rotary positions, narrow models wide embeddings."""
        return Shape(
            width=self.width,
            layers=self.layers,
            heads=self.width // HEAD,
            inner=3 * self.width,
            positions=self.positions,
            theta=100.0,
            spread=0.1,
        )

    @property
    def optimizer(self) -> OptimizerConfig:
        """Of the warm-up."""
        return OptimizerConfig(
            steps=self.steps, lr=self.lr, method="muon", warmup=10, betas=(0.9, 0.98), weight_decay=0.1
        )


def warmed(fresh: Fresh, env: Environment, *, seed: int, watch: Watch) -> tuple[Any, Any]:
    """A fresh model that was shown the teacher's episodes, and its tokenizer; equal arguments, equal weights."""
    one_thread()
    shown = episodes_of(env, fresh.teacher, fresh.episodes, seed=seed)
    tokenizer = fresh_tokenizer((message.content for one in shown for message in one.messages), size=VOCABULARY)
    model, renderer = fresh_model(tokenizer, fresh.shape, seed=seed), Renderer(tokenizer)
    samples = [to_imitate(one, renderer, context=fresh.read) for one in shown]
    reader = Differentiator(model, loss=losses.IMITATION)
    imitate(reader, samples, fresh.optimizer, batch=fresh.batch, seed=seed, watch=watch)
    return model, tokenizer
