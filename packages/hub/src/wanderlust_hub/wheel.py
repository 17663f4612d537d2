"""The package of an environment as a wheel: built, and its metadata read without importing it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
import zlib
from base64 import urlsafe_b64encode
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass
from email import message_from_bytes
from hashlib import sha256
from pathlib import Path

from wanderlust.errors import UsageError, one_line
from wanderlust.store.whole_files import replacing
from wanderlust_hub.entry import MAX_REQUIREMENTS, MAX_TEXT_CHARS, canonical
from wanderlust_hub.permissions import PERMISSIONS_FILE, Permissions, parse_permissions, read_permissions

GROUP = "wanderlust.environments"
MAX_METADATA_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What the metadata of a wheel says."""

    wheel: Path
    name: str
    version: str
    summary: str
    licence: str
    requires: tuple[str, ...]
    environment: str
    """The one that the hub offers: the only one, or that which the package is named after."""
    target: str
    """`module:Class` of the environment."""
    requires_python: str
    permissions: Permissions


def build_wheel(package: Path, out: Path) -> Path:
    """Build a package folder with its own build backend, which has to be installed; a wheel is taken as it is."""
    if package.is_file() and package.suffix == ".whl":
        return package
    if not (package / "pyproject.toml").is_file():
        raise UsageError(f"{package} is no wheel and no folder with a pyproject.toml: `wander new NAME` makes one")
    words = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    command = [sys.executable, "-m", "pip", *words, "--wheel-dir", str(out), str(package.resolve())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    wheels = sorted(out.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        why = one_line(next((line for line in lines if "rror" in line), lines[-1] if lines else "no wheel"), 200)
        raise UsageError(
            f"{package} cannot be built: {why}; its build backend and pip must be installed, or give a wheel"
        )
    return _with_permissions(wheels[0], read_permissions(package / "pyproject.toml"))


def read_wheel(wheel: Path) -> Package:
    """Read the metadata of a wheel. Raises UsageError when it is none, or it is unclear which environment it offers."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            metadata = message_from_bytes(_member(archive, "METADATA"))
            entries = _member(archive, "entry_points.txt").decode()
            permissions = _member(archive, PERMISSIONS_FILE)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, KeyError, RuntimeError) as error:
        raise UsageError(f"{wheel.name} is no wheel that can be read: {one_line(str(error), 120)}") from None
    parser = ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(entries)
    except ConfigError as error:
        raise UsageError(f"{wheel.name}: its entry points cannot be read: {one_line(str(error), 120)}") from None
    environments = dict(parser[GROUP]) if parser.has_section(GROUP) else {}
    name = str(metadata.get("Name", ""))
    offered = sorted((one for one in environments if f"-{name}".endswith(f"-{one}")), key=len)
    if len(environments) != 1 and not offered:
        raise UsageError(
            f"{wheel.name} names {len(environments)} environments in the entry points {GROUP}; "
            "a package on a hub has one, or is named after one: NAME, or something-NAME"
        )
    environment = offered[-1] if offered else next(iter(environments))
    requires = tuple(_line(one) for one in metadata.get_all("Requires-Dist", [])[:MAX_REQUIREMENTS])
    return Package(
        wheel=wheel,
        name=name,
        version=str(metadata.get("Version", "")),
        summary=_line(metadata.get("Summary", "")),
        licence=_line(metadata.get("License-Expression") or metadata.get("License") or ""),
        requires=requires,
        environment=_line(environment),
        target=environments[environment],
        requires_python=_line(metadata.get("Requires-Python") or ""),
        permissions=parse_permissions(permissions or b"{}", where=wheel.name),
    )


def _with_permissions(wheel: Path, permissions: Permissions) -> Path:
    """Write what a package asks for into its wheel, and into the list of its files; for nothing, nothing is written."""
    if not permissions.any:
        return wheel
    body = canonical(permissions)
    with (
        replacing(wheel) as draft,
        zipfile.ZipFile(wheel) as old,
        zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        record = next(name for name in old.namelist() if name.endswith(".dist-info/RECORD"))
        file = record.replace("RECORD", PERMISSIONS_FILE)
        digest = urlsafe_b64encode(sha256(body).digest()).decode().rstrip("=")
        for item in old.infolist():
            more = f"{file},sha256={digest},{len(body)}\n".encode() if item.filename == record else b""
            if item.filename != file:
                new.writestr(item, old.read(item) + more)
        new.writestr(zipfile.ZipInfo(file), body)
    return wheel


def _line(text: object) -> str:
    return one_line(str(text), MAX_TEXT_CHARS)


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A file of the wheel's `.dist-info`; empty where there is none."""
    for item in archive.infolist():
        folder, _, file = item.filename.rpartition("/")
        if file == name and folder.endswith(".dist-info") and "/" not in folder:
            if item.file_size > MAX_METADATA_BYTES:
                raise ValueError(f"{name} has {item.file_size:,} bytes")
            return archive.read(item)
    if name == "METADATA":
        raise ValueError("it has no METADATA")
    return b""
