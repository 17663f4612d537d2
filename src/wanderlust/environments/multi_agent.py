"""Two small games with several seats: a simulated user, and a proposer and a solver."""

from __future__ import annotations

import re
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


class ProposerSolver(Environment):
    """One seat sets a sum that the other solves; the proposer earns most when half of the tries are right."""

    seats = ("proposer", "solver")
    limits = Limits(max_turns=4)

    def tasks(self, split: str = "train") -> list[Task]:
        """As many as there are numbers of terms."""
        return [Task(id=f"terms-{n}", info={"terms": n}) for n in range(2, 10)]

    async def run(self, episode: Episode) -> None:
        """A sum, and four tries at it."""
        ask = f"Set a sum of {episode.task.info['terms']} whole numbers, such as 12 + 7."
        set_sum = (await episode.agents["proposer"].act(user(ask))).content[-500:]
        terms = [int(term) for term in re.findall(r"\d{1,6}", set_sum)]
        if len(terms) != episode.task.info["terms"]:
            return
        solve = user(f"What is {' + '.join(map(str, terms))}? End with the number.")
        right = [last_number_in((await episode.agents["solver"].act(solve)).content) == sum(terms) for _ in range(4)]
        share = sum(right) / 4
        episode.reward("learnable", 4 * share * (1 - share), "proposer")
        episode.reward("right", share, "solver")
