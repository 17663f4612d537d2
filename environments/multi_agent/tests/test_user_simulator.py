"""Two seats talk: a clerk finds out the day of a simulated user, and books it."""

import asyncio

from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import check_environment
from wanderlust.types import Status
from wanderlust_multi_agent.user_simulator import UserSimulator

ENV = UserSimulator()
DAY_17 = next(task for task in ENV.tasks() if task.answer == 17)


def play(clerk):
    seats = {"agent": Scripted(clerk), "user": Scripted(lambda messages, rng: "On the 17th, please.")}
    return asyncio.run(rollout(ENV, DAY_17, seats))


def rewards(played):
    return {seat.seat: seat.score.reward for seat in played.trajectories}


def test_a_simulated_user_is_asked_and_booked():
    assert rewards(play(["On which day?", "BOOK 17"])) == {"agent": 1.0, "user": 0.0}


def test_another_day_earns_nothing():
    assert rewards(play(["BOOK 3"]))["agent"] == 0.0
    assert rewards(play(["BOOK"]))["agent"] == 0.0


def test_a_clerk_who_never_books_is_stopped():
    played = play(lambda messages, rng: "On which day?")
    assert (played.status, rewards(played)["agent"]) == (Status.TRUNCATED, 0.0)


def test_the_user_alone_is_told_the_day():
    agent, guest = play(["On which day?", "BOOK 17"]).trajectories
    assert "17" in guest.turns[0].observation[0].content
    assert "17" not in "".join(message.content for message in agent.turns[0].observation)


def test_days_of_evaluation_are_asked_for_nowhere_else():
    train, held_out = ({task.answer for task in ENV.tasks(split)} for split in ("train", "eval"))
    assert held_out == {4, 8, 12, 16, 20, 24, 28}
    assert train == {*range(1, 29)} - held_out


def test_it_keeps_its_promises():
    assert asyncio.run(check_environment(ENV)) == []
