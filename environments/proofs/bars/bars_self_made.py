"""Tasks that a model sets for itself against fixed tasks, with as many answers of the model, on held-out tasks.

Every seed warms one model up, from which all methods start. Fixed tasks are those of the scripted proposer, which the
warm-up has seen as well. The held-out tasks are answered once each at temperature 1, with the same draws; differences
are taken seed by seed. Runs of training stay in RUNS and go on where they stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval, sampled

from wanderlust.errors import UsageError
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.runner.progress import NullLogger
from wanderlust.training.checkpoint import Run, load_config
from wanderlust.training.config import TrainConfig
from wanderlust.training.train import run_training
from wanderlust.training.warmup import fresh_model_after_sft
from wanderlust.types import Rollout
from wanderlust_proofs.made_tasks import TASK_KINDS
from wanderlust_proofs.presets import SELF_MADE
from wanderlust_proofs.self_made import SelfMadeTasks

RUNS = Path("runs/benchmarks")
TRUTH = 400
"""Held-out tasks, a fourth of each kind."""
LOW, HIGH, BAND_STEPS = 0.2, 0.8, 50
"""Mean pass rate of a step's accepted tasks, and how many steps in a row it has to stay there."""
ENVIRONMENT = "wanderlust_proofs.self_made:SelfMadeTasks,size=12000"
METHODS: Mapping[str, TrainConfig] = {
    "self-made": SELF_MADE,
    "fixed": SELF_MADE.replace(
        env=f"{ENVIRONMENT},propose=0", curriculum="uniform", tasks_per_step=2 * SELF_MADE.tasks_per_step
    ),
}
"""A fourth of the self-made groups are proposals with four tries each: at most twice as many answers as episodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """One method from one seed."""

    method: str
    seed: int
    truth: dict[str, float]
    """Share of held-out tasks that are right, by kind and of all."""
    answers: int
    """That the model gave in training, evaluations apart."""
    passes: tuple[float, ...] = ()
    """Of each step the mean pass rate of accepted tasks; empty for fixed ones."""
    in_band: float = 0.0
    """Share of accepted tasks whose own tries pass at 20 to 80%, mean of all steps."""


def started(seed: int) -> Path:
    """The model that every method of a seed starts from."""
    path = RUNS / f"self-made-start-seed{seed}"
    if not path.exists():
        save_pretrained(path, *fresh_model_after_sft(SELF_MADE.replace(seed=seed), logger=NullLogger()))
    return path


def truth(checkpoint: Path) -> dict[str, float]:
    """A checkpoint on the held-out tasks."""
    env = SelfMadeTasks(eval_size=TRUTH)
    played = sampled(checkpoint, env, env.tasks("eval"), max_tokens=SELF_MADE.max_tokens)
    by_kind = {kind: fmean(_right(one) for one in played if one.task.info["kind"] == kind) for kind in TASK_KINDS}
    return {**by_kind, "all": fmean(map(_right, played))}


def _right(rollout: Rollout) -> float:
    score = rollout.main_trajectory
    return score.score.reward if score is not None and score.score is not None else 0.0


def learnt(method: str, seed: int) -> Learnt:
    """A method from a seed, in this process alone."""
    config = METHODS[method].replace(
        policy=str(started(seed).resolve()), seed=seed, sft_episodes=0, sft_steps=0, result_samples=0
    )
    path = RUNS / f"self-made-{method}-seed{seed}"
    if path.exists() and load_config(path, TrainConfig).as_dict() != config.as_dict():
        raise UsageError(f"{path} is a run with other settings: remove it to train again")
    run = Run.resume(path) if path.exists() else Run.begin(path, config)
    with closing(run.store):
        if not (path / "report.json").exists():
            run_training(config, run, logger=NullLogger(), workers=1)
        groups = chain.from_iterable(run.store.iter_groups("rl", step) for step in range(config.steps))
        return Learnt(
            method=method,
            seed=seed,
            truth=truth(path / "checkpoints" / "rl"),
            answers=sum(len(t.turns) for group in groups for one in group.rollouts for t in one.trajectories),
            passes=tuple(value for _, value in run.store.metrics("rl", "curriculum_pass")),
            in_band=fmean([value for _, value in run.store.metrics("rl", "curriculum_in_band")] or [0.0]),
        )


def longest_in_band(passes: Sequence[float]) -> int:
    """Most steps in a row whose accepted tasks pass at 20 to 80% on average."""
    return max((len([*run]) for inside, run in groupby(LOW <= one <= HIGH for one in passes) if inside), default=0)


def bars() -> Iterator[Bar]:
    """Self-made less fixed tasks on the truth, and the proposer's band."""
    before = {seed: truth(started(seed)) for seed in SEEDS}
    runs = {(method, seed): learnt(method, seed) for seed in SEEDS for method in METHODS}
    yield from judged(before, runs)


def judged(before: Mapping[int, Mapping[str, float]], runs: Mapping[tuple[str, int], Learnt]) -> Iterator[Bar]:
    """The bars of finished runs."""
    start = ", ".join(f"{one['all']:.3f}" for one in before.values())
    for other in [method for method in METHODS if method != "self-made"]:
        differences = [runs["self-made", seed].truth["all"] - runs[other, seed].truth["all"] for seed in before]
        mean, half = interval(differences)
        note = (
            f"{_mean(runs, 'self-made')} and {_mean(runs, other)}, {start} after SFT; difference {mean - half:.3f} to "
            f"{mean + half:.3f} (95%, t, paired); seeds {', '.join(f'{one:+.3f}' for one in differences)}; answers "
            f"{_answers(runs, 'self-made')} and {_answers(runs, other)}"
        )
        what = f"self-made less {other}, held-out tasks"
        yield Bar(name=f"{what}: mean", figure=mean, bar=0.01, aim=0.05, better="higher", note=note)
        yield Bar(name=f"{what}: lower end", figure=mean - half, bar=1e-6, aim=0.02, better="higher", note=note)
    made = [one for (method, _), one in runs.items() if method == "self-made"]
    yield Bar(
        name="steps in a row with accepted tasks at 20 to 80% pass, worst seed",
        figure=min(longest_in_band(one.passes) for one in made),
        bar=BAND_STEPS,
        aim=SELF_MADE.steps,
        better="higher",
        note=f"accepted tasks whose own four tries are in it: {', '.join(f'{one.in_band:.2f}' for one in made)}",
    )


def _mean(runs: Mapping[tuple[str, int], Learnt], method: str) -> str:
    return f"{fmean(one.truth['all'] for (name, _), one in runs.items() if name == method):.3f}"


def _answers(runs: Mapping[tuple[str, int], Learnt], method: str) -> str:
    return f"{fmean(one.answers for (name, _), one in runs.items() if name == method):,.0f}"
