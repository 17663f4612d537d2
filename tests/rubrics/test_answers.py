r"""One reader of answers: what models write at the end of a task of arithmetic or mathematics, and what it comes to."""

from __future__ import annotations

import asyncio

import pytest

from wanderlust.rubrics.answers import comparable, extract_answer, final_answer, marked_answer, stated_answer
from wanderlust.rubrics.label_free import AnswerMatch, Majority, estimate_reference
from wanderlust.rubrics.step_statistics import normalize_answer

ENDINGS = (
    r"so we get $\boxed{{{0}}}$.",
    r"Therefore, the probability is \[ \boxed{{{0}}} \] as required.",
    "So 16 - 3 - 4 is not it.\n#### {0}",
    "We add 3 and 4 first.\n\nThe final answer is ${0}$. I hope it is correct.",
    "The answer is ${0}$. Wait, let me check that 4 + 4 = 8.",
    "So the answer is ${0}$. Hmm, but what if we had 12 instead",
    "**Final Answer**\n\n\\( {0} \\)",
    "**Answer:** ${0}$",
    "### Final Answer: ${0}$",
    "ANSWER: {0}",
    "First 7, then 9.\nAnswer: **{0}**",
    "After 3 steps, the answer to the question is: ${0}$.",
    "<think>It may be 99. The answer is 98.</think>\nThe answer is \\({0}\\).",
    "<answer> {0} </answer>",
    "I think the answer should be ${0}$, because 2 + 2 = 4.",
    "The answer is not 77. So the answer must be ${0}$.",
    "That gives 5 cases; thus the correct answer is:\n\\[\n{0}\n\\]",
    "A: {0}",
    "Thus the answer would be ${0}$ (by symmetry with the 2nd case).",
    "Adding 1 and 2, we find $x = {0}$.",
    "There were 12 of them, so the value is \\({0}\\).",
)
VALUES = (
    ("18", "18"),
    ("-7", "-7"),
    ("1,234", "1234"),
    ("70{,}000", "70000"),
    ("0.50", "1/2"),
    (r"\frac{1}{2}", "1/2"),
    (r"\frac{3}{2}", "3/2"),
    (r"\dfrac{7}{2}", "7/2"),
    (r"-\frac{5}{8}", "-5/8"),
    (r"\frac34", "3/4"),
    (r"2\frac{1}{3}", "7/3"),
    (r"2\sqrt{3}", "2sqrt3"),
    (r"\frac{\sqrt{2}}{2}", "(sqrt2)/2"),
    (r"\frac{\pi}{4}", "pi/4"),
    ("(3, 4)", "(3,4)"),
    ("[2,5)", "[2,5)"),
    ("2x + 3", "2x+3"),
    (r"5 \text{ cm}", "5"),
    (r"90^\circ", "90"),
    (r"12\%", "12"),
    (r"x^2 + y^2 = 1", "x^2+y^2=1"),
    (r"\text{Tuesday}", "tuesday"),
    (r"\sqrt[3]{4}", "sqrt[3]4"),
    (r"10^{-6}", "10^{-6}"),
)
assert len(ENDINGS) * len(VALUES) > 500


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_answer_is_read_however_it_is_written(ending: str) -> None:
    for written, form in VALUES:
        text = ending.format(written)
        if "x = " in ending and "=" in written:
            continue
        assert extract_answer(text) == form, text


def test_different_answers_stay_different() -> None:
    forms = {comparable(written) for written, _ in VALUES}
    assert len(forms) == len({form for _, form in VALUES}) == len(VALUES) - 1  # a half is there twice
    for one, other in (
        ("x=2, y=3", "x=3, y=2"),
        ("1, 2, 3", "3, 2, 1"),
        ("5x", "5"),
        ("101_2", "101"),
        ("3:00", "4:00"),
    ):
        assert comparable(one) != comparable(other)


PROSE = (
    ("Janet sells 16 - 3 - 4 = 9 eggs.\nShe makes 9 * 2 = $18 every day at the market.", "18"),
    ("She makes $18 a day.", "18"),
    ("She makes **$18** every day, which is 2 more than before.", "18"),
    ("The total weight is 28*2 = 56kg because each weighs 2 kg.", "56"),
    ("Her change is $20 - $40 = $-20.", "-20"),
    ("He is left with $400 000 - $250 000 = $150 000.", "150000"),
    ("so x = 1/2", "1/2"),
    ("The answer is 18 dollars per day.", "18"),
    ("The answer is \\$1,250.00.", "1250"),
    ("The answer is that Tom has 12 apples left.", "12"),
    ("The answer is 8 (eight).", "8"),
    ("the answer is 8 and then we see that 4 + 4 is 8 so", "8"),
    ("The answer is approximately 3.14", "157/50"),
    ("The answer is x = 4 or x = -2.", "4,-2"),
    ("The answer is 3, 5 and 7.", "3,5,7"),
    ("The answer is 5 hours and 30 minutes.", "5 hours and 30 minutes"),
    ("The answer is 1/2 of the cake.", "1/2"),
    ("The correct option is (C).", "c"),
    ("The correct answer is (B) 12", "b"),
    ("Answer: C. Paris", "c"),
    ("Thus, the correct graph is \\(A\\).", "a"),
    ("The answer is Paris, the capital of France.", "paris"),
    ("The answer is yes, because 7 is prime.", "yes"),
    ("The answer is 12. No wait, 3 * 5 = 15, so the answer is 15", "15"),
    ("So the answer is 9. The answer is not 8.", "9"),
    ("7 and then 8", "8"),
    ("nothing", ""),
    ("", ""),
    ("It is \\boxed{} or \\boxed{\\frac{1}{2}", ""),
)


@pytest.mark.parametrize(("text", "answer"), PROSE)
def test_prose_is_read(text: str, answer: str) -> None:
    assert extract_answer(text) == answer


def test_reading_whole_texts_for_monitors_and_rows_goes_by_marks_alone() -> None:
    assert marked_answer("Chapter 2 was long.") is None
    assert final_answer("Chapter 2 was long.") == "2"
    assert stated_answer("so\n**x**\nThe answer is: 12.") == "12"
    assert stated_answer("First 3.\nThe capital of France") == "The capital of France"
    assert normalize_answer("Chapter 2 was long.") == "chapter 2 was long"
    assert normalize_answer("I say 3. The answer is $\\frac{6}{4}$.") == normalize_answer("\\boxed{3/2}") == "3/2"


def test_fractions_of_one_denominator_are_not_one_answer() -> None:
    said = [r"\boxed{\frac{1}{2}}"] * 2 + [r"\boxed{\frac{3}{2}}"] * 3 + [r"\boxed{\frac{7}{2}}"] + [r"\boxed{5}"] * 2
    reference = asyncio.run(estimate_reference(Majority(), (), said, trajectories=()))
    assert (reference.answer, reference.diversity) == ("3/2", 3 / 7)
    rewards = asyncio.run(AnswerMatch().rewards(reference, said, extract=extract_answer))
    assert rewards == [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "piece",
    [
        "$",
        "\\[",
        "<answer>",
        "answer is ",
        "answer is not ",
        "\\frac",
        "\\frac{",
        "1,",
        "( ",
        "**",
        "= ",
        "final answer\n",
    ],
)
def test_texts_that_repeat_a_sign_without_end_are_read(piece: str) -> None:
    extract_answer(piece * (200_000 // len(piece)))


def test_forms_of_forms_stay() -> None:
    for _, form in VALUES:
        assert comparable(form) == form
