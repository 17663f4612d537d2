"""What both trainers of conversations are given: ids with masks, and the sizes. Standard library only.

`rollouts`: 5 turns with a tool behind a prompt of some 180 tokens, as `wander export` writes a run's, 8 of each task.
`unrelated`: conversations of one turn and of any length, that have nothing in common.
"""

from __future__ import annotations

import math
from random import Random
from typing import TypedDict

VOCABULARY = 16384
ROW_TOKENS, ROWS = 1024, 4
"""Of an update: as many tokens as so many rows hold."""
LR = 1e-4


class Row(TypedDict):
    """A conversation as `trl` and ours take it."""

    input_ids: list[int]
    completion_mask: list[int]


def rows(kind: str, count: int = 400) -> list[Row]:
    """The data of a kind, in an order drawn once."""
    rng = Random(0)
    made = rollouts(rng, count) if kind == "rollouts" else [unrelated(rng) for _ in range(count)]
    rng.shuffle(made)
    return made


def rollouts(rng: Random, count: int) -> list[Row]:
    """Groups of 8 that share a system prompt with everybody and a question with their siblings."""
    system = words(rng, 150)
    out: list[Row] = []
    while len(out) < count:
        question = words(rng, 30)
        for _ in range(8):
            row = Row(input_ids=[*system, *question], completion_mask=[0] * (len(system) + len(question)))
            for _ in range(rng.randint(2, 5)):
                extend(row, words(rng, 30), on=True)
                extend(row, words(rng, 12), on=False)
            extend(row, words(rng, 5), on=True)
            out.append(row)
    return out[:count]


def unrelated(rng: Random) -> Row:
    """A question and an answer."""
    total = min(ROW_TOKENS, max(24, round(math.exp(rng.gauss(5.2, 0.7)))))
    row = Row(input_ids=[], completion_mask=[])
    extend(row, words(rng, total * 3 // 5), on=False)
    extend(row, words(rng, total - total * 3 // 5), on=True)
    return row


def extend(row: Row, ids: list[int], *, on: bool) -> None:
    """Append tokens that are trained on, or not."""
    row["input_ids"] += ids
    row["completion_mask"] += [int(on)] * len(ids)


def words(rng: Random, count: int) -> list[int]:
    """Ids that no special token has."""
    return [rng.randrange(300, VOCABULARY) for _ in range(count)]
