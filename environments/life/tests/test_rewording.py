"""`wander world write --reword`: facts are kept, faults are counted, and a book repeats without a policy."""

from __future__ import annotations

import asyncio
import json

import pytest

from test_world_write import SEARCH
from wanderlust.cli.main import main
from wanderlust.errors import PolicyFailure, UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust_life.assistant_life import AssistantLife, scenario_of
from wanderlust_life.described import read_story
from wanderlust_life.rewording import fault_of, in_words, read_book, texts_of
from wanderlust_life.text_rewording import reword_texts

TEXT = "Dear Ana,\n\nthe meeting with Bela is on Friday, 3 May at 14:00."
STORY = {
    **SEARCH,
    "before": [{"mail": "who", "subject": "Saturday", "text": "On Saturday I will bring {dish}.", "days_ago": 2}],
}


def other_words(messages, _rng=None):
    """A careful writer: a few words for others."""
    text = messages[-1].content
    for old, new in (("I hope", "I do hope"), ("Thank you for", "Thanks for"), ("will bring", "am going to bring")):
        text = text.replace(old, new)
    return text


def of(answer):
    return Scripted(lambda messages, rng: answer(messages[-1].content))


@pytest.mark.parametrize(
    ("reworded", "fault"),
    [
        ("Dear Ana,\n\nwe meet, with Bela, on Friday, 3 May at 14:00.", ""),
        ("  \n", "empty"),
        (TEXT * 4, "long"),
        ("Dear Ana,\n\nwe meet on Friday, 3 May at 14:00.", "loses Bela"),
        ("Dear Ana,\n\nwe meet with Bela on Friday, 3 May at 15:00.", "loses 14:00"),
        ("Dear Ana,\n\nwe meet with Bela on Friday, 3 May at 14:00 for 90 minutes.", "adds 90"),
        ("Dear Ana,\n\nwe meet with Bela and Cleo on Friday, 3 May at 14:00.", "adds Cleo"),
        ("Dear Ana,\n\nwe meet with Bela on Friday, 3 May at 14:00, not on Monday.", "adds Monday"),
        ("Dear Ana,\n\nwe meet with Bela on Friday, 3 May at 14:00 in the blue room.", "leaks Blue Room"),
    ],
)
def test_a_rewording_keeps_the_facts_and_tells_no_answer(reworded, fault):
    assert fault_of(TEXT, reworded, names={"Ana", "Bela", "Cleo"}, answers={"Blue Room", "Bela"}) == fault


def test_slots_of_a_story_are_facts():
    text = "I bring {dish} to {who.first}."
    assert fault_of(text, "To {who.first} I bring {dish}.") == ""
    assert fault_of(text, "I bring it to {who.first}.") == "loses {dish}"
    assert fault_of(text, "I bring {dish} and {thing} to {who.first}.") == "adds {thing}"


def test_a_book_repeats_and_the_oracle_passes_in_its_words(tmp_path):
    name = "pass-on/eval-0/1"
    told = []
    first = reword_texts([name], Scripted(other_words), out=tmp_path, announce=lambda *counts: told.append(counts))
    assert told == [(first.asked, sum(map(len, texts_of(scenario_of(name)))))]
    assert first.asked == len(texts_of(scenario_of(name)))
    assert len(first.book) + first.unchanged == first.asked
    assert first.book
    assert not first.refused
    body = (tmp_path / "book.json").read_text()

    def fails(messages, rng):
        raise PolicyFailure("it is asked again")

    assert reword_texts([name], Scripted(fails), out=tmp_path).book == first.book
    assert (tmp_path / "book.json").read_text() == body
    env = AssistantLife(["pass-on"], levels=1, book=str(tmp_path))
    task = next(iter(env.tasks("eval")))
    texts = texts_of(env.scenario(task))
    assert texts == [first.book.get(text, text) for text in texts_of(scenario_of(name))]
    assert asyncio.run(rollout(env, task, env.oracle(task))).trajectories[0].score.reward == 1
    with pytest.raises(UsageError, match="no book of other words"):
        AssistantLife(book=str(tmp_path / "nothing.json"))


def test_what_is_refused_is_counted_and_stays_as_it_is(tmp_path):
    name = "who-said/eval-0/1"
    lazy = reword_texts([name], of(lambda text: "No."), out=tmp_path / "lazy")
    assert lazy.refused["loses"] > 10
    assert not any("14" in text for text in lazy.book.values())
    silent = reword_texts([name], of(lambda text: ""), out=tmp_path / "silent")
    assert silent.refused == {"empty": silent.asked}
    assert in_words(scenario_of(name), silent.book).apps[2].state() == scenario_of(name).apps[2].state()
    row = json.loads((tmp_path / "lazy" / "refused.jsonl").read_text().splitlines()[0])
    assert row["fault"].startswith("loses ")
    assert row["answer"] == "No."


def test_a_leak_of_the_answer_is_refused(tmp_path):
    scenario = scenario_of("who-said/eval-0/1")
    act = next(one for one in scenario.oracle if one.action == "send_message_to_user")
    who = act.args["content"].partition(",")[0]
    result = reword_texts(["who-said/eval-0/1"], of(lambda text: f"{text} It was {who}."), out=tmp_path)
    assert result.refused["adds"] + result.refused.get("leaks", 0) > 10
    assert all(who.split()[0] in text for text in result.book)


def test_a_story_is_reworded_and_checked(tmp_path):
    place = tmp_path / "who-mailed.json"
    place.write_text(json.dumps(STORY))
    result = reword_texts([str(place)], Scripted(other_words), out=tmp_path / "out")
    assert [one.name for one in result.stories] == ["who-mailed.json"]
    story = read_story(result.stories[0].read_bytes())
    assert story.before[0].text == "On Saturday I am going to bring {dish}."
    assert story.request == STORY["request"]
    leaky = reword_texts([str(place)], of(lambda text: f"{text} No cold tea, but plum cake."), out=tmp_path / "leaky")
    assert leaky.refused == {"leaks": 2}
    assert leaky.examples == {"leaks": "leaks plum cake"}
    with pytest.raises(UsageError, match=r"nothing is to be reworded"):
        reword_texts([], Scripted(other_words), out=tmp_path / "none")


def test_the_command_rewords_with_a_script(tmp_path, capsys):
    script = tmp_path / "writer.py"
    script.write_text("def same(messages, rng):\n    return messages[-1].content.replace('I hope', 'I do hope')\n")
    words = [
        "world",
        "write",
        "--reword",
        "invite/eval-0/1",
        "--policy",
        f"{script}:same",
        "--out",
        str(tmp_path / "b"),
    ]
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            main([*words, "--json"])
        assert not end.value.code
    first, second = (json.loads(line) for line in capsys.readouterr().out.replace("}\n{", "}\x00{").split("\x00"))
    assert first == second
    assert first["reworded"] == len(read_book(tmp_path / "b")) > 0
