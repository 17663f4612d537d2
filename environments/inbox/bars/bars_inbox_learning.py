"""The mail agent on held-out inboxes: after SFT, after RL, after more RL, and against the best scripted reader.

The preset `inbox` has SFT and RL. Its learning rate ends near 0, so RL then goes on from the trained model for 200
steps with a fresh one.

Sampled at temperature 1, one attempt at each question, the same questions for everybody. Runs of training stay in RUNS
and go on where they stopped; a run whose configuration is another one is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval

from inbox_results import TASKS, Result, asked, draw
from wanderlust.errors import UsageError
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.local.pretrained import load_pretrained
from wanderlust.policies.local.smollm2 import fetch_smollm2
from wanderlust.runner.progress import NullLogger
from wanderlust.tools.text_protocol import TextProtocol
from wanderlust.training.checkpoint import Run, load_config
from wanderlust.training.config import TrainConfig
from wanderlust.training.train import run_training
from wanderlust.types import Task
from wanderlust_inbox.brief import BriefInbox
from wanderlust_inbox.environment import Inbox
from wanderlust_inbox.players import READERS
from wanderlust_inbox.preset import INBOX

SPLITS = ("eval", "eval-wordings", "eval-kinds")
RUNS = Path("runs/benchmarks")
MORE = INBOX.replace(sft_episodes=0, sft_steps=0, steps=200, lr=6e-4, eval_every=100)
"""Further steps from the preset's model."""
PROMPTED, PROMPTED_TOKENS, PROMPTED_AT_ONCE = 100, 96, 8
"""Questions for the prompted model, tokens of one of its answers, and questions at once, as its memory allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """One seed: results by split."""

    before: dict[str, Result]
    preset: dict[str, Result]
    """After the preset's RL."""
    after: dict[str, Result]
    """After the further steps."""
    seconds: float
    """Processor time of the training."""


def preset_environment() -> BriefInbox:
    """The preset's environment."""
    env = INBOX.make_env()
    assert isinstance(env, BriefInbox)
    return env


def judged(env: BriefInbox, checkpoint: Path) -> dict[str, Result]:
    """A checkpoint on every split of evaluation."""
    policy = LocalPolicy.of(*load_pretrained(checkpoint), SamplingOptions(max_tokens=INBOX.max_tokens), seed=0)
    return {split: asked(env, policy, env.tasks(split)[:TASKS]) for split in SPLITS}


def prompted(env: Inbox, tasks: Sequence[Task]) -> Result:
    """SmolLM2 with the tools of `inbox`, as it comes."""
    options = SamplingOptions(max_tokens=PROMPTED_TOKENS)
    model = TextProtocol(LocalPolicy.of(*load_pretrained(fetch_smollm2()), options, seed=0))
    return asked(env, model, tasks, concurrency=PROMPTED_AT_ONCE)


def trained(path: Path, config: TrainConfig) -> float:
    """A run that ends in `path`; gives its processor seconds."""
    if path.exists() and load_config(path, TrainConfig).as_dict() != config.as_dict():
        raise UsageError(f"{path} is a run with other settings: remove it to train again")
    run = Run.resume(path) if path.exists() else Run.begin(path, config)
    with closing(run.store), _processor_time(path / "processor_seconds.txt") as seconds:
        if not (path / "report.json").exists():
            run_training(config, run, logger=NullLogger(), workers=1)
    return sum(seconds)


def learnt(seed: int) -> Learnt:
    """The preset from a seed and the further steps, in this process alone."""
    env, path, more = preset_environment(), RUNS / f"inbox-seed{seed}", RUNS / f"inbox-more-seed{seed}"
    seconds = trained(path, INBOX.replace(seed=seed))
    seconds += trained(more, MORE.replace(seed=seed, policy=str((path / "checkpoints" / "rl").resolve())))
    checkpoints = (path / "checkpoints" / "start", path / "checkpoints" / "rl", more / "checkpoints" / "rl")
    before, preset, after = (judged(env, one) for one in checkpoints)
    return Learnt(before=before, preset=preset, after=after, seconds=seconds)


@contextmanager
def _processor_time(path: Path) -> Iterator[list[float]]:
    """Processor seconds of every time that a run went on, this one last; one that was killed is not among them."""
    before = [float(line) for line in path.read_text().split()] if path.exists() else []
    seconds, began = [*before], time.process_time()
    try:
        yield seconds
    finally:
        seconds.append(time.process_time() - began)
        path.write_text("\n".join(f"{one:.1f}" for one in seconds))


def bars() -> Iterator[Bar]:
    """Three seeds of the preset."""
    env = Inbox(inboxes=preset_environment().inboxes)  # the reader `thesaurus` learns from the same inboxes
    tasks = env.tasks("eval")[:TASKS]
    results = {name: asked(env, env.players[name](), tasks) for name in READERS}
    readers = {name: one.right for name, one in results.items()}
    best = max(readers, key=lambda name: readers[name])
    with ProcessPoolExecutor(len(SEEDS), mp_context=get_context("spawn")) as pool:
        runs = list(pool.map(learnt, SEEDS))
    results["SmolLM2, prompted"] = model = prompted(env, tasks[:PROMPTED])
    stages = {"SFT": runs[0].before, "SFT, then RL": runs[0].preset, "200 steps more": runs[0].after}
    draw(results | {name: found["eval"] for name, found in stages.items()})
    own = [run.preset["eval"].right - readers[best] for run in runs]
    gains = [run.after["eval"].right - readers[best] for run in runs]
    mean, half = interval(gains)
    note = (
        f"against `{best}`, {readers[best]:.3f}; seeds {_seeds(run.after['eval'].right for run in runs)}; "
        f"95% interval {mean - half:.3f} to {mean + half:.3f}; {len(tasks)} questions"
    )
    what = "trained model over the best scripted reader"
    yield Bar(name=what, figure=mean, bar=0.1, aim=0.25, better="higher", note=note)
    yield Bar(name=f"{what}, lower end", figure=mean - half, bar=0.0, aim=0.1, better="higher", note=note)
    mean, half = interval(own)
    note = (
        f"no bar: for comparison; seeds {_seeds(run.preset['eval'].right for run in runs)}; "
        f"95% interval {mean - half:.3f} to {mean + half:.3f}"
    )
    what = "the preset alone over the best scripted reader"
    yield Bar(name=what, figure=mean, bar=0, aim=0.1, better="higher", note=note, promised=False)
    note = (
        f"no bar: for comparison; SmolLM2-135M-Instruct with the tools of `inbox`, {PROMPTED} questions; {model.note}"
    )
    what = "prompted model: right answers"
    yield Bar(name=what, figure=model.right, bar=0, aim=0, better="higher", note=note, promised=False)
    mean, half = interval([run.after["eval"].right - run.before["eval"].right for run in runs])
    note = (
        f"from {_seeds(run.before['eval'].right for run in runs)} "
        f"to {_seeds(run.after['eval'].right for run in runs)}; "
        f"95% interval {mean - half:.3f} to {mean + half:.3f}"
    )
    yield Bar(name="right answers gained by RL", figure=mean, bar=0.1, aim=0.25, better="higher", note=note)
    yield from _habits(runs)
    for name, stage in (("before", "SFT"), ("preset", "SFT, then RL"), ("after", "SFT, RL, and 200 steps more")):
        for split in SPLITS:
            found = [getattr(run, name)[split] for run in runs]
            share, _ = interval([one.right for one in found])
            yield Bar(
                name=f"{stage}, `{split}`: right answers",
                figure=share,
                bar=0,
                aim=0,
                better="higher",
                note=f"no bar: for comparison; seed 0: {found[0].note}",
                promised=False,
            )


def _habits(runs: list[Learnt]) -> Iterator[Bar]:
    """Inventions, turns, and how long it took."""
    before, after = [run.before["eval"] for run in runs], [run.after["eval"] for run in runs]
    invented, _ = interval([one.invented for one in after])
    first, _ = interval([one.invented for one in before])
    note = f"seeds: {_seeds(one.invented for one in before)} to {_seeds(one.invented for one in after)}"
    yield Bar(name="unanswerable questions answered, after RL", figure=invented, bar=first / 2, aim=0.03, note=note)
    turns, _ = interval([a.turns / b.turns for a, b in zip(after, before, strict=True)])
    note = f"seeds: {_seeds(one.turns for one in before)} to {_seeds(one.turns for one in after)}"
    yield Bar(name="turns after RL, as a share of those before", figure=turns, bar=1.0, aim=0.67, note=note)
    note = f"seeds: {', '.join(f'{run.seconds:.0f}' for run in runs)}; SFT and all RL"
    slowest = max(run.seconds for run in runs)
    yield Bar(name="processor time of a run", figure=slowest, bar=1800, aim=1200, unit="s", note=note)


def _seeds(values: Iterator[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)
