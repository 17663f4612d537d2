"""Compute as Teacher without answers to compare: benchmarks/notices.py, all of it by one small model and its start.

One fresh model learns four duties: notices of a careless teacher, one notice out of eight, criteria out of one notice,
ticks. Every seed then trains it on notices. Its own frozen start makes a reference of each group and writes the rubric
under a schema. It is ticked by log-probabilities: by that start, or by a judge of as many weights that has learnt
nothing but ticks. The reader's score is read before and after, on prompts that were not trained on, at temperature 1,
and is never trained on. Runs stay in RUNS and go on where they stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval, played, reward, sampled
from benchmarks.notices import NoticeDuties, Notices
from wanderlust.errors import UsageError
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.device import one_thread
from wanderlust.policies.local.pretrained import load_pretrained, save_pretrained
from wanderlust.runner.progress import NullLogger
from wanderlust.training.batch.samples import imitation_samples
from wanderlust.training.checkpoint import Run, load_config
from wanderlust.training.config import TrainConfig
from wanderlust.training.reward_hacking import WARNING_EVENT
from wanderlust.training.tiny_model import fresh_model, fresh_tokenizer
from wanderlust.training.train import run_training
from wanderlust.training.trainers.in_process import LocalLearner
from wanderlust.training.warmup import fresh_shape, imitate, play_teacher

RUNS = Path("runs/benchmarks")
VOCABULARY, LINE_TOKENS = 1024, 4096
"""Most tokens of the fresh tokenizer, and of a packed line."""
DUTIES = TrainConfig(
    env="benchmarks.notices:NoticeDuties",
    policy="fresh",
    sft_episodes=12000,
    sft_steps=1000,
    sft_batch=32,
    sft_lr=0.003,
    fresh_width=64,
    fresh_layers=3,
    fresh_positions=512,
)
TICKS_ALONE = DUTIES.replace(env="benchmarks.notices:NoticeDuties,only=tick", sft_episodes=20000, sft_steps=1500)
"""Of the judge."""
WITHOUT_LABELS = TrainConfig(
    env="benchmarks.notices:Notices",
    label_estimator="synthesis",
    label_reward="rubric",
    algorithm="dr-grpo",
    steps=30,
    tasks_per_step=8,
    group_size=8,
    lr=1e-3,
    max_tokens=24,
    eval_every=30,
    eval_tasks=20,
    result_samples=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """One seed."""

    before: float
    after: float
    """The reader's score of held-out prompts."""
    ticks: float
    """Share of ticks that are right, on notices and criteria that were not trained on, half of them met."""
    references: float
    """The reader's score of references less that of the samples, over the run."""
    paid: tuple[float, float]
    """The reward of the first and of the last tenth of the steps."""
    failed: int
    """Rollouts without a reward."""
    calls: float
    """Calls of the writer and of the judge for each rollout."""
    warnings: tuple[str, ...]
    """What the monitors said."""


def started(duties: TrainConfig = DUTIES) -> Path:
    """The model that knows its duties: SFT on the oracle's answers, in packed batches, as most of them are short."""
    path = RUNS / ("cat-rubric-start" if duties is DUTIES else "cat-rubric-judge")
    if not path.exists():
        one_thread()
        config = duties.with_sft_defaults()
        shown = play_teacher(config, logger=NullLogger())
        tokenizer = fresh_tokenizer((message.content for one in shown for message in one.messages), size=VOCABULARY)
        model, renderer = fresh_model(tokenizer, fresh_shape(config), seed=config.seed), Renderer(tokenizer)
        samples = [sample for one in shown for sample in imitation_samples(one, renderer)]
        learner = LocalLearner(model, config.sft_optimizer, fast=True, micro_batch_tokens=LINE_TOKENS)
        imitate(learner, samples, config, logger=NullLogger())
        save_pretrained(path, model, tokenizer)
    return path


def reader_score(checkpoint: Path) -> float:
    """The reader's mean score of one notice for each held-out prompt."""
    env = Notices()
    return fmean(map(reward, sampled(checkpoint, env, env.tasks("eval"), max_tokens=WITHOUT_LABELS.max_tokens)))


def right_ticks(checkpoint: Path) -> float:
    """The share of ticks that are right."""
    env = NoticeDuties(only="tick")
    policy = LocalPolicy.of(*load_pretrained(checkpoint), SamplingOptions(max_tokens=4, temperature=0.0))
    return fmean(map(reward, played(env, [*env.tasks("eval")], policy)))


def learnt(seed: int, *, judged: bool) -> Learnt:
    """One seed, trained as far as it was not; `judged` by the judge, else by its own start."""
    judge = started(TICKS_ALONE) if judged else started()
    config = WITHOUT_LABELS.replace(policy=str(started().resolve()), seed=seed)
    if judged:
        config = config.replace(label_judge=str(judge.resolve()))
    path = RUNS / f"cat-rubric-{'judged-' if judged else ''}seed{seed}"
    if path.exists() and load_config(path, TrainConfig).as_dict() != config.as_dict():
        raise UsageError(f"{path} is a run with other settings: remove it to train again")
    run = Run.resume(path) if path.exists() else Run.begin(path, config)
    with closing(run.store):
        if not (path / "report.json").exists():
            run_training(config, run, logger=NullLogger(), workers=1)
        figures = {
            name: [value for _, value in run.store.metrics("rl", name)]
            for name in ("reward", "metric/label_free/gain", "metric/label_free/calls", "rollouts_failed")
        }
        said = tuple(one.body["text"] for one in run.store.events() if one.kind == WARNING_EVENT)
    tenth = max(config.steps // 10, 1)
    return Learnt(
        before=reader_score(started()),
        after=reader_score(path / "checkpoints" / "rl"),
        ticks=right_ticks(judge),
        references=fmean(figures["metric/label_free/gain"]),
        paid=(fmean(figures["reward"][:tenth]), fmean(figures["reward"][-tenth:])),
        failed=int(sum(figures["rollouts_failed"])),
        calls=fmean(figures["metric/label_free/calls"]),
        warnings=said,
    )


def bars() -> Iterator[Bar]:
    """Both ways of ticking, all seeds, one after the other."""
    failed = []
    for who, judged in (("by a judge", True), ("by its own start", False)):
        runs = [learnt(seed, judged=judged) for seed in SEEDS]
        failed += [one.failed for one in runs]
        yield from judge_runs(f"CaT by rubrics, ticked {who}", runs)
    whole = len(failed) * WITHOUT_LABELS.steps * WITHOUT_LABELS.tasks_per_step * WITHOUT_LABELS.group_size
    yield Bar(
        name="CaT by rubrics: rollouts without a reward",
        figure=sum(failed),
        bar=0.05 * whole,
        aim=0.0,
        note=", ".join(map(str, failed)),
    )


def judge_runs(what: str, runs: Sequence[Learnt]) -> Iterator[Bar]:
    """The reader's score before and after, what references are worth, and how many ticks are right."""
    mean, half = interval([one.after - one.before for one in runs])
    seeds = ", ".join(f"{one.before:.3f} to {one.after:.3f}" for one in runs)
    paid = ", ".join(f"{one.paid[0]:.2f} to {one.paid[1]:.2f}" for one in runs)
    warnings = "; ".join(text for one in runs for text in one.warnings) or "none"
    yield Bar(
        name=f"{what}: the reader's score of held-out prompts, gain, lower end",
        figure=mean - half,
        bar=0.001,
        aim=0.33 * fmean(one.before for one in runs),
        better="higher",
        note=f"seeds {seeds}; mean {mean:+.3f}, 95% {mean - half:+.3f} to {mean + half:+.3f}; paid {paid}; "
        f"monitors: {warnings}",
    )
    yield Bar(
        name=f"{what}: the reader's score of references less that of samples, worst seed",
        figure=min(one.references for one in runs),
        bar=0.001,
        aim=0.1,
        better="higher",
        note=", ".join(f"{one.references:+.3f}" for one in runs),
    )
    yield Bar(
        name=f"{what}: ticks that are right",
        figure=min(one.ticks for one in runs),
        bar=0.8,
        aim=0.95,
        better="higher",
        note="calls for a rollout: " + ", ".join(f"{one.calls:.1f}" for one in runs),
    )
