"""The log of a hub: a chain of signed records, and the index that it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from wanderlust_hub.entry import (
    HubError,
    Index,
    Key,
    Listing,
    Ranking,
    Record,
    canonical,
    decode,
    digest_of,
    skeleton,
    version_order,
)
from wanderlust_hub.signing import RECORD, fingerprint, is_signed


def signed_bytes(record: Record) -> bytes:
    """What the signature of a record is over."""
    return canonical(replace(record, signature=""))


def split_log(body: bytes) -> list[bytes]:
    """The lines of a log. Raises HubError when the last one has no end."""
    if not body.endswith(b"\n"):
        raise HubError("the log is truncated: its last line has no end")
    return body[:-1].split(b"\n")


def read_record(line: bytes, number: int) -> Record:
    """Read one line of a log."""
    return decode(line, Record, f"record {number} of the log")


@dataclass(slots=True, kw_only=True)
class LogReplay:
    """Reads records in order and holds the rules of a hub; each record that breaks one raises HubError."""

    head: str = ""
    count: int = 0
    title: str = ""
    keys: dict[str, Key] = field(default_factory=dict)
    listings: dict[tuple[str, str], Listing] = field(default_factory=dict)
    rankings: list[Ranking] = field(default_factory=list)
    newest: dict[str, str] = field(default_factory=dict)
    """Newest version of each name."""
    makers: dict[str, str] = field(default_factory=dict)
    """Key that first published each name."""
    names: dict[str, str] = field(default_factory=dict)
    """Name by its skeleton."""

    def add(self, record: Record) -> None:
        """Take one more record. Its signature is not checked here."""
        if record.number != self.count or record.previous != self.head:
            self._refuse(record, "it does not follow the record before it")
        if (record.action == "create") != (self.count == 0):
            self._refuse(record, "a hub is created once, by its first record")
        if record.action == "create":
            self._add_key(record)
            self.title = record.text
        else:
            self._check_signer(record)
            {
                "allow": self._allow,
                "revoke": self._revoke,
                "publish": self._publish,
                "yank": self._yank,
                "rank": self._rank,
            }[record.action](record)
        self.head, self.count = digest_of(canonical(record)), self.count + 1

    def index(self) -> Index:
        """The index that the records so far come to."""
        ordered = sorted(self.listings.values(), key=lambda one: (one.entry.name, version_order(one.entry.version)))
        return Index(
            title=self.title,
            head=self.head,
            records=self.count,
            keys=tuple(self.keys.values()),
            listings=tuple(ordered),
            rankings=tuple(self.rankings),
        )

    def _refuse(self, record: Record, why: str) -> None:
        raise HubError(f"record {record.number} ({record.action}) is refused: {why}")

    @property
    def _owner(self) -> str:
        return next(iter(self.keys))

    def _check_signer(self, record: Record) -> None:
        key = self.keys.get(record.by)
        if key is None:
            self._refuse(record, f"the key {record.by} is unknown to this hub; its owner can allow it")
        elif key.revoked is not None:
            self._refuse(record, f"the key {record.by} is revoked: {key.revoked}")
        if record.action in ("allow", "revoke") and record.by != self._owner:
            self._refuse(record, f"only the owner's key {self._owner} may do that")

    def _add_key(self, record: Record) -> None:
        mark = fingerprint(record.key or "")
        if record.key is None or (record.action == "create" and mark != record.by):
            self._refuse(record, "it has no key, or not that of its signer")
        elif mark in self.keys:
            self._refuse(record, f"the key {mark} is known already; a revoked key cannot come back")
        else:
            self.keys[mark] = Key(key=record.key, fingerprint=mark)

    def _allow(self, record: Record) -> None:
        self._add_key(record)

    def _revoke(self, record: Record) -> None:
        mark = fingerprint(record.key or "")
        if mark not in self.keys or mark == self._owner:
            self._refuse(record, f"{mark} is no key that the owner has allowed")
        if self.keys[mark].revoked is not None:
            self._refuse(record, f"the key {mark} is revoked already")
        self.keys[mark] = replace(self.keys[mark], revoked=record.text or "no reason given")

    def _publish(self, record: Record) -> None:
        entry = record.entry
        if entry is None:
            self._refuse(record, "it has no entry")
            return
        name, version = entry.name, entry.version
        self._check_maker(record, name)
        alike = self.names.setdefault(skeleton(name), name)
        if alike != name:
            self._refuse(record, f"the name {name!r} looks like {alike!r}, which is there: choose another name")
        newest = self.newest.get(name)
        if newest is not None and version_order(version) <= version_order(newest):
            self._refuse(record, f"{name} has version {newest}, and a further one must be higher than that: {version}")
        self.newest[name] = version
        self.listings[name, version] = Listing(entry=entry, by=record.by, number=record.number)

    def _check_maker(self, record: Record, name: str) -> None:
        maker = self.makers.setdefault(name, record.by)
        if record.by not in (maker, self._owner):
            self._refuse(record, f"{name} belongs to the key {maker}: that key or the owner's may change it")

    def _yank(self, record: Record) -> None:
        place = (record.name or "", record.version or "")
        listing = self.listings.get(place)
        if listing is None or listing.yanked is not None:
            self._refuse(record, f"there is no {' '.join(place)} to yank, or it is yanked already")
            return
        self._check_maker(record, place[0])
        self.listings[place] = replace(listing, yanked=record.text or "no reason given")

    def _rank(self, record: Record) -> None:
        run = record.run
        listing = None if run is None else self.listings.get((run.name, run.version))
        if run is None or listing is None:
            self._refuse(record, "it is of no version that there is")
            return
        if run.code != listing.entry.code.digest:
            self._refuse(record, f"{run.name} {run.version} has other code than the run")
        known = [one.run for one in self.rankings if one.run.name == run.name]
        if run.record.digest in [one.record.digest for one in known] or (
            run.answers and (run.answers, run.settings) in [(one.answers, one.settings) for one in known]
        ):
            self._refuse(record, f"this run of {run.name} is ranked already")
        self.rankings.append(Ranking(run=run, by=record.by, number=record.number))


def replay(lines: Sequence[bytes]) -> LogReplay:
    """Read the lines of a log, all rules held but the signatures."""
    state = LogReplay()
    for number, line in enumerate(lines):
        state.add(read_record(line, number))
    return state


def check_signature(record: Record, state: LogReplay) -> None:
    """Raises HubError when a record that `state` has taken is not signed by the key that it names."""
    key = state.keys[record.by]
    if not is_signed(signed_bytes(record), record.signature, key=key.key, namespace=RECORD):
        raise HubError(f"record {record.number} ({record.action}) is not signed by {record.by}: it was changed")
