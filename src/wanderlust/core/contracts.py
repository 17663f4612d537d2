"""The contracts: Policy, Environment, Rubric, Tool. Implementations live in other rooms."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Protocol, runtime_checkable

from wanderlust.core.activity import Doing
from wanderlust.core.errors import PolicyFailure, Stop, WanderlustError, boundary
from wanderlust.core.messages import Message
from wanderlust.core.types import Completion, Group, Rollout, Score, Task, Trajectory, Turn


class Tool(Protocol):
    """Something an agent can call."""

    name: str
    description: str
    schema: dict[str, Any]
    """JSON schema of the arguments."""

    async def __call__(self, **arguments: Any) -> str: ...


class Policy(Protocol):
    """Anything that answers a conversation: an endpoint, a local model, a script, a person."""

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Answer the conversation.

        `key` names the seat of one episode: a policy that draws at random draws the same for the same key
        and the same turn, and may keep its cache of the conversation under it.
        """
        ...


@runtime_checkable
class Releasing(Protocol):
    """A policy that keeps something per conversation (a cache row) and wants to be told of its end."""

    def release(self, key: str) -> None:
        """Forget everything kept under `key`; unknown keys are fine."""
        ...


@runtime_checkable
class Formatting(Protocol):
    """A policy that can be held to a form of answer, e.g. an endpoint that takes a JSON schema."""

    async def complete_as(
        self, form: Mapping[str, Any], messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = ""
    ) -> Completion:
        """Like `Policy.complete`; `form` is a `response_format` as chat endpoints take it."""
        ...


class Rubric(Protocol):
    """Judges one seat's trajectory of a finished rollout."""

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score: ...


class Comparing(Rubric, Protocol):
    """A rubric that also looks at siblings together, after it scored each of them."""

    @property
    def compares(self) -> bool:
        """Whether it wants to: then siblings are handed on only when all have been played and compared."""
        ...

    async def compare(self, group: Group, seat: str) -> Sequence[Score]:
        """The seat's final scores, one per rollout of `group`, in its order.

        `group` holds the siblings that were played and scored; those that failed are left out.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one episode; reaching one truncates the episode and is recorded as its stop reason."""

    max_turns: int = 32
    """Turns per seat."""
    timeout: float | None = None
    """Wall-clock seconds for the whole episode; None is no limit."""


class Agent:
    """A live seat: a policy whose every turn is recorded and bounded.

    A turn that did not happen (a failure, a limit, a cancellation) leaves the conversation as it was. Turns asked
    for at once are taken one after the other.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        key: str = "",
        seat: str = "agent",
        limits: Limits | None = None,
        trainable: bool = True,
    ):
        self.policy, self.key, self.limits = policy, key, limits or Limits()
        self.trajectory = Trajectory(seat=seat, trainable=trainable)
        self.messages: list[Message] = []
        self.cut: WanderlustError | None = None
        """What kept the latest turn from happening; it ends the episode even where a program swallows it."""
        self._order = asyncio.Lock()
        self._asking = "the policy" if seat == "agent" else f"the policy of {seat}"

    async def act(self, *observation: Message, tools: Sequence[Tool] = ()) -> Message:
        """Show the policy what is new; return what it does. Raises Stop at the turn limit."""
        async with self._order:
            return await self._turn(observation, tools, replaces=False)

    async def act_on(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, form: Mapping[str, Any] | None = None
    ) -> Message:
        """Like `act`, but the caller owns the whole context (black-box agents, compaction).

        `form`, a `response_format` as chat endpoints take it, reaches policies that are Formatting.
        """
        async with self._order:
            known = len(self.messages)
            if list(messages[:known]) == self.messages:
                return await self._turn(tuple(messages[known:]), tools, replaces=False, form=form)
            return await self._turn(tuple(messages), tools, replaces=True, form=form)

    async def _turn(
        self,
        observation: tuple[Message, ...],
        tools: Sequence[Tool],
        *,
        replaces: bool,
        form: Mapping[str, Any] | None = None,
    ) -> Message:
        context = [*observation] if replaces else [*self.messages, *observation]
        try:
            done = await self._ask(context, tools, form)
        except WanderlustError as cut:
            self.cut = cut
            raise
        self.cut = None
        context.append(done.message)
        self.messages = context
        turn = Turn(
            observation=observation,
            action=done.message,
            replaces=replaces,
            finish=done.finish,
            tokens=done.tokens,
            usage=done.usage,
        )
        self.trajectory.turns.append(turn)
        return done.message

    async def _ask(
        self, context: Sequence[Message], tools: Sequence[Tool], form: Mapping[str, Any] | None
    ) -> Completion:
        if len(self.trajectory.turns) >= self.limits.max_turns:
            await asyncio.sleep(0)  # an environment that goes on asking must not keep everybody else waiting
            raise Stop("max_turns")
        with boundary(PolicyFailure), Doing(self._asking):
            if form is not None and isinstance(self.policy, Formatting):
                return await self.policy.complete_as(form, context, tools, key=self.key)
            return await self.policy.complete(context, tools, key=self.key)

    def release(self) -> None:
        """Tell the policy that this conversation is over."""
        release = getattr(self.policy, "release", None)  # isinstance with a protocol takes longer than a whole turn
        if release is not None:
            release(self.key)


class Episode:
    """The live handle an environment plays through: task in, turns and rewards out."""

    def __init__(self, task: Task, agents: Mapping[str, Agent], seed: int = 0):
        self.task, self.agents, self.seed = task, agents, seed
        self.state: dict[str, Any] = {}
        self.rewards: dict[str, dict[str, float]] = {seat: {} for seat in agents}

    @property
    def agent(self) -> Agent:
        """The only seat; ValueError when there are several."""
        (only,) = self.agents.values()
        return only

    def rng(self, *key: object) -> Random:
        """A fresh generator for this task, seed and `key`: equal keys give equal draws, in any order."""
        return Random("/".join(map(str, (self.task.id, self.seed, *key))))

    def reward(self, name: str, value: float, seat: str = "agent") -> None:
        """Add to the environment-side reward `name`; the rubric decides what it is worth.

        The seat's latest turn earned it: algorithms that credit turn by turn go by that.
        """
        self.rewards[seat][name] = self.rewards[seat].get(name, 0.0) + value
        trajectory = self.agents[seat].trajectory
        paid, turns = trajectory.rewards, len(trajectory.turns)
        if turns:
            paid += [0.0] * (turns - len(paid))
            paid[-1] += value


class Environment(ABC):
    """A place where policies act: write `run` as the plain loop you would write anyway.

    Instances hold no per-episode state, so one object serves every concurrent episode.
    """

    seats: ClassVar[tuple[str, ...]] = ("agent",)
    limits: Limits = Limits()
    """Default bounds of an episode; a caller may hand over others."""
    rubric: Rubric | None = None
    """Default judgement; None sums the environment-side rewards."""
    prefixes: ClassVar[bool] = False
    """Whether a task's prompt may be any prefix of a conversation in it, from which the episode goes on."""

    @abstractmethod
    async def run(self, episode: Episode) -> None:
        """Play one episode to its end."""

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """The tasks of a split; may be endless."""
        return ()


@dataclass(frozen=True, slots=True)
class Step:
    """What a world answers: new messages, this step's reward, and whether it is over."""

    observation: tuple[Message, ...] = ()
    reward: float = 0.0
    done: bool = False
    info: dict[str, Any] = field(default_factory=dict)


class Game(Protocol):
    """One step-wise episode in progress."""

    def reset(self) -> Step: ...
    def step(self, action: Message) -> Step: ...


class StepEnvironment(Environment):
    """An environment written as `reset`/`step`; it inherits `run`, so everything else works too."""

    @abstractmethod
    def start(self, task: Task, rng: Random) -> Game:
        """A new game of `task`; all its draws come from `rng`."""

    async def run(self, episode: Episode) -> None:
        """Drive the game with the seat's actions until it is done."""
        game = self.start(episode.task, episode.rng())
        step = game.reset()
        while not step.done:
            step = game.step(await episode.agent.act(*step.observation))
            episode.reward("env", step.reward)
        episode.state.update(step.info)
