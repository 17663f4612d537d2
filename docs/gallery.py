"""A hook of mkdocs: a page for each folder of environments/, made of its card, and a gallery of all of them."""

from __future__ import annotations

import inspect
import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from wanderlust._lazy import import_object

ROOT = Path(__file__).parent.parent
FOLDER, SECTION = "environments", "Environments"
CARDS = sorted(ROOT.glob(f"{FOLDER}/*/README.md"))
HEAD = """# Environments

`wander list` shows every environment that is installed here. A page for each family says what the agent does, how it
is rewarded, what was measured, and what is weak in it. `pip install 'wanderlust[environments]'` brings all families.

## Come with the core

"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages into the navigation."""
    pages = [{path.parent.name.replace("_", " ").capitalize(): f"{FOLDER}/{path.parent.name}.md"} for path in CARDS]
    for entry in config.nav or []:
        if SECTION in entry:
            entry[SECTION] = [f"{FOLDER}/index.md", *pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for path in CARDS:
        files.append(File.generated(config, f"{FOLDER}/{path.parent.name}.md", content=card(path)))
    files.append(File.generated(config, f"{FOLDER}/index.md", content=gallery()))
    return files


def card(path: Path) -> str:
    """The card with links that hold on the site; what is not on the site keeps its name alone."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"\]\(\.\./\.\./docs/", "](../", text)
    return re.sub(r"\[([^\]]*)\]\((?:\.\./\.\./(?!docs)|(?!https?:|\.\./|#))[^)]*\)", r"\1", text)


def gallery() -> str:
    """All families with what they are, their environments, and the beginning of a conversation."""
    first = [point for point in entry_points(group="wanderlust.environments") if point.value.startswith("wanderlust.")]
    lines = [HEAD + "| name | what it is |", "|---|---|"]
    lines += [f"| `{point.name}` | {summary(point.value)} |" for point in sorted(first, key=lambda one: one.name)]
    for path in CARDS:
        project: dict[str, Any] = tomllib.loads((path.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        names = project["entry-points"]["wanderlust.environments"]
        shown = ", ".join(f"`{name}`" for name in names)
        lines += ["", f"## [{path.parent.name}]({path.parent.name}.md)", "", f"{project['description']}", "", shown, ""]
        lines += example(path.read_text(encoding="utf-8"))
    return "\n".join(lines) + "\n"


def summary(target: str) -> str:
    """The first line of what a class says."""
    return (inspect.getdoc(import_object(target)) or "").partition("\n")[0].replace("|", "\\|")


def example(text: str) -> list[str]:
    """The first conversation, or the first picture, of a card."""
    block = re.search(r"^```text\n.*?^```$|^!\[.*?\]\(.*?\)$", text, re.DOTALL | re.MULTILINE)
    return block[0].splitlines() if block else []
