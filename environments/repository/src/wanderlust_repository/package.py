"""A source distribution or a folder as a package with tests: its files, layout, licence, requirements and digest."""

from __future__ import annotations

import io
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from functools import cached_property
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from wanderlust.errors import UsageError, WanderlustError, one_line

MAX_PACKAGE_BYTES = 64 << 20
"""Most bytes of a package's files, unpacked."""
MAX_PACKAGE_FILES = 5_000
SKIPPED_FOLDERS = frozenset({".git", ".hg", ".tox", ".venv", "venv", "__pycache__", "node_modules", ".mypy_cache"})
_OTHER_FOLDERS = frozenset(
    {"tests", "test", "testing", "docs", "doc", "examples", "example", "benchmarks", "benchmark", "tools", "scripts"}
    | {"build", "dist", "setup", "ci", "bench", "perf", "samples", "fuzz", "misc", "utils", "tasks", "extras"}
)
"""Folders beside a package that are no package to make tasks of."""
_ROOT_MODULES = re.compile(r"(setup|conftest|noxfile|tasks|versioneer|fabfile|manage|run_?tests?|.*bench.*)\.py")
_TEST_FILE = re.compile(r"(test_.*|.*_test|tests|test)\.py")
_SUPPORT_FOLDERS = frozenset({"tests", "test", "testing"})
_SUPPORT_FILE = re.compile(r"(conftest|testing|.*_test|test_.*|tests|test|_?test_?(utils?|helpers?))\.py")
TEST_EXTRAS = ("test", "tests", "testing")
_NO_TEST_NEED = frozenset(
    {"pytest-cov", "coverage", "tox", "mypy", "ruff", "black", "flake8", "isort", "pre-commit", "sphinx", "twine"}
    | {"build", "pylint", "codecov", "coveralls", "nox", "pytest-xdist", "pytest-benchmark", "pytest-sugar", "furo"}
)
"""Requirements of test extras that no test needs."""


class NotMineable(WanderlustError):
    """A package that no tasks are made of; `name` is the case in a few words."""

    def __init__(self, name: str, why: str = ""):
        super().__init__(f"{name}: {why}" if why else name)
        self.name, self.why = name, why


@dataclass(frozen=True, kw_only=True)
class SourcePackage:
    """The files of one package, as they are distributed."""

    name: str
    version: str
    digest: str
    """SHA-256 of the archive; of a folder, of its files."""
    licence: str
    requires: tuple[str, ...]
    """Requirements of the package and of its test extras."""
    metadata: bytes
    """The text of PKG-INFO; empty where there is none."""
    files: Mapping[str, bytes]

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.name}-{self.version}"

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every file."""
        return {path: sha256(data).hexdigest() for path, data in self.files.items()}

    @cached_property
    def tests(self) -> tuple[str, ...]:
        """Files that pytest collects."""
        found = [path for path in self.files if _TEST_FILE.fullmatch(PurePosixPath(path).name)]
        return tuple(sorted(path for path in found if not _OTHER_FOLDERS_APART.intersection(path.split("/")[:-1])))

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Folders that modules are imported from: `src`, `lib`, or the folder itself, which is empty."""
        return tuple(dict.fromkeys(path.rpartition(top)[0].strip("/") for path, top in self._tops()))

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The package's own modules: no tests, and nothing that supports tests."""
        tops = [path for path, _ in self._tops()]
        mine = [p for p in self.files if p.endswith(".py") and any(p == t or p.startswith(f"{t}/") for t in tops)]
        return tuple(sorted(path for path in mine if not is_test_support(path)))

    @cached_property
    def top_names(self) -> tuple[str, ...]:
        """What is imported: names of packages and modules."""
        return tuple(sorted({top.removesuffix(".py") for _, top in self._tops()}))

    def _tops(self) -> list[tuple[str, str]]:
        """The packages and modules at the top: path and name."""
        found: dict[str, str] = {}
        for base in ("src/", "lib/", ""):
            for path in self.files:
                if not path.startswith(base):
                    continue
                first, _, rest = path.removeprefix(base).partition("/")
                package = rest == "__init__.py" and first not in {*_OTHER_FOLDERS, "src", "lib"}
                if package or _is_root_module(path.removeprefix(base)):
                    found[f"{base}{first}"] = first
            if found:
                break
        own = {self.name.lower().replace("-", "_").replace(".", "_")}
        own |= {one.removeprefix("python_") for one in own} | {f"{one}.py" for one in own}
        named = {path: top for path, top in found.items() if top.lower() in own}
        return sorted((named or found).items())


_OTHER_FOLDERS_APART = _OTHER_FOLDERS - {"tests", "test", "testing", "utils", "tasks", "ci", "tools"}


def is_test_support(path: str) -> bool:
    """Whether a file belongs to the tests: by its own name or by a folder's."""
    *folders, name = path.split("/")
    return bool(_SUPPORT_FOLDERS.intersection(folders)) or bool(_SUPPORT_FILE.fullmatch(name))


def _is_root_module(path: str) -> bool:
    """Whether a file at the top is a module of the package."""
    own = path.endswith(".py") and "/" not in path
    return own and not is_test_support(path) and not _ROOT_MODULES.fullmatch(path)


def read_package(path: Path) -> SourcePackage:
    """Read a source distribution (`.tar.gz`, `.zip`) or a folder; nothing of it is run.

    Raises NotMineable for an archive that cannot be read, is too large, or holds no Python package, and UsageError
    where there is nothing at `path`.
    """
    if not path.exists():
        raise UsageError(f"there is no file or folder {path}")
    if path.is_dir():
        files = _read_folder(path)
        body = "".join(f"{name}\0{sha256(data).hexdigest()}\n" for name, data in files.items())
        digest = sha256(body.encode()).hexdigest()
    else:
        files, digest = _read_archive(path), sha256(path.read_bytes()).hexdigest()
    facts = _facts(files, path)
    package = SourcePackage(digest=digest, files=files, **facts)
    if not package.sources:
        raise NotMineable("no package", "no Python package or module beside the tests")
    if not package.tests:
        raise NotMineable("no tests", "no file test_*.py, *_test.py or tests.py")
    return package


def _read_folder(folder: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for place in sorted(folder.rglob("*")):
        path = place.relative_to(folder)
        if SKIPPED_FOLDERS.intersection(path.parts) or place.is_symlink() or not place.is_file():
            continue
        files[path.as_posix()] = place.read_bytes()
        _check_size(files)
    return files


def _check_size(files: Mapping[str, bytes]) -> None:
    if len(files) > MAX_PACKAGE_FILES or sum(map(len, files.values())) > MAX_PACKAGE_BYTES:
        raise NotMineable("too large", f"more than {MAX_PACKAGE_FILES:,} files or {MAX_PACKAGE_BYTES >> 20} MiB")


def _read_archive(path: Path) -> dict[str, bytes]:
    try:
        opened = path.open("rb")
        with opened:
            start = opened.read(4)
        entries = list(_zip_entries(path) if start.startswith(b"PK") else _tar_entries(path))
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
        raise NotMineable("unreadable", one_line(str(error)) or type(error).__name__) from error
    entries = [(name, data) for name, data in entries if name and ".." not in name.split("/")]
    tops = {name.split("/", 1)[0] for name, _ in entries}
    files = {}
    for name, data in entries:
        inside = name.split("/", 1)[1] if len(tops) == 1 and "/" in name else name
        if not SKIPPED_FOLDERS.intersection(inside.split("/")):
            files[inside] = data
    return dict(sorted(files.items()))


def _tar_entries(path: Path) -> Iterator[tuple[str, bytes]]:
    total = count = 0
    with tarfile.open(path) as archive:
        for member in archive:
            total, count = total + member.size, count + 1
            if total > MAX_PACKAGE_BYTES or count > 4 * MAX_PACKAGE_FILES:
                raise NotMineable("too large", f"more than {MAX_PACKAGE_BYTES >> 20} MiB")
            if member.isreg() and (file := archive.extractfile(member)) is not None:
                yield member.name.removeprefix("./").lstrip("/"), file.read()


def _zip_entries(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
        if sum(info.file_size for info in infos) > MAX_PACKAGE_BYTES or len(infos) > 4 * MAX_PACKAGE_FILES:
            raise NotMineable("too large", f"more than {MAX_PACKAGE_BYTES >> 20} MiB")
        for info in infos:
            yield info.filename.lstrip("/"), archive.read(info)


def _facts(files: Mapping[str, bytes], path: Path) -> dict[str, Any]:
    """Name, version, licence and requirements, from PKG-INFO or else from pyproject.toml."""
    project: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    try:
        parsed = tomllib.loads(files.get("pyproject.toml", b"").decode("utf-8", "replace"))
        project, groups = parsed.get("project", {}), parsed.get("dependency-groups", {})
    except tomllib.TOMLDecodeError:
        pass
    metadata = files.get("PKG-INFO", b"")
    info = BytesParser().parsebytes(metadata) if metadata else Message()
    stem = re.sub(r"\.(tar\.\w+|tgz|zip)$", "", path.name)
    name = str(info.get("Name") or project.get("name") or stem.rpartition("-")[0] or stem)
    requires = [*(info.get_all("Requires-Dist") or project.get("dependencies", []))]
    if not info.get_all("Requires-Dist"):
        requires += _egg_requirements(files)
    for extra in TEST_EXTRAS:
        requires += project.get("optional-dependencies", {}).get(extra, []) if not metadata else []
        requires += [one for one in groups.get(extra, []) if isinstance(one, str)]
    return {
        "name": re.sub(r"[^A-Za-z0-9._-]", "-", name),
        "version": str(info.get("Version") or project.get("version") or stem.rpartition("-")[2] or "0"),
        "licence": _licence(info, project, files),
        "requires": tuple(dict.fromkeys(one for raw in requires if (one := needed_for_tests(str(raw))))),
        "metadata": metadata,
    }


def _egg_requirements(files: Mapping[str, bytes]) -> list[str]:
    """The unconditional requirements that setuptools wrote beside an old PKG-INFO."""
    found = [data for path, data in files.items() if path.endswith(".egg-info/requires.txt")]
    lines = found[0].decode("utf-8", "replace").split("[", 1)[0].splitlines() if found else []
    return [line.strip() for line in lines if line.strip()]


def needed_for_tests(requirement: str) -> str:
    """The requirement without the marker of a test extra; empty where only another extra, or no test, needs it."""
    extras = re.findall(r"extra\s*==\s*['\"]([\w.-]+)['\"]", requirement)
    name = re.split(r"[\s<>=!~;\[(]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")
    if (extras and not set(extras) & set(TEST_EXTRAS)) or name in _NO_TEST_NEED:
        return ""
    marker = r"\s*(and\s+)?\(?extra\s*==\s*['\"][\w.-]+['\"]\)?(\s+and)?"
    bare = re.sub(marker, "", requirement).strip()
    return bare.removesuffix(";").strip()


def _licence(info: Message, project: Mapping[str, Any], files: Mapping[str, bytes]) -> str:
    """The identifier or name that the package gives itself; `unknown` where it gives none."""
    given = info.get("License-Expression") or info.get("License") or ""
    if not given and isinstance(project.get("license"), str):
        given = project["license"]
    if not given and isinstance(project.get("license"), Mapping):
        given = project["license"].get("text", "")
    if not str(given).strip() or len(str(given)) > 60:
        kinds = [one for one in info.get_all("Classifier") or [] if one.startswith("License ::")]
        given = kinds[0].rpartition("::")[2] if kinds else str(given).strip().partition("\n")[0]
    return one_line(str(given).strip(), 60) or "unknown"


def licence_text(files: Mapping[str, bytes]) -> str:
    """The text of the licence file; empty where there is none."""
    names = [name for name in files if re.match(r"(licen[cs]e|copying)", name.rpartition("/")[2], re.IGNORECASE)]
    return files[min(names, key=len)].decode("utf-8", "replace") if names else ""


def as_archive(files: Mapping[str, bytes], folder: str = "") -> bytes:
    """The files as a tar without times and owners: equal files, equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        made: set[str] = set()
        for path in sorted(files):
            full = f"{folder}/{path}" if folder else path
            for parent in reversed(PurePosixPath(full).parents[:-1]):
                if str(parent) not in made:
                    made.add(str(parent))
                    entry = tarfile.TarInfo(str(parent))
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    archive.addfile(entry)
            entry = tarfile.TarInfo(full)
            entry.size, entry.mode = len(files[path]), 0o644
            archive.addfile(entry, io.BytesIO(files[path]))
    return buffer.getvalue()


def read_tar(data: bytes) -> dict[str, bytes]:
    """The regular files of such a tar."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {one.name: file.read() for one in archive if one.isreg() and (file := archive.extractfile(one))}
