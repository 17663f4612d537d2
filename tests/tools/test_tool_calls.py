"""The tool call: everything is answered, bounded and counted; only broken machinery ends an episode."""

import asyncio
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patience import PATIENCE
from wanderlust.errors import SandboxFailure, StopEpisode, ToolFailure, UsageError
from wanderlust.tools.function import ToolError, tool
from wanderlust.tools.tool_calls import CallLimits, CallOutcome, call_tools, count_outcomes
from wanderlust.types import ToolCall


def answer(*calls, tools, limits=None):
    """What becomes of calls, given as pairs of a name and raw arguments."""
    made = [ToolCall(id=f"c{n}", name=name, arguments=arguments) for n, (name, arguments) in enumerate(calls)]
    return asyncio.run(asyncio.wait_for(call_tools(made, map(tool_of, tools), limits), PATIENCE))


def tool_of(source):
    return source if hasattr(source, "schema") else tool(source)


def double(n: int) -> int:
    return 2 * n


def fails(what: str) -> str:
    raise ValueError(f"no {what}\nat all")


def leaves() -> str:
    sys.exit("usage: leaves")


def ends() -> str:
    return next(iter([]))


async def cancels() -> str:
    raise asyncio.CancelledError


class Silent(Exception):
    def __str__(self):
        raise RuntimeError


async def mute() -> str:
    raise Silent


async def grouped() -> str:
    raise ExceptionGroup("many", [ValueError("one")])


async def impatient() -> str:
    raise TimeoutError("of its own")


def refuses() -> str:
    raise ToolError("the shop is closed")


@pytest.mark.parametrize(
    ("name", "arguments", "outcome", "says"),
    [
        ("double", '{"n": 4}', CallOutcome.DONE, "8"),
        ("doubel", "{}", CallOutcome.UNKNOWN_TOOL, "error: there is no tool 'doubel'; there are: double, fails"),
        ("double", '{"n": 4', CallOutcome.INVALID_JSON, "error: the arguments of double are not valid JSON"),
        ("double", '{"n": NaN}', CallOutcome.INVALID_JSON, "double"),
        ("double", "\ud800", CallOutcome.INVALID_JSON, "double"),
        ("double", "[" * 100_000, CallOutcome.INVALID_JSON, "recursion"),
        ("double", "[4]", CallOutcome.WRONG_ARGUMENTS, "must be a JSON object, not list"),
        ("double", "null", CallOutcome.WRONG_ARGUMENTS, "must be a JSON object"),
        ("double", '{"n": "4"}', CallOutcome.WRONG_ARGUMENTS, "Expected `int`, got `str` - at `$.n`"),
        ("double", "", CallOutcome.WRONG_ARGUMENTS, "missing required field `n`"),
        ("double", '{"n": 1, "n\\u0000": 2}', CallOutcome.WRONG_ARGUMENTS, "unknown field"),
        ("", "gibberish", CallOutcome.MALFORMED, "this is not a tool call: gibberish"),
        ("fails", '{"what": "luck"}', CallOutcome.TOOL_ERROR, "error: ValueError: no luck\\nat all"),
        ("leaves", "", CallOutcome.TOOL_ERROR, "SystemExit: usage: leaves"),
        ("ends", "", CallOutcome.TOOL_ERROR, "StopIteration"),
        ("cancels", "", CallOutcome.TOOL_ERROR, "cancelled itself"),
        ("mute", "", CallOutcome.TOOL_ERROR, "Silent"),
        ("grouped", "", CallOutcome.TOOL_ERROR, "ExceptionGroup: many"),
        ("impatient", "", CallOutcome.TOOL_ERROR, "TimeoutError: of its own"),
        ("refuses", "{}", CallOutcome.TOOL_ERROR, "error: the shop is closed"),
    ],
)
def test_each_call_is_answered_in_one_line(name, arguments, outcome, says):
    every = [double, fails, leaves, ends, cancels, mute, grouped, impatient, refuses]
    (one,) = answer((name, arguments), tools=every)
    assert one.outcome is outcome
    assert says in one.text
    assert len(one.text) <= 600
    assert "\n" not in one.text
    assert (one.message.role, one.message.tool_call_id, one.message.content) == ("tool", "c0", one.text)


def test_calls_of_one_message_run_at_once_and_are_answered_in_their_order():
    arrived = []
    everybody = asyncio.Event()

    async def meet(name: str) -> str:
        arrived.append(name)
        if len(arrived) == 3:
            everybody.set()
        await everybody.wait()
        return name

    calls = [("meet", f'{{"name": "{name}"}}') for name in "abc"]
    assert [one.text for one in answer(*calls, tools=[tool(ordered=False)(meet)])] == [*"abc"]
    assert sorted(arrived) == [*"abc"]


def test_tools_with_shared_state_take_turns_in_the_order_of_the_calls():
    class Log:
        def __init__(self):
            self.lines = []

        def write(self, line: int) -> int:
            """Would lose lines if two ran at once."""
            before = [*self.lines]
            time.sleep(0)
            self.lines = [*before, line]
            return len(self.lines)

    log = Log()
    done = answer(*[("write", f'{{"line": {n}}}') for n in range(30)], tools=[log.write])
    assert log.lines == [*range(30)]
    assert [one.text for one in done] == [str(n + 1) for n in range(30)]


@pytest.mark.parametrize("blocking", [True, False])
def test_a_tool_that_takes_too_long_is_stopped_and_the_loop_goes_on(blocking):
    gate = threading.Event()

    def wait():
        gate.wait()

    async def wait_politely():
        await asyncio.Event().wait()

    stuck = tool(name="wait", timeout=0.05)(wait if blocking else wait_politely)
    slow, fast = answer(("wait", ""), ("double", '{"n": 1}'), tools=[stuck, double])
    gate.set()
    assert (slow.outcome, slow.text) == (CallOutcome.TIMEOUT, "error: wait was stopped after 0.05 seconds")
    assert fast.outcome is CallOutcome.DONE


def test_the_limits_time_holds_for_tools_without_their_own():
    async def wait():
        await asyncio.Event().wait()

    (one,) = answer(("wait", ""), tools=[wait], limits=CallLimits(timeout=0.01))
    assert one.outcome is CallOutcome.TIMEOUT


def test_long_results_are_cut_and_say_so():
    def long() -> str:
        return "x" * 1_000_000

    (one,) = answer(("long", ""), tools=[long], limits=CallLimits(max_result_chars=100))
    assert one.truncated
    assert one.text == "x" * 100 + "\n[cut: the first 100 of 1000000 characters]"


def test_a_result_can_always_be_sent():
    def odd() -> str:
        return "a\ud800b"

    (one,) = answer(("odd", ""), tools=[odd])
    assert one.text == "a\\ud800b"


def test_too_many_calls_are_refused_but_answered():
    done = answer(*[("double", '{"n": 1}')] * 5, tools=[double], limits=CallLimits(max_calls=2))
    assert [one.outcome for one in done] == [CallOutcome.DONE] * 2 + [CallOutcome.TOO_MANY] * 3
    tally = {}
    count_outcomes(done, tally)
    count_outcomes(done, tally)
    assert tally == {"done": 4, "too_many": 6}


@pytest.mark.parametrize(
    "error", [ToolFailure("gone", transient=True), SandboxFailure("x"), StopEpisode("quit"), UsageError("u")]
)
def test_what_the_model_is_not_to_blame_for_is_raised_and_ends_the_other_calls(error):
    ended = []

    async def breaks() -> str:
        raise error

    async def waits() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(type(error)) as told:
        answer(("waits", ""), ("breaks", ""), tools=[tool(ordered=False)(each) for each in (waits, breaks)])
    assert told.value is error
    assert ended == [True]


def test_cancelling_the_episode_cancels_its_calls():
    ended = []

    async def waits() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def go():
        call = ToolCall(id="1", name="waits", arguments="")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await call_tools([call], [tool(waits)])

    asyncio.run(go())
    assert ended == [True]


class Plain:
    """A tool that somebody wrote without us, and that lies about what it returns."""

    name, description, schema = "plain", "", {}

    def __init__(self, value):
        self.value = value

    async def __call__(self, **arguments):
        return self.value


def test_any_tool_that_keeps_the_contract_works():
    (one,) = answer(("plain", '{"self": 1}'), tools=[Plain({"a": 1})])
    assert one.outcome is CallOutcome.TOOL_ERROR  # `self` is taken in this one
    (one,) = answer(("plain", '{"x": 1}'), tools=[Plain({"a": 1})])
    assert one.text == '{"a":1}'


anything = st.text(st.characters(exclude_categories=()), max_size=60)
json_like = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | anything, st.lists, max_leaves=5)


@settings(max_examples=150)
@given(st.lists(st.tuples(anything | st.sampled_from(["double", "fails"]), anything | st.just('{"n": 1}')), max_size=4))
def test_any_call_is_answered_with_text_that_can_be_stored(calls):
    done = answer(*calls, tools=[double, fails])
    assert len(done) == len(calls)
    for one in done:
        one.text.encode()


@settings(max_examples=150)
@given(json_like | st.binary(max_size=60))
def test_any_result_is_text_that_can_be_stored(value):
    (one,) = answer(("plain", "{}"), tools=[Plain(value)])
    one.text.encode()
    assert one.outcome in (CallOutcome.DONE, CallOutcome.TOOL_ERROR)
