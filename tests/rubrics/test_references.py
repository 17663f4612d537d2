"""References out of siblings, and rubrics that a model writes; writer, anchor and judge are scripts here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from wanderlust.errors import RubricFailure, UsageError
from wanderlust.policies.base import TokenPrices
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.answers import extract_answer
from wanderlust.rubrics.generated import Checklist, ChecklistReward, Criterion, ask_for_rubric, rubric_client
from wanderlust.rubrics.judge import GroupJudge, JudgeOptions
from wanderlust.rubrics.label_free import (
    Likeliest,
    Majority,
    MutuallyPredictable,
    Reference,
    Synthesis,
    build_estimator,
    estimate_reference,
)
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Completion, Message, Rollout, Score, Task, Tokens, Trajectory, Turn, assistant, user

SAID = ("It is 4. Answer: 4", "I get \\boxed{4}", "<answer>5</answer>", "no idea")
PROMPT = (user("What is 2 + 2?"),)


def estimate(estimator, said: Sequence[str] = SAID, trajectories: Sequence[Trajectory] = ()) -> str:
    return asyncio.run(estimator.estimate(PROMPT, said, trajectories))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so \\boxed{1,234}", "1234"),
        ("<answer> Blue </answer>", "blue"),
        ("First 3, then 4. The answer is 12.", "12"),
        ("7 and then 8", "8"),
        ("nothing", ""),
        ("\\boxed{a} but \\boxed{b}", "b"),
    ],
)
def test_answers_are_found(text, answer):
    assert extract_answer(text) == answer


def test_the_majority_is_the_earliest_of_the_most():
    assert estimate(Majority()) == SAID[0]
    assert estimate(Majority(), ("Answer: b", "Answer: a", "Answer: a", "Answer: b")) == "Answer: b"
    with pytest.raises(RubricFailure, match="no majority"):
        estimate(Majority(), ("hm", "well"))


def test_the_likeliest_is_what_was_sampled_surest():
    def sure(value: float) -> Trajectory:
        tokens = Tokens(prompt=(1,), completion=(2, 3), logprobs=(value, value))
        return Trajectory(seat="agent", turns=[Turn(observation=(), action=assistant("x"), tokens=tokens)])

    assert estimate(Likeliest(), ("a", "b", "c"), [sure(-1.0), sure(-0.1), sure(-2.0)]) == "b"
    with pytest.raises(RubricFailure, match="no log-probabilities"):
        estimate(Likeliest(), ("a", "b"), [Trajectory(seat="agent")] * 2)


def test_the_mutually_predictable_is_what_the_others_lead_to():
    async def likelihood(talk: Sequence[Message], text: str) -> float:
        return sum(m.content == text for m in talk) - 10.0

    assert estimate(MutuallyPredictable(likelihood=likelihood), ("x", "y", "y")) == "y"


def test_the_anchor_sees_the_siblings_and_not_the_question():
    seen: list[str] = []

    def anchor(messages, rng):
        seen.append(messages[-1].content)
        return "Together: Answer: 4"

    assert estimate(Synthesis(synthesizer=Scripted(anchor))) == "Together: Answer: 4"
    assert "2 + 2" not in seen[0]
    assert all(text in seen[0] for text in SAID)
    estimate(Synthesis(synthesizer=Scripted(anchor), sees_question=True))
    assert "2 + 2" in seen[1]
    with pytest.raises(RubricFailure, match="empty text"):
        estimate(Synthesis(synthesizer=Scripted(lambda messages, rng: " ")))


RUBRIC = [
    {"criterion": f"Does it say {what}?", "importance": importance}
    for what, importance in (("4", "essential"), ("why", "important"), ("2 + 2", "optional"), ("so", "important"))
] + [{"criterion": "Does it avoid saying 5?", "importance": "pitfall"}]


async def write_rubric(writer, options=None, **source):
    bounds = 5, 20
    client = rubric_client(writer, options or JudgeOptions(), bounds=bounds)
    return (await ask_for_rubric(client, bounds=bounds, **source)).value


def test_a_rubric_is_written_and_asked_for_again_until_it_is_one():
    lines = ["I would rather not.", json.dumps(RUBRIC[:2]), "```json\n" + json.dumps(RUBRIC) + "\n```"]
    criteria = asyncio.run(
        write_rubric(Scripted(lambda m, rng: lines[sum(x.role == "assistant" for x in m)]), question="?")
    )
    assert [one.importance for one in criteria] == ["essential", "important", "optional", "important", "pitfall"]
    with pytest.raises(RubricFailure, match="no rubric in 3 answers"):
        asyncio.run(write_rubric(Scripted(lambda m, rng: json.dumps(RUBRIC[:1] * 9)), reference="4"))
    with pytest.raises(UsageError, match="give one"):
        asyncio.run(write_rubric(Scripted(["x"])))


def strict(messages, rng):
    """A judge that looks for the quoted word."""
    told = messages[-1].content
    wanted = told.split("Does it say ")[1].split("?")[0] if "Does it say " in told else "5"
    said = told.split("<answer>")[1]
    return json.dumps({"score": int((wanted in said) != ("avoid" in told)), "reason": "looked"})


def test_a_checklist_weighs_what_is_met():
    criteria = tuple(Criterion(text=one["criterion"], importance=one["importance"]) for one in RUBRIC)
    checklist = Checklist(judge=Scripted(strict), model="strict")
    good, bad = asyncio.run(checklist.scores(criteria, ["4, so", "5"]))
    assert good == pytest.approx((1.0 + 0.7 + 0.9) / 3.6)
    assert bad == 0.0


def test_all_criteria_together_are_one_call():
    calls: list[str] = []

    def grade(messages, rng):
        calls.append(messages[-1].content)
        return '{"score": 10, "reason": "all of it"}'

    checklist = Checklist(judge=Scripted(grade), how="together", model="grade")
    criteria = [Criterion(text="Is it short?"), Criterion(text="Is it right?", importance="important")]
    assert asyncio.run(checklist.scores(criteria, ["4"])) == [1.0]
    assert len(calls) == 1
    assert "(important) Is it right?" in calls[0]


def test_a_failed_verdict_is_never_a_zero():
    checklist = Checklist(judge=Scripted(lambda m, rng: "who knows"), model="dull")
    with pytest.raises(RubricFailure, match="no verdict"):
        asyncio.run(checklist.scores([Criterion(text="Is it right?")], ["4"]))
    with pytest.raises(RubricFailure, match="without criteria"):
        asyncio.run(checklist.scores([], ["4"]))


def test_dropout_leaves_some_out_the_same_for_the_same_siblings():
    criteria = [Criterion(text=f"criterion {n}") for n in range(40)]
    checklist = Checklist(judge=Scripted(strict), dropout=0.5, model="strict")
    kept = checklist.select_criteria(criteria, ["a", "b"])
    assert kept == checklist.select_criteria(criteria, ["a", "b"]) != checklist.select_criteria(criteria, ["a", "c"])
    assert 8 <= len(kept) <= 32
    assert len(Checklist(judge=Scripted(strict), dropout=0.99, model="s").select_criteria(criteria[:2], ["x"])) >= 1
    with pytest.raises(UsageError, match="dropout"):
        Checklist(judge=Scripted(strict), dropout=1.0)


def test_a_reference_becomes_a_rubric_that_ranks_siblings():
    deriver = ChecklistReward(
        writer=Scripted(lambda m, rng: json.dumps(RUBRIC)), checklist=Checklist(judge=Scripted(strict), model="s")
    )
    reference = Reference(text="4, so", answer="4", agrees=True)
    good, bad = asyncio.run(deriver.rewards(reference, ["4, so", "5"], extract=extract_answer))
    assert good.value > bad.value
    assert good.note.splitlines()[:2] == [
        "[x] essential: Does it say 4? (1 of 1)",
        "[ ] important: Does it say why? (0 of 1)",
    ]
    assert (good.metrics["met"], good.metrics["calls"]) == (3.0, 5.5)  # its share of the writing is half a call


class OneAtATime:
    """A policy that refuses a second answer under a key while the first is written, as local models do."""

    def __init__(self):
        self.busy, self.asked = set(), 0

    async def complete(self, messages, tools=(), *, key=""):
        assert key not in self.busy, "two answers at once are asked for under one key"
        self.busy.add(key)
        self.asked += 1
        await asyncio.sleep(0.01)
        self.busy.discard(key)
        return Completion(message=assistant(json.dumps(RUBRIC)))


def test_groups_with_one_reference_wait_for_one_rubric():
    writer = OneAtATime()
    deriver = ChecklistReward(writer=writer, checklist=Checklist(judge=Scripted(strict), model="s"))
    reference = Reference(text="4, so", answer="4", agrees=True)

    async def play():
        groups = [deriver.rewards(reference, ["4, so", "5"], extract=extract_answer) for _ in range(3)]
        return await asyncio.gather(*groups)

    values = [[one.value for one in group] for group in asyncio.run(play())]
    assert values[0] == values[1] == values[2]
    assert writer.asked == 1


def test_estimators_go_by_their_names():
    assert isinstance(build_estimator("majority"), Majority)
    for name, what in (
        ("mutual", "model that can be read"),
        ("synthesis", "synthesizer"),
        ("best", "unknown reference estimator 'best'"),
    ):
        with pytest.raises(UsageError, match=what):
            build_estimator(name)


def test_a_rubric_that_contradicts_itself_is_asked_for_again():
    both = [*RUBRIC, {"criterion": "Does it not  say 4?", "importance": "pitfall"}]
    lines = [json.dumps(both), json.dumps(RUBRIC)]
    writer = Scripted(lambda m, rng: lines[sum(x.role == "assistant" for x in m)])
    assert len(asyncio.run(write_rubric(writer, question="?"))) == 5
    with pytest.raises(RubricFailure, match="contradict each other"):
        asyncio.run(write_rubric(Scripted(lambda m, rng: json.dumps(both)), question="?"))


def test_votes_on_all_criteria_see_them_in_other_orders():
    orders: list[str] = []

    def grade(messages, rng):
        orders.append(messages[-1].content)
        return json.dumps({"score": 1 + 9 * (len(orders) % 2)})

    criteria = [Criterion(text=f"Is it {what}?") for what in ("short", "right", "kind", "new")]
    checklist = Checklist(judge=Scripted(grade), how="together", votes=4, model="grade")
    assert asyncio.run(checklist.scores(criteria, ["4"])) == [0.5]
    assert len(set(orders)) == 4


def test_groups_that_say_the_same_share_no_conversation_of_the_anchor():
    busy: set[str] = set()

    class Anchor:
        async def complete(self, messages, tools=(), *, key=""):
            assert key not in busy
            busy.add(key)
            await asyncio.sleep(0)
            return Completion(message=assistant("4"))

        def release(self, key):
            busy.discard(key)

    async def both():
        synthesis = Synthesis(synthesizer=Anchor())
        return await asyncio.gather(*(synthesis.estimate(PROMPT, SAID, ()) for _ in range(3)))

    assert asyncio.run(both()) == ["4"] * 3


def scored(rubric: Rubric, said: str = "4, so", question: str = "What is 2 + 2?") -> Score:
    task = Task(id="t", prompt=(user(question),))
    trajectory = Trajectory(turns=[Turn(observation=task.prompt, action=assistant(said))])
    return asyncio.run(rubric.score(Rollout(task=task, seed=0, trajectories=[trajectory]), trajectory))


def test_a_checklist_is_a_part_of_a_rubric_and_records_its_ticks_and_costs():
    criteria = tuple(Criterion(text=one["criterion"], importance=one["importance"]) for one in RUBRIC)
    options = JudgeOptions(prices=TokenPrices(input=1.0, output=1.0))
    checklist = Checklist(judge=Scripted(strict), criteria=criteria, options=options)
    score = scored(Rubric(checklist))
    assert score.reward == pytest.approx((1.0 + 0.7 + 0.9) / 3.6)
    assert score.notes["checklist"].splitlines()[0] == "[x] essential: Does it say 4? (1 of 1)"
    assert score.notes["checklist"].count("[x]") == score.metrics["checklist/met"] == 3.0
    assert (score.metrics["checklist/calls"], score.metrics["checklist/cost"]) == (5.0, 0.0)
    with pytest.raises(UsageError, match="a writer that makes them"):
        asyncio.run(Checklist(judge=Scripted(strict))(prompt=[], completion="4"))


def test_a_writer_makes_the_criteria_of_a_task_once():
    asked: list[str] = []

    def writer(messages, rng):
        asked.append(messages[-1].content)
        return json.dumps(RUBRIC)

    rubric = Rubric(Checklist(judge=Scripted(strict), writer=Scripted(writer)))
    first, second = scored(rubric, "4, so"), scored(rubric, "5")
    assert (first.metrics["checklist/calls"], second.metrics["checklist/cached"]) == (6.0, 1.0)
    assert first.reward > second.reward
    scored(rubric, question="And 3 + 3?")
    assert ["2 + 2" in text for text in asked] == [True, False]


@pytest.mark.parametrize(("votes", "yes", "reward"), [(2, 1, 0.0), (2, 2, 1.0), (3, 2, 1.0), (3, 1, 0.0)])
def test_a_criterion_is_met_by_more_than_half_of_the_votes(votes, yes, reward):
    left = iter([1] * yes + [0] * (votes - yes))
    judge = Scripted(lambda m, rng: json.dumps({"score": next(left)}))
    score = scored(Rubric(Checklist(judge=judge, votes=votes, criteria=(Criterion(text="Is it right?"),))))
    assert score.reward == reward
    assert f"({yes} of {votes})" in score.notes["checklist"]


POEMS = ("The sea is wide.", "A lamp burns low.", "Snow on the sill,\nand silence.", "My dog sleeps.")


def test_the_figures_of_a_group_hold_for_prose():
    def reference(*texts: str, synthesis: str) -> Reference:
        estimator = Synthesis(synthesizer=Scripted([synthesis]))
        trajectories = [Trajectory(seat="agent")] * len(texts)
        return asyncio.run(estimate_reference(estimator, (), texts, trajectories=trajectories))

    apart = reference(*POEMS, synthesis="All of it.")
    assert (apart.diversity, apart.agrees) == (1.0, False)
    assert reference(*POEMS, synthesis=POEMS[2]).agrees  # none is more frequent
    alike = reference(*["The sea  is wide."] * 3, POEMS[1], synthesis="the sea is WIDE.")
    assert (alike.diversity, alike.agrees) == (pytest.approx(1 / 3), True)


def test_a_writer_and_a_judge_of_groups_can_be_held_to_a_form():
    class Formed:
        model = "m"

        def __init__(self, answer):
            self.answer, self.formats = answer, []

        async def complete(self, messages, tools=(), *, key=""):
            raise AssertionError("asked without a form")

        def unsupported_option(self, options):
            return ""

        async def complete_with_options(self, options, messages, tools=(), *, key="", on_text=None):
            self.formats.append(options.response_format["json_schema"]["schema"])
            return Completion(message=assistant(json.dumps(self.answer)))

    options = JudgeOptions(schema=True)
    writer = Formed({"criteria": RUBRIC})
    assert len(asyncio.run(write_rubric(writer, question="?", options=options))) == 5
    judge = Formed({"attempts": [{"attempt": n, "reason": "", "score": n / 2} for n in (1, 2)]})
    attempts = [Trajectory(turns=[Turn(observation=(), action=assistant(text))]) for text in POEMS[:2]]
    results = asyncio.run(GroupJudge(policy=judge, options=options)(prompt=(), trajectories=attempts))
    assert sorted(one.value for one in results) == [0.5, 1.0]
    assert [schema["required"] for schema in (writer.formats[0], judge.formats[0])] == [["criteria"], ["attempts"]]
    checked = Formed({"reason": "", "score": 1})
    checklist = Checklist(judge=checked, options=options)
    assert asyncio.run(checklist.scores([Criterion(text="Is it?")], ["x"])) == [1.0]
    assert checked.formats
