"""The RL stage of a run: engine, source of groups, steps, and the evaluations that make the learning curve."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

from wanderlust.evals.accumulator import scored_report
from wanderlust.evals.self_revision import groups_of_answers, revise_answers
from wanderlust.evals.statistics import estimate
from wanderlust.policies.resolve import fixed_player
from wanderlust.runner.progress import Logger, ProgressLogger
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.training.async_source import AsyncSource
from wanderlust.training.checkpoint import LAST_CHECKPOINT, Run, comparable_points, point_estimates, prune
from wanderlust.training.config import TrainConfig
from wanderlust.training.engines import open_engine, save_checkpoint
from wanderlust.training.group_source import BatchSource, LocalPlayer, OnPolicySource, RayCluster, calibrate
from wanderlust.training.loop import TrainingLoop
from wanderlust.training.result import (
    has_common_interest,
    learning_seats,
    rewards_of,
    selection_metric,
)
from wanderlust.training.reward_hacking import RewardHackingMonitors
from wanderlust.training.setup import measured_revisions, run_curriculum
from wanderlust.training.trainers.base import EngineOptions, TrainingSetup
from wanderlust.training.verdict import advise_during
from wanderlust.types import Group

ADVICE_EVENT = "advice"
"""Kind of the store's events."""
ADVICE_METRICS = ("frac_groups_with_signal", "entropy", "groups_dropped")
COMPARABLE_CURRICULA = ("", "uniform")
"""Curricula under which the training rewards of early and late steps are of the same tasks."""


async def run_rl_stage(
    config: TrainConfig, run: Run, *, start: Path, logger: Logger, workers: int, ray: RayCluster | None
) -> list[dict[str, Any]]:
    """Take the remaining steps from the checkpoint `start` and save the last weights; returns the learning curve.

    The engine's memory is free again afterwards.
    """
    env, began = config.make_env(), run.state is None or run.state["stage"] != "rl"
    state: dict[str, Any] = {"step": 0, "facts": {"curve": []}} if began else {**(run.state or {})}
    run.store.truncate(["rl"], state["step"])
    monitors = RewardHackingMonitors.for_environment(
        env, stop_on_warning=config.on_hack == "stop", is_own_reward=config.label_estimator == "none"
    )
    chosen = run_curriculum(config, env)
    options = EngineOptions(config=config, start=start, run=run.path, workers=workers, ray=ray)
    async with open_engine(options) as setup:
        loop = TrainingLoop(
            run, setup.trainer, logger=logger, facts=state["facts"], algorithm=setup.algorithm, monitors=monitors
        )
        evaluate = _evaluation(loop, setup, config, revisions=measured_revisions(config, env))
        if began:
            await setup.trainer.publish()
            async with loop.ema_weights():
                await evaluate(0)
            await calibrate(chosen, setup.player)
        source: BatchSource
        if config.max_staleness:
            assert isinstance(setup.player, LocalPlayer)
            source = AsyncSource(
                setup.player,
                chosen,
                version=lambda: setup.trainer.version,
                count=config.tasks_per_step,
                steps=config.steps,
                max_staleness=config.max_staleness,
            )
        else:
            source = OnPolicySource(setup.player, chosen, count=config.tasks_per_step, algorithm=setup.algorithm)

        def step_metrics(groups: Sequence[Group]) -> dict[str, float]:
            loop.facts["rivals"] = loop.facts.get("rivals", False) or not has_common_interest(groups)
            return environment_metrics(groups)

        await loop.run_rl(source, config, env=config.env_name, group_metrics=step_metrics, evaluate=evaluate)
        await save_checkpoint(run.path / CHECKPOINTS_FOLDER / LAST_CHECKPOINT, config, setup)
    return [{name: each for name, each in point.items() if name != "apart"} for point in loop.facts["curve"]]


def _evaluation(
    loop: TrainingLoop, setup: TrainingSetup, config: TrainConfig, *, revisions: int
) -> Callable[[int], Awaitable[bool]]:
    """Makes a point of the learning curve, the greedy policy on the `eval` split; says whether to go on after it.

    With `revisions` it is of answers that were revised so often.
    """
    env = config.make_env()
    tasks = choose_tasks(iter_tasks(env, "eval"), config.eval_tasks) if config.eval_tasks else []

    async def evaluate(step: int) -> bool:
        if not tasks and config.eval_tasks:
            return True
        groups: list[Group] = []
        if tasks:
            if revisions:
                rounds = await revise_answers(env, tasks, setup.player.evaluate, rounds=revisions)
                groups, revised = (groups_of_answers(tasks, [rounds[at]]) for at in (0, -1))
                point, figures = _played_point(revised)
                first = estimate(rewards_of(groups, "reward").values())
                point |= {"revisions": revisions, "first_answers": asdict(first)}
                figures["first_answers"] = first.value
            else:
                groups = await setup.player.evaluate(tasks)
                point, figures = _played_point(groups)
            loop.facts["rivals"] = loop.facts.get("rivals", False) or not has_common_interest(groups)
            if len(seats := learning_seats(groups)) > 1:
                opponent = fixed_player(env, config.sft_teacher, tasks)
                by_seat = {seat: await setup.player.evaluate(tasks, seat) for seat in seats if opponent is not None}
                point["apart"] = _match_point(point, by_seat, opponent=opponent[0] if opponent else "")
        else:
            point, figures = _exact_point(await setup.player.exact() or ())
        curve = loop.facts["curve"]
        curve[:] = [earlier for earlier in curve if earlier["step"] < step] + [{"step": step, **point}]
        if loop.facts.get("rivals"):  # which may have shown since the earlier points
            curve[:] = [{"step": one["step"], **one.get("apart", one)} for one in curve]
            if "opponent" in curve[-1]:
                figures = {seat: float(each["value"]) for seat, each in curve[-1]["rewards"].items()}
        loop.run.store.add(stage="eval", step=step, env=config.env_name, metrics=figures)
        loop.logger.log_step("eval", step, of=config.steps, metrics=figures)
        _advise(loop, step, groups, config=config)
        return await prune(
            loop.run.path / CHECKPOINTS_FOLDER,
            curve,
            metric=selection_metric(config),
            keep_last=config.keep_last,
            patience=config.patience,
            save=partial(save_checkpoint, config=config, setup=setup, averaged=True),
        )

    return evaluate


def _played_point(groups: Sequence[Group]) -> tuple[dict[str, Any], dict[str, float]]:
    """The report of one episode a task as a point of the curve, and its figures by name."""
    result = scored_report(groups)
    timeless = replace(result, usage=replace(result.usage, latency={}))  # no clock's: a resumed run has the same
    estimates = (
        {"reward": result.reward, **result.parts, **result.metrics} if len(result.rewards) == 1 else result.rewards
    )
    figures = {name: each.value for name, each in estimates.items() if each is not None}
    return {**timeless.as_dict(), "learning_reward": asdict(estimate(rewards_of(groups, "reward").values()))}, figures


def _match_point(
    together: Mapping[str, Any], by_seat: Mapping[str, Sequence[Group]], *, opponent: str
) -> dict[str, Any]:
    """The same where seats earn differently: each one's figures against the opponent, and their mean.

    Where there is no opponent, the figures of seats that learn together, and no `learning_reward`: it would tell
    nothing, as the opponent learns too.
    """
    point = {**together, "learning_reward": None, "opponent": opponent}
    if by_seat:
        reports = {seat: scored_report(groups).as_dict() for seat, groups in by_seat.items()}
        for kind in ("parts", "metrics"):
            point[kind] = {n: e for seat, r in reports.items() for n, e in r[kind].items() if n.startswith(f"{seat}: ")}
        point["rewards"] = {seat: report["rewards"][seat] for seat, report in reports.items()}
        point["failed"] = sum(report["failed"] for report in reports.values())
        both = [group for groups in by_seat.values() for group in groups]
        point["learning_reward"] = asdict(estimate(rewards_of(both, "reward").values()))
    return point


def _exact_point(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, float]]:
    """Rows of exact figures as a point of the curve, which has their means, and all by name."""
    numbers = [{name: value for name, value in row.items() if isinstance(value, float)} for row in rows]
    means = {
        name: {
            "value": fmean(row[name] for row in numbers),
            "low": None,
            "high": None,
            "count": len(rows),
            "clusters": 1,
        }
        for name in numbers[0]
    }
    reward = means.pop("reward")
    labels = [next(value for name, value in row.items() if name != "policy" and isinstance(value, str)) for row in rows]
    figures = {f"{label}/{name}": row[name] for label, row in zip(labels, numbers, strict=True) for name in means}
    point = {"rewards": {"agent": reward}, "parts": {}, "metrics": means, "failed": 0, "exact": [*rows]}
    return point, figures


def _advise(loop: TrainingLoop, step: int, groups: Sequence[Group], *, config: TrainConfig) -> None:
    """Say what the figures so far suggest to change, each kind once in a run, and keep it as an event of the run."""
    store, facts = loop.run.store, loop.facts
    said = [
        [str(message.content) for message in t.messages] for g in groups for r in g.rollouts for t in r.trajectories
    ]
    digests = [blake2b(repr(one).encode(), digest_size=8).hexdigest() for one in said]
    known = facts.setdefault("greedy_before", digests)
    same = sum(a == b for a, b in zip(known, digests, strict=False)) / max(len(digests), 1)
    curve = comparable_points(facts["curve"], config.best_metric)
    points = [{"step": p["step"], **point_estimates(p).get(config.best_metric, {})} for p in curve]
    comparable = (
        config.best_metric == "reward" and config.curriculum in COMPARABLE_CURRICULA and not facts.get("rivals")
    )
    lines = advise_during(
        config,
        metrics={
            name: [value for _, value in store.metrics("rl", name)]
            for name in (*ADVICE_METRICS, *(["reward"] if comparable else []))
        },
        points=[point for point in points if "value" in point],
        unchanged=same,
    )
    if not curve:
        lines["opponent"] = (
            "Seats that learn earn differently, and the environment has no player `teacher` or `random` to measure "
            "them against: no best checkpoint is kept, and --patience stops nothing. Add such a player."
        )
    told: list[str] = facts.setdefault("advice_given", [])
    for kind, line in lines.items():
        if kind not in told:
            told.append(kind)
            store.add_event(ADVICE_EVENT, {"stage": "rl", "step": step - 1, "kind": kind, "text": line})
            if isinstance(loop.logger, ProgressLogger):
                loop.logger.log_line(f"eval {step}: {line}")


def environment_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Mean of every metric that the environment records."""
    result = scored_report(groups)
    return {f"metric/{name}": estimate.value for name, estimate in result.metrics.items()}
