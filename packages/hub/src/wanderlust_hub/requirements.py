"""What a package needs of this installation: Python, wanderlust and others, and where their files are.

Nothing is imported: versions and files are what the installed metadata says.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

import wanderlust
from wanderlust.errors import UsageError, one_line

OURSELVES = "wanderlust"
MAX_DISTRIBUTIONS = 300


def unmet_requirements(requires: Iterable[str], *, requires_python: str = "") -> list[str]:
    """The requirements that this installation does not meet, each with what is here instead.

    Raises UsageError for a requirement that cannot be read.
    """
    unmet = []
    try:
        if not SpecifierSet(requires_python).contains(platform.python_version(), prereleases=True):
            unmet.append(f"Python {requires_python} (here: {platform.python_version()})")
    except InvalidSpecifier as error:
        raise UsageError(f"Requires-Python cannot be read: {one_line(str(error), 120)}") from None
    for one in _needed(requires):
        here = _version(one.name)
        if here is None:
            unmet.append(f"{one.name}{one.specifier} (not installed)")
        elif not one.specifier.contains(here, prereleases=True):
            unmet.append(f"{one.name}{one.specifier} (here: {here})")
    return unmet


def library_paths(requires: Iterable[str]) -> list[Path]:
    """Files and folders of our packages, of what they need, and of what the requirements need, as installed here."""
    found = dict.fromkeys(Path(file).resolve().parent for file in (wanderlust.__file__, __file__))
    waiting, seen = [OURSELVES, *requires], set[str]()
    while waiting and len(seen) < MAX_DISTRIBUTIONS:
        for one in _needed([waiting.pop()]):
            name = _normal(one.name)
            installed = None if name in seen else _distribution(name)
            seen.add(name)
            if installed is None:
                continue
            waiting += [*(str(need) for need in _needed(installed.requires or ()))]
            files = [*_files(installed)]
            if name == OURSELVES:  # in development its modules are elsewhere
                files = [path for path in files if path.name.endswith(".dist-info")]
            found |= dict.fromkeys(files)
    return [*found]


def _needed(requires: Iterable[str]) -> Iterator[Requirement]:
    """The requirements that hold on this machine, with those of the extras that they name."""
    for line in requires:
        try:
            one = Requirement(line)
        except InvalidRequirement as error:
            raise UsageError(
                f"the requirement {one_line(line, 80)!r} cannot be read: {one_line(str(error), 80)}"
            ) from None
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        yield one
        installed = _distribution(one.name) if one.extras else None
        for extra_line in (installed.requires or ()) if installed is not None else ():
            more = Requirement(extra_line)
            wanted = [
                extra for extra in one.extras if more.marker is not None and more.marker.evaluate({"extra": extra})
            ]
            if wanted and not (more.marker and more.marker.evaluate({"extra": ""})) and more.name != one.name:
                yield more


def _files(installed: Distribution) -> Iterator[Path]:
    """The uppermost files and folders of a distribution; lines that Python would run at its start are left out.

    Of one that is installed editable: the packages in the folders that its `.pth` file names.
    """
    tops = {
        file.parts[0] for file in installed.files or () if file.parts and file.parts[0] not in ("..", "__pycache__")
    }
    for top in sorted(tops):
        path = Path(str(installed.locate_file(top)))
        if top.endswith(".pth") and path.is_file():
            folders = [line for line in path.read_text(encoding="utf-8").splitlines() if Path(line).is_absolute()]
            yield from (init.parent for folder in folders for init in sorted(Path(folder).glob("*/__init__.py")))
        elif path.exists():
            yield path


def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except (PackageNotFoundError, ValueError):
        return None


def _version(name: str) -> str | None:
    if _normal(name) == OURSELVES:
        return wanderlust.__version__
    installed = _distribution(name)
    return None if installed is None else installed.version


def _normal(name: str) -> str:
    return name.replace("_", "-").replace(".", "-").lower()
