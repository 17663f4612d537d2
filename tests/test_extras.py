"""A command whose extra is not installed says in one line which it is; the others work with none."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from patience import PATIENCE
from project_files import PACKAGES, ROOT


def optional(folder: Path) -> dict[str, list[str]]:
    """What each extra of a distribution brings."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("optional-dependencies", {})


EXTRAS, OPTIONAL = optional(ROOT), {folder.name: optional(folder) for folder in PACKAGES}
MODULES = {"openai-agents": "agents", "pydantic-ai-slim": "pydantic_ai"}
"""Packages whose module has another name."""
WITHOUT = """
import json, sys
from importlib.machinery import PathFinder

missing = {*json.loads(sys.argv.pop(1))}

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in missing else super().find_spec(name, path, target)

sys.meta_path = [Finder if one is PathFinder else one for one in sys.meta_path]
from wanderlust.cli.main import main
main(sys.argv[1:])
"""
ENVIRONMENTS = """
from wanderlust import McpServer, Rubric, SingleTurnEnvironment, Task, ToolEnvironment, load_tasks, symbolic, user

tasks = [Task(id="1", prompt=(user("1 + 1?"),), answer="2")]

def say_two(messages, rng):
    return "2"

async def right(completion, answer):
    return float(completion == answer)

def with_server():
    return ToolEnvironment(tasks, tools=[McpServer("python", "-m", "mcp_server_time")], rubric=Rubric(right))

def symbolically():
    return SingleTurnEnvironment(tasks, rubric=Rubric(symbolic()))

def from_parquet():
    return SingleTurnEnvironment(load_tasks("tasks.parquet"), rubric=Rubric(right))
"""


def modules(*extras: str) -> list[str]:
    """What these extras bring, as it is imported."""
    lines = [line for extra in extras for line in EXTRAS[extra]]
    found = (re.match(r"wanderlust-([\w-]+)\[(\w+)\]", line) for line in lines)
    lines += [line for one in found if one for line in OPTIONAL[one[1].replace("-", "_")][one[2]]]
    names = [re.match(r"[\w.-]+", line)[0] for line in lines]
    return sorted({MODULES.get(name, name.replace("-", "_")) for name in names if not name.startswith("wanderlust")})


ALL = modules(*(EXTRAS.keys() - {"dev", "docs"}))


def command(missing: list[str], words: str) -> list[str]:
    return [sys.executable, "-c", WITHOUT, json.dumps(missing), *words.split()]


def wander(missing: list[str], words: str, *, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    env = os.environ | environment
    return subprocess.run(command(missing, words), cwd=cwd, env=env, capture_output=True, timeout=PATIENCE, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, something like a checkpoint, and environments that need extras."""
    folder = tmp_path_factory.mktemp("extras")
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint/config.json").write_text('{"model_type": "llama"}')
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / "checkpoint" / name).touch()
    (folder / "mine.py").write_text(ENVIRONMENTS)
    (folder / "tasks.parquet").touch()
    assert wander(ALL, "eval calculator --policy oracle -n 2 --out runs/one", cwd=folder).returncode == 0
    return folder


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("demo --quick", "train"),
        ("train calculator --policy fresh", "train"),
        ("train --preset wordle", "train"),
        ("lab titles", "train"),
        ("serve checkpoint", "train"),
        ("eval calculator --policy checkpoint", "train"),
        ("play tictactoe", "train"),
        ("eval tictactoe --policy teacher", "train"),
        ("serve-env tictactoe", "train"),
        ("eval calculator --policy smollm2", "smollm2"),
        ("eval calculator --policy oracle --ray-workers 2", "ray"),
        ("eval reasoning-gym --policy oracle", "reasoning"),
        ("eval humaneval --policy oracle", "code"),
        ("optimize calculator --policy oracle", "gepa"),
        ("eval mine.py:symbolically --policy mine.py:say_two", "math"),
        ("eval mine.py:from_parquet --policy mine.py:say_two", "parquet"),
        ("export runs/one --to parquet", "parquet"),
        ("sft runs/one --policy fresh", "train"),
        ("studio --no-open --port 0", "studio"),
        ("studio runs --export site", "studio"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(place, words, extra):
    done = wander(ALL, words, cwd=place)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout, said.count("\n")) == (2, b"", 1), said
    package = re.fullmatch(rf"wander: this needs the package '([\w.-]+)': .* 'wanderlust\[{extra}\]'\n", said)
    assert package, said
    needed = re.findall(r"wanderlust\[(\w+)\]", " ".join(EXTRAS[extra]))
    assert package[1].partition(".")[0].replace("-", "_") in modules(extra, *needed)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("train calculator --policy smollm2 --lora 4 --out runs/lora", "lora"),
        ("train calculator --policy fresh --logger mlflow --out runs/logged", "mlflow"),
    ],
)
def test_with_the_extra_train_it_names_the_other_one(place, words, extra):
    done = wander(modules(extra), words, cwd=place)
    last = done.stderr.decode().splitlines()[-1]
    assert (done.returncode, done.stdout) == (2, b""), last
    assert re.fullmatch(rf"wander: this needs the package '([\w.]+)': .* 'wanderlust\[{extra}\]'", last), last


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "list",
        "world list",
        "show runs/one 1",
        "compare runs/one runs/one",
        "export runs/one --to sft",
        "runs",
    ],
)
def test_these_need_no_extra(place, words):
    done = wander(ALL, words, cwd=place)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_environment_is_served_without_any_extra(place):
    words = command(ALL, "serve-env calculator --port 0")
    with subprocess.Popen(words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        first = served.stdout.readline()
        served.send_signal(signal.SIGINT)
        assert first.startswith("http://127.0.0.1:"), served.stderr and served.stderr.read()


def test_a_terminal_that_has_only_ascii_gets_the_list(place):
    done = wander(ALL, "list", cwd=place, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"| calculator " in done.stdout
    assert b"install it with pip install" in done.stdout  # of an environment that needs an extra
    assert done.stdout.isascii()
