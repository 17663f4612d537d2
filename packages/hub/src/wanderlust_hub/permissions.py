"""What a published environment asks for beyond its own process: nothing, unless its package says so.

A package declares it in `[tool.wanderlust.permissions]` of its pyproject.toml. Publishing writes it into the wheel, as
`wanderlust.json` in the `.dist-info` folder, and into the signed entry.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from wanderlust.errors import UsageError, one_line
from wanderlust.tools.sandbox.egress import parse_target

PERMISSIONS_FILE = "wanderlust.json"
"""File of a wheel's `.dist-info` folder."""
MAX_PERMISSIONS, MAX_PERMISSION_CHARS = 20, 200
SECRET_FORM = r"\A[A-Z][A-Z0-9_]{2,63}\Z"
RESERVED_VARIABLES = (
    "PYTHON",
    "LD_",
    "PATH",
    "HOME",
    "SHELL",
    "USER",
    "TERM",
    "LANG",
    "LC_",
    "XDG_",
    "MALLOC_",
    "GLIBC",
)
"""Beginnings of variables that steer a process, and so are no secrets."""
SYSTEM_FOLDERS = ("/proc", "/sys", "/dev", "/run", "/etc", "/boot", "/work", "/tmp", "/var/run")
"""Folders of which nothing is shown inside, whoever asks."""

Text = Annotated[str, msgspec.Meta(max_length=MAX_PERMISSION_CHARS)]
Texts = Annotated[tuple[Text, ...], msgspec.Meta(max_length=MAX_PERMISSIONS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """What a package asks for: `Permissions(network=("api.example.org:443",), secrets=("EXAMPLE_KEY",))`."""

    network: Texts = ()
    """Servers that it reaches through a proxy, as `host:port`."""
    files: Texts = ()
    """Files and folders of this machine that it reads, as absolute paths."""
    gpu: bool = False
    secrets: Texts = ()
    """Environment variables that are handed to it."""

    @property
    def any(self) -> bool:
        """Whether it asks for anything."""
        return bool(self.network or self.files or self.gpu or self.secrets)

    def lines(self) -> list[str]:
        """What is asked for, a line each; one line for nothing."""
        asked = [f"reach {', '.join(self.network)}"] if self.network else []
        asked += [f"read {', '.join(self.files)}"] if self.files else []
        asked += ["use the GPU"] if self.gpu else []
        asked += [f"have the variables {', '.join(self.secrets)}"] if self.secrets else []
        return asked or ["nothing: no network, no files, no GPU, no secrets"]


def read_permissions(pyproject: Path) -> Permissions:
    """What a package folder declares. Raises UsageError for what is no permission."""
    try:
        tables = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{pyproject} cannot be read: {one_line(str(error), 120)}") from None
    table = tables.get("tool", {}).get("wanderlust", {}).get("permissions", {})
    return parse_permissions(msgspec.json.encode(table, enc_hook=str), where=str(pyproject))


def parse_permissions(body: bytes, *, where: str) -> Permissions:
    """Read permissions from JSON. Raises UsageError that names the first that cannot be given."""
    try:
        names = msgspec.json.decode(body, type=dict[str, object])
        asked = msgspec.json.decode(body, type=Permissions)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UsageError(f"{where}: the permissions cannot be read: {one_line(str(error), 120)}") from None
    if strange := [name for name in names if name not in Permissions.__slots__]:
        kinds = ", ".join(Permissions.__slots__)
        raise UsageError(f"{where}: there is no permission {one_line(strange[0], 40)!r}; there are {kinds}")
    if wrong := next(_problems(asked), ""):
        raise UsageError(f"{where}: {wrong}")
    return asked


def _problems(asked: Permissions) -> Iterator[str]:
    for server in asked.network:
        try:
            parse_target(server)
        except UsageError as error:
            yield str(error)
    for path in asked.files:
        yield from _path_problems(path)
    for name in asked.secrets:
        if not re.match(SECRET_FORM, name) or name.startswith(RESERVED_VARIABLES):
            yield f"{one_line(name, 60)!r} is no name of a secret: upper case, digits and _, and none of the system"


def _path_problems(path: str) -> Iterator[str]:
    place = Path(path)
    if not place.is_absolute() or ".." in place.parts or "\0" in path or "\n" in path:
        yield f"{one_line(path, 80)!r} is no absolute path without '..'"
    elif len(place.parts) < 3 or any(place.is_relative_to(one) for one in SYSTEM_FOLDERS):
        yield f"{one_line(path, 80)!r} is a folder of the system, and not shown to a package"
    elif any(part.startswith(".") for part in place.parts):
        yield f"{one_line(path, 80)!r} is hidden, as keys and settings are, and not shown to a package"
