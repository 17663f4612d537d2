"""Environments and the episodes that are played in them: by a loop of one's own, step by step, or turn by turn.

A task's prompt may be any prefix of a conversation. When it ends with the model's own message, the environment answers
that before the model is asked.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeAlias

from wanderlust.agent import Agent
from wanderlust.agent.limits import Limits as Limits  # noqa: PLC0414  # environments import it from here
from wanderlust.agent.play import Play
from wanderlust.errors import Failure, UsageError, WanderlustError
from wanderlust.types import Message, Policy, Rollout, RubricLike, Task, Tool, Trajectory, user


class Episode:
    """The live handle an environment plays through: task in, turns and rewards out.

    Example:
        >>> episode = Episode(Task(id="sum-1"), {}, seed=7)
        >>> episode.rng("deck").random() == episode.rng("deck").random()
        True
    """

    def __init__(self, task: Task, agents: Mapping[str, Agent], seed: int = 0):
        self.task, self.agents, self.seed = task, agents, seed
        self.state: dict[str, Any] = {}
        self.rewards: dict[str, dict[str, float]] = {seat: {} for seat in agents}
        self.play = next((agent.play for agent in agents.values()), None) or Play()
        """What its seats share; an episode within this one, with the same seats, shares it too."""

    @property
    def agent(self) -> Agent:
        """The only seat; ValueError when there are several."""
        (only,) = self.agents.values()
        return only

    def playing(self) -> AbstractContextManager[None, bool]:
        """`with episode.playing(): ...`: what follows the block runs after a limit, too; then the episode is judged.

        A limit of any kind, the time included, ends the block in silence; there is no further turn then. A failure or a
        cancellation goes through, and the episode has no score. Code after the block is not cancelled when the time is
        up; it has `play.closing_seconds` then.
        """
        return self.play.block(lambda: self._interruption)

    @property
    def _interruption(self) -> WanderlustError | None:
        """What kept the latest turn of a seat from happening, a failure before a limit."""
        met = [agent.interruption for agent in self.agents.values() if agent.interruption is not None]
        return next((one for one in met if isinstance(one, Failure)), met[0] if met else None)

    def ending(self, error: WanderlustError | None) -> WanderlustError | None:
        """What ended it, where its environment has raised `error`, or nothing; None for an ordinary end.

        Code may catch or wrap what a seat met, or go on without an answer; none of that may become the model's score.
        """
        met = self._interruption
        if isinstance(met, Failure) or not self.play.cut:
            return met or error
        return error or self.play.stop

    def rng(self, *key: object) -> Random:
        """A fresh generator for this task, seed and `key`: equal keys give equal draws, in any order."""
        return Random("/".join(map(str, (self.task.id, self.seed, *key))))

    def reward(self, name: str, value: float, seat: str = "agent") -> None:
        """Add to the environment-side reward `name`; the rubric decides what it is worth.

        The seat's latest turn earned it: algorithms that credit turn by turn go by that. Raises UsageError for a seat
        that there is not, and for what is no number.
        """
        if seat not in self.rewards:
            raise UsageError(f"there is no seat {seat!r} to reward; there are: {', '.join(self.rewards)}")
        try:
            self.rewards[seat][name] = self.rewards[seat].get(name, 0.0) + value
        except TypeError:
            raise UsageError(f"the reward {name!r} is {value!r}, which is no number") from None
        trajectory = self.agents[seat].trajectory
        paid, turns = trajectory.rewards, len(trajectory.turns)
        if turns:
            paid += [0.0] * (turns - len(paid))
            paid[-1] += value


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """The requests with which a policy is asked to revise its answer."""

    improve: str = "Above is your last answer to this. Improve it: give a better answer, in the same form."
    diverge: str = (
        "Above is your last answer to this. Say in a sentence how it goes about the problem, name a significantly "
        "different way, and give an answer in that way, in the same form."
    )

    def request(self, feedback: str, *, diverge: bool = False) -> Message:
        """The message after an answer: the environment's feedback, then the request."""
        wish = self.diverge if diverge else self.improve
        return user(f"{feedback}\n{wish}" if feedback else wish)


class Environment(ABC):
    """A place where policies act: write `run` as the plain loop you would write anyway.

    Instances hold no per-episode state, so one object serves every concurrent episode. Only `run` and `tasks` are
    needed; everything else has a default.

    Example:
        >>> class Echo(Environment):
        ...     def tasks(self, split="train"):
        ...         return [Task(id="hello", prompt=(user("Say hello."),))]
        ...
        ...     async def run(self, episode):
        ...         answer = await episode.agent.act(*episode.task.prompt)
        ...         episode.reward("polite", float("hello" in answer.content.lower()))
    """

    seats: ClassVar[tuple[str, ...]] = ("agent",)
    """Names of the places that policies take in an episode."""
    limits: Limits = Limits()
    """Default bounds of an episode; a caller may hand over others."""
    rubric: RubricLike | None = None
    """Default judgement; None sums the environment-side rewards."""
    prefixes: ClassVar[bool] = False
    """Whether a task's prompt may be any prefix of a conversation in it, from which the episode goes on."""
    frozen_seats: Mapping[str, Policy] = MappingProxyType({})
    """Policies of seats that do not learn; they play those seats, whoever plays the others."""
    players: Mapping[str, Callable[[], Policy]] = MappingProxyType({})
    """Scripted policies by name, each made by a function without arguments; `teacher` is the one to imitate."""
    oracle_bar: float | None = None
    """Least mean reward of `oracle`, which `check` holds it to; None: whatever is more than garbage earns. A lower one
    says that the oracle is not perfect."""
    chance_bar: float | None = None
    """Most mean reward of policies that know the form alone, where the form is all that is taught. `check` then asks
    that texts without the form earn little. None: chance must earn clearly less than the oracle."""
    graded_arguments: frozenset[str] = frozenset()
    """Arguments of tool calls whose text the reward reads: `probe` spoils them in the oracle's calls."""
    choose_by: str | None = None
    """Part or metric of the score that does not read the answer, such as visible tests: best-of-n chooses by it."""
    group_by: str | None = None
    """Key of `Task.info` by which reports are broken down."""
    revision: Revision = Revision()
    """How a policy is asked to revise an answer."""
    extract: Callable[[str], str] | None = None
    """Reads the final answer from a completion, for label-free rewards; None reads as `rubrics.final_answer` does."""

    @abstractmethod
    async def run(self, episode: Episode) -> None:
        """Play one episode to its end."""

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """The tasks of a split; may be endless."""
        return ()

    def with_frozen_seats(self, policies: Mapping[str, Policy]) -> Environment:
        """This environment with policies that keep some seats. Raises UsageError where none would be left to learn."""
        if unknown := [seat for seat in policies if seat not in self.seats]:
            raise UsageError(f"there is no seat {unknown[0]!r}; there are: {', '.join(self.seats)}")
        frozen = {**self.frozen_seats, **policies}
        if frozen and len(frozen) == len(self.seats):
            raise UsageError("every seat has a policy that does not learn: leave one out")
        if not policies:
            return self
        env = copy(self)
        env.frozen_seats = frozen
        return env

    def oracle(self, task: Task) -> Policy | None:
        """A policy that solves `task` because it knows the answer; None where there is none."""
        return None

    async def exact(self, policy: Policy, *, name: str) -> list[dict[str, Any]] | None:
        """Exact figures of a deterministic policy, as rows of a table; None where they cannot be computed.

        A row has the policy's name, what it was measured against, and figures. With `reward`, the expected one, among
        them a training run can take them in place of episodes (`eval_tasks` 0).
        """
        return None

    def demonstrations(self, rollouts: Sequence[Rollout]) -> list[Trajectory]:
        """What a warm-up imitates of a teacher's rollouts: the trajectories of the seats that learn.

        An environment may leave some out, or show one in several ways.
        """
        return [one for rollout in rollouts for one in rollout.trajectories if one.turns and one.trainable]

    def first_move(self, messages: Sequence[Message], rng: Random, nth: int) -> str | None:
        """An answer to try in an episode's first turn, another one for each `nth`; None where none is suggested."""
        return None

    def duel(self) -> Environment | None:
        """The same game with a second seat, for a person or another policy; None where there is none."""
        return None

    @property
    def unwrapped(self) -> Environment:
        """The environment itself, where something stands for it."""
        return self

    @property
    def has_oracle(self) -> bool:
        """Whether `oracle` is defined."""
        return type(self).oracle is not Environment.oracle

    @property
    def has_exact(self) -> bool:
        """Whether `exact` is defined."""
        return type(self).exact is not Environment.exact


CONTRACT: Mapping[str, Callable[[Environment], Any]] = {
    "seats": lambda env: env.seats,
    "limits": lambda env: env.limits,
    "rubric": lambda env: env.rubric,
    "prefixes": lambda env: env.prefixes,
    "frozen_seats": lambda env: env.frozen_seats,
    "players": lambda env: env.players,
    "oracle_bar": lambda env: env.oracle_bar,
    "chance_bar": lambda env: env.chance_bar,
    "graded_arguments": lambda env: env.graded_arguments,
    "choose_by": lambda env: env.choose_by,
    "group_by": lambda env: env.group_by,
    "revision": lambda env: env.revision,
    "extract": lambda env: env.extract,
    "run": lambda env: env.run,
    "tasks": lambda env: env.tasks,
    "with_frozen_seats": lambda env: env.with_frozen_seats,
    "oracle": lambda env: env.oracle,
    "exact": lambda env: env.exact,
    "demonstrations": lambda env: env.demonstrations,
    "first_move": lambda env: env.first_move,
    "duel": lambda env: env.duel,
    "unwrapped": lambda env: env.unwrapped,
    "has_oracle": lambda env: env.has_oracle,
    "has_exact": lambda env: env.has_exact,
}
"""The attributes and methods that every environment has, by name, and how each is read."""


class WrappedEnvironment(Environment):
    """An environment that stands for another one: a subclass writes what it changes, the rest is that of `env`.

    All of CONTRACT is forwarded, whatever is added to it. A subclass may define a name or set it on an instance.

    Example:
        >>> class Loud(WrappedEnvironment):
        ...     def __init__(self, env):
        ...         self.env = env
        ...
        ...     async def run(self, episode):
        ...         print(episode.task.id)
        ...         await self.env.run(episode)
    """

    env: Environment
    """The environment within, which a subclass sets when it is made."""

    async def run(self, episode: Episode) -> None:
        """Play the episode as the environment does."""
        await self.env.run(episode)

    def with_frozen_seats(self, policies: Mapping[str, Policy]) -> Environment:
        """The same around the environment with policies that keep some seats."""
        within = self.env.with_frozen_seats(policies)
        if within is self.env:
            return self
        wrapper = copy(self)
        wrapper.env = within
        return wrapper


class _Forwarded:
    """A name of the contract, read from the environment within; what an instance has of its own goes first."""

    def __init__(self, read: Callable[[Any], Any]):
        self.read = read

    def __get__(self, wrapper: WrappedEnvironment | None, owner: type) -> Any:
        return self.read(Environment if wrapper is None else wrapper.env)


for _name in CONTRACT.keys() - vars(WrappedEnvironment).keys():
    setattr(WrappedEnvironment, _name, _Forwarded(CONTRACT[_name]))


def declaration_error(env: Environment) -> str:
    """What is wrong with the attributes that an environment declares, in one line; empty where nothing is."""
    if isinstance(env, type):
        return f"{env.__name__} is a class, and no environment: make one, {env.__name__}(...)"
    name, seats, players, rubric = type(env).__name__, env.seats, env.players, env.rubric
    named = bool(seats) and not isinstance(seats, str) and all(isinstance(seat, str) for seat in seats)
    makers = isinstance(players, Mapping) and all(map(callable, players.values()))
    faults = {
        f"{name}.seats is {seats!r}: it must be names in a tuple, like ('agent',)": not named,
        f"{name}.seats names a seat twice: {seats!r}": named and len(set(seats)) < len(seats),
        f"{name}.limits is {env.limits!r}: it must be Limits(...)": not isinstance(env.limits, Limits),
        f"{name}.players must be functions that make a policy, by name: {{'teacher': lambda: Scripted()}}": not makers,
        f"{name}.rubric is a {type(rubric).__name__}: it must be a Rubric(...)": rubric is not None
        and not hasattr(rubric, "score"),
    }
    return next((line for line, wrong in faults.items() if wrong), "")


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
    """An environment written as `reset`/`step`; it inherits `run`, so everything else works too.

    Example:
        >>> class Countdown:
        ...     left = 2
        ...     def reset(self):
        ...         return Step((user("Two moves are left."),))
        ...     def step(self, action):
        ...         self.left -= 1
        ...         return Step((user(f"{self.left} are left."),), reward=1.0, done=self.left == 0)
        >>> class CountdownEnvironment(StepEnvironment):
        ...     def start(self, task, rng):
        ...         return Countdown()
    """

    @abstractmethod
    def start(self, task: Task, rng: Random) -> Game:
        """A new game of `task`; all its draws come from `rng`."""

    async def run(self, episode: Episode) -> None:
        """Drive the game with the seat's actions until it is done."""
        game = self.start(episode.task, episode.rng())
        step = game.reset()
        with episode.playing():
            while not step.done:
                step = game.step(await episode.agent.act(*step.observation))
                episode.reward("env", step.reward)
        episode.state.update(step.info)


EnvironmentReply: TypeAlias = Message | str | Sequence[Message] | None
"""What an environment answers: messages, or the text of a user's; nothing ends the episode."""
TasksBySplit: TypeAlias = Sequence[Task] | Mapping[str, Sequence[Task]]
"""Tasks for every split, or for each by name."""


class SingleTurnEnvironment(Environment):
    """Shows the prompt, takes one answer. Give tasks and a rubric, or write a subclass that has them.

    Example:
        >>> env = SingleTurnEnvironment([Task(id="sum-1", prompt=(user("What is 2 + 2?"),), answer="4")])
        >>> [task.id for task in env.tasks("eval")]
        ['sum-1']
    """

    prefixes = True

    def __init_subclass__(cls) -> None:
        """A loop of one's own is not known to begin anywhere, unless it says so."""
        super().__init_subclass__()
        if "run" in vars(cls) and "prefixes" not in vars(cls):
            cls.prefixes = False

    def __init__(self, tasks: TasksBySplit = (), *, rubric: RubricLike | None = None, limits: Limits | None = None):
        self._tasks = tasks if isinstance(tasks, Mapping) else {"train": tasks, "eval": tasks}
        self.rubric = rubric or self.rubric
        self.limits = limits or self.limits

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """The tasks of a split. Raises UsageError when there is no such split."""
        if split not in self._tasks:
            raise UsageError(f"there is no split {split!r}: one of {', '.join(self._tasks)}")
        return self._tasks[split]

    async def run(self, episode: Episode) -> None:
        """One question, one answer."""
        await episode.agent.act(*episode.task.prompt)


class MultiTurnEnvironment(SingleTurnEnvironment):
    """Answers the model until it has nothing more to say.

    Example:
        >>> class Guess(MultiTurnEnvironment):
        ...     def respond(self, messages, episode):
        ...         return None if "7" in messages[-1].content else "No, guess again."
    """

    prefixes = True

    @abstractmethod
    def respond(self, messages: Sequence[Message], episode: Episode) -> EnvironmentReply | Awaitable[EnvironmentReply]:
        """What the environment says to the last of `messages`; None ends the episode. May be asynchronous.

        What must be remembered stands in `episode.state`: one environment serves every episode at once.
        """

    async def run(self, episode: Episode) -> None:
        """Answer for answer, until `respond` ends it."""
        await self.converse(episode, ())

    async def converse(self, episode: Episode, tools: Sequence[Tool]) -> None:
        """The loop itself, with tools for the model to call. A limit ends it; code that follows it runs."""
        observation = list(episode.task.prompt)
        new: Sequence[Message] | None = observation
        with episode.playing():
            if observation and observation[-1].role == "assistant":
                new = await self._reply(observation[-1], observation, episode=episode, tools=tools)
                new = None if new is None else [*observation, *new]
            while new is not None:
                answer = await episode.agent.act(*new, tools=tools)
                new = await self._reply(answer, episode.agent.messages, episode=episode, tools=tools)

    async def _reply(
        self, answer: Message, messages: Sequence[Message], *, episode: Episode, tools: Sequence[Tool]
    ) -> Sequence[Message] | None:
        reply = self.respond(messages, episode)
        content = await reply if inspect.isawaitable(reply) else reply
        if isinstance(content, str):
            return [user(content)]
        return [content] if isinstance(content, Message) else content or None
