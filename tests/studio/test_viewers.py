"""A viewer of another package: the studio lists, shows, exports and plays what it knows nothing of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from packages import install
from studios import Client, served
from wanderlust import rollout
from wanderlust.errors import UsageError
from wanderlust.policies.scripted import Scripted
from wanderlust.runner.progress import NullLogger
from wanderlust.store.run_folder import CONFIG_FILE, EVALUATION_RECIPE, EVALUATION_STAGE, STORE_FILE
from wanderlust.store.store import RunStore
from wanderlust.studio.application import make_application
from wanderlust.studio.static_export import export_site
from wanderlust.studio.viewers import installed_viewers
from wanderlust.tasks.registry import load_environment
from wanderlust.types import Group

GROUP = "wanderlust.viewers"
PAGE = '<!doctype html><base href="/"><title>page</title>'
DICE = '''
from dataclasses import dataclass, replace
from starlette.responses import JSONResponse
from starlette.routing import Route

from wanderlust import Environment, Task
from wanderlust.errors import UsageError
from wanderlust.types import user


class Table:
    """What lies on it."""

    def __init__(self):
        self.faces = []


@dataclass
class Throw:
    table: Table
    name: str = "throw"
    description: str = "Throw the die."
    schema = {"type": "object", "properties": {}}

    async def __call__(self, **arguments):
        self.table.faces.append(len(self.table.faces) + 1)
        return "thrown"


class Dice(Environment):
    """Throw twice."""

    def tasks(self, split="train"):
        return [Task(id="dice-1", info={"secret": "loaded"})]

    async def run(self, episode):
        table = Table()
        tools = [Throw(table)]
        for _ in range(2):
            answer = await episode.agent.act(user("Throw."), tools=tools)
            for call in answer.tool_calls:
                await tools[0]()
        episode.state["faces"] = table.faces


class DiceViewer:
    part = "dice"

    def shows(self, rollout):
        return "faces" in rollout.state

    def view(self, shown):
        return {"faces": shown.rollout.state["faces"], "env": shown.env, "id": shown.id, "run": shown.folder.name}

    def exported(self, shown):
        return {"all": shown.rollout.state["faces"]}

    def playable(self, kind):
        return {"dice": kind is Dice}

    def live(self, tools):
        return next((tool.table for tool in tools if isinstance(tool, Throw)), None)

    def offer(self):
        return {"stakes": "none"}

    def hides_info(self, env):
        return isinstance(env, Dice)

    def prepare(self, setting, body, folder):
        if body.get("stakes"):
            raise UsageError("nobody plays for money")
        return replace(setting, labels={"agent": "thrower"})

    def routes(self):
        return [Route("/api/dice/rules", lambda request: JSONResponse({"sides": 6}))]


class Broken:
    def __init__(self):
        raise RuntimeError("no glass")


class Nameless:
    part = 3
'''
SUMS = """
class Sums:
    part = "dice"

    def shows(self, rollout):
        return "faces" not in rollout.state

    def view(self, shown):
        return {"sum": shown.rollout.task.id}
"""
POINTS = {GROUP: {"dice": "dice_table:DiceViewer"}, "wanderlust.environments": {"dice": "dice_table:Dice"}}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of the new environment and of another one, beside the package."""
    install(tmp_path / "site", monkeypatch, name="dice-table", points=POINTS, code=DICE)
    runs = tmp_path / "runs"
    for name in ("dice", "calculator"):
        env = load_environment(name)
        task = next(iter(env.tasks("eval")))
        played = asyncio.run(rollout(env, task, Scripted(["I throw."] * 9)))
        folder = runs / name
        folder.mkdir(parents=True)
        (folder / CONFIG_FILE).write_text(json.dumps({"recipe": EVALUATION_RECIPE, "config": {"env": name}}))
        with RunStore.create(folder / STORE_FILE) as store:
            store.add([Group(task=task, rollouts=[played], index=0)], stage=EVALUATION_STAGE, step=0, env=name)
    return runs


@pytest.fixture
def studio(root: Path, tmp_path: Path) -> Iterator[Client]:
    with served(root, plays_folder=tmp_path / "plays") as client:
        yield client


def test_a_rollout_is_shown_by_the_viewer_that_says_so(studio: Client) -> None:
    assert studio.said("/api/runs/dice/rollouts/1")["dice"] is True
    assert studio.said("/api/runs/calculator/rollouts/1")["dice"] is False
    group = studio.said("/api/runs/dice/groups/eval/0/0")
    assert [one["dice"] for one in group["rollouts"]] == [True]
    view = studio.said("/api/runs/dice/rollouts/1/dice")
    assert view == {"faces": [], "env": "dice", "id": 1, "run": "dice"}
    assert studio.said("/api/runs/calculator/rollouts/1/dice") == {"error": "KeyError: 'faces'", "status": 409}
    assert studio.said("/api/runs/dice/rollouts/2/dice")["status"] == 404
    assert "no viewer of the part 'cards'" in studio.said("/api/runs/dice/rollouts/1/cards")["error"]
    assert studio.said("/api/dice/rules") == {"sides": 6}


def test_a_game_is_offered_prepared_and_watched(studio: Client) -> None:
    offered = studio.said("/api/play")
    assert offered["stakes"] == "none"
    assert {one["name"]: one["dice"] for one in offered["environments"]}["dice"] is True
    assert {one["dice"] for one in offered["environments"] if one["name"] != "dice"} == {False}
    assert studio.said("/api/play/tasks?env=dice&split=train")["tasks"][0]["begins"] == ""
    assert "for money" in studio.said("/api/play", {"env": "dice", "stakes": "high"})["error"]
    game = studio.said("/api/play", {"env": "dice"})
    assert (game["dice"], game["labels"]) == (True, {"agent": "thrower"})
    for _ in range(2):
        game = studio.said(f"/api/play/{game['id']}/act", {"call": {"name": "throw", "arguments": {}}})
    assert (game["over"], game["state"]) == (True, {})  # the viewer shows how it ended
    view = studio.said(f"/api/runs/{game['stored']['key']}/rollouts/{game['stored']['id']}/dice")
    assert view["faces"] == [1, 2]
    other = studio.said("/api/play", {"env": "calculator"})
    assert (other["dice"], other["labels"]) == (False, {"agent": "thrower"})


def test_a_static_export_has_what_the_viewer_gives(root: Path, tmp_path: Path) -> None:
    (page := tmp_path / "page").mkdir()
    (page / "index.html").write_text(PAGE)
    export_site([root], tmp_path / "out", page=page, progress=NullLogger())
    written = {file.parts[-3]: json.loads(file.read_text()) for file in (tmp_path / "out").rglob("*.dice.json")}
    assert written == {"dice": {"all": []}}


def test_two_viewers_share_a_part_and_each_shows_its_own(root, tmp_path, monkeypatch):
    install(tmp_path / "more", monkeypatch, name="sum-table", points={GROUP: {"sums": "sum_table:Sums"}}, code=SUMS)
    with served(root) as studio:
        assert studio.said("/api/runs/dice/rollouts/1/dice")["faces"] == []
        assert "sum" in studio.said("/api/runs/calculator/rollouts/1/dice")
        assert studio.said("/api/runs/calculator/rollouts/1")["dice"] is True


@pytest.mark.parametrize(
    ("name", "why"),
    [("Broken", "RuntimeError: no glass"), ("Nameless", "its `part` is no text"), ("Gone", "no 'Gone'")],
)
def test_a_broken_viewer_is_left_out_in_one_line_that_names_its_package(root, tmp_path, monkeypatch, name, why):
    point = {GROUP: {"bad": f"dice_table:{name}"}}
    install(tmp_path / "more", monkeypatch, name="bad-table", points=point)
    with pytest.warns(UserWarning, match=rf"^a viewer is left out: .*of the package bad-table 0\.1, .*{why}[^\n]*$"):
        viewers = installed_viewers()
    assert [one.part for one in viewers] == ["dice", "drafts", "grid", "world"]


def test_two_packages_with_one_name_stop_the_studio(root, tmp_path, monkeypatch):
    install(tmp_path / "more", monkeypatch, name="sum-table", points={GROUP: {"dice": "sum_table:Sums"}}, code=SUMS)
    with pytest.raises(UsageError, match="both declare 'dice'"):
        make_application([root], token="t")
