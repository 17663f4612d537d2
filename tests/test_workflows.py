"""The forge's workflows and the hooks before a commit run the commands that everybody runs."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def load(path: Path) -> dict:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # so that `on` stays a word


def commands(workflow: dict, job: str) -> list[str]:
    return [step["run"] for step in workflow["jobs"][job]["steps"] if "run" in step]


def make_targets() -> dict[str, str]:
    """The recipe of every target, without the variables."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(BIN)", ".venv/bin")
    return dict(re.findall(r"^([a-z-]+):[^\n=]*\n((?:\t.*\n?)*)", text, re.M))


def least_node() -> str:
    """The least Node that web/package.json takes."""
    return re.search(r'"node": ">=([\d.]+)"', (ROOT / "web/package.json").read_text(encoding="utf-8"))[1]


def test_ci_runs_the_script_of_ci_and_nothing_else():
    ran = commands(load(ROOT / ".github/workflows/ci.yml"), "ci")
    assert [line for line in ran if not line.startswith("git config ")] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_ci_takes_every_python_that_the_package_names():
    job = load(ROOT / ".github/workflows/ci.yml")["jobs"]["ci"]
    named = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(named))
    assert job["strategy"]["matrix"]["python"] == versions == ["3.11", "3.12", "3.13", "3.14"]
    assert job["env"]["PYTHON"] == "python${{ matrix.python }}"
    assert "PYTHON ?= " in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_publishing_builds_by_make_and_checks_what_it_built():
    ran = commands(load(ROOT / ".github/workflows/publish.yml"), "build")
    assert ran[0] == "make dist"
    assert "page" in re.search(r"^dist: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)[1].split()
    assert any("tests/test_package.py" in line for line in ran)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_exist_and_hold_no_secret(path):
    text = path.read_text(encoding="utf-8")
    assert "secrets." not in text
    assert {*re.findall(r"run: make ([a-z-]+)", text)} <= make_targets().keys()
    assert load(path)["permissions"] == {"contents": "read"}
    assert {*re.findall(r'node-version: "([\d.]+)"', text)} == {least_node()}


def test_hooks_before_a_commit_are_the_commands_of_make_check():
    (repository,) = load(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
    held = re.search(r"(?m)^HELD = (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert held is not None
    recipe = [line.strip().replace("$(HELD)", held[1]) for line in make_targets()["check"].splitlines()]
    assert [hook["entry"] for hook in repository["hooks"]] == [line for line in recipe if line.startswith(".venv/bin/")]
