"""Commands of `wander`: each takes its own options alone, and installed packages bring further ones."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path

import pytest
from cyclopts import Argument, MissingArgumentError, UnknownOptionError

from wanderlust.cli.main import build, command_names, main

APP = build(overview=False)
NESTED = {name: command_names(APP[name]) for name in command_names(APP) if APP[name].default_command is None}


def wander(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str, list[str]]:
    """The exit code, what went to stdout, and the lines on stderr."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr()
    return end.value.code or 0, said.out, said.err.splitlines()


@cache
def arguments(name: str, below: str) -> dict[str, Argument]:
    """The options of a nested command, by their names."""
    with APP.app_stack([name, below]):
        collection = APP[name][below].assemble_argument_collection()
    return {option: one for one in collection for option in one.names if option.startswith("-")}


def foreign(name: str, below: str) -> dict[str, list[str]]:
    """The options that other commands of `wander NAME` take and this one does not; who takes them."""
    found: dict[str, list[str]] = {}
    for sibling in NESTED[name]:
        for option in arguments(name, sibling).keys() - arguments(name, below).keys():
            found.setdefault(option, []).append(sibling)
    return found


BELOW = [(name, below) for name, many in NESTED.items() for below in many]


def test_commands_with_commands_of_their_own_are_found() -> None:
    assert {*NESTED} == {"data", "hub", "inbox", "judge", "tasks", "world"}
    assert len(BELOW) > 30
    assert sum(len(foreign(*one)) for one in BELOW) > 300


@pytest.mark.parametrize(("name", "below"), BELOW)
def test_an_option_of_a_sibling_is_refused(name: str, below: str, capsys: pytest.CaptureFixture[str]) -> None:
    app, others = build(name), foreign(name, below)
    for option, siblings in others.items():
        is_flag = arguments(name, siblings[0])[option].hint is bool
        words = [name, below, option, *([] if is_flag else ["1"])]
        with pytest.raises((UnknownOptionError, MissingArgumentError)):  # nothing is run where it is taken
            app.parse_args(words, exit_on_error=False, print_error=False)
        if option not in [*others][:2]:  # the line is made the same way for all of them
            continue
        code, out, lines = wander(capsys, *words)
        assert (code, out, len(lines)) == (2, "", 1), words
        told = f"wander {name} {below} has no option {option}: it is for wander {name} "
        assert told in lines[0]
        assert {*siblings} == {*lines[0].partition(told)[2].split(", ")}


@pytest.mark.parametrize("name", NESTED)
def test_help_lists_the_commands_and_of_each_its_own_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, page, _ = wander(capsys, name, "--help")
    assert (code, page) == wander(capsys, "help", name)[:2]
    for below in NESTED[name]:
        line = next(line for line in page.splitlines() if line.startswith(f"│ {below} "))
        assert len(line.split()) > 4
        code, text, _ = wander(capsys, name, below, "--help")
        shown = {word for line in text.splitlines() for word in line.strip("│* ").split()[:3] if word.startswith("-")}
        assert (code, arguments(name, below).keys() - shown) == (0, set()), below
        assert not foreign(name, below).keys() & shown, below


def test_a_command_that_lacks_one_of_its_own_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NESTED:
        code, out, lines = wander(capsys, name)
        assert (code, lines) == (2, [f"wander: wander {name} needs one of its commands"])
        assert out == wander(capsys, name, "--help")[1]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["world", "lst"], ["wander world has no command 'lst'; did you mean list?", "wander world --help"]),
        (["data", "bake"], ["wander data has no command 'bake'; there are build, ablate, teachers"]),
        (["hub", "--key", "k", "init"], ["wander hub has no command '--key'", "init"]),
        (["world", "run"], ["wander world run needs SCENARIO"]),
        (["world", "new", "universe", "x"], ["universe", "family", "persona"]),
        (["world", "show", "invite", "--sed", "1"], ["no option --sed"]),
        (["tasks", "mine", "x"], ["wander tasks mine needs --out"]),
        (["hub", "init", "x", "--key"], ["--key requires an argument"]),
        (["world", "write", "--solvr", "x"], ["wander world write has no option --solvr; did you mean --solver"]),
        (["inbox", "questions", "a", "b", "--out", "x"], ["takes no further 'b'"]),
    ],
)
def test_wrong_calls_are_one_line(words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, lines = wander(capsys, *words)
    assert (code, out, len(lines)) == (2, "", 1)
    assert all(part in lines[0] for part in parts), lines


def test_paths_may_stand_on_both_sides_of_an_option() -> None:
    words = ["tasks", "mine", "a", "--out", "out", "b", "c"]
    _, bound, _ = build("tasks").parse_args(words, exit_on_error=False, print_error=False)
    assert bound.args == (Path("a"), Path("b"), Path("c"))


# Commands of installed packages

LIGHT = """
from wanderlust.cli.commands import Command

SHEEP = Command(target="{module}_heavy:count", help="Count the sheep.")
FLOCK = Command(target="{module}_heavy:flock", help="Look after the flock.")
FOLD = Command(target="{module}_heavy:fold", help="Look after the fold.")
LOST = Command(target="{module}_nowhere:lost", help="Look for the lost one.")
NOTHING = "no command"
"""
HEAVY = '''
from cyclopts import App

from wanderlust.cli.commands import nested

flock = App(name="flock")
fold = nested("fold", "Look after the fold.")


@flock.command
def shear(number: int) -> int:
    print(number, "shorn")
    return 0


@fold.command
def mend(*, wood: str = "oak") -> None:
    """Mend the fold."""
    print("mended with", wood)


def count(number: int) -> int:
    print(number, "sheep")
    return 3

'''
SWEEP = '''
def sweep(*, twice: bool = False) -> int:
    """Sweep the fold."""
    print("swept")
    return 3
'''


def install(folder: Path, package: str, below: str = "", **points: str) -> str:
    """A distribution that gives commands, as it lies in site-packages; the name of its module.

    They stand `below` a nested command, as in `.fold`, where that is given.
    """
    module = package.replace("-", "_")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {target.format(module=module)}\n" for name, target in points.items())
    (info / "entry_points.txt").write_text(f"[wanderlust.commands{below}]\n{lines}")
    (folder / f"{module}.py").write_text(LIGHT.format(module=module))
    (folder / f"{module}_heavy.py").write_text(SWEEP if below else HEAVY)
    return module


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


def test_an_installed_package_brings_commands(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = install(site, "shepherd-one", sheep="{module}:SHEEP", flock="{module}:FLOCK")
    assert json.loads(wander(capsys, "runs", "--json")[1]) == {"runs": []}
    assert module not in sys.modules  # a command of the core reads no entry points
    page = wander(capsys, "--help")[1]
    assert "Count the sheep." in page
    assert "Look after the flock." in page
    assert module in sys.modules
    assert f"{module}_heavy" not in sys.modules
    assert wander(capsys, "sheep", "4") == (3, "4 sheep\n", [])
    assert wander(capsys, "flock", "shear", "4") == (0, "4 shorn\n", [])
    assert "did you mean shear?" in wander(capsys, "flock", "sheer", "4")[2][0]
    assert "did you mean sheep?" in wander(capsys, "shep")[2][0]


def test_a_name_that_two_packages_give_is_refused(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "shepherd-two", sheep="{module}:SHEEP", flock="{module}:FLOCK")
    install(site, "wolf", sheep="{module}:SHEEP")
    for words in (["sheep", "4"], ["--help"], ["shep"]):
        code, out, lines = wander(capsys, *words)
        assert (code, out, len(lines)) == (2, "", 1)
        assert all(part in lines[0] for part in ("shepherd-two", "wolf", "'sheep'", "uninstall one"))
    assert wander(capsys, "flock", "shear", "1")[0] == 0


def test_a_name_of_the_core_is_refused(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "usurper", runs="{module}:SHEEP")
    code, out, lines = wander(capsys, "--help")
    assert (code, out) == (2, "")
    assert lines[0].startswith("wander: wanderlust and usurper ")
    assert "both have a command 'runs': uninstall usurper" in lines[0]
    assert wander(capsys, "runs")[0] == 0


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("{module}:LOST", "_nowhere"),
        ("{module}:NOTHING", "is no wanderlust.cli.commands.Command"),
        ("{module}:NOBODY", "has no 'NOBODY'"),
        ("{module}_broken:SHEEP", "RuntimeError: no pasture"),
        ("{module}_missing:SHEEP", "the package 'no_such_package'"),
    ],
)
def test_a_package_that_cannot_be_imported_is_named(
    target: str, why: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = install(site, f"broken-{abs(hash(target)) % 10**6}", lost=target)
    (site / f"{module}_broken.py").write_text("raise RuntimeError('no pasture')\n")
    (site / f"{module}_missing.py").write_text("import no_such_package\n")
    code, out, lines = wander(capsys, "lost")
    assert (code, out, len(lines)) == (2, "", 1)
    assert module.replace("_", "-") in lines[0]
    assert why in lines[0]
    code, page, lines = wander(capsys, "--help")
    assert (code, "lost" in page, lines) == (0, True, [])


def test_a_package_adds_commands_below_one_of_another(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "shepherd-three", fold="{module}:FOLD")
    module = install(site, "sheepdog", ".fold", sweep="{module}_heavy:sweep")
    assert "Look after the fold." in wander(capsys, "--help")[1]
    assert f"{module}_heavy" not in sys.modules
    page = wander(capsys, "fold", "--help")[1]
    assert all(line in page for line in ("mend   Mend the fold.", "sweep  Sweep the fold."))
    assert wander(capsys, "fold", "sweep", "--twice") == (3, "swept\n", [])
    assert wander(capsys, "fold", "mend") == (0, "mended with oak\n", [])
    line = "wander: wander fold mend has no option --twice: it is for wander fold sweep"
    assert wander(capsys, "fold", "mend", "--twice") == (2, "", [line])
    assert "did you mean sweep?" in wander(capsys, "fold", "swep")[2][0]


@pytest.mark.parametrize(
    ("name", "target", "why"),
    [
        ("sweep", "{module}_nowhere:sweep", "of the package stray-0 1.0, cannot be loaded: "),
        ("mend", "{module}_heavy:sweep", 'Command "mend" already registered.'),
    ],
)
def test_a_command_that_cannot_be_added_is_named(
    name: str, target: str, why: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    number = ["sweep", "mend"].index(name)
    install(site, f"shepherd-of-{number}", fold="{module}:FOLD")
    install(site, f"stray-{number}", ".fold", **{name: target})
    code, out, lines = wander(capsys, "fold", "mend")
    assert (code, out, len(lines)) == (2, "", 1)
    assert why in lines[0]
