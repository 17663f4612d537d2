"""Images of Harbor tasks, made from their Dockerfiles by Docker or Podman."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock

from wanderlust.errors import EnvironmentFailure, one_line
from wanderlust.tools.sandbox.docker import ENGINE_TIMEOUT_SECONDS, engine_environment
from wanderlust_repository.harbor_tasks import HarborTask

_MAKING = Lock()
"""One image at a time: two rollouts of a task wait for the same one."""


@dataclass(frozen=True, slots=True)
class TaskImage:
    """An image that the engine has."""

    name: str
    workdir: str
    """The folder in which its commands run."""
    user: str
    """As whom they run."""


def make_image(task: HarborTask, engine: str) -> TaskImage:
    """The task's image, made from its Dockerfile where the engine does not have it yet.

    A Dockerfile's commands run with the network that the engine has. Raises EnvironmentFailure of one line: a
    ready-made image that is missing, a Dockerfile that fails, or takes longer than the task allows.
    """
    with _MAKING:
        name = task.image or f"wanderlust-harbor:{_digest(task)}"
        settings = _settings(name, engine)
        if settings is None and task.image:
            raise EnvironmentFailure(f"{task.name}: {engine} has no image {name}: run `{engine} pull {name}`")
        if settings is None:
            print(f"{task.name}: making the image with {engine} ...", file=sys.stderr, flush=True)
            words = [engine, "build", "--quiet", "--tag", name, str(task.folder / "environment")]
            done = _run(words, task.build_seconds)
            if done.returncode:
                why = one_line((done.stderr or done.stdout).strip().rpartition("\n")[2])
                raise EnvironmentFailure(f"{task.name}: {engine} build failed: {why}")
            settings = _settings(name, engine)
        workdir, user = settings or ("", "")
        return TaskImage(name, workdir=task.workdir or workdir or "/", user=user or "0:0")


def _settings(image: str, engine: str) -> tuple[str, str] | None:
    """The image's own folder and user, empty where it names none; None where the engine has no such image."""
    words = [engine, "image", "inspect", "--format", "{{.Config.WorkingDir}};{{.Config.User}}", image]
    done = _run(words, ENGINE_TIMEOUT_SECONDS)
    folder, _, user = done.stdout.strip().rpartition(";")
    return None if done.returncode else (folder, user)


def _run(words: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=seconds, env=engine_environment()
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailure(f"{words[0]} {words[1]} took more than {seconds:g} s") from error


def _digest(task: HarborTask) -> str:
    """Of the files that the image is made of, with their modes."""
    folder, digest = task.folder / "environment", sha256()
    for name, data in sorted(task.environment.items()):
        digest.update(f"{name}\0{(folder / name).stat().st_mode & 0o111:o}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]
