"""What is published is whole: the wheel and the source package hold the studio's page, or are not built."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Any

import pytest

import wanderlust
from project_files import PACKAGES, ROOT
from wanderlust.cli.main import main

PAGE = Path("src/wanderlust/studio/page")
STUDIO = "wanderlust/studio/page/index.html"
HATCHLING = (sys.executable, "-m", "hatchling", "build")


def copy_of_checkout(folder: Path) -> Path:
    """The files that git tracks, or would: no page, whether it is built here or not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A build without Node: nothing but this interpreter is on the PATH."""
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, env=os.environ | {"PATH": ""})


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose page is not built."""
    return copy_of_checkout(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a page and what building it leaves, and both packages in dist/."""
    root = copy_of_checkout(tmp_path_factory.mktemp("built"))
    for name in (PAGE / "index.html", PAGE / "assets/studio.js", Path("web/node_modules/react/index.js")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    done = run(*HATCHLING, cwd=root)
    assert done.returncode == 0, done.stderr
    return root


def names_in_wheel(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as wheel:
        return sorted(wheel.namelist())


def test_wheel_holds_the_page_the_types_and_the_licence_and_no_tests(built):
    (wheel,) = (built / "dist").glob("*.whl")
    names = names_in_wheel(wheel)
    about = f"wanderlust-{wanderlust.__version__}.dist-info"
    wanted = {STUDIO, "wanderlust/studio/page/assets/studio.js", "wanderlust/py.typed", f"{about}/licenses/LICENSE"}
    assert wanted <= {*names}
    assert {name.partition("/")[0] for name in names} == {"wanderlust", about}
    assert [name for name in names if "node_modules" in name or "__pycache__" in name] == []


def test_source_package_holds_the_page_and_gives_the_same_wheel_without_node(built, tmp_path):
    (source,) = (built / "dist").glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{STUDIO}", "hatch_build.py", "LICENSE", "tests/test_package.py", "web/package.json"} <= names
    assert [name for name in names if "node_modules" in name] == []
    pip = (sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation", source)
    done = run(*pip, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (mine,), (theirs,) = tmp_path.glob("*.whl"), (built / "dist").glob("*.whl")
    assert names_in_wheel(mine) == names_in_wheel(theirs)


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_without_the_page_nothing_is_built_and_one_line_says_why(bare, kind):
    done = run(*HATCHLING, "-t", kind, cwd=bare)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line != f"[{kind}]"]
    assert line.startswith("src/wanderlust/studio/page/index.html is missing: ")
    assert "make page" in line
    assert "Node 20.19" in line
    assert list(bare.glob("dist/*")) == []


def test_an_editable_install_needs_no_page(bare, tmp_path):
    done = run(*HATCHLING, "-t", "wheel:editable", "-d", tmp_path, cwd=bare)
    assert done.returncode == 0, done.stderr
    assert [path.suffix for path in tmp_path.iterdir()] == [".whl"]


def test_version_is_the_same_everywhere(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.split() == [wanderlust.__version__]
    assert version("wanderlust") == wanderlust.__version__


def test_metadata_name_the_pythons_that_are_supported(built):
    with zipfile.ZipFile(next((built / "dist").glob("*.whl"))) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        text = wheel.read(name).decode()
    assert "Requires-Python: >=3.11\n" in text
    assert "License-Expression: Apache-2.0\n" in text
    assert "Classifier: Typing :: Typed\n" in text
    assert [f"Classifier: Programming Language :: Python :: 3.{n}\n" in text for n in range(10, 16)] == [
        *[False, True, True, True, True, False]
    ]
    assert metadata("wanderlust")["Name"] == "wanderlust"


def described(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_a_package_has_the_version_of_the_core_and_an_extra_brings_it(folder: Path) -> None:
    project = described(folder)
    pin = f"{project['name']}=={wanderlust.__version__}"
    assert project["version"] == wanderlust.__version__
    assert f"wanderlust=={wanderlust.__version__}" in project["dependencies"]
    extras = described(ROOT)["optional-dependencies"]
    assert pin in extras["environments" if folder.parent.name == "environments" else folder.name]
    assert (folder / "README.md").is_file()


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_a_package_builds_alone_without_tests_and_bars(folder: Path, tmp_path: Path) -> None:
    done = run(*HATCHLING, "-t", "wheel", "-d", tmp_path, cwd=folder)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.iterdir()
    module = f"wanderlust_{folder.name}"
    names = names_in_wheel(wheel)
    assert {name.partition("/")[0] for name in names} == {module, f"{module}-{wanderlust.__version__}.dist-info"}
    own = {path.relative_to(folder / "src").as_posix() for path in folder.glob("src/**/*.py")}
    assert own <= {*names}


def test_what_a_package_brings_names_its_extra_where_it_is_missing() -> None:
    """`published.json` is drawn from the packages' entry points; without their metadata the core stands alone."""
    wanted: dict[str, dict[str, str]] = {}
    for folder in PACKAGES:
        extra = folder.name if folder.parent.name == "packages" else "environments"
        for group, names in described(folder).get("entry-points", {}).items():
            if group.removeprefix("wanderlust.").partition(".")[0] in (
                "commands",
                "curricula",
                "environments",
                "presets",
            ):
                wanted.setdefault(group, {}).update(dict.fromkeys(names, extra))
    assert json.loads((ROOT / "src/wanderlust/published.json").read_text(encoding="utf-8")) == wanted
    extras = described(ROOT)["optional-dependencies"]
    assert {extra for names in wanted.values() for extra in names.values()} <= {*extras}


@pytest.mark.parametrize(
    ("words", "what", "extra"),
    [
        ("hub search x", "no command 'hub': ", "hub"),
        ("eval inbox --policy oracle", "the environment 'inbox' is not installed: ", "environments"),
        ("train --preset life", "there is no preset 'life'; ", "environments"),
    ],
)
def test_without_a_package_one_line_says_what_brings_it(words: str, what: str, extra: str, tmp_path: Path) -> None:
    code = f"""
import importlib.metadata as metadata, sys
found = metadata.entry_points
metadata.entry_points = lambda **wanted: tuple(one for one in found(**wanted) if one.value.startswith("wanderlust."))
from wanderlust.cli.main import main
main({words.split()!r})
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"wander: {what}install it with pip install 'wanderlust[{extra}]'\n"
