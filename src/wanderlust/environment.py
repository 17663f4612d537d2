"""Environments and the episodes that are played in them: by a loop of one's own, step by step, or turn by turn.

A task's prompt may be any prefix of a conversation. When it ends with the model's own message, the environment answers
that before the model is asked.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeAlias

from wanderlust.errors import PolicyFailure, StopEpisode, UsageError, WanderlustError, boundary
from wanderlust.limits import Limits as Limits  # noqa: PLC0414  # environments import it from here
from wanderlust.limits import Spending, cut_text
from wanderlust.types import (
    AnswerOptions,
    Completion,
    Message,
    OnText,
    Policy,
    RubricLike,
    SupportsOptions,
    SupportsStreaming,
    Task,
    Tool,
    Trajectory,
    Turn,
    user,
)


@dataclass(slots=True, eq=False, kw_only=True)
class Activity:
    """One episode in progress."""

    task: str
    since: float
    """When it began, in seconds of the monotonic clock; for reports, never for logic."""
    steps: dict[int, str] = field(default_factory=dict)

    @property
    def current_step(self) -> str:
        """The innermost thing that is under way, of several at once the one begun last."""
        return next(reversed(self.steps.values()), "the environment")


current_activity: ContextVar[Activity | None] = ContextVar("activity", default=None)
"""The episode that the running code belongs to; tasks that it starts belong to it too."""


class track:
    """`with track("tool search"): ...` says what the episode is busy with; outside of an episode it does nothing."""

    __slots__ = ("_activity", "_what")

    def __init__(self, what: str):
        self._what = what

    def __enter__(self) -> None:
        self._activity = current_activity.get()
        if self._activity is not None:
            self._activity.steps[id(self)] = self._what

    def __exit__(self, *_: object) -> None:
        if self._activity is not None:
            self._activity.steps.pop(id(self), None)


class Agent:
    """A live seat: a policy whose every turn is recorded and bounded.

    A turn that did not happen (a failure, a limit, a cancellation) leaves the conversation as it was. Turns asked
    for at once are taken one after the other.

    Example:
        >>> class Echo:
        ...     async def complete(self, messages, tools=(), *, key=""):
        ...         return Completion(message=Message("assistant", messages[-1].content))
        >>> asyncio.run(Agent(Echo()).act(user("Hello."))).content
        'Hello.'
    """

    def __init__(
        self,
        policy: Policy,
        *,
        key: str = "",
        seat: str = "agent",
        limits: Limits | None = None,
        trainable: bool = True,
        spending: Spending | None = None,
    ):
        """`spending` is the episode's, shared by its seats."""
        self.policy, self.key, self.limits = policy, key, limits or Limits()
        self.spending = spending or Spending()
        self.trajectory = Trajectory(seat=seat, trainable=trainable)
        self.messages: list[Message] = []
        self.interruption: WanderlustError | None = None
        """What kept the latest turn from happening; it ends the episode even where a program swallows it."""
        self._context_tokens = 0
        self._turn_lock = asyncio.Lock()
        self._activity_name = "the policy" if seat == "agent" else f"the policy of {seat}"

    async def act(self, *observation: Message, tools: Sequence[Tool] = ()) -> Message:
        """Show the policy what is new; return what it does. Raises StopEpisode at a limit or a full context."""
        async with self._turn_lock:
            return await self._turn(self._cut(observation), tools, resets_context=False)

    async def act_with_context(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        options: AnswerOptions | None = None,
        on_text: OnText | None = None,
    ) -> Message:
        """Like `act`, but the caller owns the whole context (black-box agents, compaction).

        `options` reach policies that are SupportsOptions, and nobody else: ask `unsupported_option` first. `on_text`
        reaches those and policies that are SupportsStreaming; others never call it.
        """
        async with self._turn_lock:
            prefix_length, context = len(self.messages), self._cut(messages)
            resets = list(context[:prefix_length]) != self.messages
            new = context if resets else context[prefix_length:]
            return await self._turn(new, tools, resets_context=resets, options=options, on_text=on_text)

    def _cut(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages, those of tools within their bound."""
        limit = self.limits.max_tool_chars
        if limit is None or not any(message.role == "tool" and len(message.content) > limit for message in messages):
            return tuple(messages)
        return tuple(
            replace(message, content=cut_text(message.content, limit)) if message.role == "tool" else message
            for message in messages
        )

    def _reached_limit(self, *, resets_context: bool) -> str:
        """Name of the bound that leaves no further turn; empty when there is none."""
        if len(self.trajectory.turns) >= self.limits.max_turns:
            return "max_turns"
        most = self.limits.max_context_tokens
        if most is not None and not resets_context and self._context_tokens >= most:
            return "max_context_tokens"
        return self.spending.reached(self.limits)

    async def _turn(
        self,
        observation: tuple[Message, ...],
        tools: Sequence[Tool],
        *,
        resets_context: bool,
        options: AnswerOptions | None = None,
        on_text: OnText | None = None,
    ) -> Message:
        context = [*observation] if resets_context else [*self.messages, *observation]
        try:
            if limit := self._reached_limit(resets_context=resets_context):
                await asyncio.sleep(0)  # an environment that goes on asking must not keep everybody else waiting
                raise StopEpisode(limit)
            with boundary(PolicyFailure), track(self._activity_name):
                if options is not None and isinstance(self.policy, SupportsOptions):
                    policy = self.policy
                    completion = await policy.complete_with_options(
                        options, context, tools, key=self.key, on_text=on_text
                    )
                elif on_text is not None and isinstance(self.policy, SupportsStreaming):
                    completion = await self.policy.complete_streaming(on_text, context, tools, key=self.key)
                else:
                    completion = await self.policy.complete(context, tools, key=self.key)
                if not isinstance(completion, Completion):
                    raise PolicyFailure(f"the policy gave a {type(completion).__name__}, and not a Completion")
        except WanderlustError as cut:
            self.interruption = cut
            raise
        self.interruption = None
        self._context_tokens = self.spending.add(completion)
        context.append(completion.message)
        self.messages = context
        turn = Turn(
            observation=observation,
            action=completion.message,
            resets_context=resets_context,
            finish=completion.finish,
            tokens=completion.tokens,
            usage=completion.usage,
            details=completion.details,
        )
        self.trajectory.turns.append(turn)
        return completion.message

    def release(self) -> None:
        """Tell the policy that this conversation is over."""
        release_conversation(self.policy, self.key)


def release_conversation(policy: object, key: str) -> None:
    """Let a policy forget what it keeps of a conversation, if it keeps anything (`SupportsRelease`)."""
    release = getattr(policy, "release", None)  # isinstance with a protocol takes longer than a whole turn
    if release is not None:
        release(key)


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
    group_by: str | None = None
    """Key of `Task.info` by which reports are broken down."""
    revision: Revision = Revision()
    """How a policy is asked to revise an answer."""
    extract: Callable[[str], str] | None = None
    """Reads the final answer from a completion, for label-free rewards; None reads boxed, tagged or last numbers."""

    @abstractmethod
    async def run(self, episode: Episode) -> None:
        """Play one episode to its end."""

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """The tasks of a split; may be endless."""
        return ()

    def oracle(self, task: Task) -> Policy | None:
        """A policy that solves `task` because it knows the answer; None where there is none."""
        return None

    async def exact(self, policy: Policy, *, name: str) -> list[dict[str, Any]] | None:
        """Exact figures of a deterministic policy, as rows of a table; None where they cannot be computed."""
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
        """The loop itself, with tools for the model to call."""
        observation = list(episode.task.prompt)
        new: Sequence[Message] | None = observation
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
