"""Which checkpoints stay and when a run stops: decided by the curve alone."""

import asyncio
from pathlib import Path

import pytest

from wanderlust.errors import UsageError
from wanderlust.training.checkpoint import best_point, eval_curve, no_improvement, prune


def point(step: int, reward: float, hidden: float = 0.0) -> dict:
    return {
        "step": step,
        "rewards": {"agent": {"value": reward, "low": None, "high": None}},
        "parts": {"hidden": {"value": hidden, "low": None, "high": None}, "unseen": None},
        "metrics": {},
    }


def write(path: Path, made_at: str) -> None:
    path.mkdir(exist_ok=True)
    (path / "made").write_text(made_at)


def play(folder: Path, values: list[float], **keeping: int) -> list[bool]:
    """Examinations every 10 steps; a checkpoint is a folder that says when it was made."""
    curve: list[dict] = []
    out = []

    async def save(path: Path) -> None:
        write(path, str(curve[-1]["step"]))

    for number, value in enumerate(values):
        curve.append(point(10 * number, value))
        out.append(asyncio.run(prune(folder, curve, save=save, **keeping)))
    return out


def made(folder: Path) -> dict[str, str]:
    return {path.name: (path / "made").read_text() for path in sorted(folder.iterdir())}


def test_the_best_and_the_newest_stay(tmp_path):
    assert all(play(tmp_path, [0.1, 0.5, 0.9, 0.2, 0.3], keep_last=2))
    assert made(tmp_path) == {"best": "20", "step-000030": "30", "step-000040": "40"}


def test_nothing_better_than_the_start_keeps_no_best(tmp_path):
    play(tmp_path, [0.9, 0.5, 0.4], keep_last=1)
    assert made(tmp_path) == {"step-000020": "20"}


def test_a_step_done_again_ends_the_same(tmp_path):
    play(tmp_path, [0.1, 0.5, 0.9])
    before = made(tmp_path)
    play(tmp_path, [0.1, 0.5, 0.9])
    assert made(tmp_path) == before == {"best": "20", "step-000020": "20"}


def test_patience_counts_examinations_without_a_better_one(tmp_path):
    assert play(tmp_path, [0.1, 0.5, 0.5, 0.4, 0.6], patience=2) == [True, True, True, False, True]


def test_a_hidden_figure_decides():
    curve = [point(0, 0.1, 0.3), point(10, 0.9, 0.8), point(20, 1.0, 0.1)]
    examined = eval_curve(curve, "hidden")
    top = best_point(examined)
    assert top is not None
    assert (top.step, top.value) == (10, 0.8)
    assert no_improvement(examined, 1)
    assert not no_improvement(eval_curve(curve, "reward"), 1)


def test_a_figure_that_is_not_there_is_named():
    with pytest.raises(UsageError, match="no metric 'solved'; they have agent, hidden, reward"):
        eval_curve([point(0, 0.1)], "solved")
