"""A step whose tokens were drawn from other probabilities than the trainer's stops the run; where it may, it warns."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from toys import TOKENIZER, fresh
from wanderlust.policies.base import SamplingOptions
from wanderlust.policies.local import LocalPolicy
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.runner.progress import NullLogger, Progress
from wanderlust.store.store import RunStore
from wanderlust.training.algorithms.grpo import GroupRelative
from wanderlust.training.checkpoint import Run
from wanderlust.training.config import TrainConfig
from wanderlust.training.loop import SamplerGapError, SamplerGapWarning, check_sampler_gap
from wanderlust.training.train import run_training
from wanderlust.types import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharper(GroupRelative):
    """Samples at another temperature than the trainer believes, as a wrong sampler would."""

    def rollout_policy(self, policy: TokenPolicy) -> Policy:
        assert isinstance(policy, LocalPolicy)
        return policy.with_sampling(SamplingOptions(temperature=0.6, max_tokens=1))


def test_a_gap_stops_a_synchronous_run_before_anything_changes(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "fresh", fresh(0), TOKENIZER)
    settings = TrainConfig(env="toys:Twice", policy=str(tmp_path / "fresh"), algorithm=Sharper(), max_tokens=1)
    run = Run.begin(tmp_path / "run", settings.replace(steps=3, tasks_per_step=32))
    with pytest.raises(SamplerGapError, match=r"^step 0: sampler_kl_k3 is [\d.]+, above 0\.001: [^\n]*$"):
        run_training(settings.replace(steps=3, tasks_per_step=32), run, logger=NullLogger(), workers=1)
    run.store.close()
    with RunStore.read(tmp_path / "run" / "rollouts.db") as store:
        assert store.metrics("rl", "loss") == []


def test_other_runs_have_their_own_bound() -> None:
    exact, stale = TrainConfig(), TrainConfig(max_staleness=2)
    rounded = TrainConfig(precision="bf16")
    for gap, config in ((9e-4, exact), (float("nan"), exact), (1.9, stale), (0.04, rounded)):
        assert check_sampler_gap(0, gap, config) is None
    with pytest.raises(SamplerGapError, match=r"0\.002"):
        check_sampler_gap(0, 2e-3, exact)
    assert "step 7: sampler_kl_k3 is 0.06, above 0.05" in str(check_sampler_gap(7, 0.06, rounded))
    assert "step 7: sampler_kl_k3 is 2.1, above 2" in str(check_sampler_gap(7, 2.1, stale))


@pytest.mark.filterwarnings("ignore::wanderlust.training.loop.NoSignalWarning")
def test_the_warning_is_given_once(tmp_path: Path) -> None:
    save_pretrained(tmp_path / "fresh", fresh(0), TOKENIZER)
    settings = TrainConfig(env="toys:Twice", policy=str(tmp_path / "fresh"), algorithm=Sharper(), max_tokens=1)
    settings = settings.replace(steps=2, tasks_per_step=8, precision="bf16")
    run = Run.begin(tmp_path / "run", settings)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run_training(settings, run, logger=NullLogger(), workers=1)
    run.store.close()
    assert sum(one.category is SamplerGapWarning for one in said) == 1


@pytest.mark.parametrize(("gap", "shown"), [(1e-8, False), (0.02, True)])
def test_a_large_gap_is_in_the_progress_line(gap: float, shown: bool) -> None:
    console = Console(file=StringIO(), width=200)
    Progress(console).log_step("rl", 1, of=1, metrics={"reward": 0.5, "sampler_kl_k3": gap})
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("sampler gap (k3) 0.02" in written) == shown
