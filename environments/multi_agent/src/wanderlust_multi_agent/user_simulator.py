"""A small game with two seats: a simulated user whose wish comes out bit by bit."""

from __future__ import annotations

from fractions import Fraction

from wanderlust.environment import Environment, Episode, Limits
from wanderlust.rubrics.parsing import last_number, parse_number
from wanderlust.types import Task, system, user


def last_number_in(text: str) -> Fraction | None:
    """The last number in a text."""
    return parse_number(last_number(text) or "")


class UserSimulator(Environment):
    """A clerk must find out when a simulated user wants to travel, and book it; the user answers questions."""

    seats = ("agent", "user")
    limits = Limits(max_turns=8)

    def tasks(self, split: str = "train") -> list[Task]:
        """A day of the month each; every fourth one is asked for in `eval` alone."""
        days = [day for day in range(1, 29) if (day % 4 == 0) == (split == "eval")]
        return [Task(id=f"day-{day}", answer=day) for day in days]

    async def run(self, episode: Episode) -> None:
        """Talk until the clerk books a day."""
        clerk, guest = episode.agents["agent"], episode.agents["user"]
        rules = system(
            "You sell tickets. Ask your guest for the day. When you know it, say: BOOK and the day's number."
        )
        wish = system(f"You want to travel on day {episode.task.answer}. Answer the clerk in a few words.")
        clerk_message = await clerk.act(rules, user("Hello, I need a ticket."))
        while "BOOK" not in clerk_message.content:
            guest_message = await guest.act(*(() if guest.trajectory.turns else (wish,)), user(clerk_message.content))
            clerk_message = await clerk.act(user(guest_message.content))
        episode.reward(
            "booked", float(last_number_in(clerk_message.content.rpartition("BOOK")[2]) == episode.task.answer)
        )
