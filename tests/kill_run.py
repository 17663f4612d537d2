"""`wander train` in processes that are killed at random moments: kill_run.py FOLDER KILLS SEED WORDS...

Libraries are imported once and every run is a fork of that. Prints one JSON object: what the run that nobody
disturbed left behind, then what the killed ones did, and how often they were killed.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from toys import TOKENIZER, fresh
from wanderlust.cli import main as cli
from wanderlust.cli import train_command
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.training import train as recipe

IMPORTED = (recipe, train_command)
TOUCHES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")
"""What the interpreter reports before it does it: every file of a checkpoint is among them."""


def watch_files(folder: Path, last: int) -> None:
    """Kill this process just before it touches a file of the run for the `last`th time; 0 only counts."""
    touched = 0
    places = (str(folder), f"{folder.parent}/.{folder.name}")

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal touched
        if event in TOUCHES and isinstance(arguments[0], str | Path) and str(arguments[0]).startswith(places):
            touched += 1
            if touched == last:
                os.kill(os.getpid(), signal.SIGKILL)
            if not last:
                os.write(COUNTS, b"1")

    sys.addaudithook(heard)


def start(folder: Path, words: list[str], *, touches: int = -1) -> int:
    """A process that begins the run, or goes on with it."""
    child = os.fork()
    if child:
        return child
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    if touches >= 0:
        watch_files(folder, touches)
    again = ["--resume", str(folder)] if (folder / "run.json").exists() else [*words, "--out", str(folder)]
    sys.argv = ["wander", "train", *again, "--workers", "1"]
    try:
        cli.main()
    except SystemExit as left:
        os._exit(int(left.code or 0))
    os._exit(9)


def wait(child: int, *, seconds: float | None = None) -> int | None:
    """The exit status; None when it was still running after so many seconds, and has been killed."""
    if seconds is None:
        return os.waitpid(child, 0)[1]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return None if os.WIFSIGNALED(status) else status


def left(folder: Path) -> dict[str, Any]:
    """What a finished run left that a seed determines."""
    weights = (folder / "checkpoints/rl/model.safetensors").read_bytes()
    curve = json.loads((folder / "report.json").read_text())["curve"]
    return {"weights": hashlib.sha256(weights).hexdigest(), "curve": curve}


def main() -> None:
    root, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    save_pretrained(root / "fresh", fresh(0), TOKENIZER)
    words = [*sys.argv[4:], "--policy", str(root / "fresh")]
    straight, killed, rng = root / "straight", root / "killed", random.Random(seed)
    began = time.monotonic()
    assert wait(start(straight, words, touches=0)) == 0
    seconds = time.monotonic() - began
    touches = len(os.read(COUNTED, 1 << 20))
    found, ended = {"by time": 0, "by file": 0}, [left(straight)]
    while sum(found.values()) < kills:
        if rng.random() < 0.5:
            how, status = "by time", wait(start(killed, words), seconds=rng.uniform(0.0, seconds / 3))
        else:
            how, status = "by file", wait(start(killed, words, touches=rng.randint(1, touches // 3)))
        if status is None or os.WIFSIGNALED(status):
            found[how] += 1
        else:  # over before its time: another one
            assert status == 0, status
            ended.append(left(killed))
            shutil.rmtree(killed)
    if not (killed / "report.json").exists():
        assert wait(start(killed, words)) == 0
    ended.append(left(killed))
    print(json.dumps({"ended": ended, "kills": found, "touches": touches}))


COUNTED, COUNTS = os.pipe()
if __name__ == "__main__":
    main()
