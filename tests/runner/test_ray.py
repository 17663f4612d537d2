"""Ray: the same rollouts from other processes and machines, whoever is lost on the way."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import tempfile
from collections import defaultdict
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Lock

import pytest
import ray
from ray.cluster_utils import Cluster

from project_files import ROOT
from wanderlust.environment import Environment, Limits
from wanderlust.errors import UsageError, WorkerFailure
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rubric import Reward, Rubric
from wanderlust.runner import ray as crews
from wanderlust.runner.engine import rollouts
from wanderlust.runner.ray import RemoteSpec, ray_backend
from wanderlust.tools.sandbox import open_sandbox
from wanderlust.types import Status, Task, user

TASKS = [Task(id=f"t{n}", info={"large": "x" * 100}) for n in range(12)]
NODE = {"object_store_memory": 80 * 2**20}
pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::wanderlust.errors.WorkerRestartWarning"),
]
SOON = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 200, "health_check_failure_threshold": 3}


@pytest.mark.parametrize(("address", "reason"), [("127.0.0.1:1", "refused"), ("nonsense", "is not the address")])
def test_a_cluster_that_is_not_there_is_said_at_once(address, reason):
    async def play():
        async with ray_backend(1, address=address):
            pass

    with pytest.raises(UsageError, match=f"{address}.*{reason}"):
        asyncio.run(play())


@pytest.fixture(scope="module")
def cluster():
    """Two nodes: the head has room for one worker, the other one for four."""
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": SOON, **NODE}
    place = Path(tempfile.gettempdir(), f"ray-{os.getuid()}")  # Ray's own is that of who used it first on a machine
    place.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", str(place))
        made = Cluster(initialize_head=True, head_node_args=head)
        made.add_node(num_cpus=4, **NODE)
        ray.init(address=made.address, log_to_driver=False)
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def shared(cluster):
    """An event loop, as a function that runs a coroutine, and a crew of two in it that most tests share."""
    with asyncio.Runner() as runner:
        hiring = ray_backend(2, each=5)
        yield runner.run, runner.run(hiring.__aenter__())
        runner.run(hiring.__aexit__(None, None, None))


def draw(messages, rng):
    return "end" if rng.random() < 0.3 else f"{rng.random()}"


class Chat(Environment):
    """Talks until the policy says `end`, and fails now and then."""

    async def run(self, episode):
        while (await episode.agent.act(user(f"{episode.rng(1).random()}"))).content != "end":
            episode.reward("turns", 1.0)
            if episode.rng("fails").random() < 0.2:
                raise KeyError("x")
        episode.state["over"] = (1, {"a": 2.0})


def alike(rewards):
    """Some judgement that needs all siblings."""
    return [reward - max(rewards) for reward in rewards]


def turns(trajectory):
    return float(len(trajectory.turns))


class Meeting:
    """Where episodes of any process come to, say who they are, and wait."""

    def __init__(self):
        self.here: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.open = asyncio.Event()
        self.visits = set()

    async def __call__(self, reader, writer):
        self.visits.add(asyncio.current_task())
        try:
            task, pid = (await reader.readline()).decode().split()
            self.here.put_nowait((task, int(pid)))
            await self.open.wait()
            writer.write(b"go on\n")
        finally:
            writer.close()

    async def arrived(self, number):
        """The processes of that many episodes."""
        pids = defaultdict(list)
        for _ in range(number):
            task, pid = await self.here.get()
            pids[pid].append(task)
        return pids


@asynccontextmanager
async def meeting():
    place = Meeting()
    server = await asyncio.start_server(place, "127.0.0.1", 0)
    try:
        yield place, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        place.open.set()
        await asyncio.gather(*place.visits, return_exceptions=True)


class Visit(Environment):
    """Goes to the meeting and then talks; the last thing it does is to leave a file."""

    def __init__(self, port, ends=None):
        self.port, self.ends = port, ends

    async def run(self, episode):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"{episode.task.id} {os.getpid()}\n".encode())
            assert await reader.readline() == b"go on\n"
            await Chat().run(episode)
        finally:
            writer.close()
            if self.ends is not None:
                (self.ends / f"{episode.task.id}-{os.getpid()}").touch()


async def collect(env, tasks=TASKS, policy=None, **options):
    async with rollouts(env, tasks, policy or Scripted(draw), seed=5, **options) as groups:
        return plain([group async for group in groups])


def plain(groups):
    """In the order of the tasks, without what no two rollouts have in common."""
    for group in groups:
        for rollout in group.rollouts:
            rollout.seconds = 0.0
    return sorted(groups, key=lambda group: group.index)


def test_rollouts_are_the_same_as_in_this_process(shared):
    run, crew = shared
    assert len({worker.pid for worker in crew.workers} | {os.getpid()}) == 3
    assert crew.concurrency == 10
    options = {"group_size": 3, "limits": Limits(max_turns=6), "rubric": Rubric(turns, Reward(group_turns, weight=0.5))}
    there, here = run(collect(Chat(), concurrency=crew, **options)), run(collect(Chat(), **options))
    assert there == here
    statuses = {rollout.status for group in here for rollout in group.rollouts}
    assert statuses == {Status.DONE, Status.TRUNCATED, Status.ERROR}
    assert all(group.task is TASKS[group.index] for group in there)


def group_turns(trajectories):
    """Compares siblings."""
    most = max(len(t.turns) for t in trajectories)
    return [float(len(t.turns) == most) for t in trajectories]


def test_a_killed_worker_loses_nothing(shared):
    run, crew = shared

    async def play():
        async with meeting() as (place, port):
            playing = asyncio.create_task(collect(Visit(port), concurrency=crew))
            met = await place.arrived(10)
            lost = crew.workers[0].pid
            os.kill(lost, signal.SIGKILL)
            again = await place.arrived(5)  # the same episodes, in the other worker or in a new one
            place.open.set()
            return await playing, met[lost], [task for tasks in again.values() for task in tasks]

    there, lost, again = run(play())
    assert sorted(lost) == sorted(again)
    assert crew.restarted == 5
    assert with_places(there) == with_places(run(collect(Chat())))


def with_places(groups):
    """The groups with the places of failures, and not the way there: one environment calls the other."""
    for rollout in (rollout for group in groups for rollout in group.rollouts if rollout.failure is not None):
        rollout.failure = replace(rollout.failure, traceback="")
    return groups


class Deadly(Environment):
    """Its first task ends whoever plays it."""

    async def run(self, episode):
        if episode.task is not None and episode.task.id == "t0":
            os.kill(os.getpid(), signal.SIGKILL)
        await episode.agent.act(user("hello"))
        episode.reward("played", 1.0)


def test_an_episode_that_ends_its_workers_fails_alone(cluster, monkeypatch):
    monkeypatch.setattr(crews, "MAX_WORKER_LIVES", 2)

    async def play():
        async with ray_backend(1, each=1) as crew:
            return await collect(Deadly(), TASKS[:3], concurrency=crew), crew.restarted

    (bad, *good), restarted = asyncio.run(play())
    (rollout,) = bad.rollouts
    assert (rollout.status, rollout.stop_reason, rollout.transient) == (Status.ERROR, "WorkerFailure", True)
    assert "2 workers were lost while they played it" in rollout.error
    assert (bad.rewards, [group.rewards for group in good]) == ([], [[1.0], [1.0]])
    assert restarted == 1


def test_leaving_early_breaks_off_what_goes_on(shared, tmp_path):
    run, crew = shared
    made = []

    def endless():
        for n in count():
            made.append(n)
            yield Task(id=f"e{n}")

    async def play():
        async with meeting() as (place, port):
            async with rollouts(Visit(port, tmp_path), endless(), Scripted(draw), concurrency=crew):
                await place.arrived(10)
            return len(list(tmp_path.iterdir()))

    assert (run(play()), len(made)) == (10, 10)
    assert len(run(collect(Chat(), TASKS[:2], concurrency=crew))) == 2


class Locked(Environment):
    async def run(self, episode):
        await episode.agent.act(user("hello"))
        episode.state["lock"] = Lock()


class Speaks:
    """A policy that cannot be sent."""

    def __init__(self, word):
        self.word, self.lock = word, Lock()

    async def complete(self, messages, tools=(), *, key=""):
        return await Scripted([self.word]).complete(messages)


def test_what_cannot_be_sent_is_said(shared):
    run, crew = shared
    (left,) = run(collect(Locked(), TASKS[:1], concurrency=crew))[0].rollouts
    assert left.stop_reason == "EnvironmentFailure"
    assert "what the episode left cannot be sent" in left.error
    assert left.trajectory.score is None
    with pytest.raises(UsageError, match=r"cannot be sent to workers \(.*lock.*RemoteSpec"):
        run(collect(Chat(), policy=Speaks("end"), concurrency=crew))
    with pytest.raises(WorkerFailure, match=r"^worker \d+ on .* cannot play it: ZeroDivisionError"):
        run(collect(Chat(), policy=RemoteSpec(divmod, 1, 0), concurrency=crew))
    speaks = RemoteSpec(Speaks, "end")
    assert run(collect(Chat(), policy=speaks, concurrency=crew)) == run(collect(Chat(), policy=speaks))


class Shell(Environment):
    async def run(self, episode):
        sandbox = await open_sandbox()
        try:
            result = await sandbox.run(["sh", "-c", f"echo {episode.task.id} > f; cat f; cat /proc/1/environ"])
        finally:
            await sandbox.close()
        episode.state["said"] = result.stdout


def test_sandboxes_open_in_workers(shared):
    run, crew = shared
    groups = run(collect(Shell(), TASKS[:4], concurrency=crew))
    said = [group.rollouts[0].state["said"].decode() for group in groups]
    assert [text.split("\n")[0] for text in said] == ["t0", "t1", "t2", "t3"]
    assert not any("RAY" in text for text in said)


@pytest.mark.proof("ray")
def test_a_node_that_goes_away_is_played_around_unless_it_was_the_last(cluster, shared, monkeypatch):
    run, crew = shared
    before = crew.restarted

    async def play():
        async with ray_backend(1, each=3, cpus=2) as alone, meeting() as (place, port):
            whole = asyncio.create_task(collect(Visit(port), concurrency=crew))
            lost = asyncio.create_task(collect(Visit(port), concurrency=alone))
            met = await place.arrived(13)
            (node,) = cluster.worker_nodes
            there = {pid: tasks for pid, tasks in met.items() if parent(pid) == raylet(node)}
            ours = {worker.pid for worker in crew.workers}
            await asyncio.to_thread(cluster.remove_node, node, allow_graceful=False)
            for pid in there:
                await asyncio.to_thread(wait_for_end, pid)
            place.open.set()
            groups = await whole
            monkeypatch.setattr(crews, "WORKER_RETURN_SECONDS", 1.0)
            with pytest.raises(WorkerFailure, match=r"^all 1 workers are lost and Ray has no place for another one"):
                await lost
            return groups, sum(len(tasks) for pid, tasks in there.items() if pid in ours)

    groups, lost = run(play())
    assert groups == run(collect(Chat()))
    assert crew.restarted - before == lost >= 5


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def raylet(node):
    return node.all_processes["raylet"][0].process.pid


SCRIPT = """
import asyncio, signal, sys
from test_ray import *

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored, and that is inherited

async def main():
    async with ray_backend(1, each=3) as crew:
        await collect(Visit(int(sys.argv[1])), concurrency=crew)

asyncio.run(main())
"""


def marked(mark):
    """Processes with the mark in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (place / "environ").read_bytes():
                found.append(int(place.name))
    return found


def test_ctrl_c_leaves_no_process_behind(tmp_path):
    mark = f"WANDER_MARK={tmp_path.name}-{os.getpid()}"
    env = {**os.environ, "WANDER_MARK": mark.partition("=")[2], "PYTHONPATH": os.pathsep.join(sys.path)}

    async def play():
        async with meeting() as (place, port):
            command = [sys.executable, "-c", SCRIPT, str(port)]
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env)
            await place.arrived(3)
            running = marked(mark)
            process.send_signal(signal.SIGINT)
            return await process.wait(), running

    code, running = asyncio.run(play())
    assert code == -signal.SIGINT
    assert len(running) > 4
    for pid in running:
        wait_for_end(pid)


def wait_for_end(pid):
    """Until the process is over; a minute at most."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(handle) as file:
        assert select.select([file], [], [], 60)[0], f"{pid} goes on"
