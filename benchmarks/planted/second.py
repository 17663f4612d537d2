"""The second set that whoever writes probes may read: more kinds of flaws, and forms."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.planted.record import Planted
from benchmarks.planted.second_answer import second_answers
from benchmarks.planted.second_code import second_code
from benchmarks.planted.second_form import second_forms
from benchmarks.planted.second_game import second_games
from benchmarks.planted.second_judge import second_judges
from benchmarks.planted.second_tools import second_tools
from benchmarks.planted.second_tools_more import more_second_tools


def second() -> list[Planted]:
    """All of them, by kind."""
    made = [
        *(*second_answers(), *second_forms(), *second_judges()),
        *(*second_games(), *second_tools(), *more_second_tools(), *second_code()),
    ]
    # Another half may have families of the same name.
    return [replace(one, name=f"second-{one.name}", family=f"second-{one.family}") for one in made]
