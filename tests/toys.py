"""Small places and small policies in which an algorithm has to show that it learns: seconds each, all in one file.

A word is a token, the models have some thousand parameters, and everything is sampled by the real engine and updated by
the real optimizer.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from wanderlust.environment import Environment, Episode, Revision, SingleTurnEnvironment
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.device import one_thread
from wanderlust.runner.engine import rollouts
from wanderlust.training import losses
from wanderlust.training.algorithms.base import Algorithm, SupportsBatchAdvantages
from wanderlust.training.batch.samples import Sample, build_samples, imitation_samples
from wanderlust.training.config import OptimizerConfig, TrainConfig
from wanderlust.training.gradient import GradientComputer, combine
from wanderlust.training.group_source import assign_batch_advantages
from wanderlust.training.optimizer import Optimizer, weights_of
from wanderlust.training.tiny_model import END_TOKEN, PAD_TOKEN, ROLES, TINY_CHAT_TEMPLATE, ModelShape, fresh_model
from wanderlust.training.trainers.replica import Replica
from wanderlust.types import Group, Task, Trajectory, Turn, assistant, user

WORDS = ("a", "b", "c", "d")
SHAPE = ModelShape(width=32, layers=1, heads=2, inner=64, positions=32, spread=0.1)


def tokenizer() -> Any:
    """A word is a token; there are 11."""
    words = [PAD_TOKEN, *(f"<|{role}|>" for role in ROLES), END_TOKEN, *WORDS, "?"]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    special = [PAD_TOKEN, *(f"<|{role}|>" for role in ROLES), END_TOKEN]
    made.add_special_tokens(special)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token=END_TOKEN,
        pad_token=PAD_TOKEN,
        chat_template=TINY_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


TOKENIZER = tokenizer()


class Twice(Environment):
    """Two turns: say the next letter, then the letter that is shown; each is paid at once, half of the whole."""

    async def run(self, episode: Episode) -> None:
        place = WORDS.index(episode.task.answer)
        for shown, wanted in ((place, (place + 1) % 4), ((place + 2) % 4, (place + 2) % 4)):
            said = await episode.agent.act(user(WORDS[shown]))
            right = 0.5 * (said.content == WORDS[wanted])
            episode.reward("right", right)
            episode.state["right"] = episode.state.get("right", 0.0) + right

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"twice-{word}", answer=word) for word in WORDS]


class Duel(Environment):
    """Two seats are shown a letter; who says it takes a point from the other. The second begins with half a point."""

    seats = ("first", "second")

    async def run(self, episode: Episode) -> None:
        word = episode.task.answer
        said = [await episode.agents[seat].act(user(word)) for seat in self.seats]
        points = [float(message.content == word) for message in said]
        episode.reward("points", points[0] - points[1] - 0.5, seat="first")
        episode.reward("points", points[1] - points[0] + 0.5, seat="second")
        episode.state["right"] = sum(points) / 2

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"duel-{word}", answer=word) for word in WORDS]


class Again(SingleTurnEnvironment):
    """One turn: say the letter after the one that is shown; a mistake may be made good in a revision."""

    prefixes = True
    revision = Revision(improve="?", diverge="??")

    def __init__(self) -> None:
        super().__init__([Task(id=f"again-{word}", prompt=(user(word),), answer=word) for word in WORDS])

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(*episode.task.prompt)
        right = said.content == WORDS[(WORDS.index(episode.task.answer) + 1) % 4]
        episode.state.update(right=float(right), feedback="a" if right else "b")
        episode.reward("right", float(right))


def fresh(seed: int) -> Any:
    """A policy that knows nothing."""
    return fresh_model(TOKENIZER, SHAPE, seed=seed)


@lru_cache
def teacher() -> Any:
    """A policy that was shown every right answer of `Twice`."""
    model, renderer = fresh(99), Renderer(TOKENIZER)
    shown = [Trajectory(turns=[_turn(p, p + 1), _turn(p + 2, p + 2)]) for p in range(4)]
    samples = [sample for trajectory in shown for sample in imitation_samples(trajectory, renderer)]
    optimizer = Optimizer(model, OptimizerConfig(steps=60, lr=2e-2, method="muon", decay="constant"))
    differentiator = GradientComputer(model, loss=losses.IMITATION_LOSS)
    for _ in range(60):
        optimizer.step(combine([differentiator.gradient(samples)]))
    return model


def _turn(shown: int, said: int) -> Turn:
    return Turn(observation=(user(WORDS[shown % 4]),), action=assistant(WORDS[said % 4]))


def played(replica: Replica, *, siblings: int = 16) -> list[Group]:
    """Every task of the environment, as the policy plays it now; the same draws each time."""

    async def play() -> list[Group]:
        env, policy = replica.env, replica.policy
        async with rollouts(env, env.tasks(), policy, group_size=siblings, seed=-1) as groups:
            return sorted([g async for g in groups], key=lambda g: g.index)

    return asyncio.run(play())


def success(groups: Sequence[Group]) -> float:
    """Share of right answers."""
    return fmean(r.state["right"] for group in groups for r in group.rollouts)


@dataclass(slots=True, kw_only=True)
class Lesson:
    """One policy, one environment, one algorithm."""

    replica: Replica
    lr: float = 2e-2
    steps: int = 26
    groups: int = 16
    lag: int = 0
    """Steps that the policy which plays may be behind the one that is updated."""

    @classmethod
    def of(cls, algorithm: Algorithm, *, seed: int, env: Environment | None = None, **settings: Any) -> Lesson:
        """A fresh policy in an environment."""
        one_thread()
        config = TrainConfig(algorithm=algorithm, max_tokens=1, group_size=8, seed=seed, implementation="transformers")
        return cls(replica=Replica(fresh(seed), TOKENIZER, env or Twice(), config=config, teacher=teacher), **settings)

    def learn(self) -> tuple[float, float]:
        """All steps; success before and after, as sampled."""
        replica = self.replica
        before = success(played(replica))
        config = OptimizerConfig(steps=self.steps, lr=self.lr, method="muon", warmup=1, decay="constant")
        newest = copy.deepcopy(replica.model)  # what is updated; the replica plays with what was published
        optimizer = Optimizer(newest, config)
        updated = GradientComputer(newest, loss=replica.algorithm.loss)
        tasks = list(replica.env.tasks())
        for step in range(self.steps):
            samples = self.play(tasks * (self.groups // len(tasks)), step)
            gradient = combine([updated.gradient(samples)])
            if not gradient.empty:
                optimizer.step(gradient)
            if step % (self.lag + 1) == self.lag:
                replica.publish(weights_of(newest), step + 1)
        replica.publish(weights_of(newest), self.steps)
        return before, success(played(replica))

    def play(self, tasks: Sequence[Task], step: int) -> list[Sample]:
        """What is learnt from a step's groups."""
        groups = self.replica.play(tasks, step)
        if isinstance(self.replica.algorithm, SupportsBatchAdvantages):
            asyncio.run(assign_batch_advantages(self.replica.algorithm, groups))
        return build_samples(groups, self.replica.algorithm.loss)
