"""Numbers with error bars: the statistics against known values, and reports that hide no failure."""

import asyncio
import gc
import json
from math import sqrt
from random import Random

import pytest
from rich.console import Console

from wanderlust.environment import Environment, Limits
from wanderlust.errors import PolicyFailure, StoreError
from wanderlust.evals.accumulator import report_of_groups
from wanderlust.evals.evaluate import evaluate
from wanderlust.evals.evaluation import COLLECTOR_THRESHOLD
from wanderlust.evals.statistics import estimate, mean, paired_difference, pass_at_k, share_estimate, wilson
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.moments import student_quantile
from wanderlust.store.store import RunStore
from wanderlust.types import Completion, Score, Task, assistant, user


def test_wilson_is_the_textbook_interval():
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_means_of_single_observations_have_the_usual_error():
    found = mean([[0.3], [0.4], [0.5], [0.5], [0.8]])
    half = 2.44691 * sqrt(0.64 / 6 / 7)  # Student's quantile of 6 degrees of freedom, with 0 and 1: their mean is 0.5
    assert (found.value, found.count, found.clusters) == (0.5, 5, 5)
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half), rel=1e-5)


def test_copies_of_an_observation_make_it_no_surer():
    once, often = mean([[n / 5] for n in range(5)]), mean([[n / 5] * 9 for n in range(5)])
    assert (once.low, once.high) == pytest.approx((often.low, often.high))
    once, often = share_estimate([[0], [1], [1]]), share_estimate([[0] * 9, [1] * 9, [1] * 9])
    assert (once.low, once.high) == pytest.approx((often.low, often.high))
    all_right = wilson(1, 3, quantile=student_quantile(2))[0]
    assert (share_estimate([[1]] * 3).low, share_estimate([[1] * 9] * 3).low) == pytest.approx((all_right,) * 2)


def test_a_single_task_speaks_of_itself():
    assert (share_estimate([[0, 1, 1, 0]]).low, share_estimate([[0, 1, 1, 0]]).clusters) == (
        pytest.approx(wilson(0.5, 4, quantile=student_quantile(3))[0]),
        1,
    )
    assert mean([[0.1, 0.2, 0.4, 0.9, 0.9]]).low == mean([[0.1], [0.2], [0.4], [0.9], [0.9]]).low
    assert mean([[0.5]]).low is None
    assert str(mean([[0.5]])) == "0.500"


def test_shares_and_other_values_get_their_own_interval():
    assert estimate([[0], [1.0]]) == share_estimate([[0], [1]])
    assert estimate([[0.5], [1.0]]) == mean([[0.5], [1.0]])
    assert str(share_estimate([[0], [1]])) == "0.500 [0.003, 0.997]"
    for nothing in ([], [[]]):
        with pytest.raises(ValueError, match="no observations"):
            estimate(nothing)


@pytest.mark.parametrize("kind", [mean, share_estimate])
def test_intervals_hold_the_truth_about_as_often_as_they_say(kind):
    rng, hits = Random(1), 0
    for _ in range(400):  # 40 tasks of differing difficulty (mean 0.6), 4 samples each
        tasks = [[float(rng.random() < p) for _ in range(4)] for p in (rng.betavariate(3, 2) for _ in range(40))]
        found = kind(tasks)
        hits += found.low <= 0.6 <= found.high
    assert 0.92 <= hits / 400 <= 0.98


def test_differences_are_paired_by_task():
    ours = {"a": [1.0, 1.0], "b": [0.5], "c": [0.2], "only ours": [0.0]}
    theirs = {"a": [0.8], "b": [0.3], "c": [0.0], "failed": []}
    found = paired_difference(ours, theirs)
    assert (found.value, found.count) == (pytest.approx(0.2), 3)
    harder = paired_difference({**ours, "b": [0.9]}, {**theirs, "b": [0.7]})
    assert (found.low, found.high) == pytest.approx((harder.low, harder.high))  # the tasks' own difficulty is gone
    with pytest.raises(ValueError, match="in common"):
        paired_difference({"a": [1.0]}, {"b": [1.0]})


def test_pass_at_k_is_unbiased():
    assert pass_at_k(4, 2, 1) == 0.5
    assert pass_at_k(4, 2, 2) == pytest.approx(1 - 1 / 6)
    assert pass_at_k(4, 2, 3) == 1.0
    assert pass_at_k(4, 0, 4) == 0.0
    for bad in ((4, 2, 5), (4, 5, 1), (4, 2, 0)):
        with pytest.raises(ValueError, match="cannot be estimated"):
            pass_at_k(*bad)


TASKS = [Task(id=f"t{n}", answer=n % 2) for n in range(10)]


class Parity(Environment):
    """Is the number odd? Some tasks do not work at all."""

    broken = ()

    async def run(self, episode):
        if episode.task.id in self.broken:
            raise OSError(f"no such world: {episode.task.id}")
        said = await episode.agent.act(user(episode.task.id))
        if said.content == str(episode.task.answer):
            episode.reward("right", 1.0)


class Judged(Parity):
    class rubric:
        async def score(played, trajectory):
            length = float(len(trajectory.turns[0].action.content))
            return Score(reward=length / 10, parts={"short": length}, metrics={"length": length} if length else {})


def play(env, policy, **options):
    return asyncio.run(evaluate(env, policy, tasks=TASKS, **options))


def test_a_report_has_rewards_parts_and_coverage():
    found = play(Parity(), Scripted(["1"]), samples=3)
    assert (found.tasks, found.played, found.scored, found.coverage, found.failed) == (10, 30, 30, 1.0, 0)
    assert (found.reward.value, found.reward.count, found.reward.clusters) == (0.5, 30, 10)
    assert found.parts["right"].value == 0.5  # where it was not earned, it counts as 0
    assert (found.stops, found.errors, found.usage.turns) == ({"done": 30}, {}, 30)
    assert found.usage.seconds > 0


def test_failed_rollouts_are_left_out_and_told():
    env = Parity()
    env.broken = ("t2", "t5", "t6")
    found = play(env, Scripted(lambda messages, _: str(int(messages[0].content[1:]) % 2)))
    assert (found.played, found.scored, found.failed, found.coverage) == (10, 7, 3, 0.7)
    assert found.reward.value == 1.0
    assert found.errors["EnvironmentFailure"].count == 3
    assert found.errors["EnvironmentFailure"].first == "OSError: no such world: t2"
    assert found.stops == {"done": 7, "EnvironmentFailure": 3}


def test_metrics_count_only_where_they_are_known():
    found = play(Judged(), Scripted(lambda messages, _: "x" * (messages[0].content in ("t1", "t2"))))
    assert (found.metrics["length"].value, found.metrics["length"].count) == (1.0, 2)
    assert (found.parts["short"].value, found.parts["short"].count) == (0.2, 10)


def test_nothing_scored_is_no_number():
    async def dead(messages, tools=(), *, key=""):
        raise PolicyFailure("down")

    policy = Scripted([])
    policy.complete = dead
    found = play(Parity(), policy)
    assert (found.reward, found.rewards, found.parts, found.scored, found.failed) == (None, {}, {}, 0, 10)
    assert found.errors["PolicyFailure"].first == "down"
    assert "10" in shown(found)


def test_the_report_does_not_depend_on_who_finishes_first():
    class Jumbled:
        def __init__(self, seed):
            self.rng = Random(seed)

        async def complete(self, messages, tools=(), *, key=""):
            await asyncio.sleep(self.rng.random() / 100)
            return Completion(message=assistant("x" * (len(key) + Random(key).randrange(7))))

    env = Judged()
    env.broken = ("t2", "t5")
    one, other = (play(env, Jumbled(n), samples=4).as_dict() for n in (1, 2))
    for timed in ("seconds", "latency"):
        assert one["usage"].pop(timed) != other["usage"].pop(timed)
    assert one == other


class Duel(Environment):
    seats = ("X", "O")

    async def run(self, episode):
        for agent in episode.agents.values():
            await agent.act(user("?"))
        episode.reward("win", 1.0, "X")


def test_several_seats_are_told_apart():
    found = play(Duel(), Scripted(["a"]))
    assert {seat: e.value for seat, e in found.rewards.items()} == {"X": 1.0, "O": 0.0}
    assert found.parts["X: win"].value == 1.0
    with pytest.raises(ValueError, match="too many"):
        _ = found.reward


def test_usage_and_limits_are_told():
    class Costly:
        async def complete(self, messages, tools=(), *, key=""):
            return Completion(message=assistant("a"), usage={"prompt_tokens": 7, "completion_tokens": 2})

    class Long(Environment):
        async def run(self, episode):
            while True:
                await episode.agent.act(user("?"))

    found = play(Long(), Costly(), limits=Limits(max_turns=3))
    usage = found.usage
    assert (usage.turns, usage.tokens_in, usage.tokens_out, found.stops) == (30, 210, 60, {"max_turns": 10})


def test_observers_see_every_rollout_and_the_store_can_tell_the_report_again(tmp_path):
    seen = []
    with RunStore.create(tmp_path / "run.db") as store:
        observers = [store.sink(stage="eval", step=3, env="parity")]
        observers.append(lambda groups: seen.extend((g.index, r.sample_index) for g in groups for r in g.rollouts))
        found = play(Parity(), Scripted(["1"]), samples=2, observers=observers)
        again = report_of_groups(store.groups("eval", 3), found.usage.seconds)
    assert sorted(seen) == [(index, sibling) for index in range(10) for sibling in range(2)]
    assert again == found


def test_an_observer_that_fails_ends_the_evaluation(tmp_path):
    store = RunStore.create(tmp_path / "run.db")
    store.close()
    with pytest.raises(StoreError, match="closed"):
        play(Parity(), Scripted(["1"]), observers=[store.sink(stage="eval", step=0)])


def test_garbage_collections_are_rarer_meanwhile_and_not_afterwards():
    before, seen = gc.get_threshold(), []

    async def overlapping():
        await asyncio.gather(
            *(
                evaluate(
                    Parity(), Scripted(["1"]), tasks=TASKS[:some], observers=[lambda _: seen.append(gc.get_threshold())]
                )
                for some in (1, 10)
            )
        )

    asyncio.run(overlapping())
    assert seen[0] == (COLLECTOR_THRESHOLD, *before[1:])
    assert gc.get_threshold() == before


def shown(found):
    console = Console(width=100, force_terminal=True)
    with console.capture() as told:
        console.print(found.table("Results"))
    return told.get()


def test_reports_are_shown_and_saved_and_hostile_text_stays_text():
    class Hostile(Environment):
        async def run(self, episode):
            await episode.agent.act(user("?"))
            if episode.task.id == "t1":
                raise ValueError("[red]\x1b[2J\nowned")
            episode.reward("[bold]part", 0.25)

    found = play(Hostile(), Scripted(["a"]))
    text = shown(found)
    assert "[bold]part" in text
    assert "[red]\\x1b[2J\\nowned" in text
    assert "9 of 10" in text
    assert json.loads(json.dumps(found.as_dict()))["rewards"]["agent"]["value"] == 0.25
