"""A demo small enough for tests; run as a program it can be killed: demo_run.py FOLDER WORKERS."""

import json
import sys
from pathlib import Path

from wanderlust.recipes.tictactoe import Demo, DemoConfig
from wanderlust.recipes.tictactoe_report import write_report
from wanderlust.runner.progress import NullLogger
from wanderlust.training.checkpoint import Run

TINY = DemoConfig(
    seed=3,
    fresh_width=64,
    group_size=4,
    sft_episodes=40,
    sft_steps=60,
    sft_lr=5e-3,
    steps=8,
    tasks_per_step=6,
    lr_warmup_steps=5,
    lr_end=0.1,
    eval_every=4,
)


def main() -> None:
    folder, workers = Path(sys.argv[1]), int(sys.argv[2])
    run = Run.resume(folder) if folder.exists() else Run.begin(folder, TINY)
    facts = Demo(TINY, run, logger=NullLogger(), workers=workers).run_stages()
    report = write_report(folder, facts, seed=TINY.seed)
    print(json.dumps(report.as_dict()["rows"]))


if __name__ == "__main__":
    main()
