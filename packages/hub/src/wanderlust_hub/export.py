"""Ready-made environments for other places: a package for PyPI, and the source of an image for OpenEnv.

Both are folders; nothing is built, and nothing is uploaded.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Literal

import wanderlust
from wanderlust import plugins
from wanderlust.errors import UsageError, one_line
from wanderlust.tasks.registry import (
    ENTRY_POINTS,
    installed_environments,
    make_environment,
    parse_settings,
    resolve_object,
)
from wanderlust_hub.entry import MAX_TEXT_CHARS
from wanderlust_hub.foreign import hub_name, module_text, plain_version
from wanderlust_hub.package_draft import PackageDraft, write_files, write_package_folder

Form = Literal["package", "openenv"]
FORMS: tuple[Form, ...] = ("package", "openenv")
EXTRAS = {
    "arc": "arc",
    "frozenlake": "gymnasium",
    "gymnasium": "gymnasium",
    "taxi": "gymnasium",
    "textarena": "textarena",
    "textarena-duel": "textarena",
    "reasoning-gym": "reasoning",
    "humaneval": "code",
    "clock": "mcp",
    "learned-reward": "train",
}
"""Extras that ready-made environments need, by name."""
PREFIX = "wanderlust-"
"""Of the packages of ready-made environments, whose own names are taken where Wanderlust is installed."""
LICENCE = "Apache-2.0"
APP = '''\
"""{summary}: served over OpenEnv's protocol, with the token of WANDER_ENV_TOKEN where that is set."""

import os

from wanderlust import load_environment
from wanderlust.adapters.openenv import EnvironmentServer

app = EnvironmentServer(load_environment({name!r}), token=os.environ.get("WANDER_ENV_TOKEN", ""))


def main():
    """Listen on port 8000."""
    import uvicorn

    uvicorn.run(app, host="0.0.0.0", port=8000)


if __name__ == "__main__":
    main()
'''
OPENENV_YAML = """\
spec_version: 1
name: {name}
version: {version}
type: space
runtime: fastapi
app: server.app:app
port: 8000
"""
DOCKERFILE = """\
FROM python:3.11-slim
WORKDIR /app
COPY . /app
RUN pip install --no-cache-dir {requires} uvicorn websockets
EXPOSE 8000
CMD ["uvicorn", "server.app:app", "--host", "0.0.0.0", "--port", "8000"]
"""
OPENENV_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = {package}
version = {version}
description = {summary}
requires-python = ">=3.11"
dependencies = [{requires}, "uvicorn", "websockets"]

[project.scripts]
server = "server.app:main"

[tool.hatch.build.targets.wheel]
only-include = ["server"]
"""


def export(environment: str, folder: str | Path, *, form: Form = "package") -> list[Path]:
    """Write a ready-made environment as a folder, and return its files.

    Args:
        environment: Its name, with settings after it.
        folder: A new folder.
        form: `package` is built by any build frontend, for PyPI; `openenv` has openenv.yaml, a Dockerfile and the
            application.

    Raises UsageError where there is no such environment, or the folder exists.
    """
    if form not in FORMS:
        raise UsageError(f"there is no form {form!r}: {' or '.join(FORMS)}")
    place, draft = Path(folder), ready_made_draft(environment)
    if form == "package":
        return write_package_folder(draft, place)
    if place.exists():
        raise UsageError(f"{place} exists already: name another folder")
    if len((made := make_environment(_target(environment))).seats) > 1:
        raise UsageError(f"{environment} has the seats {', '.join(made.seats)}: OpenEnv's protocol serves one")
    quoted = ", ".join(json.dumps(one) for one in draft.requires)
    files = {
        "openenv.yaml": OPENENV_YAML.format(name=draft.name.replace("-", "_"), version=draft.version),
        "pyproject.toml": OPENENV_PYPROJECT.format(
            package=json.dumps(f"openenv-{draft.name}"),
            version=json.dumps(draft.version),
            summary=json.dumps(draft.summary, ensure_ascii=False),
            requires=quoted,
        ),
        "Dockerfile": DOCKERFILE.format(requires=" ".join(json.dumps(one) for one in draft.requires)),
        "README.md": f"# {draft.name}\n\n{draft.summary}\n\n`openenv build` or `docker build .` makes the image.\n",
        "server/__init__.py": "",
        "server/app.py": APP.format(summary=draft.summary.rstrip("."), name=environment),
    }
    return write_files(place, {name: text.encode() for name, text in files.items()})


def ready_made_draft(environment: str) -> PackageDraft:
    """A package of one module that makes a ready-made environment, with its settings."""
    target, settings = _target(environment).partition(",")[0], parse_settings(environment)
    short, (module, _, factory) = environment.partition(",")[0], target.partition(":")
    home, name, extra = _distribution(short), hub_name(PREFIX + short), EXTRAS.get(short, "")
    if name == home:
        name += "-environment"
    words, package = ", ".join(f"{key}={value!r}" for key, value in settings.items()), name.replace("-", "_")
    text = module_text(f"The ready-made environment {environment}.", module=module, factory=factory, words=words)
    return PackageDraft(
        name=name,
        version=plain_version(wanderlust.__version__),
        summary=_summary(environment),
        licence=LICENCE,
        requires=(f"{home}[{extra}]" if extra else home,),
        target=f"{package}:environment",
        files={f"{package}.py": text.encode()},
    )


def is_ready_made(target: str) -> bool:
    """Whether an environment is ours: of the core, or of a package beside it."""
    return target.startswith(("wanderlust.", "wanderlust_")) and not target.startswith("wanderlust_hub.")


def _distribution(name: str) -> str:
    """The package that brings a ready-made environment."""
    dist = plugins.declared(ENTRY_POINTS, name)[name].dist
    return "wanderlust" if dist is None else dist.name


def _target(environment: str) -> str:
    name, comma, settings = environment.partition(",")
    target = installed_environments().get(name)
    if target is None or not is_ready_made(target):
        raise UsageError(f"{name!r} is no ready-made environment: wander list shows them")
    return f"{target}{comma}{settings}"


def _summary(environment: str) -> str:
    """The first line of what its class says."""
    doc = inspect.getdoc(resolve_object(_target(environment).partition(",")[0])) or environment
    return one_line(doc.strip().partition("\n\n")[0], MAX_TEXT_CHARS)
