"""The figures of docs/benchmarks.md, written from the results that are kept.

The page's prose is written by hand and has no figure. Between `<!-- bars: NAME ... -->` and `<!-- /bars -->` stand the
tables of the named subjects, and only this module writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.bar import Bar
from benchmarks.results import ENTERED_BY_COMMAND, ROOT, is_current, load

PAGE = ROOT / "docs" / "benchmarks.md"
BLOCK = re.compile(r"<!-- bars: (?P<names>[^>]+?) -->\n.*?<!-- /bars -->", re.DOTALL)
STALE = "**Not measured on today's code**: some of what these figures depend on has changed since, or was not noted."
HEAD = "| bar | figure | wanted | aim | | |\n|---|---|---|---|---|---|"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _row(record: Mapping[str, Any]) -> str:
    bar = Bar(**{key: value for key, value in record.items() if key not in {"met", "verdict"}})
    figure, wanted, aim = bar.values()
    return f"| {_cell(bar.name)} | {figure} | {wanted} | {aim} | {bar.verdict} | {_cell(bar.note)} |"


def _source(result: Mapping[str, Any], code: str) -> str:
    """The lines above a table: when and on what it was measured, how the figures came here, and what has changed."""
    machine = ", ".join(f"{key} {value}" for key, value in result["machine"].items() if value not in (None, ""))
    line = f"`{result['name']}`, measured on {result['measured']} at commit {result['commit']}; {machine}."
    if result["entered"] != ENTERED_BY_COMMAND:
        line = f"{line} Entered {result['entered']}."
    return line if is_current(result, code) else f"{line}\n{STALE}"


def table(name: str, results: Mapping[str, Mapping[str, Any]], codes: Mapping[str, str]) -> str:
    """One subject: where its figures come from, and a row for each bar; or that there are none."""
    if name not in results:
        return f"`{name}`: no result is kept. `python -m benchmarks --only {name}` measures it."
    return "\n".join([_source(results[name], codes[name]), "", HEAD, *map(_row, results[name]["bars"])])


def filled(text: str, results: Mapping[str, Mapping[str, Any]], codes: Mapping[str, str]) -> str:
    """The page with its tables made anew; `codes` has the digest of each subject's code as it is now."""

    def block(found: re.Match[str]) -> str:
        tables = "\n\n".join(table(name, results, codes) for name in found["names"].split())
        return f"<!-- bars: {found['names']} -->\n{tables}\n<!-- /bars -->"

    return BLOCK.sub(block, text)


def names(text: str) -> list[str]:
    """The subjects that the page has tables of, in its order."""
    return [name for found in BLOCK.finditer(text) for name in found["names"].split()]


def write_page(codes: Mapping[str, str], path: Path = PAGE) -> None:
    """Write the tables of the page."""
    path.write_text(filled(path.read_text(encoding="utf-8"), load(), codes), encoding="utf-8")
