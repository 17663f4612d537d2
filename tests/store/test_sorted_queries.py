"""A place far behind in a sorted table is found without sorting it, and is the right one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from wanderlust.store import queries
from wanderlust.store.queries import RowOrder, count_rows, parse_row_filter, query_ids
from wanderlust.store.reader import RunReader
from wanderlust.store.store import RunStore
from wanderlust.types import Group, Rollout, Score, Task, Trajectory

ROWS = 6000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, path, groups = Random(0), tmp_path_factory.mktemp("run") / "run.db", []
    for number in range(ROWS):
        task = Task(id=f"task-{rng.randrange(40)}")
        score = Score(reward=rng.random()) if rng.random() < 0.7 else None  # a third is missing
        seat = Trajectory(score=score)
        groups.append(Group(task=task, rollouts=[Rollout(task=task, seed=0, trajectories=[seat])], index=number))
    with RunStore.create(path) as store:
        store.add(groups, stage="eval", step=0)
    return path


@pytest.mark.parametrize("order", ["reward", "-reward", "task", "-task", "-turns"])
@pytest.mark.parametrize("words", ["", 'task != "task-7" and group < 5000'])
def test_every_page_is_the_one_that_sorting_gives(
    run: Path, order: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "SORTED", 100)
    monkeypatch.setattr(queries, "DRAWN", 800)
    where, by = parse_row_filter(words), RowOrder.of(order)
    with RunReader(run) as reader, ThreadPoolExecutor(1) as beside:
        whole, total = list(query_ids(reader, where, by)), count_rows(reader, where)
        table = queries.RowTable(reader=reader, where=where, order=by, total=total)
        short = 0
        for offset in (0, 1, 700, total // 2, total - 1300, total - 5, total, total + 10):
            found = table.around(offset, 20, beside)
            assert list(found.page(offset, 20)) == whole[offset : offset + 20]
            assert list(found.ids) == whole[found.first : found.first + len(found.ids)]
            short += len(found.ids) < total
        assert short >= 6  # it was seldom sorted as a whole
