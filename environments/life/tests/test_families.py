"""Families of scenarios: the oracle passes, nothing and near misses do not, facts decide as people would."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from wanderlust.errors import UsageError
from wanderlust_life.families.family import LEVELS, Difficulty, all_families
from wanderlust_life.universes.generate import make_universe
from wanderlust_worlds.engine.events import PlannedCall
from wanderlust_worlds.engine.log import log_bytes
from wanderlust_worlds.engine.scenario import play_oracle
from wanderlust_worlds.verification.facts import Amount, AnswerFacts, ClockTime, Day, Says, describe_facts
from wanderlust_worlds.verification.grading import FactGrader, missing_facts

FAMILIES = all_families()
NOON = 1_777_809_600.0  # Sunday, 3 May 2026, 12:00 UTC


def test_there_are_enough_families_of_each_capability():
    counts = Counter(one.capability for one in FAMILIES.values())
    assert len(FAMILIES) >= 20
    for capability in ("execution", "search", "adaptability", "time", "ambiguity"):
        assert counts[capability] >= 3
    assert counts["noise"] >= 1
    assert counts["agent2agent"] >= 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.proof("seeds")) for seed in (1, 2))])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_oracle_passes_and_nothing_does_not(name, seed):
    for level, knobs in LEVELS.items():
        for split in ("train", "held"):
            scenario = FAMILIES[name].scenario(seed, knobs, split=split)
            assert missing_facts(scenario) == []
            grader = FactGrader(scenario)
            verdict = grader.verdict(play_oracle(scenario).log)
            assert verdict.accepted, (level, split, seed, str(verdict))
            idle = scenario.world(gate=grader)
            idle.wait()
            idle.wait()
            assert not grader.verdict(idle.log).accepted


@pytest.mark.parametrize("name", FAMILIES)
def test_leaving_out_any_act_is_rejected(name):
    scenario = FAMILIES[name].scenario(1, LEVELS[2])
    log = play_oracle(scenario).log
    grader = FactGrader(scenario)
    for act in scenario.oracle:
        assert not grader.verdict([line for line in log if line.event != act.id]).accepted, act.id


@pytest.mark.parametrize("name", FAMILIES)
def test_the_last_words_must_not_be_empty_or_endless(name):
    scenario = FAMILIES[name].scenario(2, LEVELS[1])
    log, grader = list(play_oracle(scenario).log), FactGrader(scenario)
    for said in ("", "yes " * 1_000):
        changed = [
            structs.replace(line, args={"content": said}) if line.action == "send_message_to_user" else line
            for line in log
        ]
        assert not grader.verdict(changed).accepted


def test_equal_seeds_make_equal_scenarios_and_others_do_not():
    for one in FAMILIES.values():
        first, again, other = (one.scenario(seed, LEVELS[1]) for seed in (5, 5, 6))
        assert log_bytes(play_oracle(first).log) == log_bytes(play_oracle(again).log)
        assert first.events == again.events
        assert first.events != other.events


def test_scenarios_leave_their_universe_alone():
    before = {name: repr(app.state()) for name, app in make_universe(0, "small").apps.items()}
    for one in FAMILIES.values():
        play_oracle(one.scenario(0, LEVELS[1]))
    assert {name: repr(app.state()) for name, app in make_universe(0, "small").apps.items()} == before


def test_more_steps_are_more_to_do():
    few, many = (
        sum(len(one.scenario(1, Difficulty(steps=n, decoys=1, size="medium")).oracle) for one in FAMILIES.values())
        for n in (1, 4)
    )
    assert many > 1.3 * few


def test_decoys_are_there():
    few, many = (FAMILIES["forward-invoices"].scenario(3, Difficulty(steps=1, decoys=n, size="small")) for n in (0, 6))
    sizes = [len(next(app for app in one.apps if app.name == "Emails").inbox) for one in (few, many)]
    assert sizes[1] - sizes[0] == 12


def test_an_accomplice_of_the_wrong_name_is_rejected():
    scenario = FAMILIES["two-of-a-name"].scenario(4, LEVELS[1])
    mail = next(act for act in scenario.oracle if act.action == "send_email")
    contacts = next(app for app in scenario.apps if app.name == "Contacts").contacts.values()
    first = next(one.first_name for one in contacts if [one.email] == mail.args["recipients"])
    wrong = next(one.email for one in contacts if one.first_name == first and [one.email] != mail.args["recipients"])
    world = scenario.world(gate=FactGrader(scenario))
    world.wait()
    world.call("AgentUserInterface", "send_message_to_user", {"content": "Which one?"})
    world.wait()
    world.call("Emails", "send_email", {**mail.args, "recipients": [wrong]})
    world.call("AgentUserInterface", "send_message_to_user", {"content": "Sent."})
    verdict = FactGrader(scenario).verdict(world.log)
    assert not verdict.accepted
    assert verdict.extra


def test_other_words_are_accepted():
    scenario = FAMILIES["spent-on-rides"].scenario(2, LEVELS[1])
    (act,) = scenario.oracle
    (amount,) = FactGrader(scenario).facts[act.id]["content"].facts
    sum_ = f"{amount.value:.2f}"
    for said, right in ((f"You have paid **€{sum_}** for these rides.", True), (f"It is 1{sum_}.", False)):
        world = scenario.world(gate=FactGrader(scenario))
        world.wait()
        world.call("AgentUserInterface", "send_message_to_user", {"content": said})
        assert FactGrader(scenario).verdict(world.log).accepted is right


def test_too_early_and_too_late_are_rejected():
    scenario = FAMILIES["countdown"].scenario(1, LEVELS[1])
    first, second, *_ = scenario.oracle
    for wait, right in ((second.delay, True), (second.delay - 40, False), (second.delay + 100, False)):
        world = scenario.world(gate=FactGrader(scenario))
        world.wait()
        world.call(first.app, first.action, first.args)
        world.advance(wait)
        world.call(second.app, second.action, second.args)
        for act in scenario.oracle[2:]:
            if act.action != "send_message_to_user":
                world.advance(act.delay)
            world.call(act.app, act.action, act.args)
        assert FactGrader(scenario).verdict(world.log).accepted is right, wait


def test_noise_fails_calls_renames_tools_and_sends_mails():
    scenario = FAMILIES["pass-on"].scenario(1, LEVELS[3])
    assert scenario.failures > 0
    assert scenario.names
    assert any(isinstance(event, PlannedCall) and event.id.startswith("env_expansion") for event in scenario.events)


# Facts


def test_facts_know_days_times_and_prices():
    moment = AnswerFacts(facts=(Day(at=NOON, since=NOON), ClockTime(at=NOON)))
    for right in (
        "On May 3rd, at 12 pm.",
        "sunday at 12:00",
        "3/5/2026, noon",
        "2026-05-03T12:00",
        "3rd of May, 12h00",
    ):
        assert moment.hold_for(right), right
    for wrong in ("Monday at 12:00", "On May 3rd, at 12 am.", "3 May or 4 May at 12:00", "Sunday, 10 May at 12:00"):
        assert not moment.hold_for(wrong), wrong
    assert not AnswerFacts(facts=(Day(at=NOON, since=NOON - 8 * 86_400),)).hold_for("on Sunday")

    def amount(value, text):
        return AnswerFacts(facts=(Amount(value=value),)).hold_for(text)

    assert amount(1234.5, "1,234.50 EUR")
    assert amount(1234.5, "EUR 1234.5.")
    assert amount(1234.5, "1.234,50 \u20ac")
    assert amount(1234.5, "1234 euros and 50 cents")
    assert amount(34.0, "thirty-four euros")
    assert amount(34.0, "34 EUR")
    assert not amount(34.5, "1,234.50 EUR")
    assert not amount(34.0, "34.07")
    assert not amount(34.0, "33, 34 or 35 EUR")
    assert not amount(34.0, "not 34 EUR")


def test_facts_read_whole_words():
    def says(way, text, **rest):
        return AnswerFacts(facts=(Says(ways=(way,)),), **rest).hold_for(text)

    assert says("Ana Lind", "It was **ana  lind**.")
    assert not says("Ana Lind", "It was Diana Lindberg.")
    assert not says("Ana", "Ana, or Bela", never=("Bela",))
    assert not says("Ana", "It was not Ana.")
    assert not says("Ana", "Perhaps Ana.")
    assert says("Ana", "It was not Bela but Ana.")
    assert AnswerFacts(fields={"phone": "555 01 23 45"}).hold_for({"phone": "555-012345", "email": None})
    assert not AnswerFacts(fields={"phone": "555 01 23 45"}).hold_for({"address": "555 01 23 45"})
    assert list(describe_facts(AnswerFacts(facts=(Says(ways=("a", "b", "c")),), never=("d",)))) == [
        "'a' or 'b' or ...",
        "never 'd'",
    ]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.text(min_size=1, max_size=20))
def test_any_text_can_be_looked_at(text, way):
    assert AnswerFacts(facts=(Says(ways=(way,)), Day(at=NOON), ClockTime(at=NOON), Amount(value=3))).hold_for(text) in (
        True,
        False,
    )


def test_families_can_be_told_in_another_universe():
    other = make_universe(77, "small")
    made = FAMILIES["who-said"].scenario(0, LEVELS[1], within=other)
    assert made.start == other.start


def test_a_universe_without_the_people_is_refused():
    whole = make_universe(0)
    few = {key: one for key, one in whole.people.items() if one.tie in ("user", "friend")}
    with pytest.raises(UsageError, match="nobody left among colleague"):
        FAMILIES["ask-around"].scenario(0, LEVELS[1], within=replace(whole, people=few))


def test_the_card_lists_every_family():
    page = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    for one in FAMILIES.values():
        assert f"| `{one.name}` | {one.capability} | {one.asks} | {one.hard} |" in page


def test_words_within_a_name_take_nothing_back():
    facts = AnswerFacts(facts=(Says(ways=("lunch",)), Says(ways=("The Broken Bicycle",))), is_plain=True)
    assert facts.hold_for("The lunch is at noon, at The Broken Bicycle.")
    assert not facts.hold_for("The lunch was at The Broken Bicycle, and the table was broken.")
