"""Copies are found among questions of one template, and questions that differ in a value are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_planting import DEVELOPED_ON, plant
from wanderlust_data import find_contaminated, find_duplicates, find_mislabelled
from wanderlust_data.comparison import is_one_slip
from wanderlust_data.filters import language_of, majority_answer
from wanderlust_data.tokens import SLOT, Slots, TokenTable, words_of

SUMS = [f"Please add the numbers {a} and {b} and give the sum." for a in range(11, 31) for b in (107, 211, 305)]


def found(texts, **options):
    return {match.row: (match.of, match.kind) for match in find_duplicates(texts, **options)}


def test_questions_of_one_template_are_no_copies():
    assert found(SUMS) == {}


@pytest.mark.parametrize(
    ("copy", "kind"),
    [
        ("please add the numbers 14 and 211, and give the sum", "exact"),
        ("Plaese add the numbers 14 and 211 and give the sum.", "fuzzy"),
        ("Please add numbers 14 and 211 and give the total.", "fuzzy"),
        ("Please add the numbers 14 and 211 and give the sum. Thanks a lot!", "fuzzy"),
        ("7) Please add the numbers 14 and 211 and give the sum.", "exact"),
    ],
)
def test_a_copy_is_found_whatever_the_wording(copy, kind):
    texts = [*SUMS, copy]
    assert found(texts) == {len(SUMS): (SUMS.index("Please add the numbers 14 and 211 and give the sum."), kind)}


@pytest.mark.parametrize(
    "other",
    [
        "Please add the numbers 14 and 212 and give the sum.",
        "Please add the numbers 211 and 14 and give the product of 3 and both.",
        "Please add the numbers -14 and 211 and give the sum.",
    ],
)
def test_another_number_or_symbol_is_another_question(other):
    assert found([*SUMS, other]) == {}


def test_other_words_with_the_same_values_and_answer_are_a_copy():
    answers = [str(a + b) for a in range(11, 31) for b in (107, 211, 305)]
    place = SUMS.index("Please add the numbers 14 and 211 and give the sum.")
    texts = [*SUMS, "Which total do 14 apples and 211 pears make?"]
    assert found(texts, answers=[*answers, "225"]) == {len(SUMS): (place, "slots")}
    assert found(texts, answers=[*answers, "226"]) == {}
    assert found(texts, answers=[*answers, "225"], kinds=("exact", "fuzzy")) == {}


def test_a_held_out_question_is_found_inside_a_longer_text():
    held_out = ["Please add the numbers 88 and 419 and give the sum."]
    longer = f"On page 312 there is this exercise. {held_out[0]} Then turn to page 313 and rest for 5 minutes."
    matches = find_contaminated([*SUMS, longer, "please  add the numbers 88 and 419 and give the sum"], held_out)
    assert [(match.row, match.of) for match in matches] == [(len(SUMS), 0), (len(SUMS) + 1, 0)]


def test_planted_copies_are_found_on_reasoning_gym():
    planting = plant(DEVELOPED_ON[:10], 0)
    matches = find_contaminated(
        planting.texts, planting.held_out, answers=planting.answers, held_out_answers=planting.held_out_answers
    )
    kinds = [planting.kinds[match.row] for match in matches]
    assert sum(kind.startswith("contaminated") for kind in kinds) >= 0.95 * len(kinds)
    truth = [kind.startswith("contaminated") for kind in planting.kinds]
    assert sum(kind.startswith("contaminated") for kind in kinds) >= 0.95 * sum(truth)


@given(st.lists(st.text(max_size=40), max_size=12))
@settings(max_examples=60)
def test_any_texts_are_compared_and_a_row_that_was_kept_is_the_first_of_its_kind(texts):
    matches = find_duplicates(texts)
    removed = {match.row for match in matches}
    assert all(match.of < match.row and match.of not in removed for match in matches)
    assert find_duplicates(texts) == matches
    assert {match.row for match in find_duplicates([*texts, *texts])} >= {*range(len(texts), 2 * len(texts))}


def test_nothing_and_empty_rows_have_no_values():
    assert find_duplicates([]) == []
    assert found(["", "?", "?", "a"]) == {2: (1, "exact")}
    assert find_contaminated([], ["a b c"]) == []
    assert find_contaminated(["a b c"], []) == []


def test_slots_are_where_a_template_varies():
    table = TokenTable.of(SUMS)
    slots = Slots.of(table)
    words = np.array(table.words)[table.ids]
    assert {str(word) for word in words[slots.positions == SLOT]} <= {str(n) for n in range(400)}
    assert not slots.is_value[table.words.index("sum")]


def test_rows_are_cut_into_words_numbers_and_symbols():
    assert words_of("Question 3: is 2.5*x <= “four”?") == ["is", "2.5", "*", "x", "<", "=", '"', "four", '"']


@pytest.mark.parametrize(
    ("rare", "usual", "slip"),
    [
        ("calcualte", "calculate", True),
        ("calclate", "calculate", True),
        ("calculatte", "calculate", True),
        ("calkulate", "calculate", True),
        ("calculator", "calculate", False),
        ("cat", "car", False),
    ],
)
def test_a_slip_is_one_letter(rare, usual, slip):
    assert is_one_slip(rare, usual) == slip


def test_a_majority_contradicts_a_label():
    votes = [[["4", "4", "5"]], [["7", "7", "8"]], [["1", "2", "3"]], []]
    assert find_mislabelled(["4", "9", "1", "2"], votes) == [1]
    assert find_mislabelled(["4", "9", "1", "2"], votes, agreement=0.7) == []
    assert find_mislabelled(["4"], [[["5", "5", "5"], ["4", "4", "6"]]]) == []
    assert majority_answer(["1", "2"]) is None


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What is the sum of the first ten numbers that are even and not prime?", "en"),
        ("Wie groß ist die Summe der ersten zehn Zahlen, die nicht durch drei teilbar sind und auch nicht zwei?", "de"),
        ("Quelle est la somme de tous les nombres qui ne sont pas dans la liste des premiers?", "fr"),
        ("Сколько будет, если сложить все числа от одного до десяти?", "cyrillic"),
        ("一から十までの数をすべて足すといくつですか", "hiragana"),
        ("12 + 7", None),
    ],
)
def test_a_language_is_that_of_script_and_common_words(text, language):
    assert language_of(text) == language
