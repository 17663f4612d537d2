"""Lived universes: the same everywhere, in agreement with their ledger of facts, and tasks that only it could prove."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from hashlib import sha256
from random import Random

import pytest
from msgspec.structs import replace

from universe_answers import answers_of
from universe_faults import FAULTS, with_fault
from universe_search import best_search, request_of
from wanderlust import rollout
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust_life.assistant_life import AssistantLife, scenario_of
from wanderlust_life.families.family import LEVELS
from wanderlust_life.lived.consistency import find_inconsistencies
from wanderlust_life.lived.facts_ledger import ATTRIBUTE_TYPES
from wanderlust_life.lived.lived_families import lived_families
from wanderlust_life.lived.lived_universe import HAPPENINGS, make_lived_universe, with_own_numbers
from wanderlust_life.lived.queries import Condition, Find, LedgerView
from wanderlust_life.lived.question_words import KINDS, WORDS
from wanderlust_life.lived.questions import (
    FEWEST_ALIKE,
    NUMEROUS_TIES,
    RARE_RECORDS,
    QuestionFinder,
    records_and_words,
    small_words,
    traits_of,
)
from wanderlust_life.lived.request_texts import chain_of, person_words, request_text
from wanderlust_life.lived.wide_names import UNFIT, dictionary_words
from wanderlust_life.universes.generate import make_universe
from wanderlust_worlds.verification.grading import FactGrader, missing_facts

pytest.importorskip("faker", reason="not installed: pip install 'wanderlust[locales]'")


def text_of(found):
    return json.dumps({name: app.state() for name, app in found.apps.items()}, sort_keys=True)


# A universe that happened


@pytest.mark.parametrize("split", ["train", "held"])
def test_a_life_agrees_with_its_ledger(split):
    for seed in range(12):
        assert find_inconsistencies(make_lived_universe(seed, "small", split)) == [], seed


@pytest.mark.parametrize("size", ["medium", pytest.param("gaia2", marks=pytest.mark.proof("seeds"))])
def test_a_larger_life_agrees_with_its_ledger(size):
    assert find_inconsistencies(make_lived_universe(0, size)) == []


@pytest.mark.parametrize("kind", FAULTS)
def test_a_planted_fault_is_found(kind):
    assert find_inconsistencies(with_fault(make_lived_universe(3), kind, 0))


def test_a_planted_fault_leaves_the_universe_itself_as_it_was():
    before = text_of(make_lived_universe(3))
    for kind in FAULTS:
        with_fault(make_lived_universe(3), kind, 1)
    assert text_of(make_lived_universe(3)) == before


def test_a_life_is_the_same_in_every_process():
    program = (
        "import json, hashlib; from wanderlust_life.lived.lived_universe import make_lived_universe;"
        "u = make_lived_universe(7); t = json.dumps({n: a.state() for n, a in u.apps.items()}, sort_keys=True);"
        "print(hashlib.sha256(t.encode()).hexdigest())"
    )
    here = sha256(text_of(make_lived_universe(7)).encode()).hexdigest()
    for hashing in ("0", "12345"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hashing},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == here


def test_two_people_of_one_phone_number_get_different_ones():
    first, second, *_ = make_lived_universe(0).people.values()
    people = {"a": first, "b": replace(second, phone=first.phone), "c": second}
    own = with_own_numbers(people)
    assert own["a"] == first
    assert own["c"] == second
    assert own["b"].phone != first.phone
    assert own["b"].phone[:-4] == first.phone[:-4]


def test_every_kind_of_happening_is_in_a_life_of_middle_size():
    kinds = set(make_lived_universe(0, "medium").ledger.by_kind)
    assert len(HAPPENINGS) == len(kinds - {"person", "ride", "bill"})


def test_every_answer_in_a_dialogue_names_what_was_asked():
    found = make_lived_universe(0, "medium")
    assert len(found.ledger.turns) > 300
    records, _ = records_and_words(found)
    for turn in found.ledger.turns:
        asked, answer = records[turn.question], records[turn.answer]
        assert turn.about.casefold() in asked.text.casefold()
        assert turn.about.casefold() in answer.text.casefold()


def test_letters_have_words_of_a_dictionary():
    words = dictionary_words()
    assert not UNFIT & {word for some in words.values() for word in some}
    records, counts = records_and_words(make_lived_universe(0, "medium"))
    assert sum(counts[noun] > 0 for noun in words["noun"]) > 200
    assert any("language class" in one.text for one in records.values())


def test_every_kind_of_which_questions_are_asked_has_words():
    kinds = {kind for kind, _ in WORDS} - {"person"}
    assert kinds == KINDS.keys()


def test_lives_of_the_two_splits_share_no_names():
    names = [
        {one.name for seed in range(3) for one in make_lived_universe(seed, "small", split).people.values()}
        for split in ("train", "held")
    ]
    assert names[0] & names[1] == {"City Cabs"}


def test_there_are_mails_with_answers_copies_and_attachments():
    mails = make_lived_universe(0).life.mail
    both = [*mails.inbox.values(), *mails.sent.values()]
    for what in ("parent_id", "cc", "attachments"):
        assert sum(bool(getattr(one, what)) for one in both) > 3, what
    assert any(one.subject.startswith("Fwd: ") for one in both)


# Questions about what happened


@pytest.fixture(scope="module")
def questions():
    universe = make_lived_universe(0, "medium")
    asked = [(kind, attribute) for (kind, attribute), words in WORDS.items() if words.asks]
    found = [
        QuestionFinder(universe, Random(f"{kind} {attribute}")).question(kind, attribute, joins=2)
        for kind, attribute in asked
    ]
    return universe, [one for one in found if one is not None]


def test_a_question_has_one_answer_that_follows_from_the_ledger(questions):
    universe, found = questions
    view = LedgerView(ledger=universe.ledger)
    assert len(found) > 60
    for one in found:
        assert view.find(one.query) == [one.happening]
        assert view.answer(one.query, one.attribute) == one.answer


def test_without_any_record_that_is_needed_the_answer_does_not_follow(questions):
    universe, found = questions
    for one in found:
        assert len(one.needed) >= 2
        for record in one.needed:
            view = LedgerView(ledger=universe.ledger, lost=frozenset({record}))
            assert view.answer(one.query, one.attribute) != one.answer, (one.messages, record)


def test_questions_need_joins_and_name_no_rare_word_of_a_needed_record(questions):
    universe, found = questions
    records, counts = records_and_words(universe)
    most = min(RARE_RECORDS, max(2, len(records) // 300))
    for one in found:
        assert one.query.joins >= 1
        rare = {word for word in small_words(one.text.story) if counts[word] <= most}
        assert not any(rare & small_words(records[name].text) for name in one.needed), one.messages
    assert sum(one.query.joins == 2 for one in found) > 50
    assert len({app for one in found for app in one.apps}) >= 4


def test_a_request_names_nobody_and_describes_nobody_by_what_few_people_have_in_common(questions):
    universe, found = questions
    names = [one.name for one in universe.people.values() if one.last]
    described = [part.who for one in found for step in chain_of(one.query) for part in step.conditions if part.who]
    for one in found:
        assert not [name for name in names if name in " ".join(one.messages)], one.messages
    assert len(described) > 20
    for who in described:
        traits = {part.attribute: part.value for part in who}
        alike = [one for one in universe.people.values() if who in traits_of(one)]
        assert len(alike) >= FEWEST_ALIKE or traits["tie"] not in NUMEROUS_TIES, traits
    assert any("Contacts" in one.apps for one in found)


def test_a_long_request_comes_in_messages_that_are_all_read_before_the_first_act():
    env = AssistantLife("ask-meal-payer", universe="lived", levels=3)
    task = next(iter(env.tasks_of_seeds("eval", [0])))
    written = request_of(env.scenario(task))
    played = asyncio.run(rollout(env, task, env.players["nothing"]()))
    read = played.trajectories[0].turns[0].observation[-1].content
    assert read.count("\n\n") >= 1
    assert " ".join(read.split()) == written


MEAL = Find(
    kind="meal",
    conditions=(
        Condition(
            attribute="payer",
            who=(Condition(attribute="tie", value="friend"), Condition(attribute="town", value="Ashford")),
        ),
        Condition(attribute="canceller"),
    ),
)
RIDES = (Condition(attribute="day", of=MEAL, of_attribute="day"), Condition(attribute="place", value="The Red Lion"))


def test_a_request_tells_one_thing_after_the_other():
    text = request_text(Find(kind="ride", conditions=RIDES[:1]), {}, Random(1))
    first, *others = text.messages("How much did it cost?")
    assert first.startswith(
        "A friend who lives in Ashford paid for a meal out, and the meal was called off. I took a cab"
    )
    assert first.endswith("How much did it cost?")
    assert others == []


def test_what_distinguishes_may_come_in_a_second_message():
    query = Find(kind="ride", conditions=RIDES, order="last")
    texts = [request_text(query, {}, Random(seed)).messages("How much did it cost?") for seed in range(20)]
    assert all("latest" in messages[-1] for messages in texts)
    assert {len(messages) for messages in texts} == {1, 2}
    month = Find(kind="ride", conditions=(Condition(attribute="day", month=5), *RIDES[1:]))
    texts = [request_text(month, {}, Random(seed)).messages("How much did it cost?") for seed in range(20)]
    assert all("in May" in messages[-1] and " ".join(messages).count("in May") == 1 for messages in texts)


@pytest.mark.parametrize(
    ("traits", "words"),
    [
        ({"tie": "friend"}, "a friend"),
        ({"tie": "sister"}, "my sister"),
        ({"tie": "dentist"}, "my dentist"),
        ({"town": "Ashford"}, "somebody who lives in Ashford"),
        ({"tie": "colleague", "job": "editor"}, "a colleague who works as an editor"),
    ],
)
def test_people_are_described(traits, words):
    assert person_words(traits) == words


def test_the_best_search_has_the_fewest_hits_among_those_that_find_a_needed_record():
    universe = make_lived_universe(0)
    records, _ = records_and_words(universe)
    mails = [one for one in records.values() if one.app == "Emails"]
    booked = [one for one in mails if "appointment" in one.text.lower()]
    assert 1 < len(booked) < len(mails)
    assert best_search("Which appointment was it?", universe, frozenset({booked[0].name})) == len(booked)
    assert best_search("Which of them was it?", universe, frozenset({booked[0].name})) is None
    other = next(one for one in mails if one not in booked)
    assert best_search("Which appointment was it?", universe, frozenset({other.name})) is None


def test_every_attribute_of_the_ledger_has_a_type_and_words_name_only_such():
    found = {fact.attribute for fact in make_lived_universe(0, "medium").ledger.facts}
    assert found <= ATTRIBUTE_TYPES.keys()
    assert {attribute for _, attribute in WORDS} <= ATTRIBUTE_TYPES.keys()


# Families


FEW = (
    "ask-meal-canceller",
    "ask-order-amount",
    "ask-person-town",
    "forward-bill",
    "take-out-meal",
    "message-taker-handover",
)


def reward(env, task, policy):
    return asyncio.run(rollout(env, task, policy)).trajectories[0].score.reward


@pytest.mark.parametrize("family", FEW)
def test_the_oracle_passes_and_who_does_nothing_does_not(family):
    env = AssistantLife(family, universe="lived", levels=[1, 2])
    for task in env.tasks_of_seeds("eval", [0]):
        assert missing_facts(env.scenario(task)) == []
        assert reward(env, task, env.oracle(task)) == 1
        assert reward(env, task, env.players["nothing"]()) == 0


@pytest.mark.proof("seeds")
def test_the_oracle_passes_in_every_family_at_every_level():
    env = AssistantLife(universe="lived")
    for task in env.tasks_of_seeds("eval", [1]):
        assert reward(env, task, env.oracle(task)) == 1, task.id


def test_one_search_earns_next_to_nothing():
    env = AssistantLife(universe="lived", levels=1)
    tasks = list(env.tasks_of_seeds("eval", [0]))[::3]
    assert sum(reward(env, task, env.players["greedy"]()) for task in tasks) <= 0.1 * len(tasks)


def test_right_texts_are_accepted_and_wrong_ones_are_not():
    env = AssistantLife(universe="lived", levels=1)
    counts = {True: 0, False: 0}
    for task in list(env.tasks_of_seeds("eval", [1]))[::4]:
        scenario = env.scenario(task)
        facts = FactGrader(scenario).facts
        for act in scenario.oracle:
            for name, told in facts.get(act.id, {}).items():
                for text, is_right in answers_of(told, act.args[name]):
                    counts[is_right] += 1
                    assert told.hold_for(text) is is_right, (task.id, text)
    assert counts[True] > 150
    assert counts[False] > 300


def test_a_task_is_made_again_from_its_id():
    name = "ask-meal-canceller/eval-0/1"
    first, again = scenario_of(name), scenario_of(name)
    assert first.events == again.events
    assert first.info["question"]["needed"] == again.info["question"]["needed"]


def test_lived_families_are_chosen_by_the_setting_and_others_stay_what_they_were():
    assert {one.name for one in AssistantLife(universe="lived").families} == lived_families().keys()
    assert not {one.name for one in AssistantLife().families} & lived_families().keys()
    with pytest.raises(UsageError, match="there is no universe 'told': one of sketched, lived"):
        AssistantLife(universe="told")
    with pytest.raises(UsageError, match="one of small, medium, gaia2"):
        make_lived_universe(0, "huge")


def wander(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return ended.value.code, capsys.readouterr().out


def test_the_command_lists_and_plays_them(capsys):
    _, listed = wander(capsys, "world", "list", "lived", "--json")
    assert {one["name"] for one in json.loads(listed)["families"]} == lived_families().keys()
    assert "Reward: 1" in wander(capsys, "world", "run", "ask-meal-canceller/eval-0/1")[1]
    assert "Reward: 0" in wander(capsys, "world", "run", "ask-meal-canceller/eval-0/1", "--policy", "greedy")[1]


def test_a_family_of_lived_universes_refuses_a_sketched_one():
    family = lived_families()["ask-meal-canceller"]
    with pytest.raises(UsageError, match="needs universe=lived"):
        family.scenario(0, LEVELS[1], within=make_universe(0))
