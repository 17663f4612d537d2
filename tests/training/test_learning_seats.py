"""Seats that do not learn: they are in no figure of a training step, in no pass@k, and nobody imitates them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from wanderlust import check, compare, evaluate_sync, load_run
from wanderlust.cli.main import main
from wanderlust.environment import Environment, Episode
from wanderlust.errors import UsageError
from wanderlust.evals.accumulator import report_of_groups
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollouts
from wanderlust.runner.progress import NullLogger
from wanderlust.store.filters import FilterError
from wanderlust.store.formats import training_rows
from wanderlust.store.store import RunStore
from wanderlust.studio.rollouts import first_differences
from wanderlust.tasks.curriculum.learnability import Learnability, UtilityCurriculum
from wanderlust.tasks.curriculum.uniform import TaskPool
from wanderlust.training.algorithms.grpo import GroupRelative, has_signal
from wanderlust.training.algorithms.reinforce_pp import BatchNormalised
from wanderlust.training.config import TrainConfig
from wanderlust.training.loop import rollout_metrics
from wanderlust.training.warmup import play_teacher
from wanderlust.types import Group, Message, Policy, Rollout, Score, Task, Tokens, Trajectory, Turn, assistant, user


class Questions(Environment):
    """The first seat is paid 1; the second answers, does not learn, and never earns anything."""

    seats = ("asks", "answers")
    players = {"teacher": lambda: Scripted(lambda messages, _rng: f"to {messages[-1].content}")}  # noqa: RUF012
    frozen = ("answers",)

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"q{n}") for n in range(4)]

    async def run(self, episode: Episode) -> None:
        for seat in self.seats:
            episode.agents[seat].trajectory.trainable = seat not in self.frozen
            await episode.agents[seat].act(user(seat))
        episode.reward("asked", 1.0, "asks")
        episode.reward("asked", 0.0, "answers")


class Both(Questions):
    """Both seats learn."""

    frozen = ()


def play(env: Environment, policy: Policy) -> list[Group]:
    async def go() -> list[Group]:
        async with rollouts(env, env.tasks(), policy, group_size=2) as stream:
            return [group async for group in stream]

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("env", "reward", "seats"), [(Questions(), 1.0, {}), (Both(), 0.5, {"reward/answers": 0.0, "reward/asks": 1.0})]
)
def test_the_steps_reward_is_that_of_the_seats_that_learn(
    env: Environment, reward: float, seats: dict[str, float]
) -> None:
    groups = play(env, env.players["teacher"]())
    metrics = rollout_metrics(groups)
    assert metrics["reward"] == metrics["part/asked"] == reward
    assert {name: value for name, value in metrics.items() if name.startswith("reward/")} == seats
    assert metrics["frac_groups_with_signal"] == 0.0
    assert not any(map(has_signal, groups))


def test_pass_at_k_is_of_the_seats_that_learn() -> None:
    passes = report_of_groups(play(Questions(), Questions.players["teacher"]())).passes
    assert {name: figure.value for name, figure in passes.items()} == dict.fromkeys(
        ("asks: pass@1", "asks: pass@2", "asks: pass^2"), 1.0
    )


def test_the_warm_up_imitates_the_seats_that_learn() -> None:
    for env, seats in ((Questions(), {"asks"}), (Both(), {"asks", "answers"})):
        imitated = play_teacher(TrainConfig(env=env, sft_episodes=8), logger=NullLogger())
        assert {one.seat for one in imitated} == seats


def paid(*rewards: float | None, learns: tuple[bool, ...] = (True, True)) -> Rollout:
    """A rollout whose seats were paid so."""
    seats = [
        Trajectory(seat=f"s{n}", score=None if reward is None else Score(reward=reward), trainable=learns[n])
        for n, reward in enumerate(rewards)
    ]
    return Rollout(task=Task(id="t"), seed=0, trajectories=seats)


def test_a_batch_is_normalised_over_the_seats_that_learn() -> None:
    """The frozen seat's rewards are a hundred times as large, and its tokens many."""

    def said(reward: float, other: float) -> Rollout:
        one = paid(reward, other, learns=(True, False))
        for trajectory, count in zip(one.trajectories, (1, 9), strict=True):
            tokens = Tokens(prompt=(1,), completion=(2,) * count, logprobs=(-1.0,) * count, offset=0)
            trajectory.turns.append(Turn(observation=(), action=assistant("x"), tokens=tokens))
        return one

    group = Group(task=Task(id="t"), rollouts=[said(1.0, 100.0), said(0.0, -100.0)])
    method = BatchNormalised()
    asyncio.run(method.assign_advantages(group))
    asyncio.run(method.assign_batch_advantages([group]))
    assert [r.trajectories[0].advantage for r in group.rollouts] == pytest.approx([1.0, -1.0])


def test_a_group_whose_frozen_seat_alone_differs_is_played_again() -> None:
    for rewards, kept in (((1.0, 1.0), False), ((1.0, 0.0), True)):
        rollouts = [paid(own, other, learns=(True, False)) for own, other in zip(rewards, (0.0, 1.0), strict=True)]
        group = Group(task=Task(id="t"), rollouts=rollouts)
        method = GroupRelative(max_refills=1)
        asyncio.run(method.assign_advantages(group))
        assert (method.keep(group), has_signal(group)) == (kept, kept)


def test_a_groups_rewards_are_those_of_the_seats_that_learn() -> None:
    one = (True, False)
    opponents = Group(task=Task(id="t"), rollouts=[paid(1.0, -1.0, learns=one), paid(0.0, 5.0, learns=one), paid(None)])
    assert (opponents.rewards, opponents.seat_rewards) == ([1.0, 0.0], {"s0": [1.0, 0.0]})
    both = Group(task=Task(id="t"), rollouts=[paid(1.0, 0.0), paid(0.5, None)])
    assert (both.rewards, both.seat_rewards) == ([0.5, 0.5], {"s0": [1.0, 0.5], "s1": [0.0]})
    nobody = Group(task=Task(id="t"), rollouts=[paid(1.0, 0.0, learns=(False, False))])
    assert (nobody.rewards, nobody.seat_rewards) == ([0.5], {"s0": [1.0], "s1": [0.0]})


@pytest.mark.parametrize(
    ("rollouts", "rate", "spread"),
    [
        ([paid(1.0, -1.0), paid(1.0, -1.0)], 0.5, 0.0),  # the same seat always wins: nothing to learn from
        ([paid(1.0, -1.0), paid(-1.0, 1.0)], 0.5, 1.0),
        ([paid(1.0, 0.0, learns=(True, False)), paid(1.0, 1.0, learns=(True, False))], 1.0, 0.0),
    ],
)
def test_curricula_see_what_the_learning_seats_were_paid(rollouts: list[Rollout], rate: float, spread: float) -> None:
    curriculum = UtilityCurriculum(pool=TaskPool.of([Task(id="t")]), seed=0, settings=Learnability())
    curriculum.observe(Group(task=Task(id="t"), rollouts=rollouts))
    assert (curriculum.task_stats["t"].rate, curriculum.task_stats["t"].spread) == (rate, spread)


def adds(messages: Sequence[Message], _rng: Random) -> str:
    """The sum that is asked for; a customer says anything."""
    words = messages[-1].content.split()
    return str(int(words[0]) + int(words[2])) if len(words) == 3 else "Add them, please."


def adds_to_even(messages: Sequence[Message], rng: Random) -> str:
    """Right in the even tasks alone."""
    return adds(messages, rng) if messages[-1].content.split()[0][-1] in "02468" else "nothing"


class Simulated(Environment):
    """The first seat is a customer who never earns anything and does not learn; the second is paid for its sums."""

    seats = ("customer", "seller")
    players = {"honest": lambda: Scripted(adds)}  # noqa: RUF012

    def tasks(self, split: str = "train") -> list[Task]:
        first = 100 if split == "train" else 200
        return [Task(id=f"{n}", info={"a": n, "b": 3 * n - 7}) for n in range(first, first + 8)]

    async def run(self, episode: Episode) -> None:
        customer, seller = (episode.agents[seat] for seat in self.seats)
        customer.trajectory.trainable = False
        await customer.act(user("Ask."))
        a, b = episode.task.info["a"], episode.task.info["b"]
        said = await seller.act(user(f"{a} + {b}"))
        episode.reward("right", float(said.content == str(a + b)), "seller")
        episode.reward("polite", 0.0, "customer")

    def oracle(self, task: Task) -> Policy:
        return Scripted([str(task.info["a"] + task.info["b"])])


def test_stored_figures_are_those_of_the_first_seat_that_learns(tmp_path: Path) -> None:
    report = evaluate_sync(Simulated(), Scripted(adds_to_even), samples=2, out=tmp_path / "a", progress=False)
    evaluate_sync(Simulated(), "honest", samples=2, out=tmp_path / "b", progress=False)
    compared = compare(tmp_path / "a", tmp_path / "b")
    assert (compared.first.value, compared.second.value) == (0.5, 1.0) == (report.rewards["seller"].value, 1.0)
    assert {row.reward for row in report.task_rows} == {0.0, 1.0}
    assert compared.seat == "seller"
    assert "seller: The difference may well be chance" in str(compared)
    assert {row.seat for row in report.task_rows} == {"seller"}
    with load_run(tmp_path / "a") as run:
        assert len(run.rollouts("reward == 1")) == len(run.rollouts("parts.right == 1")) == 8
        with pytest.raises(FilterError, match=r"no field .parts\.polite"):
            run.rollouts("parts.polite == 0")


class Deal(Environment):
    """The price is the seller's offer; each seat learns and earns another share of it. One player is a fixed one."""

    seats = ("buyer", "seller")
    players = {"teacher": lambda: Scripted(["5"] * 9)}  # noqa: RUF012

    def tasks(self, split: str = "train") -> list[Task]:
        return [Task(id=f"{split}{n}") for n in range(12)]

    async def run(self, episode: Episode) -> None:
        asked, offered = [int((await episode.agents[seat].act(user("?"))).content) for seat in self.seats]
        episode.reward("gain", (10 - asked - offered) / 10, "buyer")
        episode.reward("gain", offered / 10 - asked / 20, "seller")


def test_each_seat_is_compared_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fixed seat's own reward falls where the other one plays better."""
    for name, said in (("weak", "2"), ("strong", "4")):
        for seat, fixed in (("seller", "buyer"), ("buyer", "seller")):
            env = Deal().with_frozen_seats({fixed: Deal.players["teacher"]()})
            evaluate_sync(env, Scripted([said] * 9), out=tmp_path / f"{name}-{seat}", progress=False)
        evaluate_sync(Deal(), Scripted([said] * 9), out=tmp_path / name, progress=False)
    sold = compare(tmp_path / "weak-seller", tmp_path / "strong-seller")
    assert (sold.seat, sold.difference.value, sold.clear, sold.note) == ("seller", pytest.approx(0.2), True, "")
    assert "seller: reward" in str(sold)
    frozen = compare(tmp_path / "weak-seller", tmp_path / "strong-seller", seat="buyer")
    assert (frozen.seat, frozen.difference.value) == ("buyer", pytest.approx(-0.2))
    with pytest.raises(
        UsageError, match=r"^[^\n]*no seat in common that learns: the first has seller, the second buyer"
    ):
        compare(tmp_path / "weak-seller", tmp_path / "strong-buyer")
    with pytest.raises(UsageError, match=r"no rewards of the seat 'judge'; it has buyer, seller"):
        compare(tmp_path / "weak", tmp_path / "strong", seat="judge")
    both = compare(tmp_path / "weak", tmp_path / "strong")
    assert [one.seat for one in (both, *both.others)] == ["buyer", "seller"]
    assert [one.difference.value for one in (both, *both.others)] == pytest.approx([-0.4, 0.1])
    with pytest.raises(SystemExit):
        main(["compare", str(tmp_path / "weak"), str(tmp_path / "strong")])
    printed = capsys.readouterr()
    assert "buyer: reward" in printed.out
    assert "seller: reward" in printed.out
    assert "corrected for 2 seats" in printed.out
    assert "played against each other" in printed.err
    with pytest.raises(SystemExit):
        main(["show", str(tmp_path / "weak-seller")])
    assert "(seller)" in capsys.readouterr().out


class Team(Deal):
    """Both seats earn the same."""

    async def run(self, episode: Episode) -> None:
        said = [int((await episode.agents[seat].act(user("?"))).content) for seat in self.seats]
        for seat in self.seats:
            episode.reward("gain", sum(said) / 20, seat)


def test_a_team_is_compared_once(tmp_path: Path) -> None:
    for name, said in (("weak", "2"), ("strong", "4")):
        evaluate_sync(Team(), Scripted([said] * 9), out=tmp_path / name, progress=False)
    both = compare(tmp_path / "weak", tmp_path / "strong")
    assert (both.seat, both.others, both.note) == ("buyer and seller", (), "")
    assert both.difference.value == pytest.approx(0.2)


def test_each_seat_is_chosen_for_training_by_its_own_reward(tmp_path: Path) -> None:
    evaluate_sync(Simulated(), Scripted(adds_to_even), out=tmp_path / "a", progress=False)
    with RunStore.read(tmp_path / "a" / "rollouts.db") as reader:
        rows = list(training_rows(reader, "sft", min_reward=1.0))
        assert len(list(training_rows(reader, "sft", min_reward=0.0))) == 8
    assert [(row["seat"], row["reward"]) for row in rows] == [("seller", 1.0)] * 4
    both = paid(0.0, 1.0)
    for trajectory in both.trajectories:
        trajectory.turns.append(Turn(observation=(user("?"),), action=assistant("!")))
    with RunStore.create(tmp_path / "both.db") as store:
        store.add([Group(task=Task(id="t"), rollouts=[both])], stage="eval", step=0, env="e")
        assert [row["seat"] for row in training_rows(store, "sft", min_reward=1.0)] == ["s1"]


def test_the_gate_judges_the_seat_that_learns() -> None:
    report = check(Simulated())
    assert report.ok, str(report)
    assert {name: one.value for name, one in report.players.items()} == {"honest": 1.0, "oracle": 1.0}
    assert report.probe is not None
    assert (report.probe.oracle.reward.value, report.probe.chance.reward.value) == (1.0, 0.0)


def lenient(messages: Sequence[Message], _rng: Random) -> str:
    """A judge that likes everything."""
    return '{"reason": "fine", "score": 10}'


def test_a_judge_chooses_among_the_seats_that_learn(capsys: pytest.CaptureFixture[str]) -> None:
    here = "test_learning_seats"
    words = ["judge", "gap", f"{here}:Simulated", "--policy", "honest", "--judge", f"{here}:lenient", "--samples", "2"]
    with pytest.raises(SystemExit):
        main([*words, "--json"])
    assert json.loads(capsys.readouterr().out)["ideal"]["value"] == 1.0


def test_siblings_part_where_the_seat_that_learns_does() -> None:
    rollouts = [paid(0.0, 1.0, learns=(False, True)) for _ in range(3)]
    for rollout, said in zip(rollouts, (("a", "same"), ("b", "same"), ("a", "sand")), strict=True):
        for trajectory, text in zip(rollout.trajectories, said, strict=True):
            trajectory.turns.append(Turn(observation=(user("?"),), action=assistant(text)))
    assert first_differences(rollouts) == [None, None, {"turn": 0, "character": 2}]
