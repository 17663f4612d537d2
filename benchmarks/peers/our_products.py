"""What our own step spends beside matrix products, in % as JSON: `python -m benchmarks.peers.our_products MODEL`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from torch.profiler import ProfilerActivity, profile

from benchmarks.peers.our_trainer import Counting
from benchmarks.peers.steps import GROUPS, LR, SIBLINGS, TOKENS
from wanderlust.training.batch.collate import BatchTotals
from wanderlust.training.batch.samples import build_samples
from wanderlust.training.config import TrainConfig
from wanderlust.training.trainers.process_pool import shard, shard_samples, unshard
from wanderlust.training.trainers.replica import Replica
from wanderlust.types import Group

PRODUCTS = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::_scaled_dot_product",
    "mkldnn::_linear_pointwise",
)
ROUNDS = 5


def main(folder: str) -> None:
    config = TrainConfig(
        env="benchmarks.peers.our_trainer:Counting",
        policy=folder,
        algorithm="grpo",
        tasks_per_step=GROUPS,
        group_size=SIBLINGS,
        lr=LR["count"],
        max_tokens=TOKENS["count"],
    )
    trainee = Replica.load(Path(folder), config)
    tasks = list(islice(Counting().tasks(), GROUPS))

    groups: list[Group] = []

    def rollout() -> None:
        trainee.policy.engine.publish()
        groups[:] = unshard([trainee.play(mine, 0) for mine in shard(tasks, 0, 2)], 0)

    def update() -> None:
        loss = trainee.algorithm.loss
        samples = build_samples(groups, loss)
        totals = BatchTotals.of(samples, loss)
        for piece in shard_samples(samples, 2):
            trainee.gradient(piece, loss, totals)

    rollout(), update()
    spent = {name: _spent(work) for name, work in (("rollout", rollout), ("update", update))}
    products, operators, whole = (sum(part[n] for part in spent.values()) for n in range(3))
    shares = {name: 100 - 100 * part[0] / part[2] for name, part in spent.items()}
    print(json.dumps({**shares, "all": 100 - 100 * products / whole, "operators": 100 - 100 * products / operators}))


def _spent(work: Callable[[], Any]) -> tuple[float, float, float]:
    """Processor seconds of matrix products and of all operators as profiled, and of everything when nobody looks.

    The profiler's own work would count as Python's; so the whole is what a round takes without it, in turns with those
    that are profiled. It goes by the clock, which is put right by the share of a processor that the round had.
    """
    seen = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        whole = time.process_time() - began
        with profile(activities=[ProfilerActivity.CPU]) as looked:
            clock, began = time.perf_counter(), time.process_time()
            work()
            had = (time.process_time() - began) / (time.perf_counter() - clock)
        times = [(event.key, had * event.self_cpu_time_total / 1e6) for event in looked.key_averages()]
        products = sum(seconds for name, seconds in times if name.startswith(PRODUCTS))
        seen.append((products, sum(seconds for _, seconds in times), whole))
    products, operators, whole = (median(column) for column in zip(*seen, strict=True))
    return products, operators, whole


if __name__ == "__main__":
    main(sys.argv[1])
