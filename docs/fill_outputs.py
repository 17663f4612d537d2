"""Run the Python of a tutorial and put what it prints below each block: `python docs/fill_outputs.py PAGE...`

A ```text fence right after a ```python fence holds the output of that block. Blocks run in order in an empty folder.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

FENCE = re.compile(r"(?P<marker><!-- ci: no[^>]*-->\s*)?```(?P<language>\w+)\n(?P<code>.*?)```\n", re.DOTALL)


def filled(page: Path) -> str:
    """The page with the outputs of this run."""
    text, names = page.read_text(encoding="utf-8"), {"__name__": "__main__"}
    parts, end, printed = [], 0, None
    for fence in FENCE.finditer(text):
        between = text[end : fence.start()]
        if fence["language"] == "python" and not fence["marker"]:
            printed = _output(fence["code"], page, line=1 + text[: fence.start("code")].count("\n"), names=names)
        elif fence["language"] == "text" and printed is not None and not between.strip().startswith("```"):
            parts += [text[end : fence.start()], f"```text\n{printed.rstrip()}\n```\n"]
            end, printed = fence.end(), None
            continue
        parts.append(text[end : fence.end()])
        end = fence.end()
    return "".join([*parts, text[end:]])


def _output(code: str, page: Path, *, line: int, names: dict[str, object]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile("\n" * (line - 1) + code, page, "exec"), names)
    return re.sub(r"[ \t]+$", "", out.getvalue(), flags=re.MULTILINE)


def main(pages: list[str]) -> int:
    """Rewrite the pages."""
    for page in [Path(name).resolve() for name in pages]:
        before = Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                text = filled(page)
            finally:
                os.chdir(before)
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
