"""A demo small enough for tests; run as a program it can be killed: demo_run.py FOLDER WORKERS."""

import json
import sys
from dataclasses import replace
from pathlib import Path

from wanderlust.recipes.tictactoe import FULL_DEMO, Demo
from wanderlust.recipes.tictactoe_report import write_report
from wanderlust.runner.progress import NullLogger
from wanderlust.training.loop import RLConfig, SFTConfig
from wanderlust.training.optimizer import OptimizerConfig
from wanderlust.training.run import Run

TINY = replace(
    FULL_DEMO,
    seed=3,
    games=40,
    group_size=4,
    sft=SFTConfig(optimizer=OptimizerConfig(steps=60, lr=5e-3, method="muon"), batch=16),
    rl=RLConfig(
        optimizer=OptimizerConfig(steps=16, lr=7e-4, method="muon"),
        steps=8,
        tasks_per_step=6,
        updates_per_step=2,
        eval_every=4,
    ),
)


def main() -> None:
    folder, workers = Path(sys.argv[1]), int(sys.argv[2])
    run = Run.resume(folder) if folder.exists() else Run.begin(folder, TINY)
    facts = Demo(TINY, run, logger=NullLogger(), workers=workers).run_stages()
    report = write_report(folder, facts, seed=TINY.seed)
    print(json.dumps(report.as_dict()["rows"]))


if __name__ == "__main__":
    main()
