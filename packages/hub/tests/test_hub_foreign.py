"""Hubs, in and out: environments from elsewhere as packages, ours as packages and images, and the first index."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tarfile
from importlib.metadata import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from bars_hub import make_key
from wanderlust.cli.main import main
from wanderlust.environment import Environment
from wanderlust.errors import EnvironmentFailure, UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.engine import rollout
from wanderlust.tasks.registry import load_environment
from wanderlust.types import Task
from wanderlust_gymnasium.environment import GymnasiumText
from wanderlust_hub.add import add
from wanderlust_hub.added import open_added, read_added
from wanderlust_hub.export import EXTRAS, export, ready_made_draft
from wanderlust_hub.foreign import ForeignSource, foreign_source, hub_name, read_flat_yaml
from wanderlust_hub.index import Hub, version_folder
from wanderlust_hub.openenv_app import OpenEnvApp
from wanderlust_hub.package_draft import write_wheel
from wanderlust_hub.publishing import create_hub, publish
from wanderlust_hub.signing import fingerprint, public_key
from wanderlust_hub.unpack import unpack_wheel
from wanderlust_hub.wheel import read_wheel

TASK_TOML = 'schema_version = "1.4"\n[task]\nname = "ours/one"\n'
COUNTER = '''
import json


async def app(scope, receive, send):
    """Count to three: an OpenEnv application without OpenEnv."""
    if scope["type"] == "http":
        body = {"action": {"properties": {"number": {"type": "integer"}}, "required": ["number"]}}
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})
        return
    await receive()
    await send({"type": "websocket.accept"})
    count = 0
    while (event := await receive())["type"] == "websocket.receive":
        message = json.loads(event["text"])
        if message["type"] == "close":
            return
        if message["type"] == "step" and message["data"]["number"] == 666:
            data, kind = {"message": "no such number"}, "error"
        else:
            right = message["type"] == "step" and message["data"]["number"] == count + 1
            count += right
            data = {"observation": {"count": count}, "reward": float(right), "done": count == 3}
            kind = "observation"
        await send({"type": "websocket.send", "text": json.dumps({"type": kind, "data": data})})
'''


def run(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as done:
        main(list(words))
    return done.value.code


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a key, and folders of this user in it."""
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    make_key(tmp_path / "key")
    return tmp_path


def openenv_folder(place: Path, name: str = "counter") -> Path:
    (folder := place / name / "server").mkdir(parents=True)
    (folder / "app.py").write_text(COUNTER)
    (place / name / "openenv.yaml").write_text(f"spec_version: 1\nname: {name}\napp: server.app:app\nport: 8000\n")
    return place / name


def harbor_folder(place: Path, *names: str) -> Path:
    for name in names:
        for path, text in (
            ("task.toml", TASK_TOML.replace("one", name)),
            ("instruction.md", "Write 7 into /app/out.\n"),
            ("environment/Dockerfile", "FROM python:3.11-slim\nWORKDIR /app\n"),
            ("tests/test.sh", "grep -q 7 /app/out && echo 1 > /logs/verifier/reward.txt\n"),
        ):
            (place / name / path).parent.mkdir(parents=True, exist_ok=True)
            (place / name / path).write_text(text)
    return place


def played(env: Environment, task: Task, answers: list[str]) -> tuple[list[str], float | None, str]:
    done = asyncio.run(rollout(env, task, Scripted(answers), seed=3))
    score = done.trajectory.score
    return [one.content for one in done.trajectory.messages], score.reward if score else None, str(done.error)


def test_places_are_listed_without_making_anything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("hub", "search", "gymnasium:", "frozenlake", "--json") == 0
    names = [one["name"] for one in json.loads(capsys.readouterr().out)["environments"]]
    assert names == ["FrozenLake-v1", "FrozenLake8x8-v1"]
    assert run("hub", "info", "gymnasium:Taxi-v4", "--json") == 0
    assert json.loads(capsys.readouterr().out)["name"] == "taxi-v4"
    assert run("hub", "search", "textarena:", "no-such-game") == 1
    with pytest.raises(UsageError, match="did you mean"):
        ForeignSource(kind="gymnasium", place="").draft("Taxi-v44")
    assert foreign_source("https://example.org/hub") is None
    assert foreign_source("folder/hub") is None
    assert (hub_name("ALE/Pong-v5"), hub_name("2048-v0")) == ("ale-pong-v5", "env-2048-v0")


def test_equal_drafts_are_equal_wheels_that_can_be_read_and_unpacked(tmp_path: Path) -> None:
    draft = ForeignSource(kind="gymnasium", place="").draft("CliffWalking-v1")
    bodies = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        bodies.append(write_wheel(draft, tmp_path / name).read_bytes())
    assert bodies[0] == bodies[1]
    package = read_wheel(next((tmp_path / "a").glob("*.whl")))
    assert (package.name, package.environment, package.requires) == (
        draft.name,
        draft.name,
        ("wanderlust-gymnasium[gymnasium]",),
    )
    assert unpack_wheel(package.wheel, tmp_path / "out") == 5
    assert "GymnasiumText" in (tmp_path / "out/wrapped_cliffwalking_v1/__init__.py").read_text()


def test_a_world_without_a_text_view_is_shown_by_its_observations() -> None:
    env = GymnasiumText("Blackjack-v1")
    texts, reward, error = played(env, next(iter(env.tasks())), ["<action>0</action>"])
    assert (error, reward in (-1.0, 0.0, 1.0)) == ("None", True)
    assert len(json.loads(texts[1])) == 3
    assert played(GymnasiumText("MountainCarContinuous-v0"), Task(id="t", info={"seed": 0}), ["0"])[1] is None


def test_a_wrapped_world_is_added_unsigned_and_plays_isolated_as_in_this_process(place: Path) -> None:
    asked = []
    added = add("CliffWalking-v1", hub="gymnasium:", approve=lambda entry: asked.append(entry.name) or True)
    assert (asked, added.owner, added.by, added.entry.requires) == (
        ["cliffwalking-v1"],
        None,
        None,
        ("wanderlust-gymnasium[gymnasium]",),
    )
    assert read_added("cliffwalking-v1") == added
    here, there = GymnasiumText("CliffWalking-v1", turns=4), load_environment("cliffwalking-v1,turns=4")
    answers = [f"<action>{number}</action>" for number in (0, 1, 1, 2)]
    assert played(there, next(iter(there.tasks())), answers) == played(here, next(iter(here.tasks())), answers)
    with pytest.raises(UsageError, match="not approved"):
        add("Taxi-v4", hub="gymnasium:", approve=lambda entry: False)
    assert not (place / "XDG_DATA_HOME/wanderlust/environments/taxi-v4").exists()


def test_an_openenv_folder_plays_isolated_and_its_errors_are_failures(place: Path) -> None:
    openenv_folder(place)
    add("counter", hub=f"openenv:{place / 'counter'}", approve=lambda entry: True)
    env = open_added("counter")
    task = next(iter(env.tasks()))
    texts, reward, error = played(env, task, ['{"number": 1}', "two", '{"number": 2}', 'so {"number": 3}'])
    assert (reward, error, texts[1]) == (3.0, "None", '{"count": 0}')
    assert "That is no action" in texts[5]
    assert "no such number" in played(env, task, ['{"number": 666}'])[2]
    (place / "counter/server/app.py").write_text("app = None\n")
    add("counter", hub=f"openenv:{place / 'counter'}", approve=lambda entry: True)
    with pytest.raises((UsageError, EnvironmentFailure), match="no application"):
        open_added("counter")


@pytest.mark.proof("rewards")
def test_environments_from_elsewhere_are_published_when_they_pass_the_gate_isolated(place: Path) -> None:
    create_hub("hub", key=place / "key")
    entry = publish("gymnasium:FrozenLake-v1", hub="hub", key=place / "key")
    card = json.loads((place / "hub" / version_folder(entry.name, entry.version) / "card.json").read_bytes())
    assert (card["ok"], card["violations"]) == (True, [])
    added = add(entry.name, hub="hub", approve=lambda one: True)
    assert added.by == added.owner == fingerprint(public_key(place / "key"))

    openenv_folder(place)
    with pytest.raises(UsageError, match="the application ended its session"):  # an action without its number
        publish("openenv:counter", hub="hub", key=place / "key")
    assert [one.entry for one in Hub.open("hub").index.listings] == [entry]


def test_our_image_source_is_an_openenv_folder_with_the_same_scores(place: Path) -> None:
    files = {path.relative_to(place / "out").as_posix() for path in export("calculator", place / "out", form="openenv")}
    assert {"openenv.yaml", "Dockerfile", "server/app.py", "pyproject.toml"} <= files
    assert read_flat_yaml(place / "out/openenv.yaml")["app"] == "server.app:app"
    assert [one.name for one in ForeignSource(kind="openenv", place="out").names()] == ["wanderlust_calculator"]
    sys.modules.pop("server", None), sys.modules.pop("server.app", None)
    there, here = OpenEnvApp(str(place / "out"), name="calculator"), load_environment("calculator")
    sys.path.remove(str(place / "out"))
    tasks = [next(iter(env.tasks())) for env in (there, here)]
    for answer in ("nothing", str(tasks[1].answer)):
        rewards = [played(env, task, [answer])[1] for env, task in zip((there, here), tasks, strict=True)]
        assert rewards[0] == rewards[1]


def test_a_verifiers_package_is_wrapped_with_what_it_asks_for_and_none_of_it_is_run(place: Path) -> None:
    (folder := place / "digits").mkdir()
    (folder / "digit_sum.py").write_text("raise SystemExit('imported')\n")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "digit-sum"\nversion = "0.2.0"\ndescription = "Digits."\n'
        'dependencies = ["verifiers==0.3.1"]\n[tool.wanderlust.permissions]\nsecrets = ["EXAMPLE_KEY"]\n'
    )
    draft = ForeignSource(kind="verifiers", place="digits").draft()
    assert (draft.name, draft.version, draft.permissions.secrets) == ("digit-sum", "0.2.0", ("EXAMPLE_KEY",))
    assert draft.requires == ("wanderlust", "httpx2>=2,<3", "verifiers==0.3.1")
    (folder / "digit_sum.py").unlink()
    with pytest.raises(UsageError, match="no module digit_sum"):
        ForeignSource(kind="verifiers", place="digits").draft()


@pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="Python 3.11.4 unpacks archives safely")
def test_harbor_tasks_come_from_folders_and_from_git_at_their_commit(place: Path) -> None:
    harbor_folder(place / "tasks", "one", "two")
    draft = ForeignSource(kind="harbor", place="tasks").draft()
    assert {name.split("/")[1] for name in draft.files} == {"one", "two"}
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(place / "tasks")]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "tasks"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    task = {"path": "two", "git_url": f"file://{place}/tasks", "git_commit_id": commit}
    registry = place / "registry.json"
    registry.write_text(json.dumps([{"name": "Bench", "version": "2.0", "tasks": [task]}]))
    fetched = ForeignSource(kind="harbor", place=str(registry)).draft("Bench")
    assert (fetched.name, fetched.version) == ("bench", "2.0")
    assert {name: body for name, body in draft.files.items() if "/two/" in name} == fetched.files
    add("Bench", hub=f"harbor:{registry}", approve=lambda entry: True)
    assert [one.id for one in load_environment("bench").tasks()] == ["ours/two"]
    for bad, why in (
        ({"path": "../two"}, "leads out"),
        ({"git_commit_id": "main"}, "40 digits"),
        ({"git_url": "ext::sh -c touch"}, "no https"),
        ({"git_commit_id": "0" * 40}, "git failed"),
    ):
        registry.write_text(json.dumps([{"name": "Bench", "tasks": [{**task, **bad}]}]))
        with pytest.raises(UsageError, match=why) as refused:
            ForeignSource(kind="harbor", place=str(registry)).draft("Bench")
        assert "\n" not in str(refused.value)
    registry.write_text("[{}]")
    with pytest.raises(UsageError, match="no registry"):
        ForeignSource(kind="harbor", place=str(registry)).names()


def test_links_that_lead_out_of_a_folder_are_refused(place: Path) -> None:
    folder = openenv_folder(place)
    (folder / "server/secret.txt").symlink_to(place / "key")
    with pytest.raises(UsageError, match="leads out"):
        ForeignSource(kind="openenv", place=str(folder)).draft()


def test_an_exported_package_builds_and_names_its_environment(place: Path) -> None:
    export("wordle,words=50", place / "ours")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "dist")]
    subprocess.run(words, cwd=place / "ours", check=True, capture_output=True)
    package = read_wheel(next((place / "dist").glob("*.whl")))
    assert (package.name, package.environment) == ("wanderlust-wordle", "wanderlust-wordle")
    assert "words=50" in (place / "ours/wanderlust_wordle.py").read_text()
    for wrong in ("no-such-environment", "sums.py:Sums"):
        with pytest.raises(UsageError, match="no ready-made"):
            export(wrong, place / "other")
    with pytest.raises(UsageError, match="exists already"):
        export("wordle", place / "ours")
    with pytest.raises(UsageError, match="serves one"):
        export("kuhn", place / "kuhn", form="openenv")


def test_an_environment_of_a_package_needs_that_package_and_does_not_take_its_name() -> None:
    grids, arc = ready_made_draft("grids"), ready_made_draft("arc,folder=files")
    assert (grids.name, grids.requires) == ("wanderlust-grids-environment", ("wanderlust-grids",))
    assert [*grids.files] == ["wanderlust_grids_environment.py"]
    assert (arc.name, arc.requires) == ("wanderlust-arc", ("wanderlust-grids[arc]",))


@pytest.mark.parametrize("name", EXTRAS)
def test_an_extra_that_an_environment_needs_is_one_of_its_package(name: str) -> None:
    needed = Requirement(ready_made_draft(f"{name},env=calculator" if name == "learned-reward" else name).requires[0])
    assert needed.extras == {EXTRAS[name]}
    assert EXTRAS[name] in metadata(needed.name).get_all("Provides-Extra", [])
