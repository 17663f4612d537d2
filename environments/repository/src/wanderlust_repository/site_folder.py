"""The libraries that a suite needs beside its package: installed by pip as wheels, kept as one archive."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from wanderlust.errors import UsageError, one_line
from wanderlust.store.whole_files import replacing
from wanderlust_repository.package import NotMineable, SourcePackage, as_archive, read_tar

RUNNER_REQUIREMENT = "pytest>=8.4,<10"
RUNNER_PACKAGES = frozenset({"pytest", "pluggy", "iniconfig", "packaging", "pygments"})
"""What the runner of the tests is made of: no tasks are made of these."""
MAX_SITE_BYTES = 150 << 20
PIP_TIMEOUT_SECONDS = 300.0
_LEFT_OUT = (".pyc", ".pyi", ".so.debug", ".exe")


@cache
def sandbox_python() -> str:
    """Version of the Python inside the sandbox, as `3.11`. Raises UsageError where there is none."""
    words = ["/usr/local/bin/python3"] if Path("/usr/local/bin/python3").exists() else ["/usr/bin/python3"]
    line = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([*words, "-I", "-S", "-c", line], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError("there is no Python that a sandbox can run: install one under /usr") from error
    return done.stdout.strip()


def site_key(requirements: Sequence[str]) -> str:
    """Name of the archive of these requirements for the sandbox's Python."""
    return sha256("\n".join([sandbox_python(), *sorted(requirements)]).encode()).hexdigest()[:16]


def requirements_of(package: SourcePackage, with_: Sequence[str] = ()) -> list[str]:
    """Everything that the suite of a package needs; what the caller names comes last.

    Raises NotMineable for a package that the runner itself is made of.
    """
    if package.name.lower() in RUNNER_PACKAGES:
        raise NotMineable("runner", "the runner of the tests is made of this package")
    own = package.name.lower().replace("_", "-")
    mine = [one for one in package.requires if not one.lower().replace("_", "-").startswith("pytest-cov")]
    kept = [one for one in mine if not _names(one, own) and not _names(one, "pytest")]
    return [RUNNER_REQUIREMENT, *dict.fromkeys([*kept, *with_])]


def _names(requirement: str, name: str) -> bool:
    head = requirement.lower().replace("_", "-")
    return head.startswith(name) and not head[len(name) : len(name) + 1].replace("-", "a").isalnum()


def load_site(
    package: SourcePackage, requirements: Sequence[str], folder: Path | None, *, installed: bool = False
) -> dict[str, bytes]:
    """The files of the site folder: from the archive in `folder`, or installed by pip and kept there.

    Only wheels are installed, so that nothing of them runs here. The package itself is left out; its metadata is added.
    With `installed` the libraries are copied from this Python's own, without a network. Without a folder nothing is
    kept, and pip is asked only for what this Python does not have.
    Raises NotMineable where pip finds no wheels, or a library is not installed.
    """
    if folder is None:
        try:
            return add_metadata(package, _copy_installed(requirements))
        except NotMineable:
            return add_metadata(package, install_requirements(requirements))
    archive = folder / f"{site_key(requirements)}.tar"
    if not archive.exists():
        data = as_archive(_copy_installed(requirements) if installed else install_requirements(requirements))
        with replacing(archive, shared=True) as draft:
            draft.write_bytes(data)
    return add_metadata(package, read_tar(archive.read_bytes()))


def add_metadata(package: SourcePackage, site: Mapping[str, bytes]) -> dict[str, bytes]:
    """A site without any copy of the package, with the metadata that `importlib.metadata` looks for."""
    tops = {*package.top_names}
    files = {path: data for path, data in site.items() if path.split("/")[0].removesuffix(".py") not in tops}
    info = f"{package.name.replace('-', '_')}-{package.version}.dist-info"
    text = package.metadata or f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {package.version}\n".encode()
    entry_points = [data for path, data in package.files.items() if path.endswith(".egg-info/entry_points.txt")]
    return files | {f"{info}/METADATA": text} | ({f"{info}/entry_points.txt": entry_points[0]} if entry_points else {})


def _copy_installed(requirements: Sequence[str]) -> dict[str, bytes]:
    """The files of installed distributions, with all that they require."""
    if f"{sys.version_info[0]}.{sys.version_info[1]}" != sandbox_python():
        raise NotMineable("requirements", f"this is not Python {sandbox_python()}, as in the sandbox")
    files: dict[str, bytes] = {}
    seen, waiting = set[str](), [*requirements]
    while waiting:
        requirement = waiting.pop()
        name = re.split(r"[\s<>=!~;\[(]", requirement, maxsplit=1)[0].lower()
        if name in seen or "extra ==" in requirement or re.search(r"python_version\s*<|win32", requirement):
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError as error:
            raise NotMineable("requirements", f"{name} is not installed here") from error
        waiting += found.requires or []
        for path in found.files or []:
            place = Path(str(path.locate()))
            if ".." not in path.parts and place.is_file() and not path.name.endswith(_LEFT_OUT):
                files[path.as_posix()] = place.read_bytes()
    return files


def install_requirements(requirements: Sequence[str]) -> dict[str, bytes]:
    """The files that pip installs for the sandbox's Python, from wheels alone. Raises NotMineable."""
    with tempfile.TemporaryDirectory(prefix="wanderlust-site-") as place:
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        words += ["--target", place, "--only-binary", ":all:", "--python-version", sandbox_python()]
        try:
            done = subprocess.run(
                [*words, *requirements], capture_output=True, text=True, check=False, timeout=PIP_TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise NotMineable("requirements", f"pip took more than {PIP_TIMEOUT_SECONDS:g} s") from error
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr]
            raise NotMineable("requirements", one_line(errors[-1].removeprefix("ERROR: ")))
        files = {
            path.relative_to(place).as_posix(): path.read_bytes()
            for path in sorted(Path(place).rglob("*"))
            if path.is_file() and not path.is_symlink() and not path.name.endswith(_LEFT_OUT)
        }
    if sum(map(len, files.values())) > MAX_SITE_BYTES:
        raise NotMineable("requirements", f"the libraries have more than {MAX_SITE_BYTES >> 20} MiB")
    return {path: data for path, data in files.items() if not path.startswith("bin/")}
