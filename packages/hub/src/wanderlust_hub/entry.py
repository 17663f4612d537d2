"""The records of a hub, their canonical JSON and digests, and the rules of names and versions."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from wanderlust.errors import UsageError, WanderlustError, one_line
from wanderlust_hub.permissions import Permissions

NAME_FORM = r"\A[a-z][a-z0-9]*(-[a-z0-9]+)*\Z"
VERSION_FORM = r"\A[0-9]{1,6}(\.[0-9]{1,6}){0,3}((a|b|rc)[0-9]{1,6})?\Z"
MAX_NAME_CHARS, MAX_TEXT_CHARS, MAX_REQUIREMENTS = 64, 300, 100
ALIKE = (("rn", "m"), ("vv", "w"), ("0", "o"), ("1", "l"), ("i", "l"), ("5", "s"), ("-", ""), ("_", ""), (".", ""))
"""Spellings that a reader takes for each other, replaced one after the other."""

Name = Annotated[str, msgspec.Meta(pattern=NAME_FORM, max_length=MAX_NAME_CHARS)]
Version = Annotated[str, msgspec.Meta(pattern=VERSION_FORM)]
Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
DigestBefore = Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")]
Fingerprint = Annotated[str, msgspec.Meta(pattern=r"\ASHA256:[A-Za-z0-9+/]{43}\Z")]
PublicKey = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9@.-]{1,60} [A-Za-z0-9+/]{40,4000}={0,2}\Z")]
Signature = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9+/]{40,8000}={0,2}\Z")]
SignatureOrNone = Annotated[str, msgspec.Meta(pattern=r"\A([A-Za-z0-9+/]{40,8000}={0,2})?\Z")]
Line = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARS)]
Setting = int | float | str | None
Action = Literal["create", "allow", "revoke", "publish", "yank", "rank"]

T = TypeVar("T")


class HubError(WanderlustError):
    """A hub that is damaged, older than it was, or signed by nobody who may; or a change that it refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of a version: `StoredFile(digest="9f86…", size=2310)`."""

    digest: Digest
    """SHA-256 of its bytes, in hexadecimal digits."""
    size: Annotated[int, msgspec.Meta(ge=0)]
    """Bytes."""

    @classmethod
    def of(cls, body: bytes) -> StoredFile:
        """Digest and size of a file's bytes."""
        return cls(digest=digest_of(body), size=len(body))


@dataclass(frozen=True, slots=True, kw_only=True)
class HubEntry:
    """One version of an environment, as its publisher signs it."""

    name: Name
    version: Version
    summary: Line
    licence: Line
    environment: Line
    """Its name for `wander eval`, once the package is installed."""
    requires: Annotated[tuple[Line, ...], msgspec.Meta(max_length=MAX_REQUIREMENTS)]
    """Requirements of the package, as its metadata states them."""
    permissions: Permissions
    """What it asks for beyond its own process."""
    code: StoredFile
    """The wheel."""
    data: StoredFile
    """The tasks, as lines of JSON."""
    card: StoredFile
    """The report of the gate."""
    tasks: dict[Line, int]
    """Tasks that the gate listed, by split."""
    oracle: float | None
    """Mean reward of the oracle; None without one."""
    chance: float | None
    verdict: Line
    """The probe's verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRun:
    """What a policy earned in one version of an environment; its rollouts were played again before it was signed."""

    name: Name
    version: Version
    policy: Line
    """What the run says that it played; nobody can check that."""
    model: Line
    """Digest of the policy, as in the run's `wander.lock`; empty without one."""
    code: Digest
    """SHA-256 of the wheel."""
    reward: float
    """Mean reward over the tasks."""
    low: float | None
    high: float | None
    """Ends of the 95% interval, clustered by task; None for a single task."""
    tasks: int
    """Different tasks that were scored."""
    of: int
    """Tasks of the split, at most as many as the gate compares."""
    rollouts: int
    failed: int
    """Rollouts that failed, and are in no figure."""
    shared: int | None
    """Of these tasks, those that are also among the training tasks; None where these are unknown."""
    trained_on: Line
    """Where the training tasks come from."""
    record: StoredFile
    """The rollouts, as compressed lines of JSON."""
    settings: dict[Line, Setting] = field(default_factory=dict)
    """Where it departs from the main track: limits, `seed`, `samples`, `tasks`."""
    answers: DigestBefore = ""
    """Digest of what was answered; empty in entries of before there were tracks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of the log. It names the digest of the line before it, so that lines cannot be changed or left out."""

    number: int
    previous: DigestBefore
    """Digest of the line before; empty in the first record."""
    action: Action
    by: Fingerprint
    """Key of the signer."""
    text: Line = ""
    """Title of a new hub, or the reason of a revocation or yanking."""
    key: PublicKey | None = None
    """Key that is made the owner's, allowed or revoked."""
    name: Name | None = None
    """Environment that is yanked."""
    version: Version | None = None
    entry: HubEntry | None = None
    """What is published."""
    run: RankedRun | None = None
    """What is ranked."""
    signature: SignatureOrNone = ""
    """SSH signature of the canonical record without this field, in base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A published version in the index."""

    entry: HubEntry
    by: Fingerprint
    number: int
    """Number of its record in the log."""
    yanked: Line | None = None
    """Reason for which nobody should begin to use it; None for a version in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """A ranked run in the index."""

    run: RankedRun
    by: Fingerprint
    number: int
    """Number of its record in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key that may sign, or might once."""

    key: PublicKey
    fingerprint: Fingerprint
    revoked: Line | None = None
    """Reason of the revocation; None for a key in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What the log comes to: keys and versions."""

    title: Line
    head: Digest
    """Digest of the last line of the log."""
    records: int
    """Lines of the log."""
    keys: tuple[Key, ...]
    """The first is the owner's."""
    listings: tuple[Listing, ...]
    """By name, then by version."""
    rankings: tuple[Ranking, ...]
    """In the order in which they came."""

    @property
    def owner(self) -> Key:
        """The key that may allow and revoke others."""
        return self.keys[0]

    def key(self, fingerprint: str) -> Key | None:
        """The key with this fingerprint."""
        return next((one for one in self.keys if one.fingerprint == fingerprint), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIndex:
    """Content of `index.json`."""

    format: Literal[1]
    index: Index
    by: Fingerprint
    signature: Signature


def canonical(value: Any) -> bytes:
    """JSON with sorted names and no spaces: equal values have equal bytes.

    Fields that entries of leaderboards got later are left out where they are empty, so that older signatures hold.
    """
    plain = msgspec.to_builtins(value)
    if isinstance(plain, dict):
        index = plain.get("index", plain)
        for holder in (plain, *index.get("rankings", ())):
            for name in ("answers", "settings"):
                if isinstance(run := holder.get("run"), dict) and not run.get(name, True):
                    del run[name]
    return msgspec.json.encode(plain, order="sorted")


def digest_of(body: bytes) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(body).hexdigest()


def decode(body: bytes, kind: type[T], what: str) -> T:
    """Read canonical JSON. Raises HubError when it has another form, or when one byte is not as `canonical` writes."""
    try:
        value = msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HubError(f"{what} is damaged or truncated: {one_line(str(error), 120)}") from None
    if canonical(value) != body:
        raise HubError(f"{what} is damaged: its bytes are not in canonical form")
    return value


def check_name(name: str) -> None:
    """Raises UsageError for a name that a hub does not take."""
    if not re.match(NAME_FORM, name) or len(name) > MAX_NAME_CHARS:
        raise UsageError(
            f"{ascii(name)[:80]} is no name for a hub: ASCII letters in lower case, digits and single hyphens, "
            f"a letter first, at most {MAX_NAME_CHARS} characters"
        )


def check_version(version: str) -> None:
    """Raises UsageError for a version that a hub does not take."""
    if not re.match(VERSION_FORM, version):
        raise UsageError(f"{ascii(version)[:80]} is no version for a hub: one to four numbers, as in 1.2.0 or 1.2.0rc1")


def skeleton(name: str) -> str:
    """What is left of a name when spellings that look alike are made equal."""
    text = name.lower()
    for spelling, same in ALIKE:
        text = text.replace(spelling, same)
    return text


def version_order(version: str) -> tuple[tuple[int, ...], str, int]:
    """Sorts versions: 1.9 < 1.10rc1 < 1.10, and 1.0 equals 1.0.0."""
    found = re.fullmatch(r"([0-9.]+?)(?:(a|b|rc)([0-9]+))?", version)
    if found is None:
        raise UsageError(f"{ascii(version)[:80]} is no version")
    numbers = [int(part) for part in found[1].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers), found[2] or "z", int(found[3] or 0)
