"""What samples know together, and what choosing among them by a judge is worth: at the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from toys import TOKENIZER, fresh
from wanderlust.cli.eval_options import AggregationOptions
from wanderlust.cli.main import main
from wanderlust.cli.options import ModelOptions
from wanderlust.evals.aggregation import EstimateAccumulator
from wanderlust.policies.local.pretrained import save_pretrained
from wanderlust.policies.resolve import resolve_policy
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.label_free import Majority, Synthesis
from wanderlust.tasks.registry import resolve_environment
from wanderlust.types import Group, Rollout, Score, Task, Trajectory, Turn, assistant, user

MADE = r"""
import json, re
from wanderlust.types import user
from wanderlust.types import Task
from wanderlust.environment import SingleTurnEnvironment
from wanderlust.rubrics.answers import extract_answer
from wanderlust.rubrics.rubric import Rubric


def right(completion, answer):
    return float(extract_answer(completion) == answer)


class Sums(SingleTurnEnvironment):
    def __init__(self):
        tasks = [Task(id=f"sum-{n}", prompt=(user(f"{n} + 1?"),), answer=str(n + 1)) for n in range(30)]
        super().__init__(tasks, rubric=Rubric(right))


def often(messages, rng):
    number = int(messages[-1].content.split()[0]) + 1
    return f"Answer: {number if rng.random() < 0.6 else rng.randrange(50)}"


def anchor(messages, rng):
    found = re.findall(r"Answer: (\d+)", messages[-1].content)
    return f"All in all: {max(found, key=found.count)}"


def knows(messages, rng):
    told = messages[-1].content
    question = int(re.search(r"(\d+) \+ 1", told)[1]) + 1
    if "<attempt 1>" in told:
        shown = re.findall(r"Answer: (\d+)", told)
        return json.dumps([{"attempt": n, "score": float(int(s) == question)} for n, s in enumerate(shown, 1)])
    said = int(re.search(r"Answer: (\d+)", told)[1])
    return json.dumps({"score": 10 * (said == question)})


def blind(messages, rng):
    return '{"score": 5}'


def silent(messages, rng):
    return "no comment"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "plus_one.py").write_text(MADE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    out = capsys.readouterr()
    return int(end.value.code or 0), out.out, out.err


EVAL = ("eval", "plus_one.py:Sums", "--policy", "plus_one.py:often", "--samples", "8")
GAP = ("judge", "gap", "plus_one.py:Sums", "--policy", "plus_one.py:often")


@pytest.mark.parametrize(
    "how", [["majority"], ["synthesis", "--synthesizer", "plus_one.py:anchor"]], ids=["majority", "synthesis"]
)
def test_samples_together_know_more_than_alone(place, capsys, how):
    code, out, _ = ran(capsys, *EVAL, "--aggregate", *how, "--json")
    found = json.loads(out)["estimate"]
    assert (code, found["groups"], found["failed"]) == (0, 30, 0)
    assert found["value"]["value"] > 0.9
    assert found["gain"]["low"] > 0.1
    assert found["gain"]["value"] == pytest.approx(found["value"]["value"] - found["mean"]["value"])
    assert found["disagrees"]["value"] == 0.0
    assert 0.2 < found["diversity"]["value"] < 0.8
    assert ran(capsys, *EVAL, "--aggregate", *how)[1].count("mean rollout") == 1


def test_an_evaluation_that_is_there_is_only_estimated(place, capsys):
    first = json.loads(ran(capsys, *EVAL, "--out", "kept", "--json")[1])
    before = (place / "kept/rollouts.db").read_bytes()
    again = json.loads(ran(capsys, *EVAL, "--out", "kept", "--aggregate", "majority", "--json")[1])
    whole = json.loads(ran(capsys, *EVAL, "--aggregate", "majority", "--json")[1])
    assert again["estimate"] == whole["estimate"]
    assert again["report"]["rewards"] == first["report"]["rewards"]
    assert (place / "kept/rollouts.db").read_bytes() == before


def test_a_group_without_an_estimate_is_counted_and_no_zero(place, capsys):
    words = (
        "eval",
        "plus_one.py:Sums",
        "--policy",
        "plus_one.py:silent",
        "--samples",
        "2",
        "--aggregate",
        "majority",
        "--json",
    )
    code, out, err = ran(capsys, *words)
    found = json.loads(out)["estimate"]
    assert (code, found["groups"], found["failed"], found["value"]) == (1, 0, 30, None)
    assert "30 tasks have no estimate" in err
    assert "no majority" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*EVAL[:-1], "1", "--aggregate", "majority"], "add --samples 8"),
        ([*EVAL, "--synthesizer", "plus_one.py:anchor"], "--aggregate synthesis"),
        ([*EVAL, "--aggregate", "synthesis"], "needs a synthesizer"),
        ([*EVAL, "--aggregate", "mutual"], "a model that can be read"),
        ([*GAP], "needs --judge"),
        ([*GAP, "--judge", "plus_one.py:knows", "--samples", "1"], "nothing to choose"),
        (["judge", "calibrate", "items", "--policy", "plus_one.py:knows", "--samples", "4"], "for wander judge gap"),
    ],
)
def test_mistakes_are_one_line(place, capsys, words, told):
    code, _, err = ran(capsys, *words)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert told in err


@pytest.mark.parametrize("how", [[], ["--side-by-side"]], ids=["each", "side by side"])
def test_the_gap_of_a_judge_that_knows_and_of_one_that_does_not(place, capsys, how):
    code, out, _ = ran(capsys, *GAP, "--judge", "plus_one.py:knows", "--samples", "4", *how, "--json")
    knows = json.loads(out)
    assert (code, knows["groups"], knows["share"]) == (0, 30, 1.0)
    assert knows["gained"]["low"] > 0.1
    if not how:
        blind = json.loads(ran(capsys, *GAP, "--judge", "plus_one.py:blind", "--samples", "4", "--json")[1])
        assert (blind["gained"]["value"], blind["share"]) == (0.0, 0.0)
        assert "It gains 0% of that" in ran(capsys, *GAP, "--judge", "plus_one.py:blind", "--samples", "4")[1]


def test_rollouts_without_a_verdict_are_counted(place, capsys):
    code, _, err = ran(capsys, *GAP, "--judge", "plus_one.py:silent", "--samples", "2", "-n", "3")
    assert code == 1
    assert "no rollout has a verdict: " in err


def group(*said: str, rewards: tuple[float | None, ...]) -> Group:
    rollouts = []
    for number, (text, reward) in enumerate(zip(said, rewards, strict=True)):
        turn = Turn(observation=(user("?"),), action=assistant(text))
        score = None if reward is None else Score(reward=reward)
        trajectory = Trajectory(turns=[turn], score=score)
        rollouts.append(Rollout(task=Task(id="t"), seed=0, sample_index=number, trajectories=[trajectory]))
    return Group(task=Task(id="t"), rollouts=rollouts)


def test_what_an_estimate_earns_where_it_is_not_the_majority():
    async def check(task: Task, seed: int, text: str) -> float:
        return 0.75

    groups = [group("1", "2", "2", rewards=(1.0, 0.0, 0.0)), group("3", "3", rewards=(0.5, None))]
    made = EstimateAccumulator(name="synthesis", estimator=Synthesis(synthesizer=Scripted(["9"])), check=check)
    asyncio.run(made.add(groups))
    found = made.report()
    assert (found.groups, found.failed, found.first) == (1, 1, "t: 1 of 2 rollouts are scored; at least two are needed")
    assert (found.value.value, found.mean.value, found.disagrees.value) == (0.75, pytest.approx(1 / 3), 1.0)
    assert (found.right_apart.value, found.beyond.value) == (0.75, 0.0)
    chosen = EstimateAccumulator(name="majority", estimator=Majority(), check=check)
    asyncio.run(chosen.add(groups[:1]))
    assert (chosen.report().value.value, chosen.report().right_apart) == (0.0, None)


@pytest.mark.parametrize("writer", [None, "another"])
@pytest.mark.parametrize("kind", ["endpoint", "checkpoint"])
def test_a_synthesis_is_written_at_temperature_0_whatever_the_player_draws_at(kind, writer, tmp_path):
    """A drawn synthesis of a small model is another text than its likeliest one, and earned a third as much."""
    save_pretrained(tmp_path / "start", fresh(0), TOKENIZER)
    name = "http://127.0.0.1:9/v1" if kind == "endpoint" else str(tmp_path / "start")
    answers = ModelOptions(model="m" if kind == "endpoint" else None, temperature=0.7)
    resolved = resolve_environment("calculator")
    player = resolve_policy(name, resolved.env, answers.policy_options(greedy=False))
    how = AggregationOptions(aggregate="synthesis", synthesizer=writer and name)
    made = how.self_consistency(resolved, player, answers, policy=name)
    assert made is not None
    drawn, written = (
        one["temperature"] if isinstance(one, dict) else one.temperature
        for one in (player.policy.sampling, made.estimates.estimator.synthesizer.sampling)
    )
    assert (drawn, written) == (0.7, 0.0)
    if kind == "checkpoint" and writer is None:  # the same weights, not a second copy
        assert made.estimates.estimator.synthesizer.engine is player.policy.engine
