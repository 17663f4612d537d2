"""`wander hub`: publish environments, find them, check what was published, and add them."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cyclopts import Parameter

from wanderlust.cli.long_commands import stoppable
from wanderlust.cli.options import JsonFlag, PositiveInt
from wanderlust.cli.output import print_json, print_note, print_result
from wanderlust.errors import UsageError, nearest_names, one_line
from wanderlust.runner.terminal import Table
from wanderlust_hub.add import add
from wanderlust_hub.entry import HubEntry, Index, Listing
from wanderlust_hub.export import Form, export
from wanderlust_hub.foreign import ForeignSource, foreign_source
from wanderlust_hub.index import MAX_FOUND, Hub, OnProgress
from wanderlust_hub.page import ranking_cells, write_pages
from wanderlust_hub.publish import allow, create_hub, publish, revoke, yank
from wanderlust_hub.rank import rank
from wanderlust_hub.ready_made import publish_ready_made

MAX_REPORTED = 20


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """Options of the verbs."""

    key: Path | None = None
    """Private SSH key that signs a change; its .pub file where an agent has the key."""
    owner: str | None = None
    """Fingerprint that the key of the hub's owner must have, SHA256:... (search, info, verify, pages, add)."""
    title: str = ""
    """Title of a new hub (init)."""
    reason: str = ""
    """One line that readers see (yank, revoke)."""
    out: Path | None = None
    """Folder of the pages; by default that of the hub (pages)."""
    limit: PositiveInt = MAX_FOUND
    """Most environments that are listed (search)."""
    trained_on: tuple[Path, ...] = ()
    """Training runs whose tasks are compared with those of the evaluations (rank)."""
    yes: bool = False
    """Give what the package asks for without a question (add)."""
    dependencies: bool = False
    """Let pip fetch what the package needs and is not installed here, as wheels alone (add)."""
    cards: Path | None = None
    """Folder of stored cards; those that are not current are made anew (ready-made)."""
    stored_only: bool = False
    """Leave out environments without a current card (ready-made)."""
    form: Literal["package", "openenv"] = "package"
    """What is written: a package for PyPI, or the source of an image for OpenEnv (export)."""
    unsandboxed: bool = False
    """Let it run with the rights of this user on a machine without a sandbox, with a warning (add)."""


DEFAULT_OPTIONS = HubOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """What a verb is called with."""

    hub: str
    words: tuple[str, ...]
    options: HubOptions
    report: OnProgress


_Shown = tuple[dict[str, Any], Table | None, list[str], int]


def hub_command(
    verb: str,
    hub: str,
    /,
    *words: str,
    options: HubOptions = DEFAULT_OPTIONS,
    json: JsonFlag = False,
) -> int:
    """Publish environments as files with signatures, find them, and check them.

    A hub is a folder, which git, a web server or a synchronised folder makes public. `search`, `info`, `verify` and
    `pages` also read http:// and https:// addresses. They run nothing of what was published.

    `hub init HUB --key KEY` creates one. `hub publish HUB PACKAGE --key KEY` builds a package folder (or takes a
    wheel), runs the gate of `wander check`, signs and adds it. `hub search HUB WORDS...` lists environments.
    `hub info HUB [NAME [VERSION]]` shows a card, or the hub's keys. `hub verify HUB [NAME]` checks every signature
    and digest. `hub yank HUB NAME VERSION` marks a version. `hub allow HUB PUBLIC_KEY_FILE` and
    `hub revoke HUB FINGERPRINT` change who may publish. `hub pages HUB` writes static pages.

    `hub add HUB NAME[==VERSION]` verifies a version, shows what it asks for, and installs it into a folder of its own.
    NAME is then an environment for the other commands. It runs in a sandbox with nothing more than was shown.

    `hub rank HUB NAME RUN... --key KEY` plays evaluations of NAME again, and adds those that come to the same figures
    to its leaderboard. `hub rank HUB NAME` shows that.

    In the place of PACKAGE, and of HUB for `search`, `info` and `add`, may be an environment from elsewhere:
    `gymnasium:ID`, `textarena:ID`, `openenv:FOLDER`, `verifiers:FOLDER`, `harbor:FOLDER_OR_REGISTRY`, with `#NAME`
    where a folder has several. `hub export ENVIRONMENT FOLDER` writes a ready-made environment as a package, or with
    `--form openenv` as the source of an image. `hub ready-made HUB` publishes all ready-made environments.

    The exit code is 1 when something is wrong with the hub, or a search finds nothing.

    Parameters
    ----------
    hub:
        Folder or web address of the hub.
    words:
        What the verb is about.
    """
    verbs = {
        "init": (_init, 0, 0),
        "publish": (_publish, 1, 1),
        "search": (_search, 0, 20),
        "info": (_info, 0, 2),
        "verify": (_verify, 0, 1),
        "yank": (_yank, 2, 2),
        "allow": (_allow, 1, 1),
        "revoke": (_revoke, 1, 1),
        "pages": (_pages, 0, 0),
        "add": (_add, 1, 1),
        "rank": (_rank, 1, 21),
        "export": (_export, 1, 1),
        "ready-made": (_ready_made, 0, 100),
    }
    if verb not in verbs:
        raise UsageError(f"no verb {verb!r} of wander hub; {nearest_names(verb, [*verbs], kind='verbs')}")
    function, least, most = verbs[verb]
    if not least <= len(words) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise UsageError(f"wander hub {verb} HUB takes {wanted} further words, and got {len(words)}")
    asks = verb == "add" and not options.yes
    if asks and not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask what the package may have: read hub info, and say --yes")
    with stoppable(lambda: "stopped; the hub is as it was") as progress:

        def report(what: str, number: int, of: int) -> None:
            progress.log_step(what, number, of=of, metrics={})

        body, table, lines, code = function(_Call(hub=hub, words=words, options=options, report=report))
    if json:
        print_json(body)
    else:
        print_result(table, *lines)
    return code


def _key(options: HubOptions) -> Path:
    if options.key is None:
        raise UsageError("a change is signed: name a private SSH key with --key, for example ~/.ssh/id_ed25519")
    return options.key.expanduser()


def _record(hub: Hub, listing: Listing) -> dict[str, Any]:
    more = {"by": listing.by, "record": listing.number, "warning": hub.warning(listing)}
    return {**asdict(listing.entry), **more}


def _changed(index: Index, what: str) -> _Shown:
    body = {"title": index.title, "records": index.records, "head": index.head, "owner": index.owner.fingerprint}
    return body, None, [f"{what}; the log has {index.records:,} records"], 0


def _init(call: _Call) -> _Shown:
    index = create_hub(call.hub, key=_key(call.options), title=call.options.title)
    return _changed(index, f"{call.hub} is a hub of the key {index.owner.fingerprint}")


def _publish(call: _Call) -> _Shown:
    entry = publish(call.words[0], hub=call.hub, key=_key(call.options), on_progress=call.report)
    line = f"{entry.name} {entry.version} is published in {call.hub}; probe: {entry.verdict}"
    return asdict(entry), None, [line], 0


def _yank(call: _Call) -> _Shown:
    name, version = call.words
    index = yank(name, version, hub=call.hub, key=_key(call.options), reason=call.options.reason)
    return _changed(index, f"{name} {version} is yanked")


def _allow(call: _Call) -> _Shown:
    index = allow(Path(call.words[0]), hub=call.hub, key=_key(call.options))
    return _changed(index, f"the key {index.keys[-1].fingerprint} may publish in {call.hub}")


def _revoke(call: _Call) -> _Shown:
    index = revoke(call.words[0], hub=call.hub, key=_key(call.options), reason=call.options.reason)
    return _changed(index, f"the key {call.words[0]} and what it signed are withdrawn")


def _search(call: _Call) -> _Shown:
    if (foreign := foreign_source(call.hub)) is not None:
        return _search_foreign(foreign[0], call)
    opened = Hub.open(call.hub, owner=call.options.owner)
    found = opened.search(" ".join(call.words), limit=call.options.limit)
    table = Table("environment", "version", "oracle", "chance", "probe", "summary")
    for one in found:
        entry = one.entry
        figures = [_figure(entry.oracle), _figure(entry.chance), entry.verdict]
        table.add_row(entry.name, entry.version, *figures, one_line(entry.summary, 60))
    body = {"title": opened.index.title, "environments": [_record(opened, one) for one in found]}
    names = len(opened.newest())
    return body, table if found else None, [f"{len(found):,} of {names:,} environments"], 0 if found else 1


def _search_foreign(source: ForeignSource, call: _Call) -> _Shown:
    """What a place has that can be wrapped."""
    words, names = " ".join(call.words).lower().split(), source.names()
    found = [one for one in names if all(word in f"{one.name} {one.summary}".lower() for word in words)]
    table = Table("name", "summary")
    for one in found[: call.options.limit]:
        table.add_row(one.name, one_line(one.summary, 80))
    body = {"title": str(source), "environments": [asdict(one) for one in found[: call.options.limit]]}
    return body, table if found else None, [f"{len(found):,} of {len(names):,} environments"], 0 if found else 1


def _info_foreign(source: ForeignSource, name: str) -> _Shown:
    """The package that wrapping would make."""
    draft = source.draft(name)
    table = Table("", "", show_header=False)
    rows = {
        "environment": f"{draft.name} {draft.version}",
        "from": str(source),
        "summary": draft.summary,
        "warning": "signed by nobody, and not checked: hub publish checks and signs it",
        "requires": ", ".join(draft.requires),
        "asks for": "; ".join(draft.permissions.lines()),
        "files": f"{len(draft.files):,}, {sum(map(len, draft.files.values())):,} bytes",
    }
    for row, text in rows.items():
        table.add_row(row, one_line(text, 500))
    body = {**rows, "name": draft.name, "version": draft.version, "requires": draft.requires}
    return body, table, [], 0


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _info(call: _Call) -> _Shown:
    if (foreign := foreign_source(call.hub)) is not None:
        return _info_foreign(foreign[0], foreign[1] or "".join(call.words[:1]))
    opened = Hub.open(call.hub, owner=call.options.owner)
    if not call.words:
        return _hub_info(opened)
    details = opened.info(call.words[0], call.words[1] if len(call.words) > 1 else None)
    entry, warning = details.listing.entry, opened.warning(details.listing)
    table = Table("", "", show_header=False)
    rows = {
        "environment": f"{entry.name} {entry.version}",
        "summary": entry.summary,
        "licence": entry.licence,
        "warning": warning or "",
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
    for name, text in rows.items():
        if text:
            table.add_row(name, one_line(text, 500))
    rankings = opened.rankings(entry.name, entry.version)
    if rankings:
        policy, reward, *_ = ranking_cells(rankings[0])
        table.add_row("best ranked run", f"{policy}: {reward}, of {len(rankings)} runs")
    body = {**_record(opened, details.listing), "versions": details.versions, "card": details.card}
    return {**body, "rankings": [asdict(one) for one in rankings]}, table, [], 0


def _hub_info(opened: Hub) -> _Shown:
    index = opened.index
    table = Table("key", "", title=one_line(index.title, 100), title_justify="left")
    for number, key in enumerate(index.keys):
        state = "owner" if number == 0 else "may publish"
        table.add_row(key.fingerprint, state if key.revoked is None else f"revoked: {key.revoked}")
    keys = [asdict(one) for one in index.keys]
    body = {"title": index.title, "records": index.records, "head": index.head, "keys": keys}
    line = f"{len(opened.newest()):,} environments, {len(index.listings):,} versions, {index.records:,} records"
    return body, table, [line], 0


def _verify(call: _Call) -> _Shown:
    opened = Hub.open(call.hub, owner=call.options.owner)
    done = opened.verify(call.words[0] if call.words else None, on_progress=call.report)
    lines = list(done.problems[:MAX_REPORTED])
    if len(done.problems) > MAX_REPORTED:
        lines.append(f"and {len(done.problems) - MAX_REPORTED:,} more problems; --json has all")
    if done.ok:
        lines = [f"OK: {done.records:,} records and the files of {done.versions:,} versions are as they were signed"]
    return {"hub": call.hub, **asdict(done), "ok": done.ok}, None, lines, 0 if done.ok else 1


def _add(call: _Call) -> _Shown:
    name, _, version = call.words[0].partition("==")
    options = call.options

    def approve(entry: HubEntry) -> bool:
        print_note(f"{entry.name} {entry.version} asks for {'; '.join(entry.permissions.lines())}")
        return options.yes or input("Add it? [y/N] ").strip().lower() in ("y", "yes")

    added = add(
        name,
        version or None,
        hub=call.hub,
        approve=approve,
        owner=options.owner,
        isolation="preferred" if options.unsandboxed else "required",
        dependencies=options.dependencies,
    )
    entry = added.entry
    line = f"{entry.name} {entry.version} is added, and runs isolated: wander eval {entry.name} --policy POLICY"
    return asdict(added), None, [line], 0


def _rank(call: _Call) -> _Shown:
    name, _, version = call.words[0].partition("==")
    runs, options = [Path(one) for one in call.words[1:]], call.options
    if runs:
        rank(
            name,
            runs,
            hub=call.hub,
            key=_key(options),
            version=version or None,
            trained_on=options.trained_on,
            on_progress=call.report,
        )
    opened = Hub.open(call.hub, owner=options.owner)
    found = opened.rankings(name, version or None)
    table = Table("policy", "reward", "95% interval", "tasks", "failed", "also trained on", "probe", "signed by")
    verdict = one_line(opened.find(name, version or None).entry.verdict, 60)
    for one in found:
        table.add_row(*ranking_cells(one), verdict, one.by[:19])
    body = {"environment": name, "rankings": [asdict(one) for one in found]}
    return body, table if found else None, [f"{len(found):,} ranked runs"], 0 if found else 1


def _export(call: _Call) -> _Shown:
    form: Form = "openenv" if call.options.form == "openenv" else "package"
    files = export(call.hub, call.words[0], form=form)
    line = f"{call.words[0]} has {len(files)} files of {call.hub} as {form}; nothing is built or uploaded"
    return {"folder": call.words[0], "form": form, "files": [str(one) for one in files]}, None, [line], 0


def _ready_made(call: _Call) -> _Shown:
    options = call.options
    made = publish_ready_made(
        call.hub,
        key=_key(options),
        only=call.words,
        cards=options.cards,
        stored_only=options.stored_only,
        on_progress=call.report,
    )
    lines = [f"{name} is left out: {why}" for name, why in made.left_out.items()]
    lines.append(f"{len(made.published):,} ready-made environments are published in {call.hub}")
    return {"hub": call.hub, **asdict(made)}, None, lines, 0


def _pages(call: _Call) -> _Shown:
    if call.options.out is None and call.hub.startswith(("http://", "https://")):
        raise UsageError("the pages of a hub on the web need --out FOLDER")
    out = call.options.out or Path(call.hub)
    count = write_pages(Hub.open(call.hub, owner=call.options.owner), out, on_progress=call.report)
    return {"out": str(out), "pages": count}, None, [f"{count:,} pages in {out}; begin with {out / 'index.html'}"], 0
