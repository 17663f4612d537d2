"""Every shape of environment, trained: by imitation and RL, by SFT on exported rows, by DPO on pairs of rollouts.

Three models: `fresh`, whose tokenizer and template are made for the environment; a small Llama whose template writes
calls as Hermes does; and SmolLM2-135M, whose template knows no calls, so that they are text. Each figure is what the
trained model earns on held-out tasks, sampled, as a share of what its teacher earns there. No RL is needed for it: what
RL adds where the teacher is poor is the last bar, over three seeds.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.bar import Bar
from benchmarks.shapes import SHAPES, TASKS, ClumsyCups, hermes_checkpoint, with_erring_teacher
from wanderlust import TrainConfig, evaluate_sync, train
from wanderlust.environment import Environment
from wanderlust.policies.checkpoints import resolve_start
from wanderlust.store.run_folder import SMOLLM2_POLICY
from wanderlust.training.finetune import finetune
from wanderlust.training.loop import NoSignalWarning

HELD_OUT = 60
FRESH: dict[str, Any] = {"sft_episodes": 120, "sft_steps": 250, "max_tokens": 48}
LLAMA = FRESH | {"sft_batch": 16, "sft_lr": 5e-3, "max_tokens": 96}
SMOLLM2: dict[str, Any] = {"sft_episodes": 24, "sft_steps": 24, "sft_batch": 4, "max_tokens": 96}
SHORT: dict[str, Any] = {
    "steps": 5,
    "tasks_per_step": 8,
    "eval_tasks": 30,
    "result_tasks": HELD_OUT,
    "result_samples": 2,
}
FEW: dict[str, Any] = {
    "steps": 1,
    "tasks_per_step": 2,
    "group_size": 4,
    "eval_tasks": 4,
    "result_tasks": 12,
    "result_samples": 1,
}
ROWS: dict[str, Any] = {"epochs": 25, "batch_tokens": 256}
PAIRS: dict[str, Any] = {"epochs": 2, "batch_tokens": 1024, "lr": 3e-4}
SMALL_SHAPES = ("tool", "toolset", "worlds")
"""Shapes in which the pretrained model is trained: two to six minutes of processor time each."""
SMALL_ROWS: dict[str, Any] = {"tasks": 24, "held_out": 12, "epochs": 2, "batch_tokens": 1024}
SMALL_PAIRS: dict[str, Any] = {"tasks": 8, "held_out": 12, "epochs": 1, "batch_tokens": 2048, "lr": 1e-5}


def trained(env: Environment, policy: str, folder: Path, **settings: Any) -> tuple[float, float]:
    """Rewards of the model that a run ends with and of its teacher, sampled on the same held-out tasks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoSignalWarning)  # the warm-up alone has learnt it
        run = train(env, policy, config=TrainConfig(**settings), out=folder, progress=False, workers=1)
    rewards = {row["policy"]: row["reward"]["value"] for row in run.report["result"]["rows"]}
    return rewards["after"], rewards["teacher"]


def played(env: Environment, policy: str, **options: Any) -> float:
    """The mean reward on held-out tasks, over the seats where there are several."""
    rewards = evaluate_sync(env, policy, progress=False, **options).rewards
    return fmean(one.value for one in rewards.values())


def imitated(
    env: Environment, policy: str, folder: Path, *, tasks: int = TASKS, held_out: int = HELD_OUT, **settings: Any
) -> float:
    """What a model earns after SFT on the rows of its teacher's stored episodes."""
    evaluate_sync(env, "teacher", split="train", n=tasks, samples=2, out=folder / "played", progress=False)
    run = finetune(folder / "played", policy, "sft", out=folder / "sft", progress=False, **settings)
    return played(env, str(run.policy_folder), n=held_out)


def preferred(
    env: Environment, policy: str, folder: Path, *, tasks: int = TASKS, held_out: int = HELD_OUT, **settings: Any
) -> tuple[float, float]:
    """What a model earns before and after DPO on pairs of its own rollouts."""
    evaluate_sync(env, policy, split="train", n=tasks, samples=8, out=folder / "played", progress=False)
    before = played(env, policy, n=held_out, samples=4)
    run = finetune(folder / "played", policy, "dpo", out=folder / "dpo", progress=False, **settings)
    return before, played(env, str(run.policy_folder), n=held_out, samples=4)


def bars() -> Iterator[Bar]:
    """Shares of the teacher by shape and model, the processor time of `fresh`, and what RL adds."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, shape in SHAPES.items():
            env, began = shape(), time.process_time()
            ours, teacher = trained(env, "fresh", folder / f"{name}-fresh", **SHORT, **FRESH)
            spent = time.process_time() - began
            yield _share(f"{name}, fresh, train", ours / teacher)
            yield Bar(name=f"{name}, fresh, processor time", figure=spent, bar=120, aim=30, unit="s")
            yield _share(f"{name}, fresh, sft on rows", imitated(env, "fresh", folder / name, **ROWS) / teacher)
            checkpoint = str(hermes_checkpoint(env, folder / f"{name}-start"))
            ours, teacher = trained(env, checkpoint, folder / f"{name}-llama", **SHORT, **LLAMA)
            yield _share(f"{name}, Llama with Hermes calls, train", ours / teacher)
            erring = with_erring_teacher(shape())
            trained(erring, checkpoint, folder / f"{name}-erring", **SHORT, **LLAMA)
            start = str(folder / f"{name}-erring" / "checkpoints" / "start")
            before, after = preferred(erring, start, folder / f"{name}-pairs", **PAIRS)
            yield _lift(f"{name}, Llama", after - before)
        for name in SMALL_SHAPES:
            start = resolve_start(SMOLLM2_POLICY)
            ours, teacher = trained(SHAPES[name](), start, folder / f"{name}-smollm2", **FEW, **SMOLLM2)
            yield _share(f"{name}, SmolLM2, train", ours / teacher, note="12 held-out tasks")
        env, start = SHAPES["tool"](), resolve_start(SMOLLM2_POLICY)
        share = imitated(env, start, folder / "smollm2-rows", **SMALL_ROWS) / played(env, "teacher", n=HELD_OUT)
        yield _share("tool, SmolLM2, sft on rows", share, note="12 held-out tasks")
        erring, half = with_erring_teacher(SHAPES["tool"]()), SMOLLM2 | {"sft_steps": SMOLLM2["sft_steps"] // 2}
        trained(erring, start, folder / "smollm2-erring", **FEW, **half)
        start = str(folder / "smollm2-erring" / "checkpoints" / "start")
        before, after = preferred(erring, start, folder / "smollm2-pairs", **SMALL_PAIRS)
        yield _lift("tool, SmolLM2", after - before, note="12 held-out tasks")
        yield from _better(folder)


def _share(name: str, figure: float, *, note: str = "") -> Bar:
    return Bar(name=f"{name}: share of the teacher", figure=figure, bar=0.9, aim=1.0, better="higher", note=note)


def _lift(name: str, figure: float, *, note: str = "") -> Bar:
    return Bar(name=f"{name}, dpo over its start", figure=figure, bar=0.0, aim=0.1, better="higher", note=note)


def _better(folder: Path) -> Iterator[Bar]:
    """RL with tools past a teacher that errs."""
    gains = []
    for seed in range(3):
        settings = FRESH | {"steps": 60, "eval_tasks": 60, "result_tasks": HELD_OUT, "seed": seed, "lr": 1e-3}
        ours, teacher = trained(ClumsyCups(), "fresh", folder / f"clumsy{seed}", **settings)
        gains.append(ours - teacher)
    gain = min(gains)
    yield Bar(name="RL over a teacher that errs, least of 3 seeds", figure=gain, bar=0.1, aim=0.3, better="higher")
