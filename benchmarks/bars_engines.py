"""One recipe on five engines, and real vLLM's tokens against the trainer's.

The recipe is one command of `wander train` with adapters, as the Tinker API trains nothing else: local, two processes
of FSDP, a vLLM server, both, and SkyRL's Tinker server. A new small model per seed, and tasks that no training step
sees. Two further runs send whole weights to vLLM at every step, and keep them: the log-probability of every token in
the store is computed again by the weights that its label names.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval
from benchmarks.peer import ROOT, VLLM_CPU, NotMeasured, last_line, made, skyrl_server
from wanderlust.environment import Environment, Episode
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.runner.progress import NullLogger
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import REPORT_FILE, STORE_FILE
from wanderlust.training import losses
from wanderlust.training.batch.samples import to_samples
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.engines import WEIGHTS_FOLDER
from wanderlust.training.gradient import GradientComputer
from wanderlust.training.rl_stage import run_training
from wanderlust.training.tiny_model import END_TOKEN, PAD_TOKEN, ROLES, TINY_CHAT_TEMPLATE, ModelShape, fresh_model
from wanderlust.types import Task, Trajectory, user

LETTERS, DIGITS = "abcd", "0123"
STEPS, WHOLE_STEPS = 60, 24
"""Of a run with adapters, and of one with whole weights."""
RECIPE = (
    f"--steps {STEPS} --eval-every {STEPS} --tasks-per-step 16 --max-tokens 1 --algorithm grpo --lora 8 --lr 1e-2 "
    "--ema-decay 0 --concurrency 64 --result-tasks 16 --result-samples 16"
)
"""Of all engines; heads of the model are 32 wide, as vLLM on processors wants them."""
SHAPE = ModelShape(width=64, layers=1, heads=2, inner=96, positions=32, spread=0.1)
LOCAL = "local"
ENGINES = {
    LOCAL: "",
    "fsdp": "--engine fsdp --processes 2",
    "vllm": "--engine vllm",
    "vllm+fsdp": "--engine vllm+fsdp --processes 2",
    "tinker": "--engine tinker --engine-service skyrl-jax",
}
MAX_GAP = 1e-4
"""Between two computations of a token's log-probability by the same weights."""
STALE = 2
FIRST_VERSION = 2
"""Version of the weights that step 0 plays with: they are published twice before it."""
TIMEOUT = 1800
"""Seconds for one run."""


class LetterAmongDigits(Environment):
    """Two turns: say the letter between two digits. The pairs of digits of the `eval` split are in no training task."""

    async def run(self, episode: Episode) -> None:
        """Each right letter is half of the reward."""
        left, letter, right = episode.task.answer
        for shown in (left + letter + right, right + letter + left):
            said = await episode.agent.act(user(shown))
            episode.reward("right", 0.5 * (said.content == letter))

    def tasks(self, split: str = "train") -> list[Task]:
        """48 tasks to train on, 16 others."""
        held = split != "train"
        rows = product(DIGITS, LETTERS, DIGITS)
        return [
            Task(id=f"letter-{left}{letter}{right}", answer=(left, letter, right))
            for left, letter, right in rows
            if ((int(left) + int(right)) % len(DIGITS) == 0) == held
        ]


def start(folder: Path, seed: int) -> Path:
    """The new model that a seed begins with; letters, digits and marks of turns are tokens."""
    special = [PAD_TOKEN, *(f"<|{role}|>" for role in ROLES), END_TOKEN]
    words = {word: number for number, word in enumerate([*special, *LETTERS, *DIGITS, "?"])}
    made = Tokenizer(models.WordLevel(words, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.add_special_tokens(special)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=END_TOKEN, pad_token=PAD_TOKEN, chat_template=TINY_CHAT_TEMPLATE
    )
    path = folder / f"start-{seed}"
    save_pretrained(path, fresh_model(tokenizer, SHAPE, seed=seed), tokenizer)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """One run of an engine."""

    before: float
    after: float
    """Held-out reward, sampled from the checkpoint as in training, whatever engine made it."""
    gap: float
    """Largest difference of a token's log-probability, sampler against trainer."""


def server_command() -> str:
    """What starts a real vLLM server. Raises NotMeasured."""
    python = made(VLLM_CPU)
    if python is None:
        raise NotMeasured(f"{VLLM_CPU.name} is not installed: make peers")
    return f"{python.parent / 'vllm'} serve"


def run(engine: str, seed: int, *, folder: Path) -> Learnt:
    """The recipe by one engine. Raises NotMeasured with the last line of a run that fails."""
    place, out = start(folder, seed), folder / f"{engine}-{seed}"
    words = [f"{__name__}:{LetterAmongDigits.__name__}", "--policy", str(place), "--seed", str(seed)]
    words += [*shlex.split(f"{RECIPE} {ENGINES[engine]}"), "--out", str(out)]
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "TINKER_API_KEY": "tml-local", "TINKER_TELEMETRY": "0"}
    with ExitStack() as servers:
        if "vllm" in engine:
            words += ["--server-command", server_command()]
        if engine == "tinker":
            (folder / f"service-{seed}").mkdir()
            words += ["--engine-url", servers.enter_context(skyrl_server(place, folder / f"service-{seed}"))]
        done = subprocess.run(
            [sys.executable, "-m", "wanderlust.cli.main", "train", *words],
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    if done.returncode:
        raise NotMeasured(f"{engine}, seed {seed}: {last_line(done.stderr)}")
    rows = json.loads((out / REPORT_FILE).read_text())["result"]["rows"]
    before, after = (next(row["reward"]["value"] for row in rows if row["policy"] == name) for name in NAMES)
    return Learnt(before=before, after=after, gap=max(figures(out, "sampler_logprob_diff_max")))


NAMES = ("before", "after")


def figures(folder: Path, name: str) -> list[float]:
    """A metric of every step."""
    with RunReader(folder / STORE_FILE) as store:
        return [value for _, value in store.metrics("rl", name)]


def bars() -> Iterator[Bar]:
    """The engines beside each other, then what vLLM's tokens are."""
    with tempfile.TemporaryDirectory() as name:
        folder, runs, faults = Path(name), dict[str, list[Learnt]](), dict[str, str]()
        for engine in ENGINES:
            try:
                runs[engine] = [run(engine, seed, folder=folder) for seed in SEEDS]
            except NotMeasured as why:
                faults[engine] = str(why)
        yield judge(runs, faults)
        gaps = [one.gap for engine in ("vllm", "vllm+fsdp") for one in runs.get(engine, ())]
        note = f"{len(gaps)} runs of {STEPS} steps, {' and '.join(e for e in runs if 'vllm' in e)}"
        yield gap_bar("adapters", max(gaps, default=None), note)
        try:
            checked = {lag: check_tokens(folder, max_staleness=lag) for lag in (0, STALE)}
        except NotMeasured as why:
            yield gap_bar("whole weights", None, str(why))
            return
        yield from judge_tokens(checked)


def judge(runs: Mapping[str, Sequence[Learnt]], faults: Mapping[str, str]) -> Bar:
    """How many engines clearly rise, to a score whose interval overlaps with that of the local one."""
    ends = {engine: interval([one.after for one in each]) for engine, each in runs.items()}
    gains = {engine: interval([one.after - one.before for one in each]) for engine, each in runs.items()}
    alike = 0
    for engine, (mean, half) in ends.items():
        base, width = ends.get(LOCAL, (0.0, -1.0))
        alike += gains[engine][0] > gains[engine][1] and abs(mean - base) <= half + width
    told = [f"{e} {m:.3f} [{m - h:.3f}, {m + h:.3f}], gained {gains[e][0]:.3f}" for e, (m, h) in ends.items()]
    return Bar(
        name=f"one recipe, {len(SEEDS)} seeds: engines that learn to local's held-out score, of {len(ENGINES)}",
        figure=float(alike),
        bar=len(ENGINES),
        aim=len(ENGINES),
        better="higher",
        note="; ".join([*told, *faults.values()]),
    )


def gap_bar(what: str, figure: float | None, note: str) -> Bar:
    """The largest gap of runs with real vLLM."""
    name = f"vLLM, {what} at every step: largest gap of a token's log-probability"
    return Bar(name=name, figure=figure, bar=MAX_GAP, aim=1e-5, unit="nats", note=note)


class Keeper(NullLogger):
    """Keeps the weights that each step publishes."""

    def __init__(self, published: Path, kept: Path):
        self.published, self.kept = published, kept

    def log_step(self, stage: str, step: int, *, of: int, metrics: object) -> None:
        """The newest export is that of the step which is over."""
        if stage == "rl":
            shutil.copytree(max(self.published.iterdir()), self.kept / f"{step + FIRST_VERSION}")


@dataclass(slots=True, kw_only=True)
class Tokens:
    """The tokens of a run, and what is wrong with them."""

    gap: float = 0.0
    """Largest in the run's own metrics."""
    count: int = 0
    stale: int = 0
    """Labelled with older weights than those that learnt from them."""
    told_apart: int = 0
    """Of these, whose log-probability by the newest weights is another one."""
    mislabelled: list[str] = field(default_factory=list)
    """Sampled by older weights than the label's, or by none that the run has had, in words."""


def check_tokens(folder: Path, *, max_staleness: int) -> Tokens:
    """A run that sends whole weights to real vLLM, and every token of it computed again."""
    place, out, kept = start(folder, SEEDS[0]), folder / f"whole-{max_staleness}", folder / f"kept-{max_staleness}"
    config = TrainConfig(
        env=LetterAmongDigits(),
        policy=str(place),
        engine="vllm",
        server_command=server_command(),
        servers=2 if max_staleness else 1,
        steps=WHOLE_STEPS,
        eval_every=WHOLE_STEPS,
        tasks_per_step=8,
        max_tokens=1,
        algorithm="grpo-tis" if max_staleness else "grpo",
        lr=3e-3,
        concurrency=64,
        result_samples=0,
        max_staleness=max_staleness,
    )
    kept.mkdir()
    begun = Run.begin(out, config)
    run_training(config, begun, logger=Keeper(out / WEIGHTS_FOLDER / "published", kept))
    begun.store.close()

    @lru_cache(maxsize=max_staleness + 2)
    def computer(version: int) -> GradientComputer:
        model = LlamaForCausalLM.from_pretrained(kept / f"{version}" if version > FIRST_VERSION else place)
        return GradientComputer(model.eval(), loss=losses.GRPO_LOSS)

    found = Tokens(gap=max(figures(out, "sampler_logprob_diff_max")))
    with RunReader(out / STORE_FILE) as store:
        for step in range(WHOLE_STEPS):
            played = [t for g in store.groups("rl", step) for r in g.rollouts for t in r.trajectories]
            newest = step + FIRST_VERSION
            check_step(found, played, computer, newest=newest, oldest=newest - max_staleness)
    return found


def check_step(found: Tokens, played: Sequence[Trajectory], computer: Any, *, newest: int, oldest: int) -> None:
    """Compare each token with the weights from its label's version on; a request on its way may get newer ones."""
    samples = [sample for trajectory in played for sample in to_samples(trajectory)]
    labels = [[turn.tokens.version for turn in t.turns if turn.tokens for _ in turn.tokens.completion] for t in played]
    rows = {v: computer(v).compute_logprobs(samples) for v in range(max(oldest, FIRST_VERSION), newest + 1)}
    for number, sample in enumerate(samples):
        places = [place for place, on in enumerate(sample.mask) if on]
        for place, label in zip(places, labels[number], strict=True):
            near = [v for v, row in rows.items() if abs(row[number][place] - sample.logprobs[place]) <= MAX_GAP]
            found.count += 1
            found.stale += label < newest
            found.told_apart += label < newest and newest not in near
            if not (oldest <= label <= newest and any(v >= label for v in near)):
                found.mislabelled.append(f"step {newest - FIRST_VERSION}: label {label}, weights {near}")


def judge_tokens(checked: Mapping[int, Tokens]) -> Iterator[Bar]:
    """Gap and labels of a run in turn and of one that plays ahead."""
    exact, ahead = checked[0], checked[STALE]
    yield gap_bar("whole weights", exact.gap, f"{WHOLE_STEPS} steps, {exact.count} tokens")
    for what, found in (
        (f"{WHOLE_STEPS} steps in turn", exact),
        (f"{WHOLE_STEPS} steps, rollouts up to {STALE} old", ahead),
    ):
        note = f"of {found.count} tokens, {found.stale} with older labels than the trainer's"
        if found.stale:
            note += f"; of these {found.told_apart} have another log-probability by the newest weights"
        name = f"vLLM, {what}: tokens sampled by older weights than their label says"
        yield Bar(
            name=name,
            figure=float(len(found.mislabelled)),
            bar=0,
            aim=0,
            note="; ".join([note, *found.mislabelled[:3]]),
        )
