"""The company of the tutorial: its code as the page has it, written to a file and trained in as the page says.

Three seeds, one after the other. The share of accepted mornings is measured on held-out ones, whose pairs of a thing
and a team occur in no morning of training: sampled, before and after RL, the same mornings for both.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from benchmarks.bar import Bar
from benchmarks.courses import gained, learnt, reward, sampled, told, walls
from wanderlust.tasks.registry import resolve_environment
from wanderlust.training.config import TrainConfig

PAGE = Path(__file__).parent.parent / "docs" / "tutorials" / "company.md"
MAX_TOKENS = 12


def code_of_page() -> str:
    """All Python of the page but its last block, which only plays."""
    return "\n\n".join(
        re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[:-1]
    )


def bars() -> Iterator[Bar]:
    """The lines of the file; success after RL and gained; the longest run."""
    code = code_of_page()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "company.py"
        place.write_text(code, encoding="utf-8")
        env = resolve_environment(f"{place}:BriefCompany").env
        course = TrainConfig(
            env=f"{place}:BriefCompany",
            policy="fresh",
            sft_episodes=1500,
            sft_steps=300,
            steps=40,
            tasks_per_step=24,
            lr=1e-3,
            max_tokens=MAX_TOKENS,
        )

        def success(checkpoint: Path) -> float:
            return fmean(map(reward, sampled(checkpoint, env, list(env.tasks("eval")), max_tokens=MAX_TOKENS)))

        runs = learnt(course, success)
    yield Bar(name="company: lines of the world", figure=len(code.splitlines()), bar=200, aim=120, unit="lines")
    worst = min(run.after for run in runs)
    name = "company: held-out mornings accepted, worst seed"
    yield Bar(name=name, figure=worst, bar=0.7, aim=0.9, better="higher", note=told(runs))
    yield from gained("company", runs, bar=0.2, aim=0.5)
    yield from walls("company: wall time of a run", runs, bar=360, aim=120)
