"""The result of a training run: the model before and after, sampled, paired on the same held-out tasks.

Before and after are the saved checkpoints, loaded again and drawn from as in training. The environment's teacher and
random player stand beside them. The run hands out its last weights, unless another checkpoint is shown to be better.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any, Self, TypeAlias

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust.evals.report import render_html, render_text
from wanderlust.evals.self_revision import groups_of_answers, iterate_revisions
from wanderlust.evals.statistics import estimate
from wanderlust.policies.local.policy import LocalPolicy
from wanderlust.policies.resolve import fixed_player, make_player, matches_against, teacher_policy
from wanderlust.runner.engine import rollouts, run_blocking
from wanderlust.runner.progress import Logger
from wanderlust.runner.terminal import Table
from wanderlust.store.run_folder import CHECKPOINTS_FOLDER, REPORT_FILE
from wanderlust.tasks.selection import choose_tasks, iter_tasks
from wanderlust.training.checkpoint import (
    BEST_CHECKPOINT,
    LAST_CHECKPOINT,
    SERVICE_PLACE_FILE,
    START_CHECKPOINT,
    Run,
    best_point,
    eval_curve,
)
from wanderlust.training.config import TrainConfig
from wanderlust.training.models import load_frozen, rendering_of
from wanderlust.training.reward_hacking import WARNING_EVENT, truth_names
from wanderlust.training.run_report import (
    OVEROPTIMISATION_FILE,
    describe_result,
    draw_overoptimisation,
    evaluated_text,
    figure_text,
    overoptimisation,
    policy_sentence,
    result_header,
    result_rows,
    write_run_report,
)
from wanderlust.training.setup import measured_revisions
from wanderlust.training.verdict import (
    AFTER,
    BEFORE,
    BEST,
    RANDOM,
    TEACHER,
    Evidence,
    TaskRewards,
    advise,
    judge_result,
)
from wanderlust.types import Group, Policy, Rollout, Task

RESULT_STAGE = "result"
"""The stage of a run's sampled evaluation in its store."""
CHECKPOINT_OF = {BEFORE: START_CHECKPOINT, AFTER: LAST_CHECKPOINT, BEST: BEST_CHECKPOINT}
OPPONENT_OF = {BEFORE: "the start", BEST: "the best checkpoint"}
"""How checkpoints are called that others play against."""
FIRST_ANSWERS = "first answers"
"""How rows of answers are called that were not revised, where the others were."""
TRAINED_ON = "tasks trained on"
"""How rows of the table that are of these are called."""
MAX_SEARCHED_TASKS = 1000
"""Tasks of the `train` split among which those that were trained on are looked for."""

RolloutAnswers: TypeAlias = dict[tuple[int, int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """A finished training run."""

    path: Path
    """The run's folder."""
    report: dict[str, Any]
    """Content of `report.json`: seed, seconds, checkpoint, the curve of evaluations, the best one."""

    @classmethod
    def of(cls, folder: Path) -> Self | None:
        """That of the run in the folder; None where it is not finished."""
        file = folder / REPORT_FILE
        return cls(path=folder, report=json.loads(file.read_text())) if file.is_file() else None

    @property
    def policy_folder(self) -> Path:
        """The model that `--policy RUN` takes: a Hugging Face folder that `transformers` loads without this library.

        The last weights, unless the best evaluated ones, or those before training, are clearly better.
        """
        last = Path(self.report["checkpoint"])
        return last.with_name(self.report.get("policy_checkpoint", last.name))

    @property
    def verdict(self) -> str:
        """Whether training helped, in one sentence, with the interval of the paired difference; empty if unknown."""
        return str(self.report.get("result", {}).get("sentence", self.report.get("verdict", "")))

    @property
    def curve(self) -> list[dict[str, Any]]:
        """The evaluations, oldest first, each with its step and its figures."""
        return list(self.report["curve"])

    def table(self) -> Table:
        """The first and the last evaluation, with 95% intervals: greedy answers on the eval split, or held-out loss."""
        of = evaluated_text(self.curve[-1]) if self.curve else ""
        title = self.report.get("table_title", f"Greedy answers, eval split{of}")
        table = Table("", title=title, title_justify="left")
        if not self.curve:
            return table
        before, after = self.curve[0], self.curve[-1]
        table.add_column("before")
        table.add_column(f"after {after['step']} steps")
        for kind in ("rewards", "parts", "metrics"):
            for name, end in after[kind].items():
                label = "reward" if kind == "rewards" and len(after[kind]) == 1 else name
                table.add_row(label, figure_text(before[kind].get(name)), figure_text(end))
        failed = [str(point["failed"]) for point in (before, after)]
        if failed != ["0", "0"]:
            table.add_row("failed rollouts", *failed)
        return table

    def result_table(self) -> Table:
        """Before and after, sampled as in training on the same held-out tasks, with reference players."""
        result = self.report["result"]
        title = f"Sampled: {describe_result(result)}"
        table = Table(*result_header(result), title=title, title_justify="left")
        for row in result_rows(result):
            table.add_row(*row)
        return table

    def __str__(self) -> str:
        sampled = f"{render_text(self.result_table())}\n" if self.report.get("result") else ""
        verdict = f"{self.verdict}\n" if self.verdict else ""
        return f"{render_text(self.table())}\n{sampled}{verdict}Checkpoint: {self.policy_folder}"

    def _repr_html_(self) -> str:
        return render_html(self.table())


def conclude(config: TrainConfig, run: Run, curve: Sequence[dict[str, Any]], *, logger: Logger) -> dict[str, Any]:
    """Evaluate the checkpoints of a run whose steps are done, and write its report, whose content is returned."""
    end = run.path / CHECKPOINTS_FOLDER / LAST_CHECKPOINT
    body = {"seed": config.seed, "wall_s": 0.0, "checkpoint": str(end), "curve": curve}
    points, chosen_by = eval_curve(curve, config.best_metric), selection_metric(config)
    top = best_point(eval_curve(curve, chosen_by))
    body["best"] = None if top is None else {"step": top.step, chosen_by: top.value}
    result = body["result"] = evaluate_result(
        config, run, best_step=top.step if top is not None else None, logger=logger
    )
    body["policy_checkpoint"] = CHECKPOINT_OF[result.get("policy", AFTER)]
    if not end.exists():
        body["service_weights"] = (run.path / SERVICE_PLACE_FILE).read_text().strip()
    signal, clipped = (
        [value for _, value in run.store.metrics("rl", name)] for name in ("frac_groups_with_signal", "clip_fraction")
    )
    body["advice"] = (
        [result["advice"]]
        if result.get("advice")
        else advise(
            config,
            rewards=result.get("rewards", {}),
            match_rewards=result.get("match_rewards"),
            verdict=result.get("verdict", ""),
            signal=signal,
            points=points,
            unchanged=result.get("unchanged"),
            clipped=clipped,
        )
    )
    body["policy_sentence"] = policy_sentence(body)
    if curve_of_truth := overoptimisation(run.store, kl_weight=config.kl):
        body["overoptimisation"] = curve_of_truth
        draw_overoptimisation(run.path / OVEROPTIMISATION_FILE, curve_of_truth)
    body["wall_s"] = round(run.clock.record(), 1)
    title = f"Training in {config.env_name}"
    write_run_report(run.path, body, title=title, rewards=run.store.metrics("rl", "reward"))
    return body


def selection_metric(config: TrainConfig) -> str:
    """The figure by which the best checkpoint is chosen: the first held-out part, where no other one is asked for."""
    truths = truth_names(config.make_env()) if config.best_metric == "reward" else []
    return truths[0] if truths else config.best_metric


def evaluate_result(config: TrainConfig, run: Run, *, best_step: int | None, logger: Logger) -> dict[str, Any]:
    """Sample the checkpoints of a finished run on held-out tasks, and judge them; JSON data for its report.

    Empty where the environment has no eval split, or `result_samples` is 0. `best_step` is the step of the best greedy
    evaluation. The figure is `best_metric`. Where several seats learn and earn differently, each of them is measured by
    itself against players that do not learn. The rollouts in which all seats learn are stored.
    """
    env, began = config.make_env(), monotonic()
    tasks = choose_tasks(iter_tasks(env, "eval"), config.result_tasks) if config.result_samples else []
    if not tasks:
        return {}
    run.store.truncate([RESULT_STAGE], 0)
    steps = {BEFORE: 0, AFTER: config.steps if run.state is None else int(run.state["step"])}
    if best_step is not None and best_step not in steps.values():
        steps[BEST] = best_step
    policies = partial(_policies, config, env, run.path / CHECKPOINTS_FOLDER, names=[*steps], tasks=tasks)
    play = partial(_play, tasks=tasks, samples=config.result_samples, seed=config.seed)
    played = dict[str, list[Group]]()
    for name, policy in policies():
        played[name] = run_blocking(partial(play, env, policy=policy))
        if name in steps:
            run.store.add(played[name], stage=RESULT_STAGE, step=steps[name], env=config.env_name)
            figures = rewards_of(played[name], config.best_metric)
            shown = {config.best_metric: estimate(figures.values()).value} if figures else {}
            logger.log_step(RESULT_STAGE, [*steps].index(name) + 1, of=len(steps), metrics=shown)
    revisions = measured_revisions(config, env)
    if not all(map(has_common_interest, played.values())):
        measured = _matches(config, env, policies, checkpoints=list(steps), tasks=tasks, play=play)
    elif revisions:
        revise = partial(_revise, env, tasks, samples=config.result_samples, seed=config.seed, revisions=revisions)
        revised = {name: run_blocking(partial(revise, policy)) for name, policy in policies() if name in steps}
        measured = {"": revised, FIRST_ANSWERS: played}
    else:
        measured = {"": played, **_play_trained(config, run, env, policies=policies, play=play)}
    by_match = {match: figures_by_policy(by_policy, config.best_metric) for match, by_policy in measured.items()}
    truths = {
        f"{name}, {match}" if match else name: figures_by_policy(by_policy, name)
        for match, by_policy in measured.items()
        for name in truth_names(env)
        if name != config.best_metric and match not in (TRAINED_ON, FIRST_ANSWERS)
    }
    evidence = Evidence(
        rewards=by_match.pop("", {}),
        trained=_as_samples(by_match.pop(TRAINED_ON, {}), below=config.result_tasks),
        first_answers=by_match.pop(FIRST_ANSWERS, {}),
        revisions=revisions,
        matches={match: figured for match, figured in by_match.items() if figured},
        truths=truths,
        warnings=[event.body for event in run.store.events() if event.kind == WARNING_EVENT],
    )
    return {
        "metric": config.best_metric,
        "tasks": len(tasks),
        "samples": config.result_samples,
        "temperature": config.temperature,
        "rows": [
            _row(match, name, steps.get(name), groups=groups, metric=config.best_metric, truths=truths)
            for match, by_policy in measured.items()
            for name, groups in by_policy.items()
        ],
        **asdict(judge_result(evidence)),
        "unchanged": unchanged_share(answers_of(played.get(BEFORE, ())), answers_of(played.get(AFTER, ()))),
        "rewards": evidence.rewards,
        "match_rewards": evidence.matches,
        "seconds": round(monotonic() - began, 1),
    }


def figures_by_policy(groups: Mapping[str, Sequence[Group]], metric: str) -> dict[str, TaskRewards]:
    """The figures of every policy that has any."""
    return {name: found for name, played in groups.items() if (found := rewards_of(played, metric))}


def _matches(
    config: TrainConfig,
    env: Environment,
    policies: Callable[..., Iterator[tuple[str, Policy]]],
    *,
    checkpoints: Sequence[str],
    tasks: Sequence[Task],
    play: Callable[..., Coroutine[Any, Any, list[Group]]],
) -> dict[str, dict[str, list[Group]]]:
    """What each policy played in each seat against players that do not learn, by match and policy.

    These are the environment's teacher or random player and the checkpoints themselves: its start and its past.
    """
    opponents = dict([fixed] if (fixed := fixed_player(env, config.sft_teacher, tasks)) else [])
    scripted = {*opponents}
    past = [name for name in checkpoints if name in OPPONENT_OF]
    opponents |= {OPPONENT_OF[name]: policy for name, policy in policies(names=past) if name in past}
    found = dict[str, dict[str, list[Group]]]()
    for name, policy in policies():
        for opponent, player in opponents.items():
            if name not in checkpoints and opponent not in scripted:
                continue  # the teacher's and the random player's rows are for the fixed player's matches
            for seat, match in matches_against(player, env).items():
                groups = run_blocking(partial(play, match, policy=policy))
                found.setdefault(f"{seat} against {opponent}", {})[name] = groups
    return found


async def _revise(
    env: Environment, tasks: Sequence[Task], policy: Policy, *, samples: int, seed: int, revisions: int
) -> list[Group]:
    """The answers of a policy after so many revisions."""
    rounds = [await iterate_revisions(env, tasks, policy, rounds=revisions, seed=seed + n) for n in range(samples)]
    return groups_of_answers(tasks, [one[-1] for one in rounds])


def _play_trained(
    config: TrainConfig,
    run: Run,
    env: Environment,
    *,
    policies: Callable[..., Iterator[tuple[str, Policy]]],
    play: Callable[..., Coroutine[Any, Any, list[Group]]],
) -> dict[str, dict[str, list[Group]]]:
    """Tasks of the train split that the run learnt from, played by the weights before and after.

    There are as many rollouts as of held-out tasks. Empty where the curriculum makes tasks of its own alone.
    """
    known = {task for (task,) in run.store.select("select distinct task from rollouts where stage = 'rl'")}
    some = (task for task in islice(iter_tasks(env, "train"), MAX_SEARCHED_TASKS) if task.id in known)
    tasks = list(islice(some, config.result_tasks))
    if not tasks:
        return {}
    samples = ceil(config.result_tasks * config.result_samples / len(tasks))
    return {
        TRAINED_ON: {
            name: run_blocking(partial(play, env, policy=policy, tasks=tasks, samples=samples))
            for name, policy in policies(names=(BEFORE, AFTER))
            if name in (BEFORE, AFTER)
        }
    }


def _as_samples(by_policy: Mapping[str, TaskRewards], *, below: int) -> Mapping[str, TaskRewards]:
    """Rewards of fewer tasks than were asked for, each sample for itself: they are all there are, no draw of many."""
    if max(map(len, by_policy.values()), default=below) >= below:
        return by_policy
    return {
        name: {f"{task} {place}": [value] for task, values in rewards.items() for place, value in enumerate(values)}
        for name, rewards in by_policy.items()
    }


def _row(
    match: str,
    name: str,
    step: int | None,
    *,
    groups: Sequence[Group],
    metric: str,
    truths: Mapping[str, Mapping[str, TaskRewards]],
) -> dict[str, Any]:
    """A policy's figures in a match, for the table."""

    def figure(found: TaskRewards) -> dict[str, Any] | None:
        return asdict(estimate(found.values())) if found else None

    rewards = rewards_of(groups, metric)
    return {
        "match": match,
        "policy": name,
        "step": step,
        "reward": figure(rewards),
        "truths": {
            truth: figure(by.get(name, {})) for truth, by in truths.items() if not match or truth.endswith(f", {match}")
        },
        "failed": sum(len(group.rollouts) for group in groups) - sum(map(len, rewards.values())),
    }


def learning_seats(groups: Sequence[Group]) -> list[str]:
    """The seats that learn, in their order."""
    return [*dict.fromkeys(t.seat for g in groups for r in g.rollouts for t in r.trajectories if t.trainable)]


def has_common_interest(groups: Sequence[Group]) -> bool:
    """Whether all seats that learn earn the same in every rollout, as a single seat does, or a team."""
    return all(
        len({t.score.reward for t in rollout.trajectories if t.trainable and t.score is not None}) < 2
        for group in groups
        for rollout in group.rollouts
    )


def answers_of(groups: Sequence[Group]) -> RolloutAnswers:
    """A digest of what the seats that learn answered in each rollout, by the group's place and the sample."""
    return {
        (group.index, rollout.sample_index): sha256(
            repr(
                [
                    (turn.action.content, turn.action.tool_calls)
                    for t in rollout.trajectories
                    if t.trainable
                    for turn in t.turns
                ]
            ).encode(errors="backslashreplace")
        ).digest()
        for group in groups
        for rollout in group.rollouts
    }


def unchanged_share(before: RolloutAnswers, after: RolloutAnswers) -> float | None:
    """Share of the rollouts in which every answer is the same; None without any in common.

    Both checkpoints draw with the same random numbers, so an unmoved policy answers the same; and a rollout with the
    same answers earns the same, so this bounds what training can have changed.
    """
    common = before.keys() & after.keys()
    return sum(before[place] == after[place] for place in common) / len(common) if common else None


def rewards_of(groups: Sequence[Group], metric: str) -> TaskRewards:
    """The figure of every scored rollout, by task."""
    figures: dict[str, list[float]] = {}
    for group in groups:
        values = [rollout_figure(rollout, metric) for rollout in group.rollouts]
        figures.setdefault(group.task.id, []).extend(value for value in values if value is not None)
    return {task: values for task, values in figures.items() if values}


def rollout_figure(rollout: Rollout, metric: str = "reward") -> float | None:
    """The mean of a figure over the seats that learn: `reward`, a part, a metric, or a seat's name for its reward.

    None where no such seat has it.
    """
    several = len(rollout.trajectories) > 1
    values = list[float]()
    for trajectory in rollout.trajectories:
        score = trajectory.score
        if score is None or not trajectory.trainable:
            continue
        own = {"reward": score.reward, **score.parts, **score.metrics}
        names = {**own, trajectory.seat: score.reward} if several else own
        seat = f"{trajectory.seat}: " if several else ""
        found = names.get(metric, names.get(metric.removeprefix(seat)))
        if found is not None:
            values.append(found)
    return sum(values) / len(values) if values else None


def _policies(
    config: TrainConfig, env: Environment, folder: Path, *, names: Sequence[str], tasks: Sequence[Task]
) -> Iterator[tuple[str, Policy]]:
    """The checkpoints, each loaded when its turn comes, then the environment's teacher and random player."""
    for name in names:
        if (folder / CHECKPOINT_OF[name]).is_dir():
            model, tokenizer = load_frozen(config, folder / CHECKPOINT_OF[name])
            yield (
                name,
                LocalPolicy.of(
                    model,
                    tokenizer,
                    config.sampling,
                    seed=config.seed,
                    fast=config.fast,
                    rendering=rendering_of(config),
                ),
            )
    with suppress(UsageError):  # an environment without a teacher has no such row
        yield TEACHER, teacher_policy(env, config.sft_teacher, tasks)
    if RANDOM in env.players:
        yield RANDOM, make_player(env, RANDOM)


async def _play(env: Environment, *, tasks: Sequence[Task], policy: Policy, samples: int, seed: int) -> list[Group]:
    async with rollouts(env, tasks, policy, group_size=samples, seed=seed) as stream:
        return sorted([group async for group in stream], key=lambda group: group.index)
