"""Reinforcement learning of any checkpoint in any environment, on one screen."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from wanderlust.errors import EnvironmentFailure
from wanderlust.evals.evaluate import report
from wanderlust.evals.report import Report
from wanderlust.policies.base import PLAIN
from wanderlust.policies.local.device import resolved
from wanderlust.store.run_folder import CHECKPOINTS, REPORT
from wanderlust.tasks.curriculum import Rating
from wanderlust.tasks.registry import environment
from wanderlust.tasks.selection import choose
from wanderlust.training.checkpoint import best, course, keep, save_pretrained
from wanderlust.training.curricula import curriculum
from wanderlust.training.loggers import Telling, Watch
from wanderlust.training.loop import Learner, ReinforceConfig
from wanderlust.training.losses import TIS
from wanderlust.training.optimizer import set_weights
from wanderlust.training.reward_hacking import Lookout
from wanderlust.training.run import Run
from wanderlust.training.setup import Beside, TrainConfig, Works, check, first, met, works
from wanderlust.types import Group, Task

__all__ = ["Beside", "TrainConfig", "check", "train"]

EXAMINED = 300
"""At most this many tasks of the `eval` split are played at an examination."""
BEFORE = -1
"""Seed of what the first model plays for the curriculum."""


def train(config: TrainConfig, run: Run, *, watch: Watch, workers: int = 2) -> dict[str, Any]:
    """Run what is left to run; the facts it returns stand in the run's report as well.

    Guarantees that a run which was interrupted at any moment and gone on with ends in the same weights, where
    `max_lag` is 0; else that no group is lost, none learnt from twice.
    """
    began = time.monotonic()
    _tell(config, watch)
    start, end = run.path / CHECKPOINTS / "start", run.path / CHECKPOINTS / "rl"
    if not start.exists():
        save_pretrained(start, *first(config, watch))
    state = run.state or {"step": 0, "facts": {"curve": [], "seconds": 0.0}}
    facts: dict[str, Any] = state["facts"]
    run.store.truncate(["reinforce"], state["step"])
    with works(config, start, workers=workers) as engine:
        asyncio.run(_learn(config, run, engine, facts=facts, watch=watch))
        save_pretrained(end, config.beside.plain(engine.trainer.model), engine.tokenizer)
    facts["seconds"] += time.monotonic() - began
    curve = facts["curve"]
    body = {"seed": config.seed, "wall_s": round(facts["seconds"], 1), "checkpoint": str(end), "curve": curve}
    top = best(course(curve, config.beside.keeping.metric))
    body["best"] = None if top is None else {"step": top.step, config.beside.keeping.metric: top.value}
    (run.path / REPORT).write_text(json.dumps(body, indent=2) + "\n")
    return body


def _tell(config: TrainConfig, watch: Watch) -> None:
    """Say where is computed, where that is not as ever, and what makes up for it."""
    hardware, loss = resolved(config.beside.hardware), config.play.algorithm.loss
    if hardware == PLAIN or not isinstance(watch, Telling):
        return
    line = f"computing on {hardware.device} in {hardware.precision}"
    if hardware.precision != "fp32" and loss.correction == TIS:
        line += f"; tokens weigh p_trainer / p_sampler, at most {TIS.ratio_max:g} (TIS), as the two round differently"
    watch.tell(line)


async def _learn(config: TrainConfig, run: Run, engine: Works, *, facts: dict[str, Any], watch: Watch) -> None:
    env = environment(config.env)
    lookout = Lookout.on(env, stops=config.beside.keeping.on_finding == "stop")
    learner = Learner(run, engine.trainer, watch=watch, facts=facts, algorithm=engine.algorithm, lookout=lookout)
    examine = partial(_examine, learner, engine, tasks=choose(env.tasks("eval"), EXAMINED), config=config)
    chosen = curriculum(config.beside.curriculum, env, seed=config.seed, after=met(config))
    if run.state is None:
        await engine.trainer.publish()
        async with engine.trainer.averaged():
            await examine(0)
        if isinstance(chosen, Rating):
            for group in await engine.player.play(chosen.beforehand(), seed=BEFORE):
                chosen.observe(group)
    await learner.reinforce(
        engine.source(chosen),
        ReinforceConfig(
            optimizer=config.optimizer,
            steps=config.steps,
            groups=config.groups,
            examine_every=config.examine_every,
        ),
        env=config.env,
        describe=_describe,
        examine=examine,
    )


async def _examine(learner: Learner, engine: Works, step: int, *, tasks: Sequence[Task], config: TrainConfig) -> bool:
    """A point of the learning curve: the greedy policy on the `eval` split; whether to go on after it."""
    if not tasks:
        return True
    found = _whole(report(await engine.examine(tasks)))
    curve = learner.facts["curve"]
    timeless = replace(found, usage=replace(found.usage, latency={}))  # no clock's: a resumed run has the same
    curve[:] = [point for point in curve if point["step"] < step] + [{"step": step, **timeless.as_dict()}]
    estimates = {"reward": found.reward, **found.parts, **found.metrics} if len(found.rewards) == 1 else found.rewards
    figures = {name: estimate.value for name, estimate in estimates.items() if estimate is not None}
    learner.run.store.add(stage="examine", step=step, env=config.env, metrics=figures)
    learner.watch.show("examine", step, of=config.steps, figures=figures)
    plain = partial(_save, config, engine)
    return keep(learner.run.path / CHECKPOINTS, curve, config.beside.keeping, save=plain)


def _save(config: TrainConfig, engine: Works, folder: Path) -> None:
    """What is examined, the averaged weights, as a checkpoint that anybody loads."""
    model = copy.deepcopy(engine.trainer.model)
    set_weights(model, engine.trainer.owner.averaged)
    save_pretrained(folder, config.beside.plain(model), engine.tokenizer)


def _whole(found: Report) -> Report:
    """The report. Raises EnvironmentFailure when nothing could be scored: there is nothing to learn from then."""
    if found.played and not found.scored:
        name, errors = next(iter(found.errors.items()), ("nothing was scored", None))
        raise EnvironmentFailure(f"all {found.played} rollouts failed: {name}: {errors.first if errors else ''}")
    return found


def _describe(groups: Sequence[Group]) -> dict[str, float]:
    """Mean of every metric that the environment records."""
    found = _whole(report(groups))
    return {f"metric/{name}": estimate.value for name, estimate in found.metrics.items()}
