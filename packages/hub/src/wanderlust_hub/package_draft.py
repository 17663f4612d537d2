"""Packages that are written here, around environments from elsewhere and around our own: as wheels and as folders.

A wheel is written file by file, so no build backend and no code of the package runs. Equal drafts give equal bytes.
"""

from __future__ import annotations

import json
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from wanderlust.errors import UsageError
from wanderlust_hub.entry import canonical, check_name, check_version
from wanderlust_hub.permissions import PERMISSIONS_FILE, Permissions
from wanderlust_hub.wheel import GROUP

NO_PERMISSIONS = Permissions()
PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = {name}
version = {version}
description = {summary}
readme = "README.md"
license = {licence}
requires-python = ">=3.11"
dependencies = {requires}

[project.entry-points.{group}]
{environment} = {target}

[tool.hatch.build.targets.wheel]
only-include = {files}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageDraft:
    """A package before it is written: `PackageDraft(name="taxi-v4", version="1.4.0", target="taxi:made", ...)`."""

    name: str
    """In a hub, on PyPI, and of the environment."""
    version: str
    summary: str
    licence: str = ""
    requires: tuple[str, ...]
    target: str
    """`module:Name` of the environment."""
    files: Mapping[str, bytes]
    """Of its modules and data, by their path in the wheel."""
    permissions: Permissions = NO_PERMISSIONS

    def __post_init__(self) -> None:
        check_name(self.name)
        check_version(self.version)


def write_wheel(draft: PackageDraft, folder: Path) -> Path:
    """Write the wheel of a draft into a folder, and return its path."""
    stem = f"{draft.name.replace('-', '_')}-{draft.version}"
    info, wheel = f"{stem}.dist-info", folder / f"{stem}-py3-none-any.whl"
    lines = ["Metadata-Version: 2.3", f"Name: {draft.name}", f"Version: {draft.version}", f"Summary: {draft.summary}"]
    lines += [f"License-Expression: {draft.licence}"] if draft.licence else []
    lines += [f"Requires-Dist: {one}" for one in draft.requires]
    texts = {
        "METADATA": "\n".join(lines) + "\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: wanderlust\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[{GROUP}]\n{draft.name} = {draft.target}\n",
    }
    files = {**draft.files, **{f"{info}/{name}": text.encode() for name, text in texts.items()}}
    if draft.permissions.any:
        files[f"{info}/{PERMISSIONS_FILE}"] = canonical(draft.permissions)
    record = "".join(f"{name},sha256={_record_digest(body)},{len(body)}\n" for name, body in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED)
    return wheel


def write_package_folder(draft: PackageDraft, folder: Path) -> list[Path]:
    """Write a draft as a folder that any build frontend builds for PyPI. Raises UsageError where `folder` exists."""
    if folder.exists():
        raise UsageError(f"{folder} exists already: name another folder")
    tops = sorted({name.partition("/")[0] for name in draft.files})
    pyproject = PYPROJECT.format(
        name=json.dumps(draft.name),
        version=json.dumps(draft.version),
        summary=json.dumps(draft.summary, ensure_ascii=False),
        licence=json.dumps(draft.licence),
        requires=json.dumps(list(draft.requires)),
        group=json.dumps(GROUP),
        environment=draft.name,
        target=json.dumps(draft.target),
        files=json.dumps(tops),
    )
    readme = (
        f"# {draft.name}\n\n{draft.summary}\n\nAn environment for [Wanderlust](https://pypi.org/project/wanderlust/):\n"
    )
    readme += f"`wander eval {draft.name} --policy POLICY` once it is installed.\n"
    files = {"pyproject.toml": pyproject.encode(), "README.md": readme.encode(), **draft.files}
    return write_files(folder, files)


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files below a new folder, and return their paths."""
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return [folder / name for name in files]


def _record_digest(body: bytes) -> str:
    return urlsafe_b64encode(sha256(body).digest()).decode().rstrip("=")
