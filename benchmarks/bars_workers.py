"""How the work of a training run is shared among its processes: `wander train --workers N`.

Processor time of the run's own process and of its workers, from the end of the first RL step to that of the last, as
the system counts it; so the number of cores and other work on them do not matter. A batch is cut into four pieces.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.bar import Bar
from wanderlust.errors import WanderlustError
from wanderlust.store.reader import RunReader
from wanderlust.store.run_folder import STORE_FILE

WORKERS, SHARDS, STEPS = (1, 2, 4), 4, 24
SFT = "--policy fresh --sft-episodes 200 --sft-steps 60 --fresh-width 128"
RL = f"--policy {{start}} --steps {STEPS} --shards {SHARDS} --tasks-per-step 32 --max-tokens 2 --eval-every {STEPS}"
TICK = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).resolve().parent.parent


def command(words: str, out: Path) -> list[str]:
    """`wander train` on the game of the demo."""
    return [sys.executable, "-m", "wanderlust.cli.main", "train", "tictactoe", *words.split(), "--out", str(out)]


def seconds(pid: int) -> float:
    """Processor time of a process so far, its threads included."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICK
    return 0.0


def workers_of(pid: int) -> list[int]:
    """The worker processes of a run."""
    found = subprocess.run(["pgrep", "-P", str(pid), "-f", "spawn_main"], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def steps(folder: Path) -> int:
    """RL steps that the store has."""
    with suppress(WanderlustError, OSError), RunReader(folder / STORE_FILE) as store:
        return len(store.metrics("rl", "reward"))
    return 0


def shares(start: Path, folder: Path, workers: int) -> list[float]:
    """Processor seconds of each process, the run's own first."""
    words = f"{RL.format(start=start)} --workers {workers} --result-samples 0"
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command(words, folder), cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as run:
        first: dict[int, float] = {}
        last: dict[int, float] = {}
        while run.poll() is None and (taken := steps(folder)) < STEPS:
            if taken:
                last = {pid: seconds(pid) for pid in (run.pid, *workers_of(run.pid))}
                first = first or last
            time.sleep(0.1)
        assert run.stderr is not None
        said = run.stderr.read()
    if run.returncode or not first:
        raise ValueError(f"the run ended with {run.returncode}: {said[-300:]}")
    return [last[pid] - first[pid] for pid in first]


def bars() -> Iterator[Bar]:
    """For each number of workers, the processes with at least half of an equal share of the work."""
    with tempfile.TemporaryDirectory() as place:
        start = Path(place) / "start"
        words = command(f"{SFT} --steps 1 --max-tokens 2 --result-samples 0", start)
        subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
        for count in WORKERS:
            used = shares(start, Path(place) / f"of-{count}", count)
            equal = sum(used) / count
            figure = sum(share >= equal / 2 for share in used)
            note = "processor seconds: " + ", ".join(f"{share:.1f}" for share in used)
            note += f"; all together {sum(used) / max(used):.2f} times the busiest"
            name = f"cores that {count} {'worker uses' if count == 1 else 'workers use'}"
            yield Bar(name=name, figure=figure, bar=count, aim=count, better="higher", note=note)
