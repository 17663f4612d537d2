"""The figures of docs/benchmarks.md, written from the results that are kept.

The page's prose is written by hand. Between `<!-- bars: NAME ... -->` and `<!-- /bars -->` stand the tables of the
named subjects, and only this module writes them; `<!-- bars: * -->` has all that are named nowhere else on the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from benchmarks.bar import Bar
from benchmarks.results import ROOT, load

PAGE = ROOT / "docs" / "benchmarks.md"
BLOCK = re.compile(r"<!-- bars: (?P<names>[^>]+?) -->\n.*?<!-- /bars -->", re.DOTALL)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _row(record: Mapping[str, Any]) -> str:
    bar = Bar(**{key: value for key, value in record.items() if key not in {"met", "verdict"}})
    figure, wanted, aim = bar.values()
    return f"| {_cell(bar.name)} | {figure} | {wanted} | {aim} | {bar.verdict} | {_cell(bar.note)} |"


def _source(result: Mapping[str, Any], today: date) -> str:
    """The sentence above a table: when, on what, and how the figures came here."""
    days = (today - date.fromisoformat(result["measured"])).days
    age = "today" if days <= 0 else "a day ago" if days == 1 else f"{days} days ago"
    machine = result["machine"]
    where = ", ".join(f"{key} {value}" for key, value in machine.items() if value not in (None, ""))
    hand = " Entered by hand from the page of that commit." if result["entered"] == "by hand" else ""
    return f"`{result['name']}`, measured on {result['measured']} ({age}) at {result['commit']}; {where}.{hand}"


def table(result: Mapping[str, Any], *, today: date) -> str:
    """One subject: where its figures come from, and a row for each bar."""
    head = "| bar | figure | wanted | aim | | |\n|---|---|---|---|---|---|"
    return "\n".join([_source(result, today), "", head, *map(_row, result["bars"])])


def filled(text: str, results: Mapping[str, Mapping[str, Any]], *, today: date) -> str:
    """The page with its tables made anew; KeyError names a subject of which nothing is kept."""
    placed = {name for found in BLOCK.finditer(text) for name in found["names"].split()}

    def block(found: re.Match[str]) -> str:
        names = [
            one for name in found["names"].split() for one in (sorted({*results} - placed) if name == "*" else [name])
        ]
        tables = "\n\n".join(table(results[name], today=today) for name in names)
        return f"<!-- bars: {found['names']} -->\n{tables}\n<!-- /bars -->"

    return BLOCK.sub(block, text)


def write_page(path: Path = PAGE) -> int:
    """Write the tables of the page; how many subjects it names."""
    text = path.read_text(encoding="utf-8")
    path.write_text(filled(text, load(), today=datetime.now(UTC).date()), encoding="utf-8")
    return sum(len(found["names"].split()) for found in BLOCK.finditer(text))
