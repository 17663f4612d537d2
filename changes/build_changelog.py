"""Move the fragments of changes/ into a release of CHANGELOG.md: `python changes/build_changelog.py VERSION DATE`.

VERSION is the package's own, like 0.1.0, and DATE is like 2026-12-31. Nothing is written when anything is refused.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

KINDS = ("added", "changed", "fixed", "removed")
FRAGMENT = re.compile(rf"[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(KINDS)})\.md")
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
KEPT = {"README.md", Path(__file__).name, "__pycache__"}
"""What lies in changes/ and is no fragment."""


def release_section(root: Path, version: str, day: str) -> tuple[str, list[Path]]:
    """The section's text, and the fragments that are in it. Raises ValueError in one line."""
    if not VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is no version: it is like 0.1.0 or 0.2.0rc1")
    init = (root / "src/wanderlust/__init__.py").read_text(encoding="utf-8")
    if f'__version__ = "{version}"' not in init:
        raise ValueError(f"{version} is not the package's version: set __version__ in src/wanderlust/__init__.py first")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", day):
        raise ValueError(f"{day!r} is no date: it is like 2026-12-31")
    date.fromisoformat(day)
    fragments = sorted(path for path in (root / "changes").iterdir() if path.name not in KEPT)
    for path in fragments:
        if not FRAGMENT.fullmatch(path.name):
            raise ValueError(f"changes/{path.name} is no <a-few-words>.<kind>.md; kinds are {', '.join(KINDS)}")
    if not fragments:
        raise ValueError("there are no fragments in changes/")
    parts = [f"## {version} ({day})"]
    for kind in KINDS:
        entries = [_entry(path) for path in fragments if path.name.endswith(f".{kind}.md")]
        parts += [f"### {kind.capitalize()}", "\n".join(entries)] if entries else []
    return "\n\n".join(parts) + "\n", fragments


def _entry(fragment: Path) -> str:
    """The fragment as an item of a list, with links as they are from the root."""
    lines = fragment.read_text(encoding="utf-8").replace("](../", "](").split("\n")
    return "- " + "\n  ".join(line.rstrip() for line in lines if line.strip())


def build(root: Path, version: str, day: str) -> int:
    """Write the release above the earlier ones and delete its fragments; returns how many. Raises ValueError."""
    section, fragments = release_section(root, version, day)
    changelog = root / "CHANGELOG.md"
    head, mark, earlier = changelog.read_text(encoding="utf-8").partition("\n## ")
    if f"\n## {version} (" in mark + earlier:
        raise ValueError(f"CHANGELOG.md has a release {version} already")
    changelog.write_text(f"{head.rstrip()}\n\n{section}{mark}{earlier}", encoding="utf-8")
    for path in fragments:
        path.unlink()
    return len(fragments)


def main(words: Sequence[str]) -> int:
    """Build the changelog of this checkout; what is refused is one line, and 2."""
    if len(words) != 2:
        print("usage: python changes/build_changelog.py VERSION DATE", file=sys.stderr)
        return 2
    try:
        count = build(Path(__file__).parent.parent, *words)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"CHANGELOG.md has release {words[0]} with {count} fragments")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
