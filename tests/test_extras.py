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
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import PathFinder

missing = {*json.loads(sys.argv.pop(1))}

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in missing else super().find_spec(name, path, target)

sys.meta_path = [Finder if one is PathFinder else one for one in sys.meta_path]
from wanderlust.cli.main import main


def said(words):
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            main(words.split())
        except SystemExit as end:
            return end.code or 0, out.getvalue(), err.getvalue()


if sys.argv[1].startswith("["):
    print(json.dumps([said(words) for words in json.loads(sys.argv[1])]))
else:
    main(sys.argv[1].split())
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


def wander(missing: list[str], words: str, *, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A command, or a list of commands as JSON, in a process without these packages."""
    env = os.environ | environment
    return subprocess.run(
        [*command(missing), words], cwd=cwd, env=env, capture_output=True, timeout=PATIENCE, check=False
    )


def command(missing: list[str]) -> list[str]:
    return [sys.executable, "-c", WITHOUT, json.dumps(missing)]


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


NEEDED = {
    "demo --quick": "train",
    "train calculator --policy fresh": "train",
    "train --preset wordle": "train",
    "lab titles": "train",
    "serve checkpoint": "train",
    "eval calculator --policy checkpoint": "train",
    "eval calculator --policy smollm2": "smollm2",
    "eval calculator --policy oracle --ray-workers 2": "ray",
    "eval reasoning-gym --policy oracle": "reasoning",
    "eval humaneval --policy oracle": "code",
    "optimize calculator --policy oracle": "gepa",
    "eval mine.py:symbolically --policy mine.py:say_two": "math",
    "eval mine.py:from_parquet --policy mine.py:say_two": "parquet",
    "export runs/one --to parquet": "parquet",
    "sft runs/one --policy fresh": "train",
    "studio --no-open --port 0": "studio",
    "studio runs --export site": "studio",
}
"""Commands, and the extra that each needs."""
FREE = (
    "--help",
    "list",
    "world list",
    "show runs/one 1",
    "compare runs/one runs/one",
    "export runs/one --to sft",
    "runs",
    "eval tictactoe --policy teacher -n 2",
    "eval kuhn --policy teacher -n 2",
)
"""Commands that need none."""


@pytest.fixture(scope="module")
def said(place: Path) -> dict[str, tuple[int, str, str]]:
    """Exit status, stdout and stderr of all these commands, one after the other in a process without any extra."""
    words = [*NEEDED, *FREE]
    done = wander(ALL, json.dumps(words), cwd=place)
    return dict(zip(words, map(tuple, json.loads(done.stdout)), strict=True))


def assert_names(line: str, extra: str) -> None:
    """It says which package is missing, one that the extra brings, and how to install it."""
    package = re.fullmatch(rf"wander: this needs the package '([\w.-]+)': .* 'wanderlust\[{extra}\]'\n", line)
    assert package, line
    needed = re.findall(r"wanderlust\[(\w+)\]", " ".join(EXTRAS[extra]))
    assert package[1].partition(".")[0].replace("-", "_") in modules(extra, *needed)


@pytest.mark.parametrize("words", NEEDED)
def test_a_command_names_the_extra_that_it_needs(said, words):
    code, out, err = said[words]
    assert (code, out) == (2, "")
    assert_names(err, NEEDED[words])


def test_a_command_whose_extra_is_missing_ends_its_process(place):
    done = wander(ALL, "train calculator --policy fresh", cwd=place)
    assert (done.returncode, done.stdout) == (2, b"")
    assert_names(done.stderr.decode(), "train")


def test_with_the_extra_train_it_names_the_other_ones_before_anything_is_made(place):
    commands = {
        "lora": "train calculator --policy smollm2 --lora 4 --out runs/lora",
        "mlflow": "train calculator --policy fresh --logger mlflow --out runs/logged",
    }
    done = wander(modules(*commands), json.dumps([*commands.values()]), cwd=place)
    for extra, (code, out, err) in zip(commands, json.loads(done.stdout), strict=True):
        assert (code, out) == (2, "")
        assert_names(err.splitlines(keepends=True)[-1], extra)
    assert [path.name for path in (place / "runs").iterdir()] == ["one"]


@pytest.mark.parametrize("words", FREE)
def test_these_need_no_extra(said, words):
    code, out, err = said[words]
    assert (code, "wander:" in err) == (0, False)
    assert out


def test_an_environment_is_served_without_any_extra(place):
    words = [*command(ALL), "serve-env calculator --port 0"]
    with subprocess.Popen(words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        first = served.stdout.readline()
        served.send_signal(signal.SIGINT)
        assert first.startswith("http://127.0.0.1:"), served.stderr and served.stderr.read()


def test_a_terminal_that_has_only_ascii_gets_the_list(place):
    done = wander([*ALL, "wanderlust_grids"], "list", cwd=place, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"| calculator " in done.stdout
    assert b"cannot be loaded: " in done.stdout
    assert done.stdout.isascii()
