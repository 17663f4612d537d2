"""Tool calls of local models: which dialect a template speaks, what is read out of answers, and exact ids after it."""

from __future__ import annotations

import asyncio
import json
import random
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

import templates
from templates import Says, tokenizer_with
from wanderlust.errors import PolicyFailure
from wanderlust.policies.chat_template import PrefixWarning, Renderer, Rendering, ToolsWarning
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.policies.tool_formats import tagged_json
from wanderlust.policies.tool_formats.python_calls import (
    MAX_NESTING,
    LiteralParseError,
    parse_python_calls,
    render_python_call,
)
from wanderlust.policies.tool_formats.tagged_json import MAX_PARSED_CALLS, ToolCallFormat, call_id
from wanderlust.runner.engine import rollout
from wanderlust.tools.function import FunctionTool
from wanderlust.tools.tool_calls import CallOutcome, call_tools
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.training.batch.samples import to_samples
from wanderlust.types import Message, Task, ToolCall, Trajectory, Turn, assistant, system, tool_message, user

DIALECTS = [
    tagged_json.HERMES,
    tagged_json.TAGGED,
    tagged_json.LLAMA,
    tagged_json.MISTRAL,
    tagged_json.MISTRAL_NAMED,
    tagged_json.LFM,
]
ARGUMENTS = {"city": "Zürich \"quoted\" 'so' {[(", "deep": {"a": [1, 2.5, None, True, {"b": ""}]}, "n": -3}


def renderer_of(template: str) -> Renderer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrefixWarning)
        return Renderer(tokenizer_with(template))


def look(city: str = "", deep: dict | None = None, n: int = 0) -> str:
    """Looks."""
    return f"{city} {n}"


LOOK = FunctionTool(look)


def calls_of(message: Message) -> list[tuple[str, object]]:
    return [(call.name, json.loads(call.arguments)) for call in message.tool_calls]


SPEAKS = {
    "HERMES": "hermes",
    "THINKING": "hermes",
    "REASONER": "hermes",
    "TAGGED": "tagged",
    "LLAMA": "llama",
    "MISTRAL": "mistral",
    "MISTRAL_NAMED": "mistral, named",
    "LFM": "lfm",
    "LFM_SILENT": "lfm",
    "PLAIN": "text",
}


@pytest.mark.parametrize("name", SPEAKS)
def test_a_template_is_recognised_by_what_it_writes(name):
    dialect = renderer_of(getattr(templates, name)).tool_call_format
    assert dialect.name == SPEAKS[name]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
def test_what_is_written_is_read_again(dialect):
    calls = [ToolCall(id=call_id(3, 0), name="look", arguments=json.dumps(ARGUMENTS, ensure_ascii=False))]
    calls.append(ToolCall(id=call_id(3, 1), name="clock", arguments="{}"))
    said = dialect.parse(("" if dialect.bare else "Let me see.\n") + dialect.render_calls(calls), [LOOK], turn=3)
    assert calls_of(said) == [("look", ARGUMENTS), ("clock", {})]
    assert said.content == ("" if dialect.bare else "Let me see.")
    assert [call.id for call in said.tool_calls] == ["c00003000", "c00003001"]


WRITTEN = {
    "hermes": [
        '<tool_call>\n{"name": "look", "arguments": {"n": 1}}\n</tool_call>',
        '<tool_call>{"arguments": "{\\"n\\": 1}", "name": "look"}</tool_call>',
        'Well. <tool_call>{"name": "look", "arguments": {"n": 1}}',
        '<think>not <tool_call>this</tool_call></think><tool_call>{"name": "look", "arguments": {"n": 1}}</tool_call>',
    ],
    "tagged": [
        "<tool_call>\n<function=look>\n<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>",
        "Well. <tool_call><function=look><parameter=n>1</parameter></function>",
        "<tool_call><function=look>\n<parameter=n>\n1\n</parameter></tool_call>",
    ],
    "llama": [
        '{"name": "look", "parameters": {"n": 1}}',
        '<|python_tag|>{"type": "function", "name": "look", "parameters": {"n": 1}}',
        'Well.\n<|python_tag|>{"name": "look", "arguments": {"n": 1}}',
        "<|python_tag|>look.call(n=1)",
    ],
    "mistral": [
        '[TOOL_CALLS] [{"name": "look", "arguments": {"n": 1}, "id": "abcdefghi"}]',
        '[TOOL_CALLS][{"name": "look", "arguments": {"n": 1}}]\n',
        '[TOOL_CALLS]look[ARGS]{"n": 1}',
        '[TOOL_CALLS]look[CALL_ID]abcdefghi[ARGS]{"n": 1}',
        'Well.[TOOL_CALLS]{"name": "look", "arguments": {"n": 1}}',
    ],
    "lfm": [
        "<|tool_call_start|>[look(n=1)]<|tool_call_end|>",
        "Well. <|tool_call_start|>look(n=1)<|tool_call_end|>",
        '<|tool_call_start|>[{"name": "look", "arguments": {"n": 1}}]<|tool_call_end|>',
        "<|tool_call_start|>[ look( n = 1, ) ]",
    ],
}
NAMED = {dialect.name: dialect for dialect in DIALECTS}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRITTEN.items() for text in texts])
def test_what_models_write(name, text):
    said = NAMED[name].parse(text, [LOOK])
    assert calls_of(said) == [("look", {"n": 1})]
    assert said.content in ("", "Well.", "<think>not <tool_call>this</tool_call></think>")


BROKEN = {
    "hermes": ["<tool_call>{", "<tool_call>hello</tool_call>", '<tool_call>{"arguments": {}}</tool_call>'],
    "tagged": ["<tool_call><function=look><parameter=n>1", "<tool_call><function=look>so", "<tool_call>{}</tool_call>"],
    "llama": ['{"name": "look", "parameters": {"n": ', "<|python_tag|>import os", "<|python_tag|>os.call(1 + 1)"],
    "mistral": ["[TOOL_CALLS]", "[TOOL_CALLS][{]", '[TOOL_CALLS]look[ARGS]{"n"', "[TOOL_CALLS] later"],
    "lfm": ["<|tool_call_start|>[__import__('os')]", "<|tool_call_start|>[f(x=g())]<|tool_call_end|>"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BROKEN.items() for text in texts])
def test_a_broken_call_is_an_error_that_the_model_sees(name, text):
    said = NAMED[name].parse(f"{text}", turn=1)
    (call,) = said.tool_calls
    assert call.name == ""
    assert call.arguments in text
    (answer,) = asyncio.run(call_tools(said.tool_calls, [LOOK]))
    assert answer.outcome is CallOutcome.MALFORMED
    assert answer.text.startswith("error: this is not a tool call")


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("text", ["", "hello", '{"answer": 3}', '{"name": "Bob", "age": 3}', "a [list] of {things}"])
def test_ordinary_text_stays_as_it_is(name, text):
    assert NAMED[name].parse(text) == assistant(text)


def test_what_a_tagged_value_is_the_schema_tells():
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in SAID.items())
    said = tagged_json.TAGGED.parse(f"<tool_call>\n<function=look>\n{written}</function>\n</tool_call>", [LOOK])
    assert calls_of(said) == [("look", {"city": "5", "deep": {"a": [1]}, "n": 5, "other": "5"})]
    unknown = tagged_json.TAGGED.parse(
        "<tool_call><function=go><parameter=n>5</parameter></function></tool_call>", [LOOK]
    )
    assert calls_of(unknown) == [("go", {"n": "5"})]


SAID = {"city": "5", "deep": '{"a": [1]}', "n": "5", "other": "5"}


def test_more_calls_than_anybody_needs_stay_text():
    one = tagged_json.HERMES.render_calls([ToolCall(id="x", name="look", arguments="{}")])
    said = tagged_json.HERMES.parse(one * (MAX_PARSED_CALLS + 5))
    assert len(said.tool_calls) == MAX_PARSED_CALLS
    assert said.content == one * 5
    many = "<|tool_call_start|>[" + "look()," * 200 + "]<|tool_call_end|>"
    assert tagged_json.LFM.parse(many) == assistant(many)


PIECES = [
    *("<tool_call>", "</tool_call>", "<|tool_call_start|>", "<|tool_call_end|>", "[TOOL_CALLS]", "[ARGS]", "</think>"),
    *("<function=f>", "<parameter=x>", "</parameter>", "</function>", "<|python_tag|>", "f(x=", "[", "]", "{", "}"),
    *('{"name": "f", "parameters": ', '{"name": "f", "arguments": {}}', "9" * 400, "1e999", ",", ";", "=", ":", " "),
    *("(", ")", "'", '"', "\\", "\\ud800", "1", "-", "\n", "é", "\x00"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=60))
def test_no_text_makes_reading_fail_and_none_is_lost(text):
    for dialect in DIALECTS:
        said = dialect.parse(text, turn=7)
        assert len(said.tool_calls) <= MAX_PARSED_CALLS
        for call in said.tool_calls:
            (call.name + call.arguments).encode()
            assert call.name or call.arguments in text
        if not said.tool_calls:
            assert said.content == text
        shown = dialect.calls_as_text(said)
        assert all(call.name for call in shown.tool_calls)


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_text_that_was_streamed_as_sure_is_never_taken_back(text):
    for dialect in DIALECTS:
        sent = 0
        for end in range(len(text) + 1):
            sure = dialect.certain_length(text[:end])
            assert sent <= sure <= end
            sent = sure
        said = dialect.parse(text)
        if said.tool_calls:
            assert said.content.startswith(text[:sent].rstrip())


def test_hostile_depth_and_length_end_quickly():
    for dialect in DIALECTS:
        for text in ("[" * 100_000, "{" * 100_000, "f(" * 100_000, "-" * 100_000, '{"a":' * 50_000):
            for mark in (*dialect.marks, ""):
                dialect.parse(mark + text)
        for mark in dialect.marks:
            dialect.parse(mark * 20_000)
            dialect.certain_length(mark[:-1] * 20_000)


LITERALS = [
    ("f(x=1, y=-2.5, z=.5)", {"x": 1, "y": -2.5, "z": 0.5}),
    ("f(x='a\\'b', y=\"c\\n\\u00e9\" 'd')", {"x": "a'b", "y": "c\né" + "d"}),
    ("f(x=[1, (2, 3), {}], y={'k': None, \"l\": true})", {"x": [1, [2, 3], {}], "y": {"k": None, "l": True}}),
    ("f(x='multi\nline', y=1_000)", {"x": "multi\nline", "y": 1000}),
]


@pytest.mark.parametrize(("text", "given_"), LITERALS)
def test_literals_of_python_and_json(text, given_):
    ((name, arguments),) = parse_python_calls(text)
    assert (name, json.loads(arguments)) == ("f", given_)
    assert parse_python_calls(render_python_call(name, arguments)) == [(name, arguments)]


CODE = ["f(1)", "f(x=y)", "f(x=1+1)", "f(x=g())", "f(x=[i for i in y])", "f(x=lambda: 1)", "f(**{})", "f(x=1e999)"]
CODE += [
    "f(x='a)",
    "f(x=1) or g()",
    "f",
    "f(x={1: 2})",
    "f(x='\\ud800')",
    "f(x=" + "[" * (MAX_NESTING + 1),
    "",
    "f(x=f'')",
]


@pytest.mark.parametrize("text", CODE)
def test_code_is_no_literal(text):
    with pytest.raises(LiteralParseError):
        parse_python_calls(text)


# --- ids ---

ANSWERS = [("hm", 1), ("", 2), ("<think>so</think>", 1)]


def asked_and_answered(template: str, content: str, count: int) -> tuple[Renderer, list[Message], tuple[int, ...]]:
    """A conversation that ends in a sampled answer with calls, and that answer's ids, the end of turn among them."""
    renderer = renderer_of(template)
    said = [ToolCall(id=call_id(2, n), name="look", arguments=json.dumps({"n": n})) for n in range(count)]
    known = [system("s"), user("look, please"), assistant(content, *said)]
    opening, whole = renderer.text(known[:2]), renderer.text(known, asks=False)
    answer = whole[len(opening) :]
    ids = renderer.tokenizer.encode(answer, add_special_tokens=False)
    end = ids.index(renderer.tokenizer.eos_token_id)
    return renderer, known, tuple(ids[: end + 1])


APPENDING = ["HERMES", "TAGGED", "LLAMA", "MISTRAL_NAMED", "LFM", "LFM_SILENT"]


@pytest.mark.parametrize("name", APPENDING)
@pytest.mark.parametrize(("content", "count"), ANSWERS)
@pytest.mark.parametrize("closed", [True, False])
def test_results_extend_the_sampled_ids_exactly(name, content, count, closed):
    if name == "LLAMA":
        content, count = "", 1  # its template writes nothing else
    renderer, known, ids = asked_and_answered(getattr(templates, name), content, count)
    said = renderer.parse_answer(ids, [LOOK], turn=2)
    assert (said.content, calls_of(said)) == (known[-1].content, calls_of(known[-1]))
    assert [call.id for call in said.tool_calls] == [call.id for call in known[-1].tool_calls]
    results = [tool_message(f"it is {n}", call) for n, call in enumerate(said.tool_calls)]
    more = renderer.extend([*known[:2], said], results, closed=closed)
    assert more is not None
    whole = (*renderer.start(known[:2]), *(ids if closed else ids[:-1]), *more)
    assert whole == renderer.start([*known[:2], said, *results])


def test_thoughts_stay_while_results_come_and_a_rewritten_turn_is_split():
    renderer, known, ids = asked_and_answered(templates.THINKING, "<think>so</think>", 1)
    assert not renderer.appends
    said = renderer.parse_answer(ids, [LOOK], turn=2)
    results = [tool_message("it is 0", said.tool_calls[0])]
    more = renderer.extend([*known[:2], said], results, closed=True)
    assert more is not None
    assert (*renderer.start(known[:2]), *ids, *more) == renderer.start([*known[:2], said, *results])
    assert renderer.extend([*known[:2], said], [*results, user("and now?")], closed=True) is None


TALK = ["<think>a\nplan</think>\nHello.", "<think>hm</think>", "<think>so</think>Well.", "Nothing to think."]


@pytest.mark.parametrize("name", ["THINKING", "REASONER"])
@pytest.mark.parametrize("calls", [False, True])
def test_where_answers_are_kept_an_episode_is_one_sequence(name, calls):
    """The user speaks four times; with calls, a result comes between, of one call or of two."""
    tokenizer = tokenizer_with(getattr(templates, name))
    with pytest.warns(PrefixWarning, match="stay in the context as they were sampled"):
        renderer = Renderer(tokenizer, Rendering(keeps_answers=True))
    written = [renderer.tool_call_format.render_calls(_calls(1 + n % 2)) for n in range(4)]
    texts = [
        part for said, call in zip(TALK, written, strict=True) for part in ((said + call, said) if calls else (said,))
    ]
    turns, known = episode(TokenPolicy(Says(*texts, tokenizer=tokenizer), renderer), calls=calls)
    (sample,) = to_samples(Trajectory(turns=turns, advantage=1.0))
    sampled = [i for i, on in zip(sample.ids, sample.mask, strict=True) if on]
    assert sampled == [token for turn in turns for token in turn.tokens.completion]
    shown = tokenizer.decode(sample.ids)
    for text in texts:  # word for word, thoughts and calls included
        assert text in shown
        shown = shown[shown.index(text) + len(text) :]
    whole = tokenizer.decode(sample.ids)
    for number in range(4):
        assert whole.count(f"Question {number}?") == 1
    assert whole.count("it is ") == (6 if calls else 0)
    # Between two answers stands what the template writes there.
    for number, turn in enumerate(turns[1:], 1):
        between = tokenizer.decode(turn.tokens.prompt)
        assert renderer.text(known[number]).endswith(between)


def test_where_answers_are_not_kept_every_question_begins_a_sequence():
    tokenizer = tokenizer_with(templates.THINKING)
    policy = TokenPolicy(Says(*TALK, tokenizer=tokenizer), renderer_of(templates.THINKING))
    turns, _ = episode(policy, calls=False)
    assert [turn.tokens.offset for turn in turns] == [0, 0, 0, 0]


def test_what_hides_the_last_answer_begins_a_sequence_even_where_answers_are_kept():
    forgetful = templates.PLAIN.replace("{{ m.content }}", "{{ m.content if m.role == 'user' or loop.last else '' }}")
    with pytest.warns(PrefixWarning):
        renderer = Renderer(tokenizer_with(forgetful), Rendering(keeps_answers=True))
    assert renderer.extend([user("a"), assistant("b")], [user("c")], closed=True) is None


def _calls(count: int) -> list[ToolCall]:
    return [ToolCall(id=call_id(1, n), name="look", arguments=json.dumps({"n": n})) for n in range(count)]


def episode(policy: TokenPolicy, *, calls: bool) -> tuple[list[Turn], list[list[Message]]]:
    """The turns of four questions, and the messages that each answer was asked with."""

    async def talk() -> tuple[list[Turn], list[list[Message]]]:
        messages, turns, known = [system("s")], [], []
        for number in range(4):
            new = [user(f"Question {number}?")]
            while new:
                messages += new
                known.append(list(messages))
                done = await policy.complete(messages, [LOOK] if calls else [], key="k")
                turns.append(Turn(observation=tuple(new), action=done.message, tokens=done.tokens, finish=done.finish))
                messages.append(done.message)
                new = [tool_message(f"it is {n}", call) for n, call in enumerate(done.message.tool_calls)]
        return turns, known

    return asyncio.run(talk())


def test_a_call_that_the_template_would_write_otherwise_keeps_its_sampled_ids():
    renderer = renderer_of(templates.HERMES)
    text = '<tool_call>{"arguments":{"n":1},   "name":"look"}</tool_call>'
    ids = (*renderer.tokenizer.encode(text, add_special_tokens=False), renderer.tokenizer.eos_token_id)
    said = renderer.parse_answer(ids, [LOOK], turn=1)
    more = renderer.extend([user("x"), said], [tool_message("it is 1", said.tool_calls[0])], closed=True)
    assert more is not None
    shown = renderer.text([user("x")]) + renderer.tokenizer.decode((*ids, *more))
    assert f"assistant\n{text}<|im_end|>\n<|im_start|>user\n<tool_response>\nit is 1\n</tool_response>" in shown


@pytest.mark.parametrize("name", [name for name in SPEAKS if SPEAKS[name]])
def test_broken_and_many_calls_are_rendered_afresh_as_they_were(name):
    renderer = renderer_of(getattr(templates, name))
    dialect = renderer.tool_call_format
    assert isinstance(dialect, ToolCallFormat)
    broken = ToolCall(id=call_id(1, 0), name="", arguments="not a call")
    twice = [ToolCall(id=call_id(3, n), name="look", arguments="{}") for n in range(2)]
    known = [user("x"), assistant("", broken), tool_message("error", broken), assistant("", *twice)]
    known += [tool_message("it is 0", call) for call in twice]
    text = renderer.text(known)
    assert dialect.render_calls([broken]) in text
    assert text.count('"look"') + text.count("look(") + text.count("look[ARGS]") + text.count("=look>") >= 2


def test_without_tools_calls_are_just_text():
    renderer = renderer_of(templates.HERMES)
    text = '<tool_call>{"name": "look"}</tool_call>'
    assert renderer.parse_answer(renderer.tokenizer.encode(text, add_special_tokens=False)) == assistant(text)


def test_a_template_without_calls_is_told_of_its_tools_in_words():
    renderer = renderer_of(templates.PLAIN)
    shown = renderer.tokenizer.decode(renderer.start([user("x")], [LOOK]))
    assert '"name":"look"' in shown
    assert "<tool_call>" in shown
    called = assistant("Well.", ToolCall(id=call_id(1, 0), name="look", arguments='{"n": 1}'))
    ids = renderer.render_answer(called, [user("x")], [LOOK])
    assert renderer.parse_answer(ids, [LOOK], turn=1) == called
    more = renderer.extend([user("x"), called], [tool_message("it is 1", called.tool_calls[0])], closed=True)
    assert "<|im_start|>user\n<tool_response>\nit is 1\n</tool_response>" in renderer.tokenizer.decode(more)


def test_a_template_with_calls_of_an_unknown_form_says_so():
    unknown = templates.HERMES.replace("<tool_call>", "<invoke>").replace("</tool_call>", "</invoke>")
    renderer = renderer_of(unknown)
    with pytest.warns(ToolsWarning, match="in a form that is not known here"):
        assert "<tool_call>" in renderer.tokenizer.decode(renderer.start([user("x")], [LOOK]))


def test_a_conversation_that_the_template_refuses_is_one_line():
    renderer = renderer_of(templates.MISTRAL)
    call = ToolCall(id="no", name="look", arguments="{}")
    with pytest.raises(PolicyFailure, match="refuses this conversation: ids have nine characters"):
        renderer.start([user("x"), assistant("", call), tool_message("it is 0", call)])


PLAY = '<tool_call>{"name": "look", "arguments": {"n": 1}}</tool_call>'


@pytest.mark.parametrize("name", ["HERMES", "THINKING"])
def test_an_episode_with_tools_is_one_sequence(name):
    renderer = renderer_of(getattr(templates, name))
    says = Says(f"<think>so</think>{PLAY}", "<tool_call>{</tool_call>", "done", tokenizer=renderer.tokenizer)
    task = Task(id="t", prompt=(user("look"),))
    env = ToolEnvironment([task], tools=[LOOK])
    played = asyncio.run(rollout(env, task, TokenPolicy(says, renderer)))
    assert played.error is None
    turns = played.trajectory.turns
    assert [turn.finish for turn in turns] == ["tool_calls", "tool_calls", "stop"]
    assert turns[2].observation[0].content.startswith("error: this is not a tool call")
    (sample,) = to_samples(played.trajectory)
    assert tuple(sample.ids[: len(says.prompts[-1][0])]) == says.prompts[-1][0]
    assert sum(sample.mask) == sum(len(turn.tokens.completion) for turn in turns)


def test_other_tools_are_told_anew():
    renderer = renderer_of(templates.HERMES)
    says = Says("one", "two", "three", tokenizer=renderer.tokenizer)
    policy = TokenPolicy(says, renderer)

    async def talk():
        messages, done = [user("x")], []
        for tools in ([], [LOOK], []):
            done.append(await policy.complete(messages, tools, key="k"))
            messages += [done[-1].message, user("y")]
        return [one.tokens.offset > 0 for one in done]

    assert asyncio.run(talk()) == [False, False, True]
    assert '"name": "look"' in renderer.tokenizer.decode(says.prompts[1][0])


def test_a_random_order_of_turns_extends_as_the_template_would_write():
    renderer = renderer_of(templates.HERMES)
    for seed in range(40):
        rng = random.Random(seed)
        messages: list[Message] = [system("s"), user("begin")]
        ids = renderer.start(messages)
        for _ in range(5):
            calls = [("look", json.dumps({"n": rng.randrange(9)})) for _ in range(rng.randrange(3))]
            text = f"so\n{tagged_json.HERMES.wrap(calls)}" if calls else "so"
            sampled = renderer.tokenizer.encode(text, add_special_tokens=False)
            closed = rng.random() < 0.8
            sampled += [renderer.tokenizer.eos_token_id] * closed
            said = renderer.parse_answer(sampled, [LOOK], turn=len(messages))
            new = [tool_message("it is", call) for call in said.tool_calls] or [user("go on")]
            more = renderer.extend([*messages, said], new, closed=closed)
            assert more is not None
            ids, messages = (*ids, *sampled, *more), [*messages, said, *new]
        assert ids == renderer.start(messages)
