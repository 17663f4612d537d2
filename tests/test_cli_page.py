"""docs/cli.md is what the commands say of themselves."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_command_line_page_is_current():
    generator = runpy.run_path(str(DOCS / "generate_cli.py"))
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == generator["page"](), "run: python docs/generate_cli.py"


def test_every_option_that_a_command_describes_is_one_that_it_has():
    for file in (DOCS.parent / "src/wanderlust/cli").glob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            _, marker, described = (ast.get_docstring(function) or "").partition("Parameters\n---")
            arguments = function.args
            own = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg]
            names = {argument.arg for argument in own if argument is not None}
            wrong = set(re.findall(r"^(\w+):$", described, re.M)) - names if marker else set()
            assert not wrong, f"{file.name}: {function.name} has no {wrong}"
