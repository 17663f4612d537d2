"""A whole cluster on this machine: Ray nodes that play, two trainer processes, two vLLM servers, by one command.

Runs where `make peers` has installed vLLM.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster
from test_ray import NODE, SOON, wait_for_end
from test_ray_training import figures, groups_of
from test_vllm_real import PYTHON, learnt, start

from patience import PATIENCE

pytestmark = [
    pytest.mark.skipif(PYTHON is None, reason="vLLM is not installed: make peers"),
    pytest.mark.xdist_group("vllm"),
]
STEPS, NODES = 24, 2
WORDS = """--engine vllm+fsdp --processes 2 --servers 2 --steps 24 --tasks-per-step 8 --lr 3e-3 --max-tokens 1
--eval-every 24 --algorithm grpo --implementation transformers --result-samples 2 --concurrency 64 --ray-workers 4"""
HERE = Path(__file__).parent
begin = start


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head that plays nothing, and two nodes with room for three actors each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": SOON, **NODE}
    made = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(NODES):
        made.add_node(num_cpus=3, **NODE)
    yield made
    made.shutdown()


def begun_by(pid: int) -> set[int]:
    """Processes below this one, of any depth, and those of Ray's actors."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [(int(one), int(parent), what) for one, parent, what in (line.split(None, 2) for line in table.splitlines())]
    below = {pid}
    for _ in range(8):
        below |= {one for one, parent, _ in rows if parent in below}
    return (below - {pid}) | {one for one, _, what in rows if what.startswith("ray::RayWorker")}


@pytest.mark.proof("cluster")
@pytest.mark.parametrize("leaves", [False, True], ids=["whole", "a node leaves"])
def test_one_command_learns_on_a_cluster(leaves: bool, cluster: Any, start: Path, tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    words = ["test_ray_training:Where", "--policy", start, "--out", folder, "--ray-address", cluster.address]
    words += ["--server-command", f"{PYTHON.parent / 'vllm'} serve", *WORDS.split()]
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    with log.open("w") as file:
        run = subprocess.Popen(
            [sys.executable, "-m", "wanderlust.cli.main", "train", *map(str, words)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
        await_step(run, folder, 8)
        running = begun_by(run.pid)
        if leaves:
            node = groups_of(folder, 7)[0].rollouts[0].state["node"]
            (gone,) = [one for one in cluster.worker_nodes if one.node_id == node]
            cluster.remove_node(gone, allow_graceful=False)
        assert run.wait(PATIENCE) == 0, log.read_text()[-3000:]
    learnt(folder)
    for pid in running:
        wait_for_end(pid)
    assert nodes_of(folder, 0) == nodes_of(folder, 7)
    assert len(nodes_of(folder, 0)) == NODES
    every = [r for step in range(STEPS) for g in groups_of(folder, step) for r in g.rollouts]
    played = Counter((r.task.id, r.seed, r.sample_index) for r in every)
    assert set(played.values()) == {1}
    assert len(played) == STEPS * 8 * 8
    told = [line for line in log.read_text().splitlines() if line.startswith("wander: ")]  # Ray says more by itself
    assert len(told) == leaves, told
    if leaves:
        assert "has left with 2 of 4 Ray workers" in told[0]
        assert nodes_of(folder, STEPS - 1) == nodes_of(folder, 0) - {node}


def nodes_of(folder: Path, step: int) -> set[str]:
    """The nodes on which a step's rollouts were played."""
    return {r.state["node"] for g in groups_of(folder, step) for r in g.rollouts}


def await_step(run: subprocess.Popen[bytes], folder: Path, step: int) -> None:
    """Until the store has that many steps, or the run is over."""
    while run.poll() is None and (not (folder / "rollouts.db").exists() or len(figures(folder, "reward")) < step):
        try:
            run.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
