"""Parts that are imported late: heavy extras, the public names, and what a user names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from re import findall, fullmatch
from types import ModuleType
from typing import Any

from wanderlust.errors import UsageError


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """For imports in the block: a missing package that the extra brings is a UsageError in one line that names it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("wanderlust"):
            raise
        raise UsageError(
            f"this needs the package {error.name!r}: install it with pip install 'wanderlust[{extra}]'"
        ) from error


def import_object(target: str) -> Any:
    """The object behind `package.module:Name`, which somebody named.

    Raises UsageError in one line when the module or the name does not exist, or when a package that it needs is
    missing; then the line names the extra.
    """
    module, _, name = target.partition(":")
    return _member(module, name, lambda: _load_module(module))


def _load_module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        moved = moved_module(name)
        if moved == name or not f"{name}.".startswith(f"{error.name}."):
            raise
    return import_module(moved)


def moved_module(name: str) -> str:
    """Where a module of ours is that has moved to another package since runs named it; `name` for any other."""
    words, moves = name.split("."), _moves()
    for end in range(len(words), 1, -1):
        if package := moves.get(".".join(words[:end])):
            return moved_module(".".join([package, *words[end:]]))
    return name


@cache
def _moves() -> Mapping[str, str]:
    """Old names of modules, or of packages with all modules below them, and the names that they have now."""
    resources, json = import_module("importlib.resources"), import_module("json")  # slow, and only an old name needs it
    moves: Mapping[str, str] = json.loads((resources.files("wanderlust") / "moved.json").read_text("utf-8"))
    return moves


def import_from_file(file: Path, name: str) -> Any:
    """The object `name` of that very file, whatever other module has its stem; errors as `import_object`.

    The module has the stem as its name where an import by it finds the file, so that its objects can be pickled;
    otherwise a name of its own. Modules beside the file can be imported by it.
    """
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    return _member(file.stem, name, lambda: _load_file(file))


def _load_file(file: Path) -> ModuleType:
    try:
        spec = find_spec(file.stem)
    except (ImportError, ValueError):  # a dot in the stem; a module without a spec, like __main__
        spec = None
    if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file:
        return import_module(file.stem)
    sha256 = import_module("hashlib").sha256  # slow to import, and only a file needs it
    module_name = f"{file.stem.replace('.', '_')}_{sha256(str(file).encode()).hexdigest()[:12]}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    own = spec_from_file_location(module_name, file)
    if own is None or own.loader is None:
        raise UsageError(f"{file} cannot be imported")
    module = sys.modules[module_name] = module_from_spec(own)
    with ExitStack() as undo:
        undo.callback(sys.modules.pop, module_name, None)  # a file that fails is tried again
        own.loader.exec_module(module)
        undo.pop_all()
    return module


def _member(module: str, name: str, load: Callable[[], ModuleType]) -> Any:
    try:
        loaded_module = load()
    except ModuleNotFoundError as error:
        itself_missing = f"{module}.".startswith(f"{error.name}.")
        needs = "" if itself_missing else missing_package(error)
        raise UsageError(needs or f"cannot import {module!r}: {error}") from error
    try:
        return getattr(loaded_module, name)
    except AttributeError as error:
        raise UsageError(f"{module!r} has no {name!r}") from error


def missing_package(error: ImportError) -> str:
    """What to install where a third-party package is missing, by the extra that brings it; empty where none is."""
    cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__ or error.__context__
    package = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
    if package in ("", "wanderlust") or sys.modules.get(package):  # there, and without what was asked of it
        return ""
    wanted, pairs = package.replace("_", "-").lower(), [*_packages_of_extras()]
    if extras := [extra for name, extra in pairs if name == wanted]:
        smallest = min(extras, key=[extra for _, extra in pairs].count)
        return f"this needs the package {package!r}: install it with pip install 'wanderlust[{smallest}]'"
    return f"this needs the package {package!r}: install it with pip install {package}"


def _packages_of_extras() -> Iterator[tuple[str, str]]:
    """Packages that extras bring, each with its extra: of a package beside the core, too, where that is installed."""
    metadata = import_module("importlib.metadata")  # slow to import, and only a failure needs it
    line = r"([\w.-]+)(?:\[([\w,-]+)\])?[^\[\]]*extra == ['\"]([\w-]+)['\"].*"
    for found in filter(None, (fullmatch(line, one) for one in metadata.requires("wanderlust") or ())):
        if found[2] is None:
            yield found[1].lower(), found[3]
        elif found[1] != "wanderlust":
            with suppress(metadata.PackageNotFoundError):
                within = (fullmatch(line, one) for one in metadata.requires(found[1]) or ())
                yield from ((one[1].lower(), found[3]) for one in within if one and one[3] in found[2].split(","))


def lazy_names(
    package: str, *, extras: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a module whose names are imported when they are first used.

    The stub file beside the module lists them, one to a line, `from MODULE import NAME as NAME`; type checkers and
    editors read the same list. `extras` has the extra that brings another distribution's package, by its name.
    """
    module = sys.modules[package]
    stub = Path(str(module.__file__)).with_suffix(".pyi").read_text("utf-8")
    module_of = {name: home for home, name in findall(r"(?m)^from (\S+) import (\w+) as \2$", stub)}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = module_of[name]
        extra = (extras or {}).get(home)
        value = getattr(import_module(home), name) if extra is None else lazy_face(home, extra=extra)[0](name)
        setattr(module, name, value)
        return value

    return sorted(module_of), get, lambda: sorted({*module_of, *vars(module)})


def lazy_face(package: str, *, extra: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module that has the names of another distribution's package.

    Without that distribution a name is a UsageError in one line that says which extra brings it. The module is no
    package: one below it would be a second copy of the distribution's.
    """

    def get(name: str) -> Any:
        if name == "__path__":
            raise AttributeError(name)
        try:
            return getattr(import_module(package), name)
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            missing = package.replace("_", "-")
            raise UsageError(f"this needs {missing!r}: install it with pip install 'wanderlust[{extra}]'") from error

    return get, lambda: dir(import_module(package))
