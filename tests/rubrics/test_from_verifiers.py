"""Adversarial transcripts: what `docs/from-verifiers.md` maps earns the same, or the page names the difference.

The expected values come from the other library's documented behaviour (0.3.1), written down here in a few lines.
"""

import asyncio
import re

import pytest
from math_verify import parse, verify

from project_files import ROOT
from wanderlust.rubrics.parsing import XmlFields
from wanderlust.rubrics.rewards import exact, symbolic
from wanderlust.rubrics.rubric import Rubric
from wanderlust.types import Rollout, Task, Trajectory, Turn, assistant, user

PAGE = (ROOT / "docs" / "from-verifiers.md").read_text()
DIFFERENCES = PAGE.partition("## Where rewards differ")[2].partition("\n## ")[0]

# MathRubric


def their_box(text):
    """What stands in the last `\\boxed{`, behind the last `</think>`; nothing where it is not closed."""
    text = text.rpartition("</think>")[2]
    start = text.rfind("\\boxed{")
    depth, opened = 1, start + len("\\boxed{")
    for at in range(opened, len(text) if start >= 0 else 0):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[opened:at]
    return ""


def math_rubric(text, answer):
    """1 where math-verify calls both equal, each in a box of its own."""
    box = their_box(text)
    if not box:
        return 0.0
    both = [parse(f"\\boxed{{{one}}}", parsing_timeout=None) for one in (answer, box)]
    return float(verify(*both, timeout_seconds=None))


MATHEMATICS = [
    ("<think>\\boxed{18}</think> no idea", "18"),
    ("<think>\\boxed{18} is wrong</think> \\boxed{17}", "18"),
    ("<think>\\boxed{17}</think> \\boxed{18}", "18"),
    ("<think>a</think><think>\\boxed{18}</think>", "18"),
    ("<think>\\boxed{18}", "18"),
    ("</think>\\boxed{18}", "18"),
    ("\\boxed{\\$18.00}", "18"),
    ("\\boxed{$18$}", "18"),
    ("\\boxed{$18}", "18"),
    ("\\boxed{18\\$}", "18"),
    ("\\boxed{18 \\text{ dollars}}", "18"),
    ("\\boxed{18\\%}", "18"),
    ("\\boxed{18.}", "18"),
    ("\\boxed{18.0000}", "18"),
    ("\\boxed{018}", "18"),
    ("\\boxed{+18}", "18"),
    ("\\boxed{-18}", "18"),
    ("\\boxed{ 18 }", "18"),
    ("\\boxed{x = 18}", "18"),
    ("\\boxed{9 \\cdot 2}", "18"),
    ("\\boxed{\\frac{36}{2}}", "18"),
    ("\\boxed{\\dfrac12}", "\\frac{1}{2}"),
    ("\\boxed{0.5}", "\\frac{1}{2}"),
    ("\\boxed{1/2}", "\\frac{1}{2}"),
    ("\\boxed{50\\%}", "\\frac{1}{2}"),
    ("\\boxed{1,234}", "1234"),
    ("\\boxed{1{,}234}", "1234"),
    ("\\boxed{1 234}", "1234"),
    ("\\boxed{}", "18"),
    ("\\boxed{?}", "18"),
    ("\\boxed{17 or 18}", "18"),
    ("\\boxed{17, 18}", "18"),
    ("\\boxed{18, 17}", "17, 18"),
    ("\\boxed{\\{17, 18\\}}", "\\{18, 17\\}"),
    ("\\boxed{(17, 18)}", "(17,18)"),
    ("\\boxed{[1, 2)}", "[1,2)"),
    ("\\boxed{x^2+2x+1}", "(x+1)^2"),
    ("\\boxed{(x+1)^{2}}", "(x+1)^2"),
    ("\\boxed{\\sqrt{8}}", "2\\sqrt{2}"),
    ("\\boxed{\\pi}", "3.14159265"),
    ("\\boxed{17} \\boxed{18}", "18"),
    ("\\boxed{18} \\boxed{17}", "18"),
    ("The answer is 18.", "18"),
    ("18", "18"),
    ("", "18"),
    ("boxed{18}", "18"),
    ("\\boxed18", "18"),
    ("\\text{\\boxed{18}}", "18"),
    ("$$\\boxed{18}$$", "18"),
    ("\\boxed{\\boxed{18}}", "18"),
    ("\\boxed{\n18\n}", "18"),
    ("\\boxed{\\text{A}}", "A"),
    ("\\boxed{\\textbf{(A)}}", "A"),
    ("\\boxed{10^{10}}", "10000000000"),
    ("\\boxed{1e3}", "1000"),
    ("\\boxed{18}}", "18"),
]
OTHER_MATHEMATICS = {
    "`\\boxed {18}`": ("\\boxed {18}", "18", (1.0, 0.0)),
    "`\\fbox{18}`": ("\\fbox{18}", "18", (1.0, 0.0)),
    "a last box that is not closed": ("\\boxed{18} or \\boxed{17", "18", (1.0, 0.0)),
}


def scored(function, text, answer):
    task = Task(id="t", prompt=(user("?"),), answer=answer)
    trajectory = Trajectory(turns=[Turn(observation=task.prompt, action=assistant(text))])
    return asyncio.run(Rubric(function).score(Rollout(task=task, seed=0, trajectories=[trajectory]), trajectory)).reward


SYMBOLIC = symbolic(processes=1)


@pytest.mark.parametrize(("text", "answer"), MATHEMATICS)
def test_mathematics_earns_what_it_earned_there(text, answer):
    assert scored(SYMBOLIC, text, answer) == math_rubric(text, answer)


@pytest.mark.parametrize("name", OTHER_MATHEMATICS)
def test_other_mathematics_is_named_on_the_page(name):
    text, answer, values = OTHER_MATHEMATICS[name]
    assert (scored(SYMBOLIC, text, answer), math_rubric(text, answer)) == values
    assert name in DIFFERENCES


# XMLParser


def their_field(text, name="answer"):
    """The first text of a message between the tags, by a pattern that takes the first closing tag."""
    found = re.search(rf"<{name}>\s*(.*?)\s*</{name}>", text, re.DOTALL)
    return None if found is None else found[1].strip()


FIELDS = XmlFields("think", "answer")
FIELD = FIELDS.field("answer")
XML = [
    "<answer>abc",
    "abc</answer>",
    "<answer>abc</answer",
    "<answer>abc</answer> <answer>",
    "<answer>abc</answer> or <answer>xyz",
    "<answer>abc</answer> the tag <answer> is closed",
    "</answer><answer>abc</answer>",
    "<answer> \n abc \n </answer>",
    "<answer></answer>",
    "<answer>a\nb</answer>",
    "<think><answer>abc</answer></think>",
    "<think>hm<answer>abc</answer>",
    "<answer><think>hm</think>abc</answer>",
    "<ANSWER>abc</ANSWER>",
    "<answer >abc</answer>",
    "<answer/>abc",
    "abc",
    "",
    "<answer>abc</answer></answer>",
    "&lt;answer&gt;abc&lt;/answer&gt;",
    "<answer>a < b</answer>",
    "```\n<answer>abc</answer>\n```",
]
OTHER_XML = {
    "several closed fields in one message": ("<answer>abc</answer><answer>xyz</answer>", ("xyz", "abc")),
    "a tag that is opened twice": ("in <answer> tags: <answer>abc</answer>", ("abc", "tags: <answer>abc")),
}


@pytest.mark.parametrize("text", XML)
def test_fields_are_what_they_were_there(text):
    assert FIELD(text) == their_field(text)
    assert scored(exact(read=FIELD), text, "abc") == float(their_field(text) == "abc")


@pytest.mark.parametrize("name", OTHER_XML)
def test_other_fields_are_named_on_the_page(name):
    text, values = OTHER_XML[name]
    assert (FIELD(text), their_field(text)) == values
    assert name in DIFFERENCES


def their_format(text):
    """0.4 by the share of tags that are there, if any field is; 0.2 each for closed fields, beginning and end."""
    fields = [their_field(text, name) for name in FIELDS.names]
    present = sum(any(tag in text for tag in (f"<{name}>", f"</{name}>")) for name in FIELDS.names)
    share = 0.4 * present / len(fields) if any(field is not None for field in fields) else 0.0
    return share + 0.2 + 0.2 * text.strip().startswith("<think>") + 0.2 * text.strip().endswith("</answer>")


@pytest.mark.parametrize(
    ("text", "ours", "theirs"),
    [
        ("<think>so</think><answer>4</answer>", 1.0, 1.0),
        ("<answer>4</answer>", 0.5, 0.6),
        ("<think>so</think><answer>4", 0.25, 0.8),
        ("4", 0.0, 0.2),
        ("", 0.0, 0.2),
        ("<think>so</think><answer>4</answer> ok", 0.75, 0.8),
    ],
)
def test_the_format_reward_differs_as_the_page_says(text, ours, theirs):
    assert (FIELDS.format(text), their_format(text)) == (ours, pytest.approx(theirs))
    row = next(line for line in DIFFERENCES.splitlines() if "format reward" in line)
    assert re.search(r"0\.4.*0\.2", row)
