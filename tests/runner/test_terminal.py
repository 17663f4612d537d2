"""Whatever users and models write is shown in a terminal as it is: no emoji codes, no markup, no control characters."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path
from typing import Any

import pytest
import rich.console
from hypothesis import example, given
from hypothesis import strategies as st

from project_files import ROOT, python_files
from wanderlust.cli.main import main
from wanderlust.errors import printable
from wanderlust.evals.report import render_text
from wanderlust.runner.progress import Progress
from wanderlust.runner.terminal import Console, Table

SOURCE = ROOT / "src/wanderlust"
PLACE = SOURCE / "runner/terminal.py"
ALLOWED = {"rich.console.Group", "rich.live.Live", "rich.progress_bar.ProgressBar"}
"""What of rich makes no text of its own."""
TEXTS = (
    ":heart:",
    "t:smile:1",
    "[red]x[/red]",
    "[link=https://example.org]y[/link]",
    "[/]",
    "[bold",
    "\x1b[2J",
    "\x07",
)

ENVIRONMENT = '''
from wanderlust import Environment, Scripted, Task, user

TEXTS = {texts!r}


class Marked(Environment):
    """Tasks, messages, parts, metrics and failures with every text that a terminal could take for its own."""

    def tasks(self, split="train"):
        return [
            Task(id=f"{{split}}-{{n}} {{text}}", answer=text, info={{"kind": text}}) for n, text in enumerate(TEXTS)
        ]

    async def run(self, episode):
        said = await episode.agent.act(user(" ".join(TEXTS)))
        if episode.task.id.startswith("eval-0"):
            raise ValueError(" ".join(TEXTS))
        episode.reward("part :heart: [red]x[/red]", float(said.content == episode.task.answer))


def answer(messages, rng):
    return rng.choice(TEXTS)
'''

PLAN = """
[[sources]]
name = "s :heart: [red]x[/red]"
file = "rows.jsonl"
[[teachers]]
name = "t :smile: [/]"
policy = "file.py:answer"
"""


def shown(text: str) -> str:
    """A text as a table shows it."""
    return printable(text).replace("\t", "\\t")


def shows(text: str, output: str) -> bool:
    """Whether output has a text, wherever lines were broken."""
    return "".join(shown(text).split()) in "".join(output.split())


def unchanged(output: str) -> None:
    assert not {"❤", "😄", "\x1b", "\x07"} & {*output}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment, a plan and an evaluation."""
    folder = tmp_path_factory.mktemp("marked")
    (folder / "file.py").write_text(ENVIRONMENT.format(texts=TEXTS))
    rows = [{"prompt": f"{n} {text}", "answer": text} for n, text in enumerate(TEXTS)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "plan.toml").write_text(PLAN)
    return folder


RUN = "runs/r :heart: [red]x"
EVALUATE = ("eval", "file.py:Marked", "--policy", "file.py:answer", "--group-by", "kind")
COMMANDS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    ((*EVALUATE, "--out", RUN), ("part :heart: [red]x[/red]", *TEXTS)),
    ((*EVALUATE, "--out", "runs/second", "--seed", "1"), ()),
    (("runs", "runs"), ("r :heart: [red]x",)),
    (("show", RUN), tuple(text for text in TEXTS if len(text) < 20)),
    (("show", RUN, "1"), TEXTS),
    (("compare", RUN, "runs/second"), (RUN,)),
    (("watch", "file.py:Marked", "--policy", "file.py:answer"), TEXTS),
    (("check", "file.py:Marked"), ()),
    (("probe", "file.py:Marked", "--n", "4"), ()),
    (("data", "build", "plan.toml", "--out", "built :heart:"), ("built :heart:", "t :smile: [/]")),
    (("export", RUN, "--to", "jsonl", "--out", "out :smile: [red]x.jsonl"), ("out :smile: [red]x.jsonl",)),
    (("probe", "file.py::heart:"), (":heart:",)),
    (("show", "no :smile: [red]run[/red]"), ("no :smile: [red]run[/red]",)),
    ((":smile:",), (":smile:",)),
    (("show", RUN, "--:heart:[red]x[/red]"), (":heart:[red]x[/red]",)),
]


def test_commands_show_texts_and_names_as_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for words, texts in COMMANDS:
        with pytest.raises(SystemExit):
            main([*words])
        output = "".join(capsys.readouterr())
        unchanged(output)
        assert output.strip()
        assert [text for text in texts if not shows(text, output)] == [], f"{words}: {output}"
    exported = Path("out :smile: [red]x.jsonl").read_text()
    assert all(json.dumps(text)[1:-1] in exported for text in TEXTS)


def rendered(content: Any, console: rich.console.Console) -> str:
    with console.capture() as capture:
        console.print(content)
    return capture.get()


@given(st.text() | st.sampled_from(TEXTS))
@example(" ".join(TEXTS))
def test_a_table_shows_any_text_on_any_console(text: str) -> None:
    table = Table(text, title=text)
    table.add_row(text)
    for console in (Console(width=10_000), rich.console.Console(width=10_000)):
        output = rendered(table, console)
        assert "\x1b" not in output
        words = output.split()
        assert [word for word in shown(text).split() if words.count(word) < 3] == []
    assert shows(text, render_text(table))


@given(st.text() | st.sampled_from(TEXTS))
@example(" ".join(TEXTS))
def test_a_line_shows_any_text(text: str) -> None:
    assert shows(text, rendered(text, Console(width=10_000)))


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_shows_names_as_they_are(terminal: bool) -> None:
    options: dict[str, Any] = {"width": 1000, "force_terminal": terminal, "color_system": None, "legacy_windows": False}
    for console in (Console(file=io.StringIO(), **options), rich.console.Console(file=io.StringIO(), **options)):
        stage = " ".join(TEXTS)
        with Progress(console) as progress:
            progress.log_step(stage, 1, of=2, metrics={"reward": 0.5})
            progress.log_step("eval", 1, of=2, metrics={f"{stage}/win": 0.5})
            progress.log_line(stage)
        output = console.file.getvalue()  # type: ignore[attr-defined]
        assert not {"❤", "😄", "\x07"} & {*output}
        assert output.count(printable(stage)) >= 3


def rich_names(tree: ast.Module) -> set[str]:
    """What a module takes from rich, with the modules it is in."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "rich"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rich":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_consoles_tables_and_texts_are_made_in_one_place() -> None:
    used = {path: rich_names(ast.parse(path.read_text())) for path in python_files("src")}
    assert {path: names - ALLOWED for path, names in used.items() if path != PLACE and names - ALLOWED} == {}
    assert used[PLACE]


@pytest.mark.parametrize(
    "line",
    ["import rich", "from rich import print", "from rich.console import Console, Group", "import rich.table as t"],
)
def test_another_place_is_found(line: str) -> None:
    assert rich_names(ast.parse(line)) - ALLOWED
