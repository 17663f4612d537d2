"""A whole request: its acts in order, then what is watched for, then the report."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wanderlust_life.planner.acts import act_of
from wanderlust_life.planner.answers import answer, note
from wanderlust_life.planner.desk import (
    PATIENCE_SECONDS,
    Desk,
    full_name,
    look_at_clock,
    wait,
    wait_for_answer,
    wait_until,
)
from wanderlust_life.planner.requests import Clause, moment_in, read_request, seconds_in
from wanderlust_life.planner.tools import PlannerPolicy, Steps

HORIZON = 10
"""Calls of one plan: looks, waits and acts."""
SILENCE = re.compile(r"\bno answer\b|\bnot (?:come|answer)|\bnothing\b")
REPORTING = re.compile(r"^(?:me\b|when\b)")


def planner_policy(*, horizon: int = HORIZON) -> PlannerPolicy:
    """The player, whose plan for a request has at most `horizon` calls."""
    return PlannerPolicy(lambda text: plan_of(text, horizon=horizon))


def plan_of(text: str, *, horizon: int = HORIZON) -> Steps[str]:
    """Do what a request asks, and report."""
    desk = Desk(request=read_request(text), horizon=horizon)
    try:
        yield from look_at_clock(desk)
        rules = [one for one in desk.request.clauses if one.condition]
        for clause in desk.request.clauses:
            if not clause.condition:
                yield from do(desk, clause)
        if rules:
            yield from watch(desk, rules)
        return report(desk)
    except (LookupError, TypeError, ValueError, AttributeError):  # CannotDo, or records of another form than expected
        return "I could not do that."


def do(desk: Desk, clause: Clause) -> Steps[None]:
    """Do what one clause asks; what it says is taken in."""
    if clause.verb == "tell" and REPORTING.match(clause.rest):
        return
    act = act_of(clause)
    if act is not None:
        yield from act(desk, clause)
    elif clause.verb == "question":
        if not desk.facts and not desk.learnt:
            yield from answer(desk, clause.rest)
    elif not clause.verb:
        yield from note(desk, clause.rest)


def watch(desk: Desk, rules: Sequence[Clause]) -> Steps[None]:
    """Wait for what the conditions speak of, and do once what follows."""
    if any("cancel" in one.condition for one in rules):
        yield from _watch_for_cancellation(desk, rules)
        return
    silent = [one for one in rules if SILENCE.search(one.condition)]
    patience = next(filter(None, (seconds_in(one.condition) for one in silent)), PATIENCE_SECONDS)
    people = [desk.awaited] if desk.awaited else desk.asked[-1:]
    text = yield from wait_for_answer(desk, people, patience)
    if not text:
        for rule in silent:
            yield from do(desk, rule)
        names = [full_name(one) for one in desk.asked[-1:]]
        desk.learnt.append(f"Nothing came, so I have asked {names[0]}." if names else "Nothing came.")
        return
    desk.moment = moment_in(text, desk.now) or moment_in(desk.text, desk.now)
    followed = [one for one in rules if one not in silent and act_of(one) is not None]
    for rule in followed:
        yield from do(desk, rule)
    if not followed:
        desk.learnt.append(f"{people[0]['first_name']} says: {text}")
    if "nothing has come" in desk.request.text:
        yield from wait_until(desk, desk.now + PATIENCE_SECONDS)


def _watch_for_cancellation(desk: Desk, rules: Sequence[Clause]) -> Steps[None]:
    patience = seconds_in(desk.request.text) or PATIENCE_SECONDS
    end, followed = desk.now + patience, False
    while desk.now < end:
        notices = yield from wait(desk, end - desk.now)
        if not followed and any("cancel" in one.text.lower() for one in notices):
            followed, end = True, desk.now + patience
            for rule in rules:
                yield from do(desk, rule)


def report(desk: Desk) -> str:
    """What was found out, and of the figures those that the request asks for."""
    text, told = desk.request.text, list(desk.learnt)
    if "count" in desk.facts and re.search(r"\bhow many\b", text, re.IGNORECASE):
        told.append(f"There were {desk.facts['count']}.")
    if "colour" in desk.facts and "colour" in text.replace("same colour", ""):
        told.append(f"It is {desk.facts['colour']}.")
    if "sum" in desk.facts and re.search(r"\b(?:costs?|come to|price|paid|total)\b", text):
        told.append(f"In total {desk.facts['sum']}.")
    return " ".join(told) or "It is done."
