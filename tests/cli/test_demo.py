"""The demo as a whole: what it leaves behind, and that nothing interrupts it for good."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from patience import PATIENCE
from project_files import ROOT
from wanderlust.cli.demo_report import POLICY_LABELS, REPORT_OPPONENTS
from wanderlust.store.store import RunStore

SCRIPT = (ROOT / "tests").joinpath("demo_run.py")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def start(folder: Path, workers: int = 1) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(folder), str(workers)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(folder: Path, workers: int = 1) -> dict[str, Any]:
    process = start(folder, workers)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said.decode()[-2000:]
    report: dict[str, Any] = json.loads((folder / "demo.json").read_text())
    return report


def figures(report: dict[str, Any]) -> dict[str, Any]:
    """All that a seed determines: everything but seconds and paths."""
    return {name: report[name] for name in ("rows", "sampled", "findings", "curve")}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("demo") / "run"
    return folder, finish(folder)


def test_a_run_leaves_report_picture_page_store_and_checkpoint(straight: tuple[Path, dict[str, Any]]) -> None:
    folder, report = straight
    assert {(r["policy"], r["opponent"]) for r in report["rows"]} == {
        (policy, opponent) for policy in POLICY_LABELS for opponent in REPORT_OPPONENTS
    }
    for row in report["rows"]:
        assert row["exact"] is True
        assert row["win"] + row["draw"] + row["loss"] == pytest.approx(1)
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "| after RL | optimal |" in (folder / "demo.md").read_text()
    with RunStore.read(folder / "rollouts.db") as store:
        counts = store.counts()
        assert counts["teacher"] == {"done": 40}
        assert sum(counts["rl"].values()) == 8 * 6 * 4
        assert [step for step, _ in store.metrics("rl", "reward")] == list(range(8))
        gaps = [value for _, value in store.metrics("rl", "sampler_logprob_diff_max")]
        assert max(gaps) < 1e-4
        assert max(value for _, value in store.metrics("rl", "rollouts_failed")) == 0


def test_the_checkpoint_is_plain_transformers(straight: tuple[Path, dict[str, Any]]) -> None:
    folder, report = straight
    assert report["checkpoint"].endswith("checkpoints/rl")
    tokenizer = AutoTokenizer.from_pretrained(folder / "checkpoints" / "rl")
    model = AutoModelForCausalLM.from_pretrained(folder / "checkpoints" / "rl")
    messages = [{"role": "system", "content": "You are X."}, {"role": "user", "content": "You start.\n012\n345\n678"}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    said = model.generate(ids, max_new_tokens=12, do_sample=False)
    assert tokenizer.decode(said[0, ids.shape[1] :])


@pytest.mark.proof("resumes")
def test_two_workers_give_the_report_of_one(straight: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    assert figures(finish(tmp_path / "two", workers=2)) == figures(straight[1])


@pytest.mark.proof("kills")
def test_killed_again_and_again_it_ends_with_the_same_report(
    straight: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, rng, kills = tmp_path / "killed", random.Random(1), 0
    while kills < 3:
        process = start(folder)
        deadline = time.monotonic() + rng.uniform(5.0, 12.0)
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
    assert kills
    assert figures(finish(folder)) == figures(straight[1])
    with RunStore.read(folder / "rollouts.db") as store:
        assert sum(store.counts()["rl"].values()) == 8 * 6 * 4
