"""`add`: install one version of a hub's environment into a folder of its own, without running anything of it."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from wanderlust.errors import UsageError, one_line
from wanderlust.tasks.registry import installed_environments
from wanderlust_hub.added import CODE_FOLDER, LIBRARY_FOLDER, RECORD_FILE, AddedPackage
from wanderlust_hub.added_names import added_folder
from wanderlust_hub.entry import HubEntry, HubError, Listing, canonical
from wanderlust_hub.foreign import ForeignSource, foreign_source
from wanderlust_hub.index import CARD, CODE, DATA, Hub
from wanderlust_hub.location import is_remote, write_durably
from wanderlust_hub.package_draft import write_wheel
from wanderlust_hub.publishing import entry_of
from wanderlust_hub.requirements import library_paths, unmet_requirements
from wanderlust_hub.unpack import unpack_wheel
from wanderlust_hub.wheel import Package, read_wheel

DRAFT_PREFIX = ".new-"
MAX_SHOWN = 5

Approve = Callable[[HubEntry], bool]
"""Whether what an entry asks for may be given; asked before anything is written."""


def add(
    name: str,
    version: str | None = None,
    *,
    hub: str | Path,
    approve: Approve,
    owner: str | None = None,
    isolation: Literal["required", "preferred"] = "required",
    dependencies: bool = False,
) -> AddedPackage:
    """Verify a version, ask, and install it beside other environments; its name is then one for `wander eval`.

    Args:
        name: Name in the hub.
        version: By default the newest usable one.
        hub: Folder or web address of the hub; or `KIND:PLACE`, from where an environment is wrapped unsigned.
        approve: Is shown the entry with its permissions, and says whether to go on.
        owner: Fingerprint that the owner's key must have.
        isolation: `preferred` lets it run without a sandbox on a machine where there can be none.
        dependencies: Fetch what it needs and is not installed here, by pip and as wheels alone.

    Returns:
        What was added. Raises UsageError or HubError when it is refused; nothing is then changed.
    """
    if (found := foreign_source(str(hub))) is not None:
        source, inside = found[0], found[1] or name
        return _add_foreign(source, inside, approve=approve, isolation=isolation, dependencies=dependencies)
    opened = Hub.open(hub, owner=owner)
    listing = opened.find(name, version)
    check_listing(opened, listing)
    with _draft(name) as draft:
        package, unmet = prepare(opened, listing, draft, dependencies=dependencies)
        record = AddedPackage(
            format=1,
            hub=opened.location if is_remote(opened.location) else str(Path(opened.location).resolve()),
            owner=opened.index.owner.fingerprint,
            by=listing.by,
            entry=listing.entry,
            target=package.target,
            isolation=isolation,
        )
        _finish(record, draft, unmet, approve=approve)
    return record


def _add_foreign(
    source: ForeignSource,
    name: str,
    *,
    approve: Approve,
    isolation: Literal["required", "preferred"],
    dependencies: bool,
) -> AddedPackage:
    """Wrap an environment from elsewhere, ask, and install it; nobody has signed it, and it was not checked."""
    drafted = source.draft(name)
    with _draft(drafted.name) as draft:
        package = read_wheel(write_wheel(drafted, draft).rename(draft / CODE))
        entry = entry_of(package, code=(draft / CODE).read_bytes(), data=b"", card=b"{}")
        unmet = _unpack(entry, package, draft, dependencies=dependencies)
        record = AddedPackage(
            format=1, hub=str(source), owner=None, by=None, entry=entry, target=package.target, isolation=isolation
        )
        _finish(record, draft, unmet, approve=approve)
    return record


def _finish(record: AddedPackage, draft: Path, unmet: list[str], *, approve: Approve) -> None:
    """Ask, fetch what is missing, and put the whole folder in its place."""
    entry = record.entry
    if not approve(entry):
        raise UsageError(f"{entry.name} {entry.version} was not added: what it asks for was not approved")
    if unmet:
        _fetch(unmet, draft / LIBRARY_FOLDER)
    write_durably(draft / RECORD_FILE, canonical(record))
    _put_in_place(draft, added_folder() / entry.name)


def check_listing(hub: Hub, listing: Listing) -> None:
    """Raises HubError when a version is withdrawn, or its record in the log is not signed by who may."""
    if warning := hub.warning(listing):
        raise HubError(f"{listing.entry.name} {listing.entry.version} is {warning}")
    hub.check_record(listing)


def prepare(hub: Hub, listing: Listing, draft: Path, *, dependencies: bool = False) -> tuple[Package, list[str]]:
    """Read, compare and unpack a version into `draft`. Returns the wheel's metadata, and requirements to be fetched."""
    entry = listing.entry
    for part, file in (("data", DATA), ("card", CARD), ("code", CODE)):
        (draft / file).write_bytes(hub.part(listing, part))
    package = read_wheel(draft / CODE)
    _compare(entry, package)
    return package, _unpack(entry, package, draft, dependencies=dependencies)


def _unpack(entry: HubEntry, package: Package, draft: Path, *, dependencies: bool) -> list[str]:
    """Unpack `code.whl` where it can run here. Returns requirements to be fetched."""
    if entry.permissions.gpu:
        raise UsageError(f"{entry.name} asks for the GPU, which isolated environments cannot have yet")
    unmet = unmet_requirements(entry.requires, requires_python=package.requires_python)
    ours = [one for one in unmet if one.startswith(("Python ", "wanderlust"))]
    if ours or (unmet and not dependencies):
        shown = ", ".join(unmet[:MAX_SHOWN])
        advice = "it needs another installation" if ours else "install that, or let --dependencies fetch it"
        raise UsageError(f"{entry.name} {entry.version} needs {shown}: {advice}")
    reserved = {path.name.partition(".")[0] for path in library_paths(entry.requires)}
    unpack_wheel(draft / CODE, draft / CODE_FOLDER, reserved=reserved)
    (draft / CODE).unlink()
    return unmet


def _compare(entry: HubEntry, package: Package) -> None:
    """Raises HubError when the wheel says other things than the entry that was signed for it."""
    for what in ("name", "version", "summary", "licence", "environment", "requires", "permissions"):
        if getattr(entry, what) != getattr(package, what):
            raise HubError(
                f"{entry.name} {entry.version} is refused: its wheel and its entry differ in {what}, "
                f"{one_line(repr(getattr(package, what)), 80)} and {one_line(repr(getattr(entry, what)), 80)}"
            )


def _fetch(unmet: list[str], folder: Path) -> None:
    """Install requirements into a folder: wheels alone, so that no code of theirs runs."""
    wanted = [one.partition(" (")[0] for one in unmet]
    words = ["install", "--quiet", "--no-input", "--only-binary", ":all:", "--no-compile", "--target", str(folder)]
    command = [sys.executable, "-m", "pip", *words, "--", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "rror" in line] or ["pip failed"]
        raise UsageError(f"{', '.join(wanted)} cannot be fetched: {one_line(lines[-1], 200)}")


@contextmanager
def _draft(name: str) -> Iterator[Path]:
    """A folder beside the added ones, removed in the end; one caller at a time. UsageError for a name that is taken."""
    root, installed = added_folder(), installed_environments().get(name, "")
    if installed and not (root / name).is_dir():
        raise UsageError(f"{name} is the name of an environment that is installed here: {installed}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / ".lock").open("w")
    except OSError as error:
        raise UsageError(
            f"{root} cannot be written ({error.strerror}): set XDG_DATA_HOME to a folder of yours"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in root.glob(f"{DRAFT_PREFIX}*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        with TemporaryDirectory(dir=root, prefix=DRAFT_PREFIX) as scratch:
            draft = Path(scratch) / "draft"
            draft.mkdir()
            yield draft


def _put_in_place(draft: Path, place: Path) -> None:
    """Rename the whole folder to its place; an older version is taken away just before."""
    old = draft.with_name("old")
    if place.exists():
        place.rename(old)
    try:
        draft.rename(place)
    except OSError:
        if old.exists():
            old.rename(place)
        raise
