"""Notices: what the duties teach is true of them, and nobody is paid by the reader for writing everything."""

import asyncio
import json
from random import Random
from statistics import fmean

from benchmarks.notices import (
    DUTIES,
    KINDS,
    NoticeDuties,
    Notices,
    careless,
    details_of,
    holds,
    in_common,
    reader,
)

from wanderlust.rubrics.generated import HELD_CRITERIA, HELD_CRITERION_CHARS, MIN_CRITERIA
from wanderlust.testing import check_environment


def test_both_environments_keep_the_contract():
    assert asyncio.run(check_environment(Notices())) == []
    assert asyncio.run(check_environment(NoticeDuties())) == []


def test_criteria_hold_of_what_they_were_made_from_and_fit_the_schema():
    for number in range(20):
        prompt, answer = DUTIES["rubric"](Random(number))
        criteria = json.loads(answer)["criteria"]
        reference = prompt[-1].content.split("<answer>")[1].split("</answer>")[0]
        assert all(holds(one["criterion"], reference) for one in criteria)
        assert MIN_CRITERIA <= len(criteria) <= HELD_CRITERIA
        assert max(len(one["criterion"]) for one in criteria) <= HELD_CRITERION_CHARS


def test_eight_careless_notices_know_more_than_one():
    rng = Random(0)
    details = [details_of(rng) for _ in range(100)]
    shown = [[careless(one, rng) for _ in range(8)] for one in details]
    alone = fmean(one == in_common(notices[:1]) for one, notices in zip(details, shown, strict=True))
    together = fmean(one == in_common(notices) for one, notices in zip(details, shown, strict=True))
    assert alone < 0.5
    assert together > 0.85


def test_the_reader_wants_each_detail_and_no_other():
    details = ("concert", "friday", "hall")
    assert reader("the concert is on friday in the hall.", details) == 1.0
    assert reader("the concert is on monday in the hall.", details) == 2 / 3
    assert reader(" ".join(word for kind in KINDS for word in kind), details) == 0.0
    assert reader("concert " * 12, details) == 0.8 / 3


def test_prompts_of_the_evaluation_are_no_prompts_of_training():
    env = Notices()
    train, held_out = ({task.id for task in env.tasks(split)} for split in ("train", "eval"))
    assert len(train) + len(held_out) == 8 * 7 * 8
    assert not train & held_out
