"""What the bars of the mail agent share: how an agent did on the questions of held-out inboxes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.courses import played
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from wanderlust.types import Policy, Rollout, Task
from wanderlust_inbox.environment import Inbox

TASKS = 600
"""Questions of the held-out inboxes that every agent is asked."""
PICTURE = Path(__file__).parents[3] / "docs/images/mail-agent.png"
COLORS = {"right": "#2b8a3e", "no answer": "#adb5bd", "wrong": "#d9480f"}
DOLLARS_PER_CORE_HOUR = 0.04
"""What a processor core costs at a cloud, about; it turns processor time into dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Shares of all questions, means per question."""

    right: float
    wrong: float
    """Answered, and wrong."""
    unknown: float
    """Said that it does not know where a mail has the answer, or gave no answer."""
    invented: float
    """Share of the unanswerable questions that were answered."""
    turns: float
    read: float
    """Tokens of what the model was shown, each once."""
    written: float
    """Tokens of what it wrote."""
    seconds: float
    """Processor time per question."""

    @property
    def note(self) -> str:
        """Everything but `right`, for a bar's note; dollars are processor time at DOLLARS_PER_CORE_HOUR."""
        tokens = f"{self.read:.0f} tokens read and {self.written:.0f} written, " if self.read else ""
        dollars = self.seconds * 1000 / 3600 * DOLLARS_PER_CORE_HOUR
        return (
            f"wrong {self.wrong:.3f}, no answer {self.unknown:.3f}, invented {self.invented:.3f} of the unanswerable, "
            f"{self.turns:.2f} turns, {tokens}{1000 * self.seconds:.1f} ms of processor time, "
            f"${dollars:.5f} per 1,000 questions"
        )


def asked(env: Inbox, policy: Policy, tasks: Sequence[Task], *, concurrency: int = 256) -> Result:
    """One rollout of each task."""
    began = time.process_time()
    rollouts = played(env, tasks, policy, concurrency=concurrency)
    return summed(rollouts, seconds=(time.process_time() - began) / len(tasks))


def summed(rollouts: Sequence[Rollout], *, seconds: float) -> Result:
    """What these rollouts come to."""
    records = [one.state["record"] for one in rollouts]
    wrong = [one["answered"] and not one["right"] for one in records]
    right = [one["right"] for one in records]
    hopeless = [one["answered"] for one, r in zip(records, rollouts, strict=True) if not r.task.answer["answers"]]
    tokens = [
        (
            sum(len(turn.tokens.prompt) for turn in turns if turn.tokens),
            sum(len(t.tokens.completion) for t in turns if t.tokens),
        )
        for turns in (one.trajectories[0].turns for one in rollouts)
    ]
    return Result(
        right=fmean(right),
        wrong=fmean(wrong),
        unknown=1 - fmean(right) - fmean(wrong),
        invented=fmean(hopeless) if hopeless else 0.0,
        turns=fmean(min(one["turns"], one["max_turns"]) for one in records),
        read=fmean(prompt for prompt, _ in tokens),
        written=fmean(completion for _, completion in tokens),
        seconds=seconds,
    )


def draw(rows: Mapping[str, Result], path: Path = PICTURE) -> None:
    """Write a picture: right answers, none and wrong ones of each agent, as a PNG."""
    figure = Figure(figsize=(8, 0.5 * len(rows) + 1.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes, names = figure.subplots(), [*rows]
    left = [0.0] * len(rows)
    for part, values in {
        "right": [one.right for one in rows.values()],
        "no answer": [one.unknown for one in rows.values()],
        "wrong": [one.wrong for one in rows.values()],
    }.items():
        axes.barh(names, values, left=left, color=COLORS[part], label=part)
        left = [before + value for before, value in zip(left, values, strict=True)]
    axes.set(xlim=(0, 1), xlabel="share of the questions about held-out inboxes")
    axes.invert_yaxis()
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    figure.savefig(path)
