"""What made a rollout: digests of code, rubric, tasks and settings; and `wander.lock`, enough to make a run again."""

from __future__ import annotations

import ast
import gc
import hashlib
import inspect
import json
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, distributions, version
from importlib.util import find_spec
from inspect import isfunction
from pathlib import Path
from typing import Any

import msgspec

import wanderlust
from wanderlust.environment import Environment, Limits
from wanderlust.errors import StoreError, UsageError
from wanderlust.store.whole_files import replacing
from wanderlust.types import RubricLike, Task

LOCK_FILE = "wander.lock"
"""File of a run's folder that says what made it."""
LOCK_FORMAT = "wander-lock-1"
CONTRACT = ("environment.py", "agent/limits.py", "rubrics", "tasks", "tools")
"""Files and folders of the core that decide what any environment does and what it rewards."""
OWN_PART = re.compile(r"wanderlust(?:_\w+|\.(?:data|worlds|(?:adapters|environments)\.\w+))\b")
"""Names of what else is ours: packages beside the core, and parts of the core that only some environments use."""
MAX_DATA_BYTES = 64 * 2**20
"""Bytes of the largest data file beside an environment that is read for its digest."""
MAX_SOURCE_BYTES = 2**20
"""Bytes of all sources together that a lock keeps."""
DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What made rollouts, as one digest of everything that they depend on besides the answers of a server.

    Example:
        >>> provenance_of(env, tasks=env.tasks("eval")).digest
        '1f0c5b7d2a9e4c63'
    """

    inputs: Mapping[str, str]
    """Digest or version of each thing that decides about the rollouts, by what it is: files, packages, tasks, ..."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Text of the environment's own files, by their path."""

    @property
    def digest(self) -> str:
        """Digest of all inputs, DIGEST_CHARS hexadecimal characters."""
        return _sha(json.dumps(dict(self.inputs), sort_keys=True).encode())


def changed_inputs(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of the inputs of `Provenance` that differ."""
    return [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]


def provenance_of(
    env: Environment,
    *,
    rubric: RubricLike | None = None,
    tasks: Iterable[Task] = (),
    limits: Limits | None = None,
    policy: object = None,
) -> Provenance:
    """Compute the digests of an environment, its rubric, its tasks and its settings, and of a policy or one per seat.

    Of our own code count the core's contract, and the packages that the environment, its rewards and the policy belong
    to, with those that they name. Code in another installed package counts by the package's version. Other code counts
    by the text of its file, of the files beside it that it imports, and of the data files that it names. `rubric` and
    `limits` default to the environment's own. Files whose names are made at run time are not seen, and wall-clock
    bounds do not count. Of a policy count its code, and its `label`, `digest` and `sampling`; its plain settings where
    it has none of these.
    """
    judge = rubric or env.rubric
    env = env.unwrapped
    named = policy if isinstance(policy, Mapping) else {} if policy is None else {"": policy}
    policies = {str(seat): getattr(one, "policy_here", None) or one for seat, one in named.items()}
    owners = [*map(type, _environments(env)), *_reward_functions(judge)]
    owners += [one for player in policies.values() for one in _functions(player)]
    sources, here = dict[str, str](), Path.cwd().resolve()
    files = sorted({path for owner in owners for path in _code_files(owner)})
    inputs = {"wanderlust": f"{wanderlust.__version__} {_contract()}"} | _own_parts(owners, files)
    for file in files:
        body = file.read_bytes()
        name = file.relative_to(here).as_posix() if file.is_relative_to(here) else file.as_posix()
        inputs[name] = _sha(body)
        if file.suffix == ".py" or len(body) < MAX_SOURCE_BYTES // 4:
            sources[name] = body.decode(errors="replace")
    for owner in owners:
        inputs.update(_package(owner))
    inputs["the rubric"] = _sha(repr(_rubric_plan(judge)).encode())
    inputs["the tasks"] = tasks_digest(tasks)
    inputs["the environment's settings"] = _sha(_plain(_settings(env)))
    limits = limits or env.limits
    bounds: dict[str, Any] = {name: value for name, value in limits.given().items() if name != "timeout"}
    bounds |= {"refusals": limits.refusals} if limits.refusals != "answer" else {}
    inputs["the limits"] = _sha(_plain(bounds))
    if policies:
        inputs["the policy"] = _sha(_plain({seat: _policy_plan(one) for seat, one in policies.items()}))
    if sum(map(len, sources.values())) > MAX_SOURCE_BYTES:
        sources = {}
    return Provenance(inputs=inputs, sources=sources)


def rescored_digest(digest: str, rubric: RubricLike) -> str:
    """Digest of rollouts that were made by `digest` and scored again by another rubric."""
    owners = _reward_functions(rubric)
    files = sorted({path for owner in owners for path in _code_files(owner)})
    packages = [sorted(_package(owner).items()) for owner in owners]
    plan = [digest, *(_sha(file.read_bytes()) for file in files), packages, _rubric_plan(rubric), _contract()]
    plan += sorted(_own_parts(owners, files).items())
    return _sha(repr(plan).encode())


def _sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:DIGEST_CHARS]


def _plain(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted", enc_hook=repr)


def tasks_digest(tasks: Iterable[Task]) -> str:
    """Digest of id, prompt, answer and info of every task, in their order."""
    digest = hashlib.sha256()
    for task in tasks:
        try:
            digest.update(_plain(task))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            digest.update(repr(task.id).encode())  # such a task fails before it is played
    return digest.hexdigest()[:DIGEST_CHARS]


def _environments(env: Environment) -> list[Environment]:
    """An environment and those that it holds: the one that it wraps, the parts of a mixture."""
    found, waiting = list[Environment](), [env.unwrapped]
    while waiting:
        one = waiting.pop()
        if any(one is other for other in found):
            continue
        found.append(one)
        for value in getattr(one, "__dict__", {}).values():
            held = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
            waiting += [near for near in held if isinstance(near, Environment)]
    return found


def _files_below(place: Path) -> list[Path]:
    """The files of a folder in the order of their paths, or the one file."""
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    return [file for file in files if file.is_file() and "__pycache__" not in file.parts]


@cache
def _contract() -> str:
    """Digest of the core's code that decides what any environment does."""
    root, digest = Path(wanderlust.__file__).parent, hashlib.sha256()
    for file in (file for name in CONTRACT for file in _files_below(root / name)):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:DIGEST_CHARS]


def _own_parts(owners: Iterable[Any], files: Iterable[Path]) -> dict[str, str]:
    """Digests of our packages and parts in which classes and functions are defined, or that these or files name."""
    kinds = [kind for owner in owners for kind in (inspect.getmro(owner) if inspect.isclass(owner) else (owner,))]
    modules = (OWN_PART.match(getattr(kind, "__module__", "") or "") for kind in kinds)
    found, waiting = dict[str, str](), [module[0] for module in modules if module]
    waiting += [name for file in files if file.suffix == ".py" for name in _own_names(file.read_bytes())]
    while waiting:
        name = waiting.pop()
        if name not in found and (part := _own_part(name)) is not None:
            found[name], names = part
            waiting += names
    return found


def _own_names(body: bytes) -> set[str]:
    """Our packages and parts that a file's text names."""
    return {*OWN_PART.findall(body.decode(errors="replace"))}


@cache
def _own_part(name: str) -> tuple[str, frozenset[str]] | None:
    """Digest of a package, or of a module or folder of the core, and the names of others in it; None if it is none."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    place, digest, names = origin.parent if spec.submodule_search_locations else origin, hashlib.sha256(), set[str]()
    for file in _files_below(place):
        body = file.read_bytes()
        digest.update(file.relative_to(place.parent).as_posix().encode() + b"\0" + body)
        if file.suffix == ".py":
            names |= _own_names(body)
    return digest.hexdigest()[:DIGEST_CHARS], frozenset(names - {name})


def _reward_functions(rubric: RubricLike | None) -> list[Any]:
    """The class of a rubric, and the functions of its parts where it has any."""
    if rubric is None:
        return []
    return [type(rubric), *(_unwrapped(part.function) for part in getattr(rubric, "parts", ()))]


def _unwrapped(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    return function if hasattr(function, "__module__") and hasattr(function, "__name__") else type(function)


def _rubric_plan(rubric: RubricLike | None) -> list[Any]:
    """Names, weights and roles of a rubric's parts, and the plain settings of its functions."""
    if rubric is None:
        return []
    parts = [
        (part.name, part.weight, part.role, _plain(_settings(part.function))) for part in getattr(rubric, "parts", ())
    ]
    return [type(rubric).__qualname__, _plain(_settings(rubric)), *parts]


def _functions(policy: Any) -> list[Any]:
    """The class of a policy and the functions that it holds."""
    held = getattr(policy, "__dict__", {}).values()
    return [type(policy), *(_unwrapped(one) for one in held if isinstance(one, partial) or isfunction(one))]


def _policy_plan(policy: Any) -> list[Any]:
    """What a policy is, besides its code."""
    known = [getattr(policy, name, None) for name in ("label", "digest", "sampling")]
    return [type(policy).__qualname__, *(known if any(known) else [_settings(policy)])]


def _settings(made: Any) -> dict[str, Any]:
    """Plain attributes of an object that are called like parameters of its constructor."""
    if isinstance(made, partial):
        return {name: value for name, value in made.keywords.items() if _is_plain(value)}
    try:
        names = inspect.signature(type(made)).parameters
    except (TypeError, ValueError):
        return {}
    found = {name: getattr(made, name, None) for name in names}
    return {name: value for name, value in found.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    """Whether a value is made of texts, numbers, lists and dicts alone."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(one) for name, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, str | int | float | None)


def _file_of(owner: Any) -> Path | None:
    """The file in which a class or function is defined; None where there is none (a notebook, a shell)."""
    try:
        file = inspect.getsourcefile(owner)
    except (TypeError, OSError):
        return None
    path = Path(file).resolve() if file else None
    return path if path is not None and path.is_file() else None


def _is_installed(file: Path) -> bool:
    """Whether a file belongs to an installed package, to Python or to this package, which count by their versions."""
    roots = [*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), str(Path(wanderlust.__file__).parent)]
    return any(file.is_relative_to(Path(root).resolve()) for root in roots)


def _code_files(owner: Any) -> Iterator[Path]:
    """The files of a class and its bases, or of a function, with what they import and name of their own."""
    for one in inspect.getmro(owner) if inspect.isclass(owner) else (owner,):
        file = None if OWN_PART.match(one.__module__ or "") else _file_of(one)
        if file is not None and not _is_installed(file):
            yield from _with_imports(file)


def _package(owner: Any) -> dict[str, str]:
    """The package of a class or function that is installed, with its version; its source where there is no file."""
    file, top = _file_of(owner), (getattr(owner, "__module__", "") or "").partition(".")[0]
    of_python = top == "builtins" or (top in sys.stdlib_module_names and top != "__main__")
    if of_python or top == "wanderlust" or top.startswith("wanderlust_"):
        return {}
    if file is None:
        name = getattr(owner, "__qualname__", str(owner))
        try:
            return {name: _sha(inspect.getsource(owner).encode())}
        except (OSError, TypeError):
            return {name: "no source"}
    if not _is_installed(file):
        return {}
    try:
        return {top: version(top)}
    except PackageNotFoundError:
        return {top: _sha(file.read_bytes())}


def _with_imports(file: Path) -> set[Path]:
    """A file, the files of its own package or folder that it imports, and data files that it names, recursively."""
    top = file.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    roots = list(dict.fromkeys((top, Path.cwd().resolve())))
    found, left = set[Path](), [file]
    while left:
        one = left.pop()
        if one in found:
            continue
        found.add(one)
        if one.suffix == ".py":
            left += [near.resolve() for near in _named_files(one, roots) if not _is_installed(near.resolve())]
    return found


def _named_files(file: Path, roots: Sequence[Path]) -> Iterator[Path]:
    """Files that a module imports from the roots, and files that a text in it names, beside it or in a root."""
    try:
        tree = _parsed(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module_files(roots, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            start = [file.parents[node.level - 1]] if 0 < node.level <= len(file.parents) else roots
            words = node.module.split(".") if node.module else []
            for alias in node.names:
                yield from _module_files(start, [*words, alias.name])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 200:
            yield from _data_files([file.parent, *roots], node.value)


def _parsed(source: bytes) -> ast.Module:
    """As `ast.parse`; Python 3.11 may fail in it where a finalizer parses, as one does that formats a traceback."""
    try:
        return ast.parse(source)
    except SystemError:
        gc.collect()  # what waits to be finalized is, before the second attempt
        return ast.parse(source)


def _module_files(roots: Sequence[Path], words: Sequence[str]) -> Iterator[Path]:
    for root in roots:
        for count in range(1, len(words) + 1):
            place = root.joinpath(*words[:count])
            yield from (near for near in (place.with_suffix(".py"), place / "__init__.py") if near.is_file())


def _data_files(roots: Sequence[Path], name: str) -> Iterator[Path]:
    if "\n" in name or "\0" in name or not Path(name).suffix:
        return
    for root in roots:
        try:
            place = root / name
            if place.is_file() and place.stat().st_size <= MAX_DATA_BYTES:
                yield place
                return
        except OSError:
            continue


def installed_packages() -> dict[str, str]:
    """The version of every installed package."""
    found = {str(one.metadata["Name"]): one.version for one in distributions() if one.metadata["Name"]}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """Content of `wander.lock`."""

    settings: Mapping[str, Any]
    """What the run was begun with."""
    command: Sequence[str] | None
    """Words after `wander` that begin the run; None where it was begun from Python."""
    made_by: Sequence[Mapping[str, Any]]
    """`digest` and `inputs` of everything that made rollouts of this run, the newest last."""
    sources: Mapping[str, str]
    """Text of the environment's own files when the run began, by their path."""
    python: str = field(default_factory=platform.python_version)
    platform: str = field(default_factory=platform.platform)
    packages: Mapping[str, str] = field(default_factory=installed_packages)

    def write(self, folder: Path) -> None:
        """Write the file, whole or not at all."""
        with replacing(folder / LOCK_FILE) as draft:
            draft.write_text(json.dumps({"format": LOCK_FORMAT, **asdict(self)}, indent=1) + "\n")


def read_lock(folder: Path) -> Lock | None:
    """The lock of a run; None for a run of an older version. Raises StoreError when it cannot be read."""
    file = folder / LOCK_FILE
    if not file.is_file():
        return None
    try:
        body = json.loads(file.read_text())
        if body.pop("format") != LOCK_FORMAT:
            raise StoreError(f"{file} was written by another version of wanderlust")
        return Lock(**body)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"cannot read {file}: {type(error).__name__}: {error}") from error


def lock_run(
    folder: Path,
    made_by: Provenance,
    *,
    settings: Mapping[str, Any],
    command: Sequence[str] | None = None,
    accept_changes: bool = False,
) -> list[str]:
    """Write the lock of a new run, or compare that of a run that goes on; returns what has changed since.

    Raises UsageError that names what has changed, unless `accept_changes`: then the lock gets the new digests as well,
    and what is played from now on carries them.
    """
    entry = {"digest": made_by.digest, "inputs": dict(made_by.inputs)}
    lock = read_lock(folder)
    if lock is None:
        Lock(settings=settings, command=command, made_by=[entry], sources=made_by.sources).write(folder)
        return []
    changed = changed_inputs(lock.made_by[-1]["inputs"], made_by.inputs)
    if changed and not accept_changes:
        shown = ", ".join(changed[:4]) + (f" and {len(changed) - 4} more" if len(changed) > 4 else "")
        have = "has" if len(changed) == 1 and not changed[0].endswith("s") else "have"
        raise UsageError(
            f"{folder}: {shown} {have} changed since this run began: choose another folder, or accept the changes "
            "(--accept-changes, or accept_changes=True)"
        )
    if changed:
        Lock(**{**asdict(lock), "made_by": [*lock.made_by, entry]}).write(folder)
    return changed
