"""Supervised warm-up (SFT) before reinforcement learning: a teacher plays the environment, the model imitates it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from random import Random
from typing import Any

from wanderlust.errors import PolicyFailure, UsageError, one_line
from wanderlust.evals.accumulator import report_of_groups
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.policies.resolve import teacher_policy
from wanderlust.runner.engine import play_groups, run_blocking
from wanderlust.runner.progress import Logger, ProgressLogger
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER, FRESH_POLICY
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.training import losses
from wanderlust.training.batch.samples import Sample, episodes_of, imitation_samples, trajectories_of
from wanderlust.training.checkpoint import START_CHECKPOINT, Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.loop import SupervisedLoop
from wanderlust.training.models import checkpoint_folder, load_trainable, merge_adapters, rendering_of
from wanderlust.training.tiny_model import ModelShape, fresh_model, tokenizer_of
from wanderlust.training.trainers.in_process import LocalLearner
from wanderlust.types import Message, Tool, Trajectory

TEACHER_STAGE = "teacher"
"""The stage of a run's store with the teacher's episodes."""
MAX_CONCURRENT_EPISODES = 8
"""Episodes in one pass through a model of millions of weights: what fits into little memory."""
VOCABULARY_SIZE = 2048
"""Tokens of a fresh model's tokenizer, at most; a few hundred bytes and special tokens are among them."""


def fresh_model_after_sft(config: TrainConfig, *, logger: Logger, run: Run | None = None) -> tuple[Any, Any]:
    """A fresh model trained on the teacher's episodes, and its tokenizer; equal arguments, equal weights."""
    one_thread()
    config = config.with_sft_defaults()
    trajectories = play_teacher(config, logger=logger, run=run)
    tools = (tool for one in trajectories for turn in one.turns for tool in turn.tools)
    messages = (m for one in trajectories for turn in one.turns for m in (*turn.observation, turn.action))
    model, tokenizer = new_model(config, messages, tools)
    rendering_of(config).set(tokenizer)
    samples = teacher_samples(trajectories, model, tokenizer, config=config, logger=logger)
    imitate(LocalLearner(model, config.sft_optimizer), samples, config, logger=logger, run=run)
    return model, tokenizer


def new_model(config: TrainConfig, messages: Iterable[Message], tools: Iterable[Tool]) -> tuple[Any, Any]:
    """A model that has learnt nothing, and its tokenizer, which is made of these messages and tools."""
    tokenizer = tokenizer_of(messages, tools, size=VOCABULARY_SIZE)
    return fresh_model(tokenizer, fresh_shape(config), seed=config.seed), tokenizer


def fresh_shape(config: TrainConfig) -> ModelShape:
    """Shape of the fresh model; small contexts suit slow rotary positions, narrow models wide embeddings."""
    return ModelShape(
        width=config.fresh_width,
        layers=config.fresh_layers,
        heads=config.fresh_width // config.fresh_head_width,
        inner=3 * config.fresh_width,
        positions=config.fresh_positions,
        theta=100.0,
        spread=0.1,
    )


def imitate(
    learner: LocalLearner, samples: Sequence[Sample], config: TrainConfig, *, logger: Logger, run: Run | None = None
) -> None:
    """The SFT updates of a run, on samples drawn by its seed; goes on where the run stopped."""
    rng, episodes = Random(f"imitate/{config.seed}"), episodes_of(samples)
    drawn = (rng.sample(episodes, min(config.sft_batch, len(episodes))) for _ in range(config.sft_steps))
    batches = [[*chain.from_iterable(batch)] for batch in drawn]
    loop = SupervisedLoop(learner, losses.IMITATION_LOSS, stage="sft", updates=config.sft_steps, logger=logger, run=run)
    with learner:
        run_blocking(partial(loop.take, batches.__getitem__))


MAX_UNREACHABLE_SHARE = 0.5
"""Share of a teacher's episodes that a policy could not play at all, from which on imitating them is refused."""


def teacher_samples(
    trajectories: Sequence[Trajectory], model: Any, tokenizer: Any, *, config: TrainConfig, logger: Logger
) -> list[Sample]:
    """The teacher's episodes as the policy would have read and said them; those that it cannot play are left out.

    Raises UsageError, with the way out, where the model cannot be told of a call, or hardly of any episode.
    """
    renderer = Renderer(tokenizer, rendering_of(config))
    fresh = config.policy == FRESH_POLICY
    positions = int(getattr(model.config, "max_position_embeddings", 0) or 2**31)
    samples: list[Sample] = []
    longest = {"answer": 0, "episode": 0}
    left_out = 0
    for one in trajectories:
        if any(turn.action.tool_calls and not turn.tools for turn in one.turns):
            raise UsageError("the teacher calls tools that no policy is offered: hand them to act(..., tools=...)")
        try:
            own = imitation_samples(one, renderer, context=config.sft_context_weight if fresh else 0.0)
        except PolicyFailure as failure:
            raise UsageError(f"an episode of the teacher cannot be imitated: {one_line(str(failure))}") from failure
        answer = max((end - begin - 1 for sample in own for begin, end in sample.turns.values()), default=0)
        episode = max((len(sample.ids) for sample in own), default=0)
        longest = {"answer": max(longest["answer"], answer), "episode": max(longest["episode"], episode)}
        if answer > config.max_tokens or episode > positions:
            left_out += 1
        else:
            samples += own
    if not left_out:
        return samples
    bounds = [("answer", "max_tokens", config.max_tokens), ("episode", "fresh_positions" if fresh else "", positions)]
    why = "; ".join(
        f"the longest {what} has {longest[what]} tokens, and the policy's bound is {bound}"
        + (f": raise {option} (--{option.replace('_', '-')})" if option else "")
        for what, option, bound in bounds
        if longest[what] > bound
    )
    line = f"{left_out} of {len(trajectories)} episodes of the teacher are too long for the policy to play: {why}"
    if left_out > MAX_UNREACHABLE_SHARE * len(trajectories):
        raise UsageError(line)
    if isinstance(logger, ProgressLogger):
        logger.log_line(f"{line}; they are not imitated")
    return samples


def play_teacher(config: TrainConfig, *, logger: Logger, run: Run | None = None) -> list[Trajectory]:
    """The episodes of the configuration's teacher, of which the `run` keeps the rollouts, as they are to be imitated.

    Raises UsageError when it says nothing there.
    """
    env, count = config.make_env(), config.sft_episodes
    tasks = choose_tasks(iter_tasks(env, "train"), count)
    if not tasks:
        raise UsageError("the split 'train' is empty, so there is nothing to imitate and to train on")
    tasks = list(islice(cycle(tasks), count))
    teacher = teacher_policy(env, config.sft_teacher, tasks)
    groups = run_blocking(partial(play_groups, env, tasks, teacher, seed=config.seed))
    trajectories = env.demonstrations([rollout for group in groups for rollout in group.rollouts])
    if not trajectories:
        errors = [f"{r.stop_reason}: {r.error}" for group in groups for r in group.rollouts if r.error]
        answered = any(one.turns for one in trajectories_of(groups))
        why = errors[0] if errors else "no seat of the environment learns" if answered else "no agent was ever asked"
        raise UsageError(f"the teacher gave no answer in any episode, so there is nothing to train on: {one_line(why)}")
    if run is not None:
        run.store.truncate([TEACHER_STAGE], 0)
        run.store.add(groups, stage=TEACHER_STAGE, step=0, env=config.env_name)
    metrics = {f"metric/{name}": each.value for name, each in report_of_groups(groups).metrics.items()}
    logger.log_step(TEACHER_STAGE, len(groups), of=len(groups), metrics=metrics)
    return trajectories


def save_initial_model(config: TrainConfig, logger: Logger, run: Run) -> Path:
    """The folder of the model that RL starts from, which is made and saved where the run does not have it yet."""
    folder = run.path / CHECKPOINTS_FOLDER / START_CHECKPOINT
    if not folder.exists():
        save_pretrained(folder, *initial_model(config, logger, run))
        run.clock.record()
    return folder


def initial_model(config: TrainConfig, logger: Logger, run: Run | None = None) -> tuple[Any, Any]:
    """The model that RL starts from, after SFT where the configuration asks for it, and its tokenizer."""
    if config.policy == FRESH_POLICY:
        return fresh_model_after_sft(config, logger=logger, run=run)
    folder = checkpoint_folder(config.policy)
    if not config.sft_episodes:
        model, tokenizer = load_pretrained(folder)
        rendering_of(config).set(tokenizer)
        return model, tokenizer
    one_thread()
    config = config.with_sft_defaults()
    model, tokenizer = load_trainable(config, folder)
    rendering_of(config).set(tokenizer)
    samples = teacher_samples(
        play_teacher(config, logger=logger, run=run), model, tokenizer, config=config, logger=logger
    )
    hardware = replace(config.hardware, precision="fp32")
    learner = LocalLearner(
        model, config.sft_optimizer, micro_batch=MAX_CONCURRENT_EPISODES, fast=True, hardware=hardware
    )
    imitate(learner, samples, config, logger=logger, run=run)
    return merge_adapters(config, model), tokenizer
