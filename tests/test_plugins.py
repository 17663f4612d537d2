"""Entry points of installed packages: names without imports, and one line that names the package behind a fault."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from packages import install
from wanderlust.algorithms import load_preset
from wanderlust.cli.main import main
from wanderlust.environments.calculator import Calculator
from wanderlust.errors import UsageError
from wanderlust.plugins import declared, load
from wanderlust.tasks.curriculum.uniform import resolve_curriculum
from wanderlust.tasks.registry import installed_environments
from wanderlust.training.config import TrainConfig

OURS = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]["entry-points"]
PRESETS = "wanderlust.presets"


@pytest.mark.parametrize("group", OURS)
def test_what_the_project_declares_is_installed_and_can_be_loaded(group):
    points = declared(group)
    assert {name: points[name].value for name in OURS[group]} == OURS[group]
    if group != "wanderlust.environments":  # some of them need extras; `test_conformance` makes all others
        assert all(load(points[name]) is not None for name in OURS[group])


def test_names_are_listed_without_an_import(tmp_path, monkeypatch):
    points = {PRESETS: {"mine": "listed_only:MINE"}}
    install(tmp_path, monkeypatch, name="listed-only", points=points, code="raise RuntimeError('imported')")
    assert "mine" in declared(PRESETS)
    assert "listed_only" not in sys.modules


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise RuntimeError('no luck today')", "RuntimeError: no luck today"),
        ("import no_such_package", "this needs the package 'no_such_package'"),
        ("OTHER = 1", "has no 'MINE'"),
    ],
)
def test_a_package_that_fails_to_load_is_named(tmp_path, monkeypatch, code, why):
    name = f"failing-{len(code)}"
    point = f"{name.replace('-', '_')}:MINE"
    install(tmp_path, monkeypatch, name=name, points={PRESETS: {"mine": point}}, code=code)
    with pytest.raises(UsageError, match=rf"^'mine' in .*, of the package {name} 0.1, .*{why}") as failed:
        load_preset("mine")
    assert "\n" not in str(failed.value)


def test_two_packages_with_one_name_are_named(tmp_path, monkeypatch):
    for name in ("left-one", "right-one"):
        point = f"{name.replace('-', '_')}:MINE"
        install(tmp_path, monkeypatch, name=name, points={PRESETS: {"mine": point, f"of-{name}": point}})
    with pytest.raises(UsageError, match="both declare 'mine' in") as clash:
        declared(PRESETS)
    assert {"left-one 0.1", "right-one 0.1"} <= {*re.findall(r"\S+ 0\.1", str(clash.value))}
    assert "calculator" in installed_environments()


PRESET = """
from wanderlust.training.config import TrainConfig

MINE = TrainConfig(env="calculator", policy="fresh", steps=3)


def several(policy, given, *, out, workers, json):
    print(policy, given["steps"], "lr" in given, out, workers, json)
"""


def test_presets_of_a_package_are_offered(tmp_path, monkeypatch, capsys):
    points = {PRESETS: {"my-sums": "my_presets:MINE", "my-runs": "my_presets:several"}}
    install(tmp_path, monkeypatch, name="my-presets", points=points, code=PRESET)
    preset = load_preset("my-sums")
    assert isinstance(preset, TrainConfig)
    assert preset.steps == 3
    with pytest.raises(UsageError, match=r"^there is no preset 'my-sumz'; did you mean my-sums"):
        load_preset("my-sumz")
    with pytest.raises(SystemExit) as ended:
        main(["train", "--preset", "my-runs", "--policy", "p", "--steps", "2", "--out", "here", "--workers", "1"])
    assert not ended.value.code
    assert capsys.readouterr().out == "p 2 False here 1 False\n"
    with pytest.raises(SystemExit) as ended:
        main(["train", "calculator", "--preset", "my-runs"])
    assert ended.value.code == 2
    assert "--preset my-runs takes neither an environment" in capsys.readouterr().err


CURRICULUM = """
from dataclasses import dataclass

from wanderlust.tasks.curriculum import NamedCurriculum, TaskStream


@dataclass
class Options:
    of: int = 2


def make(env, seed, settings):
    return TaskStream(lambda: [task for task, _ in zip(env.tasks(), range(settings.of))])


FIRST = NamedCurriculum(make=make, settings=Options)
NONE = make
"""


def test_curricula_of_a_package_are_taken_by_name(tmp_path, monkeypatch):
    points = {"wanderlust.curricula": {"first": "my_curricula:FIRST", "none": "my_curricula:NONE"}}
    install(tmp_path, monkeypatch, name="my-curricula", points=points, code=CURRICULUM)
    env = Calculator()
    for text, number in (("first", 2), ("first,of=3", 3)):
        assert len({task.id for task in resolve_curriculum(text, env, seed=0).next(0, 9)}) == number
    for text, why in (("first,off=3", "no setting 'off'"), ("none", "is no NamedCurriculum"), ("second", "uniform")):
        with pytest.raises(UsageError, match=why):
            resolve_curriculum(text, env, seed=0)


EXPORT = """
def write_lengths(rollouts, folder, *, model):
    folder.mkdir()
    sizes = [len(one.trajectory.turns) for one in rollouts]
    (folder / "lengths.txt").write_text(f"{model} {sizes}")
    return len(sizes)
"""


def test_formats_of_a_package_are_exported(tmp_path, monkeypatch, capsys):
    points = {"wanderlust.exports": {"lengths": "my_formats:write_lengths"}}
    install(tmp_path, monkeypatch, name="my-formats", points=points, code=EXPORT)
    run = tmp_path / "run"

    def wander(*words: str) -> object:
        with pytest.raises(SystemExit) as ended:
            main([*words])
        return ended.value.code

    assert not wander("eval", "calculator", "--policy", "oracle", "-n", "2", "--out", str(run))
    assert not wander("export", str(run), "--to", "lengths")
    assert (run / "export-lengths/lengths.txt").read_text().startswith("oracle [")
    capsys.readouterr()
    assert wander("export", str(run), "--to", "lenghts") == 2
    assert "there is no format 'lenghts'; did you mean lengths" in capsys.readouterr().err
