"""docs/benchmarks.md: a table for every subject, from the kept results; a mark where their code has changed since."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import code, results
from benchmarks.__main__ import QUICK, codes, subjects
from benchmarks.page import PAGE, filled, names


def test_the_page_has_every_subject_and_no_other_tables_than_the_kept_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert sorted(names(text)) == subjects()
    assert filled(text, results.load(), codes()) == text, "run: python -m benchmarks --page"
    assert {*subjects()} >= QUICK


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of three files, of which the bars use two."""
    monkeypatch.setattr(code, "ROOT", tmp_path)
    for name, text in {
        "benchmarks/bars_x.py": 'from wanderlust import play\n\nPROGRAM = "serve.py"\n',
        "benchmarks/serve.py": "import wanderlust.served\n",
        "src/wanderlust/__init__.py": "",
        "src/wanderlust/__init__.pyi": "from wanderlust.runner import play as play\n",
        "src/wanderlust/runner.py": "def play():\n    return 1\n",
        "src/wanderlust/served.py": "PORT = 0\n",
        "src/wanderlust/other.py": "OTHER = 0\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def now() -> str:
    for one in (code._folders, code.file_of, code._offered, code._read, code.digest):
        one.cache_clear()
    return code.digest("benchmarks.bars_x")


@pytest.fixture(autouse=True)
def forgotten() -> object:
    yield
    now()


def test_a_digest_is_of_all_that_the_bars_import_or_start_and_of_nothing_else(project: Path) -> None:
    first = now()
    for name in ("benchmarks/bars_x.py", "benchmarks/serve.py", "src/wanderlust/runner.py", "src/wanderlust/served.py"):
        file, before = project / name, now()
        file.write_text(f"{file.read_text()}\nMORE = 1\n")
        assert now() != before, name
        file.write_text(file.read_text().removesuffix("\nMORE = 1\n"))
    (project / "src/wanderlust/other.py").write_text("OTHER = 1\n")
    assert now() == first


def test_what_does_nothing_does_not_count(project: Path) -> None:
    first, file = now(), project / "src/wanderlust/runner.py"
    file.write_text('"""Plays."""\n\n# As before.\ndef play():\n    """One."""\n\n    return 1\n')
    assert now() == first
    file.write_text("def play():\n    return 2\n")
    assert now() != first
