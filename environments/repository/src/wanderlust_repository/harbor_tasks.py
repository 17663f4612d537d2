"""Harbor task folders: read, checked in one line each, and written from repository tasks.

A folder has `task.toml` (limits), `instruction.md`, `environment/` with a Dockerfile, `tests/test.sh`, which writes a
reward to `/logs/verifier`, and `solution/solve.sh`. https://harborframework.com; read against Harbor 0.25, schema 1.4.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wanderlust.errors import UsageError, one_line
from wanderlust_repository.package import SourcePackage, read_package
from wanderlust_repository.site_folder import sandbox_python
from wanderlust_repository.task_file import (
    SOURCES_FOLDER,
    RepositoryTask,
    load_record,
    load_repository_tasks,
)

MAX_FOLDER_BYTES = 64 << 20
DEFAULT_SECONDS = 600.0
"""Of agent and verifier, where `task.toml` says nothing."""
REWARD_FILES = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
PLAIN_BASES = re.compile(r"(docker\.io/)?(library/)?(python|debian|ubuntu)(:[\w.-]+)?")
_PLAIN_COMMANDS = frozenset({"mkdir", "chmod", "touch", "echo", "cp", "mv", "ln", "rm", "printf", "true", "cd", "cat"})
_NO_EFFECT = frozenset({"LABEL", "EXPOSE", "MAINTAINER", "STOPSIGNAL", "SHELL", "USER", "CMD", "ENTRYPOINT", "ARG"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborTask:
    """One task folder."""

    folder: Path
    name: str
    instruction: str
    environment: Mapping[str, bytes]
    """Files of `environment/`, the Dockerfile included."""
    tests: Mapping[str, bytes]
    solution: Mapping[str, bytes] = field(default_factory=dict)
    agent_seconds: float = DEFAULT_SECONDS
    verifier_seconds: float = DEFAULT_SECONDS
    build_seconds: float = DEFAULT_SECONDS
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    image: str = ""
    """A ready-made image; empty where the Dockerfile makes it."""
    workdir: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    verifier_variables: Mapping[str, str] = field(default_factory=dict)
    solution_variables: Mapping[str, str] = field(default_factory=dict)
    network: bool = True
    """Whether the task allows a network; the sandbox has none anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """What takes an image's place in the sandbox."""

    workdir: str
    variables: Mapping[str, str]
    files: Mapping[str, bytes]
    """By absolute path."""
    commands: tuple[tuple[str, str], ...]
    """Folder and shell command, in their order."""
    requirements: tuple[str, ...]
    """What pip installs."""
    places: tuple[str, ...]
    """Top folders that the task writes to."""
    differences: tuple[str, ...]
    """In a line each, how the sandbox differs from the image."""


class NeedsContainer(UsageError):
    """A task whose image is more than a plain base: `harbor` plays it in a container, with `engine`."""


def read_harbor_task(folder: Path) -> HarborTask:
    """Read a task folder. Raises UsageError of one line: the folder and what is wrong."""
    try:
        return _read(folder)
    except UsageError as error:
        raise UsageError(f"{folder}: {error}") from error


def _read(folder: Path) -> HarborTask:
    if not folder.is_dir():
        raise UsageError("there is no such folder")
    config = _read_config(folder / "task.toml")
    if (folder / "steps").is_dir() or config.get("steps"):
        raise UsageError("tasks of several steps are not read")
    environment = _section(config, "environment")
    agent, verifier, solution = (_section(config, name) for name in ("agent", "verifier", "solution"))
    if environment.get("os", "linux") != "linux" or environment.get("gpus") or environment.get("tpu"):
        raise UsageError("tasks for Windows, GPUs and TPUs are not read")
    if verifier.get("environment") or verifier.get("environment_mode") == "separate":
        raise UsageError("a verifier in an environment of its own is not read")
    files = _files(folder / "environment")
    if any(name.endswith(("compose.yaml", "compose.yml")) for name in files):
        raise UsageError("tasks of several containers (compose) are not read")
    image = str(environment.get("docker_image") or "")
    if not image and "Dockerfile" not in files:
        raise UsageError("neither environment/Dockerfile nor docker_image in task.toml")
    tests = _files(folder / "tests")
    if "test.sh" not in tests:
        raise UsageError("no tests/test.sh")
    instruction = folder / "instruction.md"
    if not instruction.is_file() or not instruction.read_text("utf-8", "replace").strip():
        raise UsageError("no instruction.md, or an empty one")
    name = _section(config, "task").get("name") or folder.resolve().name
    return HarborTask(
        folder=folder,
        name=str(name),
        instruction=instruction.read_text("utf-8", "replace"),
        environment=files,
        tests=tests,
        solution=_files(folder / "solution"),
        agent_seconds=_number(agent, "timeout_sec", DEFAULT_SECONDS),
        verifier_seconds=_number(verifier, "timeout_sec", DEFAULT_SECONDS),
        build_seconds=_number(environment, "build_timeout_sec", DEFAULT_SECONDS),
        cpus=_optional(environment, "cpus"),
        memory_mb=_megabytes(environment, "memory"),
        storage_mb=_megabytes(environment, "storage"),
        image=image,
        workdir=str(environment.get("workdir") or ""),
        variables=_variables(environment),
        verifier_variables=_variables(verifier),
        solution_variables=_variables(solution),
        network=environment.get("network_mode", "public") != "no-network"
        and environment.get("allow_internet") is not False,
    )


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError("no task.toml")
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"task.toml cannot be read: {one_line(str(error))}") from error


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name, {})
    if not isinstance(section, Mapping):
        raise UsageError(f"[{name}] of task.toml is no table")
    return section


def _number(section: Mapping[str, Any], name: str, default: float) -> float:
    value = section.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UsageError(f"{name} is {value!r}, and no positive number")
    return float(value)


def _optional(section: Mapping[str, Any], name: str) -> float | None:
    return _number(section, name, 1.0) if section.get(name) is not None else None


def _megabytes(section: Mapping[str, Any], name: str) -> int | None:
    """`memory_mb`, or the older `memory` with a unit."""
    if (value := section.get(f"{name}_mb")) is not None:
        return int(_number({name: value}, name, 0.0))
    if (text := section.get(name)) is None:
        return None
    found = re.fullmatch(r"(\d+)\s*([MG])i?B?", str(text), re.IGNORECASE)
    if not found:
        raise UsageError(f"{name} is {text!r}: a number of megabytes or gigabytes, like 2G")
    return int(found[1]) * (1024 if found[2].upper() == "G" else 1)


def _variables(section: Mapping[str, Any]) -> dict[str, str]:
    env = section.get("env", {})
    if not isinstance(env, Mapping) or not all(isinstance(value, str) for value in env.values()):
        raise UsageError("env is no table of texts")
    return dict(env)


def _files(folder: Path) -> dict[str, bytes]:
    """The regular files below a folder, links that stay in it resolved."""
    files: dict[str, bytes] = {}
    top = folder.resolve()
    for place in sorted(folder.rglob("*")):
        if place.is_file():
            if not place.resolve().is_relative_to(top):
                raise UsageError(f"{place.relative_to(folder.parent)} leads out of the folder")
            files[place.relative_to(folder).as_posix()] = place.read_bytes()
        if sum(map(len, files.values())) > MAX_FOLDER_BYTES:
            raise UsageError(f"{folder.name} has more than {MAX_FOLDER_BYTES >> 20} MiB")
    return files


class _Dockerfile:
    """Follows the instructions of a plain Dockerfile."""

    def __init__(self, task: HarborTask):
        self.task, self.workdir = task, "/"
        self.variables: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.commands: list[tuple[str, str]] = []
        self.requirements: list[str] = []
        self.differences: list[str] = []
        self.stages = 0

    def follow(self, text: str) -> None:
        for line in re.sub(r"\\\s*\n", " ", text).splitlines():
            if line.strip() and not line.strip().startswith("#"):
                word, _, rest = line.strip().partition(" ")
                self._step(word.upper(), rest.strip())
        if not self.stages:
            raise UsageError("the Dockerfile has no FROM")

    def _step(self, word: str, rest: str) -> None:
        if word == "FROM":
            self._base(rest)
        elif word == "WORKDIR":
            self.workdir = self._path(rest)
        elif word == "ENV":
            self._env(rest)
        elif word in ("COPY", "ADD"):
            self._copy(rest)
        elif word == "RUN":
            self._run(rest)
        elif word not in _NO_EFFECT:
            raise NeedsContainer(f"the Dockerfile's {word} needs a container")

    def _base(self, rest: str) -> None:
        self.stages += 1
        image = rest.split(maxsplit=1)[0] if rest else ""
        if self.stages > 1 or not PLAIN_BASES.fullmatch(image):
            raise NeedsContainer(f"the image is made from {one_line(rest, 60)}, and no plain Python, Debian or Ubuntu")
        version = re.match(r".*python:(3\.\d+)", image)
        if version and version[1] != sandbox_python():
            self.differences.append(f"Python {sandbox_python()} in place of {version[1]}")

    def _path(self, text: str) -> str:
        text = text.strip().strip('"')
        return text if text.startswith("/") else f"{self.workdir.rstrip('/')}/{text}"

    def _env(self, rest: str) -> None:
        try:
            words = shlex.split(rest)
        except ValueError as error:
            raise UsageError(f"ENV {one_line(rest, 60)} cannot be read") from error
        if words and "=" not in words[0]:
            words = [f"{words[0]}={' '.join(words[1:])}"]
        self.variables |= dict(word.split("=", 1) for word in words if "=" in word)

    def _copy(self, rest: str) -> None:
        words = [word for word in rest.split() if not re.match(r"--(chmod|chown)=", word)]
        if len(words) < 2 or any(word.startswith(("--", "[", "http")) for word in words):
            raise NeedsContainer(f"COPY {one_line(rest, 60)} needs a container")
        *sources, target = words
        place = self._path(target)
        for source in sources:
            prefix = source.removeprefix("./").strip("/")
            prefix = "" if prefix == "." else prefix
            whole = {n: d for n, d in self.task.environment.items() if not prefix or n.startswith(f"{prefix}/")}
            if prefix in self.task.environment:
                into = target.endswith(("/", "/.")) or target == "." or len(sources) > 1
                name = prefix.rpartition("/")[2]
                where = f"{place.rstrip('/.')}/{name}" if into else place
                self.files[where] = self.task.environment[prefix]
            elif whole:
                base = place.removesuffix("/.").rstrip("/")
                self.files |= {f"{base}/{name.removeprefix(prefix).lstrip('/')}": data for name, data in whole.items()}
            else:
                raise UsageError(f"COPY {source}: there is no such file in environment/")

    def _run(self, rest: str) -> None:
        for part in re.split(r"&&|;", rest):
            words = part.split()
            pip = re.match(r"\s*(python3? -m )?pip3? install\s+(.*)", part)
            if pip and not re.search(r"(^|\s)(-r|-e|\.|git\+|https?:)", pip[2]):
                self.requirements += [word for word in shlex.split(pip[2]) if not word.startswith("-")]
            elif words and words[0] in _PLAIN_COMMANDS and "$(" not in part:
                self.commands.append((self.workdir, part.strip()))
            elif words:
                raise NeedsContainer(f"RUN {one_line(part, 60)} needs a container")


def plan_sandbox(task: HarborTask) -> SandboxPlan:
    """What the sandbox has to do in the image's place. Raises NeedsContainer where that is not enough."""
    if task.image:
        raise NeedsContainer(f"{task.name}: the image {task.image} needs a container")
    steps = _Dockerfile(task)
    try:
        steps.follow(task.environment["Dockerfile"].decode("utf-8", "replace"))
    except NeedsContainer as error:
        raise NeedsContainer(f"{task.name}: {error}") from error
    except UsageError as error:
        raise UsageError(f"{task.name}: {error}") from error
    workdir = task.workdir or steps.workdir
    paths = [workdir, *steps.files, *(folder for folder, _ in steps.commands)]
    tops = {"/" + path.strip("/").split("/")[0] for path in paths if path.strip("/")}
    if shared := tops & {"/usr", "/etc", "/bin", "/lib", "/proc", "/dev", "/sbin"}:
        raise NeedsContainer(f"{task.name}: writing to {min(shared)} needs a container")
    return SandboxPlan(
        workdir=workdir if workdir != "/" else "/work",
        variables={**steps.variables, **task.variables},
        files=steps.files,
        commands=tuple(steps.commands),
        requirements=tuple(dict.fromkeys(steps.requirements)),
        places=tuple(sorted((tops | {"/logs", "/tests", "/solution"}) - {"/work", "/tmp"})),
        differences=tuple(steps.differences),
    )


def read_reward(name: str, text: bytes) -> float:
    """The reward of a file that a verifier has written: a number, or of a JSON object `reward`, or else the mean.

    Raises UsageError for anything else.
    """
    try:
        value = json.loads(text) if name.endswith(".json") else float(text)
    except ValueError as error:
        raise UsageError(f"{name} is {one_line(repr(text))}, and no reward") from error
    if isinstance(value, Mapping):
        numbers = [one for one in value.values() if isinstance(one, int | float)]
        value = value.get("reward", sum(numbers) / len(numbers) if numbers else None)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{name} has no finite number")
    return float(value)


TASK_TOML = """\
schema_version = "1.4"

[task]
name = "{name}"
description = "One fault in {package}, to be repaired so that its tests pass"

[metadata]
licence = {licence}
source_sha256 = "{digest}"

[verifier]
timeout_sec = {seconds}

[agent]
timeout_sec = 1800.0

[environment]
build_timeout_sec = 600.0
cpus = 1
memory_mb = 2048
storage_mb = 4096
"""
TEST_SH = """\
#!/bin/bash
# Lays the true tests over the folder, runs them, and writes 1 when all that must pass do.
cd /app || exit 1
cp -a /tests/original/. /app/
mkdir -p /logs/verifier
PYTHONPATH={paths} PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python3 -m pytest -q -p no:cacheprovider -o addopts= \\
  -o filterwarnings= --junitxml=/tmp/results.xml {files} > /logs/verifier/output.txt 2>&1
python3 -I /tests/reward.py > /logs/verifier/reward.txt
"""
REWARD_PY = '''\
"""1 when every test of known.json has passed, else 0."""

import json
import xml.etree.ElementTree as xml

known = json.load(open("/tests/known.json"))
passed = set()
try:
    for case in xml.parse("/tmp/results.xml").iter("testcase"):
        if not len([one for one in case if one.tag in ("failure", "error", "skipped")]):
            passed.add(f"{case.get('classname')}::{case.get('name')}")
except (OSError, xml.ParseError):
    pass
print(int(set(known) <= passed))
'''


def write_harbor_tasks(folder: Path, out: Path) -> list[Path]:
    """Write each repository task of `folder` as a task folder below `out`.

    The verifier lays the true tests over the agent's folder and runs them there: the modules are not read first, and
    there are no sentinels (see `verdict.py`). Raises UsageError where `out` exists.
    """
    if out.exists():
        raise UsageError(f"{out} exists already: name another folder")
    written = []
    packages: dict[str, SourcePackage] = {}
    for task in load_repository_tasks(folder):
        if task.package not in packages:
            (archive,) = (folder / SOURCES_FOLDER).glob(f"{task.package}.*")
            packages[task.package] = read_package(archive)
        record = load_record(folder, task.package)
        place = out / task.id.replace("/", "-")
        files = _task_files(task, packages[task.package], known=record.known, requirements=record.requirements)
        for path, data in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(data)
        for script in ("tests/test.sh", "solution/solve.sh"):
            (place / script).chmod(0o755)
        written.append(place)
    return written


def _task_files(
    task: RepositoryTask, package: SourcePackage, *, known: Sequence[str], requirements: Sequence[str]
) -> dict[str, bytes]:
    start = {**package.files, task.edit.path: task.edit.apply(package.files[task.edit.path])}
    tests = {path: data for path, data in package.files.items() if path not in package.sources}
    quoted = " ".join(shlex.quote(one) for one in requirements)
    docker = f"FROM python:{sandbox_python()}-slim\nRUN pip install {quoted}\nWORKDIR /app\nCOPY repo /app\n"
    instruction = f"The Python package {task.package} lies in /app. Repair it there.\n\n{task.issue}\n"
    name = re.sub(r"[^A-Za-z0-9._-]", "-", task.id.lower())
    config = TASK_TOML.format(
        name=f"wanderlust/{name}",
        package=task.package,
        licence=json.dumps(task.licence),
        digest=task.digest,
        seconds=600.0,
    )
    paths = ":".join(f"/app/{root}".rstrip("/") for root in package.roots)
    script = TEST_SH.format(paths=paths + ":$PYTHONPATH", files=" ".join(map(shlex.quote, package.tests)))
    solve = f"#!/bin/bash\ncp /solution/original /app/{shlex.quote(task.edit.path)}\n"
    return {
        "task.toml": config.encode(),
        "instruction.md": instruction.encode(),
        "environment/Dockerfile": docker.encode(),
        "tests/test.sh": script.encode(),
        "tests/reward.py": REWARD_PY.encode(),
        "tests/known.json": json.dumps(sorted({junit_name(one) for one in known})).encode(),
        "solution/solve.sh": solve.encode(),
        "solution/original": package.files[task.edit.path],
        **{f"environment/repo/{path}": data for path, data in start.items()},
        **{f"tests/original/{path}": data for path, data in tests.items()},
    }


def junit_name(test: str) -> str:
    """A pytest id as JUnit's XML names it."""
    path, _, rest = test.partition("::")
    head, bracket, parameters = rest.partition("[")
    *classes, name = head.split("::")
    return f"{'.'.join([path.removesuffix('.py').replace('/', '.'), *classes])}::{name}{bracket}{parameters}"
