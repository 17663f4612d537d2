"""The reward of life reads what was written: wrong texts are rejected and right ones pass, in every family.

Texts are by hand (`life_texts.toml`), or made from the oracle's own by changes of the values in them.
"""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import chain, combinations
from pathlib import Path

import pytest
from msgspec import structs

from wanderlust.policies.scripted import Scripted
from wanderlust_life.assistant_life import AssistantLife, scenario_of
from wanderlust_life.families.family import all_families
from wanderlust_life.universes.text_templates import format_day, format_price, format_time_of_day
from wanderlust_worlds.engine.log import LogEntry
from wanderlust_worlds.engine.scenario import Scenario, play_oracle
from wanderlust_worlds.verification.facts import (
    Amount,
    AnswerFacts,
    AnyOf,
    ClockTime,
    Count,
    Day,
    Pairs,
    PlacesOnDays,
    Quote,
    Says,
)
from wanderlust_worlds.verification.grading import FactGrader

FAMILIES = tuple(all_families())
SETS = {"": "eval-0/2", "_fifth": "eval-7/2", "_sixth": "eval-11/2", "_seventh": "eval-13/1"}
"""Files of texts by hand, and the scenario that they are about unless they name one."""
BY_HAND = [
    {"scenario": scenario} | one
    for file, scenario in SETS.items()
    for one in tomllib.loads((Path(__file__).parent / f"life_texts{file}.toml").read_text("utf-8"))["texts"]
]
MAX_WRONG_ACCEPTED, MAX_RIGHT_REJECTED = 0.01, 0.05


@cache
def played(name: str) -> tuple[Scenario, Sequence[LogEntry], FactGrader]:
    scenario = scenario_of(name)
    return scenario, tuple(play_oracle(scenario).log), FactGrader(scenario)


def accepts(name: str, act: str, **written: object) -> bool:
    """Whether the oracle's log is accepted with something else written in one act."""
    _, log, grader = played(name)
    assert any(line.event == act for line in log), (name, act)
    return grader.verdict(
        [structs.replace(line, args={**line.args, **written}) if line.event == act else line for line in log]
    ).accepted


def test_texts_by_hand_are_judged_as_people_would():
    right = wrong = 0
    faults = {True: [], False: []}
    for one in BY_HAND:
        for text, is_right in [*((t, True) for t in one["right"]), *((t, False) for t in one["wrong"])]:
            right, wrong = right + is_right, wrong + (not is_right)
            if accepts(f"{one['family']}/{one['scenario']}", one["act"], **{one["argument"]: text}) is not is_right:
                faults[is_right].append((one["family"], one["act"], text))
    assert {one["family"] for one in BY_HAND} == set(FAMILIES)
    assert (right > 500, wrong > 800) == (True, True)
    assert len(faults[False]) <= MAX_WRONG_ACCEPTED * wrong, faults[False]
    assert len(faults[True]) <= MAX_RIGHT_REJECTED * right, faults[True]


# Texts made from the oracle's


def day_texts(fact: Day, text: str) -> Iterator[tuple[str, bool]]:
    """The same day in other notations, and other days in the same one."""
    written = format_day(fact.at)
    if text.count(written) != 1:
        return
    at = datetime.fromtimestamp(fact.at, tz=UTC)
    same = [f"{at:%Y-%m-%d}", f"{at.day}/{at.month}/{at.year}", f"{at:%B} {at.day}, {at.year}", f"{at.day}. {at:%B}"]
    yield from ((text.replace(written, way), True) for way in (*same, f"{at:%a}, {at:%b} {at.day}"))
    for days in (7, 1, -7, 28):
        yield text.replace(written, format_day(fact.at + 86_400 * days)), False
    yield text.replace(written, f"{written} or {format_day(fact.at + 86_400)}"), False
    if fact.needed:
        yield text.replace(written, "some day"), False


def clock_texts(fact: ClockTime, text: str) -> Iterator[tuple[str, bool]]:
    """The same time in other notations, and other times in the same one."""
    written = format_time_of_day(fact.at)
    if text.count(written) != 1:
        return
    at = datetime.fromtimestamp(fact.at, tz=UTC)
    half = "am" if at.hour < 12 else "pm"
    yield from (
        (text.replace(written, way), True)
        for way in (f"{at.hour % 12 or 12}:{at:%M} {half}", f"{at.hour % 12 or 12}:{at:%M}{half[0]}.m.", f"{at:%Hh%M}")
    )
    yield from (
        (text.replace(written, format_time_of_day(fact.at + seconds)), False) for seconds in (3_600, -1_800, 43_200)
    )


def amount_texts(fact: Amount, text: str) -> Iterator[tuple[str, bool]]:
    """The same amount in other notations, and others."""
    written = format_price(fact.value)
    if text.count(written) != 1 or fact.near:
        return
    euros, cents = divmod(round(fact.value * 100), 100)
    ways = [
        f"\u20ac{fact.value:.2f}",
        f"EUR {fact.value:,.2f}",
        f"{euros},{cents:02d} \u20ac",
        f"{fact.value:.2f} euros",
    ]
    if cents:
        ways.append(f"{euros} euros and {cents} cents")
    yield from ((text.replace(written, way), True) for way in ways)
    for other in (fact.value + 1, fact.value * 10, fact.value + 0.1, max(fact.value - 10, 0.5)):
        yield text.replace(written, format_price(other)), False
        yield text.replace(written, f"{written} or {format_price(other)}"), False
    yield text.replace(written, ", ".join(format_price(fact.value + n) for n in range(-3, 4))), False


def count_texts(fact: Count, text: str) -> Iterator[tuple[str, bool]]:
    """Other numbers, and lists of them."""
    if text.count(str(fact.value)) == 1:
        yield from ((text.replace(str(fact.value), str(fact.value + n)), False) for n in (1, 2, 10, 100))
        yield text.replace(str(fact.value), f"{fact.value} or {fact.value + 1}"), False


def pairs_texts(fact: Pairs, text: str) -> Iterator[tuple[str, bool]]:
    """The pairs in other orders and forms, and with things given to others."""
    pairs = [(who[0], what[0]) for who, what in fact.pairs]
    yield ", ".join(f"{who} brings {what}" for who, what in pairs[::-1]), True
    yield "\n".join(f"{what} ({who})" for who, what in pairs), True
    yield "; ".join(f"{what} comes from {who}" for who, what in pairs), True
    for n in range(1, len(pairs)):
        things = [what for _, what in pairs]
        moved = list(zip([who for who, _ in pairs], things[n:] + things[:n], strict=True))
        if set(moved) != set(pairs):
            yield "\n".join(f"{who}: {what}" for who, what in moved), False
    if len(pairs) > 1:
        yield "\n".join(f"{who}: {what}" for who, what in pairs[1:]), False
        everything = ", ".join(what for _, what in pairs)
        yield "\n".join(f"{who}: {everything}" for who, _ in pairs), len({what for _, what in pairs}) == 1


def says_texts(fact: Says, text: str) -> Iterator[tuple[str, bool]]:
    """Another answer in the place of the right one, and all of them together."""
    way, others = fact.ways[0], [one for one in fact.rivals if " " in one]
    if not fact.literal and text.count(way) == 1 and others:
        yield from ((text.replace(way, other), False) for other in others[:3])
        yield text.replace(way, f"{', '.join(others)} or {way}"), False
        yield text.replace(way, f"{way}, {', '.join(others)}"), False


def places_texts(fact: PlacesOnDays, text: str) -> Iterator[tuple[str, bool]]:
    """Two places with each other's day, and in another order."""
    (_, first), (_, second) = fact.pairs
    if text.count(first[0]) == text.count(second[0]) == 1:
        yield text.replace(first[0], "@").replace(second[0], first[0]).replace("@", second[0]), False
        days = [format_day(at) for at, _ in fact.pairs]
        yield f"Is it {second[0]} on {days[1]} or {first[0]} on {days[0]}?", True


CHANGES: dict[type, Callable[..., Iterator[tuple[str, bool]]]] = {
    Day: day_texts,
    ClockTime: clock_texts,
    Amount: amount_texts,
    Count: count_texts,
    Pairs: pairs_texts,
    Says: says_texts,
    PlacesOnDays: places_texts,
    AnyOf: lambda fact, text: iter(()),
    Quote: lambda fact, text: iter([(text.rstrip("!?."), True), (text.replace("I", "He", 1) + " Not.", False)]),
}
GENERIC_QUESTIONS = ("Which one?", "Can I help you?", "What do you mean?", "Shall I go on?", "?")


def texts_of(facts: AnswerFacts, text: str) -> Iterator[tuple[str, bool]]:
    """Texts that are right or wrong in the place of an oracle's."""
    yield from chain.from_iterable(CHANGES[type(fact)](fact, text) for fact in facts.facts)
    if facts.mode != "any":
        yield from (("ok" if text != "ok" else "", False), ("Hello there.", False), (". . .", False))
    if facts.mode == "asks":
        yield from ((question, False) for question in GENERIC_QUESTIONS)
    if facts.facts and not any(isinstance(fact, Quote) for fact in facts.facts):
        yield f"  {text}\n", True
        yield f"Hello. {text} Best regards.", True
        yield text.replace(" ", "  ").upper(), True
        yield f"It is not true that {text[0].lower()}{text[1:]}", False
        if facts.mode == "reports":
            *before, last = text.split(". ")
            yield ". ".join([*before, f"Perhaps {last[0].lower()}{last[1:]}"]), False


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_made_from_the_oracles_are_judged_by_their_values(family):
    made, faults = 0, []
    for name in (f"{family}/eval-{seed}/{level}" for seed in (0, 1) for level in (1, 2)):
        scenario, _, grader = played(name)
        for act in scenario.oracle:
            for argument, facts in grader.facts.get(act.id, {}).items():
                text = act.args.get(argument)
                for changed, is_right in texts_of(facts, text) if isinstance(text, str) else ():
                    made += 1
                    if accepts(name, act.id, **{argument: changed}) is not is_right:
                        faults.append((name, act.id, is_right, changed))
    assert made >= 8
    assert faults == []


def test_a_right_value_in_a_wrong_field_is_wrong():
    number = {"phone": "+1 555 0190 7264"}
    assert accepts("new-number/eval-0/2", "2-edit_contact", updates={"phone": "+1-555-0190-7264"})
    assert accepts("new-number/eval-0/2", "2-edit_contact", updates={"phone": "+155501907264"})
    for fields in ({"address": number["phone"]}, {**number, "address": "x"}, {"phone": "5", "job": number["phone"]}):
        assert not accepts("new-number/eval-0/2", "2-edit_contact", updates=fields)
    title, place = {"title": "Quality report"}, {"location": "room 7.29"}
    assert not accepts("invite/eval-0/2", "2-add_calendar_event", title=place["location"], location=title["title"])


# Other tools with equal effect, other orders


def test_an_answer_and_a_mail_with_re_are_the_same():
    scenario, log, grader = played("thank-them/eval-0/2")
    mails = next(app for app in scenario.apps if app.name == "Emails").inbox
    act = next(act for act in scenario.oracle if act.action == "reply_to_email")
    mail = mails[act.args["email_id"]]

    def sent(to: str, subject: str, content: str = "Many thanks!") -> bool:
        args = {"recipients": [to], "subject": subject, "content": content, "cc": None, "attachment_paths": None}
        return grader.verdict(
            [structs.replace(h, action="send_email", args=args) if h.event == act.id else h for h in log]
        ).accepted

    assert sent(mail.sender, f"Re: {mail.subject}")
    assert sent(mail.sender, f"RE: {mail.subject}")
    assert not sent(mail.sender, "Hello")
    assert not sent("who@else.example", f"Re: {mail.subject}")
    assert not sent(mail.sender, f"Re: {mail.subject}", "No thanks.")


def test_a_mail_can_be_an_answer():
    scenario, log, grader = played("pass-on/eval-0/2")
    act = next(act for act in scenario.oracle if act.action == "send_email")
    mails = next(app for app in scenario.apps if app.name == "Emails").inbox.values()
    earlier = next((mail for mail in mails if [mail.sender] == act.args["recipients"]), None)
    other = next(mail for mail in mails if [mail.sender] != act.args["recipients"])

    def answered(email_id: str) -> bool:
        args = {"email_id": email_id, "folder_name": "INBOX", "content": act.args["content"], "attachment_paths": None}
        return grader.verdict(
            [structs.replace(h, action="reply_to_email", args=args) if h.event == act.id else h for h in log]
        ).accepted

    assert earlier is None or answered(earlier.email_id)
    assert not answered(other.email_id)


@pytest.mark.parametrize("family", ["invite", "clear-scans", "forward-invoices", "go-between", "thank-them"])
def test_acts_in_another_order_pass(family):
    scenario, _, grader = played(f"{family}/eval-0/2")
    world = scenario.world(gate=grader)
    world.wait()
    last = scenario.oracle[-1]
    for act in (*reversed(scenario.oracle[:-1]), last):
        world.call(act.app, act.action, act.args)
    assert grader.verdict(world.log).accepted
    assert world.done.keys() >= {act.id for act in scenario.oracle}


def test_what_waits_for_an_act_is_let_go_by_matching_and_facts():
    """The friend answers the question once it was asked, and not what only looks like it."""
    scenario, _, grader = played("ask-around/eval-0/2")
    ask = next(act for act in scenario.oracle if act.action == "send_message")
    for text, is_right in (("Nobody needs a camping chair on Saturday.", False), (ask.args["content"], True)):
        world = scenario.world(gate=grader)
        world.wait()
        world.call(ask.app, ask.action, {**ask.args, "content": text})
        world.advance(300)
        answers = [line for line in world.log if line.app == "Chats" and line.by == "env"]
        assert (len(answers) == 1, ask.id in world.done) == (is_right, is_right)


# What earned without work


def wins(text: str, name: str) -> bool:
    scenario, _, grader = played(name)
    world = scenario.world(gate=grader)
    world.wait()
    world.call("AgentUserInterface", "send_message_to_user", {"content": text})
    return grader.verdict(world.log).accepted


BOTH_OUTCOMES = (
    "It cannot be cancelled if it has been delivered; otherwise it is cancelled.",
    "Either it was cancelled, or it has been delivered already and cannot be cancelled.",
    "The order may have been delivered and cannot be cancelled, or it was cancelled.",
    "It cannot be cancelled: it has been delivered already.",
    "I could not cancel it, because it was delivered. You paid 52.30 EUR for it.",
)


@pytest.mark.parametrize("text", BOTH_OUTCOMES)
def test_a_sentence_with_both_outcomes_earns_nothing(text):
    assert sum(wins(text, f"too-late/eval-{seed}/{level}") for seed in range(20) for level in (1, 2, 3)) <= 2


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_right_elsewhere_earns_nothing_here(family):
    """The last words of other tasks' oracles, word for word and without a look at anything."""
    words = [played(f"{family}/train-{seed}/1")[0].oracle[-1].args.get("content", "") for seed in range(6)]
    won = {text: sum(wins(text, f"{family}/eval-{seed}/1") for seed in range(10)) for text in dict.fromkeys(words)}
    assert max(won.values()) <= 1, won


def test_all_sums_of_the_rides_earn_nothing():
    won = 0
    for seed, level in ((seed, level) for seed in range(20) for level in (1, 2, 3)):
        scenario, _, _ = played(f"spent-on-rides/eval-{seed}/{level}")
        place = scenario.events[0].args["content"].partition("rides to ")[2].partition(" in all")[0]
        place = place.partition(" altogether")[0]
        rides = next(app for app in scenario.apps if app.name == "Cabs").ride_history.values()
        prices = [ride.price for ride in rides if (ride.end_location or "").startswith(place)]
        sums = sorted({round(sum(some), 2) for n in range(1, len(prices) + 1) for some in combinations(prices, n)})
        won += wins(", ".join(f"{one:.2f} EUR" for one in sums[:90]), scenario.id)
    assert won <= 2


# A judge beside the facts


def judged(env: AssistantLife, name: str) -> tuple[bool, int]:
    scenario, log, grader = played(name)
    assert env.judge is not None
    other = [
        structs.replace(line, args={"content": f"Hello. {line.args['content']}"})
        if line.action == "send_message_to_user"
        else line
        for line in log
    ]
    verdict = asyncio.run(grader.judged_verdict(other, env.judge))
    assert scenario.id == name
    return verdict.accepted, len(verdict.answers)


def test_a_judge_can_reject_what_the_facts_accept_and_not_the_other_way():
    yes, no = (Scripted([f'{{"same": {said}}}'] * 20) for said in ("true", "false"))
    assert judged(AssistantLife(judge=yes), "who-said/eval-0/2") == (True, 1)
    assert judged(AssistantLife(judge=no), "who-said/eval-0/2") == (False, 1)
    _, log, grader = played("who-said/eval-0/2")
    wrong = [
        structs.replace(line, args={"content": "Nobody."}) if line.action == "send_message_to_user" else line
        for line in log
    ]
    assert not asyncio.run(grader.judged_verdict(wrong, yes)).accepted
