"""Environments that were added from hubs: each in a folder of its own, by its name in the hub.

`wanderlust_hub.added:NAME` makes the isolated environment of that name, as the registry asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast

from wanderlust.environment import Environment
from wanderlust.errors import UsageError
from wanderlust_hub.added_names import added_folder
from wanderlust_hub.entry import NAME_FORM, Fingerprint, HubEntry, HubError, decode
from wanderlust_hub.foreign import HARBOR_FOLDER, HARBOR_TARGET, harbor_class
from wanderlust_hub.isolated import IsolatedEnvironment
from wanderlust_hub.launch import Source

RECORD_FILE, CODE_FOLDER, LIBRARY_FOLDER = "added.json", "code", "libraries"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedPackage:
    """Content of `added.json`: what was added, and from where."""

    format: Literal[1]
    hub: str
    """Or the place of an environment from elsewhere."""
    owner: Fingerprint | None
    """Key of the hub's owner; None for what comes from no hub."""
    by: Fingerprint | None
    """Key that signed the version; None for what nobody signed."""
    entry: HubEntry
    target: str
    """`module:Class` of the environment, inside."""
    isolation: Literal["required", "preferred"]
    """`preferred` runs it without a sandbox where there can be none, with a warning."""


def read_added(name: str) -> AddedPackage:
    """What was added by a name. Raises UsageError when there is nothing, HubError when it is damaged."""
    file = added_folder() / name / RECORD_FILE
    if not re.match(NAME_FORM, name) or not file.is_file():
        raise UsageError(f"{name!r} was not added from a hub: wander hub add HUB {name}")
    package = decode(file.read_bytes(), AddedPackage, str(file))
    if package.entry.name != name:
        raise HubError(f"{file} is of {package.entry.name}, and not of {name}: add it again")
    return package


def source_of(package: AddedPackage, folder: Path) -> Source:
    """How an unpacked package in `folder` is started."""
    entry = package.entry
    return Source(
        name=entry.name,
        code=folder / CODE_FOLDER,
        libraries=folder / LIBRARY_FOLDER,
        target=package.target,
        requires=entry.requires,
        permissions=entry.permissions,
        digest=entry.code.digest,
        isolation=package.isolation,
    )


def open_package(source: Source, settings: Mapping[str, Any] = MappingProxyType({})) -> Environment:
    """The environment of an unpacked package, in a process of its own.

    A package of Harbor tasks has no code: this installation's own environment plays them, each in a sandbox.
    """
    if source.target == HARBOR_TARGET:
        return cast("Environment", harbor_class()(str(source.code / HARBOR_FOLDER), **settings))
    return IsolatedEnvironment(source, settings=settings)


def open_added(name: str, /, **settings: Any) -> Environment:
    """The environment that was added by this name, isolated as `open_package` says."""
    return open_package(source_of(read_added(name), added_folder() / name), settings)


def __getattr__(name: str) -> Any:
    """What makes the environment of this name."""
    if not re.match(NAME_FORM, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        package = read_added(name)
    except UsageError as error:
        raise AttributeError(str(error)) from None
    make = partial(open_added, name)
    make.__doc__ = package.entry.summary or f"Added from {package.hub}, version {package.entry.version}."
    return make
