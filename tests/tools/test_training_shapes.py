"""Every shape of environment is learnt through its own calls, whatever trains the model."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from benchmarks.bars_shapes import FRESH, LLAMA, PAIRS, ROWS, SHORT, imitated, preferred, trained
from benchmarks.shapes import SHAPES, ClumsyCups, hermes_checkpoint

from tiers import proof_except
from wanderlust import TrainConfig, train
from wanderlust.environment import Episode
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Task, ToolCall, assistant, user

SHARE = 0.9
"""Least share of the teacher's reward."""
BRIEF = SHORT | {"steps": 1, "eval_tasks": 4, "result_tasks": 30, "result_samples": 1, "sft_steps": 200}


@pytest.mark.parametrize("shape", proof_except(("tool",), SHAPES, group="learning"))
def test_a_fresh_model_learns_it(shape: str, tmp_path: Path) -> None:
    ours, teacher = trained(SHAPES[shape](), "fresh", tmp_path / "run", **FRESH | BRIEF)
    assert ours >= SHARE * teacher > 0


@pytest.mark.parametrize("shape", proof_except(("toolset",), SHAPES, group="learning"))
def test_a_template_with_calls_of_its_own_learns_it(shape: str, tmp_path: Path) -> None:
    env = SHAPES[shape]()
    checkpoint = str(hermes_checkpoint(env, tmp_path / "start"))
    ours, teacher = trained(env, checkpoint, tmp_path / "run", **LLAMA | BRIEF)
    assert ours >= SHARE * teacher > 0


@pytest.mark.parametrize("shape", proof_except(("toolset",), SHAPES, group="learning"))
def test_exported_rows_teach_it(shape: str, tmp_path: Path) -> None:
    env = SHAPES[shape]()
    assert imitated(env, "fresh", tmp_path, tasks=40, held_out=30, **ROWS) >= SHARE * (
        2.0 if shape in ("tool", "mcp") else 1.0
    )


@pytest.mark.proof("learning")
def test_reinforcement_learns_to_use_tools_better_than_its_teacher(tmp_path: Path) -> None:
    settings = FRESH | {"steps": 20, "eval_tasks": 30, "result_tasks": 60, "lr": 1e-3}
    ours, teacher = trained(ClumsyCups(), "fresh", tmp_path / "run", **settings)
    assert ours > teacher + 0.1
    start = str(tmp_path / "run" / "checkpoints" / "start")
    before, after = preferred(ClumsyCups(), start, tmp_path / "pairs", **PAIRS)
    assert after > before


def unoffered() -> Scripted:
    return Scripted([assistant("", ToolCall(id="1", name="look", arguments="{}")), "done"])


class Nobody(ToolEnvironment):
    """Its teacher calls a tool that nobody is offered."""

    players: ClassVar = {"teacher": unoffered}

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"{n}", prompt=(user("look"),)) for n in range(20)]

    async def run(self, episode: Episode) -> None:
        await episode.agent.act(*episode.task.prompt)
        episode.reward("done", 1.0)


def test_a_call_that_no_policy_could_make_is_refused_before_the_first_rollout(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="calls tools that no policy is offered"):
        train(Nobody(), "fresh", config=TrainConfig(sft_episodes=4), out=tmp_path / "run", progress=False)


def test_answers_beyond_the_policys_bound_are_refused_with_the_option(tmp_path: Path) -> None:
    config = TrainConfig(sft_episodes=20, sft_steps=5, max_tokens=4)
    with pytest.raises(UsageError, match=r"too long for the policy to play.* raise max_tokens \(--max-tokens\)"):
        train(SHAPES["toolset"](), "fresh", config=config, out=tmp_path / "run", progress=False)
