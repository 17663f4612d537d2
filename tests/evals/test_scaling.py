"""Test-time scaling: exact curves against brute force, difficulty, revisions, and a stopped run that goes on."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import asdict
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderlust.cli.main import main
from wanderlust.environment import Environment, Episode, SingleTurnEnvironment
from wanderlust.errors import UsageError
from wanderlust.evals.choices import ScaledSample, expected_best, expected_majority
from wanderlust.evals.scaling import powers_of_two, scale
from wanderlust.evals.statistics import pass_at_k
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.judge import REFERENCE_FREE_TEMPLATE, Judge
from wanderlust.rubrics.label_free import Likeliest, Synthesis
from wanderlust.rubrics.rubric import RewardResult, Rubric
from wanderlust.store.run_folder import EVALUATION_STAGE, find_evaluation
from wanderlust.store.store import RunStore
from wanderlust.types import Completion, Task, assistant, user

SAMPLES = st.lists(
    st.builds(
        ScaledSample,
        reward=st.sampled_from([0.0, 0.5, 1.0]),
        answer=st.sampled_from(["", "a", "b", "c"]),
        tokens=st.integers(1, 9),
        cost=st.just(0.0),
        choices=st.fixed_dictionaries({"shown": st.sampled_from([0.0, 0.3, 1.0])}),
    ),
    min_size=2,
    max_size=7,
)


@given(SAMPLES, st.data())
def test_the_best_of_k_is_the_mean_over_all_ways_to_take_k(samples, data):
    k = data.draw(st.integers(1, len(samples)))

    def best(subset):
        most = max(one.choices["shown"] for one in subset)
        return fmean(one.reward for one in subset if one.choices["shown"] == most)

    wanted = fmean(best(subset) for subset in combinations(samples, k))
    assert expected_best(samples, k, lambda one: one.choices["shown"]) == pytest.approx(wanted)
    right = sum(one.reward == 1.0 for one in samples)
    passed = expected_best([one for one in samples], k, lambda one: float(one.reward == 1.0))
    assert passed >= pass_at_k(len(samples), right, k) - 1e-12


@given(SAMPLES, st.data())
def test_the_majority_of_k_is_the_mean_over_all_ways_to_take_k(samples, data):
    k = data.draw(st.integers(1, len(samples)))

    def majority(subset):
        said = [one.answer for one in subset if one.answer]
        if not said:
            return fmean(one.reward for one in subset)
        most = max(said.count(answer) for answer in said)
        return fmean(one.reward for one in subset if one.answer and said.count(one.answer) == most)

    wanted = fmean(majority(subset) for subset in combinations(samples, k))
    assert expected_majority(samples, k, key="t") == pytest.approx(wanted)


def test_counts_are_powers_of_two_and_all():
    assert powers_of_two(2) == [1, 2]
    assert powers_of_two(12) == [1, 2, 4, 8, 12]


class Guess(SingleTurnEnvironment):
    """Guess a digit; a hint says which half it is in, and a revision is told whether to go up."""

    choose_by = "right/hint"
    prefixes = True

    def __init__(self):
        tasks = [Task(id=f"t{n}", prompt=(user(f"guess {n}"),), answer=n) for n in range(10)]
        super().__init__(tasks, rubric=Rubric(self.right))

    async def run(self, episode: Episode) -> None:
        answer = await episode.agent.act(*episode.task.prompt)
        episode.state["feedback"] = "too low" if int(answer.content) < episode.task.answer else "not too low"

    def right(self, completion: str, task: Task) -> RewardResult:
        said = int(completion)
        return RewardResult(value=float(said == task.answer), metrics={"hint": float((said < 5) == (task.answer < 5))})


class Counts:
    """Guesses at random, goes up when told so, and counts its calls."""

    def __init__(self):
        self.calls, self.stop = 0, lambda calls: None

    async def complete(self, messages, tools=(), *, key=""):
        self.calls += 1
        self.stop(self.calls)
        done = await Scripted(self.say).complete(messages, key=key)
        return Completion(message=done.message, usage={"prompt_tokens": 3, "completion_tokens": 2})

    def say(self, messages, rng):
        if len(messages) > 1:
            before = int(messages[-2].content)
            return str(min(before + 1, 9) if "too low" in messages[-1].content[:7] else before)
        return str(rng.randrange(10))


def test_curves_of_an_environment_with_hints_and_revisions(tmp_path):
    report = asyncio.run(scale(Guess(), Counts(), samples=8, rounds=3, out=tmp_path / "run", progress=False))
    assert (report.tasks, report.left_out, report.revision_left_out) == (10, 0, 0)
    assert report.strategies == ["pass", "best of n by right/hint", "majority", "revision"]
    for strategy in report.strategies[:3]:
        points = report.curve(strategy)
        assert [one.k for one in points] == [1, 2, 4, 8]
        assert [one.tokens for one in points] == [2, 4, 8, 16]
        assert points[0].reward.value == pytest.approx(report.curve("pass")[0].reward.value)
    best, hinted = report.curve("pass"), report.curve("best of n by right/hint")
    assert best[-1].reward.value > hinted[-1].reward.value > best[0].reward.value
    revised = report.curve("revision")
    assert [one.k for one in revised] == [1, 2, 3, 4]
    assert revised[-1].reward.value > revised[0].reward.value
    assert revised[-1].tokens == 8
    names = {one.difficulty for one in report.points}
    assert names <= {"", "hard", "middle", "easy"}
    assert "hard" in names
    stored = json.loads((tmp_path / "run" / "scaling.json").read_text())
    assert stored == json.loads(json.dumps(asdict(report)))


def test_a_stopped_run_goes_on_and_is_the_same(tmp_path):
    whole = asyncio.run(scale(Guess(), Counts(), samples=4, rounds=1, progress=False))

    async def stopped():
        policy = Counts()
        task = asyncio.create_task(
            scale(Guess(), policy, samples=4, rounds=1, out=tmp_path, concurrency=2, progress=False)
        )
        policy.stop = lambda calls: task.cancel() if calls == 17 else None
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(stopped())
    again = Counts()
    report = asyncio.run(scale(Guess(), again, samples=4, rounds=1, out=tmp_path, progress=False))
    assert report == whole
    assert again.calls < 4 * 10 + 10


def test_estimates_of_disjoint_sets_of_samples_have_curves(tmp_path):
    def largest(messages, rng):
        return max(re.findall(r"^(\d)$", messages[-1].content, re.MULTILINE))

    estimators = {"synthesis": Synthesis(synthesizer=Scripted(largest)), "likeliest": Likeliest()}
    report = asyncio.run(scale(Guess(), Counts(), samples=8, out=tmp_path, estimators=estimators, progress=False, n=6))
    assert report.estimates_left_out == {"synthesis": 0, "likeliest": 6}
    assert "no log-probabilities" in report.first_failure
    assert "likeliest" not in report.strategies
    said: dict[str, list[int]] = {}
    with RunStore.read(find_evaluation(tmp_path / "samples")[0]) as store:
        for group in store.iter_groups(EVALUATION_STAGE, 0):
            rollouts = sorted(group.rollouts, key=lambda one: one.sample_index)
            said[group.task.id] = [int(one.trajectories[0].turns[-1].action.content) for one in rollouts]
    answers = {task.id: task.answer for task in Guess().tasks()}
    curve = report.curve("synthesis")
    assert [one.k for one in curve] == [1, 2, 4, 8]
    for point in curve[1:]:
        k = point.k
        sets = {task: [max(one[n * k : n * k + k]) for n in range(min(4, 8 // k))] for task, one in said.items()}
        wanted = fmean(fmean(value == answers[task] for value in values) for task, values in sets.items())
        assert point.reward.value == pytest.approx(wanted)
    assert curve[0].reward.value == pytest.approx(report.curve("pass")[0].reward.value)


def test_a_judge_chooses_too():
    class Likes:
        async def complete(self, messages, tools=(), *, key=""):
            return Completion(message=assistant('{"score": %s}' % (1 if "7" in messages[-1].content else 0)))

    judge = Judge(policy=Likes(), votes=1, template=REFERENCE_FREE_TEMPLATE)
    report = asyncio.run(scale(Guess(), Counts(), n=4, samples=4, judge=judge, progress=False))
    assert "best of n by judge" in report.strategies


class Fails(Environment):
    def tasks(self, split="train"):
        return [Task(id="a"), Task(id="b")]

    async def run(self, episode):
        await episode.agent.act(user("x"))
        if episode.task.id == "b" and episode.agent.key.endswith("/1/agent"):
            raise RuntimeError("broken")
        episode.reward("done", 1.0)


def down(messages, rng):
    raise RuntimeError("the model is down")


def test_tasks_with_failed_rollouts_are_left_out_and_counted():
    report = asyncio.run(scale(Fails(), Scripted(lambda messages, rng: "y"), samples=2, progress=False))
    assert (report.tasks, report.left_out) == (1, 1)
    with pytest.raises(UsageError, match=r"no task has all of its samples scored: .*the model is down"):
        asyncio.run(scale(Fails(), Scripted(down), samples=2, progress=False))
    with pytest.raises(UsageError, match="cannot begin in the middle"):
        asyncio.run(scale(Fails(), Scripted(["y"]), samples=2, rounds=1, progress=False))
    with pytest.raises(UsageError, match="no 'shown' to choose by; it has: done"):
        asyncio.run(scale(Fails(), Scripted(["y"]), samples=2, n=1, choose_by=["shown"], progress=False))
    with pytest.raises(UsageError, match="at least 2 samples"):
        asyncio.run(scale(Fails(), Scripted(["y"]), samples=1, progress=False))


def test_the_command_prints_a_table_and_leaves_a_picture(tmp_path, capsys):
    command = ["scale", "tictactoe", "--policy", "random", "-n", "4", "--samples", "2", "--out", str(tmp_path / "s")]
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "over one sample" in out
    assert (tmp_path / "s" / "scaling.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit) as end:
        main([*command, "--json"])
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == 4
    with pytest.raises(SystemExit) as end:
        main([*command, "--estimate", "likeliest", "--json"])
    assert end.value.code == 1
    read = capsys.readouterr()
    assert json.loads(read.out)["estimates_left_out"] == {"likeliest": 4}
    assert "4 tasks are not in the curve of likeliest" in read.err
