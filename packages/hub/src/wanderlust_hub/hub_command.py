"""`wander hub`: publish environments, find them, check what was published, and add them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from wanderlust.cli.commands import nested
from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import JsonFlag, PositiveInt
from wanderlust.cli.output import print_note, show_result
from wanderlust.errors import SandboxFailure, UsageError, one_line
from wanderlust.runner.terminal import Table
from wanderlust_hub.add import add
from wanderlust_hub.board import board_command
from wanderlust_hub.entry import HubEntry, Index, Listing
from wanderlust_hub.export import Form, export
from wanderlust_hub.foreign import ForeignSource, foreign_source
from wanderlust_hub.index import MAX_FOUND, Hub, OnProgress
from wanderlust_hub.page import ranking_cells, write_pages
from wanderlust_hub.publishing import allow, create_hub, publish, revoke, yank
from wanderlust_hub.rank import SAMPLED_ROLLOUTS, rank, replay_entries

MAX_REPORTED = 20
HubPlace = Annotated[str, Parameter(name="HUB", help="Folder of the hub; to read one, also its web address.")]
HubOrSource = Annotated[str, Parameter(name="HUB", help="Folder or web address of a hub, or a place elsewhere.")]
SigningKey = Annotated[Path, Parameter(help="Private SSH key that signs; its .pub file where an agent has the key.")]
Owner = Annotated[str | None, Parameter(help="Fingerprint that the key of the hub's owner must have, SHA256:...")]
Reason = Annotated[str, Parameter(help="One line that readers see.")]
AnyVersion = Annotated[str, Parameter(help="Name of the environment; NAME==VERSION where it is not the newest.")]
Title = Annotated[str, Parameter(help="Title of the hub.")]
MaxFound = Annotated[PositiveInt, Parameter(help="Most environments that are listed.")]
TrainingRuns = Annotated[tuple[Path, ...], Parameter(help="Training runs whose tasks are compared with those of RUNS.")]
Yes = Annotated[bool, Parameter(help="Give what the package asks for without a question.")]
Dependencies = Annotated[bool, Parameter(help="Let pip fetch, as wheels alone, what the package needs and is missing.")]
Unsandboxed = Annotated[bool, Parameter(help="Let it run without a sandbox where there is none, with a warning.")]
ExportForm = Annotated[Form, Parameter(help="A package for PyPI, or the source of an image for OpenEnv.")]
StoredCard = Annotated[Path | None, Parameter(help="File of a stored card; one that is not current is written anew.")]
StoredOnly = Annotated[bool, Parameter(help="Refuse a package whose stored card is not current.")]
Replay = Annotated[int, Parameter(help="Rollouts of each ranked run that are played again; 0 for none, -1 for all.")]
PagesFolder = Annotated[Path | None, Parameter(help="Folder of the pages. Default: that of the hub.")]

hub = nested(
    "hub",
    """Publish environments as files with signatures, find them, and check them.

    A hub is a folder, which git, a web server or a synchronised folder makes public. search, info, verify and pages
    also read http:// and https:// addresses. They run nothing of what was published, but that verify plays rollouts of
    leaderboards again, in the sandbox.

    For search, info, add and publish there may be an environment from elsewhere: gymnasium:ID, textarena:ID,
    openenv:FOLDER, verifiers:FOLDER, harbor:FOLDER_OR_REGISTRY, with #NAME where a folder has several.

    The exit code is 1 when something is wrong with the hub, or a search finds nothing.""",
)


@contextmanager
def _hub_work() -> Iterator[OnProgress]:
    with stoppable(lambda: "stopped; the hub is as it was") as progress:

        def report(what: str, number: int, of: int) -> None:
            progress.log_step(what, number, of=of, metrics={})

        yield report


def _show_change(index: Index, what: str, *, json: bool) -> None:
    body = {"title": index.title, "records": index.records, "head": index.head, "owner": index.owner.fingerprint}
    show_result(body, f"{what}; the log has {index.records:,} records", json=json)


def _record(hub: Hub, listing: Listing) -> dict[str, Any]:
    more = {"by": listing.by, "record": listing.number, "warning": hub.warning(listing)}
    return {**asdict(listing.entry), **more}


@hub.command(name="init")
def init_command(place: HubPlace, /, *, key: SigningKey, title: Title = "", json: JsonFlag = False) -> None:
    """Create a hub. The key is its owner's."""
    with _hub_work():
        index = create_hub(place, key=key.expanduser(), title=title)
    _show_change(index, f"{place} is a hub of the key {index.owner.fingerprint}", json=json)


@hub.command(name="publish")
def publish_command(
    place: HubPlace,
    package: str,
    /,
    *,
    key: SigningKey,
    card: StoredCard = None,
    stored_only: StoredOnly = False,
    json: JsonFlag = False,
) -> None:
    """Build a package, check it, sign it and add it.

    Runs the gate of wander check, unless a stored card is current.

    Parameters
    ----------
    package:
        A package's folder, a wheel, or an environment from elsewhere.
    """
    with _hub_work() as report:
        if stored_only and card is None:
            raise UsageError("--stored-only needs --card, the file of the stored card")
        entry = publish(
            package, hub=place, key=key.expanduser(), card=card, stored_only=stored_only, on_progress=report
        )
    line = f"{entry.name} {entry.version} is published in {place}; probe: {entry.verdict}"
    show_result(asdict(entry), line, json=json)


@hub.command(name="yank")
def yank_command(
    place: HubPlace, name: str, version: str, /, *, key: SigningKey, reason: Reason = "", json: JsonFlag = False
) -> None:
    """Mark a version as not to be used."""
    with _hub_work():
        index = yank(name, version, hub=place, key=key.expanduser(), reason=reason)
    _show_change(index, f"{name} {version} is yanked", json=json)


@hub.command(name="allow")
def allow_command(place: HubPlace, public_key: Path, /, *, key: SigningKey, json: JsonFlag = False) -> None:
    """Let another key publish: the file of its public part."""
    with _hub_work():
        index = allow(public_key, hub=place, key=key.expanduser())
    _show_change(index, f"the key {index.keys[-1].fingerprint} may publish in {place}", json=json)


@hub.command(name="revoke")
def revoke_command(
    place: HubPlace, fingerprint: str, /, *, key: SigningKey, reason: Reason = "", json: JsonFlag = False
) -> None:
    """Withdraw a key and what it signed."""
    with _hub_work():
        index = revoke(fingerprint, hub=place, key=key.expanduser(), reason=reason)
    _show_change(index, f"the key {fingerprint} and what it signed are withdrawn", json=json)


@hub.command
def search(
    place: HubOrSource, /, *words: str, owner: Owner = None, limit: MaxFound = MAX_FOUND, json: JsonFlag = False
) -> int:
    """List environments whose name or summary has all words."""
    with _hub_work():
        if (foreign := foreign_source(place)) is not None:
            return _search_foreign(foreign[0], " ".join(words).lower().split(), limit=limit, json=json)
        opened = Hub.open(place, owner=owner)
        found = opened.search(" ".join(words), limit=limit)
    table = Table("environment", "version", "oracle", "chance", "probe", "summary")
    for one in found:
        entry = one.entry
        figures = [_figure(entry.oracle), _figure(entry.chance), entry.verdict]
        table.add_row(entry.name, entry.version, *figures, one_line(entry.summary, 60))
    body = {"title": opened.index.title, "environments": [_record(opened, one) for one in found]}
    line = f"{len(found):,} of {len(opened.newest()):,} environments"
    show_result(body, line, table=table if found else None, json=json)
    return 0 if found else 1


def _search_foreign(source: ForeignSource, words: list[str], *, limit: int, json: bool) -> int:
    """What a place has that can be wrapped."""
    names = source.names()
    found = [one for one in names if all(word in f"{one.name} {one.summary}".lower() for word in words)]
    table = Table("name", "summary")
    for one in found[:limit]:
        table.add_row(one.name, one_line(one.summary, 80))
    body = {"title": str(source), "environments": [asdict(one) for one in found[:limit]]}
    line = f"{len(found):,} of {len(names):,} environments"
    show_result(body, line, table=table if found else None, json=json)
    return 0 if found else 1


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


@hub.command
def info(
    place: HubOrSource, name: str = "", version: str | None = None, /, *, owner: Owner = None, json: JsonFlag = False
) -> None:
    """Show an environment's card; without a name, the hub's keys."""
    with _hub_work():
        if (foreign := foreign_source(place)) is not None:
            return _info_foreign(foreign[0], foreign[1] or name, json=json)
        opened = Hub.open(place, owner=owner)
        if not name:
            return _hub_info(opened, json=json)
        details = opened.info(name, version)
        rankings = opened.rankings(details.listing.entry.name, details.listing.entry.version)
    entry = details.listing.entry
    rows = {
        "environment": f"{entry.name} {entry.version}",
        "summary": entry.summary,
        "licence": entry.licence,
        "warning": opened.warning(details.listing) or "",
        "name where pip installs it": entry.environment,
        "requires": ", ".join(entry.requires),
        "asks for": "; ".join(entry.permissions.lines()),
        "tasks": ", ".join(f"{split} {count:,}" for split, count in entry.tasks.items()),
        "oracle": _figure(entry.oracle),
        "chance": _figure(entry.chance),
        "probe": entry.verdict,
        "code": f"{entry.code.digest} ({entry.code.size:,} bytes)",
        "signed by": details.listing.by,
        "versions": ", ".join(details.versions),
    }
    if rankings:
        policy, reward, *_ = ranking_cells(rankings[0])
        rows["best ranked run"] = f"{policy}: {reward}, of {len(rankings)} runs"
    body = {**_record(opened, details.listing), "versions": details.versions, "card": details.card}
    show_result({**body, "rankings": [asdict(one) for one in rankings]}, table=_rows(rows), json=json)


def _rows(rows: dict[str, str]) -> Table:
    """The rows that are not empty."""
    table = Table("", "", show_header=False)
    for name, text in rows.items():
        if text:
            table.add_row(name, one_line(text, 500))
    return table


def _info_foreign(source: ForeignSource, name: str, *, json: bool) -> None:
    """The package that wrapping would make."""
    draft = source.draft(name)
    rows = {
        "environment": f"{draft.name} {draft.version}",
        "from": str(source),
        "summary": draft.summary,
        "warning": "signed by nobody, and not checked: hub publish checks and signs it",
        "requires": ", ".join(draft.requires),
        "asks for": "; ".join(draft.permissions.lines()),
        "files": f"{len(draft.files):,}, {sum(map(len, draft.files.values())):,} bytes",
    }
    body = {**rows, "name": draft.name, "version": draft.version, "requires": draft.requires}
    show_result(body, table=_rows(rows), json=json)


def _hub_info(opened: Hub, *, json: bool) -> None:
    index = opened.index
    table = Table("key", "", title=one_line(index.title, 100), title_justify="left")
    for number, key in enumerate(index.keys):
        state = "owner" if number == 0 else "may publish"
        table.add_row(key.fingerprint, state if key.revoked is None else f"revoked: {key.revoked}")
    keys = [asdict(one) for one in index.keys]
    body = {"title": index.title, "records": index.records, "head": index.head, "keys": keys}
    line = f"{len(opened.newest()):,} environments, {len(index.listings):,} versions, {index.records:,} records"
    show_result(body, line, table=table, json=json)


@hub.command
def verify(
    place: HubPlace,
    name: str | None = None,
    /,
    *,
    owner: Owner = None,
    replay: Replay = SAMPLED_ROLLOUTS,
    json: JsonFlag = False,
) -> int:
    """Check every signature, digest and figure, or those of one environment.

    Of each entry of a leaderboard, some rollouts are played again in the sandbox.
    """
    if replay < -1:
        raise UsageError(f"--replay is a number of rollouts, 0 for none or -1 for all, not {replay}")
    with _hub_work() as report:
        opened = Hub.open(place, owner=owner)
        done = opened.verify(name, on_progress=report)
        if done.ok and replay:
            try:
                again = replay_entries(opened, name, count=None if replay < 0 else replay, on_progress=report)
                done = replace(done, problems=tuple(again))
            except SandboxFailure as failure:
                print_note(f"the rollouts of leaderboards were not played again: {failure}")
    lines = list(done.problems[:MAX_REPORTED])
    if len(done.problems) > MAX_REPORTED:
        lines.append(f"and {len(done.problems) - MAX_REPORTED:,} more problems; --json has all")
    if done.ok:
        lines = [f"OK: {done.records:,} records and the files of {done.versions:,} versions are as they were signed"]
    show_result({"hub": place, **asdict(done), "ok": done.ok}, *lines, json=json)
    return 0 if done.ok else 1


@hub.command(name="add")
def add_command(
    place: HubOrSource,
    name: AnyVersion,
    /,
    *,
    owner: Owner = None,
    yes: Yes = False,
    dependencies: Dependencies = False,
    unsandboxed: Unsandboxed = False,
    json: JsonFlag = False,
) -> None:
    """Verify a version, show what it asks for, and install it in isolation.

    It goes into a folder of its own. NAME is then an environment for the other commands. It runs in a sandbox with
    nothing more than was shown.
    """
    if not yes and not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask what the package may have: read hub info, and say --yes")

    def approve(entry: HubEntry) -> bool:
        print_note(f"{entry.name} {entry.version} asks for {'; '.join(entry.permissions.lines())}")
        return yes or input("Add it? [y/N] ").strip().lower() in ("y", "yes")

    name, _, version = name.partition("==")
    with _hub_work():
        added = add(
            name,
            version or None,
            hub=place,
            approve=approve,
            owner=owner,
            isolation="preferred" if unsandboxed else "required",
            dependencies=dependencies,
        )
    entry = added.entry
    line = f"{entry.name} {entry.version} is added, and runs isolated: wander eval {entry.name} --policy POLICY"
    show_result(asdict(added), line, json=json)


@hub.command(name="rank")
def rank_command(
    place: HubPlace,
    name: AnyVersion,
    /,
    *runs: Path,
    key: SigningKey | None = None,
    owner: Owner = None,
    trained_on: TrainingRuns = (),
    json: JsonFlag = False,
) -> int:
    """Show the leaderboard of an environment; with runs, add them to it.

    Evaluations are played again. Those that come to the same figures are added, signed by --key.
    """
    name, _, version = name.partition("==")
    with _hub_work() as report:
        if runs:
            if key is None:
                raise UsageError("a change is signed: name a private SSH key with --key, for example ~/.ssh/id_ed25519")
            rank(
                name,
                list(runs),
                hub=place,
                key=key.expanduser(),
                version=version or None,
                trained_on=trained_on,
                on_progress=report,
            )
        opened = Hub.open(place, owner=owner)
        found = opened.rankings(name, version or None)
    table = Table("policy", "reward", "95% interval", "tasks", "also trained on", "track", "probe", "signed by")
    verdict = one_line(opened.find(name, version or None).entry.verdict, 60)
    for one in found:
        table.add_row(*ranking_cells(one), verdict, one.by[:19])
    body = {"environment": name, "rankings": [asdict(one) for one in found]}
    entry = opened.find(name, version or None).entry
    line = f"{len(found):,} ranked runs; the main track: {board_command(entry)}"
    show_result({**body, "command": board_command(entry)}, line, table=table if found else None, json=json)
    return 0 if found else 1


@hub.command(name="export")
def export_command(environment: str, folder: str, /, *, form: ExportForm = "package", json: JsonFlag = False) -> None:
    """Write a ready-made environment as a package; nothing is built or uploaded."""
    with _hub_work():
        files = export(environment, folder, form=form)
    line = f"{folder} has {len(files)} files of {environment} as {form}; nothing is built or uploaded"
    show_result({"folder": folder, "form": form, "files": [str(one) for one in files]}, line, json=json)


@hub.command
def pages(place: HubPlace, /, *, owner: Owner = None, out: PagesFolder = None, json: JsonFlag = False) -> None:
    """Write static pages."""
    if out is None and place.startswith(("http://", "https://")):
        raise UsageError("the pages of a hub on the web need --out FOLDER")
    folder = out or Path(place)
    with _hub_work() as report:
        count = write_pages(Hub.open(place, owner=owner), folder, on_progress=report)
    line = f"{count:,} pages in {folder}; begin with {folder / 'index.html'}"
    show_result({"out": str(folder), "pages": count}, line, json=json)
