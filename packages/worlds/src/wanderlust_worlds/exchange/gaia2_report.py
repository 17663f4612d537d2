"""The figures of a run of Gaia2 in the form of ARE's own report (`benchmark_stats.json`, `output.jsonl`, version 3.0).

Names and formulas are theirs, so that the two can be laid side by side. A rollout that failed is their `exception`, one
whose verdict is undecided their `no_validation`: both are in no share. The deviation is that of the means of the runs,
with one degree of freedom less.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from wanderlust.errors import UsageError, one_line
from wanderlust.types import Rollout, Status

REPORT_VERSION = "3.0"
STATS_FILE, ROWS_FILE = "benchmark_stats.json", "output.jsonl"
STATUSES = ("success", "failed", "exception", "no_validation")
MAX_RATIONALE_CHARS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaia2Run:
    """One rollout as their report counts it."""

    scenario: str
    number: int
    """Of the sample, from 1."""
    phase: str
    config: str
    """The capability, or `mini`."""
    status: str
    seconds: float
    error: str
    rationale: str

    @property
    def key(self) -> str:
        """The name of its row in `per_capability`."""
        return f"{self.config}_{self.phase}" if self.config == "mini" else self.config

    @property
    def score(self) -> float | None:
        """1 or 0; None where nothing was decided."""
        return float(self.status == "success") if self.status in ("success", "failed") else None


def gaia2_runs(rollouts: Iterable[Rollout]) -> list[Gaia2Run]:
    """The runs, by phase, configuration, scenario and number. Raises UsageError for rollouts of other environments."""
    runs = []
    for one in rollouts:
        info = one.task.info
        if not {"phase", "config"} <= info.keys():
            raise UsageError(f"the task {one.task.id!r} is none of Gaia2: play gaia2,folder=DIR")
        main = one.main_trajectory
        score = None if main is None else main.score
        if one.status is Status.ERROR or score is None:
            status = "exception"
        elif score.metrics.get("undecided"):
            status = "no_validation"
        else:
            status = "success" if score.parts.get("accepted", score.reward) >= 1 else "failed"
        phase = str(info["phase"])
        runs.append(
            Gaia2Run(
                scenario=one.task.id.removeprefix(f"{phase}/"),
                number=one.sample_index + 1,
                phase=phase,
                config=str(info["config"]).removesuffix(f"_{phase}"),
                status=status,
                seconds=one.seconds,
                error=one_line(one.error or "", MAX_RATIONALE_CHARS),
                rationale="" if score is None else str(score.notes.get("verdict", "")),
            )
        )
    return sorted(runs, key=lambda run: (run.phase, run.config, run.scenario, run.number))


def gaia2_report(runs: Sequence[Gaia2Run], *, model: str = "") -> dict[str, Any]:
    """The content of `benchmark_stats.json`. Shares are in percent, durations in wall-clock seconds."""
    parts: dict[str, list[Gaia2Run]] = {}
    for run in runs:
        parts.setdefault(run.key, []).append(run)
    capabilities = {key: {"capability": _shown_name(part[0]), **_figures(part)} for key, part in parts.items()}
    figures = _figures(runs)
    for name in ("success_rate", "success_rate_std", "success_rate_sem"):
        del figures[name]
    for kind in ("macro", "micro"):
        figures |= {f"{kind}_{name}": value for name, value in _across(parts, by_runs=kind == "micro").items()}
    return {
        "metadata": {"model": model, "model_provider": "", "timestamp": None, "report_version": REPORT_VERSION},
        "statistics": {"per_capability": capabilities, "global": {**figures, "job_duration": 0.0}},
        "run_configurations": [_configuration(part) for part in parts.values()],
    }


def _shown_name(run: Gaia2Run) -> str:
    return f"{run.config} ({run.phase})" if run.config == "mini" else run.config


def _configuration(part: Sequence[Gaia2Run]) -> dict[str, Any]:
    phase = part[0].phase
    return {
        "phase_name": phase,
        "config": part[0].config,
        "a2a_app_prop": "1.0" if phase == "agent2agent" else "0",
        "has_tool_augmentation": str(phase == "noise"),
        "has_env_events": str(phase == "noise"),
        **_counts(part),
    }


def _counts(runs: Sequence[Gaia2Run]) -> dict[str, int]:
    statuses = Counter(run.status for run in runs)
    validated = sum(run.score is not None for run in runs)
    return {
        "total_runs": len(runs),
        "validated_runs": validated,
        **{f"{name}_runs": statuses[name] for name in STATUSES},
    }


def _figures(runs: Sequence[Gaia2Run]) -> dict[str, Any]:
    seconds = [run.seconds for run in runs]
    return {
        **_counts(runs),
        **_spread(_share(runs), _means(runs)),
        **_passes(runs),
        "avg_run_duration": fmean(seconds) if seconds else 0.0,
        "avg_run_duration_std": stdev(seconds) if len(seconds) > 1 else 0.0,
    }


def _share(runs: Iterable[Gaia2Run]) -> float:
    scores = [run.score for run in runs if run.score is not None]
    return 100 * fmean(scores) if scores else 0.0


def _numbers(runs: Iterable[Gaia2Run]) -> list[int]:
    return sorted({run.number for run in runs if run.score is not None})


def _means(runs: Sequence[Gaia2Run]) -> list[float]:
    """The share of each of the runs, of those that were decided."""
    return [_share(run for run in runs if run.number == number) for number in _numbers(runs)]


def _spread(rate: float, means: Sequence[float]) -> dict[str, float]:
    deviation = stdev(means) if len(means) > 1 else 0.0
    error = deviation / sqrt(len(means)) if means else 0.0
    return {"success_rate": rate, "success_rate_std": deviation, "success_rate_sem": error}


def _across(parts: Mapping[str, Sequence[Gaia2Run]], *, by_runs: bool) -> dict[str, float]:
    """The mean over configurations, each alike or by its number of decided runs."""

    def mean(shares: Sequence[tuple[float, int]]) -> float:
        weights = [count if by_runs else 1 for _, count in shares]
        return sum(share * one for (share, _), one in zip(shares, weights, strict=True)) / sum(weights)

    def decided(runs: Iterable[Gaia2Run]) -> int:
        return sum(run.score is not None for run in runs)

    every = [run for part in parts.values() for run in part]
    if not decided(every):
        return _spread(0.0, ())
    shares = [(_share(part), decided(part)) for part in parts.values()]
    means = []
    for number in _numbers(every):
        ones = [[run for run in part if run.number == number] for part in parts.values()]
        means.append(mean([(_share(part), decided(part)) for part in ones if decided(part)]))
    return _spread(mean(shares), means)


def _passes(runs: Iterable[Gaia2Run]) -> dict[str, Any]:
    """Scenarios that passed once at least, and always; those without a decision count as not passed."""
    scores: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        mine = scores.setdefault((run.scenario, run.phase), [])
        if run.score is not None:
            mine.append(run.score)
    once = sum(any(mine) for mine in scores.values())
    always = sum(bool(mine) and all(mine) for mine in scores.values())
    total = len(scores)
    return {
        "pass_at_k": once,
        "pass_at_k_percent": 100 * once / total if total else 0.0,
        "pass_k": always,
        "pass_k_percent": 100 * always / total if total else 0.0,
        "total_scenarios": total,
    }


def write_gaia2_report(rollouts: Iterable[Rollout], folder: Path, *, model: str = "") -> int:
    """Write the report into a new folder, and each configuration's rows into PHASE/CONFIG; the number of rollouts.

    Raises UsageError for rollouts of other environments, and when there are none.
    """
    runs = gaia2_runs(rollouts)
    if not runs:
        raise UsageError("the run has no rollouts to report")
    folder.mkdir(parents=True)
    parts: dict[tuple[str, str], list[Gaia2Run]] = {}
    for run in runs:
        parts.setdefault((run.phase, run.config), []).append(run)
    for (phase, config), part in parts.items():
        (folder / phase / config).mkdir(parents=True)
        lines = [json.dumps(_row(run), ensure_ascii=False) + "\n" for run in part]
        (folder / phase / config / ROWS_FILE).write_text("".join(lines), encoding="utf-8")
    body = json.dumps(gaia2_report(runs, model=model), indent=2, ensure_ascii=False)
    (folder / STATS_FILE).write_text(body + "\n", encoding="utf-8")
    return len(runs)


def _row(run: Gaia2Run) -> dict[str, Any]:
    kind, _, text = run.error.partition(": ")
    metadata = {
        "scenario_id": run.scenario,
        "run_number": run.number,
        "status": run.status,
        "has_exception": run.status == "exception",
        "exception_type": kind or None,
        "exception_message": text or None,
        "rationale": run.rationale or None,
    }
    kept = {key: value for key, value in metadata.items() if value is not None}
    return {"task_id": run.scenario, "trace_id": None, "score": run.score, "metadata": kept}
