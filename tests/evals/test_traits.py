"""Traits of reasoning: figures by hand, cuts that are forced or read, confidence, and the command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from wanderlust.cli.main import main
from wanderlust.environment import Environment, Episode, SingleTurnEnvironment
from wanderlust.evals.evaluate import evaluate
from wanderlust.evals.traits import (
    PARALLEL,
    SHARES,
    Cut,
    ReasonedSample,
    make_report,
    parse_confidence,
    rank_correlation,
)
from wanderlust.evals.traits_report import TraitsReport
from wanderlust.policies.base import SamplingOptions, ThinkingBudget
from wanderlust.policies.local import LocalPolicy
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.training.tiny_model import ModelShape, fresh_model, fresh_tokenizer
from wanderlust.types import Completion, Message, Task, Tokens, assistant, user
from wanderlust_budget.token_budget import TokenBudget

TASKS = [Task(id=f"t{n}", prompt=(user(f"{n}?"),), answer=str(n)) for n in range(6)]
COUNTS = {"failed": 0, "unknown": 0, "unreadable": 0}


def tagged(completion: str, answer: str) -> float:
    return float(f"<answer>{answer}</answer>" in completion)


class Numbers(SingleTurnEnvironment):
    """Name the number."""

    def __init__(self) -> None:
        super().__init__(TASKS, rubric=Rubric(tagged))


class Thinker:
    """Thinks 16 ids and knows the answer after `known` of them; ids are characters."""

    def __init__(self, known: int, *, fails: bool = False, thinking: int = 16):
        self.known, self.fails, self.thinking = known, fails, thinking

    async def complete(self, messages: Sequence[Message], tools: Any = (), *, key: str = "") -> Completion:
        text = f"{'x' * self.thinking}</think>{self._answer(messages, self.thinking)}"
        ids = tuple(map(ord, text))
        tokens = Tokens(prompt=tuple(map(ord, messages[-1].content)), completion=ids, logprobs=(-0.1,) * len(ids))
        return Completion(message=assistant(text), tokens=tokens)

    def thinking_of(self, completion: Sequence[int]) -> Sequence[int] | None:
        return completion[: self.thinking] if self.thinking else None

    async def answer_after(self, prompt: Sequence[int], thinking: Sequence[int], *, key: str) -> str:
        return "x" * len(thinking) + f"</think>{self._answer([user(''.join(map(chr, prompt)))], len(thinking))}"

    def _answer(self, messages: Sequence[Message], thought: int) -> str:
        number = messages[-1].content[0]
        return f"<answer>{number if thought >= self.known else 'none'}</answer>"


def traits(env: Environment, policy: Any, **options: Any) -> TraitsReport:
    report = asyncio.run(evaluate(env, policy, progress=False, traits=True, **options))
    assert isinstance(report.traits, TraitsReport)
    return report.traits


def test_forced_cuts_find_where_the_answer_is_known() -> None:
    found = traits(Numbers(), Thinker(known=6), samples=4)
    assert (found.tasks, found.samples, found.uncut, found.failed, found.cut_by) == (6, 24, 0, 0, "forced")
    assert [(point.share, point.accuracy.value) for point in found.by_share] == [
        (0.0, 0.0),
        (0.125, 0.0),
        (0.25, 0.0),
        (0.5, 1.0),
        (0.75, 1.0),
        (1.0, 1.0),
    ]
    whole = 16 + len("</think><answer>1</answer>")
    assert found.overthinking is not None
    assert found.overthinking.value == pytest.approx(8 / whole)  # known after half of the thinking
    assert found.by_tokens[0].tokens == whole
    assert found.agreement is not None
    assert found.agreement.value == 1.0


def test_parallel_has_no_more_tokens_than_serial() -> None:
    thinking = 100
    found = traits(Numbers(), Thinker(known=90, thinking=thinking), samples=8)
    by_k = {point.k: point for point in found.parallel}
    assert by_k.keys() == {2, 4}  # an eighth of the tokens is less than an answer takes
    for point in found.parallel:
        assert point.k * 26 < point.parallel.tokens <= point.serial.tokens == 126
    assert (by_k[2].parallel.accuracy.value, by_k[4].parallel.accuracy.value) == (0.0, 0.0)
    (gain,) = {point.gain.value for point in found.parallel}
    assert gain == -1.0
    easy = traits(Numbers(), Thinker(known=4, thinking=thinking), samples=4)
    assert [(point.k, point.gain.value) for point in easy.parallel] == [(2, 0.0), (4, 0.0)]


def test_thinking_without_an_end_is_counted_and_in_no_figure_of_cuts() -> None:
    found = traits(Numbers(), Thinker(known=0, thinking=0), samples=2)
    assert (found.uncut, found.samples, found.by_share, found.overthinking, found.parallel) == (12, 12, (), None, ())


class Talk(Environment):
    """Two turns; fails for one task."""

    def tasks(self, split: str = "train") -> list[Task]:
        return TASKS

    async def run(self, episode: Episode) -> None:
        await episode.agent.act(*episode.task.prompt)
        if episode.task.id == "t0":
            raise RuntimeError("broken")
        await episode.agent.act(user("again"))
        episode.reward("done", 1.0)


def test_failures_and_several_turns_are_counted() -> None:
    found = traits(Talk(), Scripted(lambda m, _: "7"), samples=2)
    assert (found.failed, found.samples, found.uncut, found.tokens_unknown) == (2, 10, 10, 10)
    assert found.accuracy is not None
    assert found.accuracy.value == 1.0


def test_answers_are_read_from_the_text_of_other_policies() -> None:
    def recheck(messages: Sequence[Message], _: Any) -> str:
        number = messages[-1].content[0]
        return f"It is {number}. " + f"Let me see again: {number}. " * 6 + f"<answer>{number}</answer>"

    found = traits(Numbers(), Scripted(recheck), samples=2)
    assert found.cut_by == "read"
    assert found.overthinking is not None
    assert found.overthinking.value == pytest.approx(0.875, abs=0.01)
    assert [point.accuracy.value for point in found.by_share] == [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "thought",
    [
        "So the answer is {0}. Hmm wait, let me check that again, is it not 9? ",
        "so the answer is {0} and then we look at it once more and see ",
        "The answer is $\\frac{{{0}}}{{1}}$, because of the first line. But maybe it is ",
        "**Answer:** {0}. Wait, I should see whether that is so ",
    ],
)
def test_overthinking_is_read_in_ordinary_wording(thought: str) -> None:
    """The answer is there behind a fifth of the text, and nothing after it says another one."""

    def think(messages: Sequence[Message], _: Any) -> str:
        number = messages[-1].content[0]
        return f"{'let us see ' * 18}{thought.format(number)}{'we go on with it ' * 50}<answer>{number}</answer>"

    found = traits(Numbers(), Scripted(think), samples=2)
    assert found.overthinking is not None
    assert found.overthinking.value == pytest.approx(0.75, abs=0.01)


def test_reasoning_that_comes_apart_is_cut_as_well() -> None:
    def apart(messages: Sequence[Message], _: Any) -> Message:
        number = messages[-1].content[0]
        return Message("assistant", f"<answer>{number}</answer>", reasoning=f"The number {number}. " * 9)

    found = traits(Numbers(), Scripted(apart), samples=2)
    assert found.overthinking is not None
    assert found.overthinking.value == pytest.approx(0.875, abs=0.01)


def test_right_is_the_tasks_own_reward_under_a_budget() -> None:
    env = TokenBudget(Numbers(), kind="exact", min_tokens=8, max_tokens=8)
    found = traits(env, Thinker(known=0), samples=2)
    assert found.accuracy is not None
    assert found.accuracy.value == 1.0
    assert found.by_share[0].accuracy.value == 1.0


def sample(task: str, right: bool, **more: Any) -> ReasonedSample:
    return ReasonedSample(
        **{"task": task, "right": right, "answer": "a" if right else "b", "tokens": 10, "confidence": None, **more}
    )


def test_confidence_by_hand() -> None:
    samples = [
        sample("a", True, confidence=0.9),
        sample("a", False, confidence=0.9),
        sample("b", True, confidence=0.25),
        sample("b", True),
    ]
    found = make_report(samples, {**COUNTS, "unreadable": 1}, cut_by="read").confidence
    assert (found.stated, found.missing, found.unreadable) == (3, 0, 1)
    assert found.error == pytest.approx((2 * abs(0.9 - 0.5) + 0.75) / 3)
    assert found.brier is not None
    assert found.brier.value == pytest.approx((0.01 + 0.81 + 0.5625) / 3)
    assert found.excess is not None
    assert found.excess.value == pytest.approx((0.9 + 0.9 + 0.25 - 2) / 3)
    assert found.bins == ((0.25, 1.0, 1), (0.9, 0.5, 2))


def test_consistency_and_difficulty_by_hand() -> None:
    hard = [sample("hard", right, tokens=40) for right in (False, True, False, False)]
    samples = [
        *hard,
        *[sample(f"easy{n}", True, tokens=10 + n) for n in range(3) for _ in range(4)],
        *[sample("middle", right, tokens=20) for right in (True, True, False, False)],
    ]
    found = make_report(samples, COUNTS, cut_by="read")
    assert found.agreement is not None
    assert found.agreement.value == pytest.approx((0.75 + 3 + 0.5) / 5)
    assert found.majority is not None
    assert found.majority.value == pytest.approx((0 + 3 + 0.5) / 5)
    assert found.majority_gain is not None
    assert found.majority_gain.value == pytest.approx((-0.25 + 0 + 0) / 5)
    assert found.difficulty is not None
    assert found.difficulty.value > 0.8
    assert max(found.difficulty_points) == (1.0, 40.0)


def test_rank_correlation_goes_by_ranks_alone() -> None:
    points = [(1.0, 5.0), (2.0, 6.0), (2.0, 7.0), (3.0, 8.0), (9.0, 100.0)]
    found = rank_correlation(points)
    assert found is not None
    assert found.value == pytest.approx(0.9746794)  # Spearman's rho with ties
    assert rank_correlation([(a, b**3) for a, b in points]) == found
    assert rank_correlation(points[:3]) is None
    assert rank_correlation([(1.0, float(n)) for n in range(9)]) is None


def test_every_share_and_number_has_its_point() -> None:
    cut = Cut(right=True, answer="a", tokens=5)
    full = [
        sample(f"t{n}", True, cuts=dict.fromkeys(SHARES, cut), short=dict.fromkeys(PARALLEL, cut))
        for n in range(2)
        for _ in range(8)
    ]
    found = make_report(full, COUNTS, cut_by="forced")
    assert [point.k for point in found.parallel] == [*PARALLEL]
    assert [point.parallel.tokens for point in found.parallel] == [10, 20, 40]
    assert len(found.by_share) == len(SHARES) + 1
    empty = make_report([], COUNTS, cut_by="read")
    assert (empty.accuracy, empty.by_tokens, empty.confidence.error) == (None, (), None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no idea", None),
        ("<answer>1</answer> <confidence>0.8</confidence>", 0.8),
        ("Confidence: 80%", 0.8),
        ("**Confidence:** 80.", 0.8),
        ("confidence = 0.2, later confidence: 1", 1.0),
        ("<confidence> 0 </confidence>", 0.0),
    ],
)
def test_stated_confidence_is_read(text: str, value: float | None) -> None:
    assert parse_confidence(text) == value


@pytest.mark.parametrize("said", ["high", "nan", "inf", "-0.5", "101", "200%", "7/10", "", "1e999", "0x1", "½"])
def test_a_confidence_that_is_no_number_is_counted(said: str) -> None:
    with pytest.raises(ValueError, match="is no number from 0 to 1"):
        parse_confidence(f"<confidence>{said}</confidence>")
    found = traits(Numbers(), Scripted(lambda m, _: f"<answer>1</answer> <confidence>{said}</confidence>"))
    assert (found.confidence.unreadable, found.confidence.stated, found.confidence.missing) == (6, 0, 0)


def careless(messages: Sequence[Message], rng: Any) -> str:
    number = messages[-1].content[0] if rng.random() < 0.7 else "9"
    return f"so {number} <answer>{number}</answer> <confidence>0.9</confidence>"


def test_the_command_prints_and_keeps_traits_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = Path(__file__)
    words = ["eval", f"{here}:Numbers", "--policy", f"{here}:careless", "--samples", "4", "--traits"]
    out = tmp_path / "kept"
    tables = []
    for more in (["--out", str(out)], ["--out", str(out)], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            main([*words, *more])
        assert ended.value.code == 0
        tables.append(capsys.readouterr().out)
    assert tables[0].partition("Traits")[2] == tables[1].partition("Traits")[2]
    assert "confidence: calibration error" in tables[0]
    assert "samples whose tokens are unknown" in tables[0]
    kept = json.loads((out / "traits.json").read_text())
    assert kept == json.loads(tables[2])["traits"]
    assert (out / "traits.png").stat().st_size > 10_000
    with pytest.raises(SystemExit) as ended:
        main(["eval", "tictactoe", "--policy", "teacher", "--exact", "--traits"])
    assert ended.value.code == 2
    assert "leave --exact out" in capsys.readouterr().err


def test_a_model_of_this_process_answers_after_every_cut_alike_each_time() -> None:
    tokenizer = fresh_tokenizer(["<think>a b c</think> <answer>1</answer>", "1 2 3 ?"] * 20)
    model = fresh_model(tokenizer, ModelShape(width=32, layers=1, inner=48, positions=128), seed=3)
    sampling = SamplingOptions(max_tokens=24, thinking=ThinkingBudget(max_tokens=8))
    first, again = (traits(Numbers(), LocalPolicy.of(model, tokenizer, sampling, seed=1), samples=2) for _ in range(2))
    assert first == again
    assert (first.cut_by, first.samples) == ("forced", 12)
    assert first.uncut < 6
    tokens = [point.tokens for point in first.by_share]
    assert tokens == sorted(tokens)
    assert first.tokens_unknown == 0
