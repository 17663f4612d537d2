"""Environments that are added from a hub: what is refused, what is asked for, and a process that plays the same."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from bars_hub import attack, attacked_places, differing, make_key, play_both, source
from hub_attacks import CODES, MODULE, WHEELS, Wheel, publish_unchecked
from wanderlust.cli.main import main
from wanderlust.environment import Environment, Limits
from wanderlust.errors import EnvironmentFailure, SandboxFailure, UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import play_groups, rollout
from wanderlust.store.provenance import provenance_of
from wanderlust.store.records import pack
from wanderlust.tasks.registry import (
    installed_environments,
    load_environment,
    make_environment,
    resolve_object,
)
from wanderlust.tasks.selection import iter_tasks
from wanderlust.tools.sandbox.base import NotIsolatedWarning
from wanderlust.types import Group, Message, Status, ToolCall, assistant
from wanderlust_hub.add import add
from wanderlust_hub.added import open_added, read_added
from wanderlust_hub.added_names import added_folder
from wanderlust_hub.entry import HubError, canonical
from wanderlust_hub.isolated import IsolatedEnvironment
from wanderlust_hub.permissions import Permissions, parse_permissions
from wanderlust_hub.publishing import create_hub
from wanderlust_hub.requirements import library_paths, unmet_requirements
from wanderlust_hub.wheel import build_wheel, read_wheel

SMALL_CODES = [
    "reads a file in the home folder",
    "reads the parent's variables",
    "connects to this machine",
    "connects to an abstract socket",
    "writes outside",
    "changes wanderlust",
    "kills everybody",
    "starts a process that stays",
    "prints without end",
    "announces a huge frame",
    "sends frames nobody asked for",
    "ends at once",
    "ends in an episode",
]
"""The bars try all of them; here are those of different kinds."""
EVERYTHING = '''
from collections.abc import Sequence
from wanderlust import Environment, Limits, Rubric, Scripted, Task, user
from wanderlust.environment import Revision
from wanderlust.types import Score


async def longest(completion):
    return float(len(completion))


class Ranks:
    compares = True

    async def score(self, rollout, trajectory):
        return Score(reward=float(len(trajectory.turns)) + len(rollout.state["kept"]))

    async def compare(self, group, seat):
        totals = [len(one.trajectories[0].messages[-1].content) for one in group.rollouts]
        return [Score(reward=float(total == max(totals)), notes={"of": str(len(totals))}) for total in totals]


class Everything(Environment):
    """Two seats, contexts of one's own, a way back, rewards of every kind, and siblings that are compared."""

    seats = ("first", "second")
    limits = Limits(max_turns=6)
    rubric = Ranks()
    revision = Revision(improve="Again.", diverge="Otherwise.")
    chance_bar = 0.5
    group_by = "kind"

    def tasks(self, split="train"):
        made = lambda n: Task(id=f"{split}-{n}", prompt=(user(f"{n}"),), answer=(n, {n}), info={"kind": n % 2})
        return map(made, range(90))

    async def run(self, episode):
        first, second = episode.agents["first"], episode.agents["second"]
        episode.state["kept"] = (episode.task.answer[0],) * 2
        said = await first.act(*episode.task.prompt, user(str(episode.rng("x").random())))
        episode.reward("chars", len(said.content), "first")
        await first.act(user("and then?"))
        first.go_back(0)
        await first.act(user("or instead?"))
        await second.act_with_context([user("alone"), said])
        await second.act_with_context([user("elsewhere")])
        episode.reward("odd", True, "second")
        if episode.task.answer[0] == 3:
            raise ValueError("three")
        while episode.task.answer[0] == 4:
            await first.act(user("more"))


class Broken(Everything):
    rubric = None

    async def run(self, episode):
        episode.reward("nothing", float("nan"), "first")
        await episode.agents["first"].act(user("?"))
'''


def run(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as done:
        main(list(words))
    return done.value.code


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a hub of one harmless package, and folders of this user in it."""
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    create_hub("hub", key=make_key(tmp_path / "key"))
    publish_unchecked(Wheel(), hub=Path("hub"), key=Path("key"))
    return tmp_path


@pytest.fixture
def opened() -> Iterator[Callable[..., IsolatedEnvironment]]:
    """Opens isolated environments of a folder, and closes them."""
    made = list[IsolatedEnvironment]()

    def open_one(folder: Path, target: str, **more: object) -> IsolatedEnvironment:
        made.append(IsolatedEnvironment(replace(source(folder, target), **more)))
        return made[-1]

    yield open_one
    for one in made:
        one.close()


def files() -> list[Path]:
    return [path for path in added_folder().rglob("*") if path.is_file() and path.name != ".lock"]


def play(env: Environment, *, tasks: int = 6, size: int = 2, chatty: str = "") -> list[Group]:
    policy = Scripted(lambda messages, rng: chatty + "x" * rng.randrange(9))
    return asyncio.run(play_groups(env, islice(iter_tasks(env, "eval"), tasks), policy, group_size=size))


def test_the_command_asks_adds_and_plays(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("hub", "add", "hub", "harmless") == 2
    assert "there is no terminal" in capsys.readouterr().err
    assert files() == []
    assert run("hub", "add", "hub", "harmless==1.0.0", "--yes") == 0
    assert "asks for nothing: no network, no files, no GPU, no secrets" in capsys.readouterr().err
    assert installed_environments()["harmless"] == "wanderlust_hub.added:harmless"
    assert resolve_object("wanderlust_hub.added:harmless").__doc__ == "Harmless."
    assert run("eval", "harmless", "--policy", "oracle", "--json") == 0
    assert '"reward": 1.0' in capsys.readouterr().out
    assert run("eval", "harmless,size=3", "--policy", "oracle") == 1
    assert "takes no arguments" in capsys.readouterr().err


def test_what_is_not_approved_leaves_nothing(place: Path) -> None:
    with pytest.raises(UsageError, match="was not approved"):
        add("harmless", hub="hub", approve=lambda entry: False)
    (added_folder() / ".new-left").mkdir()
    assert "harmless" not in installed_environments()
    added = add("harmless", hub="hub", approve=lambda entry: not entry.permissions.any)
    assert read_added("harmless") == added
    assert not list(added_folder().glob(".new-*"))
    shutil.rmtree(added_folder() / "harmless")
    with pytest.raises(UsageError, match="no environment 'harmless'"):
        load_environment("harmless")
    with pytest.raises(UsageError, match="was not added from a hub"):
        open_added("../harmless")


@pytest.mark.parametrize("name", ["code.whl", "data.jsonl", "card.json", "index.json", "log.jsonl"])
def test_one_changed_byte_is_not_added(place: Path, name: str) -> None:
    publish_unchecked(
        Wheel(metadata=WHEELS["other version inside"].metadata, entry={"version": "9.0.0"}),
        hub=Path("hub"),
        key=Path("key"),
    )
    version = "environments/harmless/9.0.0"
    file = Path("hub", name if name in ("index.json", "log.jsonl") else f"{version}/{name}")
    whole, rng = file.read_bytes() or b"", Random(name)
    for _ in range(10):
        at = rng.randrange(len(whole) + 1)
        file.write_bytes(
            whole[:at] + bytes([rng.randrange(1, 256) ^ (whole[at] if at < len(whole) else 0)]) + whole[at + 1 :]
        )
        with pytest.raises((HubError, UsageError)):
            add("harmless", hub="hub", approve=lambda entry: True)
    assert files() == []
    file.write_bytes(whole)
    assert add("harmless", hub="hub", approve=lambda entry: True).entry.version == "9.0.0"


@pytest.mark.parametrize("name", WHEELS)
def test_harmful_wheels_are_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    create_hub(tmp_path / "hub", key=make_key(tmp_path / "key"))
    entry = publish_unchecked(WHEELS[name], hub=tmp_path / "hub", key=tmp_path / "key")
    with pytest.raises((HubError, UsageError)) as refused:
        add(entry.name, hub=tmp_path / "hub", approve=lambda entry: True)
    assert len(str(refused.value).splitlines()) == 1
    assert files() == []
    assert not list(tmp_path.rglob("escaped*"))


@pytest.mark.parametrize("name", SMALL_CODES)
def test_harmful_code_gets_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "places").mkdir()
    with attacked_places(tmp_path / "places") as places:
        assert not attack(CODES[name], places, tmp_path / "attack")


@pytest.mark.parametrize("name", ["calculator", "wordle", "titles"])
def test_ready_made_environments_are_the_same_to_the_byte(name: str) -> None:
    here, there = play_both(name)
    assert sum(len(group.rollouts) for group in here) >= 40
    assert differing(here, there) == 0


def test_seats_ways_back_limits_failures_and_comparisons_are_the_same(tmp_path: Path, opened) -> None:
    (tmp_path / "everything.py").write_text(EVERYTHING)
    inside = make_environment(f"{tmp_path / 'everything.py'}:Everything")
    env = opened(tmp_path, "everything:Everything")
    here, there = play(inside), play(env)
    assert differing(here, there) == 0
    other = opened(tmp_path, "everything:Everything", digest="1" * 64)
    digests = {provenance_of(one, tasks=()).digest for one in (env, env.with_frozen_seats({}), other)}
    assert len(digests) == 2
    assert {one.status for group in here for one in group.rollouts} == {Status.DONE, Status.ERROR, Status.TRUNCATED}
    assert {score.notes["of"] for one in there[0].rollouts if (score := one.trajectories[0].score)} == {"2"}
    assert (env.seats, env.chance_bar, env.group_by, env.revision) == (
        ("first", "second"),
        0.5,
        "kind",
        inside.revision,
    )
    assert len(list(env.tasks("train"))) == len(list(iter_tasks(env, "eval"))) == 90
    broken = opened(tmp_path, "everything:Broken")
    nothing = asyncio.run(rollout(broken, next(iter_tasks(broken, "eval")), Scripted(lambda messages, rng: "\udc80")))
    assert (nothing.status, nothing.error) == (Status.ERROR, "nothing is nan, which is no finite number")


def test_loops_threads_and_stored_rollouts(tmp_path: Path, opened) -> None:
    (tmp_path / "everything.py").write_text(EVERYTHING)
    env = opened(tmp_path, "everything:Everything")
    groups, again = list[list[Group]](), play(env)
    threads = [threading.Thread(target=lambda: groups.append(play(env))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [differing(again, one) for one in groups] == [0, 0]
    kept = again[0].rollouts[0]
    (stored,) = asyncio.run(env.judge([replace(kept, state={"kept": [1]})], "first", compare=False))
    assert stored.reward == len(kept.trajectories[0].turns) + 1


def test_an_episode_that_hangs_is_cut_and_the_process_replaced(tmp_path: Path, opened, monkeypatch) -> None:
    monkeypatch.setattr("wanderlust_hub.channel.CANCEL_SECONDS", 0.5)
    text = MODULE.replace(
        "        said = await", "        while episode.task.answer == '0':\n            pass\n        said = await"
    )
    (tmp_path / "harmless.py").write_text(text)
    env = opened(tmp_path, "harmless:Harmless")
    first, second = iter_tasks(env, "eval")
    cut = asyncio.run(rollout(env, first, Scripted(lambda messages, rng: "1"), limits=Limits(timeout=1)))
    assert (cut.status, cut.stop_reason) == (Status.TRUNCATED, "timeout")
    asyncio.run(asyncio.sleep(0.6))
    done = asyncio.run(rollout(env, second, Scripted(lambda messages, rng: "1")))
    assert (done.status, done.stop_reason, done.error) == (Status.DONE, "done", None)
    assert done.trajectories[0].score is not None
    assert done.trajectories[0].score.reward == 1.0


CLOSES = """
import asyncio
from wanderlust import Environment, Rubric, Task, ToolEnvironment, toolset, user


def closed(state):
    return float(state["closed"])


@toolset
async def shop(episode):
    async def hang() -> str:
        \"\"\"Never come back.\"\"\"
        await asyncio.Event().wait()

    yield [hang]
    episode.state["closed"] = 1


class Closes(ToolEnvironment):
    def __init__(self):
        super().__init__([Task(id="t", prompt=(user("Go on."),))], tools=[shop], rubric=Rubric(closed))

    def respond(self, messages, episode):
        return "on"
"""


@pytest.mark.parametrize(
    ("answer", "limits", "reason"),
    [
        (assistant("on"), Limits(max_turns=2), "max_turns"),
        (assistant("", ToolCall(id="1", name="hang", arguments="{}")), Limits(timeout=1.0), "timeout"),
    ],
)
def test_what_a_limit_cuts_is_closed_over_there_and_judged(
    tmp_path: Path, opened, answer: Message, limits: Limits, reason: str
) -> None:
    (tmp_path / "closes.py").write_text(CLOSES)
    env = opened(tmp_path, "closes:Closes")
    played = asyncio.run(rollout(env, next(iter_tasks(env, "eval")), Scripted(lambda *_: answer), limits=limits))
    assert (played.error, played.status, played.stop_reason) == (None, Status.TRUNCATED, reason)
    assert played.trajectory.score.reward == 1.0


def test_a_process_ends_with_its_environment(tmp_path: Path) -> None:
    (tmp_path / "harmless.py").write_text(MODULE)
    env = IsolatedEnvironment(source(tmp_path, "harmless:Harmless"))
    (channel,) = env.pool.channels
    pid = channel.launched.child.pid
    assert Path(f"/proc/{pid}").exists()
    env.close()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(UsageError, match="a comma cannot be handed on"):
        IsolatedEnvironment(source(tmp_path, "harmless:Harmless"), settings={"words": [1, 2]})
    (tmp_path / "harmless.py").write_text("import nothing_like_it")
    with pytest.raises((EnvironmentFailure, UsageError), match="nothing_like_it"):
        IsolatedEnvironment(source(tmp_path, "harmless:Harmless"))


def test_permissions_go_from_the_project_into_the_wheel_and_the_entry(tmp_path: Path) -> None:
    assert run_in(tmp_path, "new", "sums") == 0
    project = tmp_path / "sums" / "pyproject.toml"
    project.write_text(project.read_text() + '\n[tool.wanderlust.permissions]\nsecrets = ["SUMS_KEY"]\n')
    (tmp_path / "out").mkdir()
    wheel = read_wheel(build_wheel(tmp_path / "sums", tmp_path / "out"))
    assert wheel.permissions == Permissions(secrets=("SUMS_KEY",))
    with zipfile.ZipFile(wheel.wheel) as archive:
        assert archive.testzip() is None
        assert b"wanderlust.json,sha256=" in archive.read("sums-0.1.0.dist-info/RECORD")
    project.write_text(project.read_text().replace("SUMS_KEY", "PATH"))
    with pytest.raises(UsageError, match="'PATH' is no name of a secret"):
        build_wheel(tmp_path / "sums", tmp_path / "out")


def run_in(folder: Path, *words: str) -> int | str | None:
    before = Path.cwd()
    os.chdir(folder)
    try:
        return run(*words)
    finally:
        os.chdir(before)


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (b'{"disk": true}', "there is no permission 'disk'"),
        (b'{"network": ["example.org"]}', "'host:port'"),
        (b'{"files": ["relative/path"]}', "no absolute path"),
        (b'{"files": ["/proc/self/environ"]}', "a folder of the system"),
        (b'{"files": ["/home/me/.netrc"]}', "is hidden"),
        (b'{"secrets": ["LD_AUDIT"]}', "no name of a secret"),
        (b'{"network": 3}', "cannot be read"),
    ],
)
def test_odd_permissions_are_refused(body: bytes, wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        parse_permissions(body, where="x")
    assert parse_permissions(canonical(Permissions()), where="x") == Permissions()


def test_what_was_approved_is_given_and_nothing_else(tmp_path: Path, opened, monkeypatch) -> None:
    text = """
        with open(PLACES['file']) as file, socket.create_connection(('127.0.0.1', PLACES['proxy'])) as proxy:
            read = file.read()
        return read
    """
    given = tmp_path / "given"
    given.write_text("of a file")
    monkeypatch.setenv("GIVEN_KEY", "of a secret")
    monkeypatch.setenv("OTHER_KEY", "of another")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        body = f"""
        got = [os.environ.get('GIVEN_KEY'), os.environ.get('OTHER_KEY')]
        proxy = os.environ['http_proxy'].removeprefix('http://').split(':')
        for port in ({port}, {port} - 1):
            s = socket.create_connection((proxy[0], int(proxy[1])), 3)
            s.sendall(f'CONNECT 127.0.0.1:{{port}} HTTP/1.1\\r\\n\\r\\n'.encode())
            got.append(s.recv(100).split()[1].decode())
        return got
        """
        folder = tmp_path / "package"
        folder.mkdir()
        (folder / "harmless.py").write_text(replace(CODES["reads a variable"], body=body).module())
        (folder / "places.json").write_text("{}")
        asked = Permissions(network=(f"127.0.0.1:{port}",), secrets=("GIVEN_KEY",))
        env = opened(folder, "harmless:Harmless", permissions=asked)
        task = next(iter_tasks(env, "eval"))
        played = asyncio.run(rollout(env, task, Scripted(lambda messages, rng: "0")))
    told = played.trajectories[0].turns[0].observation[0].content
    assert told == "['of a secret', None, '200', '403']", text
    monkeypatch.delenv("GIVEN_KEY")
    with pytest.raises(UsageError, match="needs the variable GIVEN_KEY"):
        IsolatedEnvironment(replace(source(folder, "harmless:Harmless"), permissions=asked))


def test_without_a_sandbox_it_refuses_or_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "harmless.py").write_text(MODULE)
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in [*Path("/usr/bin").iterdir(), *Path("/usr/sbin").iterdir()]:
        if tool.name != "bwrap" and not (tools / tool.name).is_symlink():
            (tools / tool.name).symlink_to(tool)
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(SandboxFailure, match=r"bwrap.* --unsandboxed"):
        IsolatedEnvironment(source(tmp_path, "harmless:Harmless"))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        env = IsolatedEnvironment(replace(source(tmp_path, "harmless:Harmless"), isolation="preferred"))
    assert [one.category for one in warned] == [NotIsolatedWarning]
    assert sum(group.rewards[0] for group in play(env, tasks=2)) == 0.0
    env.close()


def test_requirements_are_compared_without_importing() -> None:
    assert unmet_requirements(["msgspec", "wanderlust", "nothing-here; python_version < '3'"]) == []
    (other,) = unmet_requirements(["msgspec>=900"])
    assert other.startswith("msgspec>=900 (here: 0.")
    assert unmet_requirements([], requires_python=">=9")[0].startswith("Python >=9 (here: 3.")
    assert unmet_requirements(["nothing-here"]) == ["nothing-here (not installed)"]
    with pytest.raises(UsageError, match="cannot be read"):
        unmet_requirements(["--index-url x"])
    names = {path.name for path in library_paths(["numpy"])}
    assert {"wanderlust", "msgspec", "numpy"} <= names
    assert not names & {"torch", "pip", "pytest"}


def test_requirements_are_fetched_when_they_are_asked_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile("needed_thing-1.0-py3-none-any.whl", "w") as wheel:
        info = "needed_thing-1.0.dist-info"
        wheel.writestr("needed_thing.py", "VALUE = 7\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: needed-thing\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    metadata = WHEELS["other version inside"].metadata + "Requires-Dist: needed-thing\n"
    needy = Wheel(metadata=metadata, entry={"version": "9.0.0", "requires": ("needed-thing",)})
    needy = replace(needy, files=[("more.py", b"import needed_thing")])
    publish_unchecked(needy, hub=Path("hub"), key=Path("key"))
    with pytest.raises(UsageError, match=r"needs needed-thing \(not installed\): install that, or let --dependencies"):
        add("harmless", hub="hub", approve=lambda entry: True)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UsageError, match="needed-thing cannot be fetched"):
        add("harmless", hub="hub", approve=lambda entry: True, dependencies=True)
    assert files() == []
    monkeypatch.setenv("PIP_FIND_LINKS", str(place))
    add("harmless", hub="hub", approve=lambda entry: True, dependencies=True)
    assert (added_folder() / "harmless/libraries/needed_thing.py").is_file()
    env = load_environment("harmless")
    assert isinstance(env, IsolatedEnvironment)
    assert pack(play(env, tasks=1)[0].rollouts[0])
    env.close()
