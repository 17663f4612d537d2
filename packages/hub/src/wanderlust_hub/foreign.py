"""Environments from elsewhere, as packages of ours: `KIND:PLACE`, with a name where the place has several.

| kind | place | what is wrapped |
|---|---|---|
| `gymnasium` | an id | a world of the installed Gymnasium, with a finite set of actions |
| `textarena` | an id | a game of the installed TextArena for one |
| `openenv` | a folder | the application of a folder with an openenv.yaml |
| `verifiers` | a folder | a package whose module has `load_environment` |
| `harbor` | a folder or registry.json | task folders, fetched by git at their commit where the registry says so |

Nothing of a place is imported or run to list or wrap it; git is run for registries alone.
"""

from __future__ import annotations

import re
import subprocess
import tarfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from wanderlust._lazy import needs_extra
from wanderlust.errors import UsageError, nearest_names, one_line
from wanderlust.tasks.registry import installed_environments, resolve_object
from wanderlust_hub.entry import MAX_NAME_CHARS, MAX_REQUIREMENTS, MAX_TEXT_CHARS, VERSION_FORM
from wanderlust_hub.index import MAX_PART_BYTES
from wanderlust_hub.package_draft import PackageDraft
from wanderlust_hub.permissions import read_permissions

SEPARATOR = "#"
"""Between a place and a name in it."""
HARBOR_TARGET, HARBOR_FOLDER = "wanderlust.environments.harbor:Harbor", "tasks"
"""Target of packages that hold tasks and no code: they are played by this installation's own environment, whatever its
module is called. Published packages have it."""
DEFAULT_VERSION = "0.1.0"
MAX_FILES, MAX_REGISTRY_BYTES, GIT_SECONDS = 5_000, 1 << 24, 300
GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never", "-c", "protocol.https.allow=always")
LEFT_OUT = ("__pycache__", "node_modules")
SDK_TRANSPORT = "httpx2>=2,<3"
"""By which OpenAI's SDK speaks to a seat; verifiers does not bring it."""
HERE = 'str(Path(__file__).parent / "app")'


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignName:
    """An environment that can be wrapped: `ForeignName(name="Taxi-v4", summary="gymnasium.envs...")`."""

    name: str
    """As its place calls it."""
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSource:
    """A place with environments of one kind."""

    kind: str
    place: str

    def __str__(self) -> str:
        """As it was written."""
        return f"{self.kind}:{self.place}"

    def names(self) -> list[ForeignName]:
        """What can be wrapped, by name. Raises UsageError where the place cannot be read."""
        return sorted(KINDS[self.kind].names(self.place), key=lambda one: one.name)

    def draft(self, name: str = "") -> PackageDraft:
        """A package around one environment; the name may be left out where there is one alone."""
        found = {one.name: one for one in self.names()}
        if not name and len(found) != 1:
            raise UsageError(f"{self} has {len(found)} environments: name one, as in {self}{SEPARATOR}NAME")
        if name and name not in found:
            raise UsageError(f"{self} has no {name!r}; {nearest_names(name, [*found], kind='environments')}")
        chosen = found[name] if name else next(iter(found.values()))
        return KINDS[self.kind].draft(self.place, chosen)


def foreign_source(text: str) -> tuple[ForeignSource, str] | None:
    """A source and a name in it, of `KIND:PLACE`, `KIND:PLACE#NAME` or `gymnasium:ID`; None for anything else."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in KINDS:
        return None
    if kind in ("gymnasium", "textarena"):
        return ForeignSource(kind=kind, place=""), rest
    place, _, name = rest.partition(SEPARATOR)
    return ForeignSource(kind=kind, place=place), name


def hub_name(name: str) -> str:
    """A name for a hub: `FrozenLake-v1` becomes `frozenlake-v1`."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return (plain if plain[:1].isalpha() else f"env-{plain}")[:MAX_NAME_CHARS].strip("-")


def module_text(summary: str, *, module: str, factory: str, words: str) -> str:
    """The module of a package: `environment` makes its environment."""
    made = f"partial({factory}, {words})" if words else factory
    imports = ["from functools import partial"] if words else []
    imports += ["from pathlib import Path"] if "Path(" in words else []
    head = "".join(f"{line}\n" for line in imports) + ("\n" if imports else "")
    return f'"""{summary}"""\n\n{head}from {module} import {factory}\n\nenvironment = {made}\n'


def _wrapped(
    name: str, found: ForeignName, *, module: str, factory: str, words: str, requires: tuple[str, ...], **more: Any
) -> PackageDraft:
    """A package of one module that hands some arguments to an adapter."""
    package, summary = f"wrapped_{hub_name(name).replace('-', '_')}", one_line(found.summary, MAX_TEXT_CHARS)
    plain = summary.replace("\\", "/").replace('"', "'")
    text = module_text(plain, module=module, factory=factory, words=words)
    files = {f"{package}/__init__.py": text.encode()}
    files |= {f"{package}/app/{path}": body for path, body in more.pop("files", {}).items()}
    more.setdefault("version", DEFAULT_VERSION)
    requires = ("wanderlust", *requires) if not any(one.startswith("wanderlust") for one in requires) else requires
    return PackageDraft(
        name=hub_name(name),
        summary=summary,
        requires=requires[:MAX_REQUIREMENTS],
        target=f"{package}:environment",
        files=files,
        **more,
    )


def _gymnasium_names(place: str) -> Iterator[ForeignName]:
    with needs_extra("gymnasium"):
        import gymnasium
    for name, spec in gymnasium.registry.items():
        yield ForeignName(name=name, summary=f"Gymnasium's {name} ({spec.entry_point})")


def _gymnasium_draft(place: str, found: ForeignName) -> PackageDraft:
    return _wrapped(
        found.name,
        found,
        module="wanderlust_gymnasium.environment",
        factory="GymnasiumText",
        words=repr(found.name),
        requires=("wanderlust-gymnasium[gymnasium]",),
        version=plain_version(version("gymnasium")),
    )


def _textarena_names(place: str) -> Iterator[ForeignName]:
    with needs_extra("textarena"):
        import textarena
    for name, spec in textarena.envs.registration.ENV_REGISTRY.items():
        if not name.endswith(("-raw", "-train")):
            yield ForeignName(name=name, summary=f"TextArena's {name} ({spec.entry_point})")


def _textarena_draft(place: str, found: ForeignName) -> PackageDraft:
    return _wrapped(
        found.name,
        found,
        module="wanderlust_textarena.environment",
        factory="TextArena",
        words=repr(found.name),
        requires=("wanderlust-textarena[textarena]",),
        version=plain_version(version("textarena")),
    )


def _openenv_names(place: str) -> Iterator[ForeignName]:
    for folder in _folders(place, "openenv.yaml"):
        said = read_flat_yaml(folder / "openenv.yaml")
        yield ForeignName(name=said.get("name") or folder.name, summary=f"OpenEnv's {said.get('name') or folder.name}")


def _openenv_draft(place: str, found: ForeignName) -> PackageDraft:
    for folder in _folders(place, "openenv.yaml"):
        said = read_flat_yaml(folder / "openenv.yaml")
        if (said.get("name") or folder.name) == found.name:
            app = said.get("app", "server.app:app")
            return _wrapped(
                found.name,
                found,
                module="wanderlust_hub.openenv_app",
                factory="OpenEnvApp",
                words=f"{HERE}, app={app!r}, name={found.name!r}",
                files=folder_files(folder),
                **_from_pyproject(folder, said.get("version", "")),
            )
    raise UsageError(f"{place} has no {found.name}")


def _verifiers_names(place: str) -> Iterator[ForeignName]:
    for folder in _folders(place, "pyproject.toml"):
        project = _project(folder)
        if any(re.match(r"verifiers\b", one) for one in project.get("dependencies", [])):
            summary = str(project.get("description") or f"verifiers' {project.get('name')}")
            yield ForeignName(name=str(project.get("name") or folder.name), summary=summary)


def _verifiers_draft(place: str, found: ForeignName) -> PackageDraft:
    for folder in _folders(place, "pyproject.toml"):
        if str(_project(folder).get("name") or folder.name) == found.name:
            module = found.name.replace("-", "_")
            if not any((folder / one).exists() for one in (f"{module}.py", f"{module}/__init__.py")):
                raise UsageError(f"{folder} has no module {module}, which its name asks for")
            said = _from_pyproject(folder, "")
            return _wrapped(
                found.name,
                found,
                module="wanderlust_hub.verifiers_environment",
                factory="VerifiersEnvironment",
                words=f"{module!r}, folder={HERE}",
                files=folder_files(folder),
                **{**said, "requires": (SDK_TRANSPORT, *said["requires"])},
            )
    raise UsageError(f"{place} has no {found.name}")


def harbor_class() -> Any:
    """The environment of Harbor tasks, which a package brings. Raises UsageError where it is not installed."""
    target = installed_environments().get("harbor")
    if target is None:
        raise UsageError("this needs the environment 'harbor': install it with pip install 'wanderlust[environments]'")
    return resolve_object(target)


def _harbor_names(place: str) -> Iterator[ForeignName]:
    top = Path(place)
    if top.is_file():
        for one in read_registry(top):
            summary = one_line(f"{one.description or 'Harbor tasks'} ({len(one.tasks)} tasks)", MAX_TEXT_CHARS)
            yield ForeignName(name=one.name, summary=summary)
    elif any(_folders(place, "task.toml")):
        yield ForeignName(name=top.resolve().name, summary=f"Harbor tasks of {top.resolve().name}")


def _harbor_draft(place: str, found: ForeignName) -> PackageDraft:
    top, number = Path(place), ""
    files = dict[str, bytes]()
    with TemporaryDirectory(prefix="wander-harbor-") as scratch:
        if top.is_file():
            chosen = next(one for one in read_registry(top) if one.name == found.name)
            number, folders = chosen.version, [*_fetched(chosen.tasks, top.parent, Path(scratch))]
        else:
            folders = [*_folders(place, "task.toml")]
        for folder in folders:
            harbor_class().read_task(folder)  # raises UsageError for a malformed one
            files |= {f"{HARBOR_FOLDER}/{folder.name}/{path}": body for path, body in folder_files(folder).items()}
    _check_size(files, place)
    return PackageDraft(
        name=hub_name(found.name),
        version=plain_version(number),
        summary=found.summary,
        requires=("wanderlust",),
        target=HARBOR_TARGET,
        files=files,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryTask:
    """A task of a registry: `RegistryTask(path="tasks/hello", git_url="https://...", git_commit_id="9f86...")`."""

    path: str
    """Within the repository, or beside the registry where there is none."""
    git_url: str = ""
    git_commit_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySet:
    """A data set of a registry."""

    name: str
    tasks: tuple[RegistryTask, ...]
    version: str = ""
    description: str = ""


def read_registry(file: Path) -> list[RegistrySet]:
    """The data sets of a Harbor registry. Raises UsageError of one line for anything else."""
    try:
        if file.stat().st_size > MAX_REGISTRY_BYTES:
            raise UsageError(f"{file} has more than {MAX_REGISTRY_BYTES:,} bytes")
        return msgspec.json.decode(file.read_bytes(), type=list[RegistrySet])
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is no registry of Harbor: {one_line(str(error), 100)}") from None


def _fetched(tasks: Iterable[RegistryTask], beside: Path, scratch: Path) -> Iterator[Path]:
    """The folders of a registry's tasks; those of other repositories by git, at their commit."""
    for number, task in enumerate(tasks):
        url, commit, path = task.git_url, task.git_commit_id, task.path
        if ".." in Path(path).parts or Path(path).is_absolute():
            raise UsageError(f"{one_line(path, 80)!r} leads out of the repository of its task")
        if not url:
            yield beside / path
            continue
        if not re.fullmatch(r"[0-9a-f]{40}", commit):
            raise UsageError(f"{one_line(path, 80)}: a task is fetched at a commit of 40 digits, and not at {commit!r}")
        store, place = scratch / "store.git", scratch / str(number)
        if not url.startswith(("https://", "file://")):
            raise UsageError(f"{one_line(url, 80)!r} is no https:// address of a repository")
        _git(scratch, "init", "--bare", "--quiet", str(store))
        local = ("-c", "protocol.file.allow=always") if url.startswith("file://") else ()
        _git(store, *local, "fetch", "--quiet", "--depth", "1", url, commit)
        if not hasattr(tarfile, "data_filter"):
            raise UsageError("tasks of other repositories are unpacked by Python 3.11.4 or later")
        with tarfile.open(fileobj=BytesIO(_git(store, "archive", "--format=tar", commit, path))) as archive:
            archive.extractall(place, filter="data")
        yield place / path


def _git(folder: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(
            [*GIT, *words], cwd=folder, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=GIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"git cannot be run: {one_line(str(error), 120)}") from None
    if done.returncode:
        raise UsageError(f"git failed: {one_line(done.stderr.decode(errors='replace'), 200)}")
    return done.stdout


def _folders(place: str, file: str) -> Iterator[Path]:
    """The place, or the folders in it, that have a file."""
    top = Path(place)
    if not top.is_dir():
        raise UsageError(f"there is no folder {place!r}")
    if (top / file).is_file():
        yield top
    else:
        yield from (one.parent for one in sorted(top.glob(f"*/{file}")))


def folder_files(folder: Path) -> dict[str, bytes]:
    """The regular files below a folder, hidden ones aside. Raises UsageError for too many, and links that lead out."""
    top, files = folder.resolve(), dict[str, bytes]()
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if any(one.startswith(".") or one in LEFT_OUT for one in parts) or not path.is_file():
            continue
        if not path.resolve().is_relative_to(top):
            raise UsageError(f"{path} leads out of its folder")
        files["/".join(parts)] = path.read_bytes()
        if len(files) > MAX_FILES:
            raise UsageError(f"{folder} has more than {MAX_FILES:,} files")
    _check_size(files, str(folder))
    return files


def _check_size(files: Mapping[str, bytes], place: str) -> None:
    if sum(map(len, files.values())) > MAX_PART_BYTES:
        raise UsageError(f"{place} has more than {MAX_PART_BYTES:,} bytes, and a hub takes no more")


def _project(folder: Path) -> Mapping[str, Any]:
    try:
        table = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder / 'pyproject.toml'} cannot be read: {one_line(str(error), 120)}") from None
    return table if isinstance(table, dict) else {}


def _from_pyproject(folder: Path, number: str) -> dict[str, Any]:
    """Version, requirements and permissions of a folder, as its pyproject.toml says them, if it has one."""
    if not (folder / "pyproject.toml").is_file():
        return {"requires": (), "version": plain_version(number)}
    project = _project(folder)
    return {
        "requires": tuple(one_line(str(one), MAX_TEXT_CHARS) for one in project.get("dependencies", [])),
        "version": plain_version(str(project.get("version") or number)),
        "permissions": read_permissions(folder / "pyproject.toml"),
    }


def plain_version(text: str) -> str:
    """A version as a hub takes it; DEFAULT_VERSION in place of any other."""
    return text if re.match(VERSION_FORM, text) else DEFAULT_VERSION


def read_flat_yaml(file: Path) -> dict[str, str]:
    """The scalars of a YAML file's first level; what is nested is left out."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {one_line(str(error), 120)}") from None
    found = {}
    for line in lines:
        if match := re.fullmatch(r"([A-Za-z_][\w-]*):\s+(\"[^\"]*\"|'[^']*'|[^#\s][^#]*?)\s*(#.*)?", line):
            found[match[1]] = match[2].strip("\"'")
    return found


@dataclass(frozen=True, slots=True)
class _Kind:
    names: Callable[[str], Iterator[ForeignName]]
    draft: Callable[[str, ForeignName], PackageDraft]


KINDS: Mapping[str, _Kind] = {
    "gymnasium": _Kind(_gymnasium_names, _gymnasium_draft),
    "textarena": _Kind(_textarena_names, _textarena_draft),
    "openenv": _Kind(_openenv_names, _openenv_draft),
    "verifiers": _Kind(_verifiers_names, _verifiers_draft),
    "harbor": _Kind(_harbor_names, _harbor_draft),
}
