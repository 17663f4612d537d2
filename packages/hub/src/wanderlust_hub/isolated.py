"""An environment whose code runs in a process of its own, and which is used here like any other.

Tasks, episodes, judgements and scripted players of the package come over a channel; policies, limits and records stay
here. A rollout is the same as that of the environment in this process.

Not covered: seats that read an answer's options or pieces (`act_with_context`), `duel`, `exact`, `demonstrations`,
`first_move`, settings with a comma, judges that need a model, and environments that open sandboxes themselves.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar

from wanderlust.environment import Environment, Episode, Revision
from wanderlust.errors import EnvironmentFailure, RubricFailure, UsageError, WanderlustError, one_line
from wanderlust.types import Completion, Group, Message, Policy, Rollout, Score, Task, Tool, Trajectory
from wanderlust_hub.channel import Channel, ChannelPool, Inbox
from wanderlust_hub.launch import Source, describe
from wanderlust_hub.wire import (
    Act,
    Answer,
    AnyReply,
    Cancel,
    Complete,
    Ended,
    Extract,
    Failed,
    Fault,
    Judge,
    ListTasks,
    MakePolicy,
    Number,
    Release,
    Request,
    Scores,
    ShownTool,
    Start,
    Tasks,
    Value,
    encodable,
)

PAGE_TASKS, MAX_KNOWN_EPISODES, MAX_ACTS_AT_ONCE, MAX_REFUSED_ACTS = 64, 2_048, 64, 1_000
HIDDEN_SECONDS = 3600.0
"""Bound of an episode whose environment names none: a published package may never end one."""
ReplyT = TypeVar("ReplyT", bound=AnyReply)


class IsolatedEnvironment(Environment):
    """The environment of a package, in a process of its own.

    Example:
        >>> load_environment("sums")  # after `wander hub add HUB sums`
    """

    def __init__(self, source: Source, *, settings: Mapping[str, Any] | None = None):
        """Starts the process. Raises SandboxFailure where it cannot be isolated, and what the package raises."""
        self.source = f"{source.name} {source.digest}"
        """Name and digest of the code: a part of the provenance."""
        self.settings = dict(settings or {})
        self._pool = ChannelPool(source, describe(source.target, iter(self.settings.items())))
        self._known = OrderedDict[int, tuple[Mapping[str, Any], Channel, int]]()
        with self._pool.blocking() as channel:
            told = channel.declared
        self._told = told
        limits = told.limits if told.limits.timeout is not None else replace(told.limits, timeout=HIDDEN_SECONDS)
        self.limits, self.rubric = limits, IsolatedRubric(self, compares=told.compares) if told.rubric else None
        self.oracle_bar, self.chance_bar = told.oracle_bar, told.chance_bar
        self.choose_by, self.group_by = told.choose_by, told.group_by
        self.graded_arguments = frozenset(told.graded_arguments)
        self.revision = Revision(improve=told.revision[0], diverge=told.revision[1])
        self.players = MappingProxyType({name: partial(self._policy, "player", name) for name in told.players})
        self.frozen_seats = MappingProxyType({name: self._policy("frozen", name) for name in told.frozen_seats})
        self.extract = self._extract if told.extract else None
        vars(self).update(seats=told.seats, prefixes=told.prefixes)

    def close(self) -> None:
        """End the process; it also ends when nobody has the environment any more."""
        self._pool.close()

    @property
    def has_oracle(self) -> bool:
        """Whether the package defines one."""
        return self._told.oracle

    def tasks(self, split: str = "train") -> Iterable[Task]:
        """The tasks of a split, fetched as they are asked for. Raises UsageError when there is no such split."""
        pages = self._pages(split)
        first = next(pages, [])
        return first if len(first) < PAGE_TASKS else chain(first, chain.from_iterable(pages))

    def _pages(self, split: str) -> Iterator[list[Task]]:
        taken, number, before, count = 0, 0, None, PAGE_TASKS
        while True:
            with self._pool.blocking(before) as channel:
                number, again = (number, False) if channel is before else (channel.open()[0], taken > 0)
                if again:  # another process lists them from the first
                    self._ask_on(channel, ListTasks(number=number, split=split, begin=True, count=taken), Tasks)
                begin = channel is not before and not again
                request = ListTasks(number=number, split=split, begin=begin, count=count)
                page, before = self._ask_on(channel, request, Tasks), channel
            if page.tasks:
                yield page.tasks
            taken += len(page.tasks)
            if not page.more or not page.tasks:
                return

    def oracle(self, task: Task) -> Policy | None:
        """The package's own policy for this task."""
        policy = self._policy("oracle", "", task)
        return policy if policy.exists else None

    def _policy(self, what: Any, name: str, task: Task | None = None) -> InsidePolicy:
        return InsidePolicy(self, partial(MakePolicy, what=what, name=name, task=task))

    def _extract(self, text: str) -> str:
        return self.ask_blocking(lambda number: Extract(number=number, text=text), Value).text

    def ask_blocking(self, make: Callable[[int], Request], kind: type[ReplyT]) -> ReplyT:
        """Ask, and wait without a loop."""
        with self._pool.blocking() as channel:
            number, _ = channel.open()
            return self._ask_on(channel, make(number), kind)

    def _ask_on(self, channel: Channel, request: Request, kind: type[ReplyT]) -> ReplyT:
        inbox = channel.inbox(request.number)
        try:
            channel.send(request)
            return _expect(channel.wait(inbox), kind)
        finally:
            channel.forget(request.number)

    async def ask(self, channel: Channel, make: Callable[[int], Request], kind: type[ReplyT]) -> ReplyT:
        """Ask on a channel, and wait."""
        number, inbox = channel.open()
        try:
            channel.send(make(number))
            return _expect(await channel.next(inbox), kind)
        finally:
            channel.forget(number)

    async def run(self, episode: Episode) -> None:
        """Play the episode over there, with the seats here."""
        async with self._pool.attached() as channel:
            number, inbox = channel.open()
            self._know(episode.state, channel, number)
            seats = episode.agents
            limits = next(iter(seats.values())).limits
            keys = {seat: agent.key for seat, agent in seats.items()}
            play = _Play(self, episode, channel=channel, number=number)
            try:
                channel.send(Start(number=number, task=episode.task, seed=episode.seed, keys=keys, limits=limits))
                with episode.playing():
                    await play.take_all(inbox)
                if not play.over and episode.play.stop is not None:  # a time limit, between two turns
                    channel.send(Cancel(number=number, limit=episode.play.stop.reason))
                    with suppress(TimeoutError):  # a process that hangs is given up like one that was cancelled
                        async with channel.ending_time():
                            await play.take_all(inbox)
            finally:
                channel.forget(number, cancel=not play.over)
                await play.end()
        if play.fault is not None:
            episode.play.cut = True  # the other side has told its own errors from what a seat met
            raise play.fault.error()

    def _know(self, state: Mapping[str, Any], channel: Channel, number: int) -> None:
        """Remember which episode a state is of: the object is kept, so that no other gets its identity."""
        self._known[id(state)] = state, channel, number
        if len(self._known) > MAX_KNOWN_EPISODES:
            self._known.popitem(last=False)

    async def judge(self, rollouts: Sequence[Rollout], seat: str, *, compare: bool) -> list[Score]:
        """Scores of a seat by the package's rubric. Raises RubricFailure."""
        async with self._pool.attached() as channel:
            episodes, sent = list[int](), list[Rollout]()
            for one in rollouts:
                _, where, number = self._known.get(id(one.state), (None, None, 0))
                known = where is channel
                episodes.append(number if known else 0)
                sent.append(_shortened(one, turns=not known))
            make = partial(Judge, seat=seat, episodes=episodes, rollouts=sent, compare=compare)
            try:
                scores = (await self.ask(channel, lambda number: make(number=number), Scores)).scores
            except WanderlustError as error:
                raise RubricFailure(str(error), transient=error.transient) from error
        if len(scores) != (len(rollouts) if compare else 1):
            raise RubricFailure(f"its process gave {len(scores)} scores for {len(rollouts)} rollouts")
        return scores

    @property
    def pool(self) -> ChannelPool:
        """Its channels."""
        return self._pool

    @property
    def sends_tokens(self) -> bool:
        """Whether sampled tokens are handed on: a rubric may count them."""
        return self._told.rubric


class _Play:
    """The side of one episode that is here."""

    def __init__(self, env: IsolatedEnvironment, episode: Episode, *, channel: Channel, number: int):
        self._env, self._channel, self._number, self._episode = env, channel, number, episode
        self._acts, self._tools, self._refused = set[asyncio.Task[None]](), list[ShownTool](), 0
        self.over = False
        self.fault: Fault | None = None

    async def take_all(self, inbox: Inbox) -> None:
        """Take what the other side says until the end."""
        while not self.over:
            self.over = self.take(await self._channel.next(inbox))

    def take(self, reply: AnyReply) -> bool:
        """Take what the other side says; True when that was the end."""
        if isinstance(reply, Act):
            self._pay(reply.rewards)
            if reply.tools is not None:
                self._tools = reply.tools
            if reply.seat not in self._episode.agents:
                raise EnvironmentFailure(f"it asks for a turn of {one_line(reply.seat, 40)!r}, which is no seat")
            if len(self._acts) >= MAX_ACTS_AT_ONCE or self._refused >= MAX_REFUSED_ACTS:
                raise EnvironmentFailure("it asks for more turns than there can be")
            task = asyncio.create_task(self._act(reply, self._tools))
            self._acts.add(task)
            task.add_done_callback(self._acts.discard)
            return False
        ended = _expect(reply, Ended)
        self._pay(ended.rewards)
        self._episode.state.update(ended.state)
        self.fault = ended.fault
        return True

    async def end(self) -> None:
        """Cancel the turns that are still under way."""
        acts = [*self._acts]
        for act in acts:
            act.cancel()
        if acts:
            await asyncio.gather(*acts, return_exceptions=True)

    def _pay(self, rewards: Sequence[tuple[str, Number, str]]) -> None:
        for name, value, seat in rewards:
            self._episode.reward(name, float(value) if isinstance(value, str) else value, seat)

    async def _act(self, act: Act, tools: Sequence[ShownTool]) -> None:
        agent, number = self._episode.agents[act.seat], self._number
        try:
            if act.back is not None:
                agent.go_back(act.back)
            taken = agent.act_with_context(act.messages, tools) if act.whole else agent.act(*act.messages, tools=tools)
            message = await taken
        except WanderlustError as error:
            self._refused += 1
            answer = Answer(number=number, act=act.act, fault=Fault.of(error))
        else:
            turn = agent.trajectory.turns[-1]  # nothing was awaited since the turn was recorded
            usage, tokens = dict(turn.usage), turn.tokens if self._env.sends_tokens else None
            answer = Answer(
                number=number,
                act=act.act,
                message=message,
                finish=turn.finish,
                usage=usage,
                tokens=tokens,
                details=turn.details,
            )
        channel = self._channel
        with suppress(EnvironmentFailure):  # a process that is gone: the episode is told by its inbox
            try:
                channel.send(answer)
            except EnvironmentFailure as failure:
                said = None if answer.message is None else encodable(answer.message)
                fault = Fault.of(failure) if said == answer.message else answer.fault
                channel.send(Answer(number=number, act=act.act, message=said, finish=answer.finish, fault=fault))


class IsolatedRubric:
    """The rubric of the package, asked over there."""

    def __init__(self, env: IsolatedEnvironment, *, compares: bool):
        self._env, self.compares = env, compares

    async def score(self, rollout: Rollout, trajectory: Trajectory) -> Score:
        """The score of one seat."""
        return (await self._env.judge([rollout], trajectory.seat, compare=False))[0]

    async def compare(self, group: Group, seat: str) -> Sequence[Score]:
        """The final scores of a seat, one for each rollout."""
        return await self._env.judge(group.rollouts, seat, compare=True)


class InsidePolicy:
    """A scripted policy of the package."""

    def __init__(self, env: IsolatedEnvironment, make: Callable[..., MakePolicy]):
        self._env, self._make = env, make
        self._handles = dict[Channel, int | None]()

    @property
    def exists(self) -> bool:
        """Whether the package makes one."""
        with self._env.pool.blocking() as channel:
            number, inbox = channel.open()
            try:
                channel.send(self._make(number=number))
                self._handles[channel] = _expect(channel.wait(inbox), Value).handle
            finally:
                channel.forget(number)
            return self._handles[channel] is not None

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Answer over there."""
        env = self._env
        async with env.pool.attached() as channel:
            if channel not in self._handles:
                self._handles[channel] = (await env.ask(channel, lambda n: self._make(number=n), Value)).handle
            handle = self._handles[channel]
            if handle is None:
                raise UsageError("the package makes no such policy")
            shown = [ShownTool(name=one.name, description=one.description, schema=one.schema) for one in tools]
            make = partial(Complete, policy=handle, messages=list(messages), tools=shown, key=key)
            done = await env.ask(channel, lambda n: make(number=n), Value)
        if done.message is None:
            raise EnvironmentFailure("its process gave no answer of a policy")
        return Completion(message=done.message, finish=done.finish)

    def release(self, key: str) -> None:
        """Let it forget a conversation."""
        for channel, handle in self._handles.items():
            if handle is not None and channel.fault is None:
                channel.send(Release(number=0, policy=handle, key=key))


def _expect(reply: AnyReply, kind: type[ReplyT]) -> ReplyT:
    """The reply, of the kind that was asked for. Raises what the other side met."""
    if isinstance(reply, Failed):
        raise reply.fault.error()
    if not isinstance(reply, kind):
        raise EnvironmentFailure(f"its process answered with {type(reply).__name__}, and not with {kind.__name__}")
    return reply


def _shortened(rollout: Rollout, *, turns: bool) -> Rollout:
    """A rollout as it is sent, with its turns and state or without."""
    trajectories = [
        Trajectory(
            seat=one.seat,
            turns=one.turns if turns else [],
            rewards=one.rewards if turns else [],
            score=one.score,
            trainable=one.trainable,
        )
        for one in rollout.trajectories
    ]
    return replace(rollout, trajectories=trajectories, state=rollout.state if turns else {})
