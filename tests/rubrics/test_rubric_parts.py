"""Ready parts: matching, reading, fields, unit tests. Whatever a model writes, they answer."""

import asyncio
from dataclasses import dataclass
from fractions import Fraction
from typing import TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderlust.errors import RubricFailure, UsageError
from wanderlust.rubrics.parsing import JsonFields, XmlFields, last_boxed, last_code, last_number, parse_number, whole
from wanderlust.rubrics.rewards import exact, matches, numeric
from wanderlust.rubrics.rubric import Reward, Rubric
from wanderlust.types import Rollout, Task, Trajectory, Turn, assistant


class Answer(TypedDict):
    why: str
    move: int


@dataclass
class Move:
    move: int


PROPERTY = settings(deadline=None, max_examples=200)
WRITTEN = st.one_of(
    st.text(),
    st.text(st.characters()),  # with lone surrogates
    st.lists(
        st.sampled_from(
            [
                *'{}[]:,1-. $%\n"\\',
                "<think>",
                "</think>",
                "<answer>",
                "</answer>",
                '{"',
                "e9",
                "\\boxed{",
                "```\n",
                "```json\n",
                "NaN",
                "null",
                '{"move": 1}',
                "\u0663",
                "\ud800",
            ]
        ),
        max_size=40,
    ).map("".join),
)


def value(part, said, answer=None):
    return part(said, answer)


@pytest.mark.parametrize(
    ("said", "answer", "options", "right"),
    [
        (" Paris\n", "Paris", {}, True),
        ("the  Eiffel\ntower", "the Eiffel tower", {}, True),
        ("paris", "Paris", {}, False),
        ("STRASSE", "straße", {"ignore_case": True}, True),
        ("cafe\u0301", "caf\u00e9", {}, True),
        ("b", ["a", "b"], {}, True),
        ("7", 7, {}, True),
        ("Paris.", "Paris", {}, False),
        (r"so \boxed{Paris}", "Paris", {"read": last_boxed}, True),
        ("Paris", "Paris", {"read": last_boxed}, False),
    ],
)
def test_exact(said, answer, options, right):
    assert exact(**options)(said, answer) == right


@pytest.mark.parametrize(
    ("said", "answer", "options", "right"),
    [
        ("42", 42, {}, True),
        ("+42.0", "42", {}, True),
        ("1,234,567.5", 1234567.5, {}, True),
        ("1,23", 123, {}, False),
        ("12,34", 1234, {}, False),
        ("1e3", 1000, {}, True),
        ("3/4", 0.75, {}, True),
        ("1/0", 1, {}, False),
        ("0.1", 0.1, {}, True),
        ("\u22125", -5, {}, True),
        ("\u0663", 3, {}, False),
        ("nan", 3, {}, False),
        ("12345678901234567890", 12345678901234567891, {}, False),
        ("3.14", 3.14159, {}, False),
        ("3.14", 3.14159, {"absolute": 0.01}, True),
        ("101", 100, {"relative": 0.01}, True),
        ("101.1", 100, {"relative": 0.01}, False),
        ("5 km", 5, {}, False),
        ("5 km", 5, {"units": ["m", "km"]}, True),
        ("-$1,000", -1000, {"units": ["$"]}, True),
        ("50%", "50 %", {"units": ["%"]}, True),
        ("50 kg", 50, {"units": ["km"]}, False),
        ("It is 17, or rather 18.", 18, {"read": last_number}, True),
        ("9" * 10_000, 9, {}, False),
        ("1e9999", 9, {}, False),
        ("5", [4, 5], {}, True),
    ],
)
def test_numeric(said, answer, options, right):
    assert numeric(**options)(said, answer) == right


def test_numbers_are_exact():
    assert parse_number("0.1") == Fraction(1, 10)
    assert parse_number("1,000/8") == 125
    assert [parse_number(text) for text in ("", "1.2.3", "--1", "0x10", "1_000", "five", "1,0000")] == [None] * 7


@pytest.mark.parametrize(
    ("part", "answer", "told"),
    [
        (exact(), None, "the task has no answer"),
        (numeric(), None, "the task has no answer"),
        (numeric(), "many", "the task's answer 'many' is no number"),
        (numeric(), float("nan"), "the task's answer nan is no number"),
    ],
)
def test_a_task_without_a_usable_answer_is_a_failure(part, answer, told):
    with pytest.raises(RubricFailure, match=told):
        part("5", answer)


@pytest.mark.parametrize(
    "make", [lambda: matches("("), lambda: numeric(absolute=-1), lambda: numeric(relative=float("nan"))]
)
def test_wrong_settings_are_told_at_once(make):
    with pytest.raises(UsageError, match=r"is no regular expression|a tolerance is a number from 0 on"):
        make()


def test_patterns():
    assert matches(r"[a-c]+")(" abc ") == 1
    assert matches(r"[a-c]+")("abcd") == 0
    assert matches(r"[a-c]+", anywhere=True)("xxabcd") == 1
    assert matches("x", name="has_x").__name__ == "has_x"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"\boxed{5}", "5"),
        (r"\boxed{1} and \boxed { 2 }", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{a \boxed{b} c}", r"a \boxed{b} c"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{1} \boxed{unclosed", "1"),
        (r"\boxed{unclosed \boxed{1}", "1"),
        (r"\fbox{x}", "x"),
        (r"\\boxed{no}", None),
        (r"boxed{no}", None),
        (r"}} \boxed{}", ""),
        ("", None),
    ],
)
def test_boxed(text, found):
    assert last_boxed(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I say 1,234.5.", "1,234.5"),
        ("-3 then x2 and 4y", "-3"),
        ("1. first\n2. second: 7", "7"),
        ("$.5", ".5"),
        ("none", None),
    ],
)
def test_the_last_number(text, found):
    assert last_number(text) == found


def test_the_last_code():
    assert last_code("a\n```python\nx = 1\n```\nb\n```\ny = 2\n```\n```\nunclosed") == "y = 2\n"
    assert last_code("```no```") is None


FULL = "<think>\nhm\n</think>\n<answer> 5 </answer>"


@pytest.mark.parametrize(
    ("text", "fields", "form"),
    [
        (FULL, {"think": "hm", "answer": "5"}, 1.0),
        ("<answer>5</answer><think>hm</think>", {"think": "hm", "answer": "5"}, 0.75),
        (FULL + " done", {"think": "hm", "answer": "5"}, 0.75),
        ("<answer>5</answer>", {"answer": "5"}, 0.5),
        (FULL + "<answer>6</answer>", {"think": "hm", "answer": "6"}, 0.5),
        ("<think>hm <answer>5</answer>", {"answer": "5"}, 0.25),
        ("<think>a<answer>5</answer>b</think><answer>6</answer>", None, 0.25),
        ("<think>hm</think><answer>5", {"think": "hm"}, 0.25),
        ("</answer></think>", {}, 0.0),
        ("5", {}, 0.0),
        ("", {}, 0.0),
    ],
)
def test_xml_fields(text, fields, form):
    strict, forgiving = XmlFields("think", "answer", strict=True), XmlFields("think", "answer")
    assert forgiving.format(text) == form
    assert strict.format(text) == (form == 1.0)
    assert strict.parse(text) == (fields if form == 1.0 else None)
    if fields is not None:
        assert forgiving.parse(text) == fields
        assert forgiving.field("answer")(text) == fields.get("answer")


@pytest.mark.parametrize(
    ("text", "strict", "forgiving", "form"),
    [
        ('{"why": "so", "move": 5}', 5, 5, 1.0),
        ('```json\n{"why": "so", "move": 5}\n```', 5, 5, 1.0),
        ('I take {"why": "{", "move": 5}, or {"move": 1}', None, 5, 0.5),
        ('{"why": "so", "move": "5"}', None, 5, 0.5),
        ('{"why": "a", "move": 1} {"why": "b", "move": 2}', None, 2, 0.5),
        ('{"why": "so", "move": 5.5}', None, None, 0.0),
        ('{"move": {"why": "inner", "move": 5}}', None, None, 0.0),
        ('{"why": NaN, "move": NaN}', None, None, 0.0),
        ("[" * 100_000, None, None, 0.0),
        ("", None, None, 0.0),
    ],
)
def test_json_fields(text, strict, forgiving, form):
    for kind, expected in ((JsonFields(Answer, strict=True), strict), (JsonFields(Answer), forgiving)):
        found = kind.parse(text)
        assert (found and found["move"]) == expected
        assert kind.field("move")(text) == (None if expected is None else str(expected))
    assert JsonFields(Answer).format(text) == form
    assert JsonFields(Answer, strict=True).format(text) == (form == 1.0)


def test_json_fields_take_any_kind_of_record():
    class Structure(msgspec.Struct):
        move: int

    for kind in (Structure, Move):
        assert JsonFields(kind).parse('so: {"move": 3}').move == 3
    assert JsonFields(dict).field("deep")('{"deep": {"a": [1, null]}}') == '{"a":[1,null]}'


@pytest.mark.parametrize("make", [XmlFields, lambda: XmlFields("a", "a"), lambda: XmlFields("a b")])
def test_fields_need_names(make):
    with pytest.raises(UsageError, match="fields need different names"):
        make()
    with pytest.raises(UsageError, match="there is no field 'b': one of a"):
        XmlFields("a").field("b")


READERS = [
    whole,
    last_boxed,
    last_number,
    last_code,
    XmlFields("think", "answer").field("answer"),
    XmlFields("think", "answer", strict=True).field("answer"),
    JsonFields(Answer).field("move"),
    JsonFields(Answer, strict=True).field("move"),
    JsonFields(dict).field("move"),
]


@PROPERTY
@given(WRITTEN)
def test_readers_are_total(text):
    for read in READERS:
        found = read(text)
        assert found is None or isinstance(found, str)
    assert parse_number(text) is None or isinstance(parse_number(text), Fraction)


@PROPERTY
@given(WRITTEN, st.sampled_from([*READERS]))
def test_any_text_is_judged_by_every_part(text, read):
    rubric = Rubric(
        exact(read=read),
        numeric(read=read, units=["$", "%"]),
        matches("[0-9]+", read=read),
        Reward(XmlFields("think", "answer").format, name="xml"),
        Reward(XmlFields("think", "answer", strict=True).format, name="strict_xml"),
        Reward(JsonFields(Answer).format, name="json"),
        Reward(JsonFields(Answer, strict=True).format, name="strict_json"),
    )
    trajectory = Trajectory(turns=[Turn(observation=(), action=assistant(text))])
    played = Rollout(task=Task(id="t", answer="1"), seed=0, trajectories=[trajectory])
    score = asyncio.run(rubric.score(played, trajectory))
    assert all(0 <= value <= 1 for value in score.parts.values())


@PROPERTY
@given(st.fractions(), st.sampled_from(["", " ", "\n"]))
def test_every_fraction_is_read_back(value, space):
    assert parse_number(f"{space}{value}{space}") == value


@PROPERTY
@given(st.integers())
def test_thousands_are_read_back(value):
    assert parse_number(f"{value:,}") == value
    assert last_number(f"it is {value:,}.") == f"{value:,}"


@PROPERTY
@given(st.dictionaries(st.sampled_from(["think", "answer"]), st.text("ab{}<>\n "), min_size=2))
def test_fields_are_read_back(fields):
    text = "\n".join(f"<{name}>{fields[name]}</{name}>" for name in ("think", "answer"))
    expected = {name: text.strip() for name, text in fields.items()}
    for kind in (XmlFields("think", "answer"), XmlFields("think", "answer", strict=True)):
        assert (kind.parse(text), kind.format(text)) == (expected, 1.0)


HOSTILE = [
    "\\boxed{" * 100_000,
    "\\boxed" + " " * 500_000,
    "<think>" * 100_000,
    "<think></think>" * 50_000 + "<answer>" * 50_000,
    '{"' * 300_000,
    '{"a":' * 100_000,
    '{"a":[' + "1," * 100_000 + '{"a":[1,' * 50_000,
    '{"a": ' + "9" * 5_000 + "}",
    ('{"a": ' + "9" * 5_000 + "}") * 40,
    "{ " * 200_000,
    "1," * 300_000 + "x",
    "1" * 500_000 + "a",
    "```\n" * 100_000,
    "-" * 500_000,
    "(" * 500_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:8]))
def test_hostile_texts_are_read_to_their_end(text):
    """What is not linear in the length would take hours."""
    for read in READERS:
        read(text)
    parse_number(text)
