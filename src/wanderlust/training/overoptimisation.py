"""The curve of over-optimisation of a run: the reward that was trained on, and the held-out truth beside it.

Source of the picture: Gao et al., "Scaling Laws for Reward Model Overoptimization" (arXiv 2210.10760).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from wanderlust.rubrics.label_free import TRUTH_METRIC
from wanderlust.rubrics.monitors import RECENT_STEPS
from wanderlust.store.reader import RunReader
from wanderlust.training.reward_hacking import WARNING_EVENT

OVEROPTIMISATION_FILE = "overoptimisation.png"
TURNING_POINT = "turning-point"
"""The monitor that flags the turn."""


def overoptimisation(store: RunReader, *, kl_weight: float = 0.0) -> dict[str, Any]:
    """Reward and truth of each step, and where the truth turned; empty for a run without a held-out truth.

    Figures are those of training rollouts. `start`, `best` and `end` are means of RECENT_STEPS steps; the best of many
    such means is a little above what those weights are worth. With `kl_weight`, that of the run's KL term, points have
    the KL divergence per token to the model that RL starts from.
    """
    truth = dict(store.metrics("rl", f"metric/{TRUTH_METRIC}"))
    reward, kl = dict(store.metrics("rl", "reward")), dict(store.metrics("rl", "kl") if kl_weight else ())
    weight = dict(store.metrics("rl", "kl_weight"))
    points = [
        {"step": step, "reward": reward[step], "truth": truth[step]}
        | ({"kl": kl[step] / (weight.get(step) or kl_weight)} if step in kl else {})
        for step in sorted(truth.keys() & reward.keys())
    ]
    if len(points) < 2 * RECENT_STEPS:
        return {}
    means = [
        fsum(one["truth"] for one in points[at : at + RECENT_STEPS]) / RECENT_STEPS
        for at in range(len(points) - RECENT_STEPS + 1)
    ]
    best = max(range(len(means)), key=means.__getitem__)
    warnings = [event.body for event in store.events() if event.kind == WARNING_EVENT]
    alerts = [warning["step"] for warning in warnings if warning["monitor"] == TURNING_POINT]
    body = {
        "points": points,
        "start": means[0],
        "best": means[best],
        "best_step": points[best + RECENT_STEPS // 2]["step"],
        "end": means[-1],
        "flagged_step": min(alerts, default=None),
    }
    return {**body, "sentence": _sentence(body)}


def _sentence(body: Mapping[str, Any]) -> str:
    """What became of the truth, in one sentence."""
    flagged, best = body["flagged_step"], body["best_step"]
    what = (
        "" if flagged is None else f"; its turn was flagged at step {flagged}: the weights near step {best} are better"
    )
    return (
        f"The held-out truth of training rollouts began at {body['start']:.3f}, was best near step {best} "
        f"({body['best']:.3f}) and ended at {body['end']:.3f}{what}."
    )


def draw_overoptimisation(path: Path, body: Mapping[str, Any]) -> None:
    """Reward and truth over the steps and, where it is known, over the KL divergence; the flag is a line."""
    points: Sequence[Mapping[str, float]] = body["points"]
    axis_names = ["step", *(["kl"] if all("kl" in point for point in points) else [])]
    figure = Figure(figsize=(8 if len(axis_names) > 1 else 6, 3.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, along in zip(figure.subplots(1, len(axis_names), squeeze=False)[0], axis_names, strict=True):
        marks = {"marker": ".", "linestyle": "none"} if along == "kl" else {}
        for name, label, colour in (("reward", "reward", "#adb5bd"), ("truth", "held-out truth", "#0b7285")):
            values = [[point[along] for point in points], [point[name] for point in points]]
            axes.plot(*values, color=colour, linewidth=1, label=label, **marks)
        if along == "step":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            if body["flagged_step"] is not None:
                axes.axvline(body["flagged_step"], color="#c92a2a", linewidth=1, linestyle=":", label="turn flagged")
        axes.set(xlabel="steps of reinforcement learning" if along == "step" else "KL divergence per token")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(path)
