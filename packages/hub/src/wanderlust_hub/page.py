"""Static pages of a hub: one with a search, and one for each environment.

Whatever a publisher wrote is text: escaped in HTML, and set as text by the script. The pages load nothing from
elsewhere, and their content policy forbids it. The script loads one file of the search, by the first letters of a word.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from wanderlust.errors import one_line
from wanderlust_hub.board import track
from wanderlust_hub.entry import Listing, Ranking
from wanderlust_hub.index import CODE, DATA, Details, Hub, OnProgress, version_folder
from wanderlust_hub.location import write_durably

FIRST_ROWS = 100
"""Environments on the first page, before anything is searched."""
PREFIX_CHARS = 2
"""Letters of a word by which the files of the search are called."""
MAX_ROWS = 2_000
"""Environments in one file of the search."""
MAX_FINDINGS, MAX_RANKED = 20, 100
SEARCH_FOLDER, PAGE_FOLDER, SCRIPT = "search", "pages", "search.js"

STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #8884;vertical-align:top}
td{overflow-wrap:anywhere}td:first-child{overflow-wrap:normal}
input{font:inherit;width:100%;padding:.4rem;box-sizing:border-box}
.warning{border-left:4px solid #c60;padding-left:.8rem}
code{font-size:.85em}
"""
JAVASCRIPT = """\
"use strict";
const field = document.getElementById("query");
const body = document.getElementById("rows");
const note = document.getElementById("note");
const first = body.innerHTML;
const firstNote = note.textContent;
const loaded = {};
function show() {
  const words = field.value.toLowerCase().match(/[a-z0-9]+/g) || [];
  const key = (words.find((word) => word.length >= PREFIX) || "").slice(0, PREFIX);
  if (!key) {
    body.innerHTML = first;
    note.textContent = words.length ? "Type at least " + PREFIX + " letters." : firstNote;
    return;
  }
  if (!(key in loaded)) {
    loaded[key] = null;
    const script = document.createElement("script");
    script.src = "search/" + key + ".js";
    script.onerror = () => { loaded[key] = {rows: [], left: 0}; show(); };
    document.head.append(script);
  }
  if (loaded[key] === null) {
    note.textContent = "Loading.";
    return;
  }
  const found = loaded[key].rows.filter((row) => {
    const parts = (row[0] + " " + row[2]).toLowerCase();
    return words.every((word) => parts.includes(word));
  });
  body.replaceChildren(...found.slice(0, 100).map((row) => {
    const line = document.createElement("tr");
    row.forEach((text, place) => {
      const cell = document.createElement("td");
      if (place === 0) {
        const link = document.createElement("a");
        link.href = "pages/" + encodeURIComponent(text) + ".html";
        link.textContent = text;
        cell.append(link);
      } else {
        cell.textContent = text;
      }
      line.append(cell);
    });
    return line;
  }));
  const left = loaded[key].left ? "; " + loaded[key].left + " more are not searched here: use wander hub search" : "";
  note.textContent = found.length + (found.length === 1 ? " environment" : " environments") + left;
}
function hubRows(key, rows, left) {
  loaded[key] = {rows, left};
  show();
}
field.addEventListener("input", show);
if (field.value) { show(); }
"""
POLICY = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
HEAD = ("environment", "version", "summary", "oracle", "chance", "probe")

Row = Sequence[str]


def write_pages(hub: Hub, out: Path, *, on_progress: OnProgress = lambda what, number, of: None) -> int:
    """Write the pages of a hub into a folder, and return how many there are.

    Each version's card is read and its digest checked. Raises HubError at the first that is not as published.
    """
    newest = sorted(hub.newest(), key=lambda one: one.entry.name)
    rows = [_row(one) for one in newest]
    newest_name = {one.entry.name: one for one in newest}
    all_names = dict[str, list[Listing]]()
    for listing in hub.index.listings:
        all_names.setdefault(listing.entry.name, []).append(listing)
    for number, (name, versions) in enumerate(all_names.items(), 1):
        shown = newest_name.get(name, versions[-1])
        details = hub.info(name, shown.entry.version)
        write_durably(out / PAGE_FOLDER / f"{name}.html", environment_page(hub, details, versions).encode())
        on_progress("pages", number, len(all_names))
    for key, (shard, left) in search_files(rows).items():
        body = f"hubRows({json.dumps(key)},{json.dumps(shard)},{left});\n"
        write_durably(out / SEARCH_FOLDER / f"{key}.js", body.encode())
    write_durably(out / SCRIPT, JAVASCRIPT.replace("PREFIX", str(PREFIX_CHARS)).encode())
    write_durably(out / "index.html", first_page(hub.index.title, rows, owner=hub.index.owner.fingerprint).encode())
    return len(all_names) + 1


def search_files(rows: Iterable[Row]) -> dict[str, tuple[list[Row], int]]:
    """Rows by the first letters of the words of name and summary, and how many more there would be."""
    found = defaultdict[str, list[Row]](list)
    for row in rows:
        text = "".join(c if c.isascii() and c.isalnum() else " " for c in f"{row[0]} {row[2]}".lower())
        for key in {word[:PREFIX_CHARS] for word in text.split() if len(word) >= PREFIX_CHARS}:
            found[key].append(row)
    return {key: (shard[:MAX_ROWS], max(0, len(shard) - MAX_ROWS)) for key, shard in sorted(found.items())}


def first_page(title: str, rows: Sequence[Row], *, owner: str) -> str:
    """The page with the search; it holds the first environments, and the others are loaded by what is searched."""
    lines = "".join(_table_row([_link(row[0]), *map(_text, row[1:])]) for row in rows[:FIRST_ROWS])
    more = f"the first {FIRST_ROWS:,} of " if len(rows) > FIRST_ROWS else ""
    head = "".join(f"<th>{name}</th>" for name in HEAD)
    content = (
        f"<h1>{_text(title)}</h1>\n"
        '<input id="query" type="search" placeholder="Search names and summaries" aria-label="Search" autofocus>\n'
        f'<p id="note">{more}{len(rows):,} environments</p>\n'
        f'<table><thead><tr>{head}</tr></thead><tbody id="rows">{lines}</tbody></table>\n'
        f"<p>Key of the owner: <code>{_text(owner)}</code></p>\n"
        f'<script src="{SCRIPT}"></script>\n'
    )
    return _page(title, content)


def environment_page(hub: Hub, details: Details, versions: Sequence[Listing]) -> str:
    """The page of one environment: its figures, what the probe found, its cost, its files and versions."""
    entry, card = details.listing.entry, details.card
    warning = hub.warning(details.listing)
    place = f"../{version_folder(entry.name, entry.version)}"
    facts = {
        "version": entry.version,
        "licence": entry.licence,
        "name where pip installs it": entry.environment,
        "requires": ", ".join(entry.requires),
        "asks for": "; ".join(entry.permissions.lines()),
        "tasks": ", ".join(f"{split}: {count:,}" for split, count in entry.tasks.items()),
        "probe": entry.verdict,
        "signed by": details.listing.by,
        "cost of the check": _cost(card.get("cost")),
    }
    files = [(CODE, entry.code), (DATA, entry.data), ("card.json", entry.card)]
    links = [
        [f'<a href="{escape(place)}/{name}">{name}</a>', f"{one.size:,}", f"<code>{one.digest}</code>"]
        for name, one in files
    ]
    states = [[_text(one.entry.version), _text(hub.warning(one) or "")] for one in reversed(versions)]
    content = (
        f'<p><a href="../index.html">{_text(hub.index.title)}</a></p>\n<h1>{_text(entry.name)}</h1>\n'
        f"<p>{_text(entry.summary)}</p>\n"
        + (f'<p class="warning">{_text(warning)}</p>\n' if warning else "")
        + _table([[_text(name), _text(text)] for name, text in facts.items() if text])
        + "<h2>Players</h2>\n"
        + _table(_players(card), ["player", "reward", "95% interval", "tasks"])
        + "<h2>What the probe found</h2>\n"
        + _findings(card)
        + _leaderboard(hub.rankings(entry.name, entry.version))
        + "<h2>Files</h2>\n"
        + _table(links, ["file", "bytes", "SHA-256"])
        + "<h2>Versions</h2>\n"
        + _table(states, ["version", ""])
    )
    return _page(f"{entry.name} {entry.version}", content)


def ranking_cells(ranking: Ranking) -> list[str]:
    """A row of a leaderboard: policy, reward, interval, tasks, tasks that it was trained on, track."""
    run = ranking.run
    interval = "" if run.low is None or run.high is None else f"{run.low:.3f} to {run.high:.3f}"
    shared = "unknown" if run.shared is None else f"{run.shared} of {run.tasks}"
    policy, tasks = one_line(run.policy, 60), f"{run.tasks} of {run.of}"
    return [policy, f"{run.reward:.3f}", interval, tasks, shared, track(run) or "main"]


def _row(listing: Listing) -> Row:
    entry = listing.entry
    figures = ["" if one is None else f"{one:.3f}" for one in (entry.oracle, entry.chance)]
    return [entry.name, entry.version, one_line(entry.summary, 120), *figures, one_line(entry.verdict, 40)]


def _link(name: str) -> str:
    return f'<a href="{PAGE_FOLDER}/{escape(name)}.html">{escape(name)}</a>'


def _text(value: object) -> str:
    return escape(one_line(str(value), 500))


def _table_row(cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"


def _table(rows: Iterable[Iterable[str]], head: Sequence[str] = ()) -> str:
    """A table of cells that are HTML already."""
    top = "<thead><tr>" + "".join(f"<th>{name}</th>" for name in head) + "</tr></thead>" if head else ""
    return f"<table>{top}<tbody>{''.join(map(_table_row, rows))}</tbody></table>\n"


def _page(title: str, content: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{STYLE}</style></head>\n<body>\n{content}</body></html>\n"
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _figure(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else ""


def _players(card: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for name, one in list(_mapping(card.get("players")).items())[:MAX_FINDINGS]:
        player = _mapping(one)
        interval = f"{_figure(player.get('low'))} to {_figure(player.get('high'))}"
        rows.append([_text(name), _figure(player.get("reward")), interval, _text(player.get("tasks", ""))])
    return rows


def _cost(value: object) -> str:
    cost = _mapping(value)
    return f"{cost['episodes']} episodes, {cost['cpu_seconds']} s of processor time" if len(cost) >= 2 else ""


def _leaderboard(rankings: Sequence[Ranking]) -> str:
    """Ranked runs, each played again before it was signed, by track; nothing without any."""
    if not rankings:
        return ""
    head = ["policy", "reward", "95% interval", "tasks", "also trained on", "track", "signed by"]
    rows = [[*map(_text, ranking_cells(one)), f"<code>{_text(one.by)}</code>"] for one in rankings[:MAX_RANKED]]
    known = (
        "<p>The main track has all tasks, the environment's own limits, and the seed and the samples of this version. "
        "Every rollout was played again with its answers; who gave these, nobody can check.</p>\n"
    )
    return f"<h2>Leaderboard</h2>\n{known}{_table(rows, head)}"


def _findings(card: Mapping[str, Any]) -> str:
    """The probe's findings as the card has them: plain values as rows, lists as counts with their first members."""
    rows = []
    for name, value in list(_mapping(card.get("probe")).items())[:MAX_FINDINGS]:
        if isinstance(value, list | dict):
            shown = f"{len(value):,}: {json.dumps(value)}" if value else "none"
        else:
            shown = str(value)
        rows.append([_text(name.replace("_", " ")), _text(shown)])
    return _table(rows) if rows else "<p>Not probed.</p>\n"
