"""The half that whoever writes probes may look at."""

from __future__ import annotations

from benchmarks.planted.dev_answer import dev_answers
from benchmarks.planted.dev_answer_more import more_dev_answers
from benchmarks.planted.dev_code import dev_code
from benchmarks.planted.dev_game import dev_games
from benchmarks.planted.dev_judge import dev_judges
from benchmarks.planted.dev_tools import dev_tools
from benchmarks.planted.record import Planted


def dev() -> list[Planted]:
    """All of them, by name within each kind."""
    return [*dev_answers(), *more_dev_answers(), *dev_judges(), *dev_games(), *dev_tools(), *dev_code()]
