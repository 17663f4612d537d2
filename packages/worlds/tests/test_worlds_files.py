"""Files, which lead nowhere else; and reminders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from are_scenarios import START, TREE
from wanderlust.tools.function import ToolError
from wanderlust_worlds.apps import check_app, files
from wanderlust_worlds.apps.files import Disk, Files, VirtualFiles
from wanderlust_worlds.apps.mail import Mail
from wanderlust_worlds.apps.reminders import MAX_REPETITIONS, Reminders
from wanderlust_worlds.engine.app import format_time
from wanderlust_worlds.engine.cow_dict import CowDict
from wanderlust_worlds.engine.world import World


@pytest.fixture
def world():
    return World(
        [
            Files.from_are("Files", {"files": TREE, "tmpdir": "/tmp/x"}),
            VirtualFiles("Virtual"),
            Mail("Emails"),
            Reminders(),
        ],
        start=START,
    )


@pytest.fixture
def use(world):
    def call(action, /, app="Files", **args):
        return world.call(app, action, args)

    return call


def refused(use, words, action, /, **args):
    with pytest.raises(ToolError, match=words):
        use(action, **args)


def paths(world, app="Files"):
    return sorted(world.apps[app].entries)


def test_files_are_made_read_and_listed(world, use):
    world.app("Files").write_bytes("/Documents/new/a.txt", "né\nb".encode())
    assert use("ls") == ["/Documents"]
    assert use("ls", path="Documents/") == ["/Documents/note.txt", "/Documents/new"]
    assert use("ls", path="/Documents/new", detail=True) == [
        {"name": "/Documents/new/a.txt", "size": 5, "type": "file"}
    ]
    assert use("cat", path="Documents/new/a.txt") == "né\nb"
    assert use("read_document", file_path="Documents/new/a.txt", max_lines=1).startswith("né\n\n[Document truncated.")
    assert use("read_document", file_path="Documents/new/a.txt", max_lines=None) == "né\nb"
    assert use("info", path="/") == {"name": "/", "size": 0, "type": "directory"}
    assert use("tree") == "/\n└── Documents\n    ├── new\n    │   └── a.txt\n    └── note.txt".replace("│   ", "    ")
    assert [use(one, path="Documents/nope") for one in ("exists", "display")] == [False, False]
    refused(use, "there is no 'nope'", "ls", path="nope")
    refused(use, "'Documents' is a folder", "cat", path="Documents")
    assert use("cat", path="nope", on_error="omit") == ""


def test_a_file_of_which_only_the_name_is_known(world, use):
    told = "[the content of Documents/note.txt, 0 bytes, is not part of this world]"
    assert use("cat", path="Documents/note.txt") == use("open", path="Documents/note.txt") == told
    sent = use("send_email", app="Emails", recipients=["a@x.org"], attachment_paths=["Documents/note.txt"])
    assert world.apps["Emails"].sent[sent].attachments == {"note.txt": ""}
    world.app("Files").write_bytes("b.bin", b"\0\1")
    refused(use, "is no text: 2 bytes", "read_document", file_path="b.bin")


def test_files_are_opened_moved_and_removed(world, use):
    use("open", path="a/b.txt", mode="w")
    refused(use, "already", "open", path="a/b.txt", mode="x")
    refused(use, "there is no mode 'q'", "open", path="a/b.txt", mode="q")
    refused(use, "is a folder", "open", path="a", mode="wb")
    use("mv", path1="a/b.txt", path2="c.txt")
    use("mv", path1="c.txt", path2="Documents")
    assert paths(world) == ["Documents", "Documents/c.txt", "Documents/note.txt", "a"]
    use("mv", path1="Documents", path2="a")
    assert paths(world) == ["a", "a/Documents", "a/Documents/c.txt", "a/Documents/note.txt"]
    refused(use, "into itself", "mv", path1="a", path2="a/Documents")
    refused(use, "stays where it is", "mv", path1="/", path2="b")
    refused(use, "not empty", "rm", path="a")
    use("rm", path="a", recursive=True)
    assert paths(world) == []
    refused(use, "there is no 'a'", "rm", path="a")


def test_folders_are_made(world, use):
    use("mkdir", path="a/b")
    refused(use, "already", "mkdir", path="a/b")
    refused(use, "there is no folder 'x'", "mkdir", path="x/y", create_parents=False)
    use("makedirs", path="a/b/c")
    use("makedirs", path="a/b/c", exist_ok=True)
    refused(use, "already", "makedirs", path="a/b/c")
    use("open", path="f", mode="w")
    refused(use, "/f is a file", "mkdir", path="f/g")
    assert paths(world) == ["Documents", "Documents/note.txt", "a", "a/b", "a/b/c", "f"]


def test_the_same_files_with_fewer_arguments(world, use):
    use("mkdir", app="Virtual", path="~/x")
    use("open", app="Virtual", path="~/x/f", mode="a")
    use("mv", app="Virtual", path1="~/x/f", path2="~")
    assert paths(world, "Virtual") == ["home", "home/userhome", "home/userhome/f", "home/userhome/x"]
    use("rmdir", app="Virtual", path="~/x")
    use("rm", app="Virtual", path="~/f")
    refused(use, "is no folder|there is no", "rmdir", app="Virtual", path="~/f")
    assert use("cat", path="Documents/note.txt").startswith("[the content")
    assert "makedirs" not in VirtualFiles.actions


@pytest.mark.parametrize("path", ["..", "../x", "a/../../x", "/../x", "~/../../../x", "Documents/../../tmp_neighbour"])
def test_no_path_leads_out(use, path):
    for action in ("cat", "exists", "ls", "mkdir", "rm", "open"):
        refused(use, "leads out|there is no|already|is a folder", action, path=path)


ODD = st.lists(st.sampled_from(["..", ".", "a", "", "~", "b c", "/", "\0"]), max_size=6).map("/".join)


@given(ODD)
def test_any_path_is_within_or_refused(path):
    kept = Disk(entries=CowDict())
    try:
        kept.write_bytes(path, b"x")
    except ToolError:
        return
    for place in kept.entries:
        assert place
        assert not {"..", ".", ""} & set(place.split("/"))
    assert kept.read_bytes(path) == b"x"


def test_files_have_an_end(world, monkeypatch):
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 3)
    with pytest.raises(ToolError, match="a file may have 3 bytes"):
        world.app("Files").write_bytes("a", b"1234")


def test_trees_come_back_with_contents(world):
    app = world.app("Files")
    app.write_bytes("a/b.txt", b"1")
    offered = app.to_are()
    assert offered["tmpdir"] == "/tmp/x"
    assert Files.from_are("Files", offered).state() == app.state()
    aside = world.branch()
    aside.app("Files").write_bytes("a/b.txt", b"2")
    assert world.app("Files").read_bytes("a/b.txt") == b"1"
    assert check_app(world.apps["Files"]) == check_app(world.apps["Virtual"]) == []


def remind(use, due, **more):
    args = {"title": "Tea", "due_datetime": format_time(due), "description": "Drink it."}
    return use("add_reminder", app="Reminders", **args, **more)


def test_the_agent_is_reminded(world, use):
    name = remind(use, START + 60)
    remind(use, START - 60)
    world.wait(600)
    assert [(notice.time - START, notice.text) for notice in world.deliver()] == [(60.0, "Reminder: Tea. Drink it.")]
    assert world.apps["Reminders"].reminders[name].time_notified == START + 60
    assert len(use("get_due_reminders", app="Reminders")) == 2
    refused(
        use, "due_datetime must be written", "add_reminder", app="Reminders", title="", due_datetime="", description=""
    )


def test_reminders_repeat_until_they_are_deleted(world, use):
    name = remind(use, START + 10, repetition_unit="minute", repetition_value=2)
    assert len(use("get_all_reminders", app="Reminders")) == 1 + MAX_REPETITIONS
    world.wait()
    world.deliver()
    world.wait()
    assert [notice.time - START for notice in world.deliver()] == [130.0]
    use("delete_reminder", app="Reminders", reminder_id=name)
    assert use("get_all_reminders", app="Reminders") == []
    world.wait()
    assert world.deliver() == ()
    refused(use, "there is no reminder", "delete_reminder", app="Reminders", reminder_id=name)
    refused(use, "at least 1", "add_reminder", app="Reminders", title="", due_datetime=format_time(START),
            description="", repetition_unit="day", repetition_value=0)  # fmt: skip


def test_a_month_later_is_the_same_day_or_the_last(world, use):
    remind(use, START + 16 * 86_400, repetition_unit="month")
    remind(use, START, repetition_unit="month", repetition_value=10**9)
    due = [one.due_datetime for one in use("get_all_reminders", app="Reminders")]
    assert due == ["2024-10-31 07:00:00", "2024-11-30 07:00:00", "2024-12-31 07:00:00", "2024-10-15 07:00:00"]
    use("delete_all_reminders", app="Reminders")
    assert use("get_all_reminders", app="Reminders") == []
    old = {
        "reminders": {"r": {"reminder_id": "r", "title": "x", "due_datetime": "2024-10-15T07:00:00", "description": ""}}
    }
    assert Reminders.from_are("R", old).reminders["r"].due_datetime == "2024-10-15 07:00:00"
