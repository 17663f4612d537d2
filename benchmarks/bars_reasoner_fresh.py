"""The recipe `reasoner` with a new small model, as `bars_reasoner.py` measures SmolLM2; seeds 0 to 2.

Its base is untrained and answers nothing. So the comparison says what SFT and RL bring together, on sets that
were never seen; the rows on form and on the most frequent answer say how much of that is more than form.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.bar import Bar
from benchmarks.bars_reasoner import reasoner_bars
from wanderlust.recipes.reasoner_config import ReasonerConfig

CONFIG = ReasonerConfig(
    questions=20,
    exam=40,
    continual_steps=5,
    continual_exam=60,
    rl={"steps": 20, "max_tokens": 20},
)


def bars() -> Iterator[Bar]:
    """Those of a new small model."""
    yield from reasoner_bars(CONFIG, "a new small model")
