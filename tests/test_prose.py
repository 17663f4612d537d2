"""README and docs are in short sentences: none above 35 words, half of them at most 16. Messages name what there is."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path
from statistics import median

from project_files import python_files

ROOT = Path(__file__).parent.parent
PAGES = [README := ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MAX_WORDS = 35
MAX_MEDIAN_WORDS = 16

FENCED = re.compile(r"```.*?```|<!--.*?-->", re.DOTALL)
BREAK = re.compile(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-*] ")


def sentences(markdown: str) -> list[str]:
    """The sentences of a page's prose: no code, comments, tables, headings."""
    text = FENCED.sub("\n\n", markdown)
    prose = "\n".join(
        line
        for line in text.splitlines()
        if not (line.startswith((":::", "    ")) or line.lstrip().startswith(("|", "#")))
    )
    return [" ".join(sentence.split()) for sentence in BREAK.split(prose) if sentence.strip()]


def all_sentences() -> list[tuple[str, str]]:
    pages = [page for page in PAGES if "decisions" not in page.parts]
    return [(page.name, one) for page in pages for one in sentences(page.read_text(encoding="utf-8"))]


def test_no_sentence_is_long():
    long = [
        f"{page}: {len(text.split())} words: {text}" for page, text in all_sentences() if len(text.split()) > MAX_WORDS
    ]
    assert not long, "\n".join(long)


def test_half_of_the_sentences_are_short():
    assert median(len(text.split()) for _, text in all_sentences()) <= MAX_MEDIAN_WORDS


def test_what_counts_as_a_sentence():
    page = "# Title\n\nOne two. Three\nfour five?\n\n| a |\n\n```sh\nnot prose. no\n```\n- a list\n- of two: parts\n"
    assert sentences(page) == ["One two.", "Three four five?", "- a list", "of two:", "parts"]


CALLED = re.compile(r"\b(\w+)\(\)")


def test_errors_name_functions_that_there_are():
    """An advice such as `call bind() first` is of no use once the function has another name."""
    pages = {path: path.read_text(encoding="utf-8") for path in python_files("src")}
    defined = (re.findall(r"\b(?:def|class) (\w+)", page) for page in pages.values())
    known = {*dir(builtins), *(name for names in defined for name in names)}
    unknown = []
    for path, page in pages.items():
        if not re.search(r"\"[^\"\n]*\b\w+\(\)[^\"\n]*\"", page):
            continue
        raised = (node for node in ast.walk(ast.parse(page)) if isinstance(node, ast.Raise))
        parts = [part for node in raised for part in ast.walk(node) if isinstance(part, ast.Constant)]
        names = [name for part in parts if isinstance(part.value, str) for name in CALLED.findall(part.value)]
        unknown += [f"{path.name}: {name}()" for name in names if name not in known]
    assert not unknown, unknown
