"""Branches of a live world as tools: an agent tries actions out in a copy, compares, and takes them back.

A branch is a rehearsal. It is a copy of the world as it is now, in which nothing happens by itself: its time stands
still, no event of the plan and no condition is in it, nobody recognises what is expected, and random draws and new ids
are others. So a branch tells nothing of what will happen, or of the verdict. What is to count is done in `main`.

Not covered: what an app answers at once, it answers in a branch too. Where a try itself must cost something, leave the
branches out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from wanderlust.agent import Agent
from wanderlust.errors import one_line
from wanderlust.tools.function import FunctionTool, ToolError
from wanderlust.types import Message, Tool, user
from wanderlust_worlds.engine.events import EMPTY_PLAN, Schedule, action_of
from wanderlust_worlds.engine.log import Actor, LogEntry
from wanderlust_worlds.engine.world import ActionFailed, World

MAIN = "main"
"""Name of the world itself."""
MAX_BRANCHES = 8
"""Branches between two messages to the user, at most."""
MAX_CALL_CHARS, MAX_COMPARED_CALLS = 300, 40
"""Of a call in a comparison, and how many of a branch, the last ones."""
MAX_UNDO_NOTE_CHARS = 1000
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
NO_TIME = "time stands still in a branch: switch to main first"


class BranchTrial(World):
    """A copy of a world in which nothing happens by itself; neither sees what the other does."""

    def __init__(self, world: World, seed: str):
        """`seed` keys draws and ids."""
        for name, value in vars(world.branch()).items():
            setattr(self, name, value)
        self.seed, self.gate, self._inbox, self._rest = seed, None, (), 0.0
        self._schedule = Schedule(EMPTY_PLAN, start=self.now, oracle=False, owner=self)

    def call(self, app: str, action: str, args: Mapping[str, Any], *, by: Actor = "agent") -> Any:
        """As `World.call` says. Raises ActionFailed for actions that end a turn, or reach something outside."""
        if app in self._apps and self._apps[app].outside:
            raise ActionFailed(f"{app} is no part of the world, and has no branches: switch to main first")
        if action_of(self._apps, app, action).ends_turn:
            raise ActionFailed("nobody hears you in a branch: switch to main first")
        return super().call(app, action, args, by=by)

    def later(self, seconds: float, app: str, action: str, /, **args: Any) -> None:
        """Nothing: it would be in the future."""

    def rest(self, seconds: float) -> None:
        """Raises ToolError: time stands still."""
        raise ToolError(NO_TIME)

    def advance(self, seconds: float, why: str = "") -> None:
        """Raises ToolError: time stands still."""
        raise ToolError(NO_TIME)

    def wait(self, seconds: float | None = None) -> None:
        """Raises ToolError: time stands still."""
        raise ToolError(NO_TIME)


class ActsInWorld(Protocol):
    """A tool that acts in the world that it holds."""

    world: World


@dataclass(slots=True, kw_only=True)
class _Branch:
    trial: BranchTrial
    before: BranchTrial
    """As `undo` makes it again."""
    since: int
    """Lines of the log when the first branch on the way to this one was made from main."""
    turn: int | None = None
    """The agent's turn after which it is as `before`, once that turn is answered."""
    answers: tuple[Message, ...] = ()
    """What answered that turn."""


class WorldBranches:
    """Tools over a live world and its branches; what they return is text, also where something is refused."""

    def __init__(self, world: World, tools: Sequence[ActsInWorld], *, forget: bool = False):
        """`tools` act in the current branch from now on. With `forget` an undo takes back the conversation as well."""
        self.world, self.forget, self.current = world, forget, MAIN
        self.history: list[dict[str, Any]] = []
        """Each branch, switch and undo in order with the calls before it, as plain data: a tree of what was tried."""
        self._tools = tools
        self._branches: dict[str, _Branch] = {}
        self._made = self._noted = 0
        self._fresh: list[str] = []
        self._undone: str | None = None

    def tools(self) -> list[Tool]:
        """The four tools."""
        return [FunctionTool(one) for one in (self.branch, self.switch, self.undo, self.compare)]

    async def branch(self, name: str) -> str:
        """Copy the world as it is now to a new branch and go on there, to try something out; main stays as it is.

        In a branch time stands still, nobody is spoken to, nothing that you send arrives, and what you make has other
        ids. Nothing of it counts: do in main what you have decided.

        Args:
            name: Name of the new branch.
        """
        if not _NAME.fullmatch(name) or name == MAIN:
            return "error: a branch's name has 1 to 32 lower-case letters, digits, - and _, and is not main"
        if name in self._branches:
            return f"error: there is a branch {name} already"
        if len(self._branches) >= MAX_BRANCHES:
            return f"error: there are {MAX_BRANCHES} branches, which is the most until you speak to the user"
        source = self._branches.get(self.current)
        self._note("branch", name, of=self.current)
        trial = self._trial(self._world)
        since = len(self.world.log) if source is None else source.since
        self._branches[name] = _Branch(trial=trial, before=self._trial(trial), since=since)
        if source is not None:  # an undo of the source goes back to here
            source.before = self._trial(source.trial)
            self._fresh.append(self.current)
        self._fresh.append(name)
        self._enter(name)
        return f"you are in branch {name}; there are main, {', '.join(self._branches)}"

    async def switch(self, name: str) -> str:
        """Go on in another branch, or in main, where everything counts.

        Args:
            name: Name of a branch, or main.
        """
        if name != MAIN and name not in self._branches:
            return self._unknown(name)
        self._note("switch", name)
        self._enter(name)
        return f"you are in {name if name == MAIN else f'branch {name}'}"

    async def undo(self, note: str = "") -> str:
        """Take this branch back to the last branch made from it, or to when it was made. Call it alone.

        What is done in main cannot be taken back: others may have seen it.

        Args:
            note: What you have learnt; you may not remember anything else of what you take back.
        """
        branch = self._branches.get(self.current)
        if branch is None:
            return "error: what is done in main cannot be taken back"
        self._note("undo", self.current)
        branch.trial = self._trial(branch.before)
        self._undone = note[:MAX_UNDO_NOTE_CHARS]
        self._enter(self.current)
        return f"branch {self.current} is as before"

    async def compare(self, name: str) -> str:
        """Show what you did in this branch and in another one, and what came of it.

        Args:
            name: Name of the other branch, or main.
        """
        if name != MAIN and name not in self._branches:
            return self._unknown(name)
        since = min([one.since for key, one in self._branches.items() if key in (name, self.current)], default=0)
        parts = []
        for one in dict.fromkeys((self.current, name)):
            world = self.world if one == MAIN else self._branches[one].trial
            calls = [line for line in world.log[since:] if line.by == "agent"]
            shown = [f"  {_call_text(line)}" for line in calls[-MAX_COMPARED_CALLS:]]
            parts += [f"{one}: {len(calls)} calls since they parted", *shown]
        return "\n".join(parts)

    def answered(self, agent: Agent, answers: Sequence[Message]) -> list[Message]:
        """What the agent reads next, given the answers to its calls; after an undo that forgets it goes back."""
        for name in self._fresh:
            if (fresh := self._branches.get(name)) is not None:
                fresh.turn, fresh.answers = len(agent.trajectory.turns) - 1, tuple(answers)
        self._fresh.clear()
        undone, self._undone = self._undone, None
        branch = self._branches.get(self.current)
        if not self.forget or undone is None or branch is None or branch.turn is None:
            return [*answers]
        agent.go_back(branch.turn)
        text = f"You are in branch {self.current}, and took back what you tried since. Your note: {undone or 'none'}"
        return [*branch.answers, user(text)]

    def close(self) -> None:
        """Give up all branches and go on in main."""
        if self._branches:
            self._note("close", MAIN)
            self._branches.clear()
            self._enter(MAIN)

    @property
    def _world(self) -> World:
        return self.world if self.current == MAIN else self._branches[self.current].trial

    def _trial(self, world: World) -> BranchTrial:
        self._made += 1
        return BranchTrial(world, f"{self.world.seed}/trial {self._made}")

    def _enter(self, name: str) -> None:
        self.current = name
        self._noted = len(self._world.log)
        for tool in self._tools:
            tool.world = self._world

    def _note(self, event: str, name: str, **more: str) -> None:
        """Write down what happens, and the calls in this branch since it was entered."""
        lines = self._world.log[self._noted :] if self.current != MAIN else ()
        calls = [msgspec.to_builtins(line, str_keys=True) for line in lines if line.by == "agent"]
        self.history.append({"event": event, "name": name, **more, "in": self.current, "calls": calls})

    def _unknown(self, name: str) -> str:
        return f"error: there is no branch {one_line(name, 40)!r}: {', '.join((MAIN, *self._branches))}"


def _call_text(line: LogEntry) -> str:
    """A call with what came of it, in one line."""
    args = ", ".join(f"{name}={value!r}" for name, value in line.args.items())
    came = f"error: {line.error}" if line.error is not None else repr(msgspec.to_builtins(line.result, str_keys=True))
    return one_line(f"{line.app}.{line.action}({args}) -> {came}", MAX_CALL_CHARS)
