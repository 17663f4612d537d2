"""The mail agent's reward `art-e` against ART·E's published function, on every rubric that it can be given.

The published function (OpenPipe ART at commit 779559fd, examples/art-e) was called once on each of `rubrics()`, in this
order, and returned doubles with this digest. `TABLE` says the same in thousandths, to tell what differs if something
does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha256
from itertools import product
from math import inf

from wanderlust.errors import UsageError
from wanderlust_inbox.rewards import EpisodeRecord, art_e_reward

PUBLISHED_DIGEST = "c7d8adcd894b18396a3968edc4633fbfa33614418256e28af9fd0f5ed97adf82"
"""sha256 of the published function's returns, as little-endian doubles; infinity stands for its error."""
FACTS = (
    *("unparseable", "unknown_tool", "invalid_arguments", "answered", "right", "abstained", "out_of_turns"),
    *("found", "read", "invalid_id", "sources_right"),
)
"""In the order of the published rubric's `cant_parse_tool_call`, `bad_tool_call_name`, `bad_tool_call_args`,
`attempted_answer`, `answer_correct`, `returned_i_dont_know`, `ran_out_of_turns`, then its four partial rewards."""
TURNS, SOURCES = range(1, 12), range(4)
TABLE = {"unparseable": -2000, "unknown_tool": -1900, "invalid_arguments": -1800, "wrong": -1000, "no answer": 0}
"""Thousandths, without partial rewards."""


def rubrics() -> Iterator[EpisodeRecord]:
    """Every combination of facts, turns from 1 to 11 and 0 to 3 sources; impossible ones too."""
    for facts in product((False, True), repeat=len(FACTS)):
        for turns, sources in product(TURNS, SOURCES):
            yield EpisodeRecord(**dict(zip(FACTS, facts, strict=True)), turns=turns, source_count=sources)


def ours(record: EpisodeRecord) -> float:
    """Our reward, with the addition for few sources; infinity where there is none."""
    try:
        return art_e_reward(record, few_sources=True)
    except UsageError:
        return inf


def outcome(record: EpisodeRecord) -> str:
    """The row of the table."""
    rows = [name for name in ("unparseable", "unknown_tool", "invalid_arguments") if getattr(record, name)]
    if rows:
        return rows[0]
    if record.answered and not record.right:
        return "wrong"
    if record.abstained or record.out_of_turns:
        return "no answer"
    return "right" if record.right else ""


def expected(record: EpisodeRecord) -> float:
    """The published reward, in thousandths, by the table."""
    row = outcome(record)
    if not row:
        return inf
    if row == "right":
        few = 100 / record.source_count if record.source_count else 0
        return 1000 + 300 * record.sources_right + few + 10 * (10 - record.turns)
    return TABLE[row] + 100 * (record.found + record.read + (not record.invalid_id) + record.sources_right)


def differing() -> tuple[int, int]:
    """Rubrics whose reward is not the published one, and all."""
    digest, wrong, count = sha256(), 0, 0
    for record in rubrics():
        value = ours(record)
        digest.update(struct.pack("<d", value))
        count += 1
        wrong += not (value == inf == expected(record) or abs(1000 * value - expected(record)) < 1e-6)
    return (wrong if digest.hexdigest() == PUBLISHED_DIGEST else max(wrong, 1)), count
