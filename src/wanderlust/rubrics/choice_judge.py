"""A judge by log-probabilities: it is not asked to write a verdict, but how probable each verdict is as its answer.

So a small model can judge that writes no readable verdicts, and a verdict costs one pass of the model over the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from math import exp, fsum
from typing import Any

from wanderlust.errors import ContextFull, Failure, RubricFailure, UsageError, boundary
from wanderlust.policies.base import SupportsChoices
from wanderlust.rubrics.judge_template import JudgeTemplate
from wanderlust.rubrics.rubric import RewardResult, gather_values
from wanderlust.types import Message, Policy, system, user

YES_NO: Mapping[str, float] = {"Yes": 1.0, "No": 0.0}
CHOICE_TEMPLATE = """Question: {prompt}

Right answer: {answer}

Given answer: {completion}

Is the given answer right? Answer with Yes or No."""
"""The default question to a judge."""
CHOICE_METRICS = frozenset({"mass", "certainty"})
"""Names of a judge's metrics, shares both."""


class ChoiceJudge:
    """A part of a rubric: the mean of the verdicts' scores, each weighted by its probability as the answer.

    Probabilities are those of the model at temperature 1, normalised over the verdicts. Nothing is drawn, so the same
    prompt has the same score. `calibration` has the fields of some prompts whose mean log-probabilities are subtracted
    first, so that a judge that says yes to everything is not believed: typical ones without labels (batch calibration,
    arXiv 2309.17249), or a single one with "N/A" in its fields (contextual calibration, arXiv 2102.09690). Fields that
    such a prompt leaves out are those of what is judged: with `{"completion": "N/A"}` alone, a judge that reads a
    `criterion` as well is calibrated for each criterion.

    Metrics of a rollout: `mass`, the probability of all verdicts together, which is low where the model would rather
    say something else, and `certainty`, that of the likeliest one among them.

    The policy is a checkpoint, or a `TokenPolicy` over vLLM. One that fails is a RubricFailure, and never a score.

    Example:
        >>> from wanderlust.rubrics.rubric import Rubric
        >>> def graded(policy):
        ...     scale = {"1": 0.0, "2": 0.5, "3": 1.0}
        ...     return Rubric(ChoiceJudge(policy, "Rate this from 1 to 3: {completion}", verdicts=scale))
    """

    def __init__(
        self,
        policy: Policy,
        template: str = CHOICE_TEMPLATE,
        *,
        verdicts: Mapping[str, float] = YES_NO,
        instructions: str = "",
        calibration: Sequence[Mapping[str, Any]] = (),
        name: str = "judge",
    ):
        """`verdicts` are texts with their scores, from 0 to 1; `instructions` are the system message.

        Raises UsageError for a policy that tells no probabilities, for fewer than two verdicts, for one that another
        begins with, and for a calibration with none of the template's fields.
        """
        texts = [*verdicts]
        if len(texts) < 2 or not all(0 <= score <= 1 for score in verdicts.values()):
            raise UsageError(f"{name!r} needs two verdicts or more, with scores from 0 to 1, not {dict(verdicts)}")
        if clash := [(a, b) for a in texts for b in texts if not a or (a != b and b.startswith(a))]:
            raise UsageError(f"the verdict {clash[0][1]!r} of {name!r} begins with {clash[0][0]!r}")
        self.name, self.verdicts, self.calibration = name, dict(verdicts), tuple(calibration)
        self._instructions = instructions
        self._template = JudgeTemplate(template, name=name)
        self.__signature__ = self._template.signature
        if any({*self._template.fields}.isdisjoint(fields) for fields in self.calibration):
            raise UsageError(
                f"each prompt of the calibration of {name!r} needs one of {', '.join(self._template.fields)}"
            )
        self.policy = _scoring(policy, name)
        self._usual: dict[str, list[float]] = {}

    def asking(self, policy: Policy) -> ChoiceJudge:
        """The same judge by another policy."""
        other = copy(self)
        other.policy, other._usual = _scoring(policy, self.name), {}
        return other

    async def __call__(self, **fields: Any) -> RewardResult:
        """Judge the fields. Raises RubricFailure when the policy fails."""
        asked = [{**fields, **one} for one in self.calibration]
        told, *rows = await gather_values([self._logprobs(fields), *map(self._calibrate, asked)])
        usual = [fsum(column) / len(rows) for column in zip(*rows, strict=True)] or [0.0] * len(told)
        weights = [one - usual for one, usual in zip(told, usual, strict=True)]
        most = max(weights)
        shares = [exp(one - most) for one in weights]
        total = fsum(shares)
        value = fsum(share * score for share, score in zip(shares, self.verdicts.values(), strict=True)) / total
        likely = ", ".join(f"{text} {share / total:.2f}" for text, share in zip(self.verdicts, shares, strict=True))
        return RewardResult(
            value=value, metrics={"mass": fsum(map(exp, told)), "certainty": max(shares) / total}, note=likely
        )

    async def _calibrate(self, fields: Mapping[str, Any]) -> list[float]:
        """What one of the calibration's prompts is answered with."""
        prompt = self._template.fill(fields)
        if prompt not in self._usual:
            self._usual[prompt] = await self._logprobs(fields)
        return self._usual[prompt]

    async def _logprobs(self, fields: Mapping[str, Any]) -> list[float]:
        question = user(self._template.fill(fields))
        messages: list[Message] = [system(self._instructions), question] if self._instructions else [question]
        try:
            with boundary(RubricFailure):
                return await self.policy.choice_logprobs(messages, [*self.verdicts])
        except (Failure, ContextFull) as error:
            raise RubricFailure(f"the judge {self.name!r} gave no verdict: {error}") from error


def _scoring(policy: Policy, name: str) -> SupportsChoices:
    if not isinstance(policy, SupportsChoices):
        raise UsageError(
            f"{name!r} needs a policy that tells log-probabilities: a checkpoint, or TokenPolicy over vLLM"
        )
    return policy
