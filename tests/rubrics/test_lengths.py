"""How much has to be written for an environment: lines of the shipped files, held to what was promised."""

import ast
import io
import tokenize

import pytest

from project_files import ROOT

ROOM = ROOT / "src/wanderlust"


def code_lines(path):
    """Lines with code on them: neither blank, nor comment, nor docstring."""
    text = path.read_text(encoding="utf-8")
    told = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    spoken = {line for t in tokens if t.type not in silent for line in range(t.start[0], t.end[0] + 1)}
    return len(spoken - told)


FILES = {"environments/wordle.py": 170, "environments/calculator.py": 32}
"""Two games of several turns (their words are data beside them); two environments with tools, one over MCP."""


@pytest.mark.parametrize(("file", "most"), FILES.items())
def test_lines_without_blanks_comments_and_docstrings(file, most):
    """Imports, tasks, texts and rewards are counted."""
    assert 10 < code_lines(ROOM / file) <= most


def test_what_is_counted(tmp_path):
    file = tmp_path / "module.py"
    file.write_text('"""Docstring."""\n\nimport os  # counted\n\n# not counted\nTEXT = """two\nlines"""\n"""Not."""\n')
    assert code_lines(file) == 3
