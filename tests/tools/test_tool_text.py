"""The text protocol: what a model without native calls reads and writes, and what an environment sees of it."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import templates
from counts import lines_run
from wanderlust.errors import PolicyFailure
from wanderlust.openai_types import declare_tool
from wanderlust.policies.chat_template import Renderer
from wanderlust.policies.scripted import Recorded, Scripted
from wanderlust.policies.token_policy import TokenPolicy
from wanderlust.runner.engine import rollout
from wanderlust.tools.function import tool as function_tool
from wanderlust.tools.text_protocol import MAX_TEXT_CALLS, TextProtocol, parse_text_calls, render_tools_as_text
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import (
    IMAGE_MARK,
    AnswerOptions,
    Completion,
    Message,
    Task,
    Tokens,
    ToolCall,
    assistant,
    system,
    tool_message,
    user,
)


def double(n: int) -> int:
    """Twice the number."""
    return 2 * n


DOUBLE = function_tool(double)
CALL = '<tool_call>{"name": "double", "arguments": {"n": 4}}</tool_call>'


def read(text):
    return [(call.name, call.arguments) for call in parse_text_calls(text)]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("No call.", []),
        (f"I call {CALL} now", [("double", '{"n": 4}')]),
        (f"{CALL}\n{CALL}", [("double", '{"n": 4}')] * 2),
        ('<tool_call>\n{"name": "look"}\n</tool_call>', [("look", "{}")]),
        ('<tool_call>{"arguments": "{\\"n\\": 4}", "name": "double"}</tool_call>', [("double", '{"n": 4}')]),
        ('<tool_call>{"name": "x", "arguments": [1]}</tool_call>', [("x", "[1]")]),
        ("<tool_call>double(4)</tool_call>", [("", "double(4)")]),
        ('<tool_call>{"name": 3}</tool_call>', [("", '{"name": 3}')]),
        ('<tool_call>{"name": "double", "argum', [("", '{"name": "double", "argum')]),
        ("<tool_call></tool_call>", [("", "")]),
        ("<tool_call><tool_call></tool_call></tool_call>", [("", "<tool_call>")]),
        (f"<think>{CALL}</think> {CALL}", [("double", '{"n": 4}')]),
        (f"<think>{CALL}</think> no", []),
        ("</tool_call>", []),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", [("", "[" * 100_000)]),
    ],
)
def test_calls_are_found_in_text(text, calls):
    assert read(text) == calls


def test_reading_ends_and_runs_lines_in_proportion_to_the_text():
    assert len(read("<tool_call>" * 1_000_000)) == 1
    assert len(read(CALL * 100_000)) == MAX_TEXT_CALLS
    for piece in ("<tool_call>", CALL):
        short, long = (lines_run(read, piece * n)[1] for n in (1_000, 10_000))
        assert long <= 11 * short


def test_the_tools_stand_in_the_system_message_and_results_come_from_the_user():
    call, other = (ToolCall(id=i, name="double", arguments='{"n": 4}') for i in "ab")
    said = assistant(f"Well. {CALL}", call)
    talk = [system("Be brief."), user("Hi"), said, tool_message("8", call), tool_message("8", other), user("Go on.")]
    first, hi, well, results, on = render_tools_as_text(talk, [DOUBLE])
    assert first.role == "system"
    assert first.content.startswith("Be brief.\n\nYou can call these tools")
    assert '{"name":"double","description":"Twice the number.","parameters":{"type":"object"' in first.content
    assert (hi, on) == (user("Hi"), user("Go on."))
    assert well == assistant(f"Well. {CALL}")
    assert results == user("<tool_response>\n8\n</tool_response>\n<tool_response>\n8\n</tool_response>")
    assert render_tools_as_text(talk[1:], [DOUBLE])[0].role == "system"
    assert render_tools_as_text([user("Hi")]) == [user("Hi")]


def test_native_calls_of_a_prefix_are_written_out():
    call = ToolCall(id="a", name="double", arguments='{"n": 4}')
    assert render_tools_as_text([assistant("Well.", call)]) == [assistant(f"Well.\n{CALL}")]


class Inner:
    """Says lines with tokens, and keeps what it was shown."""

    def __init__(self, *lines, finish="stop"):
        self.lines, self.finish, self.shown, self.released = list(lines), finish, [], []

    async def complete(self, messages, tools=(), *, key=""):
        assert not tools
        self.shown.append(list(messages))
        turn = sum(message.role == "assistant" for message in messages)
        tokens = Tokens(prompt=(1,), completion=(2,), logprobs=(-0.5,))
        return Completion(message=assistant(self.lines[turn]), finish=self.finish, tokens=tokens)

    def release(self, key):
        self.released.append(key)


TASK = Task(id="t", prompt=(user("Twice four?"),))


def test_an_environment_sees_calls_and_the_model_sees_its_own_words():
    inner = Inner(f"Let me see. {CALL} <tool_call>hm</tool_call>", "8")
    played = asyncio.run(rollout(ToolEnvironment([TASK], tools=[double]), TASK, TextProtocol(inner)))
    first, last = played.trajectory.turns
    assert (played.error, last.action.content) == (None, "8")
    assert [(c.id, c.name) for c in first.action.tool_calls] == [("call_1_0", "double"), ("call_1_1", "")]
    assert (first.finish, first.tokens) == ("tool_calls", Tokens(prompt=(1,), completion=(2,), logprobs=(-0.5,)))
    assert [m.content for m in last.observation] == ["8", "error: this is not a tool call: hm"]
    assert played.state["tool_calls"] == {"done": 1, "malformed": 1}
    before, after = inner.shown
    assert after[: len(before)] == before
    assert after[len(before)] == assistant(f"Let me see. {CALL} <tool_call>hm</tool_call>")
    assert inner.released == ["t/0/0/agent"]


def test_a_recording_replays_without_the_protocol():
    env = ToolEnvironment([TASK], tools=[double])
    played = asyncio.run(rollout(env, TASK, TextProtocol(Inner(CALL, "8"))))
    again = asyncio.run(rollout(env, TASK, Recorded(played)))
    assert (again.error, again.trajectory) == (None, played.trajectory)


def test_without_tools_nothing_is_read_as_a_call():
    done = asyncio.run(TextProtocol(Inner(CALL)).complete([user("x")]))
    assert done.message.tool_calls == ()


def test_a_message_that_was_cut_says_so():
    done = asyncio.run(TextProtocol(Inner("<tool_call>{", finish="length")).complete([user("x")], [DOUBLE]))
    assert (done.finish, done.message.tool_calls[0].name) == ("length", "")


pieces = st.sampled_from(
    ["<tool_call>", "</tool_call>", CALL, '{"name": "double", "arguments":', "</think>", "\ud800", "}"]
)
anything = st.lists(pieces | st.text(st.characters(exclude_categories=()), max_size=20), max_size=12).map("".join)


@pytest.mark.filterwarnings("ignore::wanderlust.errors.ToolsWarning")
@settings(max_examples=200)
@given(st.lists(anything, min_size=1, max_size=3))
def test_nothing_that_a_model_writes_breaks_an_episode(answers):
    policy = TextProtocol(Scripted([*answers, "done"]))
    played = asyncio.run(rollout(ToolEnvironment([TASK], tools=[double]), TASK, policy))
    assert played.error is None
    played = asyncio.run(rollout(ToolEnvironment([TASK], tools=[double]), TASK, Scripted([*answers, "done"])))
    assert played.error is None


def test_options_reach_the_policy_and_calls_as_text_cannot_be_forced():
    text = '<tool_call>{"name": "look", "arguments": {"n": 1}}</tool_call>'
    tokenizer = templates.tokenizer_with(templates.PLAIN)
    says = templates.Says(text, tokenizer=tokenizer)
    policy = TextProtocol(TokenPolicy(says, Renderer(tokenizer)))
    assert policy.unsupported_option(AnswerOptions(max_tokens=5)) == ""
    assert policy.unsupported_option(AnswerOptions(max_tokens=5, tool_choice="required")) == "tool_choice"
    assert TextProtocol(Scripted(["x"])).unsupported_option(AnswerOptions(max_tokens=5)) == "max_tokens"
    options, tool = AnswerOptions(max_tokens=5, logprobs=True), declare_tool("look", "", None)
    done = asyncio.run(policy.complete_with_options(options, [user("x")], [tool], key="k"))
    assert [call.name for call in done.message.tool_calls] == ["look"]
    assert len(done.details.logprobs) == len(done.tokens.completion)
    with pytest.raises(PolicyFailure, match="cannot honour max_tokens"):
        asyncio.run(TextProtocol(Scripted(["x"])).complete_with_options(options, [user("x")], key="k"))


def test_a_model_of_text_refuses_images_by_itself():
    tokenizer = templates.tokenizer_with(templates.PLAIN)
    policy = TokenPolicy(templates.Says("x", tokenizer=tokenizer), Renderer(tokenizer))
    with pytest.raises(PolicyFailure, match="reads text alone"):
        asyncio.run(policy.complete([Message("user", IMAGE_MARK, images=("https://x/y.png",))]))
    assert asyncio.run(policy.complete([user("hello")])).message.content == "x"
