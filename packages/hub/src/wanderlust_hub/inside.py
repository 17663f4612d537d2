"""The process of an isolated environment: `python -m wanderlust_hub.inside` within a sandbox, behind two pipes.

It imports the published package, plays its episodes with seats whose turns are taken on the other side, and judges
with its rubric. What the package prints goes nowhere.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import islice
from typing import Any, cast

from wanderlust.agent import Agent, release_conversation
from wanderlust.agent.limits import Limits
from wanderlust.agent.play import Play
from wanderlust.environment import Environment, Episode
from wanderlust.errors import (
    EnvironmentFailure,
    PolicyFailure,
    RubricFailure,
    StopEpisode,
    UsageError,
    WanderlustError,
    boundary,
)
from wanderlust.runner.engine import finite_score
from wanderlust.tasks.registry import make_environment
from wanderlust.types import (
    Completion,
    Group,
    GroupRubric,
    Message,
    Policy,
    Rollout,
    Score,
    Task,
    Tool,
)
from wanderlust_hub.wire import (
    Act,
    Answer,
    AnyRequest,
    Cancel,
    Complete,
    Declared,
    Ended,
    Extract,
    Failed,
    Fault,
    FrameBuffer,
    Judge,
    ListTasks,
    MakePolicy,
    Number,
    Release,
    Reply,
    Scores,
    ShownTool,
    Start,
    Tasks,
    Value,
    pack,
    read_request,
    same_names,
    wire_number,
)

CHUNK_BYTES = 1 << 16
MAX_KEPT_EPISODES, MAX_KEPT_TASKS = 4_096, 20_000
"""Finished episodes whose own objects a rubric still gets, and listed tasks that are played as these objects."""

_request: ContextVar[tuple[Sequence[Message], bool, int | None]] = ContextVar("request")
"""Messages of the turn that is asked for, whether they are the whole context, and the turn to go back to."""


class _Play:
    """One episode under way."""

    def __init__(self, server: Server, start: Start, env: Environment):
        self.server, self.number = server, start.number
        self.rewards = list[tuple[str, Number, str]]()
        self.waiting = dict[int, asyncio.Future[Answer]]()
        self._acts, self._tools = 0, ()  # type: int, Sequence[Tool]
        limits, common = start.limits, Play()
        seats = {seat: _Seat(self, seat, key=start.keys[seat], limits=limits, play=common) for seat in env.seats}
        self.episode = _Paid(self, server.own_task(start.task), seats, seed=start.seed)

    async def ask(self, seat: str, tools: Sequence[Tool]) -> Completion:
        """Send an Act and wait for its Answer. Raises what the other side met."""
        messages, whole, back = _request.get()
        self._acts += 1
        same = same_names(tools, self._tools)
        self._tools = tools
        shown = [ShownTool(name=one.name, description=one.description, schema=one.schema) for one in tools]
        answered = self.waiting[self._acts] = asyncio.get_running_loop().create_future()
        frame = Act(
            number=self.number,
            act=self._acts,
            seat=seat,
            messages=list(messages),
            whole=whole,
            back=back,
            tools=None if same else shown,
            rewards=self.take_rewards(),
        )
        number = self._acts
        try:
            self.server.send(frame)
            answer = await answered
        finally:
            del self.waiting[number]
        if answer.fault is not None or answer.message is None:
            raise answer.fault.error() if answer.fault is not None else PolicyFailure("there is no answer")
        return Completion(
            message=answer.message,
            finish=answer.finish,
            usage=answer.usage,
            tokens=answer.tokens,
            details=answer.details,
        )

    def take_rewards(self) -> list[tuple[str, Number, str]]:
        """What was paid since the last frame."""
        taken, self.rewards = self.rewards, []
        return taken

    async def play(self, env: Environment) -> None:
        """Run the environment's loop, and say how it ended."""
        fault, met = None, None  # type: Fault | None, WanderlustError | None
        try:
            with self.episode.play.limited(None), boundary(EnvironmentFailure):
                await env.run(self.episode)
        except SystemExit as leaving:
            fault = Fault(kind="EnvironmentFailure", text=f"it called sys.exit({leaving.code!r})")
        except asyncio.CancelledError:
            fault = Fault(kind="StopEpisode", text="cancelled")
        except WanderlustError as error:
            met = error
        if fault is None and (end := self.episode.ending(met)) is not None:
            fault = Fault.of(end)
        state = self.episode.state
        self.server.send_ended(Ended(number=self.number, state=state, rewards=self.take_rewards(), fault=fault))


class _Paid(Episode):
    """An episode whose rewards are sent on."""

    def __init__(self, play: _Play, task: Task, agents: Mapping[str, Agent], *, seed: int):
        super().__init__(task, agents, seed)
        self._play = play

    def reward(self, name: str, value: float, seat: str = "agent") -> None:
        """As `Episode.reward` says."""
        super().reward(name, value, seat)
        self._play.rewards.append((str(name), wire_number(value), seat))


class _Seat(Agent):
    """A seat whose policy is on the other side, which holds the limits and records the turns as well."""

    def __init__(self, elsewhere: _Play, seat: str, *, key: str, limits: Limits, play: Play):
        super().__init__(_Elsewhere(elsewhere, seat), key=key, seat=seat, limits=limits, play=play)
        self._back: int | None = None

    def _reached_limit(self, place: Any) -> str:
        return ""

    def go_back(self, turn: int) -> None:
        """As `Agent.go_back` says."""
        super().go_back(turn)
        self._back = turn

    async def act(self, *observation: Message, tools: Sequence[Tool] = ()) -> Message:
        """As `Agent.act` says."""
        back, self._back = self._back, None
        _request.set((observation, False, back))
        return await super().act(*observation, tools=tools)

    async def act_with_context(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, options: Any = None, on_text: Any = None
    ) -> Message:
        """As `Agent.act_with_context` says; options and pieces of text do not cross."""
        _request.set((messages, True, None))
        return await super().act_with_context(messages, tools)


class _Elsewhere:
    """The policy of a seat, on the other side."""

    def __init__(self, play: _Play, seat: str):
        self._play, self._name = play, seat

    async def complete(self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, key: str = "") -> Completion:
        """Ask for the turn."""
        return await self._play.ask(self._name, tools)


class Server:
    """Answers the requests that come through one pipe, by frames into another."""

    def __init__(self, env: Environment, *, reading: int, writing: int):
        self.env, self._reading, self._writing = env, reading, writing
        self._plays = dict[int, tuple[_Play, asyncio.Task[None]]]()
        self._kept = OrderedDict[int, _Play]()
        self._listed = OrderedDict[str, tuple[bytes, Task]]()
        self._splits = dict[int, Iterator[Task]]()
        self._policies, self._made = dict[int, Policy](), 0
        self._small = set[asyncio.Task[None]]()

    def send(self, frame: Reply) -> None:
        """Write a frame; the other side reads."""
        rest = memoryview(pack(frame))
        while rest:
            rest = rest[os.write(self._writing, rest) :]

    def send_ended(self, frame: Ended) -> None:
        """Write the end of an episode; a state that is no plain data is left out, and its failure said."""
        try:
            self.send(frame)
        except EnvironmentFailure as failure:
            self.send(Ended(number=frame.number, rewards=frame.rewards, fault=Fault.of(failure)))

    def own_task(self, task: Task) -> Task:
        """The object that was listed, where the task is equal to it."""
        body, listed = self._listed.get(task.id, (b"", task))
        return listed if body and body == _spelling(task) else task

    async def serve(self) -> None:
        """Read requests until the pipe ends."""
        loop, closed, buffer = asyncio.get_running_loop(), asyncio.Event(), FrameBuffer()

        def readable() -> None:
            data = os.read(self._reading, CHUNK_BYTES)
            if not data:
                closed.set()
                return
            for body in buffer.take(data):
                self._take(read_request(body))

        loop.add_reader(self._reading, readable)
        await closed.wait()

    def _take(self, request: AnyRequest) -> None:
        if isinstance(request, Answer):
            asking, _ = self._plays.get(request.number, (None, None))
            future = asking.waiting.get(request.act) if asking is not None else None
            if future is not None and not future.done():
                future.set_result(request)
        elif isinstance(request, Start):
            self._start(request)
        elif isinstance(request, Cancel):
            play, task = self._plays.get(request.number, (None, None))
            if play is not None and request.limit:
                play.episode.play.end(StopEpisode(request.limit))
            elif task is not None:
                task.cancel()
        else:
            task = asyncio.create_task(self._answer(request))
            self._small.add(task)
            task.add_done_callback(self._small.discard)

    def _start(self, request: Start) -> None:
        play = _Play(self, request, self.env)
        task = asyncio.create_task(play.play(self.env))
        self._plays[request.number] = play, task
        self._kept[request.number] = play
        if len(self._kept) > MAX_KEPT_EPISODES:
            self._kept.popitem(last=False)
        task.add_done_callback(lambda _: self._plays.pop(request.number, None))

    async def _answer(self, request: AnyRequest) -> None:
        try:
            with boundary(RubricFailure if isinstance(request, Judge) else EnvironmentFailure):
                reply = await self._reply(request)
            if reply is not None:
                self.send(reply)
        except WanderlustError as error:
            self.send(Failed(number=request.number, fault=Fault.of(error)))

    async def _reply(self, request: AnyRequest) -> Reply | None:
        number, reply = request.number, None  # type: int, Reply | None
        if isinstance(request, ListTasks):
            reply = self._list(request)
        elif isinstance(request, Judge):
            reply = Scores(number=number, scores=await self._judge(request))
        elif isinstance(request, MakePolicy):
            reply = Value(number=number, handle=self._make(request))
        elif isinstance(request, Complete):
            policy = self._policies[request.policy]
            with boundary(PolicyFailure):
                done = await policy.complete(request.messages, request.tools, key=request.key)
            reply = Value(number=number, message=done.message, finish=done.finish)
        elif isinstance(request, Release):
            if request.policy in self._policies:
                release_conversation(self._policies[request.policy], request.key)
        elif isinstance(request, Extract) and self.env.extract is not None:
            reply = Value(number=number, text=str(self.env.extract(request.text)))
        return reply

    def _list(self, request: ListTasks) -> Tasks:
        if request.begin:
            self._splits[request.number] = iter(self.env.tasks(request.split))
        tasks = list(islice(self._splits[request.number], request.count))
        for task in tasks:
            self._listed[task.id] = _spelling(task), task
            if len(self._listed) > MAX_KEPT_TASKS:
                self._listed.popitem(last=False)
        more = len(tasks) == request.count
        if not more:
            del self._splits[request.number]
        return Tasks(number=request.number, tasks=tasks, more=more)

    async def _judge(self, request: Judge) -> list[Score]:
        rollouts = [self._own(*pair) for pair in zip(request.episodes, request.rollouts, strict=True)]
        rubric = cast(GroupRubric, self.env.rubric)
        if request.compare:
            scores = list(await rubric.compare(Group(task=rollouts[0].task, rollouts=rollouts), request.seat))
        else:
            seat = next(one for one in rollouts[0].trajectories if one.seat == request.seat)
            scores = [await rubric.score(rollouts[0], seat)]
        return [finite_score(one) for one in scores]

    def _own(self, number: int, rollout: Rollout) -> Rollout:
        """The rollout with the task, turns and state of the episode as they are here, where it is still known."""
        rollout.task = self.own_task(rollout.task)
        play = self._kept.get(number)
        if play is not None:
            rollout.state = play.episode.state
            for trajectory in rollout.trajectories:
                own = play.episode.agents[trajectory.seat].trajectory
                trajectory.turns, trajectory.rewards = own.turns, own.rewards
        return rollout

    def _make(self, request: MakePolicy) -> int | None:
        env = self.env
        if request.what == "oracle":
            task = request.task
            policy = None if task is None else env.oracle(self.own_task(task))
        elif request.what == "player":
            policy = env.players[request.name]()
        else:
            policy = env.frozen_seats[request.name]
        if policy is None:
            return None
        self._made += 1
        self._policies[self._made] = policy
        return self._made


def _spelling(task: Task) -> bytes:
    """How a task crosses."""
    return pack(Tasks(number=0, tasks=[task], more=False))


def declared(env: Environment) -> Declared:
    """The attributes that the other side asks for."""
    revision = env.revision
    return Declared(
        number=0,
        seats=tuple(env.seats),
        limits=env.limits,
        rubric=env.rubric is not None,
        compares=isinstance(env.rubric, GroupRubric) and env.rubric.compares,
        prefixes=env.prefixes,
        oracle=env.has_oracle,
        extract=env.extract is not None,
        players=[*env.players],
        frozen_seats=[*env.frozen_seats],
        oracle_bar=env.oracle_bar,
        chance_bar=env.chance_bar,
        graded_arguments=sorted(env.graded_arguments),
        choose_by=env.choose_by,
        group_by=env.group_by,
        revision=(revision.improve, revision.diverge),
    )


def main(target: str) -> int:
    """Make the environment, say what it is like, and serve until the pipe ends."""
    reading, writing = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)  # nobody reads it: a full pipe would hold the package up
    os.set_blocking(reading, True)
    os.set_blocking(writing, True)
    try:
        with boundary(EnvironmentFailure):
            env = make_environment(target)
    except WanderlustError as error:
        os.write(writing, pack(Failed(number=0, fault=Fault.of(error))))
        return 1
    server = Server(env, reading=reading, writing=writing)
    try:
        server.send(declared(env))
        asyncio.run(server.serve())
    except (BrokenPipeError, KeyboardInterrupt, StopEpisode, UsageError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
