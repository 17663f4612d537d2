"""Small real runs for the studio: a training, two evaluations, and a store of rollouts that mean no good."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from wanderlust.cli.main import main
from wanderlust.environment import Environment, Episode
from wanderlust.evals.evaluate import evaluate
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.progress import NullLogger
from wanderlust.store.store import RunStore
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.training.train import run_training
from wanderlust.types import (
    Group,
    Rollout,
    Score,
    Status,
    Task,
    ToolCall,
    Trajectory,
    Turn,
    assistant,
    system,
    tool_message,
    user,
)

SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
TERMINAL = "\x1b[31mred\x1b[0m \x1b]0;title\x07 plain\x08 \u202eabc\u202c \u200bend"
ARABIC = "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645"
LONG = "0123456789" * 100_000


class Echo(Environment):
    """Say the digit you are shown; near ones are worth something."""

    async def run(self, episode: Episode) -> None:
        said = await episode.agent.act(user(f"say {episode.task.answer}"))
        near = abs(int(said.content) - int(episode.task.answer)) if said.content in set("0123456789") else 10
        episode.reward("echo", (1 - near / 10) ** 2)

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"echo-{digit}", answer=str(digit)) for digit in range(10)]


def fresh(checkpoint: Path) -> Path:
    """A tiny model that knows nothing."""
    tokenizer = fresh_tokenizer(["say 0", "say 1", "0123456789"] * 20)
    shape = ModelShape(width=32, layers=1, heads=2, inner=64, positions=64)
    save_pretrained(checkpoint, fresh_model(tokenizer, shape, seed=0), tokenizer)
    return checkpoint


def trained(folder: Path, checkpoint: Path, *, seed: int, steps: int = 6) -> Path:
    """A training run of a tiny fresh model, with its tokens."""
    fresh(checkpoint)
    settings: dict[str, Any] = {
        "steps": steps,
        "tasks_per_step": 8,
        "lr": 3e-3,
        "max_tokens": 1,
        "eval_every": steps,
    }
    config = TrainConfig(env=f"{__name__}:Echo", policy=str(checkpoint), seed=seed, **settings)
    run = Run.begin(folder, config)
    run_training(config, run, logger=NullLogger(), workers=1)
    body = {"monitor": "length", "step": 3, "stage": "rl", "text": "longer and longer", "evidence": [1, 2]}
    run.store.add_event("reward_hacking_warning", body)
    run.store.close()
    return folder


def evaluated(folder: Path, policy: str, *, tasks: int = 8) -> Path:
    with pytest.raises(SystemExit) as end:
        main(["eval", "tictactoe", "-n", str(tasks), "--samples", "2", "--policy", policy, "--out", str(folder)])
    assert end.value.code == 0
    return folder


def said(*turns: Turn, reward: float | None = 0.5, sibling: int = 0, task: str = "hostile") -> Rollout:
    score = None if reward is None else Score(reward=reward, parts={SCRIPT: reward}, notes={"judge": TERMINAL})
    seat = Trajectory(turns=list(turns), score=score)
    return Rollout(task=Task(id=task, answer=SCRIPT), seed=0, sample_index=sibling, trajectories=[seat], seconds=0.1)


def hostile(folder: Path) -> Path:
    """A run without a `run.json` whose rollouts hold what must never act: markup, escapes, overrides, a huge line."""
    call = ToolCall(id="c", name="look<b>", arguments='{"at": "</script>"}')
    bad = said(
        Turn(observation=(system(SCRIPT), user(TERMINAL)), action=assistant(f"**bold** {ARABIC}", call)),
        Turn(observation=(tool_message(TERMINAL, call),), action=assistant(LONG)),
    )
    failed = said(Turn(observation=(user("hello"),), action=assistant(SCRIPT)), reward=None, sibling=1)
    failed.status, failed.stop_reason, failed.error = Status.ERROR, "ToolFailure", f"the sandbox said {SCRIPT}"
    folder.mkdir(parents=True)
    with RunStore.create(folder / "rollouts.db") as store:
        store.add([Group(task=bad.task, rollouts=[bad, failed])], stage="play", step=0, env="hostile<i>")
    return folder


def one_more(store: RunStore, name: str, *, index: int) -> None:
    """Store another rollout, as a run that goes on does."""
    more = said(Turn(observation=(user("more"),), action=assistant(name)), task=name)
    store.add([Group(task=more.task, rollouts=[more], index=index)], stage="play", step=1, env="late")


class Branching(Environment):
    """Asks for two plans at once after a common beginning, then for a choice, and at last in a context of its own."""

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id="branching")]

    async def run(self, episode: Episode) -> None:
        agent, opening = episode.agent, [system("You plan."), user("Where do we begin?")]
        begun = [*opening, await agent.act_with_context(opening)]
        plans = await asyncio.gather(*(agent.act_with_context([*begun, user(f"Plan {n}?")]) for n in range(2)))
        choice = [*begun, user(f"{plans[0].content} or {plans[1].content}?")]
        said = await agent.act_with_context(choice)
        await agent.act_with_context([*choice, said, user("Sure?")])
        await agent.act_with_context([user("In short?")])
        episode.reward("done", 1.0)


def branched(folder: Path) -> Path:
    """An evaluation whose rollouts have several conversations in one seat."""
    says = Scripted(lambda messages, rng: f"answer to {messages[-1].content} ({rng.randint(0, 99)})")
    asyncio.run(evaluate(Branching(), says, out=folder, samples=2, progress=False))
    return folder
