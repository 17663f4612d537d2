"""A demo small enough for tests; run as a program it can be killed: demo_run.py FOLDER WORKERS."""

import sys
from pathlib import Path

from wanderlust.cli.demo_report import write_report
from wanderlust.training.presets import DEMO
from wanderlust.training.train import train

TINY = DEMO.replace(
    seed=3,
    fresh_width=32,
    group_size=4,
    sft_episodes=40,
    sft_steps=20,
    sft_lr=5e-3,
    steps=8,
    tasks_per_step=6,
    updates_per_step=1,
    lr_warmup_steps=5,
    lr_end=0.1,
    eval_every=4,
    result_tasks=30,
)


def main() -> None:
    folder, workers = Path(sys.argv[1]), int(sys.argv[2])
    train(TINY.env, TINY.policy, config=TINY, out=folder, workers=workers, progress=False)
    write_report(folder)


if __name__ == "__main__":
    main()
