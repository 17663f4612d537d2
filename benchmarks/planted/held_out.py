"""The half that gives the figures; whoever writes probes imports it and does not look inside."""

from __future__ import annotations

from benchmarks.planted.held_out_answer import held_out_answers
from benchmarks.planted.held_out_answer_more import more_held_out_answers
from benchmarks.planted.held_out_code import held_out_code
from benchmarks.planted.held_out_game import held_out_games
from benchmarks.planted.held_out_judge import held_out_judges
from benchmarks.planted.held_out_tools import held_out_tools
from benchmarks.planted.record import Planted


def held_out() -> list[Planted]:
    """All of them."""
    found = [
        *held_out_answers(),
        *more_held_out_answers(),
        *held_out_judges(),
        *held_out_games(),
        *held_out_tools(),
        *held_out_code(),
    ]
    return sorted(found, key=lambda one: (one.kind, one.name))
