"""Mining: one-place changes, packages as they come, and the cases that each have a name."""

import io
import json
import tarfile
from contextlib import redirect_stdout

import pytest

from repository_shelf import SHELF
from test_repository import needs_own_python, write_shelf
from wanderlust.cli.main import main
from wanderlust.errors import UsageError
from wanderlust_repository.mining import MiningOptions, mine
from wanderlust_repository.mutants import find_edits, still_parses
from wanderlust_repository.package import NotMineable, as_archive, needed_for_tests, read_package
from wanderlust_repository.sentinels import spoil_tests
from wanderlust_repository.task_file import load_record, load_repository_tasks

OPTIONS = MiningOptions(per_package=2, installed=True)


def package(folder, name, **files):
    """A folder with a package of that name; `/` in names of files is written `__`."""
    for path, text in {f"{name}/__init__.py": "def one():\n    return 1\n", **files}.items():
        place = folder / name / path.replace("__DOT__", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder / name


def test_a_change_is_one_place_and_the_rest_stays_byte_for_byte():
    text = (
        'def f(a, b):\n    """é"""\n    if a < b and "ü":  # kept\n        return  a+b\n    return [a, b][0]\n'.encode()
    )
    edits = find_edits("m.py", text)
    assert {"compare", "arithmetic", "boolean", "condition", "return", "constant", "removed"} <= {e.kind for e in edits}
    for edit in edits:
        changed = edit.apply(text)
        assert changed[: edit.start] == text[: edit.start]
        assert changed[len(changed) - (len(text) - edit.end) :] == text[edit.end :]
        assert still_parses(edit, text)
    removed = next(edit for edit in edits if edit.removes_function)
    assert removed.apply(text).decode() == 'def f(a, b):\n    """é"""\n    raise NotImplementedError\n'


def test_files_that_cannot_be_changed_safely_have_no_changes():
    body = "def f(a):\n    return a + 1\n"
    assert find_edits("m.py", body.encode())
    for text in (body.replace("\n", "\r\n"), body + "\x0c\n", body + "(", "\ufeff" + body):
        assert find_edits("m.py", text.encode()) == []


def test_spoilt_tests_compare_with_what_nothing_equals():
    tests = b"""
def test_a():
    assert 1 == 1
    assert [1]

class TestB:
    def test_b(self):
        self.assertEqual(1, 1)
        self.assertTrue(True)

def test_c():
    run()
"""
    texts = spoil_tests({"t.py": tests}, ["t.py::test_a", "t.py::TestB::test_b", "t.py::test_c[x]"])
    spoilt = texts["t.py"]
    assert "assert 1 == (1, 'sentinel" in spoilt
    assert "assert not [1]" in spoilt
    assert "self.assertEqual(1, (1, 'sentinel" in spoilt
    assert "self.assertTrue(not True)" in spoilt
    assert "raise AssertionError" in spoilt


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("six>=1.5", "six>=1.5"),
        ('pytest>=7; extra == "test"', "pytest>=7"),
        ('freezegun; python_version >= "3.9" and extra == "tests"', 'freezegun; python_version >= "3.9"'),
        ('sphinx; extra == "docs"', ""),
        ("pytest-cov", ""),
    ],
)
def test_requirements_of_tests(given, kept):
    assert needed_for_tests(given) == kept


def test_a_source_distribution_is_read_without_running_anything(tmp_path):
    files = {path: text.encode() for path, text in SHELF.items()}
    files["setup.py"] = b"raise SystemExit('was run')\n"
    files["PKG-INFO"] = b"Metadata-Version: 2.1\nName: shelf\nVersion: 2.0\nLicense: MIT\nRequires-Dist: six\n"
    path = tmp_path / "shelf-2.0.tar"
    path.write_bytes(as_archive(files, "shelf-2.0"))
    read = read_package(path)
    assert (read.label, read.licence, read.requires, read.roots) == ("shelf-2.0", "MIT", ("six",), ("",))
    assert read.sources == ("shelf/__init__.py", "shelf/core.py")
    assert read.tests == ("tests/test_core.py",)


def test_archives_that_climb_or_are_damaged(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("../evil.py", "p-1/p.py", "p-1/test_p.py", "/p-1/q.py"):
            entry = tarfile.TarInfo(name)
            entry.size = 6
            archive.addfile(entry, io.BytesIO(b"x = 1\n"))
    path = tmp_path / "p-1.tar"
    path.write_bytes(buffer.getvalue())
    assert not any("evil" in name for name in read_package(path).files)
    path.write_bytes(b"no archive")
    with pytest.raises(NotMineable, match="unreadable"):
        read_package(path)
    with pytest.raises(UsageError, match="no file or folder"):
        read_package(tmp_path / "nothing")


TEST_ONE = "from {0} import one\n\n\ndef test_one():\n    assert one() == 1\n"


def test_each_case_has_its_name(tmp_path):
    needs_own_python()
    """Packages without tests, with failing, slow, flaky and networking ones, and with libraries that there are not."""
    flaky = "import sys\n\n\ndef test_one():\n    assert sys.gettrace() is None\n"  # passes in the first of two runs
    network = "import socket\n\n\ndef test_one():\n    socket.create_connection(('example.com', 80))\n"
    slow = "import time\n\n\ndef test_one():\n    time.sleep(60)\n"
    sources = [
        package(tmp_path, "bare"),
        package(tmp_path, "failing", **{"test_one.py": "def test_one():\n    assert False\n"}),
        package(tmp_path, "slow", **{"test_one.py": slow}),
        package(tmp_path, "network", **{"test_one.py": network}),
        package(tmp_path, "flaky", **{"test_one.py": flaky}),
        package(tmp_path, "broken", **{"test_one.py": "import nothing_of_that_name\n"}),
        package(
            tmp_path,
            "needy",
            **{
                "test_one.py": TEST_ONE.format("needy"),
                "pyproject.toml": '[project]\nname = "needy"\ndependencies = ["no-such-library-anywhere"]\n',
            },
        ),
        package(tmp_path, "untested", **{"test_one.py": "def test_one():\n    pass\n"}),
    ]
    options = MiningOptions(per_package=2, installed=True, suite_seconds=4.0)
    mined = mine(sources, tmp_path / "out", options=options)
    states = {record.package.partition("-")[0]: record.state for record in mined.packages}
    assert states == {
        "bare": "no tests",
        "failing": "tests fail before any change",
        "slow": "slow",
        "network": "network",
        "flaky": "flaky",
        "broken": "tests fail before any change",
        "needy": "requirements",
        "untested": "no tasks",
    }
    assert all("\n" not in record.why for record in mined.packages)
    assert mined.tasks == []


@pytest.mark.proof("seeds")
def test_tests_that_pass_by_chance_are_left_out_and_no_task_hangs_on_them(tmp_path):
    chance = (
        "import pytest\nfrom random import SystemRandom\n\n\n@pytest.mark.parametrize('n', range(40))\n"
        "def test_chance(n):\n    assert SystemRandom().random() < .5\n"
    )
    source = write_shelf(tmp_path)
    (source / "tests" / "test_chance.py").write_text(chance)
    mined = mine([source], tmp_path / "out", options=OPTIONS)
    (record,) = mined.packages
    assert any(note.endswith("flaky tests are left out") for note in record.notes)
    assert mined.tasks == []  # those that passed twice by chance fail beside every change
    assert (record.state, len(record.known) > 4) == ("no tasks", True)


@pytest.fixture(scope="module")
def mined(tmp_path_factory):
    """A folder in which the command mined two packages, its exit status, and what it printed."""
    folder = tmp_path_factory.mktemp("mined")
    sources = [str(write_shelf(folder)), str(package(folder, "bare"))]
    with redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as left:
        main(["tasks", "mine", *sources, "--out", str(folder / "out"), "--installed", "--per-package", "2", "--json"])
    return folder / "out", left.value.code, json.loads(out.getvalue())


def test_tasks_are_checked_and_the_same_again_and_after_a_stop(mined, tmp_path):
    whole, source = mined[0], write_shelf(tmp_path)
    tasks = load_repository_tasks(whole)
    assert len(tasks) == 2
    assert all(task.validated == (1.0, 0.0) and task.sentinels and task.fails for task in tasks)
    record = load_record(whole, "shelf-1.0")
    assert (record.licence, record.licence_text) == ("MIT", "MIT License\n")
    assert all(len(task.fails) + task.passing == len(record.known) for task in tasks)

    lines = (whole / "packages/shelf-1.0.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "b/packages").mkdir(parents=True)
    (tmp_path / "b/packages/shelf-1.0.jsonl").write_bytes(lines[0] + lines[1][:20])
    again = mine([source], tmp_path / "b", options=OPTIONS, workers=2)
    assert again.tasks == load_repository_tasks(tmp_path / "b") == tasks
    with pytest.raises(UsageError, match="other options"):
        mine([source], tmp_path / "b", options=MiningOptions(per_package=5, installed=True))


def test_the_command_says_what_it_made(mined, tmp_path, capsys):
    _, code, said = mined
    assert (code, said["tasks"]) == (0, 2)
    assert [(p["package"], p["state"], p["tasks"]) for p in said["packages"]] == [
        ("shelf-1.0", "mined", 2),
        ("bare", "no tests", 0),
    ]
    for words, expected in (
        (["tasks", "mine", str(write_shelf(tmp_path))], "--out"),
        (["tasks", "dig", "x"], "no command 'dig'"),
        (["tasks", "list", str(tmp_path)], "has no tasks.jsonl"),
    ):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 2
        assert expected in capsys.readouterr().err
