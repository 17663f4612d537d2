"""What the metadata of a wheel says: which of its environments a hub offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanderlust.errors import UsageError
from wanderlust_hub.wheel import build_wheel, read_wheel

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "wanderlust-easy-sums"
version = "0.1.0"

[project.entry-points."wanderlust.environments"]
"""
FILES = """
[tool.hatch.build.targets.wheel]
only-include = ["sums.py"]
"""


@pytest.mark.parametrize(
    ("names", "offered"),
    [(("other",), "other"), (("other", "sums"), "sums"), (("sums", "easy-sums"), "easy-sums"), (("a", "b", "ums"), "")],
)
def test_a_package_of_several_environments_offers_the_one_that_it_is_named_after(
    tmp_path: Path, names: tuple[str, ...], offered: str
) -> None:
    entries = "".join(f'{name} = "sums:{name[0]}"\n' for name in names)
    (tmp_path / "pyproject.toml").write_text(PROJECT + entries + FILES)
    (tmp_path / "sums.py").write_text("")
    (out := tmp_path / "out").mkdir()
    wheel = build_wheel(tmp_path, out)
    if offered:
        package = read_wheel(wheel)
        assert (package.environment, package.target) == (offered, f"sums:{offered[0]}")
    else:
        with pytest.raises(UsageError, match="names 3 environments"):
            read_wheel(wheel)
