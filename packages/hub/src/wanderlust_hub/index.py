"""A hub that is read: search, one environment's figures, and verification down to the last byte.

Nothing that a hub holds is imported, unpacked or run here. Not covered: whether a published package does harm when it
is installed, and what a hub shows to someone who has never seen it before and compares no fingerprint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wanderlust.errors import UsageError, nearest_names, one_line
from wanderlust_hub.board import board_order, entry_problems
from wanderlust_hub.entry import (
    HubEntry,
    HubError,
    Index,
    Listing,
    RankedRun,
    Ranking,
    Record,
    SignedIndex,
    StoredFile,
    canonical,
    check_name,
    check_version,
    decode,
    digest_of,
    skeleton,
)
from wanderlust_hub.location import keep_seen, read_file, read_seen
from wanderlust_hub.log import LogReplay, check_signature, read_record, split_log
from wanderlust_hub.signing import INDEX, fingerprint, is_signed

INDEX_FILE, LOG_FILE = "index.json", "log.jsonl"
CODE, DATA, CARD = "code.whl", "data.jsonl", "card.json"
PARTS = (("code", CODE), ("data", DATA), ("card", CARD))
MAX_INDEX_BYTES, MAX_LOG_BYTES, MAX_PART_BYTES = 1 << 27, 1 << 28, 1 << 26
MAX_FOUND = 20

OnProgress = Callable[[str, int, int], None]
"""Called with what is done, its number, and the number of all steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """One version, with its card."""

    listing: Listing
    card: dict[str, Any]
    """The gate's report: digests, tasks, players' rewards, the probe's findings, the cost."""
    versions: tuple[str, ...]
    """All versions of this name, the oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a verification looked at, and what is wrong."""

    records: int
    versions: int
    problems: tuple[str, ...]
    """One line each; empty for a sound hub."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """The index of a hub, whose signature was checked when it was opened."""

    location: str
    """A folder, or an address that begins with http:// or https://."""
    index: Index

    @classmethod
    def open(cls, location: str | Path, *, owner: str | None = None) -> Hub:
        """Read and check the index.

        Args:
            location: Folder or web address of the hub.
            owner: Fingerprint that the owner's key must have. Without it the first contact decides.

        Raises:
            HubError: The index is damaged, older than the last one seen, or not signed by a key of this hub.

        Example:
            >>> Hub.open("hub").search("sums")[0].entry.name
            'sums'
        """
        place = str(location)
        index = read_index(place)
        if owner is not None and index.owner.fingerprint != owner:
            raise HubError(f"{place} belongs to the key {index.owner.fingerprint}, and not to {owner}")
        keep_seen(place, index)
        return cls(location=place, index=index)

    def search(self, text: str = "", *, limit: int = MAX_FOUND) -> list[Listing]:
        """The newest usable versions of the environments whose name or summary has every word of `text`.

        Names come before summaries, and are in alphabetical order. Yanked and withdrawn versions are left out.
        """
        words, ranked = text.lower().split(), list[tuple[int, Listing]]()
        for listing in self.newest():
            entry = listing.entry
            place = f"{entry.name} {entry.summary}".lower()
            if all(word in place for word in words):
                rank = 0 if entry.name == text else 1 if all(word in entry.name for word in words) else 2
                ranked.append((rank, listing))
        ranked.sort(key=lambda one: (one[0], one[1].entry.name))
        return [listing for _, listing in ranked[: max(0, limit)]]

    def newest(self) -> list[Listing]:
        """The newest usable version of each name."""
        found, revoked = dict[str, Listing](), {one.fingerprint for one in self.index.keys if one.revoked is not None}
        for listing in self.index.listings:
            if listing.yanked is None and listing.by not in revoked:
                found[listing.entry.name] = listing
        return list(found.values())

    def warning(self, listing: Listing) -> str | None:
        """Why a version should not be used: it was yanked, or its key was revoked. None for a usable one."""
        key = self.index.key(listing.by)
        if key is None or key.revoked is not None:
            return f"withdrawn: its key {listing.by} is {'unknown' if key is None else f'revoked: {key.revoked}'}"
        return None if listing.yanked is None else f"yanked: {listing.yanked}"

    def find(self, name: str, version: str | None = None) -> Listing:
        """A version of a name, by default the newest usable one. Raises UsageError where there is none."""
        check_name(name)
        named = [one for one in self.index.listings if one.entry.name == name]
        if not named:
            names = {one.entry.name for one in self.index.listings}
            alike = sorted(one for one in names if skeleton(one) == skeleton(name))
            hint = f"did you mean {alike[0]!r}?" if alike else nearest_names(name, sorted(names), kind="environments")
            raise UsageError(f"{self.location} has no environment {name!r}; {hint}")
        if version is not None:
            check_version(version)
            exact = [one for one in named if one.entry.version == version]
            if not exact:
                known = ", ".join(one.entry.version for one in named[-8:])
                raise UsageError(f"{name} has no version {version}; there are {known}")
            return exact[0]
        usable = [one for one in named if self.warning(one) is None]
        if not usable:
            raise UsageError(f"{name} has no usable version: {named[-1].entry.version} is {self.warning(named[-1])}")
        return usable[-1]

    def rankings(self, name: str, version: str | None = None) -> list[Ranking]:
        """Runs of one version, the newest usable one by default: by track, then those of all tasks, then by reward.

        Those that a revoked key has signed are left out.
        """
        entry = self.find(name, version).entry
        revoked = {one.fingerprint for one in self.index.keys if one.revoked is not None}
        found = [
            one
            for one in self.index.rankings
            if (one.run.name, one.run.version) == (entry.name, entry.version) and one.by not in revoked
        ]
        return sorted(found, key=board_order)

    def ranked_rollouts(self, run: RankedRun) -> bytes:
        """The compressed rollouts of a ranked run. Raises HubError when they are not those that were ranked."""
        path = rollouts_file(run)
        if run.record.size > MAX_PART_BYTES:
            raise HubError(f"{path} has {run.record.size:,} bytes, and at most {MAX_PART_BYTES:,} are read")
        body = read_file(self.location, path, limit=run.record.size)
        if digest_of(body) != run.record.digest:
            raise HubError(f"{path} is not what was ranked: its digest differs")
        return body

    def info(self, name: str, version: str | None = None) -> Details:
        """One version with its card, whose digest is checked."""
        listing = self.find(name, version)
        body = self.part(listing, "card")
        try:
            card = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise HubError(f"the card of {name} is no JSON: {one_line(str(error), 120)}") from None
        if not isinstance(card, dict):
            raise HubError(f"the card of {name} is no JSON object")
        versions = tuple(one.entry.version for one in self.index.listings if one.entry.name == name)
        return Details(listing=listing, card=card, versions=versions)

    def part(self, listing: Listing, part: str) -> bytes:
        """The bytes of a version's `code`, `data` or `card`. Raises HubError when they are not those published."""
        entry, file = listing.entry, dict(PARTS)[part]
        stored: StoredFile = getattr(entry, part)
        path = f"{version_folder(entry.name, entry.version)}/{file}"
        if stored.size > MAX_PART_BYTES:
            raise HubError(f"{path} has {stored.size:,} bytes, and at most {MAX_PART_BYTES:,} are read")
        body = read_file(self.location, path, limit=stored.size)
        if digest_of(body) != stored.digest:
            raise HubError(f"{path} is not what was published: its digest differs")
        return body

    def verify(
        self,
        name: str | None = None,
        *,
        on_progress: OnProgress = lambda what, number, of: None,
    ) -> Verification:
        """Walk the log with all signatures, compare it with the index, and check the files of every version.

        Args:
            name: Check the files of this environment alone; a version that is withdrawn is then a problem.
            on_progress: Called for each record and each version.

        Returns:
            The problems, one line each. A broken log ends the walk; the files are checked all the same.
        """
        problems, listings = list[str](), self.index.listings
        if name is not None:
            self.find(name)
            listings = tuple(one for one in listings if one.entry.name == name)
        try:
            self._walk(on_progress)
        except HubError as error:
            problems.append(str(error))
        for number, listing in enumerate(listings, 1):
            on_progress("files", number, len(listings))
            problems += self._file_problems(listing)
            problems += self._rollout_problems(listing.entry)
            if name is not None and (key := self.index.key(listing.by)) is not None and key.revoked is not None:
                problems.append(f"{name} {listing.entry.version} is {self.warning(listing)}")
        if not problems:
            keep_seen(self.location, self.index, verified=True)
        return Verification(records=self.index.records, versions=len(listings), problems=tuple(problems))

    def check_record(self, listing: Listing) -> None:
        """Raises HubError unless the log has this version, signed by a key that the owner has allowed.

        All rules of the log are held; checked are the signatures of this environment's records and of those of keys.
        """
        mine = listing.entry.name

        def counts(record: Record) -> bool:
            name = record.name if record.entry is None else record.entry.name
            return record.action in ("create", "allow", "revoke") or name == mine

        self._walk(lambda what, number, of: None, counts=counts)

    def _file_problems(self, listing: Listing) -> Iterator[str]:
        for part, _ in PARTS:
            try:
                self.part(listing, part)
            except HubError as error:
                yield str(error)

    def _rollout_problems(self, entry: HubEntry) -> Iterator[str]:
        for one in self.index.rankings:
            if (one.run.name, one.run.version) == (entry.name, entry.version):
                try:
                    yield from entry_problems(one.run, self.ranked_rollouts(one.run))
                except HubError as error:
                    yield str(error)

    def _walk(self, on_progress: OnProgress, *, counts: Callable[[Record], bool] = lambda record: True) -> None:
        """Raises HubError at the first record that is wrong, or when log and index differ.

        Signatures are checked of the records that count.
        """
        lines = split_log(read_file(self.location, LOG_FILE, limit=MAX_LOG_BYTES))
        if len(lines) != self.index.records or digest_of(lines[-1]) != self.index.head:
            raise HubError(
                f"log and index differ: the log has {len(lines)} records, and the index was made of "
                f"{self.index.records}"
            )
        seen = read_seen(self.location)
        if seen is not None and seen.verified_head is not None:
            at = seen.verified_records
            if len(lines) < at or digest_of(lines[at - 1]) != seen.verified_head:
                raise HubError(f"the log is another one than that verified before: its record {at - 1} has changed")
        state = LogReplay()
        for number, line in enumerate(lines):
            record = read_record(line, number)
            state.add(record)
            if counts(record):
                check_signature(record, state)
            on_progress("log", number + 1, len(lines))
        if state.index() != self.index:
            raise HubError("log and index differ: the index has other keys or versions than its log")


def version_folder(name: str, version: str) -> str:
    """Where the files of a version are, in the folder of its hub."""
    return f"environments/{name}/{version}"


def rollouts_file(run: RankedRun) -> str:
    """Where the rollouts of a ranked run are, in the folder of its hub."""
    return f"{version_folder(run.name, run.version)}/runs/{run.record.digest[:32]}.zst"


def read_index(location: str) -> Index:
    """Read `index.json` and check its signature; the last state seen is not asked for."""
    body = read_file(location, INDEX_FILE, limit=MAX_INDEX_BYTES)
    signed = decode(body, SignedIndex, f"{location.rstrip('/')}/{INDEX_FILE}")
    index = signed.index
    if not index.keys:
        raise HubError(f"{location}: the index has no keys")
    for one in index.keys:
        if fingerprint(one.key) != one.fingerprint:
            raise HubError(f"{location}: the index has a key whose fingerprint is another one")
    key = index.key(signed.by)
    if key is None:
        raise HubError(f"{location}: the index is signed by {signed.by}, which is unknown to this hub")
    if key.revoked is not None:
        raise HubError(f"{location}: the index is signed by {signed.by}, which is revoked: {key.revoked}")
    if not is_signed(canonical(index), signed.signature, key=key.key, namespace=INDEX):
        raise HubError(f"{location}: the index is not what {signed.by} signed: it was changed")
    return index
