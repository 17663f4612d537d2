"""The Python of README and docs runs as it stands; the README's commands say whether CI runs them."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from readme import README, Block, blocks, first_environment, run
from tiers import proof_except
from wanderlust.cli.main import build, command_names, main

ROOT = Path(__file__).parent.parent
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]


def code(page: Path) -> str:
    """A page's Python blocks as one program that keeps the page's line numbers."""
    lines = [""] * len(page.read_text(encoding="utf-8").splitlines())
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "python" and block.marker != "no":
            lines[block.line - 1 : block.line - 1 + block.code.count("\n")] = block.code.splitlines()
    return "\n".join(lines)


HEAVY = {
    ROOT / "docs" / name
    for name in ("scale.md", "training.md", "distillation.md", "universes.md", "tutorials/train-on-your-data.md")
}
WITH_CODE = [page for page in PAGES if code(page).strip()]

TIERED = proof_except({*WITH_CODE} - HEAVY, WITH_CODE, group="pages")


@pytest.mark.parametrize("page", TIERED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_of_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.name == "hub.md":  # it remembers the hubs that it has seen, by their folders
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    exec(compile(code(page), page, "exec"), {"__name__": "__main__"})


def test_readme_has_python():
    assert README in WITH_CODE


@pytest.mark.parametrize(
    "words", ["check game.py:HigherLower", "eval game.py:HigherLower --policy teacher --samples 4"]
)
def test_commands_take_the_first_environment_of_readme(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "game.py").write_text(first_environment(), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 0, capsys.readouterr().err


def test_every_command_of_readme_is_marked():
    commands = [block for block in blocks(README.read_text(encoding="utf-8")) if block.language == "sh"]
    assert [block.line for block in commands if block.marker is None] == []
    assert {"make demo", "make test"} <= {line.split("#")[0].strip() for b in commands for line in b.code.splitlines()}


def test_commands_on_pages_exist():
    named = {
        (page.name, verb)
        for page in PAGES
        for verb in re.findall(r"`wander ([a-z]+(?:-[a-z]+)*)", page.read_text("utf-8"))
    }
    assert len(named) > 15
    commands = command_names(build())
    assert [one for one in sorted(named) if one[1] not in commands] == []


def test_options_on_pages_exist():
    helps = dict(
        re.findall(r"^##+ wander (.+?)\n(.*?)(?=^##+ |\Z)", (ROOT / "docs/cli.md").read_text("utf-8"), re.S | re.M)
    )
    unknown = []
    for page in (page for page in PAGES if "decisions" not in page.parts and page.name != "cli.md"):
        calls = re.findall(r"\bwander ([a-z-]+)([^\n`#]*)", page.read_text("utf-8").replace("\\\n", " "))
        for verb, rest in ((verb, rest) for verb, rest in calls if verb in helps):
            text = helps.get(f"{verb} {(rest.split() or [''])[0]}", helps[verb])
            options = re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", rest)
            unknown += [(page.name, verb, option) for option in options if option not in text]
    assert unknown == []


def test_blocks_know_their_marker_and_line():
    page = "text\n<!-- ci: no, it asks -->\n```sh\na\nb\n```\nmore\n```sh\nc\n```\n"
    assert blocks(page) == [
        Block(language="sh", code="a\nb\n", line=4, marker="no"),
        Block(language="sh", code="c\n", line=9, marker=None),
    ]


def test_failing_command_ends_its_block_and_all_it_started(tmp_path):
    code = "(sleep 1; touch late) &\nfalse | true\ntouch after\n"
    assert run(Block(language="sh", code=code, line=1, marker="run"), tmp_path) == 1
    time.sleep(1.5)
    assert list(tmp_path.iterdir()) == []
