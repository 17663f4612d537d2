"""A game in progress, of a person in a seat or a policy that continues a rollout; scored and stored as a rollout."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import msgspec

from wanderlust.agent import release_conversation
from wanderlust.errors import EnvironmentFailure, StoreError, UsageError, WanderlustError, boundary, one_line
from wanderlust.policies.resolve import open_policies
from wanderlust.runner.engine import rollout
from wanderlust.runner.stepper import Stepper
from wanderlust.store.run_folder import StoredRollout
from wanderlust.studio.viewers import GameSetting, LiveViewer
from wanderlust.types import Completion, Message, Policy, Rollout, Score, Tool

T = TypeVar("T")
MAX_MESSAGE_CHARS = 20_000
"""Characters of one message that are sent to the page."""
MAX_STATE_CHARS = 20_000
"""Characters of one entry of what the environment left; a longer one is in the stored rollout alone."""
TURN_TIMEOUT_SECONDS = 20.0
"""Seconds that an answer waits for the next turn; the page asks again after that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Bounds of sessions."""

    sessions: int = 16
    """Sessions at once; finished ones make room."""
    idle: float = 1_800.0
    """Seconds without an answer after which the game is ended, scored and stored."""
    answer: int = 100_000
    """Characters of one answer."""
    total: int = 4_000_000
    """Characters of all messages."""
    step: float = 300.0
    """Seconds for the environment and the other seats between two turns of the person."""


class GameSession:
    """A game in one task of the event loop, from its reset to its score. All its methods run in that loop."""

    def __init__(self, id: str, setting: GameSetting, bounds: SessionLimits, *, viewers: Sequence[LiveViewer]):
        self.id, self.setting, self.bounds, self._viewers = id, setting, bounds, viewers
        self.messages: list[Message] = []
        self.tools: Sequence[Tool] = ()
        self.over, self.error, self.stop = False, "", ""
        self.score: Score | None = None
        self.end_state: dict[str, Any] = {}
        """What the environment left, for the page; empty for a game that a viewer shows."""
        self.scores: dict[str, float] = {}
        self.stored: StoredRollout | None = None
        self.live: dict[str, object] = {}
        """What viewers show while the game is played, by the names of their parts."""
        self._answer: asyncio.Future[Message | str] | None = None
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> bool:
        """Whether it is the person's turn."""
        return self._answer is not None and not self._answer.done()

    async def begin(self) -> None:
        """Begin, and wait for the person's turn or the end, at most TURN_TIMEOUT_SECONDS."""
        self._task = asyncio.create_task(self._play())
        await self._notify()

    async def act(self, action: Message) -> None:
        """Take the person's turn. Raises UsageError when it is not theirs, or the answer is too long."""
        size = _size(action)
        if size > self.bounds.answer:
            raise UsageError(f"the answer has {size:,} characters; {self.bounds.answer:,} are the limit")
        self._say(action)
        await self._notify()

    async def leave(self, why: str) -> None:
        """End the game now; it is scored as truncated, and stored."""
        if self.waiting:
            self._say(why)
            await self._notify()

    async def drop(self) -> None:
        """Cancel the game: nothing is scored or stored."""
        self.over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _say(self, what: Message | str) -> None:
        if self._answer is None or self._answer.done():
            raise UsageError("this game is over" if self.over else "it is not your turn: the others are still at it")
        self._settled.clear()
        self._answer.set_result(what)

    async def _notify(self) -> None:
        try:
            async with asyncio.timeout(TURN_TIMEOUT_SECONDS):
                await self._settled.wait()
        except TimeoutError:
            return  # a later request for the session shows the rest

    async def _play(self) -> None:
        try:
            with boundary(EnvironmentFailure):
                at = self.setting
                async with open_policies(at.policies):
                    if at.policy is None:
                        played = await self._play_by_hand()
                    else:
                        policies = {**at.others, at.seat: _ObservedPolicy(at.policy, self)}
                        played = await rollout(at.env, at.task, policies, seed=at.seed)
                self._finish(played)
        except WanderlustError as error:
            self.error = self.error or one_line(str(error), 1_000)
        finally:
            self.over = True
            self._settled.set()

    async def _play_by_hand(self) -> Rollout:
        at = self.setting
        limits = replace(at.env.limits, timeout=None)  # a person thinks for as long as they like
        async with Stepper(at.env, at.task, seed=at.seed, limits=limits, seat=at.seat, others=at.others) as game:
            try:
                step = await self._soon(game.reset())
                while not step.done:
                    self.messages += step.observation
                    self.update_tools(game.tools)
                    action = await self._turn()
                    if isinstance(action, str):
                        step = await self._soon(game.stop(action))
                    else:
                        self.messages.append(action)
                        step = await self._soon(game.step(action))
            except WanderlustError as error:
                self.error = one_line(str(error), 1_000)
            return game.rollout

    async def _turn(self) -> Message | str:
        self._answer = asyncio.get_running_loop().create_future()
        self._settled.set()
        try:
            async with asyncio.timeout(self.bounds.idle):
                action = await self._answer
        except TimeoutError:
            return "idle"
        total_chars = sum(map(_size, self.messages)) + (0 if isinstance(action, str) else _size(action))
        return action if total_chars <= self.bounds.total else "too_much_said"

    async def _soon(self, step: Any) -> Any:
        try:
            async with asyncio.timeout(self.bounds.step):
                return await step
        except TimeoutError as error:
            raise EnvironmentFailure(f"nothing came within {self.bounds.step:g} s: the game was given up") from error

    def update_tools(self, tools: Sequence[Tool]) -> None:
        """Set the current tools, and what viewers show of them."""
        self.tools = tools
        found = {viewer.part: viewer.live(tools) for viewer in self._viewers}
        self.live |= {part: one for part, one in found.items() if one is not None}

    def _finish(self, played: Rollout) -> None:
        self.stop, self.tools = played.stop_reason, ()
        self.error = self.error or (played.error or "")
        self.scores = {one.seat: one.score.reward for one in played.trajectories if one.score is not None}
        mine = next(one for one in played.trajectories if one.seat == self.setting.seat)
        self.score = mine.score
        self.messages = mine.messages
        if self.setting.labels:
            played.state = {**played.state, "seats": dict(self.setting.labels)}
        if self.setting.since is not None:
            played.state = {**played.state, "onward": dict(self.setting.since)}
        try:
            self.stored = self.setting.save(played)
        except (StoreError, OSError) as error:
            self.error = self.error or f"the game could not be kept: {one_line(str(error), 500)}"
        if not self.live:
            self.end_state = {}
            for name, value in msgspec.to_builtins(played.state, str_keys=True, enc_hook=str).items():
                with suppress(UnicodeError):  # half a surrogate pair
                    if len(msgspec.json.encode({name: value})) <= MAX_STATE_CHARS:
                        self.end_state[name] = value

    def record(self) -> dict[str, Any]:
        """The session as JSON data for the page."""
        at = self.setting
        return {
            "id": self.id,
            "env": at.name,
            "task": {"id": at.task.id},
            "seed": at.seed,
            "seat": at.seat,
            "labels": dict(at.labels),
            "person": at.person,
            "since": at.since,
            "messages": [message_record(message) for message in self.messages],
            "tools": [{"name": t.name, "description": t.description, "parameters": t.schema} for t in self.tools],
            "waiting": self.waiting and not self.over,
            "over": self.over,
            **{viewer.part: viewer.part in self.live for viewer in self._viewers},
            "score": None if self.score is None else asdict(self.score),
            "scores": self.scores,
            "state": self.end_state,
            "stop": self.stop or None,
            "error": self.error or None,
        }


class _ObservedPolicy:
    """A policy whose conversation the session shows."""

    def __init__(self, policy: Policy, session: GameSession):
        self._policy, self._session = policy, session

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        self._session.messages = list(messages)
        self._session.update_tools(tools)
        done = await self._policy.complete(messages, tools, key=key)
        self._session.messages = [*messages, done.message]
        return done

    def release(self, key: str) -> None:
        release_conversation(self._policy, key)


def _size(message: Message) -> int:
    return len(message.content) + sum(len(call.arguments) + len(call.name) for call in message.tool_calls)


def message_record(message: Message, max_chars: int = MAX_MESSAGE_CHARS) -> dict[str, Any]:
    """A message as JSON data for the page; a long one is cut, with its length as `cut`."""
    record: dict[str, Any] = {"role": message.role, "content": message.content[:max_chars]}
    if len(message.content) > max_chars:
        record["cut"] = len(message.content)
    if message.reasoning:
        record["reasoning"] = message.reasoning[:max_chars]
        if len(message.reasoning) > max_chars:
            record["reasoning_cut"] = len(message.reasoning)
    if message.tool_calls:
        record["tool_calls"] = [
            {
                "id": call.id,
                "name": call.name,
                "arguments": call.arguments[:max_chars] + "…" * (len(call.arguments) > max_chars),
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        record["tool_call_id"] = message.tool_call_id
    return record
