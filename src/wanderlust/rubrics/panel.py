"""A panel: several judges of one answer, and their verdicts as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature, isawaitable, signature
from statistics import fmean, median
from typing import Any, Literal

from wanderlust.errors import RubricFailure, UsageError, WanderlustError, one_line
from wanderlust.rubrics.rubric import RewardResult, gather_results, reward_value

YES = 0.5
"""A verdict of at least this is a yes."""


def majority(values: Sequence[float]) -> float:
    """1 if more than half of the verdicts are a yes, 0 if fewer are, and 0.5 for as many."""
    yes = sum(value >= YES for value in values)
    return 0.5 if 2 * yes == len(values) else float(2 * yes > len(values))


COMBINE: Mapping[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "majority": majority, "median": median}


class JudgePanel:
    """A part of a rubric: the verdicts of several judges on the same rollout, asked at once, as one value.

    Judges are `Judge`, `ChoiceJudge` or any reward function, best by different models: what one of them overlooks, or
    likes too well, the others outvote. Metrics of a rollout: the value of each judge by its name, `spread`, the largest
    less the smallest, `agreement`, the share of judges on the majority's side of 0.5, `absent`, the judges without a
    verdict, and the sum of each metric that the judges record. The notes of all judges are in the score's notes, and
    the reasons why some gave no verdict.

    Fewer verdicts than `quorum` are a RubricFailure that names the first reason, and never a score.

    Example:
        >>> from wanderlust.rubrics.rubric import Rubric
        >>> def short(completion):
        ...     return float(len(completion) < 80)
        >>> def polite(completion):
        ...     return float("please" in completion)
        >>> rubric = Rubric(JudgePanel([short, polite], combine="majority"))
    """

    def __init__(
        self,
        judges: Sequence[Callable[..., Any]],
        *,
        combine: Literal["mean", "majority", "median"] = "mean",
        quorum: int = 0,
        name: str = "panel",
    ):
        """`quorum` is the number of verdicts that are needed; 0: all. Raises UsageError for judges of one name."""
        names = [str(getattr(one, "name", "") or getattr(one, "__name__", type(one).__name__)) for one in judges]
        if len(judges) < 2 or len({*names}) < len(names):
            raise UsageError(f"{name!r} needs two judges or more with names of their own, not {', '.join(names)}")
        if combine not in COMBINE:
            raise UsageError(f"{name!r} cannot combine by {combine!r}: {', '.join(COMBINE)}")
        if not 0 <= quorum <= len(judges):
            raise UsageError(f"{name!r} has {len(judges)} judges, and cannot need {quorum} verdicts")
        self.name, self.combine, self.quorum = name, combine, quorum or len(judges)
        self.judges = dict(zip(names, judges, strict=True))
        self._fields = {key: [*signature(one).parameters] for key, one in self.judges.items()}
        wanted = dict.fromkeys(field for fields in self._fields.values() for field in fields)
        self.__signature__ = Signature([Parameter(field, Parameter.KEYWORD_ONLY) for field in wanted])

    async def __call__(self, **fields: Any) -> RewardResult:
        """Ask all judges. Raises RubricFailure when there are fewer verdicts than the quorum."""
        found = await gather_results(self._ask(name, fields) for name in self.judges)
        verdicts, absent, notes = dict[str, float](), dict[str, str](), list[str]()
        summed = Counter[str]()
        for name, one in zip(self.judges, found, strict=True):
            if isinstance(one, WanderlustError):
                absent[name] = one_line(str(one))
                notes.append(f"{name}: no verdict: {absent[name]}")
                continue
            verdicts[name] = one.value
            summed.update(dict(one.metrics))
            notes.append(f"{name} {one.value:g}{': ' + one.note if one.note else ''}")
        if len(verdicts) < self.quorum:
            reason = next(iter(absent.values()))
            raise RubricFailure(f"{len(verdicts)} of {len(self.judges)} judges gave a verdict: {reason}")
        values = [*verdicts.values()]
        yes = sum(value >= YES for value in values)
        metrics = {
            **summed,
            **verdicts,
            "spread": max(values) - min(values),
            "agreement": max(yes, len(values) - yes) / len(values),
            "absent": float(len(absent)),
        }
        return RewardResult(value=COMBINE[self.combine](values), metrics=metrics, note="\n".join(notes))

    async def _ask(self, name: str, fields: Mapping[str, Any]) -> RewardResult:
        answer = self.judges[name](**{field: fields[field] for field in self._fields[name]})
        answer = await answer if isawaitable(answer) else answer
        result = answer if isinstance(answer, RewardResult) else RewardResult(value=answer)
        return replace(result, value=reward_value(result.value))
