"""The shapes of environments: one turn, several turns, tools, toolsets of one episode, and prefixes."""

import asyncio

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderlust.environment import Limits, MultiTurnEnvironment, SingleTurnEnvironment
from wanderlust.environments.calculator import Calculator
from wanderlust.errors import ToolFailure, UsageError
from wanderlust.openai_types import tool_to_wire
from wanderlust.policies.endpoint import Endpoint
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Rubric
from wanderlust.runner.engine import rollout
from wanderlust.testing import check_environment
from wanderlust.tools.function import Injected, toolset
from wanderlust.tools.function import tool as function_tool
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Message, Score, Status, Task, ToolCall, assistant, system, tool_message, user

TASK = Task(id="t", prompt=(system("Be brief."), user("Hi")))


def play(env, *lines, task=TASK, **options):
    policy = lines[0] if len(lines) == 1 and callable(lines[0]) else list(lines)
    return asyncio.run(rollout(env, task, Scripted(policy), **options))


def calls(*named):
    """An assistant message with calls, given as pairs of a name and raw arguments."""
    made = (ToolCall(id=f"c{n}", name=name, arguments=arguments) for n, (name, arguments) in enumerate(named))
    return assistant("", *made)


def test_single_turn_shows_the_prompt_and_takes_one_answer():
    def length(completion):
        return len(completion)

    env = SingleTurnEnvironment([TASK], rubric=Rubric(length), limits=Limits(max_turns=1))
    played = play(env, "four")
    assert played.trajectory.messages == [*TASK.prompt, assistant("four")]
    assert played.trajectory.score == Score(reward=4.0, parts={"length": 4.0})
    assert [*env.tasks()] == [*env.tasks("eval")] == [TASK]


def test_tasks_by_split():
    env = SingleTurnEnvironment({"train": [TASK], "eval": []})
    assert ([*env.tasks()], [*env.tasks("eval")]) == ([TASK], [])
    with pytest.raises(UsageError, match="no split 'test': one of train, eval"):
        env.tasks("test")


class Echo(MultiTurnEnvironment):
    """Answers in every way there is, then ends."""

    def respond(self, messages, episode):
        turn = episode.state["turn"] = episode.state.get("turn", 0) + 1
        return [f"You said {messages[-1].content}", user("one"), [user("two"), user("three")], []][turn - 1]


class Patient(MultiTurnEnvironment):
    async def respond(self, messages, episode):
        await asyncio.sleep(0)
        return None if messages[-1].content == "end" else "go on"


def test_multi_turn_answers_until_there_is_nothing_to_say():
    played = play(Echo([TASK]), *"abcd")
    said = [[m.content for m in turn.observation] for turn in played.trajectory.turns]
    assert said == [["Be brief.", "Hi"], ["You said a"], ["one"], ["two", "three"]]
    assert (played.status, played.stop_reason) == (Status.DONE, "done")
    assert len(play(Patient([TASK]), "x", "y", "end").trajectory.turns) == 3


def test_an_environment_that_never_ends_is_cut():
    played = play(Patient([TASK], limits=Limits(max_turns=5)), lambda messages, rng: "more")
    assert (played.status, played.stop_reason, len(played.trajectory.turns)) == (Status.TRUNCATED, "max_turns", 5)


def test_a_prefix_that_ends_with_the_models_words_is_answered_first():
    task = Task(id="p", prompt=(user("Hi"), assistant("a")))
    first, *_ = play(Echo([task]), *"bcd", task=task).trajectory.turns
    assert first.observation == (user("Hi"), assistant("a"), user("You said a"))
    done = Task(id="p", prompt=(user("Hi"), assistant("end")))
    assert play(Patient([done]), task=done).trajectory.turns == []


def double(n: int) -> int:
    return 2 * n


def test_tools_are_called_until_the_model_answers_without_a_call():
    shown = []

    class Watching(Scripted):
        async def complete(self, messages, tools=(), *, key=""):
            shown.append([one.name for one in tools])
            return await super().complete(messages, tools, key=key)

    two = calls(("double", '{"n": 4}'), ("triple", "{}"))
    played = asyncio.run(rollout(ToolEnvironment([TASK], tools=[double]), TASK, Watching([two, "8"])))
    last = played.trajectory.turns[-1]
    told = "error: there is no tool 'triple'; there are: double"
    assert last.observation == (tool_message("8", two.tool_calls[0]), tool_message(told, two.tool_calls[1]))
    assert shown == [["double"], ["double"]]
    assert played.state == {"tool_calls": {"done": 1, "unknown_tool": 1}}


def test_a_model_behind_http_calls_tools_natively():
    """The answers are those of an endpoint; whether 8 reached it is read from what it was sent."""
    told = []

    async def complete(request):
        told.append(await request.json())
        call = {"id": "c", "type": "function", "function": {"name": "double", "arguments": '{"n": 4}'}}
        said = {"content": told[-1]["messages"][-1]["content"]} if len(told) > 1 else {"tool_calls": [call]}
        return web.json_response({"choices": [{"message": said, "finish_reason": "stop"}]})

    async def go():
        app = web.Application()
        app.router.add_post("/v1/chat/completions", complete)
        async with TestServer(app) as server:
            policy = Endpoint(str(server.make_url("/v1")), "tiny")
            return await rollout(ToolEnvironment([TASK], tools=[double]), TASK, policy)

    played = asyncio.run(go())
    assert (played.error, played.trajectory.messages[-1].content) == (None, "8")
    assert [one["tools"] for one in told] == [[tool_to_wire(function_tool(double))]] * 2
    assert told[1]["messages"][-1] == {"role": "tool", "content": "8", "tool_call_id": "c"}


def test_pending_calls_of_a_prefix_are_made_first():
    pending = calls(("double", '{"n": 4}'))
    task = Task(id="p", prompt=(user("Twice four?"), pending))
    played = play(ToolEnvironment([task], tools=[double]), lambda messages, rng: "8", task=task)
    assert played.trajectory.turns[0].observation == (*task.prompt, tool_message("8", pending.tool_calls[0]))


class Shop(ToolEnvironment):
    """Talks on after the tools: both shapes in one."""

    def respond(self, messages, episode):
        return None if messages[-1].content == "bye" else "anything else?"


class Cart:
    def __init__(self):
        self.items: list[str] = []

    def put(self, item: str) -> int:
        """Put an item in."""
        self.items.append(item)
        return len(self.items)


def pay(amount: int, cart: Injected[Cart]) -> str:
    """Pay for all."""
    return f"paid {amount} for {len(cart.items)}"


left = []


@toolset
async def counter(episode):
    cart = Cart()
    try:
        yield [cart.put, function_tool(pay).bind(cart=cart), inner]
    finally:
        left.append(episode.task.id)
        episode.state["items"] = cart.items


@toolset
async def inner(episode):
    def day() -> str:
        return f"day {episode.rng('day').randrange(7)}"

    yield [day]


def test_a_toolset_is_made_for_the_episode_and_unmade_after_it():
    left.clear()
    buys = calls(("put", '{"item": "egg"}'), ("put", '{"item": "oil"}'), ("pay", '{"amount": 3}'), ("day", ""))
    played = play(Shop([TASK], tools=[counter]), buys, "thanks", "bye")
    assert [m.content for m in played.trajectory.turns[1].observation][:3] == ["1", "2", "paid 3 for 2"]
    assert played.trajectory.turns[2].observation == (user("anything else?"),)
    assert (played.state["items"], left) == (["egg", "oil"], ["t"])
    assert play(Shop([TASK], tools=[counter]), "bye").state["items"] == []


def test_a_toolset_is_unmade_when_the_episode_fails():
    left.clear()
    assert play(Shop([TASK], tools=[counter])).stop_reason == "PolicyFailure"
    assert left == ["t"]


def test_many_episodes_at_once_do_not_share_a_toolset():
    env = Shop([TASK], tools=[counter])

    async def go():
        tasks = [Task(id=f"{n}", prompt=(user("Hi"),)) for n in range(50)]
        buys = [Scripted([calls(*[("put", f'{{"item": "{n}"}}')] * 3), "bye"]) for n in range(50)]
        return await asyncio.gather(*(rollout(env, t, p) for t, p in zip(tasks, buys, strict=True)))

    assert [played.state["items"] for played in asyncio.run(go())] == [[f"{n}"] * 3 for n in range(50)]


@toolset
async def closed(episode):
    raise ToolFailure("the shop burnt down", transient=True)
    yield []


def broken() -> str:
    raise ToolFailure("the wire is cut")


def test_broken_machinery_is_a_tool_failure_and_no_score():
    played = play(ToolEnvironment([TASK], tools=[closed]), "x")
    assert (played.stop_reason, played.error, played.transient) == ("ToolFailure", "the shop burnt down", True)
    played = play(ToolEnvironment([TASK], tools=[broken]), calls(("broken", "")))
    assert (played.stop_reason, played.error, played.trajectory.score) == ("ToolFailure", "the wire is cut", None)


@pytest.mark.parametrize(
    ("tools", "says"),
    [
        ([double, double], "two tools are called double"),
        ([3], "3 is neither a tool, nor a toolset, nor a function"),
        ([lambda x: x], "<lambda>"),
    ],
)
def test_wrong_tools_are_one_line(tools, says):
    played = play(ToolEnvironment([TASK], tools=tools), "x")
    assert played.stop_reason == "EnvironmentFailure"
    assert says in played.error
    assert "\n" not in played.error


def test_the_calculator_works_and_keeps_its_promises():
    env = Calculator()
    task = next(iter(env.tasks("eval")))
    numbers = task.prompt[0].content.removeprefix("What is ").split("?")[0].split(" + ")
    ask = calls(("add", f'{{"numbers": [{", ".join(numbers)}]}}'))
    played = play(env, ask, f"It is {task.answer}", task=task)
    assert played.trajectory.score.reward == 1.0
    assert play(env, "17", task=task).trajectory.score.reward == 0.0
    assert play(env, "", task=task).trajectory.score.reward == 0.0
    assert asyncio.run(check_environment(env)) == []


anything = st.text(st.characters(exclude_categories=()), max_size=40)
any_call = st.builds(
    ToolCall, id=anything, name=anything | st.sampled_from(["double", "say"]), arguments=anything | st.just('{"n": 3}')
)
any_answer = st.builds(Message, st.just("assistant"), anything, st.lists(any_call, max_size=3).map(tuple))


@settings(max_examples=150)
@given(st.lists(any_answer, max_size=4), anything | st.binary(max_size=40))
def test_nothing_that_a_model_or_a_tool_says_breaks_an_episode(answers, result):
    def say():
        return result

    played = play(ToolEnvironment([TASK], tools=[double, say]), *answers, "end")
    assert played.error is None
    msgspec.msgpack.encode(played.state)
