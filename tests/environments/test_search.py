"""The search tool's ranking, and questions over several pages."""

import asyncio
import json
import re

import pytest

from wanderlust.environments.document_search import MAX_SEARCH_RESULTS, Search, make_search_world, read_page, search
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.testing import check_environment
from wanderlust.tools.function import ToolError
from wanderlust.types import ToolCall, assistant

ENV = Search()
NAME = r"[A-Z]\w+(?: [A-Z]\w+)?"


def call(name, **arguments):
    return assistant("", ToolCall(id="c", name=name, arguments=json.dumps(arguments)))


def found(text, pattern):
    return re.search(pattern, text)[1]


def reader(messages, rng):
    """Reads page after page, as the question asks: an oracle that knows only what the tools told it."""
    ask = messages[1].content
    read = {
        m.content.split(" was born")[0].split(" is a ")[0]: m.content
        for m in messages
        if " is " in m.content or "born" in m.content
    }

    def see(title):
        if title in read:
            return None
        listed = [json.loads(m.content) for m in messages if m.role == "tool" and m.content.startswith("[")]
        return call("page", title=title) if any(title in titles for titles in listed) else call("search", query=title)

    steps = {
        "country": [(r"founder of (.+) born", r"firm that (.+) founded"), r"born in (\w+)", r"town in (\w+)"],
        "taught": [(r"founder of (.+)\?", r"firm that (.+) founded"), r"studied under (.+) and works"],
        "mayor": [(r"teacher of (.+) was", r"studied under (.+) and works"), r"born in (\w+)", r"mayor is (.+)\."],
        "year": [(r"that (.+) works", r"works for (.+)\."), r"year (\d+)"],
    }
    kind = next(kind for kind in steps if kind in ask)
    (asked, first), *rest = steps[kind]
    title = found(ask, asked)
    for pattern in (first, *rest):
        if (todo := see(title)) is not None:
            return todo
        title = found(read[title], pattern)
    return f"I have read enough.\n{title}."


def test_a_reader_scores_high_and_garbage_low():
    async def go(script):
        played = [await rollout(ENV, task, Scripted(script)) for task in ENV.tasks("eval")[:12]]
        return [one.trajectory.score.reward for one in played], played

    rewards, played = asyncio.run(go(reader))
    assert rewards == [1.0] * 12
    assert {one.state["tool_calls"].get("tool_error", 0) for one in played} == {0}
    assert max(len(one.trajectory.turns) for one in played) > 5
    assert asyncio.run(go(lambda messages, rng: "The answer is somewhere."))[0] == [0.0] * 12


def test_every_page_is_found_by_its_title():
    for title in make_search_world().pages:
        assert title in search(title)


def test_rare_words_count_more_and_every_result_has_a_word():
    titles = search("firm town 1875 founded")
    assert len(titles) == MAX_SEARCH_RESULTS
    firm, year = next(iter(make_search_world().founded.items()))
    assert all(year in read_page(title) for title in search(year))
    assert firm in search(f"firm founded {year}")
    assert search("zzz") == search("") == []


def test_a_page_that_is_not_there():
    with pytest.raises(ToolError, match="no page 'Nowhere'"):
        read_page("Nowhere")


def test_equal_seeds_make_equal_worlds():
    again = make_search_world.__wrapped__(0)
    assert again.pages == make_search_world().pages
    assert make_search_world(1).pages.keys() != make_search_world().pages.keys()


def test_questions_cannot_be_answered_by_one_page():
    task = next(iter(ENV.tasks()))
    asked = task.prompt[-1].content
    assert not any(
        task.answer in text and any(name in text for name in re.findall(NAME, asked)[1:])
        for text in make_search_world().pages.values()
        if "founder" in asked
    )
    train, held = ({task.id for task in ENV.tasks(split)} for split in ("train", "eval"))
    assert not train & held


def test_case_and_punctuation_of_the_last_line_do_not_matter():
    task = ENV.tasks()[0]
    played = asyncio.run(rollout(ENV, task, Scripted([f"So:\n  **{task.answer.upper()}**!"])))
    assert played.trajectory.score.parts == {"right": 1.0}


def test_the_sign_of_a_number_does_matter():
    task = next(task for task in ENV.tasks() if task.answer.isdecimal())
    played = asyncio.run(rollout(ENV, task, Scripted([f"-{task.answer}"])))
    assert played.trajectory.score.parts == {"right": 0.0}


def test_it_keeps_its_promises():
    assert asyncio.run(check_environment(ENV, Scripted(reader), count=2)) == []
