"""Judges by log-probabilities: exact against the engine's own, calibrated, and refused where nobody can tell."""

from __future__ import annotations

import asyncio
from math import exp, log

import pytest

import toys
from wanderlust.errors import ContextFull, PolicyFailure, RubricFailure, UsageError
from wanderlust.policies.base import SupportsChoices
from wanderlust.policies.local import LocalPolicy, SamplingOptions
from wanderlust.policies.scripted import Scripted
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.rubrics.choice_judge import ChoiceJudge
from wanderlust.rubrics.generated import Checklist, Criterion
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Rollout, Task, Trajectory, Turn, assistant, user

LETTERS = {"a": 0.0, "b": 0.5, "cd": 1.0}


def policy(seed=0):
    return LocalPolicy.of(toys.fresh(seed), toys.TOKENIZER, SamplingOptions(max_tokens=1), seed=0)


def judged(judge, **fields):
    return asyncio.run(judge(**fields))


def test_the_probabilities_are_those_that_the_engine_samples_with():
    async def story():
        model = policy()
        done = await model.complete([user("abba")])
        (scored,) = await model.choice_logprobs([user("abba")], [done.message.content])
        assert scored == pytest.approx(done.tokens.logprobs[0], abs=1e-5)
        together = await model.choice_logprobs([user("abba")], ["a", "bcd", "dd"])
        alone = [(await model.choice_logprobs([user("abba")], [one]))[0] for one in ("a", "bcd", "dd")]
        assert together == pytest.approx(alone, abs=1e-5)
        first, both = await model.choice_logprobs([user("a")], ["b", "bc"])
        assert both < first

    asyncio.run(story())


def test_the_score_is_the_mean_of_the_verdicts_under_their_probabilities():
    model = policy()
    told = asyncio.run(model.choice_logprobs([user("abc")], [*LETTERS]))
    shares = [exp(one) for one in told]
    found = judged(ChoiceJudge(model, "{completion}", verdicts=LETTERS), completion="abc")
    wanted = sum(share * score for share, score in zip(shares, LETTERS.values(), strict=True)) / sum(shares)
    assert found.value == pytest.approx(wanted)
    assert found.metrics["mass"] == pytest.approx(sum(shares))
    assert found.metrics["certainty"] == pytest.approx(max(shares) / sum(shares))
    assert found.note.startswith("a 0.")


def test_a_calibrated_judge_says_nothing_about_what_it_was_calibrated_on():
    verdicts, blank = {"a": 1.0, "b": 0.0}, [{"completion": "abcd"}]
    judge = ChoiceJudge(policy(), "{completion}", verdicts=verdicts, calibration=blank)
    assert judged(judge, completion="abcd").value == pytest.approx(0.5)
    plain = ChoiceJudge(policy(), "{completion}", verdicts=verdicts)
    assert judged(plain, completion="abcd").value != pytest.approx(0.5, abs=1e-4)
    assert judged(judge.asking(policy(1)), completion="abcd").value == pytest.approx(0.5)
    texts = [{"completion": text} for text in ("a", "bb", "cda", "dddb")]
    usual = ChoiceJudge(policy(), "{completion}", verdicts=verdicts, calibration=texts)
    odds = [judged(usual, **fields).value for fields in texts]
    assert sum(log(one / (1 - one)) for one in odds) == pytest.approx(0, abs=1e-4)
    with pytest.raises(UsageError, match="needs one of completion"):
        ChoiceJudge(policy(), "{completion}", verdicts=verdicts, calibration=[{}])


def test_each_criterion_is_calibrated_on_its_own():
    verdicts, blank = {"a": 1.0, "b": 0.0}, [{"completion": "dd"}]
    judge = ChoiceJudge(policy(), "{criterion} {completion}", verdicts=verdicts, calibration=blank)
    for criterion in ("abc", "cab", "bbb"):
        assert judged(judge, criterion=criterion, completion="dd").value == pytest.approx(0.5)
    assert judged(judge, criterion="abc", completion="da").value != pytest.approx(0.5, abs=1e-4)


def test_a_checklist_is_ticked_by_log_probabilities():
    judge = ChoiceJudge(policy(), "{criterion} {completion}", verdicts={"a": 1.0, "b": 0.0})
    criteria = [Criterion(text=text, importance="important") for text in ("abc", "cab", "bbb")]
    (result,) = asyncio.run(Checklist(judge=judge).results(criteria, ["da"]))
    ticked = [judged(judge, criterion=one.text, completion="da").value > 0.5 for one in criteria]
    assert result.value == pytest.approx(sum(ticked) / 3)
    assert (result.metrics["met"], result.metrics["calls"]) == (sum(ticked), 3.0)
    assert 0 < result.metrics["mass"] < 1
    assert [line[:3] for line in result.note.splitlines()] == ["[x]" if one else "[ ]" for one in ticked]
    assert "important: abc (a 0." in result.note
    with pytest.raises(UsageError, match="ticks each criterion once"):
        Checklist(judge=judge, how="together")


def test_it_is_a_part_of_a_rubric():
    trajectory = Trajectory(turns=[Turn(observation=(user("a"),), action=assistant("b"))])
    rollout = Rollout(task=Task(id="t", prompt=(user("a"),)), seed=0, trajectories=[trajectory])
    rubric = Rubric(ChoiceJudge(policy(), "{completion}", verdicts=LETTERS, name="letters"))
    score = asyncio.run(rubric.score(rollout, trajectory))
    assert 0 < score.parts["letters"] < 1
    assert {"letters/mass", "letters/certainty"} <= {*score.metrics}


class Mute:
    """A sampler that only samples."""

    async def sample(self, prompt, sampling, *, key, session=""):
        raise AssertionError

    def release(self, session):
        pass


def test_whoever_cannot_tell_is_refused_or_fails():
    with pytest.raises(UsageError, match="needs a policy that tells log-probabilities"):
        ChoiceJudge(Scripted("yes"))
    with pytest.raises(UsageError, match="two verdicts or more"):
        ChoiceJudge(policy(), verdicts={"a": 1.0})
    with pytest.raises(UsageError, match="two verdicts or more"):
        ChoiceJudge(policy(), verdicts={"a": 1.0, "b": 2.0})
    with pytest.raises(UsageError, match="'10' of 'judge' begins with '1'"):
        ChoiceJudge(policy(), verdicts={"1": 0.0, "10": 1.0})
    with pytest.raises(UsageError, match="shows the judge nothing"):
        ChoiceJudge(policy(), "Is it right?")
    mute = TokenPolicy(Mute(), policy().renderer)
    assert isinstance(mute, SupportsChoices)
    with pytest.raises(PolicyFailure, match="Mute does not tell"):
        asyncio.run(mute.choice_logprobs([user("a")], ["b"]))
    with pytest.raises(RubricFailure, match="the judge 'judge' gave no verdict"):
        judged(ChoiceJudge(mute, "{completion}", verdicts=LETTERS), completion="a")
    with pytest.raises(ContextFull, match="does not fit the model's 32"):
        asyncio.run(policy().choice_logprobs([user("a" * 40)], ["b"]))
    with pytest.raises(RubricFailure, match="does not fit"):
        judged(ChoiceJudge(policy(), "{completion}", verdicts=LETTERS), completion="a" * 40)
