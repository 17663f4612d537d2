"""`wander new`: an environment of one's own, as a package that can be installed."""

from __future__ import annotations

import keyword
from pathlib import Path

from wanderlust.core.errors import UsageError
from wanderlust.studio.arguments import Json
from wanderlust.studio.output import command, result, result_json

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
dependencies = ["wanderlust"]
entry-points."wanderlust.environments".{name} = "{module}:{kind}"

[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]
"""
ENVIRONMENT = '''\
from wanderlust.core.contracts import Environment
from wanderlust.core.messages import user
from wanderlust.core.types import Task
from wanderlust.policies.scripted import Scripted


class {kind}(Environment):
    """Doubling: say here what yours is about."""

    def tasks(self, split="train"):
        start = 0 if split == "train" else 1000
        asked = {{n: user(f"What is {{n}} + {{n}}? End with the number.") for n in range(start, start + 20)}}
        return [Task(id=f"{{split}}-{{n}}", prompt=(asked[n],), answer=str(2 * n)) for n in asked]

    async def run(self, episode):
        said = await episode.agent.act(*episode.task.prompt)
        episode.reward("right", float(said.content.split()[-1:] == [episode.task.answer]))

    def oracle(self, task):
        return Scripted([task.answer])
'''
TEST = """\
import asyncio

from {module} import {kind}
from wanderlust.environments.conformance import check_environment


def test_it_keeps_its_promises():
    assert asyncio.run(check_environment({kind}())) == []
"""


def new(name: str, /, *, json: Json = False) -> None:
    """Begin an environment of your own: a folder with one file of code, one test, and what makes it installable.

    Parameters
    ----------
    name:
        Name of the environment and of the new folder: letters, digits, hyphens and underscores.
    """
    module, folder = name.replace("-", "_").lower(), Path(name)
    if not module.isidentifier() or not module.isascii() or keyword.iskeyword(module) or module == "wanderlust":
        raise UsageError(f"{name!r} cannot be the name of a package: letters, digits, - and _, a letter first")
    if folder.exists():
        raise UsageError(f"{folder} exists already")
    words = {"name": module.replace("_", "-"), "module": module, "kind": module.title().replace("_", "")}
    texts = {"pyproject.toml": PROJECT, f"{module}.py": ENVIRONMENT, f"test_{module}.py": TEST}
    folder.mkdir()
    for file, text in texts.items():
        (folder / file).write_text(text.format(**words))
    steps = [f"pip install -e {folder}", command("check", words["name"]), f"pytest {folder}"]
    if json:
        result_json({"folder": str(folder), "files": [*texts], "next": steps})
        return
    result(None, f"{folder}/ has {', '.join(texts)}. Next:", *(f"  {step}" for step in steps))
