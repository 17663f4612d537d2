"""One recipe on five engines: do all of them learn to the same held-out score?

The recipe is one command of `wander train` with adapters, as the Tinker API trains nothing else: local, two processes
of FSDP, a vLLM server, both, and SkyRL's Tinker server. A small model per seed, and tasks that no training step sees.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from benchmarks.bar import Bar
from benchmarks.courses import SEEDS, interval
from benchmarks.peer import ROOT, VLLM_CPU, NotMeasured, last_line, made, skyrl_server
from wanderlust.environment import Environment, Episode
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import REPORT_FILE, STORE_FILE
from wanderlust.training.tiny_model import END_TOKEN, PAD_TOKEN, ROLES, TINY_CHAT_TEMPLATE, ModelShape, fresh_model
from wanderlust.types import Task, user

LETTERS, DIGITS = "abcd", "0123"
STEPS = 40
RECIPE = (
    f"--steps {STEPS} --eval-every {STEPS} --tasks-per-step 16 --max-tokens 1 --algorithm grpo --lora 8 --lr 5e-3 "
    "--ema-decay 0 --concurrency 64 --result-tasks 16 --result-samples 16"
)
"""Of all engines; heads of the model are 32 wide, as vLLM on processors wants them."""
SHAPE = ModelShape(width=64, layers=1, heads=2, inner=96, positions=32, spread=0.1)
WARM_STEPS, WARM_BATCH, WARM_LR, WARM_RIGHT = 200, 32, 3e-3, 0.3
"""Of the first model's training; the last one is the share of examples that are right on purpose."""
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
    """The model that a seed begins with: it says the right letter somewhat more often than another.

    Without that start two letters can stay one for long, by chance and on any engine. Letters and digits are tokens.
    """
    special = [PAD_TOKEN, *(f"<|{role}|>" for role in ROLES), END_TOKEN]
    words = {word: number for number, word in enumerate([*special, *LETTERS, *DIGITS, "?"])}
    made = Tokenizer(models.WordLevel(words, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.add_special_tokens(special)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=END_TOKEN, pad_token=PAD_TOKEN, chat_template=TINY_CHAT_TEMPLATE
    )
    path, model, rng = folder / f"start-{seed}", fresh_model(tokenizer, SHAPE, seed=seed), Random(f"letters/{seed}")
    optimizer = torch.optim.AdamW(model.parameters(), lr=WARM_LR)
    for _ in range(WARM_STEPS):
        asked = ["".join(map(rng.choice, (DIGITS, LETTERS, DIGITS))) for _ in range(WARM_BATCH)]
        ids = torch.tensor([Renderer(tokenizer).start([user(text)]) for text in asked])
        said = [text[1] if rng.random() < WARM_RIGHT else rng.choice(LETTERS) for text in asked]
        wanted = torch.tensor(tokenizer.convert_tokens_to_ids(said))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(ids).logits[:, -1], wanted).backward()
        optimizer.step()
    save_pretrained(path, model, tokenizer)
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
    """The engines beside each other, and how exact those with vLLM are."""
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
